"""The manager's memory: active runs and backfills as plain values. What is finished is in the tables only.

`ManagerState.put(row)` is the one way in which a decision changes anything: it changes memory and the tick's `Changes` alike, so
that memory and commit are the same list.
"""

from __future__ import annotations

import json
from collections import Counter, deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final

from backfill_manager.dags.catalog import DagCatalog
from backfill_manager.dags.definition import DagSpec
from backfill_manager.dags.mapping import spec_with_tasks
from backfill_manager.dags.overrides import known_overrides, with_overrides
from backfill_manager.dags.stored_definition import UnreadableSpec, definition_of
from backfill_manager.dags.task_selection import selected_of_backfill
from backfill_manager.dags.versions import refuse_inactive
from backfill_manager.errors import InvalidInput, NotFound
from backfill_manager.logging import get_logger
from backfill_manager.manager.services.notification_settings import Target
from backfill_manager.manager.upstream_items import UpstreamItems
from backfill_manager.model import records
from backfill_manager.model import states as s
from backfill_manager.model.records import (
    AUTO_BATCH,
    Backfill,
    BackfillItem,
    DagRow,
    DagRun,
    Notification,
    Pool,
    Record,
    RunKey,
    TableAccess,
    TaskInstance,
)
from backfill_manager.model.stored_json import parents_of, unreadable_options
from backfill_manager.model.transitions import Changes
from backfill_manager.planning.backfills.unusable_backfill import why_unusable
from backfill_manager.planning.batches.auto_batch_size import PastRun, growth_limit
from backfill_manager.planning.data.wait_conditions import Seen, WaitCheck, open_wait_checks
from backfill_manager.planning.data.written_intervals import WrittenIntervals
from backfill_manager.planning.runs.next_run import Upcoming
from backfill_manager.planning.runs.timeline import TimelineWindow
from backfill_manager.schemas.waits import ExternalWait
from backfill_manager.settings.model import LimitSettings
from backfill_manager.value_rules import table_key, table_keys

log = get_logger("state")

IN_PROGRESS: Final = frozenset({s.SCHEDULED, s.UP_FOR_RETRY, *s.TASK_STARTED})


@dataclass
class ActiveRun:
    """A queued or running run with its task instances."""

    row: DagRun
    spec: DagSpec
    tasks: dict[str, TaskInstance]
    selected: frozenset[str]  # task ids that this run is to run, callbacks too; the others count as done
    past: dict[str, TaskInstance] | None = None  # tasks of the previous run once it is finished; None: not read (yet)
    wait_ends: dict[str, datetime] = field(default_factory=dict)  # of tasks that wait for data and have a limit
    has_waited: frozenset[str] = frozenset()  # tasks that waited to their limit in the batch of which it is a half
    wait_checks: dict[ExternalWait, tuple[WaitCheck, ...]] = field(default_factory=dict)  # what each wait means here
    may_start: bool = True  # within `max_active_runs`, as of this tick
    marked_failed: str | None = None  # the reason, where a person said how it ended
    ended_as: str | None = None  # its state before a mark reopened it
    waits_for_past: bool = False  # a task of it, for runs that go on, or items that are to be run again
    waits_for_data: bool = False  # a task of it, as of this tick

    @property
    def key(self) -> RunKey:
        return (self.row.dag_id, self.row.run_id)

    @property
    def own_tasks(self) -> list[TaskInstance]:
        """The task instances that are not callbacks: they decide how the run ends."""
        every = list(self.tasks.values())
        return [ti for ti in every if not self.spec.is_callback(ti.task_id)] if self.spec.callbacks else every

    @property
    def is_working(self) -> bool:
        """Whether a task of it runs, or is about to."""
        return any(ti.state in IN_PROGRESS for ti in self.own_tasks)

    @property
    def depends_on_past(self) -> bool:
        """Whether one of the tasks that it runs does."""
        return any(task.depends_on_past and task.task_id in self.selected for task in self.spec.tasks)


@dataclass
class ActiveBackfill:
    """A backfill that has not ended, with the next of its pending items (a window, never all of a million)."""

    row: Backfill
    spec: DagSpec
    pending: deque[BackfillItem] = field(default_factory=deque)
    has_repeated: bool = False  # whether some of those that were read last had a run before
    counts: Counter[str] = field(default_factory=Counter)  # items by state, all of them
    running: dict[RunKey, list[BackfillItem]] = field(default_factory=dict)  # the items of each active run
    timeline: TimelineWindow = field(default_factory=TimelineWindow)  # around the window
    waits: UpstreamItems | None = None  # what the items wait for, of upstream backfills; None: not read (any more)
    ended_as: str | None = None  # its state before a mark reopened it, until a run of it ends by work
    first: int | None = None  # ordinal of the first item that is not skipped; None: not needed, or not read (any more)
    past: list[PastRun] | None = None  # what runs of the DAG cost, for sizes of batches; None: not needed, or not read
    first_look: datetime | None = None  # since when its next batch waits for a look at what its tasks wait for
    waited: dict[str, frozenset[str]] = field(default_factory=dict)  # of halves, by id of their batch: `has_waited`
    # As the tables have them: the next runs whose failed tasks are to run again.
    failed_runs: dict[RunKey, tuple[DagRun, dict[str, TaskInstance]]] = field(default_factory=dict)

    @property
    def selected(self) -> frozenset[str]:
        return frozenset(selected_of_backfill(self.row, self.spec))

    @property
    def is_whole(self) -> bool:
        """Whether its runs leave no task out."""
        return self.row.tasks is None or self.selected >= {task.task_id for task in self.spec.work}

    @property
    def reruns_failed_tasks(self) -> bool:
        """Whether the failed tasks of existing runs are run again in place."""
        return self.row.reprocess == "failed_tasks"

    def took_over(self, run: DagRun) -> bool:
        """Whether the run existed before this backfill, which runs its failed tasks again."""
        return run.backfill_id == self.row.backfill_id and run.run_seq < self.row.run_seq

    @property
    def parents(self) -> tuple[str, ...]:
        """Ids of upstream backfills: they write what this one reads."""
        return parents_of(self.row)

    @property
    def depends_on_past(self) -> bool:
        """Whether one of its tasks does."""
        return self.spec.depends_on_past and any(self.spec.task(task_id).depends_on_past for task_id in self.selected)

    @property
    def is_batch_auto(self) -> bool:
        return self.row.batch == AUTO_BATCH and self.spec.batchable

    @property
    def most_in_batch(self) -> int:
        """How many items its next run may take at most."""
        if not self.is_batch_auto:
            return max(1, self.row.batch)
        return growth_limit(self.past or ())

    @property
    def window_is_short(self) -> bool:
        return len(self.pending) < self.counts[s.PENDING]


def _overrides(row: Backfill) -> dict[str, Any]:
    """None where they can't be read: no task of it starts (task_slots.py)."""
    return {} if unreadable_options(row) else json.loads(row.overrides_json)


class _RecordedCatalog(DagCatalog):
    """The catalog of the manager: what is put into it is committed with the tick."""

    def __init__(self, state: ManagerState) -> None:
        super().__init__()
        self._state = state

    def put(self, row: Record) -> None:
        super().put(row)
        self._state.changes.put(row)


class ManagerState:
    """The manager's memory: plain dictionaries that anyone may read; rows are changed by `put` and `put_item` only.
    `catalog.versions` holds the current versions, and those of active runs."""

    def __init__(self) -> None:
        self.catalog: DagCatalog = _RecordedCatalog(self)
        self.pools: dict[str, Pool] = {}
        self.backfills: dict[str, ActiveBackfill] = {}
        self.runs: dict[RunKey, ActiveRun] = {}
        self.recent: dict[str, TimelineWindow] = {}  # of DAGs with a schedule: the newest end of the timeline
        self.changes = Changes()  # since the last commit
        # By request: runs whose tables are being reverted or promoted, outside of the tick. They are not reopened meanwhile.
        self.held: dict[str, frozenset[RunKey]] = {}
        self.batch_target_s = LimitSettings().batch_target  # of backfills that have none of their own
        # Pools, and when a scheduled run was last seen to wait there for too long.
        self.waited_for: dict[str, datetime] = {}
        self.waiting_since: dict[tuple[object, ...], datetime] = {}  # tasks of scheduled runs that wait for a slot now
        self.due: dict[str, tuple[object, Upcoming | None]] = {}  # of `schedule`: the next run, and what it depends on
        # Of tables that tasks of active runs wait for, by their names as given; read when one first waits for it.
        self.written: dict[str, WrittenIntervals] = {}
        self.wait_checks_wanted: dict[WaitCheck, None] = {}  # all that tasks wait for, as of this tick, found or not
        self.wait_checks_seen: dict[WaitCheck, Seen] = {}  # what has been seen of these
        self.targets: tuple[Target, ...] = ()  # of notifications
        self.notifications: dict[tuple[str, str], Notification] = {}  # that are to be sent
        # Of DAGs with `expected_by`: version, start of the interval and deadline that are looked at next.
        self.expected: dict[str, tuple[int, datetime, datetime]] = {}
        self.not_led_since: datetime | None = None  # until this term began; None: its deadlines have been looked at
        self.announced: set[str] = set()  # deadlines that have passed since then, by id of their notification
        self._named: set[tuple[str, int]] = set()  # versions whose definition can't be read, in the log already
        self._specs: dict[tuple[str, int], DagSpec | InvalidInput] = {}

    def put(self, row: Record) -> None:
        """Replaces this row in memory, and has it committed."""
        if isinstance(row, TaskInstance):
            self.runs[row.dag_id, row.run_id].tasks[row.task_id] = row
        elif isinstance(row, DagRun):
            if live := self.runs.get((row.dag_id, row.run_id)):
                if live.row.previous_run_id != row.previous_run_id:
                    live.past = None  # it has another predecessor now
                live.row = row
            for timeline in self.timelines(row.dag_id):
                timeline.remember(row)
        elif isinstance(row, Backfill):
            if owner := self.backfills.get(row.backfill_id):
                owner.row = row
        elif isinstance(row, Pool):
            self.pools[row.name] = row
        elif isinstance(row, Notification):
            if row.state == "waiting":
                self.notifications[row.notification_id, row.target] = row
            else:
                self.notifications.pop((row.notification_id, row.target), None)
        elif isinstance(row, DagRow | records.DagVersion | records.ImportProblem | records.BundleRow):
            self.catalog.put(row)
            return
        self.changes.put(row)

    def note_write(self, access: TableAccess) -> None:
        """Remembers what a successful try has written, for the tasks that wait for it."""
        keys = {table_key(name) for name in (access.table_name, access.table_path) if name is not None}
        for name, written in self.written.items():
            if not keys.isdisjoint(table_keys(name)):
                written.add(access.interval_start, access.interval_end, access.partition_key)

    def is_held(self, key: RunKey) -> bool:
        return any(key in keys for keys in self.held.values())

    @property
    def open_wait_checks(self) -> list[WaitCheck]:
        """What is waited for and has not been found."""
        return open_wait_checks(self.wait_checks_wanted, self.wait_checks_seen)

    def forget_looks(self) -> None:
        """Those that nothing waits for any more."""
        for look in self.wait_checks_seen.keys() - self.wait_checks_wanted.keys():
            del self.wait_checks_seen[look]

    def put_item(self, backfill: ActiveBackfill, was: BackfillItem, now: BackfillItem) -> None:
        """Replaces an item, and updates the counts by state."""
        if now.state == s.SKIPPED and now.ordinal == backfill.first:
            backfill.first = None  # read again
        backfill.counts[was.state] -= 1
        backfill.counts[now.state] += 1
        self.changes.put(now)
        for other in self.backfills.values():
            if other.waits is not None:
                other.waits.remember(now)

    def timelines(self, dag_id: str) -> Iterator[TimelineWindow]:
        """Every part of the DAG's timeline that is in memory."""
        if dag_id in self.recent:
            yield self.recent[dag_id]
        for backfill in self.backfills.values():
            if backfill.row.dag_id == dag_id:
                yield backfill.timeline

    def owner_of(self, run: DagRun) -> ActiveBackfill | None:
        """The backfill that made the run, or runs it again."""
        return self.backfills.get(run.backfill_id or "")

    def take_changes(self) -> Changes:
        taken, self.changes = self.changes, Changes()
        return taken

    def spec(self, dag_id: str, version: int) -> DagSpec:
        """The definition of a version that is in memory. `InvalidInput` for one that can't be read, or that no row holds."""
        key = (dag_id, version)
        row, found = self.catalog.versions.get(key), self._specs.get(key)
        if found is None:
            found = self._specs[key] = self._read_spec(key, row)
        if isinstance(found, InvalidInput):
            if row is None:
                del self._specs[key]  # it may be read later
            raise InvalidInput(str(found))
        return found

    def _read_spec(self, key: tuple[str, int], row: records.DagVersion | None) -> DagSpec | InvalidInput:
        try:
            if row is not None:
                return definition_of(row)
            problem = InvalidInput(f"dag_version {key[0]}/{key[1]} is missing; `bfm state check` names all such rows")
        except InvalidInput as error:
            problem = error
        if key not in self._named:
            log.error("a version of a DAG does not run", dag=key[0], version=key[1], reason=str(problem))
        self._named.add(key)
        return problem

    def spec_of_backfill(self, row: Backfill) -> DagSpec:
        """The definition of the version that it was created with, with its overrides. Where a column of it can't be read no run
        can be right, either."""
        try:
            if problem := why_unusable(row):
                raise problem
            return with_overrides(self.spec(row.dag_id, row.dag_version), _overrides(row))
        except InvalidInput as error:
            return UnreadableSpec.of(row.dag_id, error)

    def spec_of_run(self, row: DagRun, owner: Backfill | None, tasks: Mapping[str, TaskInstance]) -> DagSpec:
        """The definition of the run's version, with the settings of its backfill, and with the tasks that are mapped in it."""
        try:
            return spec_with_tasks(self.overridden(row, owner), tasks)
        except InvalidInput as problem:
            return UnreadableSpec.of(row.dag_id, problem, tasks)

    def overridden(self, row: DagRun, owner: Backfill | None) -> DagSpec:
        spec = self.spec(row.dag_id, row.dag_version)
        if owner is None:
            return spec
        overrides = _overrides(owner)
        if row.dag_version != owner.dag_version:
            overrides = known_overrides(spec, overrides)
        return with_overrides(spec, overrides)

    def evict_versions(self) -> None:
        """Drops versions that nothing active needs, once they are the larger part (`reopen.version_spec` reads them again)."""
        if len(self.catalog.versions) <= 2 * (len(self.catalog.dags) + len(self.runs) + len(self.backfills)):
            return
        needed = {(row.dag_id, row.current_version) for row in self.catalog.dags.values()}
        needed |= {(live.row.dag_id, live.row.dag_version) for live in self.runs.values()}
        needed |= {(live.row.dag_id, live.row.dag_version) for live in self.backfills.values()}
        self.catalog.versions = {key: version for key, version in self.catalog.versions.items() if key in needed}
        self._specs = {key: spec for key, spec in self._specs.items() if key in needed}

    def active_dag(self, dag_id: str) -> DagRow:
        """`NotFound` if there is none, `Refused` if it is inactive."""
        dag = self.catalog.dags.get(dag_id)
        if dag is None:
            raise NotFound("DAG", dag_id, [row.dag_id for row in self.catalog.dags.values() if row.is_active])
        refuse_inactive(dag, self.catalog.problems.get((dag.bundle, dag.file)))
        return dag

    def has_definition(self, dag: DagRow) -> bool:
        """Whether its current one can be read."""
        try:
            self.current_spec(dag.dag_id)
        except InvalidInput:
            return False
        return True

    def current_spec(self, dag_id: str) -> DagSpec:
        return self.spec(dag_id, self.catalog.dags[dag_id].current_version)

    def tasks(self) -> Iterator[tuple[ActiveRun, TaskInstance]]:
        for run in self.runs.values():
            for ti in run.tasks.values():
                yield run, ti

    @property
    def is_idle(self) -> bool:
        """Whether nothing runs and nothing is to be run (a paused backfill waits for a person, and so do the runs that wait for
        its items, and the backfills of these runs)."""
        started = (run for run in self.runs.values() if run.may_start)
        are_behind = all(run.waits_for_past and not run.waits_for_data and not run.is_working for run in started)
        if self.runs and not (self.backfills and are_behind):
            return False
        return all(self._waits_for_a_person(b) for b in self.backfills.values())

    def _waits_for_a_person(self, live: ActiveBackfill) -> bool:
        """It is paused, or what it can go on with waits for one that is: a run that is there, none of which works, or its
        parents."""
        parents = (self.backfills[parent] for parent in live.parents if parent in self.backfills)
        are_behind = bool(self.runs) or any(map(self._waits_for_a_person, parents))
        return live.row.is_paused or (live.row.waits_until is None and are_behind)
