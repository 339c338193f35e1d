"""Stores a plan as a backfill (with `downstream`: as a tree of them), in memory and in the tables.

Items are appended first, as Arrow and never as Python rows; then the backfills' rows, all in one commit. A crash before that
leaves items without a backfill, which the next leader deletes, and the request is planned again.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import datetime

from backfill_manager.dags.definition import DagSpec
from backfill_manager.manager.prefetch import refill
from backfill_manager.manager.state import ActiveBackfill, ManagerState
from backfill_manager.manager.tick_context import PlanRequest
from backfill_manager.model import states as s
from backfill_manager.model.records import Backfill
from backfill_manager.model.transitions import Changes
from backfill_manager.planning.backfills.backfill_plan import BackfillPlan
from backfill_manager.schemas.backfill_columns import STORED_OPTIONS, columns_of
from backfill_manager.store.base import Leader, Store


def create_backfills(
    state: ManagerState, store: Store, leader: Leader, request: PlanRequest, plan: BackfillPlan,
    new_id: Callable[[], str], now: datetime,
) -> list[ActiveBackfill]:  # fmt: skip
    """The requested backfill, then those downstream of it. Commits by itself, before the tick's own commit: no run may exist
    before its backfill."""
    changes, lives = Changes(), list[ActiveBackfill]()
    ids = {plan.dag.dag_id: request.backfill_id, **{part.dag.dag_id: new_id() for part in plan.downstream}}
    for part in (plan, *plan.downstream):
        backfill_id, items = ids[part.dag.dag_id], part.items
        first = leader.next_seq(items.num_rows + 1)
        leader.append_items(part.rows_for(backfill_id, first))
        full = replace(request, backfill_id=backfill_id, command=part.command)  # with the ends of its range filled in
        parents = [ids[dag_id] for dag_id in part.parents]
        row = backfill_row(full, part.dag, part.dag_version, items.num_rows, first + items.num_rows, now, parents)
        row = row.evolve(preview_id=request.backfill_id if request.command.preview else None)
        changes.put(row)
        counted = items.column("state").value_counts().to_pylist()
        counts = Counter({one["values"]: one["counts"] for one in counted})
        past = None if part.limits is None else list(part.past)
        lives.append(ActiveBackfill(row=row, spec=state.spec_of_backfill(row), counts=counts, past=past))
    leader.commit(changes)
    for live in lives:
        refill(live, store)
        state.backfills[live.row.backfill_id] = live
    return lives


def backfill_row(
    request: PlanRequest, dag: DagSpec, dag_version: int, planned: int, run_seq: int, now: datetime,
    parents: Sequence[str] = (),
) -> Backfill:  # fmt: skip
    command = request.command
    options = columns_of({name: getattr(command, name) for name in STORED_OPTIONS})
    options["reprocess"] = command.effective_reprocess
    options["max_active_runs"] = command.max_active_runs or dag.max_active_runs
    return Backfill(
        **options, backfill_id=request.backfill_id, state=s.QUEUED, config_json=json.dumps(command.config()),
        is_paused=False, created_at=now, run_seq=run_seq, planned=planned, dag_version=dag_version,
        parents_json=json.dumps(list(parents)), created_by=request.requested_by, request_id=request.request_id,
    )  # fmt: skip
