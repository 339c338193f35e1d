"""Asking for a backfill: what can be said, and everything that can be refused before the manager hears of it.

`check` is pure and quick: the CLI and the API call it before they ask, the manager when it reads the request. Even an
empty plan is found here, without Spark: the schedule's timetable knows the nearest starts.

The payload of a `backfill.create` request is `BackfillAsk.to_payload()`. The backfill's id is chosen by whoever asks,
so that the answer to "which backfill is mine?" needs no waiting, and the same request sent twice makes one backfill.
"""

from __future__ import annotations

import dataclasses
import json
import re
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final, Literal

from backfill_manager.clock import format_instant, parse_instant
from backfill_manager.dags.definition import DagSpec
from backfill_manager.dags.overrides import with_overrides
from backfill_manager.dags.timetable import ONCE, Timetable, timetable_of
from backfill_manager.errors import InvalidInput, Refused, nearest, shorten
from backfill_manager.model.records import Backfill
from backfill_manager.requests.expressions import check_expression
from backfill_manager.requests.json_values import too_large
from backfill_manager.requests.kinds import MOST_OF_A_NUMBER
from backfill_manager.requests.working_hours import WorkingHours

KINDS: Final = ("schedule", "single", "dates", "partitions", "missing", "stale")
ON_SCHEDULE: Final = frozenset({"schedule", "missing", "stale"})  # their items are intervals of the schedule
RANGED: Final = ON_SCHEDULE | {"single"}  # they take --from and --to
REPROCESS: Final = ("none", "failed", "completed")
MOST_ITEMS: Final = 10_000_000  # of one backfill
CHANGEABLE: Final = (
    "max_active_runs", "priority", "pool", "batch", "stop_on_failure", "window", "is_polite", "tasks", "mark_success",
    "overrides", "conf",
)  # fmt: skip  # of a backfill that is under way
_LONGEST_KEY: Final = 1000  # characters of a partition key


@dataclass(frozen=True)
class BackfillAsk:
    """One backfill as asked for. Instants are UTC. `config` in the state is the tagged union that `config_json`
    makes."""

    dag_id: str
    kind: Literal["schedule", "single", "dates", "partitions", "missing", "stale"] = "schedule"
    start_date: datetime | None = None  # all but dates and partitions
    end_date: datetime | None = None  # on schedule: the last interval starts at or before it; single: the range's end
    dates: tuple[datetime, ...] = ()
    partitions: tuple[str, ...] = ()
    run_backwards: bool = False
    reprocess: str = "none"
    max_active_runs: int | None = None  # None: the DAG's own
    batch: int = 1
    conf: dict[str, Any] = field(default_factory=dict)
    tasks: str | None = None
    mark_success: bool = False
    stop_on_failure: int | None = None
    pool: str = "backfill"
    priority: int = 0
    overrides: dict[str, Any] = field(default_factory=dict)  # settings of the DAG and its tasks, see planning.overrides
    window: str | None = None  # "20:00-06:00" in the DAG's zone: the hours in which it starts work
    is_polite: bool = False  # starts nothing while a scheduled task waits for a slot
    downstream: bool = False  # and a backfill of every DAG that reads what this one writes, and so on

    @property
    def redoes(self) -> str:
        """What is done again (`none`, `failed`, `completed`), whether said (`reprocess`) or meant by the kind."""
        return {"missing": "failed", "stale": "completed"}.get(self.kind, self.reprocess)

    def with_defaults(self, dag: DagSpec) -> BackfillAsk:
        """The range's ends that were left out, taken from the DAG's own `start_date` and `end_date`."""
        if self.kind not in RANGED:
            return self
        return dataclasses.replace(
            self, start_date=self.start_date or dag.start_date, end_date=self.end_date or dag.end_date
        )

    def config(self) -> dict[str, Any]:
        """The tagged union as it is kept and shown."""
        if self.kind == "dates":
            body: dict[str, Any] = {"dates": [format_instant(d) for d in self.dates]}
        elif self.kind == "partitions":
            body = {"partitions": list(self.partitions)}
        else:
            body = {"start_date": format_instant(self.start_date), "end_date": format_instant(self.end_date)}
        return {"type": self.kind, **body, "run_backwards": self.run_backwards}

    def to_payload(self) -> str:
        plain = {
            name: value for name, value in self.__dict__.items() if name not in {"start_date", "end_date", "dates"}
        }
        plain["partitions"] = list(self.partitions)
        plain["start_date"], plain["end_date"] = format_instant(self.start_date), format_instant(self.end_date)
        plain["dates"] = [format_instant(d) for d in self.dates]
        return json.dumps(plain, sort_keys=True)

    @classmethod
    def from_payload(cls, plain: dict[str, Any]) -> BackfillAsk:
        known = dict(plain)
        for name in ("start_date", "end_date"):
            known[name] = parse_instant(known[name]) if known.get(name) else None
        known["dates"] = tuple(parse_instant(d) for d in known.get("dates", ()))
        known["partitions"] = tuple(known.get("partitions", ()))
        return cls(**known)


def selected_tasks(pattern: str | None, dag: DagSpec) -> tuple[str, ...]:
    """The ids of the tasks that a backfill's `tasks` chooses: the expression is found somewhere in the id. None is
    all. Callbacks go with their tasks, and are not chosen by themselves."""
    expression = re.compile(pattern or "")
    chosen = [task.task_id for task in dag.work if expression.search(task.task_id)]
    with_them = dag.callbacks_of(chosen)
    return (*chosen, *(task.task_id for task in dag.callbacks if task.task_id in with_them))


def check(ask: BackfillAsk, dag: DagSpec) -> None:
    """`InvalidInput` in one line for everything that can't be carried out as asked.

    A range's end that was left out is the DAG's `start_date` or `end_date`; if the DAG has none, it must be given
    ("now" would make the same request mean something else each time). Whether the pool exists is for those who know
    the pools.
    """
    _check_words(ask)
    _check_numbers(ask)
    dag = with_overrides(dag, ask.overrides)
    _check_batch(ask, dag)
    if ask.window is not None:
        WorkingHours.parse(ask.window)
    _check_tasks(ask, dag)
    if ask.kind == "dates":
        _check_dates(ask)
    elif ask.kind == "partitions":
        _check_partitions(ask)
    else:
        _check_range(ask.with_defaults(dag), dag)


def check_changes(changes: dict[str, Any]) -> None:
    """`InvalidInput` for changes of a backfill's settings that can't be made whichever backfill it is."""
    if not changes:
        raise InvalidInput(f"Nothing to set; what can be changed is {', '.join(CHANGEABLE)}.")
    for name in changes:
        if name not in CHANGEABLE:
            told = nearest(name, CHANGEABLE) or "."
            raise InvalidInput(f"{name!r} can't be changed{told} There are {', '.join(CHANGEABLE)}.")
    if changes.get("max_active_runs", 1) is None:
        raise InvalidInput("--max-active-runs must be a whole number from 1 up, not None")
    try:
        ask = BackfillAsk(dag_id="", **changes)
    except TypeError as error:
        raise InvalidInput(str(error)) from None
    _check_words(ask)
    _check_numbers(ask)
    if ask.window is not None:
        WorkingHours.parse(ask.window)


def check_was(was: dict[str, Any], changes: dict[str, Any]) -> None:
    """`InvalidInput` unless all that `was` speaks of is to be changed."""
    for name in was:
        if name not in changes:
            told = nearest(name, changes) or f"; what is to be changed is {', '.join(changes)}."
            raise InvalidInput(f"'was' tells of {name!r}, which is not to be changed{told}")


def refuse_what_has_changed(row: Backfill, changes: dict[str, Any], was: dict[str, Any]) -> None:
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
    """What a backfill's setting is: `name` of `CHANGEABLE`."""
    return json.loads(getattr(row, f"{name}_json")) if name in ("conf", "overrides") else getattr(row, name)


def _option(name: str) -> str:
    return {"is_polite": "--polite", "overrides": "--set"}.get(name) or f"--{name.replace('_', '-')}"


def shown_value(value: Any) -> str:
    """In a message: the beginning of what is long."""
    return shorten(json.dumps(value, ensure_ascii=False), 100)


def check_for_dag(changes: dict[str, Any], dag: DagSpec, *, runs_backwards: bool) -> None:
    """The same for what depends on the DAG (`dag`: the version that the backfill runs)."""
    check_changes(changes)
    ask = BackfillAsk(dag_id=dag.dag_id, run_backwards=runs_backwards, **changes)
    dag = with_overrides(dag, ask.overrides)
    _check_batch(ask, dag)
    _check_tasks(ask, dag)


def _check_words(ask: BackfillAsk) -> None:
    for name, value, right in (("kind", ask.kind, KINDS), ("reprocess", ask.reprocess, REPROCESS)):
        if value not in right:
            raise InvalidInput(
                f"--{name} {value!r} is not known{nearest(str(value), right) or '; one of ' + ', '.join(right)}"
            )
    if ask.kind in ("missing", "stale") and ask.reprocess not in ("none", ask.redoes):
        raise InvalidInput(
            f"--kind {ask.kind} says by itself what is done again; leave --reprocess {ask.reprocess} out"
        )
    for option, flag in (("mark-success", ask.mark_success), ("polite", ask.is_polite), ("downstream", ask.downstream)):
        if not isinstance(flag, bool):
            raise InvalidInput(f"--{option} must be true or false, not {flag!r}")
    if not isinstance(ask.overrides, dict):
        raise InvalidInput(f"--set takes NAME=VALUE, not {str(ask.overrides)[:60]!r}")
    if not isinstance(ask.conf, dict):
        raise InvalidInput(
            f'--conf must be a JSON object such as {{"full": true}}, not {json.dumps(ask.conf, default=str)[:60]}'
        )
    for option, given in (("conf", ask.conf), ("set", ask.overrides)):
        if wrong := too_large(given):
            raise InvalidInput(f"--{option} {wrong}")


def _check_numbers(ask: BackfillAsk) -> None:
    numbers = (("max-active-runs", ask.max_active_runs), ("stop-on-failure", ask.stop_on_failure), ("batch", ask.batch))
    for option, value in numbers:
        if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < 1):
            raise InvalidInput(f"--{option} must be a whole number from 1 up, not {value!r}")
        if value is not None and value > MOST_OF_A_NUMBER:
            raise InvalidInput(f"--{option} must not be above {MOST_OF_A_NUMBER:,}, not {str(value)[:30]}")
    if isinstance(ask.priority, bool) or not isinstance(ask.priority, int) or abs(ask.priority) > MOST_OF_A_NUMBER:
        told = f"a whole number from -{MOST_OF_A_NUMBER:,} to {MOST_OF_A_NUMBER:,}"
        raise InvalidInput(f"--priority must be {told}, not {str(ask.priority)[:30]}")


def _check_batch(ask: BackfillAsk, dag: DagSpec) -> None:
    if ask.batch == 1:
        return
    if not dag.batchable:
        raise InvalidInput(
            f"--batch needs a DAG whose tasks work on an interval of any length: DAG {dag.dag_id!r} does not say "
            "batchable=True"
        )
    if ask.kind in ("single", "partitions"):
        raise InvalidInput(f"--batch joins intervals, and --kind {ask.kind} has none to join")


def _check_tasks(ask: BackfillAsk, dag: DagSpec) -> None:
    ids = [task.task_id for task in dag.work]
    if ask.tasks is not None:
        check_expression("--tasks", ask.tasks)
        if not selected_tasks(ask.tasks, dag):
            raise InvalidInput(f"--tasks {ask.tasks!r} matches no task of DAG {dag.dag_id!r}; it has {_listed(ids)}")
    waiting = [task.task_id for task in dag.tasks if task.depends_on_past]
    if ask.run_backwards and waiting:
        raise InvalidInput(
            f"--run-backwards can't be used with DAG {dag.dag_id!r}: its task {waiting[0]!r} has depends_on_past, so"
            " older dates must run first"
        )


def _check_dates(ask: BackfillAsk) -> None:
    if not ask.dates:
        raise InvalidInput("--kind dates needs --date, at least once")
    if ask.start_date or ask.end_date or ask.partitions:
        raise InvalidInput("--kind dates takes --date only, neither --from and --to nor --partition")
    if len(ask.dates) > MOST_ITEMS:
        raise InvalidInput(
            f"{len(ask.dates):,} dates are more than one backfill holds ({MOST_ITEMS:,}); ask for fewer at once"
        )


def _check_partitions(ask: BackfillAsk) -> None:
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


def _check_range(ask: BackfillAsk, dag: DagSpec) -> None:
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


def _check_plan(timetable: Timetable, start: datetime, end: datetime) -> None:
    """That there is something to plan, and not more than can be kept."""
    first = timetable.first_at_or_after(start)
    if first is None or first > end:
        schedule = timetable.schedule if isinstance(timetable.schedule, str) else timetable.describe()
        raise InvalidInput(
            f"no interval of {schedule!r} ({timetable.timezone}) starts between {format_instant(start)} and"
            f" {format_instant(end)}; {timetable.nearest_starts(start, end)}"
        )
    items = timetable.about_how_many(start, end)
    if items > MOST_ITEMS:
        raise InvalidInput(
            f"the range holds about {items:,} intervals, more than one backfill may ({MOST_ITEMS:,});"
            " ask for a shorter one"
        )


def _listed(names: list[str]) -> str:
    shown = ", ".join(names[:10])
    return shown if len(names) <= 10 else f"{shown} and {len(names) - 10} more"
