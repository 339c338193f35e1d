"""`bfm init`: a project to begin with."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Final

from backfill_manager.cli.command import Command
from backfill_manager.cli.context import CliContext
from backfill_manager.cli.options import argument
from backfill_manager.errors import InvalidInput
from backfill_manager.package_files import package_files

SUFFIX: Final = ".txt"  # of the files of the package, so that no tool takes them for its own
RENAMED: Final = {"gitignore": ".gitignore"}


def init(
    context: CliContext,
    folder: str = argument("[FOLDER]", "Folder to create the project in. Default: the current folder.", default="."),
) -> None:
    """Make a project: a configuration, a DAG, a test of it, a README. Files that are there already are never changed.

    Example: [cyan]bfm init shop[/]
    """
    context.refuse_server()
    root = Path(folder).expanduser()
    template = {
        name.removesuffix(SUFFIX): text for name, text in package_files("backfill_manager.cli", "project").items()
    }
    texts = {root / RENAMED.get(name, name): text for name, text in template.items()}
    if there := sorted(str(path) for path in texts if path.exists()):
        raise InvalidInput(f"{', '.join(there)}: there already. `bfm init` makes a project in an empty folder.")
    try:
        for path, text in texts.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(text)
    except OSError as error:
        raise InvalidInput(f"{error.filename or path}: {error.strerror}.") from None
    made = sorted(str(path.relative_to(root)) for path in texts)
    context.out.print_result({"folder": str(root), "files": made}, f"Made in {root}: {', '.join(made)}.")
    if context.out.is_table:
        first = f"cd {shlex.quote(str(root))} && " if folder != "." else ""
        context.out.note(
            f"Next: {first}bfm doctor, then bfm dags test sales, then bfm manager start --with-ui. README.md says more."
        )


command = Command("init", init)
