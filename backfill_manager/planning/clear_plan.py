"""A clear as asked for -> the runs and task instances that it touches: one value, shown before and then performed.

Which runs: every type, those that stand (not overridden), by logical date; an `external` run only when it is named, and
a run without a date only when no dates are given. Which tasks: by expression, with what is before or after them in the
definition that the run has, and with the callbacks that tell of them (a callback alone only by its whole id). Of those,
finished ones are set back, live ones are stopped first, and one that never started in a live run is left as it is: it
will run anyhow.

`plan_clear` is the one function here that reads; what it reads is bounded by DAG, date and state.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from backfill_manager.clock import format_instant
from backfill_manager.dags.definition import DagSpec
from backfill_manager.dags.schedule.timetable import parse_end, parse_start
from backfill_manager.errors import BackfillManagerError, NotFound
from backfill_manager.model import states as s
from backfill_manager.model.records import DagRow, DagRun, TaskInstance
from backfill_manager.model.transitions import NOT_SELECTED
from backfill_manager.schemas import errors
from backfill_manager.schemas.commands import ClearTasks
from backfill_manager.schemas.regex import searcher
from backfill_manager.store.base import Condition, Store

MOST_RUNS: Final = 100_000  # that one clear may choose
STOPPED_FIRST: Final = frozenset({s.SCHEDULED, s.UP_FOR_RETRY, *s.TASK_STARTED})
HAS_FAILED: Final = frozenset({s.FAILED, s.UPSTREAM_FAILED, s.CANCELLED})
_AT_ONCE: Final = 500  # runs whose tasks are read together
_NAMED: Final = 10  # tasks or DAGs in a message

SpecOf = Callable[[str, int], DagSpec]
Dates = tuple[datetime | None, datetime | None]


@dataclass(frozen=True)
class ClearedRun:
    run: DagRun
    tasks: tuple[TaskInstance, ...]  # finished: set back to `none`
    running: tuple[TaskInstance, ...]  # live: stopped, then set back
    to_version: int | None = None  # of the DAG, when the run moves to another
    stays: tuple[
        str, ...
    ] = ()  # tasks after them that are not cleared and stay `upstream_failed`, and so the run failed

    def to_json_document(self) -> dict[str, Any]:
        touched = sorted((*self.tasks, *self.running), key=lambda ti: ti.task_id)
        return {
            "dag_id": self.run.dag_id,
            "run_id": self.run.run_id,
            "run_type": self.run.run_type,
            "state": self.run.state,
            "logical_date": format_instant(self.run.logical_date),
            "partition_key": self.run.partition_key,
            "dag_version": self.run.dag_version,
            "to_version": self.to_version,
            "tasks": [{"task_id": ti.task_id, "state": ti.state} for ti in touched],
            "stays": list(self.stays),
        }


@dataclass(frozen=True)
class ClearPlan:
    """By DAG and logical date. `summary` counts runs, task instances, those of them that are stopped first, and those after
    them that stay `upstream_failed`."""

    runs: tuple[ClearedRun, ...]

    @property
    def summary(self) -> dict[str, int]:
        running = sum(len(one.running) for one in self.runs)
        return {
            "runs": len(self.runs),
            "tasks": running + sum(len(one.tasks) for one in self.runs),
            "running": running,
            "stay_upstream_failed": sum(len(one.stays) for one in self.runs),
        }

    def to_json_document(self) -> dict[str, Any]:
        return {"runs": [one.to_json_document() for one in self.runs], "summary": self.summary}


def plan_clear(store: Store, ask: ClearTasks, dags: Mapping[str, DagRow], spec_of: SpecOf) -> ClearPlan:
    """What `ask` comes to. `dags` are all there are or ever were, `spec_of` gives the definition of a DAG's version.

    `NotFound` for a DAG or run that does not exist; `InvalidInput` for whatever leaves nothing to clear, with what to
    do instead.
    """
    ask.check()
    chosen = chosen_dags(ask, dags)
    runs = _read_runs(store, ask, chosen)
    _check_runs(store, ask, chosen, runs)
    specs = {run.key: spec_of(run.dag_id, run.dag_version) for run in runs}
    spec_of_version = {(run.dag_id, run.dag_version): specs[run.key] for run in runs}
    chosen_of = {version: tasks_to_clear(ask, spec) for version, spec in spec_of_version.items()}
    tasks_of = {run.key: chosen_of[run.dag_id, run.dag_version] for run in runs}
    if ask.tasks is not None and not any(tasks_of.values()):
        versions = (spec_of(*version) for version in sorted({(run.dag_id, run.dag_version) for run in runs}))
        ids = dict.fromkeys(task.task_id for spec in versions for task in spec.in_order if not task.is_callback)
        whose = "" if ask.is_regex else f" of DAG {ask.dag_id!r}"
        raise errors.NO_TASK_MATCHES(pattern=ask.tasks, whose=whose, tasks=_listed(list(ids)))
    with_callbacks = any(spec.callbacks for spec in specs.values())
    to_read = s.TASK_FINISHED | STOPPED_FIRST if with_callbacks else states_to_clear(ask) | {s.UPSTREAM_FAILED}
    instances = _read_tasks(store, to_read, runs)
    cleared = (
        cleared_run(ask, run, dags[run.dag_id], specs[run.key], tasks_of[run.key], instances.get(run.key, ()))
        for run in runs
    )
    plan = ClearPlan(tuple(one for one in cleared if one.tasks or one.running))
    if not plan.runs:
        raise _no_task(ask, len(runs))
    return plan


# -- pure: which DAGs, runs and tasks ---------------------------------------------------------------------------------


def chosen_dags(ask: ClearTasks, dags: Mapping[str, DagRow]) -> list[DagRow]:
    """By id or expression, gone ones too: what they ran can be cleared as long as it keeps its version."""
    if not ask.is_regex:
        if ask.dag_id not in dags:
            raise NotFound("DAG", ask.dag_id, dags, hint="see_dags")
        chosen = [dags[ask.dag_id]]
    else:
        is_named = searcher(ask.dag_id)
        chosen = [dags[dag_id] for dag_id in sorted(dags) if is_named(dag_id)]
        if not chosen:
            raise NotFound("DAG that matches", ask.dag_id, more=f"; there are {_listed(sorted(dags)) or 'none yet'}.")
    gone = [dag.dag_id for dag in chosen if not dag.is_active]
    if ask.latest_version and gone:
        raise errors.LATEST_OF_GONE_DAG(dag_id=gone[0])
    return chosen


def dates_of(ask: ClearTasks, dag: DagRow) -> Dates:
    """The ends of the range, read in the DAG's zone; a date alone as the end is its whole day. `InvalidInput` for what is
    no date, or the wrong way round."""
    start = None if ask.start_date is None else parse_start(ask.start_date, dag.timezone, name="start_date")
    end = None if ask.end_date is None else parse_end(ask.end_date, dag.timezone, name="end_date")
    if start is not None and end is not None and start > end:
        raise errors.RANGE_REVERSED(start=ask.start_date, end=ask.end_date)
    return start, end


def tasks_to_clear(ask: ClearTasks, spec: DagSpec) -> frozenset[str]:
    """Ids of the tasks that `ask` means in this version of the DAG, with those before and after them if it says so. A
    callback goes with what it tells of; by itself it is meant by its whole id only (`^clean\\.on_failure$`, too)."""
    if ask.tasks is None:
        return frozenset(task.task_id for task in spec.work)
    is_named = searcher(ask.tasks)
    matching = frozenset(task.task_id for task in spec.work if is_named(task.task_id))
    whole = ask.tasks.removeprefix("^").removesuffix("$").replace("\\.", ".")
    chosen = matching | {whole} if spec.is_callback(whole) else matching
    if ask.upstream:
        chosen |= spec.all_upstream(matching)
    if ask.downstream:
        chosen |= spec.all_downstream(matching)
    return chosen


def cleared_run(
    ask: ClearTasks,
    run: DagRun,
    dag: DagRow,
    spec: DagSpec,
    task_ids: frozenset[str],
    instances: Iterable[TaskInstance],
) -> ClearedRun:
    """What is touched of one run; maybe nothing. Whatever state a callback is in, it goes with its task."""
    there = [ti for ti in instances if not (ti.state == s.SKIPPED and ti.error == NOT_SELECTED)]
    wanted = states_to_clear(ask)
    touched = {ti.task_id for ti in there if ti.task_id in task_ids and ti.state in wanted}
    touched |= spec.callbacks_of(touched)
    chosen = sorted((ti for ti in there if ti.task_id in touched), key=lambda ti: ti.task_id)
    # what comes after a task that is stopped is cleared with it
    after = spec.all_downstream(
        {ti.task_id for ti in chosen if ti.state in s.TASK_FINISHED and ti.task_id in spec.by_id}
    )
    after -= spec.all_downstream(
        {ti.task_id for ti in chosen if ti.state in STOPPED_FIRST and ti.task_id in spec.by_id}
    )
    moves = ask.latest_version and dag.current_version != run.dag_version
    return ClearedRun(
        run=run,
        tasks=tuple(ti for ti in chosen if ti.state in s.TASK_FINISHED),
        running=tuple(ti for ti in chosen if ti.state in STOPPED_FIRST),
        to_version=dag.current_version if moves else None,
        stays=tuple(
            sorted(
                ti.task_id
                for ti in there
                if ti.state == s.UPSTREAM_FAILED and ti.task_id in after and ti.task_id not in touched
            )
        ),
    )


def states_to_clear(ask: ClearTasks) -> frozenset[str]:
    """Not `none`: it never started. With `only_failed` also what could not start because of a failure, else the failed
    task would be done again and its followers never."""
    if ask.only_failed:
        return HAS_FAILED
    return s.TASK_STARTED if ask.only_running else s.TASK_FINISHED | STOPPED_FIRST


def failed_and_after(spec: DagSpec, tasks: Iterable[TaskInstance]) -> frozenset[str]:
    """Of a finished run the tasks that failed, could not start because of it, or were cancelled (or were cleared, and
    have not begun), with every task that depends on them; not those that were left out, nor callbacks."""
    there = {ti.task_id: ti for ti in tasks if ti.task_id in spec.by_id and not spec.is_callback(ti.task_id)}
    failed = {task_id for task_id, ti in there.items() if ti.state in HAS_FAILED or ti.state not in s.TASK_FINISHED}
    after = spec.all_downstream(failed) & there.keys()
    return frozenset(failed | {task_id for task_id in after if there[task_id].error != NOT_SELECTED})


# -- reading ----------------------------------------------------------------------------------------------------------


def _read_runs(store: Store, ask: ClearTasks, dags: Sequence[DagRow]) -> list[DagRun]:
    """The runs that stand, by DAG and logical date; those without a date come last."""
    together: dict[Dates, list[str]] = {}  # DAGs of one zone are read at once
    for dag in dags:
        together.setdefault(dates_of(ask, dag), []).append(dag.dag_id)
    runs: list[DagRun] = []
    for (start, end), dag_ids in together.items():
        where = [Condition("dag_id", "in", tuple(dag_ids)), Condition("state", "!=", s.OVERRIDDEN)]
        if start is not None:
            where.append(Condition("logical_date", ">=", start))
        if end is not None:
            where.append(Condition("logical_date", "<=", end))
        where.append(
            Condition("run_id", "in", ask.run_ids) if ask.run_ids else Condition("run_type", "!=", s.EXTERNAL_RUN)
        )
        runs += store.read(DagRun, where, limit=MOST_RUNS + 1 - len(runs))
    if len(runs) > MOST_RUNS:
        raise errors.TOO_MANY_RUNS(max=f"{MOST_RUNS:,}")
    return sorted(runs, key=lambda run: (run.dag_id, run.logical_date is None, run.logical_date, run.run_seq))


def _read_tasks(
    store: Store, in_states: frozenset[str], runs: Sequence[DagRun]
) -> dict[tuple[Any, ...], list[TaskInstance]]:
    found: dict[tuple[Any, ...], list[TaskInstance]] = {}
    wanted = tuple(sorted(in_states))
    for some in _chunks(sorted(runs, key=lambda run: run.run_seq)):
        where = [
            Condition("run_seq", ">=", some[0].run_seq),
            Condition("run_seq", "<=", some[-1].run_seq),
            Condition("dag_id", "in", tuple({run.dag_id for run in some})),
            Condition("run_id", "in", tuple({run.run_id for run in some})),
            Condition("state", "in", wanted),
        ]
        for ti in store.read(TaskInstance, where):
            found.setdefault((ti.dag_id, ti.run_id), []).append(ti)
    return found


def _chunks(runs: Sequence[DagRun]) -> Iterator[Sequence[DagRun]]:
    for first in range(0, len(runs), _AT_ONCE):
        yield runs[first : first + _AT_ONCE]


# -- why there is nothing ---------------------------------------------------------------------------------------------


def _check_runs(store: Store, ask: ClearTasks, dags: Sequence[DagRow], runs: Sequence[DagRun]) -> None:
    for run_id in ask.run_ids:
        if not any(run.run_id == run_id for run in runs):
            raise _no_such_run(store, ask, dags, run_id)
    if not runs:
        _check_batches(store, ask, dags)
        none = (
            f"No DAG that matches {ask.dag_id!r} has ever run" if ask.is_regex else f"DAG {ask.dag_id!r} has never run"
        )
        first = next((dag.dag_id for dag in dags if dag.is_active), None)
        if first is None:
            raise errors.NEVER_RAN_AND_GONE(none=none, between=_between(ask))
        ends = {"start": ask.start_date or "T", "end": ask.end_date or "T"}
        raise errors.NEVER_RAN(none=none, between=_between(ask), dag_id=first, **ends)


def _check_batches(store: Store, ask: ClearTasks, dags: Sequence[DagRow]) -> None:
    """A run that took several intervals has the logical date of its first: the dates after it did run, with it."""
    for dag in dags:
        start, _ = dates_of(ask, dag)
        if start is None:
            continue
        where = [
            Condition("dag_id", "=", dag.dag_id),
            Condition("items", ">", 1),
            Condition("state", "!=", s.OVERRIDDEN),
            Condition("logical_date", "<", start),
            Condition("interval_end", ">", start),
        ]
        for batch in store.read(DagRun, where, limit=1):
            first = format_instant(batch.logical_date)
            raise errors.PART_OF_A_BATCH(between=_between(ask), run_id=batch.run_id, items=batch.items, start=first)


def _no_such_run(store: Store, ask: ClearTasks, dags: Sequence[DagRow], run_id: str) -> Exception:
    of_them = Condition("dag_id", "in", tuple(dag.dag_id for dag in dags))
    there = store.read(DagRun, [of_them, Condition("run_id", "=", run_id)], limit=1)
    if not there:
        known = [run.run_id for run in store.read(DagRun, [of_them], order_by=["-run_seq"], limit=500)]
        return NotFound(f"run of DAG {ask.dag_id!r} with the id", run_id, known, hint="see_runs")
    if there[0].state == s.OVERRIDDEN:
        return errors.CLEAR_OVERRIDDEN(run_id=run_id, by=there[0].overridden_by)
    return errors.RUN_OUT_OF_RANGE(run_id=run_id, between=_between(ask))


def _no_task(ask: ClearTasks, runs: int) -> BackfillManagerError:
    what = "that failed" if ask.only_failed else "that is running" if ask.only_running else "that has started"
    of = "" if ask.tasks is None else f", of those that match {ask.tasks!r},"
    those = "the one run" if runs == 1 else f"any of the {runs:,} runs"
    return errors.NO_TASK_STARTED(of=of, what=what, runs=those, dags=_in_words(ask), between=_between(ask))


def _in_words(ask: ClearTasks) -> str:
    return f"any DAG that matches {ask.dag_id!r}" if ask.is_regex else f"DAG {ask.dag_id!r}"


def _between(ask: ClearTasks) -> str:
    if ask.start_date and ask.end_date:
        return f" between {ask.start_date} and {ask.end_date}"
    return f" from {ask.start_date} on" if ask.start_date else f" up to {ask.end_date}" if ask.end_date else ""


def _listed(names: Sequence[str]) -> str:
    shown = ", ".join(names[:_NAMED])
    return shown if len(names) <= _NAMED else f"{shown} and {len(names) - _NAMED} more"
