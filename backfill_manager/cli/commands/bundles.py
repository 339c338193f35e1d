"""`bfm bundles`: where DAGs come from."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Any

import typer

from backfill_manager.cli.context import CliContext, command, group
from backfill_manager.cli.render.output import Column
from backfill_manager.errors import NotFound, Refused

app = group("bundles", "Where DAGs come from: folders, git repositories, archives.")
BundleArgument = Annotated[str, typer.Argument(metavar="BUNDLE", help="Its name, see `bfm bundles list`.")]


@command(app, "list")
def list_(call: CliContext) -> None:
    """List the bundles: where each comes from, which parser reads it, how many DAGs it has, files that can't be read.

    Example: [cyan]bfm bundles list --output json[/]
    """
    columns = (
        "name", "path", "parser", Column("dags", right=True), Column("errors", right=True),
        Column("commit_id", "commit", lambda commit: commit[:12] if commit else ""), Column("refreshed_at", "changed"),
        Column("parsed_at", "read"),
    )  # fmt: skip
    found = call.source.bundles()
    call.out.rows(found, columns, empty="No bundle is configured: name one in conf/manager.yaml under `bundles`.")


@command(app, "show")
def show(call: CliContext, bundle: BundleArgument) -> None:
    """Show one bundle: where it comes from, how it is read (configuration and manifest together), when it was last read.

    Example: [cyan]bfm bundles show examples[/]
    """
    from backfill_manager.queries.bundles import find_bundle

    found = find_bundle([dict(one) for one in call.source.bundles()], bundle)
    about = [
        (name, value) for name, value in found.items() if name not in {"settings", "content_hash", "is_configured"}
    ]
    about = [({"refreshed_at": "changed", "parsed_at": "read"}.get(name, name), value) for name, value in about]
    settings = [(name, _plain(name, value)) for name, value in (found["settings"] or {}).items() if name != "parser"]
    call.out.thing(found, [*about, *settings])


def _plain(name: str, value: Any) -> Any:
    if name in {"directories", "options"} and value:
        import json

        known = (
            [{key: one for key, one in each.items() if one is not None} for each in value]
            if name == "directories"
            else value
        )
        return json.dumps(known, ensure_ascii=False)
    return f"{value:g} s" if isinstance(value, float) else value


@command(app, "parse")
def parse(
    call: CliContext,
    bundle: BundleArgument,
    subpath: Annotated[
        str, typer.Argument(metavar="[SUBPATH]", help="A file or folder of it.", show_default="all of it")
    ] = "",
    dry_run: Annotated[
        bool, typer.Option("--dry-run", "-n", help="Only say what would change.", show_default=False)
    ] = False,
    deactivate_removed: Annotated[
        bool,
        typer.Option("--deactivate-removed", help="DAGs that these files make no more go.", show_default=False),
    ] = False,
) -> int:
    """Have the files of a bundle parsed now, changed or not, and wait for what comes of it: the last step of a rollout.
    Exit code 1 when a file can't be read. Over the tables, a dry run needs no manager.

    Example: [cyan]bfm bundles parse examples flights.py --dry-run[/]
    """
    from backfill_manager.cli.commands.parsing import parse_bundle

    with _found_by_the_manager(bundle):
        return parse_bundle(call, bundle, subpath, dry_run=dry_run, deactivate_removed=deactivate_removed)


@command(app, "deactivate")
def deactivate(
    call: CliContext,
    bundle: BundleArgument,
    subpath: Annotated[str, typer.Argument(metavar="SUBPATH", help="A file or folder of it.")],
) -> None:
    """Make the DAGs of a file or folder inactive, until they have new content or are parsed with `bfm bundles parse`.

    Example: [cyan]bfm bundles deactivate examples old_reports[/]
    """
    from backfill_manager.cli.render.response import print_response

    request = call.source.deactivate_in_bundle(bundle, subpath)
    with _found_by_the_manager(bundle):
        print_response(call, request, f"Deactivate {subpath} of {bundle}", bundle=bundle, subpath=subpath)


@contextmanager
def _found_by_the_manager(bundle: str) -> Iterator[None]:
    """Which bundles there are only a manager knows that leads: its configuration may be another one than ours. That there
    is no such thing ends with the same exit code as everywhere."""
    try:
        yield
    except Refused as refused:
        missing = str(NotFound("bundle", bundle)).removesuffix(".")
        if str(refused).startswith(missing):
            raise NotFound("bundle", bundle, hint=str(refused).removeprefix(missing)) from None
        raise
