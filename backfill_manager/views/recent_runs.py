"""The last runs of every DAG at once: the small bars of a list."""

from __future__ import annotations

from typing import Any, Final

from backfill_manager.model.records import DagRun
from backfill_manager.store.contract import Condition, Store
from backfill_manager.views.runs import NOT_LISTED, run_view

# The number is put in by `int`; nothing from outside is.
_LAST_OF_EACH: Final = """
SELECT run_seq
FROM (SELECT run_seq, row_number() OVER (PARTITION BY dag_id ORDER BY run_seq DESC) AS place FROM dag_run) AS placed
WHERE place <= {n}
"""


def recent_runs(store: Store, n: int = 14) -> dict[str, list[dict[str, Any]]]:
    """The last `n` made runs of each DAG that has any, oldest first, by DAG."""
    _, found = store.query(_LAST_OF_EACH.format(n=int(n)))
    if not found:
        return {}
    where = [Condition("run_seq", "in", tuple(seq for (seq,) in found))]
    rows = store.read(DagRun, where, order_by=("run_seq",), without=NOT_LISTED)
    runs: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        runs.setdefault(row.dag_id, []).append(run_view(row))
    return runs
