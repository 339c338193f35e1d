"""Answers requests, each exactly once.

A request is answered by its row in `response`, which is the last table that a tick commits: after a crash before that, the same
request is handled again, and every handler is idempotent. Planning takes Spark, so the command to create a backfill becomes a
`PlanRequest`; its response comes with the plan.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from datetime import datetime
from typing import Any, Final

from backfill_manager.dags.mapping import values_in, with_mapped
from backfill_manager.errors import BackfillManagerError, LostLease, NotFound, Refused, StateError, nearest, shorten
from backfill_manager.humanise import plural, window
from backfill_manager.manager.decisions.item_outcomes import close_pending
from backfill_manager.manager.operations import previews, reverts
from backfill_manager.manager.operations.notes import answer_of, with_note
from backfill_manager.manager.operations.run_operations import RunOperations
from backfill_manager.manager.state import ActiveBackfill, ManagerState
from backfill_manager.manager.tick_context import Answer, Call, ParseRequest, PlanRequest, Tick
from backfill_manager.masking import mask_text, secrets_in
from backfill_manager.model import states as s
from backfill_manager.model import transitions as c
from backfill_manager.model.pools import too_many_slots
from backfill_manager.model.records import Backfill, Manager, Request, Response
from backfill_manager.model.stored_json import read_column
from backfill_manager.requests import backfill_checks
from backfill_manager.requests.submit import term_to_stop
from backfill_manager.schemas import commands, payloads, request_kinds
from backfill_manager.schemas.backfill_columns import columns_of, option_of
from backfill_manager.schemas.backfill_options import CHECKED_TOGETHER
from backfill_manager.schemas.command import Command
from backfill_manager.schemas.errors import UNREADABLE_ROW, error_columns
from backfill_manager.store.base import Store, matching

MAX_MESSAGE_CHARS: Final = 4000  # a message may quote what anybody has put into the request table


class RequestHandler:
    """Remembers which requests are answered later (plans, parses, work with tables), so that none is begun twice meanwhile."""

    def __init__(self, state: ManagerState, store: Store, lease: Manager) -> None:
        self._state, self._store, self._dags = state, store, state.catalog
        self._term, self._led_since = lease.term, lease.started_at
        self._run_operations = RunOperations(state, store)
        self._of_runs = {command.KIND for command in self._run_operations.handlers}
        self._reading = self._of_runs | {
            request_kinds.BACKFILL_DIFF, request_kinds.BACKFILL_PROMOTE, request_kinds.BACKFILL_DISCARD,
            request_kinds.BACKFILL_REVERT, request_kinds.RUN_REVERT,
        }  # fmt: skip
        self._unanswered: dict[str, str] = {}  # request id -> backfill id; "" for a bundle or the state
        self.is_waiting = False  # a request could not be answered yet, and is handled again in the next tick
        self._handlers: dict[type[Command], Callable[[Any, Call], Answer | None]] = {
            commands.CreateBackfillPayload: self._plan, commands.DryRunBackfillPayload: self._plan,
            commands.UpdateBackfill: self._update, commands.PauseBackfill: self._pause,
            commands.UnpauseBackfill: self._unpause, commands.CancelBackfill: self._cancel,
            commands.HideBackfill: self._hide, commands.NoteBackfill: self._note, commands.SetPool: self._set_pool,
            commands.PauseDag: self._pause_dag, commands.UnpauseDag: self._pause_dag,
            commands.DeactivateDag: self._deactivate_dag, commands.DeactivateInBundle: self._deactivate_in_bundle,
            commands.ParseBundle: self._parse, commands.CompactState: self._compact, commands.PruneState: self._prune,
            commands.StandBy: self._stand_by, commands.StopManager: self._stop,
            commands.DiffBackfill: self._preview, commands.PromoteBackfill: self._preview,
            commands.DiscardBackfill: self._discard, commands.RevertRun: self._revert, commands.RevertBackfill: self._revert,
            **self._run_operations.handlers,
        }  # fmt: skip

    @property
    def has_unanswered(self) -> bool:
        return bool(self._unanswered)

    def is_under_way(self, object_id: str) -> bool:
        """Whether a request about it is answered later."""
        return object_id in self._unanswered.values()

    def handle(self, requests: Iterable[Request], tick: Tick) -> None:
        answered = {row.key for row in self._state.changes.rows(Response)}  # but not committed yet
        self.is_waiting = False
        for request in requests:
            if request.request_id in self._unanswered or request.key in answered:
                continue
            if request.kind in self._reading and not self._run_operations.may_read():
                self.is_waiting = True  # it reads the tables, which must agree with memory
                continue
            try:
                command = payloads.read_command(request.kind, request.payload_json)
                answer = self._handle(command, Call(request, tick))
            except (StateError, LostLease):  # of storage, and no answer: the request waits for the next leader
                raise
            except BackfillManagerError as error:
                self.refuse(request.request_id, request.kind, tick.now, error)
            except json.JSONDecodeError:  # in a row that it needs; it would be so for the next leader, too
                self.refuse(request.request_id, request.kind, tick.now, UNREADABLE_ROW())
            else:
                if answer is not None:
                    self.accept(request.request_id, request.kind, tick.now, *answer)

    def _handle(self, command: Command, call: Call) -> Answer | None:
        """None: the response comes later."""
        kind, backfill_id = call.request.kind, getattr(command, "backfill_id", None)
        if backfill_id is not None and not isinstance(command, commands.CreateBackfillPayload):
            if backfill_id in self._unanswered.values():
                return None  # handled when its plan is there, before anything of it starts
            live = self._state.backfills.get(backfill_id)
            row = None if live is not None else self._stored(backfill_id)
            of = live.row if live is not None else row
            if of is not None and of.preview_id in self._unanswered.values():
                return None  # a part of the preview that is being compared or promoted
            if row is not None and row.changed_by == call.id:  # by this very request, before a crash lost the response
                return backfill_id, f"backfill {backfill_id} is {row.state}"
        handler = self._handlers.get(type(command))
        if handler is None:
            raise Refused(f"this manager does not know requests of the kind {kind!r}")
        answer = handler(command, call)
        self.is_waiting |= answer is None and kind in self._of_runs
        return answer

    def accept(
        self, request_id: str, kind: str, at: datetime, object_id: str | None, message: str, document: Any = None
    ) -> None:
        """The response to a request that was carried out; what it has changed is committed with it. `document` as JSON."""
        payload = None if document is None else json.dumps(document)
        self._respond(request_id, kind, at, message, request_kinds.ACCEPTED, object_id, payload)

    def refuse(self, request_id: str, kind: str, at: datetime, reason: BackfillManagerError | str) -> None:
        self._respond(request_id, kind, at, str(reason), request_kinds.REFUSED, None, None, **error_columns(reason))

    def _respond(
        self, request_id: str, kind: str, at: datetime, message: str, outcome: str, object_id: str | None,
        payload_json: str | None, **error: str | None,
    ) -> None:  # fmt: skip
        self._unanswered.pop(request_id, None)
        self._state.held.pop(request_id, None)
        message = shorten(mask_text(message), MAX_MESSAGE_CHARS)
        row = Response(request_id, kind, outcome, object_id, message, payload_json, at, self._term, **error)
        self._state.changes.put(row)

    # -- backfills ----------------------------------------------------------------------------------------------------
    def _plan(self, payload: commands.CreateBackfillPayload, call: Call) -> Answer | None:
        backfill_id, command = payload.backfill_id, payload.ask
        is_new = call.request.kind == request_kinds.BACKFILL_CREATE
        if is_new and self._stored(backfill_id):
            return backfill_id, f"backfill {backfill_id} exists already"
        if backfill_id in self._unanswered.values():
            return None  # sent twice: answered when the first one was
        self._state.active_dag(command.dag_id)
        backfill_checks.check_backfill(command, self._state.current_spec(command.dag_id), call.now)
        backfill_checks.check_pools(command.pool, command.overrides, self._state.pools)
        backfill_checks.check_target(command.notify, [target.name for target in self._state.targets])
        self._unanswered[call.id] = backfill_id
        call.tick.plans.append(PlanRequest(call.id, call.request.kind, backfill_id, command, call.by))
        return None

    def _preview(self, command: commands.DiffBackfill | commands.PromoteBackfill, call: Call) -> None:
        """The response comes with the result of the job."""
        call.tick.table_jobs.append(previews.job_of(self._state, self._store, command, call))
        self._unanswered[call.id] = command.backfill_id
        if isinstance(command, commands.PromoteBackfill):
            runs = previews.successful_runs(self._store, command.backfill_id)
            self._state.held[call.id] = frozenset(run.key for run in runs)

    def _revert(self, command: commands.RevertRun | commands.RevertBackfill, call: Call) -> None:
        """The response comes with the result of the job."""
        job = reverts.job_of(self._state, self._store, command, call)
        call.tick.table_jobs.append(job)
        self._unanswered[call.id] = job.object_id
        if not job.dry_run:
            self._state.held[call.id] = frozenset(job.runs)

    def _discard(self, command: commands.DiscardBackfill, call: Call) -> Answer:
        preview_id = previews.job_of(self._state, self._store, command, call).preview_id
        previews.end(self._state, self._store, preview_id, s.DISCARDED, by=call.id)
        call.tick.discarded.append(preview_id)
        return preview_id, f"preview {preview_id} is discarded; its clones are deleted"

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

    def _stored(self, backfill_id: str) -> Backfill | None:
        """A backfill that is not active."""
        row = self._store.first(Backfill, matching(backfill_id=backfill_id))
        return None if row is None else self._state.changes.latest(row)

    def _of_any_state(self, backfill_id: str) -> Backfill:
        live = self._state.backfills.get(backfill_id)
        row = live.row if live is not None else self._stored(backfill_id)
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

    # -- DAGs, bundles, pools, the manager ----------------------------------------------------------------------------
    def _pause_dag(self, command: commands.PauseDag | commands.UnpauseDag, call: Call) -> Answer:
        paused = isinstance(command, commands.PauseDag)
        self._state.put(self._state.active_dag(command.dag_id).evolve(is_paused=paused, updated_at=call.now))
        return command.dag_id, f"DAG {command.dag_id} is {'paused' if paused else 'unpaused'}"

    def _deactivate_dag(self, command: commands.DeactivateDag, call: Call) -> Answer:
        row = self._dags.deactivate_dag(command.dag_id, by=call.by, at=call.now)
        return row.dag_id, f"DAG {row.dag_id} is inactive; its running tasks continue"

    def _deactivate_in_bundle(self, command: commands.DeactivateInBundle, call: Call) -> Answer:
        bundle, subpath = command.bundle, command.subpath
        if bundle not in self._dags.bundles:
            raise NotFound("bundle", bundle, self._dags.bundles)
        dag_ids = self._dags.deactivate_subpath(bundle, subpath, by=call.by, at=call.now)
        where = f"{subpath} of bundle {bundle}" if subpath else f"bundle {bundle}"
        if not dag_ids:
            return bundle, f"{where} has no active DAG"
        return bundle, f"{where}: {', '.join(dag_ids)} {'is' if len(dag_ids) == 1 else 'are'} inactive"

    def _parse(self, command: commands.ParseBundle, call: Call) -> None:
        self._unanswered[call.id] = ""
        request = ParseRequest(call.id, command.bundle, command.subpath, command.dry_run, command.deactivate_removed)
        call.tick.parses.append(request)

    def _compact(self, _: commands.CompactState, call: Call) -> None:
        self._unanswered[call.id] = ""
        call.tick.compactions.append(call.id)

    def _prune(self, _: commands.PruneState, call: Call) -> None:
        self._unanswered[call.id] = ""
        call.tick.prunes.append(call.id)

    def _set_pool(self, command: commands.SetPool, call: Call) -> Answer:
        name, pool = command.name, self._state.pools.get(command.name)
        if pool is None:
            raise Refused(
                f"There is no pool {name!r}{nearest(name, self._state.pools) or '.'} "
                "A new pool is made in the configuration file: Spark reads its pools when it starts."
            )
        given = command.model_dump(include={"memory_mb", "nice"}, exclude_unset=True)
        of_spark = command.model_dump(include={"slots", "weight", "min_share"}, exclude_none=True)
        changed = pool.evolve(**given, **of_spark)
        self._state.put(changed)
        call.tick.slots[name] = changed.slots
        is_same = (changed.weight, changed.min_share) == (pool.weight, pool.min_share)
        later = "" if is_same else "; weight and minimum share take effect when the manager restarts"
        memory, nice = changed.memory_mb, changed.nice
        limits = {
            "memory_mb": f"{memory:,} MB of memory a task" if memory else "no limit of memory",
            "nice": "the default nice" if nice is None else f"nice {nice}",
        }
        has = ", ".join([plural(changed.slots, "slot"), *(limits[field] for field in given)])
        if changed.slots > pool.slots and (warning := too_many_slots(self._state.pools.values())) is not None:
            later += f"; {warning}"
        return name, f"pool {name} has {has}{later}"

    def _stand_by(self, command: commands.StandBy, _: Call) -> Answer:
        return command.manager_id, f"term {self._term} leads; {command.host} stands by"

    def _stop(self, command: commands.StopManager, call: Call) -> Answer:
        term = term_to_stop(call.request.request_id)
        # Without a term only two clocks tell, which may differ: its client is of an older release.
        is_of_before = call.request.requested_at < self._led_since if term is None else term != self._term
        if is_of_before:  # that one has ended unasked, or the state was restored
            raise Refused(f"It was requested of a manager before; that of term {self._term} leads since.")
        call.tick.stop, call.tick.drain = True, command.drain
        return None, "stopping" + (" when running tasks have finished" if command.drain else "")
