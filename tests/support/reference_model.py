"""The expected results by docs/semantics.md, as simply as possible: dictionaries by DAG and date, one operation at a time.

Nothing here is taken from the manager. The model knows no ticks, no limits and no crashes: they must not change what comes
out. It performs one operation after the other and lets everything finish in between; how a task ends is a pure function of
seed, DAG, task, date and of how often the world has been mended (`fate`), so the model knows it as the script does.

Exact: which dates stand and what stood there before, ids and numbers, previous pointers, states of tasks, runs, items and
backfills, which interval the scheduler makes, who is refused. Not predicted, as it depends on races: how often a
task was launched (a crash launches again), in which order the runs of different dates ran, and the wording of reasons.
"""

from __future__ import annotations

import itertools
import re
import zlib
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import datetime

BAD = ("failed", "upstream_failed", "cancelled")
ENDED = ("success", "failed", "cancelled")
Place = datetime | str  # a logical date, or a partition key
NEVER = 9  # failures of a task that fails always


def fate(seed: int, dag_id: str, task_id: str, place: Place, world: int) -> int:
    """How many tries fail before one succeeds; -1: it skips itself."""
    die = zlib.crc32(f"{seed}/{dag_id}/{task_id}/{place}/{world}".encode()) % 100
    return NEVER if die < 12 else 1 if die < 22 else -1 if die < 25 else 0


def fate_of_run(seed: int, dag_id: str, task_id: str, places: Iterable[Place], world: int) -> int:
    """One poisoned date poisons the run."""
    return max(fate(seed, dag_id, task_id, place, world) for place in places)


@dataclass
class PlainDag:
    """`tasks`: who waits for whom, in an order in which each comes after what it waits for."""

    dag_id: str
    tasks: dict[str, tuple[str, ...]]
    grid: list[datetime]  # the firings of its schedule, over more than the whole history
    retries: dict[str, int] = field(default_factory=dict)
    past: frozenset[str] = frozenset()  # tasks that depend on their past
    start: datetime | None = None
    catchup: bool = False
    lookback: int = 0
    batchable: bool = False
    is_paused: bool = False

    def end_of(self, date: datetime) -> datetime:
        return self.grid[bisect_right(self.grid, date)]

    def first_from(self, date: datetime) -> datetime:
        return self.grid[bisect_left(self.grid, date)]

    def latest_complete(self, now: datetime) -> datetime:
        """The start of the last interval that has ended."""
        return self.grid[bisect_right(self.grid, now) - 2]


@dataclass
class PlainRun:
    dag: PlainDag
    run_id: str
    places: tuple[Place, ...]  # dates that it stands for, oldest first; or one key
    end: datetime | None
    backfill: str | None
    tasks: dict[str, str | None]  # states; None: to be run
    left_out: set[str]
    run_type: str
    created: datetime
    number: int  # of creation, over runs and backfills
    retries: int | None = None  # of every task, when the backfill says so
    state: str = "queued"
    overridden_by: str | None = None
    has_launched: bool = False  # ever
    has_begun: bool = False  # in this life
    never_began: bool = False  # its past held it before anything of it had started

    @property
    def place(self) -> Place:
        return self.places[0]

    @property
    def was_in_time(self) -> bool:
        """Made when its interval had ended."""
        return self.run_type == "scheduled" or self.end is None or self.created >= self.end


@dataclass
class PlainItem:
    ordinal: int
    place: Place
    state: str = "pending"
    run_id: str | None = None
    batch: int | None = None


@dataclass
class PlainBackfill:
    dag: PlainDag
    backfill_id: str
    items: list[PlainItem]
    number: int  # as of runs
    reprocess: str = "none"
    max_active_runs: int = 1
    batch: int = 1
    tasks: str = ""
    mark_success: bool = False
    stop_on_failure: int | None = None
    retries: int | None = None
    is_paused: bool = False
    state: str = "queued"
    is_cancelled: bool = False
    seen: int = 0  # failed items when it was last resumed
    ignore_first_depends_on_past: bool = True

    def count(self, state: str) -> int:
        return sum(item.state == state for item in self.items)

    @property
    def is_live(self) -> bool:
        return self.state in ("queued", "running", "paused")


class PlainModel:
    def __init__(self, seed: int, dags: Iterable[PlainDag], now: Callable[[], datetime]) -> None:
        self.seed, self.now = seed, now
        self.numbers = itertools.count()
        self.carried: set[tuple[str, Place]] = set()  # where a run was overridden that the schedule went on from
        self.reached: set[tuple[str, datetime]] = set()  # likewise, of one date alone
        self.dags = {dag.dag_id: dag for dag in dags}
        self.worlds = dict.fromkeys(self.dags, 0)
        self.standing: dict[str, dict[Place, PlainRun]] = {dag_id: {} for dag_id in self.dags}
        self.made: dict[tuple[str, Place], int] = {}
        self.runs: dict[tuple[str, str], PlainRun] = {}
        self.external: dict[tuple[str, str], str] = {}  # by (DAG, run id): the state
        self.backfills: dict[str, PlainBackfill] = {}

    # -- the timeline -------------------------------------------------------------------------------------------------
    def timeline(self, dag_id: str) -> list[PlainRun]:
        dated = [place for place in self.standing[dag_id] if isinstance(place, datetime)]
        return [self.standing[dag_id][date] for date in sorted(dated)]

    def before(self, run: PlainRun) -> PlainRun | None:
        place = run.place
        if not isinstance(place, datetime):
            return None
        earlier = [
            one for one in self.timeline(run.dag.dag_id) if isinstance(one.place, datetime) and one.place < place
        ]
        return earlier[-1] if earlier else None

    def stands_for(self, dag_id: str, place: Place) -> PlainRun | None:
        """The run on this date; else the batch that covers it, the one that starts last if there are several."""
        own = self.standing[dag_id].get(place)
        covering = [run for run in self.timeline(dag_id) if place in run.places]
        return own or (covering[-1] if covering else None)

    def make(
        self, dag: PlainDag, run_type: str, places: tuple[Place, ...], *, backfill: PlainBackfill | None = None
    ) -> PlainRun:
        """A run comes to be; what stood on its dates is overridden."""
        first, standing = places[0], self.standing[dag.dag_id]
        n = self.made[dag.dag_id, first] = self.made.get((dag.dag_id, first), 0) + 1
        name = f"{first:%Y-%m-%dT%H:%M:%SZ}" if isinstance(first, datetime) else first
        run_id = f"{run_type}__{name}" + (f"__{n}" if n > 1 else "")
        end = dag.end_of(places[-1]) if isinstance(places[-1], datetime) else None
        chosen = backfill.tasks if backfill else ""
        left_out = {task for task in dag.tasks if not re.search(chosen, task)}
        tasks: dict[str, str | None] = {task: "skipped" if task in left_out else None for task in dag.tasks}
        owner = backfill.backfill_id if backfill else None
        run = PlainRun(
            dag, run_id, places, end, owner, tasks, left_out, run_type, self.now(), next(self.numbers),
            backfill.retries if backfill else None,
        )  # fmt: skip
        rests: list[PlainRun] = []
        for place in places:
            old = standing.pop(place, None)
            if old is not None and (rest := self._rest_of(old, run)):
                old.places = rest
                rests.append(old)
            elif old is not None:
                if self._carries(old):
                    self.carried.add((dag.dag_id, old.place))
                    if len(old.places) == 1 and isinstance(old.place, datetime):
                        self.reached.add((dag.dag_id, old.place))
                old.state, old.overridden_by = "overridden", run_id
        standing |= {one.place: one for one in (run, *rests)}
        self.runs[dag.dag_id, run_id] = run
        return run

    def _rest_of(self, batch: PlainRun, run: PlainRun) -> tuple[Place, ...]:
        """The dates for which a batch still stands when a run takes its first one: from the next that has no run of its own. Of
        one that a batch of an earlier date takes, or its own half, there are none."""
        if (
            len(batch.places) < 2
            or batch.place != run.place
            or (batch.backfill is not None and batch.backfill == run.backfill)
        ):
            return ()
        later = [one for one in self.timeline(run.dag.dag_id) if one.place > batch.place]  # type: ignore[operator]
        taken = {place for one in (run, *later) for place in one.places}
        return tuple(itertools.dropwhile(taken.__contains__, batch.places))

    # -- how a run goes -----------------------------------------------------------------------------------------------
    def play(self, run: PlainRun) -> None:
        """Every task that is to run does so, in order; then the run ends as its leaves say."""
        blocked = False
        for task, upstream in run.dag.tasks.items():
            if run.tasks[task] is not None:
                continue
            waited_for = [run.tasks[up] for up in upstream if up not in run.left_out]
            if any(state in BAD for state in waited_for):
                run.tasks[task] = "upstream_failed"
            elif "skipped" in waited_for:
                run.tasks[task] = "skipped"
            elif self._is_held_by_its_past(run, task):
                run.tasks[task], blocked = "upstream_failed", True
            else:
                run.tasks[task] = self._perform(run, task)
                run.has_launched = run.has_begun = True
        self._end(run)
        run.never_began = blocked and not run.has_launched
        if blocked:
            run.state = "failed"

    def _is_held_by_its_past(self, run: PlainRun, task: str) -> bool:
        before = self.before(run)
        if self._need_not_wait(run):
            return False
        return task in run.dag.past and before is not None and before.tasks[task] not in ("success", "skipped")

    def _need_not_wait(self, run: PlainRun) -> bool:
        """The first item of a backfill that says so."""
        backfill = self.backfills.get(run.backfill or "")
        if backfill is None or not backfill.ignore_first_depends_on_past:
            return False
        return run.place == next(item.place for item in backfill.items if item.state != "skipped")

    def _perform(self, run: PlainRun, task: str) -> str:
        dag = run.dag
        failures = fate_of_run(self.seed, dag.dag_id, task, run.places, self.worlds[dag.dag_id])
        retries = dag.retries.get(task, 0) if run.retries is None else run.retries
        return "skipped" if failures < 0 else "success" if failures <= retries else "failed"

    @staticmethod
    def _end(run: PlainRun) -> None:
        chosen = [task for task in run.dag.tasks if task not in run.left_out]
        waited_for = {up for task in chosen for up in run.dag.tasks[task]}
        leaves = [task for task in chosen if task not in waited_for] or chosen
        if any(run.tasks[task] == "cancelled" for task in chosen):
            run.state = "cancelled"
        else:
            run.state = "failed" if any(run.tasks[task] in BAD for task in leaves) else "success"

    # -- the schedule -------------------------------------------------------------------------------------------------
    def fire_schedules(self, now: datetime) -> None:
        for dag in self.dags.values():
            while not dag.is_paused and (start := self._due(dag, now)) is not None:
                at = dag.grid.index(start)
                again = [
                    places
                    for date in dag.grid[max(0, at - dag.lookback) : at]
                    if (places := self._again(dag, date, at))
                ]
                made = [self.make(dag, "scheduled", places) for places in again]
                made.append(self.make(dag, "scheduled", (start,)))
                for run in made:
                    self.play(run)

    def _again(self, dag: PlainDag, date: datetime, at: int) -> tuple[Place, ...]:
        """The dates that are run again together for this one of a lookback: none for a day of a batch that is itself."""
        there = self.stands_for(dag.dag_id, date)
        if there is None or there.place == date:
            return there.places if there else ()
        return () if there.place in dag.grid[max(0, at - dag.lookback) : at] else (date,)

    def _carries(self, run: PlainRun) -> bool:
        """The schedule goes on from it: a whole scheduled or backfill run made in time, or what did such a date over."""
        by_itself = run.run_type in ("scheduled", "backfill") and not run.left_out and run.was_in_time
        return by_itself or (run.dag.dag_id, run.place) in self.carried

    def _is_passed_over(self, dag: PlainDag, date: datetime) -> bool:
        there = self.stands_for(dag.dag_id, date)
        return there is not None and (self._carries(there) or (not there.left_out and there.was_in_time))

    def _due(self, dag: PlainDag, now: datetime) -> datetime | None:
        """The start of the interval that the scheduler makes now."""
        done = [run.end for run in self.timeline(dag.dag_id) if run.end is not None and self._carries(run)]
        standing = self.standing[dag.dag_id]  # a batch had a date, and its half has not yet
        done += [dag.end_of(place) for dag_id, place in self.reached if dag_id == dag.dag_id and place not in standing]
        begin = max([*done, *([dag.start] if dag.start else [])], default=None)
        start = dag.latest_complete(now)
        if begin is not None and (dag.catchup or start < begin):
            start = dag.first_from(begin)
        while self._is_passed_over(dag, start):
            start = dag.end_of(start)
        return start if dag.end_of(start) <= now else None

    # -- backfills ----------------------------------------------------------------------------------------------------
    def go_on(self, backfill: PlainBackfill, *, most_runs: int | None = None) -> list[PlainRun]:
        """Make and play its runs until it has ended or is paused; with `most_runs`, only make as many, and not play
        them."""
        made: list[PlainRun] = []
        while not self._pauses(backfill) and backfill.count("pending") and len(made) != most_runs:
            group = self._next_group(backfill)
            first = group[0]
            there = self.stands_for(backfill.dag.dag_id, first.place)
            match self._what_of(backfill, first):
                case "skip":
                    first.state = "skipped"
                    continue
                case "join":
                    assert there is not None
                    first.state, first.run_id = there.state if there.state in ENDED else "running", there.run_id
                    continue
                case "rerun":
                    assert there is not None
                    group, run = self._items_of(there, backfill), there
                    self._set_back_what_failed(run, backfill)
                case _:
                    words = [self._what_of(backfill, item) for item in group]
                    group = group[: next((n for n, word in enumerate(words) if word != "make"), len(group))]
                    places = tuple(sorted((item.place for item in group), key=str))
                    run = self.make(backfill.dag, "backfill", places, backfill=backfill)
            backfill.state = "running"
            for item in group:
                item.state, item.run_id = "running", run.run_id
            made.append(run)
            if backfill.mark_success:
                run.tasks = {task: state or "success" for task, state in run.tasks.items()}
                self._end(run)
                self.conclude(run)
            elif most_runs is None:
                self.play(run)
                self.conclude(run)
        self._maybe_end(backfill)
        return made

    def _next_group(self, backfill: PlainBackfill) -> list[PlainItem]:
        pending = [item for item in backfill.items if item.state == "pending"]
        half = pending[0].batch is not None
        group = [pending[0]]
        for item in pending[1:]:
            touch = isinstance(item.place, datetime) and self._touch(backfill.dag, group[-1].place, item.place)
            one_way = len(group) < 2 or (group[0].place < group[1].place) == (group[-1].place < item.place)  # type: ignore[operator]
            follows = item.ordinal == group[-1].ordinal + 1 and item.batch == group[0].batch and touch and one_way
            if not follows or not (half or len(group) < backfill.batch):
                break
            group.append(item)
        return group

    @staticmethod
    def _touch(dag: PlainDag, one: Place, other: Place) -> bool:
        assert isinstance(one, datetime) and isinstance(other, datetime)
        return dag.end_of(min(one, other)) == max(one, other)

    def _what_of(self, backfill: PlainBackfill, item: PlainItem) -> str:
        """`make` a run of it, `rerun` what failed of the one that is there, `join` one that this backfill runs again
        already, or `skip` it."""
        there = self.stands_for(backfill.dag.dag_id, item.place)
        if there is None:
            return "make"
        counts = not there.left_out or any(not re.search(backfill.tasks, task) for task in backfill.dag.tasks)
        may_rerun = backfill.reprocess == "failed_tasks" and counts and there.state in ("failed", "cancelled")
        mine = there.backfill == backfill.backfill_id
        if mine and there.run_id == item.run_id:
            return "rerun" if may_rerun and item.batch is None else "make"
        if mine and there.number < backfill.number:
            return "join"
        redone = {"none": (), "completed": ("failed", "cancelled", "success")}
        if not mine and counts and there.state not in redone.get(backfill.reprocess, ("failed", "cancelled")):
            return "skip"
        return "rerun" if may_rerun else "make"

    def _items_of(self, run: PlainRun, backfill: PlainBackfill) -> list[PlainItem]:
        """The next pending items for whose dates this run stands."""
        pending = [item for item in backfill.items if item.state == "pending"]
        dag_id = backfill.dag.dag_id
        return list(itertools.takewhile(lambda item: self.stands_for(dag_id, item.place) is run, pending))

    def _set_back_what_failed(self, run: PlainRun, backfill: PlainBackfill) -> None:
        """With all that depends on it; the run is this backfill's now."""
        again = {task for task, state in run.tasks.items() if state in BAD}
        for task, upstream in run.dag.tasks.items():
            if again & set(upstream) and task not in run.left_out:
                again.add(task)
        run.tasks |= dict.fromkeys(again)
        run.backfill, run.retries, run.state, run.has_begun = backfill.backfill_id, backfill.retries, "queued", False

    def conclude(self, run: PlainRun) -> None:
        """The items that it had taken end with it; those of a batch that failed are tried again in halves."""
        owner = self.backfills.get(run.backfill or "")
        if owner is None:
            return
        taken = [item for item in owner.items if item.run_id == run.run_id and item.state == "running"]
        may_be_parted = len(taken) > 1 and run.number > owner.number
        if run.state == "failed" and may_be_parted and run.has_begun and not owner.is_cancelled:
            middle = (len(taken) + 1) // 2
            for half in (taken[:middle], taken[middle:]):
                for item in half:
                    item.state, item.batch = "pending", half[0].ordinal
            return
        for item in taken:
            item.state = run.state
        if run.never_began:  # so would the others be that come before the next run that is there
            there = [one for one in self.timeline(run.dag.dag_id) if one.backfill != run.backfill or one.state in ENDED]
            kept = min((one.place for one in there if one.place > run.place), default=None)  # type: ignore[operator]
            for item in owner.items:
                if item.state == "pending" and (kept is None or item.place < kept):  # type: ignore[operator]
                    item.state = "failed"

    def _pauses(self, backfill: PlainBackfill) -> bool:
        limit = backfill.stop_on_failure
        failed = backfill.count("failed") - backfill.seen
        if limit is not None and failed >= limit and backfill.count("pending"):
            backfill.is_paused, backfill.state = True, "paused"
        return backfill.is_paused

    def _maybe_end(self, backfill: PlainBackfill) -> None:
        if not backfill.count("pending") and not backfill.count("running"):
            wrong = backfill.count("failed") + backfill.count("cancelled")
            backfill.state = "cancelled" if backfill.is_cancelled else "failed" if wrong else "success"
            backfill.is_paused = False

    def resume(self, backfill: PlainBackfill) -> None:
        if backfill.is_paused:
            backfill.is_paused, backfill.state, backfill.seen = False, "running", backfill.count("failed")
        self.go_on(backfill)

    def cancel(self, backfill: PlainBackfill) -> None:
        backfill.is_cancelled = True
        for item in backfill.items:
            item.state = "cancelled" if item.state == "pending" else item.state
        self._maybe_end(backfill)

    def retry(self, backfill: PlainBackfill) -> bool:
        if backfill.is_live or not backfill.count("failed"):
            return False
        backfill.state, backfill.seen, backfill.is_cancelled = "running", 0, False
        for item in backfill.items:
            item.state = "pending" if item.state == "failed" else item.state
        self.go_on(backfill)
        return True

    def stop(self, run: PlainRun) -> None:
        """Cancelled while nothing of it had finished."""
        run.tasks = {task: state or "cancelled" for task, state in run.tasks.items()}
        run.has_launched = run.has_begun = True
        self._end(run)
        self.conclude(run)

    # -- repairs ------------------------------------------------------------------------------------------------------
    def again(self, changed: list[PlainRun]) -> None:
        """Finished runs of one DAG whose tasks were cleared or marked go on, older first; so do their backfills."""
        owners = {run.backfill: self.backfills[run.backfill] for run in changed if run.backfill is not None}
        for owner in owners.values():
            if not owner.is_live:
                owner.state, owner.seen = "running", 0
        for run in changed:
            for item in owners[run.backfill].items if run.backfill is not None else ():
                is_of_run = item.run_id == run.run_id and item.place in run.places
                if is_of_run and item.state in ("success", "failed", "cancelled", "pending"):
                    item.state = "running"  # one that was pending, for a half of its batch, is taken back
            run.has_begun = False
        for owner in owners.values():
            owner.seen = min(owner.seen, owner.count("failed"))  # what fails again counts again
        for run in changed:
            self.play(run)
        for run in changed:
            self.conclude(run)
        for owner in owners.values():
            self.go_on(owner)

    def clear(
        self, dag_id: str, first: Place | None, last: Place | None, tasks: str, *, downstream: bool, only_failed: bool
    ) -> bool:
        """False: there is nothing to clear."""
        dag = self.dags[dag_id]
        chosen = {task for task in dag.tasks if re.search(tasks, task)}
        for task, upstream in dag.tasks.items():
            if downstream and chosen & set(upstream):
                chosen.add(task)
        runs = [run for run in self.timeline(dag_id) if first is None or first <= run.place <= last]  # type: ignore[operator]
        if first is None:
            runs += [run for place, run in self.standing[dag_id].items() if isinstance(place, str)]
        touched = []
        for run in runs:
            again = [task for task in chosen - run.left_out if run.tasks[task] in BAD or not only_failed]
            run.tasks |= dict.fromkeys(again)
            touched += [run] if again else []
        self.again(touched)
        return bool(touched)

    def mark_run(self, run: PlainRun, state: str) -> None:
        chosen = [task for task in run.dag.tasks if task not in run.left_out]
        for task in chosen:
            if run.tasks[task] in (BAD if state == "success" else ("cancelled",)):
                run.tasks[task] = state
        waited_for = {up for upstream in run.dag.tasks.values() for up in upstream}
        last = [task for task in chosen if task not in waited_for] or chosen
        ends_well = not {"failed", "upstream_failed"} & {run.tasks[task] for task in last}
        if state == "failed" and (ends_well or "failed" not in run.tasks.values()):
            run.tasks |= dict.fromkeys(last, "failed")
        self.again([run])

    def mark_task(self, run: PlainRun, task: str, state: str) -> None:
        run.tasks[task] = state
        after = {task}
        for other, upstream in run.dag.tasks.items():
            if state != "failed" and after & set(upstream):
                after.add(other)
                if run.tasks[other] == "upstream_failed":
                    run.tasks[other] = None
        self.again([run])

    def run_task(self, dag_id: str, run_id: str, task: str, date: datetime) -> None:
        outside = PlainRun(
            self.dags[dag_id],
            run_id,
            (date,),
            None,
            None,
            {task: None},
            set(),
            "external",
            self.now(),
            next(self.numbers),
        )
        self.external[dag_id, run_id] = {"failed": "failed"}.get(self._perform(outside, task), "success")
