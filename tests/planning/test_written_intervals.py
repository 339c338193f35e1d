"""What of a table has been written, against a model that keeps every hour."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from backfill_manager.model.records import Manager, TableAccess
from backfill_manager.model.transitions import Changes
from backfill_manager.planning.data.written_intervals import REVERT, WrittenIntervals, read_written
from backfill_manager.store.memory import MemoryStore
from backfill_manager.value_rules import table_key, table_path

FIRST = datetime(2024, 1, 1, tzinfo=timezone.utc)
parts = st.tuples(st.integers(0, 40), st.integers(1, 12)).map(lambda part: (part[0], part[0] + part[1]))


def at(hour: int) -> datetime:
    return FIRST + timedelta(hours=hour)


@given(st.lists(parts), parts)
def test_an_interval_is_covered_when_each_of_its_hours_is(
    written: list[tuple[int, int]], asked: tuple[int, int]
) -> None:
    intervals, hours = WrittenIntervals(), set[int]()
    for start, end in written:
        intervals.add(at(start), at(end), None)
        hours |= set(range(start, end))
    assert intervals.covers(at(asked[0]), at(asked[1]), None) == hours.issuperset(range(*asked))


writes = st.tuples(
    st.sampled_from((("t", "file:/w/t"), ("Default.T", None), (None, "/w/t"), ("u", "file:/w/u"))),
    st.one_of(st.none(), parts, st.just((3, 3))),
    st.sampled_from((None, "eu", "us")),
    st.sampled_from((("write", True), ("write", True), ("write", False), ("read", True))),  # only a success has written
)


@settings(deadline=None)  # the first example pays for loading Arrow
@given(st.lists(writes, max_size=20))
def test_what_is_read_is_what_was_written_one_by_one(
    accesses: list[tuple[tuple[str | None, str | None], tuple[int, int] | None, str | None, tuple[str, bool]]],
) -> None:
    store, expected = MemoryStore(), {name: WrittenIntervals() for name in ("t", "/w/t", "u", "other")}
    store.init()
    leader = store.lead(Manager(1, "m", "host", 1, "leading", FIRST, FIRST, 15, "0"))
    changes = Changes()
    for n, ((name, path), hours, key, (access, succeeded)) in enumerate(accesses):
        start, end = (None, None) if hours is None else (at(hours[0]), at(hours[1]))
        changes.put(TableAccess("d", f"r{n}", "a", 1, 1, access, n, FIRST, succeeded, 1, table_name=name, table_path=path,
                                interval_start=start, interval_end=end, partition_key=key))  # fmt: skip
        meant = {"t": "t", "Default.T": "t", "u": "u"}.get(name or ""), None if path is None else table_path(path)
        for asked in expected.keys() & set(meant) if (access, succeeded) == ("write", True) else ():
            expected[asked].add(start, end, key)
    leader.commit(changes)
    found = read_written(store, expected.keys())
    assert {name: vars(one) for name, one in found.items()} == {name: vars(one) for name, one in expected.items()}


def test_a_revert_takes_back_what_its_run_has_written_and_nothing_of_the_run_with_this_id_of_another_dag() -> None:
    store = MemoryStore()
    store.init()
    leader, changes = store.lead(Manager(1, "m", "host", 1, "leading", FIRST, FIRST, 15, "0")), Changes()
    for number, (dag_id, access, hour) in enumerate((("d", "write", 0), ("e", "write", 1), ("d", REVERT, 0))):
        changes.put(TableAccess(dag_id, "scheduled__2024", "a", 1, number, access, 1, FIRST, True, 1, table_name="t",
                                interval_start=at(hour), interval_end=at(hour + 1)))  # fmt: skip
    leader.commit(changes)
    written = read_written(store, ["t"])["t"]
    assert not written.may_meet(at(0), at(1), None) and written.covers(at(1), at(2), None)


def test_partitions_are_covered_by_their_keys_and_what_has_neither_waits_for_nothing() -> None:
    intervals = WrittenIntervals()
    intervals.add(None, None, "eu")
    assert intervals.covers(None, None, "eu") and not intervals.covers(None, None, "us")
    assert intervals.covers(None, None, None)
    assert not intervals.covers(at(0), at(1), None)
    intervals.add(at(1), at(1), None)  # `@once` has no length
    assert not intervals.covers(at(1), at(1), None)


def test_a_reader_may_have_met_what_was_written_unless_its_hours_or_its_partition_say_that_it_has_not() -> None:
    written = WrittenIntervals()
    assert written.may_meet(at(0), at(1), None) and written.may_meet(None, None, "eu"), (
        "it is not known what was written"
    )
    written.add(at(2), at(4), None)
    for hours, may_meet in {(0, 2): False, (0, 3): True, (3, 9): True, (0, 9): True, (4, 6): False}.items():
        assert written.may_meet(at(hours[0]), at(hours[1]), None) == may_meet, hours
    assert written.may_meet(None, None, None) and written.may_meet(None, None, "us"), (
        "it is not known what has been read"
    )
    written.add(None, None, "eu")
    assert written.may_meet(None, None, "eu") and not written.may_meet(None, None, "us")
    assert written.may_meet(at(3), at(4), None) and not written.may_meet(at(4), at(5), None)


@pytest.mark.parametrize(
    ("names", "path"),
    [
        (("/a/b", "/a/b/", "//a/b", "file:/a/b", "file:///a/b/"), "/a/b"),
        (("s3a://c/d/e", "s3a://c/d/e/"), "s3a://c/d/e"),
        (("/", "file:/"), "/"),
    ],
)
def test_a_path_has_one_spelling(names: tuple[str, ...], path: str) -> None:
    assert {table_path(name) for name in names} == {table_key(name) for name in names} == {path}


def test_a_path_may_be_written_as_in_sql() -> None:
    assert table_key("delta.`/a/b/`") == table_key("DELTA.`file:/a/b`") == "/a/b" != table_key("delta.`b`")


def test_names_of_tables_do_not_differ_by_case() -> None:
    assert table_key("spark_catalog.Gold.Orders") == table_key("gold.orders") != table_key("s3://Gold/orders")
