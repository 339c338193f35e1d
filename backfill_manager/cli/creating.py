"""From the words of `bfm backfill create` to a request: everything that can be refused without the manager, is.

A dry run asks a living manager, whose Spark is warm; without one it plans here, with a Spark session of its own. Both
print the same plan, as both call the same planner.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal

from backfill_manager.cli.answers import NOBODY_LEADS
from backfill_manager.cli.backfill import config_in_words
from backfill_manager.cli.call import Call
from backfill_manager.requests.json_values import conf_of, settings_of
from backfill_manager.cli.plan_picture import print_plan
from backfill_manager.dags.timetable import parse_date
from backfill_manager.errors import BackfillManagerError, InvalidInput, Refused
from backfill_manager.requests import asking
from backfill_manager.requests.backfills import BackfillAsk
from backfill_manager.requests.kinds import BACKFILL_CREATE, BACKFILL_DRY_RUN, REFUSED
from backfill_manager.views.backfills import requested_view
from backfill_manager.views.dags import current_dag, current_dags
from backfill_manager.views.managers import somebody_leads
from backfill_manager.views.payloads import new_backfill

if TYPE_CHECKING:
    from backfill_manager.dags.definition import DagSpec

DRY_RUN_PATIENCE_S: Final = 60.0
Kind = Literal["schedule", "single", "dates", "partitions", "missing", "stale"]


@dataclass(frozen=True)
class Wish:
    """The command line as it was typed."""

    dag_id: str
    from_: str | None
    to: str | None
    kind: Kind | None
    dates: tuple[str, ...]
    partitions: tuple[str, ...]
    reprocess: str
    run_backwards: bool
    max_active_runs: int | None
    batch: int | None
    conf: str | None
    settings: tuple[str, ...]
    tasks: str | None
    mark_success: bool
    stop_on_failure: int | None
    pool: str
    priority: int
    window: str | None
    is_polite: bool
    downstream: bool


def create_backfill(call: Call, wish: Wish, *, dry_run: bool, wait: bool, request_id: str | None) -> int:
    row, dag = current_dag(call.store, wish.dag_id)
    ask = ask_for(wish, dag)
    request_id = request_id or call.clock.new_id()
    payload = new_backfill(call.store, call.settings, ask, asking.id_from(request_id))
    ask = ask.with_defaults(dag)
    if dry_run:
        print_plan(call, _plan(call, ask, dag, row.current_version))
        return 0
    request = asking.ask(call.store, call.clock, BACKFILL_CREATE, payload, request_id=request_id)
    asked = requested_view(request)
    backfill_id = asked["backfill_id"]
    if wait:
        from backfill_manager.cli.watching import watch

        if call.out.is_table:
            call.out.remark(f"Backfill {backfill_id} of {ask.dag_id}: {config_in_words(asked['config'])}.")
        return watch(call, backfill_id, end_when_stuck=True)
    call.out.told(
        asked,
        f"Asked for backfill {backfill_id} of {ask.dag_id}: {config_in_words(asked['config'])}. "
        f"Watch it: `bfm backfill watch {backfill_id}`",
    )
    if not somebody_leads(call.store, call.clock.now()):
        call.out.remark(NOBODY_LEADS)
    return 0


# -- what was typed ---------------------------------------------------------------------------------------------------


def ask_for(wish: Wish, dag: DagSpec) -> BackfillAsk:
    """The request as a value: dates read in the DAG's zone, the kind inferred, the JSON opened."""
    zone = dag.timezone
    return BackfillAsk(
        dag_id=dag.dag_id,
        kind=_kind(wish),
        start_date=None if wish.from_ is None else parse_date(wish.from_, zone, name="--from"),
        end_date=None if wish.to is None else parse_date(wish.to, zone, name="--to"),
        dates=tuple(parse_date(one, zone, name="--date") for one in wish.dates),
        partitions=wish.partitions,
        run_backwards=wish.run_backwards,
        reprocess=wish.reprocess,
        max_active_runs=wish.max_active_runs,
        batch=wish.batch or 1,
        conf=conf_of(wish.conf),
        tasks=wish.tasks,
        mark_success=wish.mark_success,
        stop_on_failure=wish.stop_on_failure,
        pool=wish.pool,
        priority=wish.priority,
        overrides=settings_of(wish.settings),
        window=wish.window,
        is_polite=wish.is_polite,
        downstream=wish.downstream,
    )


def _kind(wish: Wish) -> Kind:
    if wish.dates and wish.partitions:
        raise InvalidInput("--date and --partition don't go together: a backfill is over dates or over partitions.")
    listed: Literal["dates", "partitions"] | None = "dates" if wish.dates else "partitions" if wish.partitions else None
    option = {"dates": "--date", "partitions": "--partition"}
    if listed and wish.kind not in (None, listed):
        raise InvalidInput(f"{option[listed]} is for --kind {listed}, not for --kind {wish.kind}.")
    if listed and (wish.from_ or wish.to):
        raise InvalidInput(f"--from and --to don't go with {option[listed]}: name the {listed} or the range, not both.")
    if not listed and wish.kind in option:
        raise InvalidInput(f"--kind {wish.kind} needs at least one {option[wish.kind]}.")
    return listed or wish.kind or "schedule"


# -- the dry run ------------------------------------------------------------------------------------------------------


def _plan(call: Call, ask: BackfillAsk, dag: DagSpec, dag_version: int) -> dict[str, Any]:
    if not somebody_leads(call.store, call.clock.now()):
        return _plan_here(call, ask, dag, dag_version)
    payload = {"backfill_id": call.clock.new_id(), "ask": json.loads(ask.to_payload())}
    request = asking.ask(call.store, call.clock, BACKFILL_DRY_RUN, payload)
    answer = asking.wait_for_answer(call.store, call.clock, request.request_id, DRY_RUN_PATIENCE_S, pause=call.pause)
    if answer is None:
        raise BackfillManagerError(
            f"The manager has not planned it within {DRY_RUN_PATIENCE_S:g} s; look at `bfm manager status`."
        )
    if answer.outcome == REFUSED:
        raise Refused(answer.message)
    found: dict[str, Any] = json.loads(answer.payload_json or "{}")
    return found


def _plan_here(call: Call, ask: BackfillAsk, dag: DagSpec, dag_version: int) -> dict[str, Any]:
    from backfill_manager.cli.local_spark import local_spark
    from backfill_manager.execution.input_files import input_files
    from backfill_manager.planning.cascade import plan_as_asked
    from backfill_manager.planning.estimates import with_estimates

    if call.out.is_table:
        call.out.remark("No manager is leading: planning here, which starts Spark and takes some seconds.")
    others = current_dags(call.store) if ask.downstream else {}
    with local_spark(call) as spark:
        plan = plan_as_asked(spark, call.store, ask, dag, dag_version, others)
        return with_estimates(plan, call.store, input_files(spark), call.clock.now()).to_json_document()
