"""`bfm doctor`: whether everything is there that a manager needs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from backfill_manager.cli.command import Command
from backfill_manager.cli.context import CliContext
from backfill_manager.cli.options import option
from backfill_manager.cli.render.printer import Column
from backfill_manager.errors import BackfillManagerError

if TYPE_CHECKING:
    from backfill_manager.cli.machine_checks import Check


def doctor(
    context: CliContext,
    thorough: bool = option(
        "--thorough",
        "Also start Spark; write, read and delete a Delta table in the warehouse; run Python on a worker of Spark; read every "
        "file of the state; let two writers race in its storage.",
        default=False,
    ),
) -> int:
    """Check what a manager needs: Python, Java, Spark, Delta, memory, files, clocks, port, configuration, storage,
    versions. Each line that is not ok says what to do. Exit code 1 if there is an error.

    Example: [cyan]bfm doctor --thorough[/]
    """
    context.refuse_server()
    found = list(_checks(context, thorough))
    columns = [Column("name", "check", whole=True), Column("status", whole=True), Column("found", fold=True)]
    columns += [Column("advice", "what to do", fold=True)] if any(one.advice for one in found) else []
    context.out.print_rows([one.document() for one in found], columns)
    wrong = [one.name for one in found if one.status == "error"]
    if context.out.is_table:
        context.out.note(f"To be mended: {', '.join(wrong)}." if wrong else "A manager can work here.")
    return 1 if wrong else 0


def _checks(context: CliContext, thorough: bool) -> Iterator[Check]:
    from backfill_manager.cli.machine_checks import (
        Check,
        check_fencing,
        check_machine,
        check_place,
        check_spark,
        check_tables,
    )  # fmt: skip
    from backfill_manager.store import open_store
    from backfill_manager.store.uri import is_catalog_schema

    yield from check_machine()
    try:
        settings = context.settings
    except BackfillManagerError as error:
        yield Check("configuration", "error", str(error), "`bfm config check` names every mistake with its place.")
        return
    yield Check("configuration", "ok", "valid")
    yield from check_place(settings, context.clock)
    if not thorough:
        return
    if not is_catalog_schema(settings.state) and (store := open_store(settings.state)).exists():
        yield from check_tables(store)
        yield check_fencing(store)
    yield check_spark(settings)


command = Command("doctor", doctor)
