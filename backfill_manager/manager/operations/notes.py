"""Notes of people on runs and backfills: rows of any state, of which nothing else changes."""

from __future__ import annotations

from typing import TypeVar

from backfill_manager.manager.tick_context import Call
from backfill_manager.masking import mask_text
from backfill_manager.model.records import Backfill, DagRun
from backfill_manager.requests.backfill_checks import shown_value
from backfill_manager.schemas import errors
from backfill_manager.schemas.commands import NoteBackfill, NoteRun

Noted = TypeVar("Noted", DagRun, Backfill)


def with_note(row: Noted, command: NoteRun | NoteBackfill, call: Call, secrets: tuple[str, ...]) -> Noted:
    """The row with the note of a command, from which `secrets` (and what else looks like one) are masked. `Refused` when the note
    is not any more what the sender saw; one that is as it is to be is no conflict, so that a request may be handled twice."""
    text, now = mask_text(command.text, secrets), mask_text(row.note or "", secrets)
    if text == now:
        return row
    if command.was is not None and mask_text(command.was, secrets) != now:
        seen = shown_value(command.was or None)
        raise errors.CHANGED_MEANWHILE(field="note", now=shown_value(now or None), was=seen, more="")
    if not text:
        return row.evolve(note=None, note_by=None, note_at=None)
    return row.evolve(note=text, note_by=call.by, note_at=call.now)


def answer_of(what: str, row: DagRun | Backfill) -> str:
    return f"the note on {what} is {'set' if row.note else 'removed'}"
