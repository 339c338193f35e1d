"""Asking for a backfill: what can be said, and everything that can be refused before the manager hears of it.

`check` is pure and quick: the CLI and the API call it before they ask, the manager when it reads the request. Even an
empty plan is found here, without Spark: the schedule's timetable knows the nearest starts.

The payload of a `backfill.create` request is `CreateBackfill.to_payload()`. The backfill's id is chosen by whoever asks,
so that the answer to "which backfill is mine?" needs no waiting, and the same request sent twice makes one backfill.
"""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final, Literal

from backfill_manager.clock import format_instant, parse_instant
from backfill_manager.dags.definition import DagSpec
from backfill_manager.dags.overrides import with_overrides
from backfill_manager.dags.schedule.timetable import (
    ONCE,
    Timetable,
    check_timezone,
    date_only,
    end_of_day,
    parse_date,
    parse_end,
    parse_last,
    parse_start,
    timetable_of,
)
from backfill_manager.errors import InvalidInput, NotFound, Refused, nearest, shorten
from backfill_manager.model.records import Backfill
from backfill_manager.model.states import SCHEDULED_RUN
from backfill_manager.requests.command_types import MOST_OF_A_NUMBER
from backfill_manager.requests.json_input import too_large
from backfill_manager.requests.regex_safety import check_expression
from backfill_manager.requests.time_window import TimeWindow

KINDS: Final = ("schedule", "single", "dates", "partitions", "missing", "stale")
ON_SCHEDULE: Final = frozenset({"schedule", "missing", "stale"})  # their items are intervals of the schedule
RANGED: Final = ON_SCHEDULE | {"single"}  # they take --from and --to
REPROCESS: Final = ("none", "failed", "failed_tasks", "completed")
_ALLOWED_WITH: Final = {"missing": ("none", "failed", "failed_tasks"), "stale": ("none", "completed")}  # by kind
MOST_ITEMS: Final = 10_000_000  # of one backfill
UPDATABLE_FIELDS: Final = (
    "max_active_runs", "priority", "pool", "batch", "stop_on_failure", "window", "is_polite", "tasks", "with_upstream",
    "with_downstream", "mark_success", "overrides", "conf",
)  # fmt: skip  # of a backfill that is under way
CHECKED_TOGETHER: Final = ("tasks", "with_upstream", "with_downstream", "overrides")  # settings, with those that change
_SCHEDULED_ONLY: Final = "the pool 'scheduled' is for scheduled runs; a backfill takes 'backfill' or one of your own."
_LONGEST_KEY: Final = 1000  # characters of a partition key


@dataclass(frozen=True)
class CreateBackfill:
    """One backfill as asked for. Instants are UTC. `config` in the state is the tagged union that `config_json`
    makes."""

    dag_id: str
    kind: Literal["schedule", "single", "dates", "partitions", "missing", "stale"] = "schedule"
    start_date: datetime | None = None  # all but dates and partitions
    # on schedule: the last interval starts at or before it; single: the range's end. None: the last interval that is
    # complete when it is planned
    end_date: datetime | None = None
    dates: tuple[datetime, ...] = ()
    partitions: tuple[str, ...] = ()
    run_backwards: bool = False
    reprocess: str = "none"
    max_active_runs: int | None = None  # None: the DAG's own
    batch: int = 1
    conf: dict[str, Any] = field(default_factory=dict)
    tasks: str | None = None
    with_upstream: bool = True  # `tasks` takes along what is upstream of the tasks that it names
    with_downstream: bool = False  # ... and what is downstream of them
    mark_success: bool = False
    stop_on_failure: int | None = None
    pool: str = "backfill"
    priority: int = 0
    overrides: dict[str, Any] = field(default_factory=dict)  # settings of the DAG and its tasks, see planning.overrides
    window: str | None = None  # "20:00-06:00" in the DAG's zone: the hours in which it starts work
    is_polite: bool = False  # starts nothing while a scheduled task waits for a slot
    downstream: bool = False  # and a backfill of every DAG that reads what this one writes, and so on
    allow_future: bool = False  # also intervals that have not ended when it is planned; else they are skipped
    ignore_first_depends_on_past: bool = True  # its first item does not wait for the run before it in the timeline

    @property
    def effective_reprocess(self) -> str:
        """What is done again (one of `REPROCESS`), whether said (`reprocess`) or meant by the kind."""
        if self.reprocess == "failed_tasks":  # of `missing`, too: what failed goes on where it failed
            return self.reprocess
        return {"missing": "failed", "stale": "completed"}.get(self.kind, self.reprocess)

    def with_defaults(self, dag: DagSpec, now: datetime) -> CreateBackfill:
        """The range's ends that were left out: the DAG's own `start_date`, and the last interval that is complete now, but
        none after the DAG's `end_date`."""
        if self.kind not in RANGED:
            return self
        start = self.start_date or dag.start_date
        return dataclasses.replace(self, start_date=start, end_date=self.end_date or _last_end(self, dag, start, now))

    def with_settled_ends(self, dag: DagSpec, now: datetime) -> CreateBackfill:
        """The same as far as it will be the same whenever it is planned: an end that goes with the clock stays left out,
        so that a request means the same when it is sent again."""
        filled = self.with_defaults(dag, now)
        complete = timetable_of(dag, filled.start_date).last_complete(now)
        if complete is None or (dag.end_date is not None and dag.end_date <= complete[0]):
            return filled
        return dataclasses.replace(filled, end_date=self.end_date)

    def config(self) -> dict[str, Any]:
        """The tagged union as it is kept and shown. Of an end that is still left out nothing is known but the start."""
        if self.kind == "dates":
            body: dict[str, Any] = {"dates": [format_instant(d) for d in self.dates]}
        elif self.kind == "partitions":
            body = {"partitions": list(self.partitions)}
        else:
            body = {"start_date": format_instant(self.start_date), "end_date": format_instant(self.end_date)}
        future = {"allow_future": True} if self.allow_future else {}
        return {"type": self.kind, **body, "run_backwards": self.run_backwards, **future}

    def to_payload(self) -> str:
        plain = {
            name: value for name, value in self.__dict__.items() if name not in {"start_date", "end_date", "dates"}
        }
        plain["partitions"] = list(self.partitions)
        plain["start_date"], plain["end_date"] = format_instant(self.start_date), format_instant(self.end_date)
        plain["dates"] = [format_instant(d) for d in self.dates]
        return json.dumps(plain, sort_keys=True)

    @classmethod
    def from_payload(cls, plain: dict[str, Any]) -> CreateBackfill:
        known = dict(plain)
        for name in ("start_date", "end_date"):
            known[name] = parse_instant(known[name]) if known.get(name) else None
        known["dates"] = tuple(parse_instant(d) for d in known.get("dates", ()))
        known["partitions"] = tuple(known.get("partitions", ()))
        if known.get("tasks") is not None:
            known.setdefault("with_upstream", False)  # asked by an older release: the tasks that are named, alone
        return cls(**known)


def _last_end(ask: CreateBackfill, dag: DagSpec, start: datetime | None, now: datetime) -> datetime | None:
    """The end that was left out; None where nothing tells it."""
    timetable = timetable_of(dag, start)
    complete = timetable.last_complete(now)
    if complete is None:  # no schedule, so no interval: a range ends with the day of the DAG's end
        return dag.end_date if ask.kind in ON_SCHEDULE else _end_of_single(dag)
    last = complete[0] if dag.end_date is None else min(complete[0], dag.end_date)
    if ask.kind in ON_SCHEDULE:
        return last
    begins = timetable.last_at_or_before(last)
    return None if begins is None else timetable.next_after(begins)


def _end_of_single(dag: DagSpec) -> datetime | None:
    if dag.end_date is None:
        return None
    day = dag.end_date.astimezone(check_timezone(dag.timezone)).date()
    return end_of_day(day, dag.timezone) if dag.end_date == parse_date(day, dag.timezone, name="") else dag.end_date


def read_range(
    dag: DagSpec, kind: str, start: str | None, end: str | None, *, names: tuple[str, str] = ("--from", "--to")
) -> dict[str, datetime | None]:
    """`start_date` and `end_date` of a backfill as people write them, in the DAG's zone. A date alone as the end means the
    whole day: its last interval, or (`single`) up to the next local midnight. `InvalidInput` names the field (`names`)."""
    begins = None if start is None else parse_start(start, dag.timezone, name=names[0])
    ends = None if end is None else read_end(dag, kind, end, begins, name=names[1])
    return {"start_date": begins, "end_date": ends}


def read_end(dag: DagSpec, kind: str, text: str, start: datetime | None, *, name: str) -> datetime:
    """The end alone; `start` is where the range begins, from which a duration without a `start_date` counts."""
    if kind == "single":
        at, day = parse_end(text, dag.timezone, name=name), date_only(text)
        return at if day is None else end_of_day(day, dag.timezone)
    last = parse_last(text, timetable_of(dag, start), name=name)
    if (
        start is not None and last < start and date_only(text) is not None
    ):  # begins on that day, after its last interval
        return min(start, parse_end(text, dag.timezone, name=name))
    return last


def selected_of_backfill(row: Backfill, dag: DagSpec) -> tuple[str, ...]:
    """The ids of the tasks that the runs of this backfill run."""
    return selected_tasks(row.tasks, dag, upstream=bool(row.with_upstream), downstream=bool(row.with_downstream))


def is_whole(ask: CreateBackfill, dag: DagSpec) -> bool:
    """No task is left out."""
    chosen = selected_tasks(ask.tasks, dag, upstream=ask.with_upstream, downstream=ask.with_downstream)
    return set(chosen) >= {task.task_id for task in dag.work}


def selected_tasks(
    pattern: str | None, dag: DagSpec, *, upstream: bool = False, downstream: bool = False
) -> tuple[str, ...]:
    """The ids of the tasks that a backfill's `tasks` chooses: the expression is found somewhere in the id; if told, with
    all that is upstream or downstream of these. None is all. Callbacks go with their tasks, and are not chosen by
    themselves."""
    expression = re.compile(pattern or "")
    named = {task.task_id for task in dag.work if expression.search(task.task_id)}
    before = dag.all_upstream(named) if upstream else frozenset()
    after = dag.all_downstream(named) if downstream else frozenset()
    chosen = [task.task_id for task in dag.work if task.task_id in named | before | after]
    with_them = dag.callbacks_of(chosen)
    return (*chosen, *(task.task_id for task in dag.callbacks if task.task_id in with_them))


def check(ask: CreateBackfill, dag: DagSpec, now: datetime) -> None:
    """`InvalidInput` in one line for everything that can't be carried out as asked.

    A range's start that was left out is the DAG's `start_date`, and must be given if there is none; see `with_defaults`
    for its end. What is asked of pools is for those who know them (`check_pools`).
    """
    _check_words(ask)
    _check_numbers(ask)
    _check_failed_tasks(ask)
    dag = with_overrides(dag, ask.overrides)
    _check_batch(ask, dag)
    if ask.window is not None:
        TimeWindow.parse(ask.window)
    _check_tasks(ask, dag)
    if ask.kind == "dates":
        _check_dates(ask)
    elif ask.kind == "partitions":
        _check_partitions(ask)
    else:
        _check_range(ask, dag, now)


def check_pools(pool: str | None, overrides: Mapping[str, Any], known: Collection[str]) -> None:
    """`NotFound` or `InvalidInput` unless the pool of a backfill (None: not asked for), and every one that its overrides
    name, is there and open to backfills. For every way in: creating, changing, and the manager when it reads either."""
    there = sorted(name for name in known if name != SCHEDULED_RUN)
    if pool is not None:
        if pool == SCHEDULED_RUN:
            raise InvalidInput(f"--pool {pool}: {_SCHEDULED_ONLY}")
        if pool not in known:
            raise NotFound("pool", pool, there, hint=f"; there are {', '.join(there)}.")
    for name, value in overrides.items():
        if name.rpartition(".")[2] != "pool" or value is None:  # None: the pool of the backfill
            continue
        if value == SCHEDULED_RUN:
            raise InvalidInput(f"--set {name}={value}: {_SCHEDULED_ONLY}")
        if value not in known:
            told = nearest(str(value), there) or "."
            raise InvalidInput(f"--set {name}: there is no pool {value!r}{told} There are {', '.join(there)}.")


def check_changes(changes: dict[str, Any]) -> None:
    """`InvalidInput` for changes of a backfill's settings that can't be made whichever backfill it is."""
    if not changes:
        raise InvalidInput(f"Nothing to set; what can be changed is {', '.join(UPDATABLE_FIELDS)}.")
    for name in changes:
        if name not in UPDATABLE_FIELDS:
            told = nearest(name, UPDATABLE_FIELDS) or "."
            raise InvalidInput(f"{name!r} can't be changed{told} There are {', '.join(UPDATABLE_FIELDS)}.")
    if changes.get("max_active_runs", 1) is None:
        raise InvalidInput("--max-active-runs must be a whole number from 1 up, not None")
    try:
        ask = CreateBackfill(dag_id="", **changes)
    except TypeError as error:
        raise InvalidInput(str(error)) from None
    _check_words(ask)
    _check_numbers(ask)
    if ask.window is not None:
        TimeWindow.parse(ask.window)


def check_expected(was: dict[str, Any], changes: dict[str, Any]) -> None:
    """`InvalidInput` unless all that `was` speaks of is to be changed."""
    for name in was:
        if name not in changes:
            told = nearest(name, changes) or f"; what is to be changed is {', '.join(changes)}."
            raise InvalidInput(f"'was' tells of {name!r}, which is not to be changed{told}")


def check_not_changed_meanwhile(row: Backfill, changes: dict[str, Any], was: dict[str, Any]) -> None:
    """`Refused` when a setting is not any more what the asker saw; one that is already as wanted stands in nobody's way
    (and so a request that is looked at again after a crash is not refused for what it did itself)."""
    now = {name: setting_of(row, name) for name in was}
    told = [
        f"{_option(name)} is {shown_value(now[name])} now, not {shown_value(was[name])}"
        for name in was
        if now[name] not in (was[name], changes[name])
    ]
    if told:
        raise Refused(f"{'; '.join(told)}: somebody has changed it since you looked. Look again, and ask once more.")


def setting_of(row: Backfill, name: str) -> Any:
    """What a backfill's setting is: `name` of `UPDATABLE_FIELDS`."""
    if name in ("with_upstream", "with_downstream"):
        return bool(getattr(row, name))  # null: of an older release, which took the tasks that are named, alone
    return json.loads(getattr(row, f"{name}_json")) if name in ("conf", "overrides") else getattr(row, name)


def _option(name: str) -> str:
    return {
        "is_polite": "--polite",
        "overrides": "--set",
        "with_upstream": "--upstream",
        "with_downstream": "--downstream-tasks",
    }.get(name) or f"--{name.replace('_', '-')}"


def shown_value(value: Any) -> str:
    """In a message: the beginning of what is long."""
    return shorten(json.dumps(value, ensure_ascii=False), 100)


def check_for_dag(
    changes: dict[str, Any], dag: DagSpec, standing: Mapping[str, Any], *, runs_backwards: bool, reprocess: str = "none"
) -> None:
    """The same for what depends on the DAG (`dag`: the version that the backfill runs), together with what is set already:
    `standing` is what it is of `CHECKED_TOGETHER`."""
    check_changes(changes)
    ask = CreateBackfill(
        dag_id=dag.dag_id, run_backwards=runs_backwards, reprocess=reprocess, **{**standing, **changes}
    )
    _check_failed_tasks(ask)
    dag = with_overrides(dag, ask.overrides)
    _check_batch(ask, dag)
    if ask.tasks is None:  # whether there are some already is not said here
        ask = dataclasses.replace(ask, with_upstream=True, with_downstream=False)
    _check_tasks(ask, dag)


def _check_words(ask: CreateBackfill) -> None:
    for name, value, right in (("kind", ask.kind, KINDS), ("reprocess", ask.reprocess, REPROCESS)):
        if value not in right:
            raise InvalidInput(
                f"--{name} {value!r} is not known{nearest(str(value), right) or '; one of ' + ', '.join(right)}"
            )
    if ask.kind in ("missing", "stale") and ask.reprocess not in _ALLOWED_WITH[ask.kind]:
        raise InvalidInput(
            f"--kind {ask.kind} says by itself what is done again; leave --reprocess {ask.reprocess} out"
        )
    flags = (
        ("mark-success", ask.mark_success), ("polite", ask.is_polite), ("downstream", ask.downstream),
        ("allow-future", ask.allow_future), ("ignore-first-depends-on-past", ask.ignore_first_depends_on_past),
        ("upstream", ask.with_upstream), ("downstream-tasks", ask.with_downstream),
    )  # fmt: skip
    for option, flag in flags:
        if not isinstance(flag, bool):
            raise InvalidInput(f"--{option} must be true or false, not {flag!r}")
    if not isinstance(ask.pool, str):
        raise InvalidInput(f"--pool must be the name of a pool, not {str(ask.pool)[:60]!r}")
    if not isinstance(ask.overrides, dict):
        raise InvalidInput(f"--set takes NAME=VALUE, not {str(ask.overrides)[:60]!r}")
    if not isinstance(ask.conf, dict):
        raise InvalidInput(
            f'--conf must be a JSON object such as {{"full": true}}, not {json.dumps(ask.conf, default=str)[:60]}'
        )
    for option, given in (("conf", ask.conf), ("set", ask.overrides)):
        if wrong := too_large(given):
            raise InvalidInput(f"--{option} {wrong}")


def _check_failed_tasks(ask: CreateBackfill) -> None:
    """Runs go on as they were made: there is nothing to choose, to join or to mark."""
    if ask.reprocess != "failed_tasks":
        return
    told = "--reprocess failed_tasks re-runs the failed tasks of runs as they are"
    if ask.tasks is not None:
        raise InvalidInput(
            f"{told}; leave --tasks out, or clear: `bfm tasks clear {ask.dag_id} --only-failed --tasks {ask.tasks}`"
        )
    if ask.batch != 1:
        raise InvalidInput(f"{told}; leave --batch {ask.batch} out, or take --reprocess failed, which makes new runs")
    if ask.mark_success:
        raise InvalidInput(f"{told}; leave --mark-success out, or take --reprocess failed, which makes new runs")


def _check_numbers(ask: CreateBackfill) -> None:
    numbers = (("max-active-runs", ask.max_active_runs), ("stop-on-failure", ask.stop_on_failure), ("batch", ask.batch))
    for option, value in numbers:
        if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < 1):
            raise InvalidInput(f"--{option} must be a whole number from 1 up, not {value!r}")
        if value is not None and value > MOST_OF_A_NUMBER:
            raise InvalidInput(f"--{option} must not be above {MOST_OF_A_NUMBER:,}, not {str(value)[:30]}")
    if isinstance(ask.priority, bool) or not isinstance(ask.priority, int) or abs(ask.priority) > MOST_OF_A_NUMBER:
        told = f"a whole number from -{MOST_OF_A_NUMBER:,} to {MOST_OF_A_NUMBER:,}"
        raise InvalidInput(f"--priority must be {told}, not {str(ask.priority)[:30]}")


def _check_batch(ask: CreateBackfill, dag: DagSpec) -> None:
    if ask.batch == 1:
        return
    if not dag.batchable:
        raise InvalidInput(
            f"--batch needs a DAG whose tasks work on an interval of any length: DAG {dag.dag_id!r} does not say "
            "batchable=True"
        )
    if ask.kind in ("single", "partitions"):
        raise InvalidInput(f"--batch joins intervals, and --kind {ask.kind} has none to join")


def _check_tasks(ask: CreateBackfill, dag: DagSpec) -> None:
    ids = [task.task_id for task in dag.work]
    if ask.tasks is None and ask.with_downstream:
        raise InvalidInput("--downstream-tasks needs --tasks, which says what it is downstream of")
    if ask.tasks is None and not ask.with_upstream:
        raise InvalidInput("--no-upstream needs --tasks, which says what it is upstream of")
    if ask.tasks is not None:
        check_expression("--tasks", ask.tasks)
        if not selected_tasks(ask.tasks, dag):
            raise InvalidInput(f"--tasks {ask.tasks!r} matches no task of DAG {dag.dag_id!r}; it has {_listed(ids)}")
    chosen = selected_tasks(ask.tasks, dag, upstream=ask.with_upstream, downstream=ask.with_downstream)
    waiting = [task_id for task_id in chosen if dag.task(task_id).depends_on_past]
    if ask.run_backwards and waiting:
        raise InvalidInput(
            f"--run-backwards can't be used with DAG {dag.dag_id!r}: its task {waiting[0]!r} has depends_on_past, so"
            " older dates must run first"
        )


def _check_dates(ask: CreateBackfill) -> None:
    if not ask.dates:
        raise InvalidInput("--kind dates needs --date, at least once")
    if ask.start_date or ask.end_date or ask.partitions:
        raise InvalidInput("--kind dates takes --date only, neither --from and --to nor --partition")
    if len(ask.dates) > MOST_ITEMS:
        raise InvalidInput(
            f"{len(ask.dates):,} dates are more than one backfill holds ({MOST_ITEMS:,}); ask for fewer at once"
        )


def _check_partitions(ask: CreateBackfill) -> None:
    if not ask.partitions:
        raise InvalidInput("--kind partitions needs --partition, at least once")
    if ask.start_date or ask.end_date or ask.dates:
        raise InvalidInput("--kind partitions takes --partition only, neither --from and --to nor --date")
    for key in ask.partitions:
        if not isinstance(key, str) or not key.strip() or len(key) > _LONGEST_KEY or not key.isprintable():
            raise InvalidInput(
                f"--partition {str(key)[:60]!r} must be a text of 1 to {_LONGEST_KEY} printable characters"
            )
    if len(ask.partitions) > MOST_ITEMS:
        raise InvalidInput(f"{len(ask.partitions):,} partitions are more than one backfill holds ({MOST_ITEMS:,})")


def _check_range(said: CreateBackfill, dag: DagSpec, now: datetime) -> None:
    ask = said.with_defaults(dag, now)
    if ask.dates or ask.partitions:
        raise InvalidInput(f"--kind {ask.kind} takes --from and --to, neither --date nor --partition")
    if ask.kind in ON_SCHEDULE and (dag.schedule is None or dag.schedule == ONCE):
        has = "has no schedule" if dag.schedule is None else f"has the schedule {ONCE!r}"
        raise InvalidInput(
            f"DAG {dag.dag_id!r} {has}, so a range holds no intervals; use --kind single, --date or --partition"
        )
    missing = [
        f"{option} (the DAG has no {of_dag} to take instead)"
        for option, value, of_dag in (("--from", ask.start_date, "start_date"), ("--to", ask.end_date, "end_date"))
        if value is None
    ]
    if ask.start_date is not None and ask.end_date is not None and said.end_date is None:
        _check_end_left_out(ask, dag, ask.start_date, ask.end_date)
    if ask.start_date is None or ask.end_date is None:
        raise InvalidInput(f"--kind {ask.kind} needs {' and '.join(missing)}")
    start, end = format_instant(ask.start_date), format_instant(ask.end_date)
    if ask.start_date > ask.end_date:
        raise InvalidInput(f"--from {start} is after --to {end}; the earlier of the two comes first")
    if ask.kind in ON_SCHEDULE:
        _check_plan(timetable_of(dag, ask.start_date), ask.start_date, ask.end_date)
    elif ask.start_date == ask.end_date:
        raise InvalidInput(
            f"--kind single makes one run over the range from --from to --to, and this one is empty: {start}"
        )


def _check_end_left_out(ask: CreateBackfill, dag: DagSpec, start: datetime, end: datetime) -> None:
    """That an interval which is complete starts in a range that was given without its end."""
    if dag.end_date is not None and start > dag.end_date:
        ended = format_instant(dag.end_date)
        raise InvalidInput(
            f"--from {format_instant(start)} is after the end_date of DAG {dag.dag_id!r}, {ended}: give --to as well"
        )
    timetable = timetable_of(dag, start)
    first = timetable.first_at_or_after(start) if timetable.repeats else None
    if first is None or (first <= end if ask.kind in ON_SCHEDULE else start < end):
        return
    ends = format_instant(timetable.next_after(first))
    raise InvalidInput(
        f"no interval that starts at or after --from {format_instant(start)} is complete yet: the first one ends at {ends}."
        " Ask again then, or give --to and --allow-future to run it before it has ended"
    )


def _check_plan(timetable: Timetable, start: datetime, end: datetime) -> None:
    """That there is something to plan, and not more than can be kept."""
    first = timetable.first_at_or_after(start)
    if first is None or first > end:
        schedule = timetable.schedule if isinstance(timetable.schedule, str) else timetable.describe()
        raise InvalidInput(
            f"no interval of {schedule!r} ({timetable.timezone}) starts between {format_instant(start)} and"
            f" {format_instant(end)}; {timetable.nearest_starts(start, end)}"
        )
    items = timetable.estimate_count(start, end)
    if items > MOST_ITEMS:
        raise InvalidInput(
            f"the range holds about {items:,} intervals, more than one backfill may ({MOST_ITEMS:,});"
            " ask for a shorter one"
        )


def _listed(names: list[str]) -> str:
    shown = ", ".join(names[:10])
    return shown if len(names) <= 10 else f"{shown} and {len(names) - 10} more"
