"""`bfm state`: the Delta tables that hold it all."""

from __future__ import annotations

import json
from functools import partial
from typing import Annotated, Final

import typer

from backfill_manager.cli.context import CliContext, command, group
from backfill_manager.cli.render.output import Column, written
from backfill_manager.errors import InvalidInput
from backfill_manager.schemas.errors import refusal

LOOK_AGAIN_S: Final = 1.0  # whether the manager that was asked still leads

app = group("state", "The Delta tables that hold it all.")


@command(app, "init")
def init(call: CliContext) -> None:
    """Make the state tables that are missing. Harmless when repeated; `bfm manager start` does it too.

    Example: [cyan]bfm --state ./state state init[/]
    """
    store = call.any_store
    made = store.init()
    tables = "1 table" if len(made) == 1 else f"{len(made)} tables"
    call.out.told(
        {"state": store.root, "engine": store.engine, "made": made},
        f"Made {tables} at {store.root}." if made else f"All is there at {store.root}.",
    )


@command(app, "check")
def check(call: CliContext) -> int:
    """Look at every state table: there, readable, of the right version and engine. Exit code 1 when something is wrong.

    Example: [cyan]bfm state check[/]
    """
    call.needs_tables("see by `bfm manager status` whether the server can read it")
    found = call.store.check()
    rows = [{"table": one.table, "outcome": "ok" if one.ok else "wrong", "message": one.message} for one in found]
    call.out.rows(rows, ("table", "outcome", Column("message", fold=True)))
    return 0 if all(one.ok for one in found) else 1


@command(app, "compact")
def compact(call: CliContext) -> None:
    """Rewrite small files into few large ones and take away what nothing refers to any more, in every state table. The
    manager that leads does it (its ticks wait meanwhile), or this command where none does. Managers tidy up by themselves:
    this is for a state that is to be handed on, or was written by many short-lived ones.

    Example: [cyan]bfm state compact[/]
    """
    call.needs_tables()
    files = _compacted_by_the_leader(call)
    if files is None:
        from backfill_manager.manager.compaction import compact_state

        files = compact_state(call.store, call.settings, call.clock)
    if call.out.is_table:
        call.out.rows([{"table": table, "files": n} for table, n in files.items()], ("table", "files"))
    else:
        call.out.document({"files": files})


def _compacted_by_the_leader(call: CliContext) -> dict[str, int] | None:
    """Table -> files now. None when nobody leads, or none any more before the request was answered: the next manager does
    it once more, which harms nobody. `Refused` with the manager's reason."""
    from backfill_manager.queries.managers import has_active_manager
    from backfill_manager.requests import submit
    from backfill_manager.schemas.kinds import REFUSED, STATE_COMPACT

    if not has_active_manager(call.store, call.clock.now()):
        return None
    request = submit.submit(call.store, call.clock, STATE_COMPACT, {})
    look = partial(submit.wait_for_response, call.store, call.clock, request.request_id, LOOK_AGAIN_S, pause=call.pause)
    while (answer := look()) is None:
        if not has_active_manager(call.store, call.clock.now()):
            return None
    if answer.outcome == REFUSED:
        raise refusal(answer)
    return dict(json.loads(answer.payload_json or "{}")["files"])


@command(app, "where")
def where(call: CliContext) -> None:
    """Print where each table is, for reading it with Spark, DuckDB, Databricks SQL or Power BI.

    Example: [cyan]bfm state where --output json[/]
    """
    found = call.store.locations()
    if call.out.is_table:
        call.out.rows([{"table": table, "location": place} for table, place in found.items()], ("table", "location"))
    else:
        call.out.document(found)


@command(app, "adopt")
def adopt(
    call: CliContext,
    as_copy: Annotated[
        bool,
        typer.Option(
            "--as-copy",
            help="This state is a copy: it goes on under a new id. What it does from now on, it writes anew.",
        ),
    ] = False,
    as_original: Annotated[
        bool,
        typer.Option(
            "--as-original",
            help="This state is what it was, at a new place. One that is left at the old place gets a new id.",
        ),
    ] = False,
) -> None:
    """Say which of two states goes on, after one was copied. A manager refuses to start on a state whose last place still
    holds the same one: every state has an id, which is part of each output's transaction, and two that share one would
    take each other's output for their own.

    [cyan]--as-copy[/] is also right for a state that was restored from a backup, or copied to the same path of another
    machine: what the backup does not know of is then written again. No manager may be leading it.

    Example: [cyan]bfm --state ./state-for-tests state adopt --as-copy[/]
    """
    call.needs_tables()
    if as_copy == as_original:
        raise InvalidInput("Say what this state is: --as-copy or --as-original.")
    from backfill_manager.manager.adopt_state import adopt_state

    store = call.store
    store.init()
    made = adopt_state(store, call.settings, call.clock, "copy" if as_copy else "original")
    document = {
        "state": store.root, "state_id": made.state_id, "previous_state_id": made.previous_id,
        "other_state": made.other, "other_state_id": made.other_id,
    }  # fmt: skip
    call.out.told(document, f"The state at {store.root} goes on as {made.state_id}.")
    if made.other is None or as_copy:
        return
    if made.other_id is not None:
        call.out.remark(f"The one at {made.other} is a copy from now on: {made.other_id}.")
    else:
        call.out.remark(
            f"The one at {made.other} could not be changed. Start no manager there before "
            f"`bfm --state {made.other} state adopt --as-copy`."
        )


@command(app, "sql")
def sql(
    call: CliContext, query: Annotated[str, typer.Argument(metavar='"SELECT …"', help="One statement that only reads.")]
) -> None:
    """Ask the state tables a question in SQL. It can only read.

    Example: [cyan]bfm state sql "SELECT state, count(*) AS runs FROM dag_run GROUP BY state"[/]
    """
    names, rows = call.store.query(query)
    dicts = [dict(zip(names, row, strict=True)) for row in rows]
    columns = [Column(name, write=written) for name in names]  # as the tables hold it, whatever a column is called
    call.out.rows(dicts, columns, empty="No rows.")
