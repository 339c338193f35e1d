"""`bfm import`: drafts of DAG files from the files of other tools."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from backfill_manager.cli.command import Group
from backfill_manager.cli.context import CliContext
from backfill_manager.cli.options import argument, flag, option
from backfill_manager.cli.render.printer import Column
from backfill_manager.errors import InvalidInput
from backfill_manager.humanise import plural

if TYPE_CHECKING:
    from backfill_manager.importers.draft import Draft
    from backfill_manager.importers.files import Converted, Translate

group = Group("import", "Drafts of DAG files from Airflow, dbt and Dagster.")
PLACE = argument("FILE|FOLDER", "DAG file, or folder: all .py files in it and below it.")
TO = option(
    "--to",
    "Write the drafts into this folder, such as dags. Without it, the draft of a FILE is printed; for a "
    "FOLDER, only remarks and the number of files that have DAGs.",
    metavar="FOLDER",
)
FORCE = flag("--force", "Overwrite existing files.")


@group.command("airflow")
def airflow(context: CliContext, place: str = PLACE, to: str | None = TO, force: bool = FORCE) -> int:
    """Make drafts of DAG files from Airflow's. Each thing that has no equivalent here gets a remark: a comment `TODO`, and
    a line of the table. No file is executed, and Airflow need not be installed. Exit code 1 if a file is not valid Python,
    2 if no DAG was found.

    Example: [cyan]bfm import airflow ~/airflow/dags --to dags[/]
    """
    from backfill_manager.importers.airflow.translate import translate
    from backfill_manager.importers.files import text_within

    def with_files(text: str, file: str) -> Draft:
        return translate(text, file, lambda name: text_within(Path(place).expanduser(), file, name))

    return _convert(context, place, with_files, to, force, nothing="no DAG was found")


@group.command("dbt")
def dbt(
    context: CliContext,
    place: str = argument("PROJECT", "Folder with dbt_project.yml."),
    to: str | None = option(
        "--to", "Write the draft into this folder, such as dags. Without it, the draft is printed.", metavar="FOLDER"
    ),
    force: bool = FORCE,
    by_tag: bool = flag("--by-tag", "Create one DAG for each first tag of a model, instead of one for the project."),
) -> int:
    """Make a draft of a DAG file from a dbt project. Each model becomes a SQL task with what it reads and writes, and its
    tests become checks. It reads target/manifest.json if `dbt parse` has written it, else the project's files. dbt need not
    be installed.

    Example: [cyan]bfm import dbt ~/shop --to dags[/]
    """
    from backfill_manager.importers.dbt.drafts import drafts
    from backfill_manager.importers.dbt.project import read_project
    from backfill_manager.importers.files import Converted
    from backfill_manager.importers.writer import write

    context.refuse_server("files of this machine")
    found = [
        Converted(name, name, draft, write(draft))
        for name, draft in drafts(read_project(Path(place).expanduser()), by_tag=by_tag)
    ]
    return _report(context, found, to, force, show_text=True)


@group.command("dagster")
def dagster(context: CliContext, place: str = PLACE, to: str | None = TO, force: bool = FORCE) -> int:
    """Make drafts of DAG files from Dagster's: assets and jobs with their schedules and partitions. Each thing that has no
    equivalent here gets a remark. No file is executed, and Dagster need not be installed. Exit code 1 if a file is not valid
    Python, 2 if no asset and no job was found.

    Example: [cyan]bfm import dagster ~/shop/assets.py --to dags[/]
    """
    from backfill_manager.importers.dagster.drafts import translate

    return _convert(context, place, translate, to, force, nothing="no asset and no job was found")


def _convert(
    context: CliContext, place: str, translate: Translate, to: str | None, force: bool, *, nothing: str
) -> int:
    """`InvalidInput`, with `nothing` as its reason, if all files could be read and none has a DAG. The remarks on a single
    file come before it: they may say why."""
    from backfill_manager.importers.files import convert

    context.refuse_server("files of this machine")
    path = Path(place).expanduser()
    found = list(convert(path, translate))
    if not any(one.has_dags or one.error for one in found):
        for remark in found[0].draft.remarks if path.is_file() and found[0].draft else ():
            if remark.line is not None:
                context.out.note(f"line {remark.line}: {remark.what}: {remark.instead}")
        where = place if path.is_file() else f"{place} ({plural(len(found), 'Python file')})"
        raise InvalidInput(f"{where}: {nothing}, so there is nothing to import.")
    return _report(context, found, to, force, show_text=path.is_file())


def _report(context: CliContext, found: Sequence[Converted], to: str | None, force: bool, *, show_text: bool) -> int:
    from backfill_manager.importers.files import save

    written = [str(path) for path in save(found, Path(to).expanduser(), force=force)] if to is not None else []
    remarks = [
        {"file": one.file, **asdict(remark)}
        for one in found
        for remark in (one.draft.remarks if one.draft and (one.has_dags or show_text) else ())
    ]
    wrong = [one for one in found if one.error is not None]
    out = context.out
    if not out.is_table:
        out.print_document({"files": [_file(one) for one in found], "written": written, "remarks": remarks})
        return 1 if wrong else 0
    if to is None and show_text:
        for one in found:
            print(one.text, end="")
        for each in remarks:
            out.note(f"line {each['line'] or '-'}: {each['what']}: {each['instead']}")
    elif remarks:
        places = (Column("file", whole=True), Column("line", right=True))
        out.print_rows(remarks, (*places, Column("what", fold=True), Column("instead", fold=True)))
    for one in wrong:
        out.note(f"{one.file}: {one.error}.", style="red")
    if written:
        out.print_line(f"Written: {', '.join(written)}.")
        out.note(
            "Drafts: read what TODO says in them, then `bfm bundles parse BUNDLE --dry-run` and `bfm dags test DAG`."
        )
    elif not show_text:
        names = [one.file for one in found if one.has_dags]
        then = " --to FOLDER writes their drafts." if names else " Nothing is written."
        out.note(f"{len(names)} of {plural(len(found), 'file')} {'has' if len(found) == 1 else 'have'} DAGs.{then}")
    return 1 if wrong else 0


def _file(one: Converted) -> dict[str, Any]:
    return {
        "file": one.file, "dags": [dag.function for dag in one.draft.dags] if one.draft else [], "error": one.error,
        "draft": one.text if one.has_dags else None,
    }  # fmt: skip
