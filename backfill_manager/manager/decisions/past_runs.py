"""Whether the run before lets a task with `depends_on_past` (or `wait_for_downstream`) start. Pure
decisions over `ManagerState`."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from backfill_manager.dags.definition import TaskSpec
from backfill_manager.dags.mapping import made_of
from backfill_manager.manager.decisions import notification_rules
from backfill_manager.manager.decisions.trigger_rules import PAST_IS_DONE
from backfill_manager.manager.state import ActiveBackfill, ActiveRun, ManagerState
from backfill_manager.model import states as s
from backfill_manager.model.records import Backfill, BackfillItem, TaskInstance
from backfill_manager.planning.runs.timeline import timeline_key

ACTIVE = ""  # an obstacle that may go away by itself


def past_obstacle(
    state: ManagerState, run: ActiveRun, task: TaskSpec, repeating: Callable[[], ActiveBackfill | None]
) -> str | None:  # fmt: skip
    """What keeps a task from starting. None: nothing. `ACTIVE`: a run that is active, not read yet, or whose dates a backfill is
    to run again (`repeating`). Else: why it can never start."""
    if not task.depends_on_past or run.row.previous_run_id is None:
        return None
    owner = state.owner_of(run.row)
    if owner is not None and owner.row.ignore_first_depends_on_past:
        if owner.first is None:
            return ACTIVE  # read by the next prefetch
        if owner.first == run.row.ordinal:
            return None
    previous = state.runs.get((run.row.dag_id, run.row.previous_run_id))
    past = run.past if previous is None else previous.tasks
    if repeating() is not None or past is None:
        return ACTIVE
    # the previous run may not have had a task
    before = [past[task_id] for task_id in _awaited(run, task, past) if task_id in past]
    obstacle = next((ti for ti in before if ti.state not in PAST_IS_DONE), None)
    if obstacle is None:
        return None
    if previous is not None:
        return ACTIVE
    if obstacle.state == s.UPSTREAM_FAILED and obstacle.error:  # a deadlock itself: what it waited for, this waits for
        return obstacle.error
    is_itself = obstacle.task_id == task.task_id
    what = "depends on the past, and" if is_itself else f"waits for its downstream {obstacle.task_id!r}, which"
    return (
        f"{notification_rules.DEADLOCK}task {task.task_id!r} of run {run.row.run_id} {what} is {obstacle.state} in the run "
        f"before, {run.row.previous_run_id}"
    )


def repeating_before(state: ManagerState, run: ActiveRun) -> ActiveBackfill | None:
    """The backfill that is to run the dates right before this run again: of a batch that failed, as halves, or of a retry. The
    new runs come between this one and the one before it."""
    at = run.row.logical_date
    for live in state.backfills.values():
        if at is None or live.row.dag_id != run.row.dag_id or not live.counts[s.PENDING]:
            continue
        if not live.pending:
            return live  # they are read before the next tick
        if not live.has_repeated:
            continue
        repeated = (one for one in live.pending if one.run_id and not _was_done_since(live, one))
        earlier = [one.logical_date for one in repeated if one.logical_date and one.logical_date < at]
        following = live.timeline.successor(max(earlier)) if earlier else None
        if following is not None and following.key == run.key:
            return live
    return None


def wait_of(row: Backfill) -> str | None:
    """`is paused`: why a backfill that is to run dates again does not go on; None if it does."""
    if row.is_paused:
        return "is paused"
    return "waits for its time window" if row.waits_until else None


def _awaited(run: ActiveRun, task: TaskSpec, past: dict[str, TaskInstance]) -> Iterator[str]:
    """The task itself and, with `wait_for_downstream`, all after it, also those that were mapped in that run."""
    yield task.task_id
    downstream = list(run.spec.downstream(task.task_id)) if task.wait_for_downstream else []
    yield from downstream
    for one in downstream:
        if one in past and run.spec.task(one).over_result_of is not None:
            yield from (f"{one}.{key}" for key in made_of(past[one]))


def _was_done_since(live: ActiveBackfill, item: BackfillItem) -> bool:
    """Whether another run than that of the item has succeeded for its date: nothing waits for the item any more."""
    there = live.timeline.standing_at(timeline_key(item.logical_date, None))
    return there is not None and there.run_id != item.run_id and there.state == s.SUCCESS
