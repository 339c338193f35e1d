"""Findings of gaps by data, against a model that keeps rows in a list."""

from __future__ import annotations

import random
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pytest

from backfill_manager.planning.data.data_gaps import (
    NONE,
    Access,
    Axis,
    Input,
    Judged,
    Output,
    Runs,
    judge,
    last_change,
    rows_in,
)
from backfill_manager.schemas.findings import FINDINGS
from backfill_manager.store.data_tables.places import FIRST, PAST, Changes, Files
from backfill_manager.store.data_tables.table_log import TableLog

DAY = 100  # places of an interval


def days(n: int) -> Axis:
    starts = np.arange(n, dtype=np.int64) * DAY
    return Axis(starts, starts + DAY)


def files(*given: tuple[int, int, int]) -> Files:
    """Of (first, past, rows)."""
    return Files(*(np.array(column, np.int64) for column in zip(*given, strict=True))) if given else Files()


def changes(*given: tuple[int, int, int] | tuple[int, int, int, bool] | tuple[int, None, None]) -> Changes:
    """Of (version, first, past, is_ours); without a place where that is not known."""
    rows = [(v, FIRST if a is None else a, PAST if b is None else b, *more, *(() if more else (False,)), a is not None)
            for v, a, b, *more in given]  # fmt: skip
    kinds = (np.int64, np.int64, np.int64, np.bool_, np.bool_)
    columns = zip(*rows, strict=True) if rows else [[]] * 5
    known = (np.array(list(column), kind) for column, kind in zip(columns, kinds, strict=True))
    return Changes(*known, undoes_from=np.zeros(len(given), np.int64))


def access(n: int, version: Any = NONE, rows: Any = NONE, is_replaced: Any = False) -> Access:
    return Access(*(np.broadcast_to(np.array(values), (n,)) for values in (version, is_replaced, rows)))


def judged(
    n: int, log: TableLog, *, done: Any = True, live: Any = False, inputs: Any = (), written: Any = False, **more: Any
) -> Judged:
    flags = np.full(n, False)
    known = {name: more.pop(name) for name in ("version", "rows", "is_replaced") if name in more}
    output = Output("silver", log, days(n), access(n, **known), flags | written, inputs, **more)
    return judge(Runs(flags | done, flags | live), output)


def found(result: Judged) -> dict[int, list[str]]:
    by_interval: dict[int, list[str]] = {}
    for gap in result.gaps():
        by_interval.setdefault(gap.interval, []).append(gap.finding)
    return by_interval


def table(*of_files: tuple[int, int, int], version: int = 9, **more: Any) -> TableLog:
    return TableLog(version=version, kind="timestamp", files=files(*of_files), **more)


def test_done_but_empty_and_rows_without_a_run() -> None:
    log = table((0, 100, 5), (310, 320, 2))
    result = judged(4, log, done=[True, True, False, False])
    assert found(result) == {1: ["empty"], 3: ["no_run"]}
    assert result.is_missing.tolist() == [False, True, True, False]


def test_a_run_that_wrote_no_row_is_named_and_not_missing() -> None:
    result = judged(2, table(), done=True, rows=[0, 3])
    assert [gap.because for gap in result.gaps()] == [
        "a run has succeeded, and it wrote no row", "a run has succeeded, and no row lies there",
    ]  # fmt: skip
    assert result.is_missing.tolist() == [False, True]


def test_what_runs_now_is_left_out() -> None:
    result = judged(2, table((100, 110, 1)), done=False, live=[True, True])
    assert found(result) == {}
    assert not result.is_missing.any()


def test_an_interval_in_which_no_value_of_the_column_can_lie_is_left_out() -> None:
    """As the first of two repeated hours of a clock without a zone."""
    axis = Axis(np.array([0, 100, 100]), np.array([100, 100, 200]))
    output = Output("silver", table((0, 10, 1), (100, 110, 1)), axis, access(3), np.full(3, False))
    result = judge(Runs(np.full(3, True), np.full(3, False)), output)
    assert found(result) == {}
    assert not result.is_missing.any()


def test_rows_that_another_run_has_written_are_not_without_one() -> None:
    assert found(judged(1, table((0, 10, 1)), done=False, written=True)) == {}


def test_a_file_across_an_end_and_one_without_statistics_leave_it_open() -> None:
    across = judged(3, table((50, 150, 8), (200, 210, 1)), done=[True, False, True])
    assert found(across) == {0: ["unknown"], 1: ["unknown"]}
    assert across.is_missing.tolist() == [False, True, False], "where the data do not say, the runs do"
    unknown = judged(2, table((FIRST, PAST, -1), (0, 10, 4)))
    assert found(unknown) == {1: ["unknown"]}, "of the first these four rows are known"
    assert found(judged(2, table((FIRST, PAST, -1)), counted=np.array([0, 7]))) == {0: ["empty"]}
    no_reader = table(why_unknown="no reader")
    assert found(judged(2, no_reader, counted=np.array([0, 7]))) == {0: ["empty"]}, "Spark could read it"
    assert found(judged(1, table((FIRST, PAST, 0)))) == {0: ["empty"]}, "a file without rows lies nowhere"
    assert found(judged(1, table(why_unknown="no reader"))) == {0: ["unknown"]}


def test_rewritten_by_somebody_else() -> None:
    log = table(
        (0, 10, 1), (100, 110, 1), (200, 210, 1), (300, 310, 1),
        changes=changes((3, 0, 10), (5, 100, 110), (6, 200, 210, True)),
    )  # fmt: skip
    result = judged(4, log, version=4)
    assert found(result) == {1: ["rewritten"]}
    assert [gap.because for gap in result.gaps()] == ["silver has changed in its version 5 (then: 4)"]


def test_a_table_that_was_replaced_is_rewritten_and_versions_are_not_compared() -> None:
    log = table((0, 10, 1), (100, 110, 1), version=1, changes_from=0)
    assert found(judged(2, log, version=[40, 1], is_replaced=[True, False])) == {0: ["rewritten"]}


def test_a_table_in_whose_place_an_older_copy_was_put_is_rewritten_from_the_version_that_it_lacks() -> None:
    log = table((0, 10, 1), (100, 110, 1), version=4, changes_from=5)
    result = judged(2, log, version=[4, 7])
    assert found(result) == {1: ["rewritten"]}
    assert [gap.because for gap in result.gaps()] == [
        "silver was replaced by an older copy: its version is 4 (then: 7)"
    ]


def test_history_that_is_lost_is_unknown_unless_what_is_left_tells() -> None:
    log = table((0, 10, 1), (100, 110, 1), (200, 210, 1), changes=changes((8, 100, 110)), changes_from=7)
    assert found(judged(3, log, version=[5, 3, 6])) == {0: ["unknown"], 1: ["rewritten"]}
    assert found(judged(3, table(*((n, n + 1, 1) for n in (0, 100, 200)), changes_from=10), version=9)) == {}


def test_changes_without_statistics_may_have_touched_every_interval_written_before() -> None:
    log = table((0, 10, 1), (100, 110, 1), changes=changes((5, None, None)))
    assert found(judged(2, log, version=[4, 5])) == {0: ["unknown"]}


def test_a_table_whose_log_can_not_be_read_has_not_changed_since_its_present_version() -> None:
    log = table(why_unknown="no reader")
    assert found(judged(2, log, counted=np.array([7, 7]), version=[8, 9])) == {0: ["unknown"]}


def test_outdated_by_an_input() -> None:
    bronze = TableLog(version=9, kind="timestamp", changes=changes((5, 100, 110, True), (7, 250, 350)))
    one = Input("bronze", bronze, days(4), access(4, version=[5, 4, 6, NONE]))
    log = table(*((n, n + 1, 1) for n in (0, 100, 200, 300)))
    assert found(judged(4, log, inputs=[one])) == {1: ["outdated"], 2: ["outdated"]}
    gone = Input("bronze", TableLog(problem="it is gone"), days(4), access(4, version=[5, NONE, 6, NONE]))
    assert found(judged(4, log, inputs=[gone])) == {0: ["unknown"], 2: ["unknown"]}


def test_fewer_rows_than_usual_are_reported_and_nothing_else_follows() -> None:
    log = table(*((n * DAY, n * DAY + 1, 4 if n == 6 else 10) for n in range(12)))
    result = judged(12, log)
    assert found(result) == {6: ["fewer_rows"]}
    assert next(result.gaps()).usual_rows == 10
    assert not result.is_missing.any()
    assert found(judged(4, table((0, 1, 1), (100, 101, 50), (200, 201, 50), (300, 301, 50)))) == {}, "too few to say"


@pytest.mark.parametrize(
    ("rows", "reported"),
    [
        pytest.param([10] * 6 + [5] + [10] * 6, [], id="half of it is no fewer"),
        pytest.param([100] * 6 + [49] + [100] * 6, [6], id="a little less than half of it is"),
        pytest.param([10] * 6 + [1] + [10] * 6, [6], id="a single row is"),
        pytest.param([10, 10, 10, 4, 10, 10], [3], id="five others are enough"),
        pytest.param([10, 10, 4, 10, 10], [], id="four others are too few"),
        pytest.param([4, 10, *[4] * 6, 4, *[10] * 7, 4], [8, 16], id="seven on either side count"),
        pytest.param([10, 0, 10, 0, 10, 0, 4, 0, 10, 0, 10, 0], [6], id="an empty one does not count"),
    ],
)
def test_when_rows_are_fewer_than_usual(rows: list[int], reported: list[int]) -> None:
    log = table(*((n * DAY, n * DAY + 1, count) for n, count in enumerate(rows) if count))
    assert np.flatnonzero(judged(len(rows), log).flags["fewer_rows"]).tolist() == reported


def test_intervals_that_are_not_done_or_not_wholly_counted_do_not_tell_what_is_usual() -> None:
    of_files = [(n * DAY, n * DAY + 1, 1 if n > 5 else 4 if n == 3 else 10) for n in range(12)]
    not_done = judged(12, table(*of_files), done=[n < 6 for n in range(12)], written=True)
    assert found(not_done) == {3: ["fewer_rows"]}
    assert found(judged(12, table(*of_files, (6 * DAY, 12 * DAY, 600)))) == {3: ["fewer_rows"]}


def test_a_number_of_rows_that_is_not_known_is_left_out() -> None:
    (gap,) = judged(1, table((0, 1, 3), (50, 150, 8)), done=False).gaps()
    assert (gap.finding, gap.rows, gap.usual_rows) == ("no_run", None, None)


HOUR_US = 3600 * 1_000_000


def fewer(axis: Axis, rows: list[int]) -> list[int]:
    """The numbers of intervals that are reported, of a table with a file for each interval."""
    log = table(*((start, end, n) for start, end, n in zip(axis.starts, axis.ends, rows, strict=True)))
    n, no = len(rows), np.zeros(len(rows), np.bool_)
    output = Output("silver", log, axis, access(n), no)
    return np.flatnonzero(judge(Runs(~no, no), output).flags["fewer_rows"]).tolist()


def at(*hours: int) -> Axis:
    """Intervals between these hours of a clock that is never changed."""
    ends = np.array(hours, np.int64) * HOUR_US
    return Axis(ends[:-1], ends[1:])


def test_days_are_compared_with_the_same_weekday() -> None:
    axis = at(*range(0, 24 * 43, 24))
    rows = [10 if day % 7 in (5, 6) else 100 for day in range(42)]
    assert fewer(axis, rows) == []
    rows[19], rows[21] = 4, 20  # a Saturday and a Monday
    assert fewer(axis, rows) == [19, 21]
    assert fewer(Axis(axis.starts[:28], axis.ends[:28]), rows[:28]) == [19, 21]
    assert fewer(Axis(axis.starts[:21], axis.ends[:21]), rows[:21]) == [5, 6, 12, 13, 19, 20], "too few weeks to say"


def test_days_on_which_the_clocks_change_keep_their_weekday() -> None:
    change = 24 * 14 + 23  # the 15th day has 23 hours
    axis = at(*range(0, 24 * 15, 24), *range(change, change + 24 * 28, 24))
    assert fewer(axis, [10 if day % 7 in (5, 6) else 100 for day in range(len(axis.starts))]) == []


def test_hours_are_compared_with_the_same_hour_of_the_week_and_other_intervals_with_those_around() -> None:
    night = [1 if hour % 24 < 6 else 100 for hour in range(24 * 28)]
    assert fewer(at(*range(24 * 28 + 1)), night) == []
    assert fewer(at(*range(0, 5 * 42 + 1, 5)), [100] * 20 + [10] + [100] * 21) == [20]


@pytest.mark.parametrize(
    ("hours", "rows"), [((9, 13), (40, 200)), ((6, 9), (30, 210)), ((0, 7, 14, 21), (70, 70, 70, 30))]
)
def test_several_intervals_a_day_of_different_length_are_each_compared_with_their_own_hour(
    hours: tuple[int, ...], rows: tuple[int, ...]
) -> None:
    """`0 9,13 * * *`: every short interval, and no long one, has less than half of what the ones around it have."""
    axis = at(*(24 * day + hour for day in range(42) for hour in hours), 24 * 42 + hours[0])
    usual = list(rows) * 42
    assert fewer(axis, usual) == []
    lost = 20 * len(hours)
    usual[lost] //= 3
    assert fewer(axis, usual) == [lost]


def test_no_interval_at_all() -> None:
    assert found(judged(0, table((0, 10, 1), changes=changes((3, 0, 10))))) == {}


@pytest.mark.parametrize("seed", range(60))
def test_counts_by_bounds_agree_with_rows_in_a_list(seed: int) -> None:
    """Files are cut at random out of a list of rows; intervals may have gaps between them."""
    rng = random.Random(seed)
    n = rng.randint(1, 12)
    cuts = sorted(rng.sample(range(400), 2 * n))
    axis = Axis(np.array(cuts[::2], np.int64), np.array(cuts[1::2], np.int64))
    made = [[rng.randint(base, min(base + rng.choice((3, 20, 200)), 420)) for _ in range(rng.randint(1, 5))]
            for base in (rng.randrange(-20, 420) for _ in range(rng.randint(0, 30)))]  # fmt: skip
    by_bounds = files(*((min(rows), max(rows) + 1, len(rows)) for rows in made))
    result = rows_in(axis, by_bounds)
    for i, (start, end) in enumerate(zip(axis.starts, axis.ends, strict=True)):
        true = sum(start <= row < end for rows in made for row in rows)
        touching = [rows for rows in made if min(rows) < end and max(rows) >= start]
        is_across = any(min(rows) < start or max(rows) >= end for rows in touching)
        assert result.is_exact[i] == (not is_across)
        assert result.n[i] == true if not is_across else result.n[i] <= true
    of_versions = changes(*((version, min(rows), max(rows) + 1) for version, rows in enumerate(made)))
    undoes_from = np.array([rng.choice((0, rng.randint(0, version))) for version in range(len(made))], np.int64)
    read = np.array([rng.randint(NONE, len(made)) for _ in range(n)], np.int64)
    touched = last_change(axis, replace(of_versions, undoes_from=undoes_from), read)
    for i, (start, end) in enumerate(zip(axis.starts, axis.ends, strict=True)):
        touching = [v for v, rows in enumerate(made) if min(rows) < end and max(rows) >= start]
        assert touched[i] == max((v for v in touching if undoes_from[v] <= read[i]), default=NONE)


@dataclass
class Model:
    """Two tables as lists of rows by day, and what was done to them."""

    n: int
    version: int = 0
    rows: dict[int, list[int]] = field(default_factory=dict)
    done: set[int] = field(default_factory=set)
    ours: dict[int, int] = field(default_factory=dict)
    wrote: dict[int, int] = field(default_factory=dict)
    theirs: dict[int, int] = field(default_factory=dict)
    input_version: int = 0
    input_changed: dict[int, int] = field(default_factory=dict)
    read: dict[int, int] = field(default_factory=dict)
    log: list[tuple[int, int, int, bool]] = field(default_factory=list)
    input_log: list[tuple[int, int, int, bool]] = field(default_factory=list)

    def run(self, day: int, rows: list[int]) -> None:
        self.version += 1
        self._change(day, rows, is_ours=True)
        self.done.add(day)
        self.ours[day], self.wrote[day], self.read[day] = self.version, len(rows), self.input_version

    def somebody(self, day: int, rows: list[int]) -> None:
        if not rows and not self.rows.get(day):
            return  # there is nothing to take away
        self.version += 1
        self._change(day, rows, is_ours=False)
        self.theirs[day] = self.version

    def change_input(self, day: int) -> None:
        self.input_version += 1
        self.input_changed[day] = self.input_version
        self.input_log.append((self.input_version, day * DAY, day * DAY + 5, True))

    def _change(self, day: int, rows: list[int], *, is_ours: bool) -> None:
        for held in (self.rows.get(day), rows):
            if held:
                self.log.append((self.version, min(held), max(held) + 1, is_ours))
        self.rows[day] = rows

    def expected(self, day: int) -> set[str]:
        has_rows, done = bool(self.rows.get(day)), day in self.done
        findings = {
            "empty": done and not has_rows, "no_run": not done and has_rows,
            "rewritten": done and self.theirs.get(day, 0) > self.ours[day],
            "outdated": done and self.input_changed.get(day, 0) > self.read[day],
        }  # fmt: skip
        return {name for name, holds in findings.items() if holds}


@pytest.mark.parametrize("seed", range(60))
def test_findings_agree_with_a_model_of_what_was_done(seed: int) -> None:
    rng = random.Random(seed)
    model = Model(rng.randint(1, 8))
    for _ in range(rng.randint(0, 40)):
        day = rng.randrange(model.n)
        rows = [day * DAY + rng.randrange(DAY) for _ in range(rng.choice((0, 1, 6)))]
        match rng.choice(("run", "somebody", "input")):
            case "run":
                model.run(day, rows)
            case "somebody":
                model.somebody(day, rows)
            case _:
                model.change_input(day)
    n = model.n

    def each(known: dict[int, int]) -> list[int]:
        return [known.get(day, NONE) for day in range(n)]

    log = table(*((min(rows), max(rows) + 1, len(rows)) for rows in model.rows.values() if rows), version=model.version,
                changes=changes(*model.log))  # fmt: skip
    bronze = TableLog(version=model.input_version, kind="timestamp", changes=changes(*model.input_log))
    one = Input("bronze", bronze, days(n), access(n, version=each(model.read)))
    result = judged(n, log, done=[day in model.done for day in range(n)], version=each(model.ours),
                    rows=each(model.wrote), inputs=[one])  # fmt: skip
    for day in range(n):
        flagged = {finding for finding in FINDINGS if result.flags[finding][day]}
        assert flagged - {"fewer_rows"} == model.expected(day), day
        missing = not model.rows.get(day) and not (day in model.done and model.wrote[day] == 0)
        assert result.is_missing[day] == missing
