"""From the words of `bfm backfill create` to a request: everything that can be refused without the manager, is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from backfill_manager.cli.commands.backfill import config_in_words
from backfill_manager.cli.context import CliContext
from backfill_manager.cli.render.plan import print_plan
from backfill_manager.cli.render.response import NO_ACTIVE_MANAGER
from backfill_manager.dags.schedule.timetable import parse_date
from backfill_manager.errors import InvalidInput
from backfill_manager.planning.backfill_range import read_range
from backfill_manager.queries.backfills import requested_view
from backfill_manager.requests.json_input import parse_conf, parse_overrides
from backfill_manager.schemas.commands import CreateBackfill

if TYPE_CHECKING:
    from backfill_manager.dags.definition import DagSpec

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
    with_upstream: bool
    with_downstream: bool
    mark_success: bool
    stop_on_failure: int | None
    pool: str
    priority: int
    window: str | None
    is_polite: bool
    downstream: bool
    allow_future: bool
    ignore_first_depends_on_past: bool


def create_backfill(call: CliContext, wish: Wish, *, dry_run: bool, wait: bool, request_id: str | None) -> int:
    if dry_run:
        print_plan(call, call.source.plan_backfill(wish))
        return 0
    asked = requested_view(call.source.create_backfill(wish, request_id))
    backfill_id, dag_id = asked["backfill_id"], asked["dag_id"]
    if wait:
        from backfill_manager.cli.commands.watching import watch

        if call.out.is_table:
            call.out.remark(f"Backfill {backfill_id} of {dag_id}: {config_in_words(asked['config'])}.")
        return watch(call, backfill_id, end_when_stuck=True)
    call.out.told(
        asked,
        f"Asked for backfill {backfill_id} of {dag_id}: {config_in_words(asked['config'])}. "
        f"Watch it: `bfm backfill watch {backfill_id}`",
    )
    if not call.source.has_active_manager():
        call.out.remark(NO_ACTIVE_MANAGER)
    return 0


# -- what was typed ---------------------------------------------------------------------------------------------------


def with_upstream(upstream: bool | None, ignore_dependencies: bool) -> bool:
    """What `--upstream`, `--no-upstream` and `--ignore-dependencies` say together."""
    if upstream and ignore_dependencies:
        raise InvalidInput("--upstream and --ignore-dependencies say the opposite of each other; use one of them.")
    return upstream is not False and not ignore_dependencies


def settings_said(wish: Wish) -> dict[str, Any]:
    """What was typed as the settings of a backfill: the kind inferred, the JSON opened, dates still as text."""
    return {
        "dag_id": wish.dag_id,
        "kind": _kind(wish),
        "start_date": wish.from_,
        "end_date": wish.to,
        "dates": wish.dates,
        "partitions": wish.partitions,
        "run_backwards": wish.run_backwards,
        "reprocess": wish.reprocess,
        "max_active_runs": wish.max_active_runs,
        "batch": wish.batch or 1,
        "conf": parse_conf(wish.conf),
        "tasks": wish.tasks,
        "with_upstream": wish.with_upstream,
        "with_downstream": wish.with_downstream,
        "mark_success": wish.mark_success,
        "stop_on_failure": wish.stop_on_failure,
        "pool": wish.pool,
        "priority": wish.priority,
        "overrides": parse_overrides(wish.settings),
        "window": wish.window,
        "is_polite": wish.is_polite,
        "downstream": wish.downstream,
        "allow_future": wish.allow_future,
        "ignore_first_depends_on_past": wish.ignore_first_depends_on_past,
    }


def ask_for(wish: Wish, dag: DagSpec) -> CreateBackfill:
    """The request as a value, with dates read in the DAG's zone."""
    dates = tuple(parse_date(one, dag.timezone, name="--date") for one in wish.dates)
    ends = read_range(dag, _kind(wish), wish.from_, wish.to)
    return CreateBackfill(**{**settings_said(wish), **ends, "dates": dates})


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
