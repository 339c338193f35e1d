"""The timeline against a plain sorted list: whatever is inserted, in whatever order, everybody knows who comes before.

The model is the list of (date, run id) of the runs that stand. Insertions go the way the manager's go: `make_run` over a
stretch that is held in memory, or that has just been read from the store round the dates in question.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from datetime import datetime, timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from backfill_manager.clock import UTC, parse_instant
from backfill_manager.manager.decisions.create_run import make_run
from backfill_manager.manager.decisions.schedule import lookback_depth
from backfill_manager.manager.prefetch import prefetch, timeline_around
from backfill_manager.manager.state import ActiveBackfill
from backfill_manager.model import states as s
from backfill_manager.model import transitions as c
from backfill_manager.model.records import Backfill, DagRun
from backfill_manager.planning.runs.recent_runs import HORIZONS, recent_timelines
from backfill_manager.planning.runs.timeline import TimelineWindow, number_of, run_id_for, timeline_key
from backfill_manager.store.base import Condition
from backfill_manager.store.memory import MemoryStore
from backfill_manager.testing import InMemoryManager, dag_spec

DATES = [datetime(2024, 1, 1, tzinfo=UTC) + timedelta(days=n) for n in range(14)]
WINDOW = DATES[4:9]  # what a backfill under way holds
DAY = timedelta(days=1)
MOMENTS = [
    DATES[0] - DAY,
    *DATES[3:12:4],
    DATES[-1] + DAY,
    DATES[-1] + 300 * DAY,
    DATES[-1] + 3000 * DAY,
]  # to look back from
FORGET = "forget"  # as a new manager begins: what is held is read again

inserts = st.tuples(
    st.sampled_from([s.SCHEDULED_RUN, s.BACKFILL_RUN, s.MANUAL_RUN, s.EXTERNAL_RUN]),
    st.integers(0, len(DATES) - 1),
    st.sampled_from([1, 1, 1, 2, 3, 5]),
)
ends = st.tuples(st.sampled_from([s.SUCCESS, s.FAILED, s.CANCELLED]), st.integers(0, len(DATES) - 1), st.just(0))
forgets = st.just((FORGET, 0, 0))
histories = st.lists(st.one_of(inserts, inserts, ends, forgets), max_size=40)


class Timeline:
    """A DAG's timeline in a store, the parts of it that a manager holds, and the list that it should be."""

    def __init__(self) -> None:
        self.manager = InMemoryManager(dag_spec("d", "t", lookback=1), scheduled=True)
        self.state, self.store = self.manager.state, self.manager.store
        self.spec = self.state.current_spec("d")
        self.state.backfills["b"] = ActiveBackfill(row=_backfill(), spec=self.spec)
        prefetch(self.state, self.store, DATES[9])
        self.model: list[tuple[datetime, str]] = []
        self.ids: set[str] = set()
        self.made_at: dict[datetime, int] = {}
        self.outside: set[str] = set()
        self.ends: dict[str, datetime] = {}

    def standing(self, date: datetime) -> str | None:
        return dict(self.model).get(date)

    def before(self, date: datetime) -> str | None:
        at = bisect_left(self.model, (date, ""))
        return self.model[at - 1][1] if at else None

    def after(self, date: datetime) -> str | None:
        return next((run_id for at, run_id in self.model if at > date), None)

    # -- what happens -------------------------------------------------------------------------------------------------
    def insert(self, run_type: str, first: int, n: int) -> None:
        """One run over `n` dates, in the place of what stands there; nothing if any of that is live."""
        dates = DATES[first : first + n]
        if run_type == s.EXTERNAL_RUN:
            self._insert_external(dates[0])
            return
        old = [run_id for date in dates if (run_id := self.standing(date))]
        if any(("d", run_id) in self.state.runs for run_id in old):
            return
        stretch = self._stretch_for(run_type, dates)
        held = [run for date in dates if (run := stretch.current_at(timeline_key(date, None)))]
        assert [run.run_id for run in held] == old, "a stretch knows what stands on its dates"
        run_id = stretch.next_run_id(run_type, timeline_key(dates[0], None))
        assert run_id not in self.ids, "an id is given once"
        row = _run(run_id, run_type, dates[0], len(dates), self.manager.leader.next_seq())
        self.made_at[dates[0]] = self.made_at.get(dates[0], 0) + 1
        assert number_of(row) == self.made_at[dates[0]], "numbers rise, whatever the type"
        make_run(self.state, row, self.spec, stretch, held)
        self.state.recent["d"].trim(lookback_depth(self.spec))
        left = self._left_of(self.standing(dates[0]), dates[-1] + DAY)
        self.model = [(date, run) for date, run in self.model if run not in old]
        for date, run in left:
            insort(self.model, (date, run))
            old.remove(run)
        insort(self.model, (dates[0], run_id))
        self.ids.add(run_id)
        self.outside.update(old)
        self.ends[run_id] = dates[-1] + DAY

    def _left_of(self, batch: str | None, start: datetime) -> list[tuple[datetime, str]]:
        """Where a batch stands of which another run takes all until `start`: on the next date without a run of its own."""
        while own := self.standing(start):
            start = self.ends[own]
        return [(start, batch)] if batch is not None and start < self.ends[batch] else []

    def _insert_external(self, date: datetime) -> None:
        run_id = run_id_for(s.EXTERNAL_RUN, timeline_key(date + timedelta(seconds=len(self.ids)), None))
        row = _run(run_id, s.EXTERNAL_RUN, date, 1, self.manager.leader.next_seq())
        make_run(self.state, row, self.spec, TimelineWindow(), selected=["t"])
        self.ids.add(run_id)
        self.outside.add(run_id)

    def _stretch_for(self, run_type: str, dates: list[datetime]) -> TimelineWindow:
        """As the manager has it: the scheduler's own end of the timeline, a backfill's window, or what is read anew."""
        recent = self.state.recent["d"]
        newest = newest_of(recent)
        if run_type == s.SCHEDULED_RUN and (newest is None or dates[0] >= newest.logical_date):  # type: ignore[operator]
            return recent
        if run_type == s.BACKFILL_RUN and set(dates) <= set(WINDOW):
            return self.state.backfills["b"].timeline
        return TimelineWindow.of(timeline_around("d", dates, [], self.store))

    def end(self, state: str, n: int) -> None:
        run = self.state.runs.pop(("d", self.standing(DATES[n]) or ""), None)
        if run is not None:
            self.state.put(c.run_ended(run.row, state, DATES[0]))

    def forget(self) -> None:
        self.state.recent.clear()
        self.state.backfills["b"].timeline = TimelineWindow.of(timeline_around("d", WINDOW, [], self.store))

    def settle(self) -> None:
        """The tick is over: committed, and read ahead for the next."""
        self.manager.commit()
        if self.state.backfills["b"].timeline.has_gap:  # as the manager reads it again for pending items; here are none
            self.state.backfills["b"].timeline = TimelineWindow.of(timeline_around("d", WINDOW, [], self.store))
        prefetch(self.state, self.store, DATES[9])

    # -- what must hold -----------------------------------------------------------------------------------------------
    def check_rows(self) -> None:
        rows = {run.run_id: run for run in self.store.read(DagRun, [Condition("dag_id", "=", "d")])}
        assert set(rows) == self.ids
        previous = [None, *(run_id for _, run_id in self.model)]
        links = [(run_id, rows[run_id].previous_run_id) for _, run_id in self.model]
        assert links == list(zip((run_id for _, run_id in self.model), previous, strict=False))
        for run_id in self.outside:
            run = rows[run_id]
            assert run.run_type == s.EXTERNAL_RUN or (run.state == s.OVERRIDDEN and run.overridden_by in self.ids)
            assert run.run_type != s.EXTERNAL_RUN or run.previous_run_id is None
        for (_, run_id), live in self.state.runs.items():
            assert live.row == rows[run_id], "memory says what the tables say"

    def check_stretch(self, stretch: TimelineWindow, dates: list[datetime]) -> None:
        for date in dates:
            standing = stretch.current_at(timeline_key(date, None))
            previous, following = stretch.previous(date), stretch.successor(date)
            assert (standing.run_id if standing else None) == self.standing(date)
            assert (previous.run_id if previous else None) == self.before(date)
            assert (following.run_id if following else None) == self.after(date)

    def check_newest_end(self, recent: TimelineWindow) -> None:
        newest = newest_of(recent)
        assert (newest.run_id if newest else None) == (self.model[-1][1] if self.model else None)
        advancing = [date for date in recent._dates if recent._advances(recent._runs[date, None])]
        nth = [recent.nth_advancing(n + 1) for n in range(len(advancing) + 1)]
        assert [run and run.logical_date for run in nth] == [*reversed(advancing), None]
        known = [date for date in DATES if recent.floor is None or date > recent.floor]
        self.check_stretch(recent, known)


def newest_of(recent: TimelineWindow) -> DagRun | None:
    return recent._runs[recent._dates[-1], None] if recent._dates else None


def _run(run_id: str, run_type: str, date: datetime, n: int, run_seq: int) -> DagRun:
    return DagRun(
        "d", run_id, run_type, s.QUEUED, 1, run_seq, DATES[-1] + 10 * DAY, logical_date=date, interval_start=date,
        interval_end=date + n * DAY, items=n,
    )  # fmt: skip


def _backfill() -> Backfill:
    return Backfill("b", "d", s.RUNNING, "{}", "completed", 1, 0, "backfill", False, DATES[0], run_seq=1, dag_version=1)


def replay(history: list[tuple[str, int, int]]) -> Timeline:
    timeline = Timeline()
    for kind, at, n in history:
        if kind in s.RUN_TYPES:
            timeline.insert(kind, at, n)
        elif kind == FORGET:
            timeline.forget()
        else:
            timeline.end(kind, at)
        timeline.settle()
        timeline.check_rows()
        timeline.check_stretch(timeline.state.backfills["b"].timeline, WINDOW)
        timeline.check_newest_end(timeline.state.recent["d"])
    return timeline


@settings(deadline=None, max_examples=150)
@given(histories)
def test_every_run_follows_the_one_before_it_in_date_order_whatever_the_order_of_insertion(
    history: list[tuple[str, int, int]],
) -> None:
    replay(history)


@settings(deadline=None, max_examples=60)
@given(histories, st.integers(0, len(DATES) - 1), st.integers(1, 6), st.integers(1, 5), st.sampled_from(MOMENTS))
def test_a_window_read_from_the_store_gives_the_answers_of_the_whole_timeline(
    history: list[tuple[str, int, int]], first: int, n: int, most: int, now: datetime
) -> None:
    timeline = replay(history)
    dates = DATES[first : first + n]
    timeline.check_stretch(TimelineWindow.of(timeline_around("d", [dates[0], dates[-1]], [], timeline.store)), dates)
    recent = recent_timelines({"d": most}, timeline.store, now)["d"]
    timeline.check_newest_end(recent)
    left = max(1, most - 1)
    recent.trim(left)
    timeline.check_newest_end(recent)
    assert recent.nth_advancing(left + 1) is None


def test_a_date_within_an_overridden_batch_is_numbered_on_by_the_scheduler() -> None:
    """The scheduler made the 2nd; a batch from the 1st took it over; the batch was done again for the 1st alone, and then for
    the 2nd. Its first run, which is kept, keeps its id."""
    replay([(s.SCHEDULED_RUN, 0, 1), (s.SUCCESS, 0, 0), (s.SCHEDULED_RUN, 1, 1), (s.SUCCESS, 1, 0),
        (s.BACKFILL_RUN, 0, 5), (s.SUCCESS, 0, 0), (s.MANUAL_RUN, 0, 1), (FORGET, 0, 0), (s.SCHEDULED_RUN, 1, 1)])  # fmt: skip


def test_timelines_of_many_dags_are_read_together() -> None:
    """Some with runs of this hour, some of years ago, one with none: each gets its own newest runs, in a few statements."""
    counted = CountedReads()
    counted.init()
    ids = [f"d{n}" for n in range(200)]
    now = DATES[-1]
    for n, dag_id in enumerate(ids[1:], 1):
        apart = timedelta(minutes=n * n)
        counted.write([_standing(dag_id, now - i * apart) for i in range(5)])
    found = recent_timelines(dict.fromkeys(ids, 3), counted, now)
    assert counted.reads <= 2 * len(HORIZONS) + 1  # from which moment on, and what is there; and one for batches
    assert len(found["d0"]) == 0
    assert found["d0"].floor is None
    for n, dag_id in enumerate(ids[1:], 1):
        assert len(found[dag_id]) == 3
        assert found[dag_id].floor == now - 2 * timedelta(minutes=n * n)


@pytest.mark.parametrize("gone", [timedelta(0), timedelta(hours=66), timedelta(days=400)])
def test_after_days_without_a_manager_no_more_of_the_timelines_is_read(gone: timedelta) -> None:
    """Every quarter of an hour a run, until there was no manager any more: a weekend later the newest are wanted, and not
    the weeks before. A run by hand of a time to come changes nothing in this."""
    counted = CountedReads()
    counted.init()
    last, apart = DATES[-1], timedelta(minutes=15)
    counted.write([_standing(dag_id, last - i * apart) for dag_id in ("d0", "d1") for i in range(3000)])
    counted.write([_standing("d1", last + timedelta(days=2000))])
    found = recent_timelines({"d0": 2, "d1": 3}, counted, last + gone)
    assert [len(found[dag_id]) for dag_id in ("d0", "d1")] == [2, 3]
    assert [found[dag_id].floor for dag_id in ("d0", "d1")] == [last - apart] * 2
    assert counted.rows_read <= 20


class CountedReads(MemoryStore):
    reads = rows_read = 0

    def read(self, *args: Any, **named: Any) -> list[Any]:
        found = super().read(*args, **named)
        self.reads, self.rows_read = self.reads + 1, self.rows_read + len(found)
        return found


def _standing(dag_id: str, date: datetime) -> DagRun:
    return DagRun(
        dag_id, run_id_for(s.SCHEDULED_RUN, timeline_key(date, None)), s.SCHEDULED_RUN, s.SUCCESS, dag_version=1, run_seq=0,
        created_at=date, logical_date=date, interval_start=date, interval_end=date,
    )  # fmt: skip


def test_a_partition_key_that_looks_like_a_date_is_none() -> None:
    date = datetime(2013, 1, 5, tzinfo=UTC)
    for text in ("2013-01-05T00:00:00Z", "2013-01-05T00:00:00.000001Z"):
        of_key = run_id_for("manual", timeline_key(None, text))
        assert of_key != run_id_for("manual", timeline_key(parse_instant(text), None))
        again = DagRun(
            dag_id="d", run_id=f"{of_key}__2", run_type="manual", state="success", dag_version=1, run_seq=2, created_at=date,
            partition_key=text,
        )  # fmt: skip
        assert number_of(again) == 2
    assert run_id_for("manual", timeline_key(None, "2013-01-05T00:00")) == "manual__2013-01-05T00:00", "no date of ours"
