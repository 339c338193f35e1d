"""Changes of backfills that their rows show at once: pause, cancel, hide, other settings, notes."""

from __future__ import annotations

from backfill_manager.dags.mapping import values_in, with_mapped
from backfill_manager.errors import NotFound, Refused
from backfill_manager.humanise import plural, window
from backfill_manager.manager.decisions.item_outcomes import close_pending
from backfill_manager.manager.operations.notes import answer_of, with_note
from backfill_manager.manager.state import ActiveBackfill, ManagerState
from backfill_manager.manager.tick_context import Answer, Call, Handler
from backfill_manager.masking import secrets_in
from backfill_manager.model import states as s
from backfill_manager.model import transitions as c
from backfill_manager.model.records import Backfill
from backfill_manager.model.stored_json import read_column
from backfill_manager.requests import backfill_checks
from backfill_manager.schemas import commands
from backfill_manager.schemas.backfill_columns import columns_of, option_of
from backfill_manager.schemas.backfill_options import CHECKED_TOGETHER
from backfill_manager.schemas.command import Command
from backfill_manager.store.base import Store, matching


class ChangeBackfills:
    def __init__(self, state: ManagerState, store: Store) -> None:
        self._state, self._store = state, store
        self.handlers: dict[type[Command], Handler] = {
            commands.UpdateBackfill: self._update, commands.PauseBackfill: self._pause,
            commands.UnpauseBackfill: self._unpause, commands.CancelBackfill: self._cancel,
            commands.HideBackfill: self._hide, commands.NoteBackfill: self._note,
        }  # fmt: skip

    def stored(self, backfill_id: str) -> Backfill | None:
        """A backfill that is not active."""
        row = self._store.first(Backfill, matching(backfill_id=backfill_id))
        return None if row is None else self._state.changes.latest(row)

    def _pause(self, command: commands.PauseBackfill, call: Call) -> Answer:
        live = self._not_cancelled(command.backfill_id, "pause")
        if not live.row.is_paused:
            self._put(c.backfill_paused(live.row, f"paused by {call.by}"), call)
        return command.backfill_id, f"backfill {command.backfill_id} is paused; running items continue"

    def _unpause(self, command: commands.UnpauseBackfill, call: Call) -> Answer:
        live = self._not_cancelled(command.backfill_id, "unpause")
        if live.row.is_paused:
            self._put(c.backfill_unpaused(live.row, call.now, live.counts[s.FAILED]), call)
        return command.backfill_id, f"backfill {command.backfill_id} is unpaused"

    def _cancel(self, command: commands.CancelBackfill, call: Call) -> Answer:
        live = self._active(command.backfill_id, "cancelled")
        let_finish, reason = command.let_running_finish, f"cancelled by {call.by}"
        close_pending(call.tick, live, s.CANCELLED, reason)
        self._put(c.backfill_cancelling(live.row, reason, let_running_finish=let_finish), call)
        running = f"{plural(n := len(live.running), 'running run')} "
        running += "may finish" if let_finish else "is being stopped" if n == 1 else "are being stopped"
        return command.backfill_id, f"backfill {command.backfill_id} is cancelled; {running}"

    def _hide(self, command: commands.HideBackfill, call: Call) -> Answer:
        """Cancelled if it is active, and left out of lists from now on."""
        backfill_id = command.backfill_id
        live = self._state.backfills.get(backfill_id)
        if live is not None and not live.row.is_cancelled:
            self._cancel(commands.CancelBackfill(backfill_id=backfill_id, let_running_finish=False), call)
        row = self._of_any_state(backfill_id)
        self._put(row.evolve(hidden_at=call.now), call)
        hidden = f"({row.state}) is hidden" if live is None else "is cancelled and hidden"
        return backfill_id, f"backfill {backfill_id} {hidden}"

    def _note(self, command: commands.NoteBackfill, call: Call) -> Answer:
        """Its settings are not changed, so `changed_by` stays."""
        row = self._of_any_state(command.backfill_id)
        noted = with_note(row, command, call, secrets_in(read_column(row, "conf_json")))
        if noted != row:
            self._state.put(noted)
        return row.backfill_id, answer_of(f"backfill {row.backfill_id}", noted)

    def _update(self, command: commands.UpdateBackfill, call: Call) -> Answer:
        live, expected = self._active(command.backfill_id, "changed"), command.was or {}
        changes = backfill_checks.as_read(command.changes)
        backfill_checks.check_expected(expected, changes)
        backfill_checks.check_not_changed_meanwhile(live.row, changes, expected)
        before, spec = live.row, self._state.spec(live.row.dag_id, live.row.dag_version)
        current = {name: option_of(before, name) for name in CHECKED_TOGETHER}
        backwards = bool(read_column(before, "config_json").get("run_backwards"))
        backfill_checks.check_changes_for_dag(
            changes, spec, current, runs_backwards=backwards, reprocess=before.reprocess
        )
        backfill_checks.check_pools(changes.get("pool"), changes.get("overrides", {}), self._state.pools)
        backfill_checks.check_target(changes.get("notify"), [target.name for target in self._state.targets])
        self._put(before.evolve(**columns_of(changes)), call)
        live.spec = self._state.spec_of_backfill(live.row)
        for key in live.running:
            run = self._state.runs[key]
            run.spec = with_mapped(self._state.overridden(run.row, live.row), values_in(run.spec))
            for ti in list(run.tasks.values()):
                if live.row.priority != before.priority and ti.state not in s.TASK_FINISHED | s.TASK_STARTED:
                    self._state.put(ti.evolve(priority=ti.priority + live.row.priority - before.priority))
        shown = {**changes, "window": window(changes["window"], spec.timezone)} if "window" in changes else changes
        changed = ", ".join(f"{name}: {backfill_checks.shown_value(value)}" for name, value in sorted(shown.items()))
        return command.backfill_id, f"backfill {command.backfill_id} is updated: {changed}"

    def _put(self, row: Backfill, call: Call) -> None:
        self._state.put(row.evolve(changed_by=call.id))

    def _of_any_state(self, backfill_id: str) -> Backfill:
        live = self._state.backfills.get(backfill_id)
        row = live.row if live is not None else self.stored(backfill_id)
        if row is None:
            raise NotFound("backfill", backfill_id, self._state.backfills)
        return row

    def _active(self, backfill_id: str, what: str) -> ActiveBackfill:
        live = self._state.backfills.get(backfill_id)
        if live is not None:
            return live
        state = self._of_any_state(backfill_id).state
        raise Refused(f"Backfill {backfill_id} is {state} already; only an active one can be {what}.")

    def _not_cancelled(self, backfill_id: str, verb: str) -> ActiveBackfill:
        live = self._active(backfill_id, f"{verb}d")
        if live.row.is_cancelled:
            raise Refused(f"Backfill {backfill_id} is {live.row.reason}; there is nothing left of it to {verb}.")
        return live
