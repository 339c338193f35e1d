"""From the words of `bfm backfill create` to a request: everything that can be refused without the manager, is.

A dry run asks a living manager, whose Spark is warm; without one it plans here, with a Spark session of its own. Both
print the same plan, as both call the same planner.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal

from backfill_manager.cli.answers import NOBODY_LEADS
from backfill_manager.cli.backfill import config_in_words, item_columns
from backfill_manager.cli.call import Call
from backfill_manager.dags.timetable import parse_date
from backfill_manager.errors import BackfillManagerError, InvalidInput, NotFound, Refused
from backfill_manager.model.records import Pool
from backfill_manager.model.states import SCHEDULED_RUN
from backfill_manager.requests import asking
from backfill_manager.requests.backfills import BackfillAsk, check
from backfill_manager.requests.kinds import BACKFILL_CREATE, BACKFILL_DRY_RUN, REFUSED
from backfill_manager.views.backfills import requested_view
from backfill_manager.views.dags import current_dag
from backfill_manager.views.managers import somebody_leads

if TYPE_CHECKING:
    from backfill_manager.dags.definition import DagSpec

DRY_RUN_PATIENCE_S: Final = 60.0
SHOWN_FIRST, SHOWN_LAST = 20, 5
_LOOKS_LIKE_A_FILE = re.compile(r"[^{}\[\]\"]+\.ya?ml")


@dataclass(frozen=True)
class Wish:
    """The command line as it was typed."""

    dag_id: str
    from_: str | None
    to: str | None
    kind: Literal["schedule", "single", "dates", "partitions"] | None
    dates: tuple[str, ...]
    partitions: tuple[str, ...]
    reprocess: str
    run_backwards: bool
    max_active_runs: int | None
    conf: str | None
    tasks: str | None
    mark_success: bool
    stop_on_failure: int | None
    pool: str
    priority: int


def create_backfill(call: Call, wish: Wish, *, dry_run: bool, wait: bool, request_id: str | None) -> int:
    _, dag = current_dag(call.store, wish.dag_id)
    ask = ask_for(wish, dag)
    check(ask, dag)
    ask = ask.with_defaults(dag)
    _check_pool(call, ask.pool)
    if dry_run:
        print_plan(call, _plan(call, ask, dag))
        return 0
    request_id = request_id or call.clock.new_id()
    payload = {"backfill_id": asking.id_from(request_id), "ask": json.loads(ask.to_payload())}
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
        conf=_conf(wish.conf),
        tasks=wish.tasks,
        mark_success=wish.mark_success,
        stop_on_failure=wish.stop_on_failure,
        pool=wish.pool,
        priority=wish.priority,
    )


def _kind(wish: Wish) -> Literal["schedule", "single", "dates", "partitions"]:
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


def _conf(text: str | None) -> dict[str, Any]:
    if text is None:
        return {}

    def refuse(constant: str) -> Any:
        raise InvalidInput(f"--conf: {constant} is not JSON; use a number, or null.")

    try:
        value = json.loads(text, parse_constant=refuse)
    except json.JSONDecodeError as error:
        hint = ""
        if _LOOKS_LIKE_A_FILE.fullmatch(text):
            hint = f". (The configuration file is named before the command: `bfm --conf {text} backfill create …`)"
        place = f"line {error.lineno}, column {error.colno}: {_around(text, error.pos)}"
        raise InvalidInput(f"--conf is not JSON: {error.msg} at {place}{hint}") from None
    except RecursionError:
        raise InvalidInput("--conf is nested too deeply to be read.") from None
    if not isinstance(value, dict):
        raise InvalidInput(f"--conf must be a JSON object such as '{{\"full\": true}}', not {json.dumps(value)[:60]}.")
    return value


def _around(text: str, position: int) -> str:
    return repr(text[max(0, position - 15) : position + 15])


def _check_pool(call: Call, name: str) -> None:
    if name == SCHEDULED_RUN:
        raise InvalidInput("--pool scheduled is for scheduled runs; a backfill takes 'backfill', or one of your own.")
    known = [row.name for row in call.store.read(Pool)] or [pool.name for pool in call.settings.pools]
    if name not in known:
        raise NotFound("pool", name, known, hint=f"; there are {', '.join(sorted(known))}.")


# -- the dry run ------------------------------------------------------------------------------------------------------


def _plan(call: Call, ask: BackfillAsk, dag: DagSpec) -> dict[str, Any]:
    if not somebody_leads(call.store, call.clock.now()):
        return _plan_here(call, ask, dag)
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


def _plan_here(call: Call, ask: BackfillAsk, dag: DagSpec) -> dict[str, Any]:
    from backfill_manager.cli.local_spark import local_spark
    from backfill_manager.planning.backfill_plan import existing_runs, plan_backfill

    if call.out.is_table:
        call.out.remark("No manager is leading: planning here, which starts Spark and takes some seconds.")
    with local_spark(call) as spark:
        return plan_backfill(spark, ask, dag, existing_runs(call.store, ask, dag)).to_json_document()


def print_plan(call: Call, plan: dict[str, Any]) -> None:
    if not call.out.is_table:
        call.out.document(plan)
        return
    items = plan["items"]
    columns = item_columns(items)
    if len(items) <= SHOWN_FIRST + SHOWN_LAST + 1:
        call.out.rows(items, columns, empty="Nothing would run.")
    else:
        left_out = {"ordinal": "…", "logical_date": f"… {len(items) - SHOWN_FIRST - SHOWN_LAST} more"}
        if items[0].get("logical_date") is None:
            left_out["partition_key"] = left_out.pop("logical_date")
        call.out.rows([*items[:SHOWN_FIRST], left_out, *items[-SHOWN_LAST:]], columns)
    summary = plan["summary"]
    skipped = [f"{number} skipped ({reason})" for reason, number in summary["skipped"].items()]
    call.out.line("")
    parts = [f"{summary['pending']} would run", *skipped]
    call.out.line(f"{summary['items']} items: {', '.join(parts)}.")
    if skipped and not summary["pending"]:
        call.out.remark("Nothing would run. --reprocess failed or --reprocess completed re-does dates that have a run.")
