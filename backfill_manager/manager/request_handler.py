"""Answers requests, each exactly once.

A request is answered by its row in `response`, which is the last table that a tick commits: after a crash before that, the same
request is handled again, and every handler is idempotent. Planning takes Spark, so the command to create a backfill becomes a
`PlanRequest`; its response comes with the plan (`planned`).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from typing import Any, Final

from backfill_manager.dags.versions import refuse_inactive
from backfill_manager.errors import BackfillManagerError, NotFound, Refused, nearest, shorten
from backfill_manager.manager.instructions import Answer, Call, Instructions, ParseRequest, PlanRequest
from backfill_manager.manager.items import close_pending
from backfill_manager.manager.run_operations import RunOperations
from backfill_manager.manager.state import ActiveBackfill, ManagerState
from backfill_manager.model import states as s
from backfill_manager.model import transitions as c
from backfill_manager.model.records import Backfill, Request, Response
from backfill_manager.requests import backfill_checks
from backfill_manager.schemas import commands, kinds
from backfill_manager.schemas.backfill_row import columns_of, option_of
from backfill_manager.schemas.commands import CHECKED_TOGETHER, Command
from backfill_manager.schemas.errors import error_columns
from backfill_manager.store.base import Condition, Leader, Store

MAX_MESSAGE_CHARS: Final = 4000  # a message may quote what anybody has put into the request table

_OF_RUNS: Final = frozenset(command.KIND for command in RunOperations.COMMANDS)
_OF_ONE_BACKFILL: Final = frozenset(
    {
        kinds.BACKFILL_PAUSE, kinds.BACKFILL_UNPAUSE, kinds.BACKFILL_CANCEL, kinds.BACKFILL_SET, kinds.BACKFILL_RETRY,
        kinds.BACKFILL_HIDE,
    }
)  # fmt: skip


class RequestHandler:
    """Remembers which requests are being planned, so that one is not planned twice while it waits for its response."""

    def __init__(self, state: ManagerState, store: Store, leader: Leader) -> None:
        self._state, self._store, self._term = state, store, leader.term
        self._run_operations = RunOperations(state, store, leader)
        self._dags = state.catalog
        self._planning: dict[str, str] = {}  # request id -> backfill id; "" for a bundle or the state
        self.is_waiting = False  # a request could not be answered yet, and is handled again in the next tick
        self._handlers: dict[type[Command], Callable[[Any, Call], Answer | None]] = {
            commands.CreateBackfillPayload: self._plan, commands.DryRunBackfillPayload: self._plan,
            commands.UpdateBackfill: self._update, commands.PauseBackfill: self._pause,
            commands.UnpauseBackfill: self._unpause, commands.CancelBackfill: self._cancel,
            commands.HideBackfill: self._hide, commands.SetPool: self._set_pool,
            commands.PauseDag: self._pause_dag, commands.UnpauseDag: self._pause_dag,
            commands.DeactivateDag: self._deactivate_dag, commands.DeactivateInBundle: self._deactivate_in_bundle,
            commands.ParseBundle: self._parse, commands.CompactState: self._compact,
            commands.StandBy: self._stand_by, commands.StopManager: self._stop,
            **self._run_operations.handlers,
        }  # fmt: skip

    def handle(self, requests: Iterable[Request], now: datetime, todo: Instructions) -> None:
        answered = {row.key for row in self._state.changes.rows(Response.TABLE)}  # but not committed yet
        self.is_waiting = False
        for request in requests:
            if request.request_id in self._planning or request.key in answered:
                continue
            if request.kind in _OF_RUNS and not self._run_operations.may_read():
                self.is_waiting = True  # it reads the tables, which must agree with memory
                continue
            try:
                command = commands.read_command(request.kind, request.payload_json)
                answer = self._handle(command, Call(request, now, todo))
            except BackfillManagerError as error:
                self.refuse(request.request_id, request.kind, error, now)
            else:
                if answer is not None:
                    self._respond(request.request_id, request.kind, now, *answer)

    def _handle(self, command: Command, call: Call) -> Answer | None:
        """None: the response comes later."""
        kind = call.request.kind
        if kind in _OF_ONE_BACKFILL:
            backfill_id: str = command.backfill_id  # type: ignore[attr-defined]
            if backfill_id in self._planning.values():
                return None  # handled when its plan is there, before anything of it starts
            if ended := self._ended_by(call, backfill_id):
                return ended
        handler = self._handlers.get(type(command))
        if handler is None:
            raise Refused(f"this manager does not know requests of the kind {kind!r}")
        answer = handler(command, call)
        self.is_waiting |= answer is None and kind in _OF_RUNS
        return answer

    # -- responses ----------------------------------------------------------------------------------------------------
    def planned(
        self, request: PlanRequest, object_id: str | None, message: str, payload_json: str | None, now: datetime
    ) -> None:
        """The plan is there, and committed with this response."""
        self._respond(request.request_id, request.kind, now, object_id, message, payload_json)

    def parsed(self, request: ParseRequest, message: str, payload_json: str, now: datetime) -> None:
        """The bundle was parsed; the changes are committed with this response."""
        self._respond(request.request_id, kinds.BUNDLE_PARSE, now, request.bundle, message, payload_json)

    def compacted(self, request_id: str, files: Mapping[str, int], now: datetime) -> None:
        """The state was compacted; `files` counts those of each table."""
        message = f"the tables have {sum(files.values())} files now"
        self._respond(request_id, kinds.STATE_COMPACT, now, None, message, json.dumps({"files": dict(files)}))

    def refuse(self, request_id: str, kind: str, reason: BackfillManagerError | str, now: datetime) -> None:
        self._respond(
            request_id, kind, now, None, str(reason), outcome=kinds.REFUSED, error=error_columns(reason)
        )  # fmt: skip

    @property
    def is_planning(self) -> bool:
        return bool(self._planning)

    def _respond(
        self,
        request_id: str,
        kind: str,
        at: datetime,
        object_id: str | None,
        message: str,
        payload_json: str | None = None,
        *,
        outcome: str = kinds.ACCEPTED,
        error: Mapping[str, str | None] | None = None,
    ) -> None:
        self._planning.pop(request_id, None)
        response = Response(
            request_id=request_id, kind=kind, outcome=outcome, object_id=object_id, answered_at=at, term=self._term,
            message=shorten(message, MAX_MESSAGE_CHARS), payload_json=payload_json, **(error or {}),
        )  # fmt: skip
        self._state.changes.put(response)

    # -- handlers: new backfills --------------------------------------------------------------------------------------
    def _plan(self, payload: commands.CreateBackfillPayload, call: Call) -> Answer | None:
        backfill_id, command = payload.backfill_id, payload.ask
        if call.request.kind == kinds.BACKFILL_CREATE and self._state_of(backfill_id) is not None:
            return backfill_id, f"backfill {backfill_id} exists already"
        if backfill_id in self._planning.values():
            return None  # sent twice: answered when the first one was
        dag = self._state.catalog.dags.get(command.dag_id)
        if dag is None:
            active = [row.dag_id for row in self._state.catalog.dags.values() if row.is_active]
            raise NotFound("DAG", command.dag_id, active)
        refuse_inactive(dag)
        backfill_checks.check_backfill(command, self._state.current_spec(command.dag_id), call.now)
        backfill_checks.check_pools(command.pool, command.overrides, self._state.pools)
        self._planning[call.id] = backfill_id
        call.todo.plans.append(PlanRequest(call.id, call.request.kind, backfill_id, command, call.by))
        return None

    # -- handlers: one backfill ---------------------------------------------------------------------------------------
    def _pause(self, command: commands.PauseBackfill, call: Call) -> Answer:
        live = self._active(command.backfill_id, "paused")
        if live.row.is_cancelled:
            raise Refused(f"Backfill {command.backfill_id} is {live.row.reason}; there is nothing left of it to pause.")
        if not live.row.is_paused:
            self._put(c.backfill_paused(live.row, f"paused by {call.by}"), call)
        return command.backfill_id, f"backfill {command.backfill_id} is paused; running items continue"

    def _unpause(self, command: commands.UnpauseBackfill, call: Call) -> Answer:
        live = self._active(command.backfill_id, "resumed")
        if live.row.is_paused:
            self._put(c.backfill_resumed(live.row, call.now, live.counts[s.FAILED]), call)
        return command.backfill_id, f"backfill {command.backfill_id} is resumed"

    def _cancel(self, command: commands.CancelBackfill, call: Call) -> Answer:
        live = self._active(command.backfill_id, "cancelled")
        let_finish, reason = command.let_running_finish, f"cancelled by {call.by}"
        close_pending(self._state, live, s.CANCELLED, reason, call.todo)
        self._put(c.backfill_cancelling(live.row, reason, let_running_finish=let_finish), call)
        running = f"{len(live.running)} running runs {'may finish' if let_finish else 'are being stopped'}"
        return command.backfill_id, f"backfill {command.backfill_id} is cancelled; {running}"

    def _hide(self, command: commands.HideBackfill, call: Call) -> Answer:
        """Cancelled if it is active, and left out of lists from now on."""
        backfill_id = command.backfill_id
        live = self._state.backfills.get(backfill_id)
        if live is not None:
            if not live.row.is_cancelled:
                self._cancel(commands.CancelBackfill(backfill_id=backfill_id, let_running_finish=False), call)
            self._put(live.row.evolve(hidden_at=call.now), call)
            return backfill_id, f"backfill {backfill_id} is cancelled and hidden"
        ended = [*self._state.changes.rows(Backfill.TABLE), *self._store.read(Backfill, [_is(backfill_id)])]
        row = next((row for row in ended if isinstance(row, Backfill) and row.backfill_id == backfill_id), None)
        if row is None:
            raise NotFound("backfill", backfill_id, self._state.backfills)
        self._put(row.evolve(hidden_at=call.now), call)
        return backfill_id, f"backfill {backfill_id} ({row.state}) is hidden"

    def _update(self, command: commands.UpdateBackfill, call: Call) -> Answer:
        live, changes, expected = self._active(command.backfill_id, "changed"), command.changes, command.was or {}
        backfill_checks.check_expected(expected, changes)
        backfill_checks.check_not_changed_meanwhile(live.row, changes, expected)
        backfill_checks.check_changes_for_dag(
            changes,
            self._state.spec(live.row.dag_id, live.row.dag_version),
            {name: option_of(live.row, name) for name in CHECKED_TOGETHER},
            runs_backwards=bool(live.config.get("run_backwards")),
            reprocess=live.row.reprocess,
        )
        backfill_checks.check_pools(changes.get("pool"), changes.get("overrides", {}), self._state.pools)
        before = live.row
        self._put(before.evolve(**columns_of(changes)), call)
        live.spec = self._state.spec_of_backfill(live.row)
        for key in live.running:
            run = self._state.runs[key]
            run.spec = self._state.spec_of_run(run.row, live.row)
            for ti in list(run.tasks.values()):
                if live.row.priority != before.priority and ti.state not in s.TASK_FINISHED | s.TASK_STARTED:
                    self._state.put(ti.evolve(priority=ti.priority + live.row.priority - before.priority))
        changed = ", ".join(f"{name}={backfill_checks.shown_value(value)}" for name, value in sorted(changes.items()))
        return command.backfill_id, f"backfill {command.backfill_id} is updated: {changed}"

    def _put(self, row: Backfill, call: Call) -> None:
        self._state.put(row.evolve(changed_by=call.id))

    def _state_of(self, backfill_id: str) -> str | None:
        live = self._state.backfills.get(backfill_id)
        if live is not None:
            return live.row.state
        rows = self._store.read(Backfill, [_is(backfill_id)])
        return rows[0].state if rows else None

    def _ended_by(self, call: Call, backfill_id: str) -> Answer | None:
        """The answer for a backfill that this very request brought to its end, before a crash lost the response."""
        if backfill_id in self._state.backfills:
            return None
        rows = self._store.read(Backfill, [_is(backfill_id)])
        if not rows or rows[0].changed_by != call.id:
            return None
        return backfill_id, f"backfill {backfill_id} is {rows[0].state}"

    def _active(self, backfill_id: str, what: str) -> ActiveBackfill:
        live = self._state.backfills.get(backfill_id)
        if live is not None:
            return live
        state = self._state_of(backfill_id)
        if state is None:
            raise NotFound("backfill", backfill_id, self._state.backfills)
        raise Refused(f"Backfill {backfill_id} is {state} already; only an active one can be {what}.")

    # -- handlers: DAGs, bundles, pools, the manager ------------------------------------------------------------------
    def _pause_dag(self, command: commands.PauseDag | commands.UnpauseDag, call: Call) -> Answer:
        paused = isinstance(command, commands.PauseDag)
        row = self._state.catalog.dags.get(command.dag_id)
        if row is None:
            raise NotFound("DAG", command.dag_id, self._state.catalog.dags)
        refuse_inactive(row)
        self._state.put(row.evolve(is_paused=paused, updated_at=call.now))
        return command.dag_id, f"DAG {command.dag_id} is {'paused' if paused else 'not paused'}"

    def _deactivate_dag(self, command: commands.DeactivateDag, call: Call) -> Answer:
        row = self._dags.deactivate_dag(command.dag_id, by=call.by, at=call.now)
        return row.dag_id, f"DAG {row.dag_id} is inactive; its running tasks continue"

    def _deactivate_in_bundle(self, command: commands.DeactivateInBundle, call: Call) -> Answer:
        bundle, subpath = command.bundle, command.subpath.strip("/")
        if bundle not in self._state.catalog.bundles:
            raise NotFound("bundle", bundle, self._state.catalog.bundles)
        dag_ids = self._dags.deactivate_subpath(bundle, subpath, by=call.by, at=call.now)
        where = f"{subpath} of bundle {bundle}" if subpath else f"bundle {bundle}"
        if not dag_ids:
            return bundle, f"{where} has no active DAG"
        return bundle, f"{where}: {', '.join(dag_ids)} {'is' if len(dag_ids) == 1 else 'are'} inactive"

    def _parse(self, command: commands.ParseBundle, call: Call) -> None:
        self._planning[call.id] = ""
        call.todo.parses.append(
            ParseRequest(
                call.id, command.bundle, command.subpath.strip("/"), command.dry_run, command.deactivate_removed
            )
        )  # fmt: skip

    def _compact(self, _: commands.CompactState, call: Call) -> None:
        self._planning[call.id] = ""
        call.todo.compactions.append(call.id)

    def _set_pool(self, command: commands.SetPool, call: Call) -> Answer:
        name = command.name
        pool = self._state.pools.get(name)
        if pool is None:
            raise Refused(
                f"There is no pool {name!r}{nearest(name, self._state.pools) or '.'} A new pool is made in conf/manager.yaml: "
                "Spark reads its pools when it starts."
            )
        self._state.put(pool.evolve(slots=command.slots, weight=command.weight, min_share=command.min_share))
        call.todo.slots[name] = command.slots
        is_same = (command.weight, command.min_share) == (pool.weight, pool.min_share)
        later = "" if is_same else "; weight and minimum share take effect when the manager restarts"
        return name, f"pool {name} has {command.slots} slots{later}"

    def _stand_by(self, command: commands.StandBy, _: Call) -> Answer:
        return command.manager_id, f"term {self._term} leads; {command.host} stands by"

    def _stop(self, command: commands.StopManager, call: Call) -> Answer:
        call.todo.stop, call.todo.drain = True, command.drain
        return None, "stopping" + (" when running tasks have finished" if command.drain else "")


def _is(backfill_id: str) -> Condition:
    return Condition("backfill_id", "=", backfill_id)
