"""The gaps of a DAG by data, over a range as a person writes it."""

from __future__ import annotations

from datetime import datetime

from backfill_manager.planning.backfill_range import with_defaults
from backfill_manager.queries.dags import known_dag
from backfill_manager.queries.data_gaps import CountRows, GapReport, find_gaps
from backfill_manager.requests.backfill_checks import check_range, read_backfill
from backfill_manager.schemas.commands import BackfillInput
from backfill_manager.store.base import Store


def gap_report(
    store: Store, dag_id: str, start_date: str | None, end_date: str | None, now: datetime, count: CountRows | None = None
) -> GapReport:  # fmt: skip
    """Dates are read as for a backfill, and refused as there. An end that is left out is the last complete interval's."""
    _, dag = known_dag(store, dag_id)
    typed = BackfillInput(dag_id=dag_id, kind="missing", start_date=start_date, end_date=end_date)
    command = read_backfill(typed, dag)
    check_range(command, dag, now)
    command = with_defaults(command, dag, now)
    assert command.start_date is not None and command.end_date is not None, "else the range was refused"
    return find_gaps(store, dag, command.start_date, command.end_date, count)
