"""A plan becomes a backfill (with `--downstream`: a tree of them), alive and in the tables.

Its items go in first, as Arrow and never as Python rows; then the backfills' rows, all in one commit: a crash before that
leaves items that nobody owns, which are swept away at the next take-over, and the request is planned again.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import datetime

from backfill_manager.dags.definition import DagSpec
from backfill_manager.manager.instructions import PlanRequest
from backfill_manager.manager.planner import PlanResult
from backfill_manager.manager.prefetch import refill
from backfill_manager.manager.state import ActiveBackfill, ManagerState
from backfill_manager.model import states as s
from backfill_manager.model.records import Backfill
from backfill_manager.model.transitions import Changes
from backfill_manager.planning.backfill_plan import BackfillPlan
from backfill_manager.store.base import Leader, Store


def make_backfills(
    state: ManagerState, store: Store, leader: Leader, planned: PlanResult, new_id: Callable[[], str], now: datetime
) -> list[ActiveBackfill]:
    """The one asked for, then those downstream of it. Commits by itself, ahead of the tick's own commit: no run may be
    there before its backfill."""
    assert planned.plan is not None
    wanted, made = planned.wanted, Changes()
    ids = {planned.plan.dag.dag_id: wanted.backfill_id}
    lives = [_make(state, leader, planned.plan, wanted, planned.dag_version, [], made, now)]
    for plan in planned.plan.downstream:
        ids[plan.dag.dag_id] = new_id()
        child = replace(wanted, backfill_id=ids[plan.dag.dag_id])
        parents = [ids[dag_id] for dag_id in plan.parents]
        lives.append(_make(state, leader, plan, child, plan.dag_version, parents, made, now))
    leader.commit(made)
    for live in lives:
        refill(live, store)
        state.backfills[live.row.backfill_id] = live
    return lives


def _make(
    state: ManagerState,
    leader: Leader,
    plan: BackfillPlan,
    wanted: PlanRequest,
    dag_version: int,
    parents: list[str],
    made: Changes,
    now: datetime,
) -> ActiveBackfill:
    items = plan.items
    first = leader.next_seq(items.num_rows + 1)
    leader.append_items(plan.rows_for(wanted.backfill_id, first))
    full = replace(wanted, ask=plan.ask)  # with the ends of its range filled in
    row = backfill_row(full, plan.dag, dag_version, items.num_rows, first + items.num_rows, now, parents)
    made.put(row)
    counted = items.column("state").value_counts().to_pylist()
    counts = Counter({one["values"]: one["counts"] for one in counted})
    return ActiveBackfill(row=row, spec=state.spec_of_backfill(row), counts=counts)


def backfill_row(
    wanted: PlanRequest,
    dag: DagSpec,
    dag_version: int,
    planned: int,
    run_seq: int,
    now: datetime,
    parents: Sequence[str] = (),
) -> Backfill:
    """The backfill as it begins its life."""
    ask = wanted.ask
    return Backfill(
        backfill_id=wanted.backfill_id, dag_id=ask.dag_id, state=s.QUEUED, config_json=json.dumps(ask.config()),
        reprocess=ask.effective_reprocess, max_active_runs=ask.max_active_runs or dag.max_active_runs, priority=ask.priority,
        pool=ask.pool, is_paused=False, created_at=now, run_seq=run_seq, planned=planned, dag_version=dag_version,
        conf_json=json.dumps(ask.conf), tasks=ask.tasks, with_upstream=ask.with_upstream,
        with_downstream=ask.with_downstream, mark_success=ask.mark_success, batch=ask.batch,
        overrides_json=json.dumps(ask.overrides), window=ask.window, is_polite=ask.is_polite,
        parents_json=json.dumps(list(parents)), stop_on_failure=ask.stop_on_failure, created_by=wanted.requested_by,
        request_id=wanted.request_id, ignore_first_depends_on_past=ask.ignore_first_depends_on_past,
    )  # fmt: skip
