"""Which parts of a table go back to which version when runs are reverted, and what speaks against it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from backfill_manager.execution.output.staged_write import Replaced
from backfill_manager.execution.promote_revert.preview_parts import WriteOfTry
from backfill_manager.execution.promote_revert.revert_plan import Change, Undo, plan_undo
from backfill_manager.execution.promote_revert.table_swap import described, is_of_state, writes_of
from backfill_manager.model.records import RunKey


def part(first: int, past: int | None = None, column: str = "at") -> Replaced:
    """Days of January."""
    lower, upper = (f"2013-01-{n:02}T00:00:00.000000Z" for n in (first, past or first + 1))
    return Replaced(f"{column} in [{first}, {past})", column, "timestamp", "interval", lower, upper)


def write(version: int, run: str, replaced: Replaced | None) -> WriteOfTry:
    return WriteOfTry(version, "d", run, "a", 1, replaced=replaced)


def ours(version: int, *writes: tuple[str, Replaced | None]) -> Change:
    return Change(version, "WRITE", tuple(write(version, run, replaced) for run, replaced in writes))


def theirs(version: int, first: int, last: int, path: str = "", *, is_added: bool = True, **more: Any) -> Change:
    """A file that another writer has added or removed, with rows from one day to another."""
    ends = {
        "minValues": {"at": f"2013-01-{first:02}T00:00:00.000Z"},
        "maxValues": {"at": f"2013-01-{last:02}T12:00:00.000Z"},
    }
    file: dict[str, Any] = {"stats": json.dumps({"numRecords": 1, "nullCount": {"at": 0}, **ends}), "dataChange": True}
    file |= {"path": path or f"{version}", "modificationTime" if is_added else "deletionTimestamp": 1, **more}
    return Change(version, "UPDATE by another writer", files=(file,))


def revert(version: int, *runs: str, first: int = 1, last: int = 1) -> Change:
    return Change(version, "WRITE", (), theirs(version, first, last).files, frozenset(("d", run) for run in runs))


def keys(*runs: str) -> set[RunKey]:
    return {("d", run) for run in runs}


def planned(changes: list[Change], *runs: str) -> Undo:
    undo = plan_undo(changes, keys(*runs))
    assert undo is not None
    return undo


def versions(*changes: Change) -> list[int]:
    """Of the conflicts, where the run wrote the first day before these."""
    return [one.version for one in planned([ours(4, ("a", part(1))), *changes], "a").conflicts]


def test_a_file_that_others_have_added_and_removed_again_is_no_change() -> None:
    added, removed = theirs(5, 1, 1, "f"), theirs(6, 1, 1, "f", is_added=False)
    assert versions(added) == [5] and versions(added, removed) == []
    assert versions(added, theirs(6, 1, 1, "g", is_added=False)) == [5, 6]
    back = theirs(7, 1, 1, "f")
    assert versions(removed, back) == [] and versions(added, removed, back) == [5, 6, 7]
    vector = {"storageType": "u", "pathOrInlineDv": "x", "offset": 1}
    assert versions(added, theirs(6, 1, 1, "f", is_added=False, deletionVector=vector)) == [5, 6]
    before = [theirs(3, 1, 1, "f"), ours(4, ("a", part(1))), removed]
    assert [one.version for one in planned(before, "a").conflicts] == [6], "it was there when the run wrote"


def slices(undo: Undo) -> list[tuple[int, list[tuple[str, str]]]]:
    return [
        (one.version, [((p.lower or "")[8:10], (p.upper or "")[8:10]) for p in one.parts.parts]) for one in undo.slices
    ]


def conflicts(undo: Undo) -> list[tuple[int, bool]]:
    return [(one.version, one.is_certain) for one in undo.conflicts]


def test_a_run_goes_back_to_the_version_before_its_first_commit() -> None:
    undo = planned([ours(5, ("x", part(1))), ours(6, ("y", part(2))), ours(7, ("x", part(1)))], "x")
    assert (slices(undo), conflicts(undo)) == ([(4, [("01", "02")])], [])
    assert plan_undo([ours(5, ("y", part(1)))], keys("x")) is None


def test_intervals_of_a_backfill_go_back_together_where_nobody_came_between() -> None:
    changes = [
        ours(5, ("x1", part(1)), ("z", part(9))),
        ours(6, ("y", part(8))),
        ours(7, ("x2", part(2)), ("x3", part(4))),
    ]
    undo = planned(changes, "x1", "x2", "x3")
    assert (slices(undo), conflicts(undo)) == ([(4, [("01", "03"), ("04", "05")])], [])


def test_where_another_came_between_an_interval_goes_back_to_what_that_one_left() -> None:
    changes = [
        ours(5, ("x1", part(1))),
        ours(6, ("y", part(2))),
        theirs(7, 3, 3),
        ours(8, ("x2", part(2))),
        ours(9, ("x3", part(3))),
    ]
    undo = planned(changes, "x1", "x2", "x3")
    assert (slices(undo), conflicts(undo)) == ([(4, [("01", "02")]), (6, [("02", "03")]), (7, [("03", "04")])], [])


def test_a_batch_over_days_that_were_done_before_is_cut_at_their_ends() -> None:
    undo = planned([ours(5, ("x1", part(2))), theirs(6, 3, 3), ours(8, ("x2", part(1, 4)))], "x1", "x2")
    assert slices(undo) == [(4, [("01", "03")]), (6, [("03", "04")])]


@pytest.mark.parametrize(
    ("later", "expected"),
    [
        (ours(6, ("y", part(1))), [(6, True)]),
        (ours(6, ("y", part(2))), []),
        (ours(6, ("y", None)), [(6, False)]),  # an append: which rows is not said
        (theirs(6, 1, 3), [(6, False)]),
        (theirs(6, 2, 3), []),
    ],
)
def test_what_others_have_written_since(later: Change, expected: list[tuple[int, bool]]) -> None:
    undo = planned([ours(5, ("x", part(1))), later], "x")
    assert conflicts(undo) == expected
    if expected == [(6, True)]:
        assert undo.conflicts[0].by == "run y of d"


def test_an_append_in_the_same_commit_speaks_against_it() -> None:
    assert conflicts(planned([ours(5, ("x", part(1)), ("y", None))], "x")) == [(5, False)]


def test_what_may_have_changed_any_row_goes_back_as_a_whole() -> None:
    undo = planned([ours(5, ("x", None)), ours(6, ("x2", part(1)))], "x", "x2")
    assert undo.parts.is_whole and slices(undo) == [(4, [])] and conflicts(undo) == []
    assert conflicts(planned([ours(5, ("x", None)), ours(6, ("y", part(1)))], "x")) == [(6, True)]
    assert conflicts(planned([ours(5, ("x", None), ("y", part(1)))], "x")) == [(5, True)]


def test_parts_along_several_columns_go_back_to_one_version() -> None:
    changes = [ours(5, ("x", part(1))), ours(7, ("x", part(3, column="day")))]
    assert [one.version for one in planned(changes, "x").slices] == [4]
    between = [changes[0], theirs(6, 1, 1), changes[1]]
    assert conflicts(planned(between, "x")) == [(6, False)]


def test_what_was_reverted_since_counts_no_more() -> None:
    changes = [ours(5, ("x", part(1))), ours(6, ("y", part(1))), revert(7, "y")]
    undo = planned(changes, "x")
    assert (slices(undo), conflicts(undo)) == ([(4, [("01", "02")])], [])
    done = planned([*changes, revert(8, "x")], "x")
    assert (done.done, [one.version for one in done.writes]) == (8, [5])
    again = planned([*changes, revert(8, "x"), ours(9, ("x", part(1)))], "x")
    assert (again.done, slices(again)) == (None, [(8, [("01", "02")])])


def test_before_its_first_version_a_table_had_no_rows() -> None:
    assert slices(planned([ours(0, ("x", None))], "x")) == [(-1, [])]


def test_a_promotion_repeats_the_writes_of_its_runs() -> None:
    writes = [write(3, "x", part(1)), write(3, "y", None)]
    about = json.loads(json.dumps({"writes": described(writes, "mine", whole=False)}))
    assert writes_of(3, about) == writes and is_of_state(about, "mine") and not is_of_state(about, "other")
    assert all(one["state"] == "mine" for one in about["writes"]), "by which the gaps tell whose a commit is"
    whole = {"writes": described(writes, "mine", whole=True)}
    assert [one.replaced for one in writes_of(3, whole)] == [None, None]
