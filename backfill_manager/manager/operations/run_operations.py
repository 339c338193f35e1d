"""What a person does to runs and tasks: asks for new ones (new_runs.py), cancels and marks (mark_runs.py), clears
(clear_runs.py), writes notes (notes.py); and retries a backfill (retry_backfill.py).

These commands concern finished rows and so read the tables; they are handled when no change of runs or items waits to be
committed, so that tables and memory agree. Nothing that runs is changed: it is stopped first, and the request stays unanswered
until it has stopped (the handler returns None, and is called again in the next tick). All are idempotent: a crash before the
response has them handled twice.
"""

from __future__ import annotations

from functools import partial

from backfill_manager.errors import NotFound
from backfill_manager.manager.operations.clear_runs import ClearRuns
from backfill_manager.manager.operations.found_runs import FoundRuns
from backfill_manager.manager.operations.mark_runs import MarkRuns
from backfill_manager.manager.operations.new_runs import NewRuns
from backfill_manager.manager.operations.notes import answer_of, with_note
from backfill_manager.manager.operations.retry_backfill import retry_backfill
from backfill_manager.manager.state import ManagerState
from backfill_manager.manager.tick_context import Answer, Call, Handler
from backfill_manager.masking import secrets_in
from backfill_manager.model.records import Backfill, BackfillItem, DagRun
from backfill_manager.model.stored_json import read_column
from backfill_manager.schemas import commands
from backfill_manager.schemas.command import Command
from backfill_manager.store.base import Store


class RunOperations:
    def __init__(self, state: ManagerState, store: Store) -> None:
        self._state, self._runs = state, FoundRuns(state, store)
        self.handlers: dict[type[Command], Handler] = {
            **NewRuns(state, store).handlers, **MarkRuns(state, store, self._runs).handlers,
            **ClearRuns(state, store, self._runs).handlers,
            commands.NoteRun: self._note_run, commands.RetryBackfill: partial(retry_backfill, state, store),
        }  # fmt: skip

    def may_read(self) -> bool:
        """Whether the tables agree with memory about runs and items."""
        return not any(map(self._state.changes.rows, (DagRun, BackfillItem, Backfill)))

    def _note_run(self, command: commands.NoteRun, call: Call) -> Answer:
        """Of a run that is not active only its row is read, and it stays as it is."""
        key = (command.dag_id, command.run_id)
        live = self._state.runs.get(key)
        row = live.row if live is not None else self._runs.load([key]).rows.get(key)
        if row is None:
            raise NotFound(f"run of DAG {key[0]!r} with the id", key[1])
        noted = with_note(row, command, call, secrets_in(read_column(row, "conf_json")))
        if noted != row:
            self._state.put(noted)
        return row.run_id, answer_of(f"run {row.run_id}", noted)
