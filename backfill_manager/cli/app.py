"""`run`: one command line, from arguments to exit code, with the one handler of errors.

A named error (`errors`) is one red line and its class's exit code; any other is a bug, reported in one line. `--debug`
shows the traceback. Only the command that is called is imported and built.
"""

from __future__ import annotations

import errno
import importlib
import os
import sys
import traceback
from collections.abc import Sequence
from dataclasses import replace
from keyword import iskeyword
from typing import Annotated, Any, Final

import typer

from backfill_manager.cli.airflow_aliases import moved_command
from backfill_manager.cli.command import GLOBAL_OPTIONS, with_signature
from backfill_manager.cli.context import CliContext
from backfill_manager.cli.options import parameter
from backfill_manager.errors import BackfillManagerError, nearest
from backfill_manager.store.refresh_once import refresh_once

# modules of `commands/` that define a `group`; in the order in which a newcomer needs them
GROUPS: Final = (
    "manager", "dags", "bundles", "backfill", "runs", "tasks", "requests", "pools", "tables", "notify", "state", "config",
    "import",
)  # fmt: skip
COMMANDS: Final = ("init", "doctor", "lineage", "serve")  # those that define a single `command`
INTRODUCTION: Final = """Spark-native backfills with their state in Delta tables.

A manager ([cyan]bfm manager start[/]) runs what other commands ask for; these submit requests to it, or read the state:

[cyan]bfm dags list[/] · which DAGs there are

[cyan]bfm backfill create flights --from 2013-01-01 --to 2013-01-31 --dry-run[/] · what would run

[cyan]bfm backfill create flights --from 2013-01-01 --to 2013-01-31 --wait[/] · run it and watch

Exit codes: 0 done, 1 carried out and failed, 2 wrong input, 3 not found, 4 refused by the manager.
"""
INTERRUPTED: Final = 130
BROKEN_PIPE: Final = 1
# What the machine refuses: no right to a file, another kind of file, no space or descriptors.
_OF_THE_MACHINE: Final = frozenset(
    {
        errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOTDIR, errno.EISDIR, errno.ELOOP, errno.ENAMETOOLONG, errno.ENOSPC,
        errno.EDQUOT, errno.EIO, errno.EMFILE, errno.ENFILE,
    }
)  # fmt: skip
# Typer carries a copy of Click since 0.2x and used the package before; its errors have one base either way.
_USAGE_ERROR: Final[Any] = next(base for base in typer.BadParameter.__mro__ if base.__name__ == "ClickException")


def run(argv: Sequence[str] | None = None, context: CliContext | None = None) -> int:
    """Runs one command line. `context` brings a clock and an environment of the caller's own."""
    args = list(sys.argv[1:] if argv is None else argv)
    context = replace(context or CliContext(), debug="--debug" in args)
    try:
        with refresh_once():
            code = _app(args)(args, prog_name="bfm", obj=context, standalone_mode=False)
        sys.stdout.flush()
        return code if isinstance(code, int) else 0
    except BackfillManagerError as error:
        from backfill_manager.cli.render.errors import worded

        return _report(error, worded(error) or type(error).__name__, error.exit_code, context)
    except _USAGE_ERROR as error:
        return _report_usage(error, context, args)
    except BrokenPipeError:  # the reader of our output has closed it
        _drop_output()
        return BROKEN_PIPE
    except SystemExit as ended:  # Typer and rich do the same when they are the first to meet the closed pipe
        return ended.code if isinstance(ended.code, int) else BROKEN_PIPE
    except (KeyboardInterrupt, typer.Abort):
        return INTERRUPTED
    except Exception as error:  # noqa: BLE001 - the one place where an unnamed error is reported instead of raised
        if isinstance(error, OSError) and error.errno in _OF_THE_MACHINE:
            try:
                sys.stdout.flush()
            except OSError:
                _drop_output()
            return _report(error, f"{error.filename or 'Output, or a file'}: {error.strerror}.", 1, context)
        message = f"Unexpected {type(error).__name__}: {' '.join(str(error).split())}. A bug in backfill_manager"
        return _report(error, f"{message}; run again with --debug to see where.", 1, context)
    finally:
        context.close()


def _drop_output() -> None:
    """What is left of it can't be written; Python must not complain of that when it flushes at the end."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _app(args: Sequence[str]) -> typer.Typer:
    app = typer.Typer(
        name="bfm", help=INTRODUCTION, no_args_is_help=True, rich_markup_mode="rich", add_completion=False,
        pretty_exceptions_enable=False, context_settings={"help_option_names": ["-h", "--help"]},
    )  # fmt: skip
    version = typer.Option("--version", help="Print the version.", is_eager=True, callback=_print_version)
    options = [parameter("ctx", typer.Context), parameter("version", Annotated[bool, version], False)]
    override = with_signature(lambda ctx, version, **given: ctx.obj.override(**given), [*GLOBAL_OPTIONS, *options])
    app.callback()(override)
    names = (*GROUPS, *COMMANDS)
    for name in [name for name in names if name in args] or names:
        module = importlib.import_module(f"backfill_manager.cli.commands.{name}{'_' * iskeyword(name)}")
        if name in GROUPS:
            app.add_typer(module.group.typer_app(args))
        else:
            module.command.add_to(app)
    return app


def _print_version(is_given: bool) -> None:
    if is_given:
        from importlib.metadata import version

        print(f"backfill_manager {version('backfill-manager')}")
        raise typer.Exit


def _report(error: Exception, message: str, code: int, context: CliContext) -> int:
    if context.debug:
        traceback.print_exception(error)
    context.out.note(message, style="red")
    return code


def _report_usage(error: Any, context: CliContext, args: Sequence[str]) -> int:
    click_context = getattr(error, "ctx", None)
    message = error.format_message()
    if type(error).__name__ == "NoArgsIsHelpError":  # the help
        sys.stdout.write(message + "\n" if message else "")
        return 2
    path = click_context.command_path if click_context else "bfm"
    if message.startswith("No such command") and click_context is not None:
        wrong = message.split("'")[1] if "'" in message else ""
        if moved := moved_command(path.removeprefix("bfm").strip(), wrong, args):
            return _report(error, f"`{path} {wrong}` is no command here; what you want is `{moved}`.", 2, context)
        if "did you mean" not in message.lower():
            names = (*GROUPS, *COMMANDS) if path == "bfm" else tuple(getattr(click_context.command, "commands", ()))
            message = message.rstrip(".") + (nearest(wrong, names) or f"; one of {', '.join(names)}.")
    message = message.strip().replace("Value error, ", "")
    stop = "" if message.endswith((".", "?")) else "."
    return _report(error, f"{message}{stop} See `{path} --help`.", 2, context)
