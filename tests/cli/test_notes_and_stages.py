"""`bfm runs note`, `bfm backfill note`, and `bfm tasks stages`."""

from __future__ import annotations

import json

from support.bfm import Bfm
from support.busy_state import STAGES
from support.sample_state import FilledState

from backfill_manager.clock import parse_instant
from backfill_manager.model.records import Backfill, DagRun, Request, TaskTry

AT = parse_instant("2013-02-01T05:00:00Z")
NOTE = "Late data, see https://example.com/12\nAnn agrees"


def fill(state: FilledState) -> None:
    state.dag()
    state.backfill("b1", {"success": 1})


def test_notes_are_requested_with_the_whole_id_and_without_secrets(bfm: Bfm, state: FilledState) -> None:
    fill(state)
    [run] = state.store.read(DagRun)
    assert bfm("runs", "note", "latest", " token=abc123 is late ").code == 0
    shown = bfm("backfill", "note", "latest", "", "--output", "json").document
    asked = {one.kind: json.loads(one.payload_json) for one in state.store.read(Request)}
    assert asked["run.note"] == {"dag_id": run.dag_id, "run_id": run.run_id, "text": "token=*** is late", "was": None}
    assert asked["backfill.note"] == {"backfill_id": "b1", "text": "", "was": None}
    assert shown["backfill_id"] == "b1"


def test_too_long_a_note_is_refused_in_one_line(bfm: Bfm, state: FilledState) -> None:
    fill(state)
    result = bfm("runs", "note", "latest", "x" * 4001)
    assert result.code == 2 and "at most 4000 characters" in result.error
    assert state.store.read(Request) == []


def test_lists_have_a_column_of_notes_where_there_is_one(bfm: Bfm, state: FilledState) -> None:
    fill(state)
    for command in ("runs", "backfill"):
        assert "note" not in bfm(command, "list").out.splitlines()[0]
    [run], [backfill] = state.store.read(DagRun), state.store.read(Backfill)
    state.put(*(row.evolve(note=NOTE, note_by="ann", note_at=AT) for row in (run, backfill)))
    for command in ("runs", "backfill"):
        out = " ".join(bfm(command, "list").out.split())
        assert "note" in out and "Late data" in out and "Ann agrees" not in out, "the first line"
        shown = bfm(command, "show", "latest", "--output", "json").document
        assert (shown["note"], shown["note_by"], shown["note_at"]) == (NOTE, "ann", "2013-02-01T05:00:00Z")
        assert "Ann agrees" in bfm(command, "show", "latest").out
    assert "note: Late data" in " ".join(bfm("runs", "timeline", "flights").out.split())


def test_stages_are_shown_by_try_all_of_them_first(bfm: Bfm, state: FilledState) -> None:
    fill(state)
    empty = bfm("tasks", "stages", "flights", "latest", "clean")
    assert empty.code == 0 and "No Spark stages of clean" in empty.err + empty.out
    [run] = state.store.read(DagRun)
    first = TaskTry(run.dag_id, run.run_id, "clean", 1, 1, "failed", run.run_seq, term=1)
    with_stages = first.evolve(launch=2, try_number=2, state="success", spark_stages_json=STAGES.model_dump_json())
    state.put(first, with_stages)

    lines = [" ".join(line.split()) for line in bfm("tasks", "stages", "flights", "latest", "clean").out.splitlines()]
    tries = bfm("tasks", "stages", "flights", "latest", "clean", "--output", "json").document

    assert any("all 3 stages" in line and "8.2 MB" in line for line in lines)
    assert any("9.4" in line and "41.2 MB" in line for line in lines)
    assert [one["spark_stages"] for one in tries] == [None, STAGES.model_dump(mode="json")]
    of_first = bfm("tasks", "stages", "flights", "latest", "clean", "--try", "1", "--output", "json").document
    assert [one["try_number"] for one in of_first] == [1]
    none = bfm("tasks", "stages", "flights", "latest", "clean", "--try", "7")
    assert none.code == 3 and "with the number '7'" in none.error
    assert "did you mean 'clean'" in bfm("tasks", "stages", "flights", "latest", "claen").error
