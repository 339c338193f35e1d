"""The last runs of every DAG: which they are is read for all DAGs at once, the runs themselves only of those that are shown."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from backfill_manager.model.records import DagRun
from backfill_manager.queries.runs import NOT_LISTED, run_view
from backfill_manager.store.base import Condition, Store

# The number is put in by `int`; nothing from outside is.
_LAST_OF_EACH: Final = """
SELECT dag_id, run_seq, state
FROM (
    SELECT dag_id, run_seq, state, row_number() OVER (PARTITION BY dag_id ORDER BY run_seq DESC) AS place FROM dag_run
) AS placed
WHERE place <= {n}
ORDER BY run_seq
"""


@dataclass(frozen=True)
class Newest:
    """The last made runs of a DAG, oldest first, and the state of the very last."""

    seqs: tuple[int, ...]
    state: str


def newest_runs(store: Store, n: int = 14) -> dict[str, Newest]:
    """The last `n` made runs of each DAG that has any, by DAG."""
    _, found = store.query(_LAST_OF_EACH.format(n=int(n)))
    newest: dict[str, Newest] = {}
    for dag_id, seq, state in found:
        before = newest.get(dag_id)
        newest[dag_id] = Newest((*before.seqs, seq) if before else (seq,), state)
    return newest


def recent_runs(store: Store, newest: Mapping[str, Newest], dag_ids: Iterable[str]) -> dict[str, list[dict[str, Any]]]:
    """The runs that `newest` names, oldest first, of those of these DAGs that have any."""
    seqs = tuple(seq for dag_id in dag_ids if dag_id in newest for seq in newest[dag_id].seqs)
    runs: dict[str, list[dict[str, Any]]] = {}
    if not seqs:
        return runs
    for row in store.read(DagRun, [Condition("run_seq", "in", seqs)], order_by=("run_seq",), without=NOT_LISTED):
        runs.setdefault(row.dag_id, []).append(run_view(row))
    return runs
