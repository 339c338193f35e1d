"""Which rows of a table a preview has written, as few conditions."""

from __future__ import annotations

from dataclasses import replace

from backfill_manager.execution.output.staged_write import Replaced
from backfill_manager.execution.promote_revert.preview_parts import Parts, WriteOfTry, each, instants, joined, label
from backfill_manager.store.sql_guard import identifier


def day(first: int, last: int | None = None, column: str = "a`t") -> Replaced:
    lower, upper = (f"2013-01-{n:02}T00:00:00.000000Z" for n in (first, last or first + 1))
    name = identifier(column)
    where = f"{name} >= TIMESTAMP '{lower}' AND {name} < TIMESTAMP '{upper}'"
    return Replaced(where, column, "timestamp", f"interval [{lower}, {upper})", lower, upper)


def key(value: str) -> Replaced:
    return Replaced(f"`region` = '{value}'", "region", "string", f"partition {value!r}", key=value)


def write(part: Replaced | None) -> WriteOfTry:
    return WriteOfTry(1, "d", "r", "t", 1, replaced=part)


def test_parts_that_meet_are_one() -> None:
    assert joined([day(3), day(1), day(2), day(2), day(7)]) == [day(1, 4), day(7)]
    assert joined([day(1, 5), day(2)]) == [day(1, 5)]
    assert joined([key("eu"), key("us"), key("eu")]) == [key("eu"), key("us")]
    assert joined([day(1), day(2, column="other")]) == [day(1), day(2, column="other")]


def test_a_write_of_any_row_is_of_the_whole_table() -> None:
    assert Parts.of([write(day(1)), write(None)]).condition == "true"
    two = Parts.of([write(day(1)), write(key("eu"))])
    assert two.condition == f"(`region` = 'eu') OR ({day(1).where})" and not two.is_whole


def test_files_of_the_parts_are_known_by_their_statistics() -> None:
    parts = Parts.of([write(day(2))])

    def file(first: int, last: int) -> dict[str, str]:
        low, high = (f'"2013-01-{n:02}T05:00:00.000Z"' for n in (first, last))
        ends = f'"minValues": {{"a`t": {low}}}, "maxValues": {{"a`t": {high}}}'
        return {"stats": f'{{"numRecords": 2, {ends}, "nullCount": {{"a`t": 0}}}}'}

    assert [parts.may_hold(one) for one in (file(1, 1), file(2, 2), file(1, 3), file(3, 4), {})] == [
        False, True, True, False, True,
    ]  # fmt: skip
    assert Parts().may_hold(file(1, 1))


def test_many_intervals_are_counted_in_groups() -> None:
    writes = [write(day(n)) for n in range(1, 11)]
    assert each(writes, 400) == [day(n) for n in range(1, 11)]
    assert [label(one) for one in each(writes, 3)] == [
        "2013-01-01 – 2013-01-05", "2013-01-05 – 2013-01-09", "2013-01-09 – 2013-01-11",
    ]  # fmt: skip
    assert instants(each(writes, 3)) == {
        "interval_start": "2013-01-01T00:00:00Z",
        "interval_end": "2013-01-11T00:00:00Z",
    }
    nothing = {"interval_start": None, "interval_end": None}
    assert nothing == instants([]) == instants([key("a")]) == instants([replace(day(1), kind="date")])
    assert [label(one) for one in each([write(key(name)) for name in ("c", "a", "b")], 2)] == ["a … b", "c"]
