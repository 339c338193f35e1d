"""Creates a run and gives it its place in the timeline: the only way in which one is made. Pure.

It overrides the current run of its date (or, for a batch, of the dates in its interval), or takes the first date of a batch; its
successor's pointer moves to it; its task instances begin as `none`. All of this is one commit.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from datetime import datetime

from backfill_manager.dags.definition import DagSpec, TaskSpec
from backfill_manager.manager.state import ActiveBackfill, ActiveRun, ManagerState
from backfill_manager.model import states as s
from backfill_manager.model import transitions as c
from backfill_manager.model.records import DagRun, TaskInstance
from backfill_manager.model.transitions import NOT_SELECTED
from backfill_manager.planning.runs.timeline import TimelineWindow


def selected_of(row: DagRun, spec: DagSpec, tasks: Iterable[TaskInstance]) -> frozenset[str]:
    """The tasks that an existing run was made to run: those that were not skipped as not selected."""
    left_out = {ti.task_id: ti.state == s.SKIPPED and ti.error == NOT_SELECTED for ti in tasks}
    if row.run_type == s.EXTERNAL_RUN:
        return frozenset(left_out)
    return frozenset(task_id for task_id in spec.by_id if not left_out.get(task_id, False))


def existing_run(
    state: ManagerState, row: DagRun, owner: ActiveBackfill | None, tasks: dict[str, TaskInstance]
) -> ActiveRun:
    """A stored run as an active one, with the settings of its backfill. Its version must be in memory."""
    spec = state.spec_of_run(row, owner.row if owner else None, tasks)
    return ActiveRun(row=row, spec=spec, tasks=tasks, selected=selected_of(row, spec, tasks.values()))


def remove_unmapped(state: ManagerState, run: ActiveRun) -> None:
    """Ended tasks that the reopened run's definition lacks, as what they were mapped from ended otherwise since: mapped again,
    they run again."""
    for ti in list(run.tasks.values()):
        if ti.task_id not in run.spec.by_id and ti.state in s.TASK_FINISHED - {s.REMOVED}:
            state.put(c.removed(c.cleared(ti, ti.cleared_by), run.row.ended_at or run.row.created_at))


def make_run(
    state: ManagerState, row: DagRun, spec: DagSpec, timeline: TimelineWindow, overrides: Iterable[DagRun] = (),
    *, selected: Collection[str] | None = None, owner: ActiveBackfill | None = None,
) -> ActiveRun:  # fmt: skip
    """`timeline` is the timeline around its date; empty for an external run, which is outside of it. `overrides` are finished
    runs that it replaces. Only `selected` tasks are to run (None: all); the others are skipped, and the run is partial."""
    row = put_in_timeline(state, row, timeline, overrides)
    chosen, is_external = frozenset(spec.by_id if selected is None else selected), row.run_type == s.EXTERNAL_RUN
    row = row.evolve(is_partial=None if is_external else any(task.task_id not in chosen for task in spec.work))
    run = ActiveRun(row=row, spec=spec, tasks={}, selected=chosen)
    state.runs[run.key] = run
    for held in state.timelines(row.dag_id):
        held.put(row)
    state.put(row)
    for task in spec.tasks:
        if is_external and task.task_id not in chosen:
            continue
        ti = new_task(row, task, owner)
        state.put(ti if task.task_id in chosen else c.skipped(ti, row.created_at, NOT_SELECTED))
    return run


def new_task(run: DagRun, task: TaskSpec, owner: ActiveBackfill | None) -> TaskInstance:
    """With the priority of its backfill over its own."""
    priority = task.priority + (owner.row.priority if owner else 0)
    return TaskInstance(run.dag_id, run.run_id, task.task_id, s.NONE, run.run_seq, priority=priority)


def names_before_dots(task_id: str) -> Iterator[str]:
    """Of the tasks from which it may be mapped."""
    return (task_id[:at] for at, character in enumerate(task_id) if character == ".")


def fit_tasks(
    state: ManagerState, run: ActiveRun, selected: Collection[str], now: datetime, *, only: Collection[str] | None = None,
) -> None:  # fmt: skip
    """Task instances as the run's definition, which is another now, has them: those that it lacks are `removed`, new ones are
    added. `only`: what is mapped from these."""

    def is_left_alone(task_id: str) -> bool:
        return only is not None and not any(name in only for name in names_before_dots(task_id))

    for ti in list(run.tasks.values()):
        if ti.task_id not in run.spec.by_id and ti.state != s.REMOVED and not is_left_alone(ti.task_id):
            gone = c.cleared(ti, ti.cleared_by) if ti.state in s.TASK_FINISHED else ti
            state.put(c.removed(gone, now))
    owner = state.owner_of(run.row)
    for task in run.spec.tasks:
        if is_left_alone(task.task_id):
            continue
        existing = run.tasks.get(task.task_id)
        if existing is None:
            added = new_task(run.row, task, owner)
            state.put(added if task.task_id in selected else c.skipped(added, now, NOT_SELECTED))
        elif existing.state == s.REMOVED:
            state.put(c.cleared(existing, existing.cleared_by))
    run.selected = selected_of(run.row, run.spec, run.tasks.values())


def put_in_timeline(
    state: ManagerState, row: DagRun, timeline: TimelineWindow, overrides: Iterable[DagRun] = ()
) -> DagRun:
    """The run with its predecessor; what it overrides, and what came after these, is changed. It is not put itself. A batch of
    which it takes the first date stays the run of its other dates."""
    dates = {row.logical_date}  # of a batch several, between which other runs may stand
    moved: list[DagRun] = []
    for current in overrides:
        dates.add(current.logical_date)
        rest = timeline.rest_of(current, row)
        if rest is None:
            gone = c.run_overridden(current, row.run_id)
            state.put(gone)
            timeline.remember(gone)
        else:
            moved.append(rest)
            dates.add(rest.logical_date)
            state.put(rest)
            for held in (timeline, *state.timelines(row.dag_id)):
                held.move(current, rest)
    previous = timeline.previous(row.logical_date)
    for successor in [*moved, *filter(None, map(timeline.successor, dates))]:
        before = timeline.previous(successor.logical_date)
        follows = c.run_follows(successor, row.run_id if before == previous or before is None else before.run_id)
        state.put(follows)
        timeline.remember(follows)
    return row.evolve(previous_run_id=previous.run_id if previous else None)
