"""Answers requests, each exactly once.

A request is answered by its row in `response`, which is the last table that a tick commits: after a crash before that, the same
request is handled again, and every handler is idempotent. Planning takes Spark, so the command to create a backfill becomes a
`PlanRequest`; its response comes with the plan.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from datetime import datetime
from typing import Any, Final

from backfill_manager.errors import BackfillManagerError, LostLease, Refused, StateError, shorten
from backfill_manager.manager.operations import previews, reverts
from backfill_manager.manager.operations.administration import Administration
from backfill_manager.manager.operations.change_backfills import ChangeBackfills
from backfill_manager.manager.operations.run_operations import RunOperations
from backfill_manager.manager.state import ManagerState
from backfill_manager.manager.tick_context import Answer, Call, Handler, ParseRequest, PlanRequest, Tick
from backfill_manager.masking import mask_text
from backfill_manager.model import states as s
from backfill_manager.model.records import Manager, Request, Response
from backfill_manager.requests import backfill_checks
from backfill_manager.schemas import commands, payloads, request_kinds
from backfill_manager.schemas.command import Command
from backfill_manager.schemas.errors import UNREADABLE_ROW, error_columns
from backfill_manager.store.base import Store

MAX_MESSAGE_CHARS: Final = 4000  # a message may quote what anybody has put into the request table


class RequestHandler:
    """Remembers which requests are answered later (plans, parses, work with tables), so that none is begun twice meanwhile."""

    def __init__(self, state: ManagerState, store: Store, lease: Manager) -> None:
        self._state, self._store, self._term = state, store, lease.term
        self._backfills = ChangeBackfills(state, store)
        self._run_operations = RunOperations(state, store)
        self._of_runs = {command.KIND for command in self._run_operations.handlers}
        self._reading = self._of_runs | {
            request_kinds.BACKFILL_DIFF, request_kinds.BACKFILL_PROMOTE, request_kinds.BACKFILL_DISCARD,
            request_kinds.BACKFILL_REVERT, request_kinds.RUN_REVERT,
        }  # fmt: skip
        self._unanswered: dict[str, str] = {}  # request id -> backfill id; "" for a bundle or the state
        self.is_waiting = False  # a request could not be answered yet, and is handled again in the next tick
        self._handlers: dict[type[Command], Handler] = {
            commands.CreateBackfillPayload: self._plan, commands.DryRunBackfillPayload: self._plan,
            commands.ParseBundle: self._parse, commands.CompactState: self._compact, commands.PruneState: self._prune,
            commands.DiffBackfill: self._preview, commands.PromoteBackfill: self._preview,
            commands.DiscardBackfill: self._discard, commands.RevertRun: self._revert, commands.RevertBackfill: self._revert,
            **self._backfills.handlers, **Administration(state, lease).handlers, **self._run_operations.handlers,
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
            row = None if live is not None else self._backfills.stored(backfill_id)
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

    # -- answered later ------------------------------------------------------------------------------------------------
    def _plan(self, payload: commands.CreateBackfillPayload, call: Call) -> Answer | None:
        backfill_id, command = payload.backfill_id, payload.ask
        is_new = call.request.kind == request_kinds.BACKFILL_CREATE
        if is_new and self._backfills.stored(backfill_id):
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
