"""What can be refused of a backfill before the manager plans it, and of changes to one.

Pure and quick: the CLI, the API and the pages call these before they send a request, the manager when it reads one. Even an
empty plan is found here, without Spark: the schedule's timetable knows the nearest starts.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from datetime import datetime
from typing import Any, Final

from backfill_manager.clock import format_instant
from backfill_manager.dags.definition import DagSpec
from backfill_manager.dags.overrides import with_overrides
from backfill_manager.dags.run_params import check_conf
from backfill_manager.dags.schedule.timetable import ONCE, Timetable, parse_date, timetable_of
from backfill_manager.dags.task_selection import selected_tasks
from backfill_manager.errors import NotFound, nearest, shorten
from backfill_manager.humanise import name_list, plural
from backfill_manager.masking import mask_values
from backfill_manager.model.pools import SCHEDULED_POOL
from backfill_manager.model.records import Backfill
from backfill_manager.number_ranges import Ranges, range_texts
from backfill_manager.planning.backfills.backfill_range import (
    MAX_ITEMS,
    NOTHING_TO_BATCH,
    ON_SCHEDULE,
    read_range,
    with_defaults,
)
from backfill_manager.planning.backfills.time_window import TimeWindow
from backfill_manager.schemas import backfill_options, errors, field_types, json_values
from backfill_manager.schemas.backfill_columns import option_of
from backfill_manager.schemas.fields import fields_of
from backfill_manager.schemas.regex import check_regex

_ALLOWED_REPROCESS: Final = {  # by kind
    "missing": ("none", "failed", "failed_tasks"), "stale": ("none", "completed"), "outdated": ("none", "completed"),
}  # fmt: skip


def read_backfill(values: backfill_options.BackfillInput, dag: DagSpec) -> backfill_options.CreateBackfill:
    """The command that is meant: `config` taken apart, the kind inferred, dates read in the DAG's zone."""
    values = _without_config(values)
    kind = _kind_of(values)
    options = values.model_dump(exclude={"config", "copy_of", "kind", "start_date", "end_date", "dates"})
    dates = tuple(parse_date(text, dag.timezone, name="dates") for text in values.dates)
    return backfill_options.CreateBackfill.parse(
        {**options, **read_range(dag, kind, values.start_date, values.end_date), "kind": kind, "dates": dates}
    )


def _without_config(values: backfill_options.BackfillInput) -> backfill_options.BackfillInput:
    if (config := values.config) is None:
        return values
    if config.total is not None:
        raise errors.CONFIG_CUT_SHORT(total=config.total, listed=config.type)
    covered = {"kind": config.type, **{name: value for name, value in config if name not in ("type", "total")}}
    declared = fields_of(backfill_options.BackfillInput)
    for name in covered:
        if getattr(values, name) != declared[name].default:
            raise errors.CONFIG_AND_FIELD(field=name)
    return values.evolve(config=None, **covered)


def _kind_of(values: backfill_options.BackfillInput) -> backfill_options.Kind:
    if values.dates and values.partitions:
        raise errors.DATES_AND_PARTITIONS()
    listed: backfill_options.Kind | None = "dates" if values.dates else "partitions" if values.partitions else None
    if listed and values.kind not in (None, listed):
        raise errors.LISTED_WITH_OTHER_KIND(field=listed, listed=listed, kind=values.kind)
    if listed and (values.start_date or values.end_date):
        raise errors.LISTED_WITH_RANGE(field=listed, listed=listed)
    return listed or values.kind or "schedule"


def check_backfill(command: backfill_options.CreateBackfill, dag: DagSpec, now: datetime) -> None:
    """`InvalidInput` for everything that can't be carried out.

    A range's start that was left out is the DAG's `start_date`, and must be given if there is none; see `with_defaults`
    for its end. Pools are checked by those who know them (`check_pools`).
    """
    if command.by == "data" and command.kind != "missing":
        raise errors.BY_DATA_WITH_OTHER_KIND(kind=command.kind)
    allowed = ("none", "completed") if command.by == "data" else _ALLOWED_REPROCESS.get(command.kind)
    if allowed and command.reprocess not in allowed:
        raise errors.KIND_IMPLIES_REPROCESS(kind=command.kind, reprocess=command.reprocess)
    json_values.check_sizes(conf=command.conf, overrides=command.overrides)
    if command.window is not None:
        TimeWindow.parse(command.window)
    _check_failed_tasks(command, command.reprocess, command.dag_id)
    if command.preview and command.reprocess == "failed_tasks":
        raise errors.PREVIEW_WITH(field="reprocess", value=" failed_tasks")
    if command.preview and command.mark_success:
        raise errors.PREVIEW_WITH(field="mark_success", value="")
    check_conf(command.conf, dag)
    dag = with_overrides(dag, command.overrides)
    _check_with_dag(command, dag, runs_backwards=command.run_backwards)
    if command.batch not in (None, 1) and command.kind in NOTHING_TO_BATCH:
        raise errors.NOTHING_TO_BATCH(kind=command.kind)
    if command.kind in ("dates", "partitions"):
        _check_listed(command)
    else:
        check_range(command, dag, now)


def check_pools(pool: str | None, overrides: Mapping[str, Any], known: Collection[str]) -> None:
    """`NotFound` or `InvalidInput` unless the pool of a backfill (None: not given), and every one that its overrides name,
    exists and is open to backfills."""
    there = sorted(name for name in known if name != SCHEDULED_POOL)
    if pool == SCHEDULED_POOL:
        raise errors.SCHEDULED_POOL(field="pool", pool=pool)
    if pool is not None and pool not in known:
        raise NotFound("pool", pool, there, more=f"; there are {', '.join(there)}.", field="pool")
    for name, value in overrides.items():
        if name.rpartition(".")[2] != "pool" or value is None:  # None: the pool of the backfill
            continue
        if value == SCHEDULED_POOL:
            raise errors.SCHEDULED_POOL(field="overrides", pool=f"{name}={value}")
        if value not in known:
            near = nearest(str(value), there) or "."
            raise errors.NO_POOL_TO_OVERRIDE(name=name, pool=value, nearest=near, pools=", ".join(there))


def check_target(name: str | None, known: Collection[str]) -> None:
    """`NotFound` unless there is such a target of notifications, or none is named."""
    if name is not None and name not in known:
        more = f"; there are {', '.join(sorted(known))}." if known else "; the manager's configuration has none."
        raise NotFound("notification target", name, known, more=more, field="notify")


def check_changes(changes: Mapping[str, Any]) -> backfill_options.BackfillSettings:
    """`InvalidInput` for changes that can't be made whichever backfill it is."""
    settings = backfill_options.changed_settings(changes)
    if settings.window is not None:
        TimeWindow.parse(settings.window)
    return settings


def as_read(changes: Mapping[str, Any]) -> dict[str, Any]:
    """Changes with the values that are meant: of `batch` and `batch_target`, text is understood."""
    settings = check_changes(changes)
    return {name: getattr(settings, name) for name in changes}


def check_changes_for_dag(
    changes: Mapping[str, Any], dag: DagSpec, current: Mapping[str, Any], *, runs_backwards: bool, reprocess: str = "none"
) -> None:  # fmt: skip
    """The same for what depends on the DAG (`dag`: the version that the backfill runs), together with the settings of
    `CHECKED_TOGETHER` as they are now (`current`)."""
    check_changes(changes)
    settings = backfill_options.changed_settings({**current, **changes})
    _check_failed_tasks(settings, reprocess, dag.dag_id)
    if "conf" in changes:
        check_conf(settings.conf, dag)
    dag = with_overrides(dag, settings.overrides)
    if settings.tasks is None:  # whether some are selected is not said here
        settings = settings.evolve(with_upstream=True, with_downstream=False)
    _check_with_dag(settings, dag, runs_backwards=runs_backwards)


def check_expected(was: Mapping[str, Any], changes: Mapping[str, Any]) -> None:
    """`InvalidInput` unless every setting of `was` is to be changed."""
    for name in was:
        if name not in changes:
            near = nearest(name, changes) or f"; what is to be changed is {', '.join(changes)}."
            raise errors.WAS_NOT_CHANGED(name=name, nearest=near)


def check_not_changed_meanwhile(row: Backfill, changes: Mapping[str, Any], was: Mapping[str, Any]) -> None:
    """`Refused` when a setting is not any more what the sender saw; one that already has the new value is no conflict (so a
    request that is handled again after a crash is not refused for what it did itself)."""
    changed = [name for name in was if option_of(row, name) not in (was[name], changes[name])]
    if changed:
        texts = {name: (shown_value(option_of(row, name)), shown_value(was[name])) for name in changed}
        now, before = texts.pop(changed[0])
        more = "".join(f"; {name} is {new} now, not {old}" for name, (new, old) in texts.items())
        raise errors.CHANGED_MEANWHILE(field=changed[0], now=now, was=before, more=more)


def shown_value(value: Any) -> str:
    """In a message: the beginning of what is long, without secrets; in words what is nothing, true or false."""
    if value is None:
        return "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    shown = mask_values(value)
    return shorten(shown if isinstance(shown, str) else json.dumps(shown, ensure_ascii=False), 100)


def _check_failed_tasks(settings: backfill_options.BackfillSettings, reprocess: str, dag_id: str) -> None:
    """Runs are re-run as they were made: there is nothing to select, to combine or to mark."""
    if reprocess != "failed_tasks":
        return
    if settings.tasks is not None:
        raise errors.FAILED_TASKS_WITH_TASKS(dag_id=dag_id, tasks=settings.tasks)
    if settings.batch not in (None, 1):
        raise errors.FAILED_TASKS_WITH(field="batch", value=f" {settings.batch}")
    if settings.mark_success:
        raise errors.FAILED_TASKS_WITH(field="mark_success", value="")


def _check_with_dag(settings: backfill_options.BackfillSettings, dag: DagSpec, *, runs_backwards: bool) -> None:
    if settings.batch not in (None, 1) and not dag.batchable:
        raise errors.NOT_BATCHABLE(dag_id=dag.dag_id)
    pattern, upstream, downstream = settings.tasks, settings.with_upstream, settings.with_downstream
    if pattern is None and downstream:
        raise errors.DOWNSTREAM_WITHOUT_TASKS()
    if pattern is None and not upstream:
        raise errors.UPSTREAM_WITHOUT_TASKS()
    if pattern is not None:
        check_regex("tasks", pattern)
        if not selected_tasks(pattern, dag):
            tasks = name_list([task.task_id for task in dag.work])
            raise errors.NO_TASK_MATCHES(pattern=pattern, whose=f" of DAG {dag.dag_id!r}", tasks=tasks)
    selected = selected_tasks(pattern, dag, upstream=upstream, downstream=downstream)
    waiting = [task_id for task_id in selected if dag.task(task_id).depends_on_past]
    if runs_backwards and waiting:
        raise errors.BACKWARDS_ON_PAST(dag_id=dag.dag_id, task_id=waiting[0])


def _check_listed(command: backfill_options.CreateBackfill) -> None:
    kind, listed = command.kind, command.dates or command.partitions
    if not getattr(command, kind):
        raise errors.NOTHING_LISTED(field=kind, kind=kind)
    if command.start_date or command.end_date or (command.dates and command.partitions):
        raise errors.ONLY_DATES() if kind == "dates" else errors.ONLY_PARTITIONS()
    for key in command.partitions:
        check_partition(key, "partitions")
    if len(listed) > MAX_ITEMS:
        raise errors.TOO_MANY_LISTED(field=kind, count=f"{len(listed):,}", listed=kind, max=f"{MAX_ITEMS:,}")


def check_partition(key: str, field: str) -> None:
    """`InvalidInput` for what can't be a partition key."""
    if not key.strip() or len(key) > field_types.MAX_PARTITION_KEY_LENGTH or not key.isprintable():
        raise errors.BAD_PARTITION(field=field, key=key[:60], max=field_types.MAX_PARTITION_KEY_LENGTH)


def check_range(command: backfill_options.CreateBackfill, dag: DagSpec, now: datetime) -> None:
    """`InvalidInput` for a range that holds nothing, or too much."""
    filled = with_defaults(command, dag, now)
    if command.dates or command.partitions:
        raise errors.ONLY_RANGE(kind=command.kind)
    if command.kind in ON_SCHEDULE and (dag.schedule is None or dag.schedule == ONCE):
        has = "has no schedule" if dag.schedule is None else f"has the schedule {ONCE!r}"
        raise errors.NO_SCHEDULE(dag_id=dag.dag_id, has=has)
    start, end = filled.start_date, filled.end_date
    if start is None or end is None:
        missing = errors.NO_END if start else errors.NO_START if end else errors.NO_ENDS
        if start is None and command.kind in ON_SCHEDULE:  # the end that is missing is the last complete interval's
            missing = errors.NO_START
        raise missing(kind=command.kind)
    if command.end_date is None:
        _check_end_left_out(command, dag, start, end)
    if start > end:
        raise errors.RANGE_REVERSED(start=format_instant(start), end=format_instant(end))
    if command.kind in ON_SCHEDULE:
        _check_plan(timetable_of(dag, start), start, end)
    elif start == end:
        raise errors.EMPTY_RANGE(start=format_instant(start))


def _check_end_left_out(command: backfill_options.CreateBackfill, dag: DagSpec, start: datetime, end: datetime) -> None:
    """An interval which is complete must start in a range that was given without its end."""
    if dag.end_date is not None and start > dag.end_date:
        raise errors.START_AFTER_END_OF_DAG(
            start=format_instant(start), dag_id=dag.dag_id, end=format_instant(dag.end_date)
        )
    timetable = timetable_of(dag, start)
    first = timetable.first_at_or_after(start) if timetable.repeats else None
    if first is None or (first <= end if command.kind in ON_SCHEDULE else start < end):
        return
    raise errors.NOT_COMPLETE_YET(start=format_instant(start), end=format_instant(timetable.next_after(first)))


def _check_plan(timetable: Timetable, start: datetime, end: datetime) -> None:
    """There must be something to plan, and not more than can be kept."""
    first = timetable.first_at_or_after(start)
    if first is None or first > end:
        schedule = timetable.schedule if isinstance(timetable.schedule, str) else timetable.describe()
        raise errors.NO_INTERVAL(
            schedule=schedule, timezone=timetable.timezone, start=format_instant(start), end=format_instant(end),
            nearest=timetable.nearest_starts(start, end),
        )  # fmt: skip
    items = timetable.estimate_count(start, end)
    if items > MAX_ITEMS:
        raise errors.TOO_MANY_INTERVALS(count=f"{items:,}", max=f"{MAX_ITEMS:,}")


def check_items(chosen: Ranges, backfill_id: str, planned: int) -> None:
    """`InvalidInput` for numbers that no item of the backfill has."""
    if chosen and chosen[-1][1] > planned:
        (beyond,) = range_texts(chosen[-1:])
        raise errors.NO_SUCH_ITEM(item=beyond, backfill_id=backfill_id, planned=plural(planned, "item"))
