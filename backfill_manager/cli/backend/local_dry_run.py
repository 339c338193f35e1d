"""A dry run over the tables: a living manager plans it, whose Spark is warm; without one it is planned in this process.
Both call the same planner."""

from __future__ import annotations

import json
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

from backfill_manager.cli.commands.creating import Wish, ask_for
from backfill_manager.cli.context import CliContext
from backfill_manager.errors import BackfillManagerError
from backfill_manager.queries.dags import current_dag, current_dags
from backfill_manager.queries.managers import has_active_manager
from backfill_manager.requests import submit
from backfill_manager.requests.validation import new_backfill
from backfill_manager.schemas.commands import CreateBackfill
from backfill_manager.schemas.errors import refusal
from backfill_manager.schemas.kinds import BACKFILL_DRY_RUN, REFUSED

if TYPE_CHECKING:
    from backfill_manager.dags.definition import DagSpec

DRY_RUN_PATIENCE_S: Final = 60.0


def plan(call: CliContext, wish: Wish) -> dict[str, Any]:
    row, dag = current_dag(call.store, wish.dag_id)
    ask = ask_for(wish, dag)
    now = call.clock.now()
    payload = new_backfill(call.store, call.settings, ask, call.clock.new_id(), now)
    if has_active_manager(call.store, now):
        return _plan_by_manager(call, payload)
    return _plan_here(call, ask, dag, row.current_version, now)


def _plan_by_manager(call: CliContext, payload: dict[str, Any]) -> dict[str, Any]:
    request = submit.submit(call.store, call.clock, BACKFILL_DRY_RUN, payload)
    answer = submit.wait_for_response(call.store, call.clock, request.request_id, DRY_RUN_PATIENCE_S, pause=call.pause)
    if answer is None:
        raise BackfillManagerError(
            f"The manager has not planned it within {DRY_RUN_PATIENCE_S:g} s; look at `bfm manager status`."
        )
    if answer.outcome == REFUSED:
        raise refusal(answer)
    found: dict[str, Any] = json.loads(answer.payload_json or "{}")
    return found


def _plan_here(call: CliContext, ask: CreateBackfill, dag: DagSpec, dag_version: int, now: datetime) -> dict[str, Any]:
    from backfill_manager.cli.backend.local_spark import local_spark
    from backfill_manager.execution.input_statistics import input_files
    from backfill_manager.planning.downstream_plan import plan_as_asked
    from backfill_manager.planning.estimates import with_estimates
    from backfill_manager.planning.reruns import with_reruns

    if call.out.is_table:
        call.out.remark("No manager is leading: planning here, which starts Spark and takes some seconds.")
    others = current_dags(call.store) if ask.downstream else {}
    with local_spark(call) as spark:
        plan = with_reruns(plan_as_asked(spark, call.store, ask, dag, dag_version, others, now), call.store)
        return with_estimates(plan, call.store, input_files(spark), now).to_json_document()
