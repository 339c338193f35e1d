"""Notes on runs and backfills: in any state, kept by what becomes of the run, and never by accident overwritten."""

from __future__ import annotations

from typing import Any

import pytest
from support.scenarios import accepted, clear, dies_after, key_of, never, refused

from backfill_manager.errors import InvalidInput
from backfill_manager.execution.messages import Failed, Succeeded
from backfill_manager.model import states as s
from backfill_manager.model.records import DagRun, Response
from backfill_manager.schemas import request_kinds
from backfill_manager.schemas.field_types import MAX_NOTE_LENGTH
from backfill_manager.testing import InMemoryManager, dag_spec, days

SPEC = dag_spec("d", "a", "b", upstream={"b": ["a"]})
FIRST = "backfill__2013-01-01T00:00:00Z"
JANUARY = days("2013-01-01", 3)


@pytest.fixture
def manager() -> InMemoryManager:
    return InMemoryManager(SPEC)


def done(manager: InMemoryManager, **fields: Any) -> str:
    backfill_id = manager.backfill("d", JANUARY, **fields)
    manager.drain()
    return backfill_id


def note_run(manager: InMemoryManager, text: str, run_id: str = FIRST, **how: Any) -> Response:
    return accepted(manager, request_kinds.RUN_NOTE, dag_id="d", run_id=run_id, text=text, **how)


def stored(manager: InMemoryManager, run_id: str = FIRST) -> DagRun:
    return next(run for run in manager.store.read(DagRun) if run.run_id == run_id)


def test_a_finished_run_keeps_its_state_and_stays_out_of_memory_when_it_gets_a_note(manager: InMemoryManager) -> None:
    done(manager)
    before = stored(manager)

    answer = note_run(manager, "  Late data:\r\nsee https://example.com/12  ")

    run = stored(manager)
    assert answer.object_id == FIRST and answer.message == f"the note on run {FIRST} is set"
    assert run == before.evolve(
        note="Late data:\nsee https://example.com/12", note_by=run.note_by, note_at=answer.answered_at
    )
    assert run.note_by and manager.state.is_idle and not manager.state.backfills


def test_an_empty_text_removes_a_note(manager: InMemoryManager) -> None:
    backfill_id = done(manager)
    note_run(manager, "why")
    accepted(manager, request_kinds.BACKFILL_NOTE, backfill_id=backfill_id, text="why")

    assert note_run(manager, " \n ").message == f"the note on run {FIRST} is removed"
    accepted(manager, request_kinds.BACKFILL_NOTE, backfill_id=backfill_id, text="")

    for row in (stored(manager), manager.row(backfill_id)):
        assert (row.note, row.note_by, row.note_at) == (None, None, None)


def test_a_running_run_keeps_its_note_to_its_end(manager: InMemoryManager) -> None:
    manager.script = never
    backfill_id = done(manager)
    note_run(manager, "watch this")
    accepted(manager, request_kinds.BACKFILL_NOTE, backfill_id=backfill_id, text="tariff")
    manager.script = lambda _: Succeeded()
    for run in manager.runs("d"):
        manager.finish(key_of(manager, run.run_id), Succeeded())
    manager.drain()

    assert (stored(manager).state, stored(manager).note) == (s.SUCCESS, "watch this")
    assert (manager.row(backfill_id).state, manager.row(backfill_id).note) == (s.SUCCESS, "tariff")


def test_notes_survive_retry_clear_and_the_run_that_overrides(manager: InMemoryManager) -> None:
    manager.script = lambda launch: Failed("boom") if launch.run.run_id == FIRST else Succeeded()
    backfill_id = done(manager)
    note_run(manager, "broken input")
    accepted(manager, request_kinds.BACKFILL_NOTE, backfill_id=backfill_id, text="tariff")
    accepted(manager, request_kinds.BACKFILL_RETRY, backfill_id=backfill_id)
    manager.drain()
    again = next(run for run in manager.runs("d") if run.overridden_by is None and run.logical_date == JANUARY[0][0])
    assert manager.row(backfill_id).note == "tariff"
    assert (stored(manager).state, stored(manager).note) == (s.OVERRIDDEN, "broken input")
    assert again.run_id != FIRST and again.note is None

    note_run(manager, "retried", again.run_id)
    manager.script = lambda _: Succeeded()
    accepted(manager, request_kinds.TASKS_CLEAR, **clear("d", run_ids=[again.run_id]))
    manager.drain()
    assert (stored(manager, again.run_id).state, stored(manager, again.run_id).note) == (s.SUCCESS, "retried")


def test_an_overridden_run_can_get_a_note(manager: InMemoryManager) -> None:
    done(manager)
    done(manager, reprocess="completed")
    assert stored(manager).state == s.OVERRIDDEN

    note_run(manager, "the old tariff")

    assert (stored(manager).state, stored(manager).note) == (s.OVERRIDDEN, "the old tariff")
    done(manager, reprocess="completed")
    assert stored(manager).note == "the old tariff"


def test_the_second_of_two_editors_overwrites_nothing_that_he_has_not_seen(manager: InMemoryManager) -> None:
    backfill_id = done(manager)
    of_backfill = {"backfill_id": backfill_id}
    for kind, of in (
        (request_kinds.RUN_NOTE, {"dag_id": "d", "run_id": FIRST}),
        (request_kinds.BACKFILL_NOTE, of_backfill),
    ):
        accepted(manager, kind, **of, text="mine", was="")
        message = refused(manager, kind, **of, text="yours", was="")
        assert message.startswith("note is mine now, not none: somebody has changed it in the meantime.")
        accepted(manager, kind, **of, text="yours", was="mine")
        accepted(manager, kind, **of, text="yours", was="mine")  # it is as it is to be
    assert stored(manager).note == manager.row(backfill_id).note == "yours"


def test_a_note_does_not_make_an_open_form_of_settings_outdated(manager: InMemoryManager) -> None:
    manager.script = never
    backfill_id = done(manager)
    before = manager.row(backfill_id).changed_by
    accepted(manager, request_kinds.BACKFILL_NOTE, backfill_id=backfill_id, text="tariff")
    assert manager.row(backfill_id).changed_by == before


def test_secrets_are_masked_in_notes_those_of_the_parameters_too(manager: InMemoryManager) -> None:
    backfill_id = done(manager, conf_json='{"api_key": "s3cr3t-v4lue"}')
    note_run(manager, "password=hunter2, and s3cr3t-v4lue")
    accepted(manager, request_kinds.BACKFILL_NOTE, backfill_id=backfill_id, text="the key is s3cr3t-v4lue")

    assert stored(manager).note == "password=***, and ***"
    assert manager.row(backfill_id).note == "the key is ***"
    note_run(manager, "it was fine", was="password=***, and ***")


def test_what_is_not_there_gets_no_note_and_too_long_a_text_is_refused(manager: InMemoryManager) -> None:
    done(manager)
    assert "no run of DAG 'd' with the id 'x'" in refused(
        manager, request_kinds.RUN_NOTE, dag_id="d", run_id="x", text="why"
    )
    assert "no backfill 'x'" in refused(manager, request_kinds.BACKFILL_NOTE, backfill_id="x", text="why")
    note_run(manager, "x" * MAX_NOTE_LENGTH)
    with pytest.raises(InvalidInput, match=f"at most {MAX_NOTE_LENGTH}"):
        note_run(manager, "x" * (MAX_NOTE_LENGTH + 1))


@pytest.mark.parametrize("tables", [0, 1, 2])
def test_a_request_that_a_crash_left_without_response_is_no_conflict_with_itself(tables: int) -> None:
    manager = InMemoryManager(SPEC)
    backfill_id = done(manager)
    manager.ask(request_kinds.RUN_NOTE, dag_id="d", run_id=FIRST, text="why", was="")
    manager.ask(request_kinds.BACKFILL_NOTE, backfill_id=backfill_id, text="tariff", was="")
    assert dies_after(manager, tables)
    manager.drain()
    assert [row.outcome for row in manager.store.read(Response) if row.kind.endswith(".note")] == ["accepted"] * 2
    assert (stored(manager).note, manager.row(backfill_id).note) == ("why", "tariff")
