"""Which tasks read and write a table, who wrote which interval last, and what is made of what."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from typing import Any

import pytest
from support.executor_fixture import a_launch
from support.sample_state import FilledState

from backfill_manager.cli.commands.lineage import tree_lines
from backfill_manager.errors import NotFound
from backfill_manager.model.records import TableAccess
from backfill_manager.queries import tables as queries
from backfill_manager.queries.documents import document
from backfill_manager.queries.tables import find_table, lineage, list_table_intervals, list_tables, rows_before

NOON = datetime(2024, 5, 10, 12, tzinfo=timezone.utc)


class Accesses:
    """Puts accesses into a state, one a call, each a minute after the one before."""

    def __init__(self, state: FilledState) -> None:
        self._state, self._n = state, 0

    def __call__(
        self, task: str, access: str, table: str, *, day: int = 1, run: str | None = None, succeeded: bool = True,
        dag_version: int = 1, **more: Any,
    ) -> None:  # fmt: skip
        self._n += 1
        dag_id, _, task_id = task.partition(".")
        start = datetime(2024, 5, day, tzinfo=timezone.utc)
        place = {"table_path": table} if "/" in table else {"table_name": table, "table_path": f"file:/w/{table}"}
        self._state.put(
            TableAccess(
                more.pop("dag_id", dag_id), run or f"run of {day}", more.pop("task_id", task_id), 1, self._n, access,
                self._n, NOON + timedelta(minutes=self._n),
                succeeded, dag_version, interval_start=start,
                **{"interval_end": start + timedelta(days=1), **place, **more},
            )
        )  # fmt: skip


@pytest.fixture
def accessed(state: FilledState) -> Accesses:
    return Accesses(state)


@pytest.mark.parametrize("places", [("file:/old/silver", "file:/new/silver"), ("file:/new/silver", "file:/old/silver")])
def test_a_table_that_has_moved_lies_where_it_was_written_last(
    state: FilledState, accessed: Accesses, places: tuple[str, str]
) -> None:
    for day, path in enumerate(places, 1):
        accessed("flights.clean", "write", "silver", version=day, day=day, table_path=path)
    (table,) = list_tables(state.store)
    assert table["path"] == places[1]
    assert [one["run_id"] for one in list_table_intervals(state.store, "silver")] == ["run of 2"]


def test_a_table_has_its_writers_and_readers(state: FilledState, accessed: Accesses) -> None:
    accessed("flights.load", "write", "bronze.flights", version=3)
    accessed("flights.clean", "read", "bronze.flights", version=3)
    accessed("flights.clean", "write", "file:/w/silver", version=1)
    accessed("report.sum", "read", "file:/w/silver", version=1)
    accessed("report.sum", "read", "file:/w/silver", version=2, day=2)
    assert list_tables(state.store) == [
        {
            "table": "bronze.flights", "path": "file:/w/bronze.flights", "written_by": ["flights.load"],
            "read_by": ["flights.clean"], "version": 3, "written_at": "2024-05-10T12:01:00Z",
        },
        {
            "table": "file:/w/silver", "path": "file:/w/silver", "written_by": ["flights.clean"], "read_by": ["report.sum"],
            "version": 1, "written_at": "2024-05-10T12:03:00Z",
        },
    ]  # fmt: skip


def test_one_table_by_name_and_by_path_is_one(state: FilledState, accessed: Accesses) -> None:
    accessed("a.write", "write", "bronze.flights", version=1)
    accessed("b.read", "read", "file:/w/bronze.flights", version=1)
    (table,) = list_tables(state.store)
    assert (table["table"], table["written_by"], table["read_by"]) == ("bronze.flights", ["a.write"], ["b.read"])


def test_only_the_newest_version_of_a_dag_counts_and_no_write_of_a_failed_try(
    state: FilledState, accessed: Accesses
) -> None:
    accessed("a.write", "write", "old", version=1)
    accessed("a.write", "write", "new", version=1, dag_version=2)
    accessed("a.write", "read", "source", dag_version=2, succeeded=False)
    accessed("a.write", "write", "half", dag_version=2, succeeded=False)
    assert [one["table"] for one in list_tables(state.store)] == ["new", "source"]


@pytest.mark.parametrize(
    "name", ["bronze.flights", "spark_catalog.BRONZE.flights", "/w/bronze.flights", "file:///w/bronze.flights/"]
)
def test_a_table_is_found_as_people_write_it(state: FilledState, accessed: Accesses, name: str) -> None:
    accessed("a.write", "write", "bronze.flights", version=1)
    assert find_table(state.store, name)["table"] == "bronze.flights"


def test_a_name_without_schema_is_of_the_default_one(state: FilledState, accessed: Accesses) -> None:
    accessed("a.write", "write", "default.flights", version=1)
    assert find_table(state.store, "flights")["table"] == "default.flights"


def test_a_table_of_an_object_store_is_found_by_its_address(state: FilledState, accessed: Accesses) -> None:
    accessed("a.write", "write", "s3a://lake/flights", version=1)
    assert find_table(state.store, "s3a://lake/flights/")["table"] == "s3a://lake/flights"


def test_an_unknown_table_names_the_nearest(state: FilledState, accessed: Accesses) -> None:
    accessed("a.write", "write", "bronze.flights", version=1)
    with pytest.raises(NotFound, match=r"'bronze.flight'.*bronze.flights"):
        find_table(state.store, "bronze.flight")


def test_the_last_write_of_each_interval(state: FilledState, accessed: Accesses) -> None:
    accessed("a.write", "write", "t", day=1, version=1, rows_written=10, bytes_written=100)
    accessed("a.write", "write", "t", day=2, version=2, rows_written=20, bytes_written=200)
    accessed("a.write", "write", "t", day=1, run="again", version=3, rows_written=11, bytes_written=110)
    accessed("a.write", "write", "t", day=1, run="again")  # a later try has found its rows there
    accessed("a.write", "write", "t", day=2, run="broken", succeeded=False)
    found = [(one["interval_start"], one["run_id"], one["version"]) for one in list_table_intervals(state.store, "t")]
    assert found == [("2024-05-01T00:00:00Z", "again", 3), ("2024-05-02T00:00:00Z", "run of 2", 2)]


def test_a_table_that_tasks_have_only_read_has_no_writes(state: FilledState, accessed: Accesses) -> None:
    accessed("a.read", "read", "t")
    assert list(list_table_intervals(state.store, "t")[:10]) == []


def test_of_many_intervals_only_those_that_are_looked_at_become_documents(
    state: FilledState, accessed: Accesses, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = []
    monkeypatch.setattr(
        queries, "document", lambda names, row, **values: made.append(values) or document(names, row, **values)
    )
    for day in range(1, 20):
        accessed("a.write", "write", "t", day=day, version=day)
    found = list_table_intervals(state.store, "t")
    assert (len(found), [one["version"] for one in found[3:5]], found[-1]["version"]) == (19, [16, 15], 1)
    assert len(made) == 3
    assert [one["version"] for one in found] == list(range(19, 0, -1))


def test_rows_of_the_intervals_before(state: FilledState, accessed: Accesses) -> None:
    def written(day: int, rows: int | None, task: str = "a.write", table: str = "t", **more: Any) -> None:
        accessed(task, "write", table, day=day, rows_written=rows, **more)

    for day in range(1, 9):
        written(day, 100 * day)
    for rows in (510, 1, None):  # two writes of one try, and a later one that has found its rows there
        written(5, rows, run="again")
    written(4, 9, run="broken", succeeded=False)
    written(4, 9, table="u")
    written(4, 9, task="a.other")
    written(3, 9999, run="three days at once", interval_end=datetime(2024, 5, 6, tzinfo=timezone.utc))
    start = datetime(2024, 5, 7, tzinfo=timezone.utc)
    launch = a_launch("write", dag_id="a", interval=(start, start + timedelta(days=1)))

    assert rows_before(state.store, launch, "t", 3, "intervals") == [600, 511, 400]
    assert rows_before(state.store, launch, "t", 2, "days") == [600, 511]
    assert len(rows_before(state.store, launch, "t", 1000, "days")) == 6
    of_partition = a_launch("write", dag_id="a", interval=None, partition="p")
    assert rows_before(state.store, of_partition, "t", 3, "intervals") == []


@pytest.mark.parametrize(("hours", "counts"), [(23, True), (25, True), (31, True), (12, False), (48, False)])
def test_rows_of_intervals_of_another_length_do_not_count_but_months_and_days_of_changed_clocks_do(
    state: FilledState, accessed: Accesses, hours: int, counts: bool
) -> None:
    """Also February is compared with January."""
    start = datetime(2024, 5, 1, tzinfo=timezone.utc)
    accessed("a.write", "write", "t", day=1, rows_written=7, interval_end=start + timedelta(hours=hours))
    later = start + timedelta(days=2)
    launch = a_launch("write", dag_id="a", interval=(later, later + timedelta(days=1)))
    assert rows_before(state.store, launch, "t", 1, "intervals") == ([7] if counts else [])


def test_of_a_long_history_only_the_end_is_read_unless_there_is_a_gap(
    state: FilledState, accessed: Accesses, monkeypatch: pytest.MonkeyPatch
) -> None:
    for day in range(1, 21):
        accessed("a.write", "write", "t", day=day, rows_written=day)
    read_arrow, read = state.store.read_arrow, list[int]()

    def counting(*what: Any) -> Any:
        found = read_arrow(*what)
        read.append(found.num_rows)
        return found

    monkeypatch.setattr(state.store, "read_arrow", counting)

    def before(day: int) -> list[int]:
        start = datetime(2024, 5, day, tzinfo=timezone.utc)
        return rows_before(
            state.store, a_launch("write", dag_id="a", interval=(start, start + timedelta(days=1))), "t", 2, "intervals"
        )

    assert (before(21), read) == ([20, 19], [8])
    assert (before(31), read[1:]) == ([20, 19], [0, 20]), "nothing within four times as long"
    assert (before(2), read[3:]) == ([1], [1, 1])


def test_lineage_of_a_dag_and_of_a_table(state: FilledState, accessed: Accesses) -> None:
    state.dag("flights")
    accessed("load.fetch", "write", "bronze")
    accessed("flights.clean", "read", "bronze")
    accessed("flights.clean", "read", "airports")
    accessed("flights.clean", "write", "silver")
    accessed("flights.sum", "read", "silver")
    accessed("flights.sum", "write", "gold")
    accessed("report.mail", "read", "gold")
    accessed("other.work", "read", "unrelated")
    found = lineage(state.store, dag_id="flights")
    assert {(edge["direction"], edge["task"], edge["table"]) for edge in found["edges"]} == {
        ("own", "flights.clean", "bronze"), ("own", "flights.clean", "airports"), ("own", "flights.clean", "silver"),
        ("own", "flights.sum", "silver"), ("own", "flights.sum", "gold"),
        ("upstream", "load.fetch", "bronze"), ("downstream", "report.mail", "gold"),
    }  # fmt: skip
    of_table = lineage(state.store, table="silver")
    assert list(tree_lines(of_table["edges"], "silver", "upstream")) == [
        "silver", "  flights.clean", "    airports", "    bronze", "      load.fetch",
    ]  # fmt: skip
    assert list(tree_lines(of_table["edges"], "silver", "downstream")) == [
        "silver", "  flights.sum", "    gold", "      report.mail",
    ]  # fmt: skip


def test_names_with_dots_are_distinguished(state: FilledState, accessed: Accesses) -> None:
    accessed("etl.load", "write", "t")
    accessed("etl.load", "read", "far", dag_id="etl.load", task_id="x")
    found = lineage(state.store, table="t")
    assert [(edge["dag_id"], edge["task_id"]) for edge in found["edges"]] == [("etl", "load")]
    far = lineage(state.store, table="far")
    assert [(edge["dag_id"], edge["task_id"], edge["task"]) for edge in far["edges"]] == [
        ("etl.load", "x", "etl.load.x")
    ]


def test_lineage_that_goes_in_a_circle_ends(state: FilledState, accessed: Accesses) -> None:
    accessed("a.one", "read", "left")
    accessed("a.one", "write", "right")
    accessed("a.two", "read", "right")
    accessed("a.two", "write", "left")
    found = lineage(state.store, table="left")
    assert list(tree_lines(found["edges"], "left", "downstream")) == [
        "left", "  a.one", "    right", "      a.two", "        left (see above)",
    ]  # fmt: skip
