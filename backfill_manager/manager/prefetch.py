"""Reads from the tables what the decisions of a tick will need: they themselves read nothing.

Only between commits, when the tables agree with memory. Bounded: a window of pending items for each backfill, the timeline around
it, and the last states of runs that an active run depends on.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from datetime import datetime

from backfill_manager.dags.schedule.timetable import ONCE
from backfill_manager.manager.decisions.backfill_runs import runs_to_rerun
from backfill_manager.manager.decisions.data_waits import awaited_tables, has_waited_to_its_limit
from backfill_manager.manager.decisions.item_outcomes import batch_of_half
from backfill_manager.manager.decisions.reopen import LoadedRows, load_version
from backfill_manager.manager.decisions.schedule import lookback_depth
from backfill_manager.manager.state import ActiveBackfill, ActiveRun, ManagerState
from backfill_manager.manager.upstream_items import FAILED, UpstreamItems
from backfill_manager.model import states as s
from backfill_manager.model.records import Backfill, BackfillItem, DagRow, DagRun, RunKey
from backfill_manager.planning.backfills.past_costs import read_past
from backfill_manager.planning.data.written_intervals import read_written
from backfill_manager.planning.runs.recent_runs import recent_timelines, with_partial_marked
from backfill_manager.planning.runs.timeline import CURRENT_RUNS, OF_TIMELINE, TimelineWindow
from backfill_manager.store.base import Condition, Store, matching

REVERTED = "reverted"  # of a task of the run before, in `ActiveRun.past` alone
MAX_RECENT_RUNS = 1000  # of the newest end of a timeline, before it is trimmed
WINDOW = 500  # pending items of one backfill in memory; more where batches are large


def prefetch(state: ManagerState, store: Store, now: datetime) -> None:
    lacking = [dag_id for dag_id, dag in state.catalog.dags.items() if _lacks_recent(state, dag)]
    missing = {dag_id: lookback_depth(state.current_spec(dag_id)) for dag_id in lacking}
    state.recent.update(recent_timelines(missing, store, now))
    for dag_id, recent in state.recent.items():
        if len(recent) > MAX_RECENT_RUNS:  # most of them a backfill's
            recent.trim(lookback_depth(state.current_spec(dag_id)))
        if state.catalog.dags[dag_id].schedule == ONCE and not recent.is_over and recent.last_scheduled is not None:
            recent.end()
    for live in state.backfills.values():
        if live.is_batch_auto and live.past is None:
            live.past = read_past(store, live.spec, live.row.backfill_id)
        batch = live.most_in_batch
        low_water = max(batch + 1, min(live.row.max_active_runs * batch, WINDOW // 2))
        if live.window_is_short and len(live.pending) < low_water:
            refill(live, store)
        elif live.timeline.has_gap:
            live.timeline = _timeline_of(live, store)
        if live.parents and live.waits is None:
            live.waits = _waits(live, store)
        if live.first is None and _needs_first(state, live):
            where = [*matching(backfill_id=live.row.backfill_id), Condition("state", "!=", s.SKIPPED)]
            first = store.first(BackfillItem, where, ["ordinal"])
            live.first = 0 if first is None else first.ordinal
    _read_writes(state, store)
    _read_failed_runs(state, store)
    _read_waited(state, store)
    _read_pasts(state, store)


def _read_writes(state: ManagerState, store: Store) -> None:
    """Reads what has been written of tables for which a task waits, or will in a batch; from then on memory follows."""
    waited_for = {table for run in state.runs.values() for table in awaited_tables(run.spec, run.tasks)}
    batched = (live for live in state.backfills.values() if live.most_in_batch > 1 and live.pending)
    waited_for |= {table for live in batched for table in awaited_tables(live.spec, live.selected)}
    if missing := waited_for - state.written.keys():
        state.written |= read_written(store, missing)


def _read_failed_runs(state: ManagerState, store: Store) -> None:
    """Reads the tasks of runs whose failed ones are to run again next."""
    by_backfill = {live.row.backfill_id: runs_to_rerun(live) for live in state.backfills.values()}
    loaded = LoadedRows(store, (run.key for runs in by_backfill.values() for run in runs))
    for backfill_id, runs in by_backfill.items():
        state.backfills[backfill_id].failed_runs = {run.key: (run, loaded.tasks[run.key]) for run in runs}
        for run in runs:
            load_version(state, store, run.dag_id, run.dag_version)


def _read_waited(state: ManagerState, store: Store) -> None:
    """Reads which tasks of batches that are retried in halves had waited to their limit: they don't wait that long again."""
    missing: dict[RunKey, ActiveBackfill] = {}
    for live in state.backfills.values():
        if any(task.wait_limit is not None for task in live.spec.work):
            split = set(filter(None, map(batch_of_half, live.pending)))
            live.waited = {run_id: waited for run_id, waited in live.waited.items() if run_id in split}
            missing |= {(live.row.dag_id, run_id): live for run_id in split - live.waited.keys()}
    loaded = LoadedRows(store, missing)
    for key, live in missing.items():
        waited = (ti.task_id for ti in loaded.tasks[key].values() if has_waited_to_its_limit(ti, live.spec))
        live.waited[key[1]] = frozenset(waited)


def _read_pasts(state: ManagerState, store: Store) -> None:
    """Reads how the tasks ended of finished runs that active runs depend on."""
    waiting: list[tuple[ActiveRun, RunKey]] = []
    for run in state.runs.values():
        if run.past is not None or run.row.previous_run_id is None or not run.depends_on_past:
            continue
        previous = (run.row.dag_id, run.row.previous_run_id)
        if previous not in state.runs:
            waiting.append((run, previous))
    finished = LoadedRows(store, (previous for _, previous in waiting))
    for run, previous in waiting:
        row = finished.rows.get(previous)
        run.past = {} if row is None else dict(finished.tasks[previous])
        if row is not None and row.is_undone:  # whoever depends on it waits for its date to be run again
            run.past = {task_id: ti.evolve(state=REVERTED) for task_id, ti in run.past.items()}


def refill(live: ActiveBackfill, store: Store) -> None:
    """Reads the next pending items, the timeline around them, and what they wait for."""
    where = matching(backfill_id=live.row.backfill_id, state=s.PENDING)
    window = max(WINDOW, 4 * live.most_in_batch)
    live.pending = deque(store.read(BackfillItem, where, order_by=["ordinal"], limit=window))
    live.has_repeated = any(item.run_id for item in live.pending)
    if live.pending:
        live.timeline = _timeline_of(live, store)
    if live.parents:
        live.waits = _waits(live, store)


def _timeline_of(live: ActiveBackfill, store: Store) -> TimelineWindow:
    keys = [item.partition_key for item in live.pending if item.partition_key is not None]
    dates = [item.logical_date for item in live.pending if item.logical_date is not None]
    preview = live.row.backfill_id if live.row.is_preview else None
    runs = timeline_around(live.row.dag_id, dates or live.timeline.edges, keys, store, preview)
    return TimelineWindow.of(runs, preview)


def timeline_around(
    dag_id: str, dates: Sequence[datetime], keys: Sequence[str], store: Store, preview: str | None = None
) -> list[DagRun]:
    """Runs of the timeline on these dates or keys, between them, the nearest one on either side, earlier batches that reach into
    them, and what is within batches that reach beyond; also overridden ones, whose ids are taken. `preview`: those of this
    backfill alone, see `TimelineWindow`."""
    of_dag = matching(dag_id=dag_id)
    base, current = [*of_dag, OF_TIMELINE], [*of_dag, *CURRENT_RUNS]
    if preview is not None:
        base = [*of_dag, *matching(backfill_id=preview, run_type=s.PREVIEW_RUN)]
        current = [*base, Condition("state", "!=", s.OVERRIDDEN)]
    runs: list[DagRun] = []
    if keys:
        runs += store.read(DagRun, [*base, Condition("partition_key", "in", keys)])
    if dates:
        first, last = min(dates), max(dates)
        within = store.read(
            DagRun, [*base, Condition("logical_date", ">=", first), Condition("logical_date", "<=", last)]
        )
        ends = [run.interval_end for run in within if run.items > 1 and run.state != s.OVERRIDDEN and run.interval_end]
        after = Condition("logical_date", ">", last)
        if (end := max(ends, default=last)) > last:
            within += store.read(DagRun, [*base, after, Condition("logical_date", "<", end)])
            after = Condition("logical_date", ">=", end)
        runs += within
        for beyond, order in ((Condition("logical_date", "<", first), "-logical_date"), (after, "logical_date")):
            runs += store.read(DagRun, [*current, beyond], order_by=[order], limit=1)
        reaching = [Condition("logical_date", "<", first), Condition("interval_end", ">", first)]
        runs += store.read(DagRun, [*current, Condition("items", ">", 1), *reaching])
    return with_partial_marked(runs, store)


def _lacks_recent(state: ManagerState, dag: DagRow) -> bool:
    if not dag.is_active or dag.is_paused or dag.schedule is None or not state.has_definition(dag):
        return False
    recent = state.recent.get(dag.dag_id)
    if recent is not None and recent.is_over and dag.schedule != ONCE:
        return True  # it has another schedule now
    if recent is None or recent.floor is None:
        return recent is None
    return recent.nth_advancing(lookback_depth(state.current_spec(dag.dag_id))) is None


def _needs_first(state: ManagerState, live: ActiveBackfill) -> bool:
    """Whether the backfill's first item matters: also to a run that was moved to another version of the DAG."""
    if not live.row.ignore_first_depends_on_past:
        return False
    runs = (state.runs.get(key) for key in live.running)
    return live.spec.depends_on_past or any(run is not None and run.spec.depends_on_past for run in runs)


def _waits(live: ActiveBackfill, store: Store) -> UpstreamItems:
    """Unfinished items of upstream backfills that overlap the window."""
    starts = [item.interval_start for item in live.pending if item.interval_start is not None]
    ends = [item.interval_end for item in live.pending if item.interval_end is not None]
    if not starts or not ends:
        return UpstreamItems([])
    where = [
        Condition("backfill_id", "in", live.parents), Condition("state", "in", (*s.ITEM_UNFINISHED, *sorted(FAILED))),
        Condition("interval_end", ">=", min(starts)), Condition("interval_start", "<=", max(ends)),  # of no length, too
    ]  # fmt: skip
    parents = store.read(Backfill, matching(backfill_id=live.parents))
    return UpstreamItems(store.read(BackfillItem, where), frozenset(row.dag_id for row in parents))
