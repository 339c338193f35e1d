"""A new leader goes on from the tables: what had finished stays finished, what was running runs again.

    crash between ...                                     is mended here by
    task instances and their tries                        deriving the missing tries from the task instances
    task instances and their run                          the run keeper, which derives a run from its tasks
    a new run and its item                                adopting the run (run_keeper, `_adopt`)
    a finished run and its item                           ending the item as the run ended
    items and their backfill                              the run keeper
    anything and its response                             the inbox, which answers again

Rows that were made but whose parents never came were swept away when the lease was taken (`Store.lead`).
"""

from __future__ import annotations

from collections import Counter
from datetime import datetime

from backfill_manager.dags.definition import DagSpec
from backfill_manager.manager.reading_ahead import refill
from backfill_manager.manager.working_set import Alive, LiveBackfill, LiveRun
from backfill_manager.model import changes as c
from backfill_manager.model import states as s
from backfill_manager.model.records import (
    Backfill,
    BackfillItem,
    DagRow,
    DagRun,
    DagVersion,
    ImportProblem,
    Pool,
    TaskInstance,
    TaskTry,
)
from backfill_manager.requests.backfills import selected_tasks
from backfill_manager.store.contract import Condition, Store


def wake(store: Store, *, term: int, now: datetime) -> Alive:
    """The working set as the tables tell it, with the changes that mend what a crash left (`Alive.changes`)."""
    alive = Alive()
    alive.dags = {row.dag_id: row for row in store.read(DagRow)}
    alive.pools = {row.name: row for row in store.read(Pool)}
    standing = store.read(ImportProblem, [Condition("is_current", "=", True)])
    alive.problems = {(row.bundle, row.file): row for row in standing}
    runs = store.read(DagRun, [Condition("state", "in", sorted(s.RUN_LIVE))])
    backfills = store.read(Backfill, [Condition("state", "in", (s.QUEUED, s.RUNNING, s.PAUSED))])
    _bring_versions(alive, store, runs, backfills)
    for row in backfills:
        alive.backfills[row.backfill_id] = _backfill(alive, store, row)
    _bring_runs(alive, store, runs)
    for live in alive.backfills.values():
        _match_items(alive, store, live)
    _mend_tries(alive, store, term)
    for _, ti in list(alive.tasks()):
        if ti.state in s.TASK_STARTED:
            gone = c.lost(ti, now)
            alive.put(gone)
            alive.changes.put(c.try_of(gone.evolve(try_number=ti.try_number), term, state="lost"))
    return alive


def _bring_versions(alive: Alive, store: Store, runs: list[DagRun], backfills: list[Backfill]) -> None:
    needed = {(row.dag_id, row.current_version) for row in alive.dags.values()}
    needed |= {(run.dag_id, run.dag_version) for run in runs} | {(b.dag_id, b.dag_version) for b in backfills}
    for version in store.read(DagVersion, [Condition("dag_id", "in", sorted({dag_id for dag_id, _ in needed}))]):
        if (version.dag_id, version.version) in needed:
            alive.versions[version.dag_id, version.version] = version


def _backfill(alive: Alive, store: Store, row: Backfill) -> LiveBackfill:
    live = LiveBackfill(row=row, spec=alive.spec(row.dag_id, row.dag_version))
    by_state = store.count("backfill_item", ["state"], [Condition("backfill_id", "=", row.backfill_id)])
    live.counts = Counter({str(state): n for (state,), n in by_state.items()})
    refill(live, store)
    return live


def _bring_runs(alive: Alive, store: Store, runs: list[DagRun]) -> None:
    if not runs:
        return
    for run in runs:
        spec: DagSpec = alive.spec(run.dag_id, run.dag_version)
        owner = alive.backfills.get(run.backfill_id or "")
        pattern = owner.row.tasks if owner else None
        live = LiveRun(row=run, spec=spec, tasks={}, selected=frozenset(selected_tasks(pattern, spec)))
        alive.runs[live.key] = live
    where = [
        Condition("run_seq", ">=", min(run.run_seq for run in runs)),
        Condition("run_id", "in", sorted({run.run_id for run in runs})),
    ]
    for ti in store.read(TaskInstance, where):
        if live_run := alive.runs.get((ti.dag_id, ti.run_id)):
            live_run.tasks[ti.task_id] = ti


def _match_items(alive: Alive, store: Store, live: LiveBackfill) -> None:
    """Running items find their runs; one whose run has finished ends as the run did."""
    where = [Condition("backfill_id", "=", live.row.backfill_id), Condition("state", "=", s.RUNNING)]
    for item in store.read(BackfillItem, where):
        key = (live.row.dag_id, item.run_id or "")
        if key in alive.runs:
            live.running[key] = item
            continue
        finished = store.read(DagRun, [Condition("dag_id", "=", key[0]), Condition("run_id", "=", key[1])])
        if finished and finished[0].state in (s.SUCCESS, s.FAILED, s.CANCELLED):
            alive.put_item(live, item, c.item_ended(item, finished[0].state, finished[0].reason))


def _mend_tries(alive: Alive, store: Store, term: int) -> None:
    ended = [ti for _, ti in alive.tasks() if ti.launch and ti.state not in (*s.TASK_STARTED, s.NONE, s.SCHEDULED)]
    if not ended:
        return
    where = [Condition("run_seq", ">=", min(ti.run_seq for ti in ended))]
    told = {(t.dag_id, t.run_id, t.task_id, t.launch) for t in store.read(TaskTry, where)}
    for ti in ended:
        if (*ti.key, ti.launch) not in told:
            alive.changes.put(c.try_of(ti, term, state=s.FAILED if ti.state == s.UP_FOR_RETRY else ti.state))
