"""Requests are answered, each exactly once.

A request is answered by the row in `response`, which is the last thing a tick commits: after a crash in between, the same
request is looked at again, and every answer here is such that giving it twice does no harm. Planning takes Spark, so a
backfill that is in order becomes a `PlanRequest`; its answer comes with the plan (`planned`).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from datetime import datetime

from backfill_manager.dags.catalog import DagStore
from backfill_manager.dags.versions import refuse_inactive
from backfill_manager.errors import BackfillManagerError, NotFound, Refused, nearest, shorten
from backfill_manager.manager.instructions import Instructions, ParseRequest, PlanRequest
from backfill_manager.manager.items import close_pending
from backfill_manager.manager.run_operations import RunOperations
from backfill_manager.manager.state import ActiveBackfill, ManagerState
from backfill_manager.model import states as s
from backfill_manager.model import transitions as c
from backfill_manager.model.records import Backfill, Request, Response
from backfill_manager.requests import backfills, command_types
from backfill_manager.requests.backfills import CreateBackfill
from backfill_manager.store.base import Condition, Leader, Store

RUN_OPERATIONS = RunOperations.KINDS
_STEERING = frozenset(
    {
        command_types.BACKFILL_PAUSE, command_types.BACKFILL_UNPAUSE, command_types.BACKFILL_CANCEL, command_types.BACKFILL_SET, command_types.BACKFILL_RETRY,
        command_types.BACKFILL_HIDE,
    }
)  # fmt: skip
MAX_MESSAGE_CHARS = 4000  # characters of an answer, which may speak of what a stranger has put into the table
_COLUMN_OF = {"conf": "conf_json", "overrides": "overrides_json"}


class RequestHandler:
    """Holds which requests are being planned, so that one is not planned twice while it waits for its answer."""

    def __init__(self, state: ManagerState, store: Store, leader: Leader) -> None:
        self._state, self._store, self._term = state, store, leader.term
        self._repairs = RunOperations(state, store, leader)
        self._dags = DagStore(state.catalog)
        self._planning: dict[str, str] = {}  # request id -> backfill id; "" for a bundle or the state
        self.is_waiting = False  # a request could not be answered yet, and is looked at again in the next tick

    def handle(self, requests: Iterable[Request], now: datetime, todo: Instructions) -> None:
        answered = {row.key for row in self._state.changes.rows(Response.TABLE)}  # but not committed yet
        self.is_waiting = False
        for request in requests:
            if request.request_id in self._planning or request.key in answered:
                continue
            if request.kind in RUN_OPERATIONS and not self._repairs.may_read():
                self.is_waiting = True  # it reads the tables, which must say what memory says
                continue
            try:
                payload = command_types.parse_payload(request.kind, request.payload_json)
                said = self._handle(request, payload, now, todo)
            except BackfillManagerError as error:
                self.refuse(request.request_id, request.kind, str(error), now)
            else:
                if said is not None:
                    object_id, message = said
                    self._answer(
                        request.request_id, request.kind, command_types.ACCEPTED, object_id, message, None, now
                    )

    def planned(
        self, wanted: PlanRequest, object_id: str | None, message: str, payload_json: str | None, now: datetime
    ) -> None:
        """The plan is there, and committed with this answer."""
        self._planning.pop(wanted.request_id, None)
        self._answer(wanted.request_id, wanted.kind, command_types.ACCEPTED, object_id, message, payload_json, now)

    def parsed(self, wanted: ParseRequest, message: str, payload_json: str, now: datetime) -> None:
        """The bundle has been parsed; what came of it is committed with this answer."""
        self._planning.pop(wanted.request_id, None)
        kind = command_types.BUNDLE_PARSE
        self._answer(wanted.request_id, kind, command_types.ACCEPTED, wanted.bundle, message, payload_json, now)

    def compacted(self, request_id: str, files: Mapping[str, int], now: datetime) -> None:
        """The state has been tidied up."""
        self._planning.pop(request_id, None)
        message, document = f"the tables have {sum(files.values())} files now", json.dumps({"files": dict(files)})
        self._answer(request_id, command_types.STATE_COMPACT, command_types.ACCEPTED, None, message, document, now)

    def refuse(self, request_id: str, kind: str, reason: str, now: datetime) -> None:
        self._planning.pop(request_id, None)
        self._answer(request_id, kind, command_types.REFUSED, None, reason, None, now)

    @property
    def is_planning(self) -> bool:
        return bool(self._planning)

    def _answer(
        self,
        request_id: str,
        kind: str,
        outcome: str,
        object_id: str | None,
        message: str,
        payload: str | None,
        at: datetime,
    ) -> None:
        self._state.changes.put(
            Response(
                request_id=request_id,
                kind=kind,
                outcome=outcome,
                object_id=object_id,
                message=shorten(message, MAX_MESSAGE_CHARS),
                payload_json=payload,
                answered_at=at,
                term=self._term,
            )
        )

    # -- one kind each: the touched thing's id and what to say, or None when the answer comes later ---------------------

    def _handle(
        self, request: Request, payload: dict[str, object], now: datetime, todo: Instructions
    ) -> tuple[str | None, str] | None:
        if request.kind in _STEERING:
            if payload["backfill_id"] in self._planning.values():
                return None  # seen to when its plan is there, before anything of it starts
            if ended := self._ended_by(request, str(payload["backfill_id"])):
                return ended
        match request.kind:
            case command_types.BACKFILL_CREATE | command_types.BACKFILL_DRY_RUN:
                return self._plan(request, payload, now, todo)
            case command_types.BACKFILL_SET:
                return self._set_backfill(request, payload)
            case command_types.BACKFILL_PAUSE:
                return self._pause(request, str(payload["backfill_id"]))
            case command_types.BACKFILL_UNPAUSE:
                return self._unpause(request, str(payload["backfill_id"]), now)
            case command_types.BACKFILL_CANCEL:
                finish = bool(payload["let_running_finish"])
                return self._cancel(request, str(payload["backfill_id"]), finish, todo)
            case command_types.BACKFILL_HIDE:
                return self._hide(request, str(payload["backfill_id"]), now, todo)
            case command_types.POOL_SET:
                return self._set_pool(payload, todo)
            case command_types.DAG_PAUSE | command_types.DAG_UNPAUSE:
                return self._pause_dag(str(payload["dag_id"]), request.kind == command_types.DAG_PAUSE, now)
            case command_types.DAG_DEACTIVATE:
                row = self._dags.deactivate_dag(str(payload["dag_id"]), by=request.requested_by, at=now)
                return row.dag_id, f"DAG {row.dag_id} is inactive; what runs of it goes on"
            case command_types.BUNDLE_DEACTIVATE:
                return self._deactivate(request, str(payload["bundle"]), str(payload["subpath"]).strip("/"), now)
            case command_types.BUNDLE_PARSE:
                todo.parses.append(self._parse(request, payload))
                return None
            case command_types.STATE_COMPACT:
                self._planning[request.request_id] = ""
                todo.compactions.append(request.request_id)
                return None
            case command_types.MANAGER_STAND_BY:
                return str(payload["manager_id"]), f"term {self._term} leads; {payload['host']} stands by"
            case command_types.MANAGER_STOP:
                todo.stop, todo.drain = True, bool(payload["drain"])
                return None, "stopping" + (" when what runs has finished" if todo.drain else "")
            case repair if repair in RUN_OPERATIONS:
                said = self._repairs.handle(request, payload, now, todo)
                self.is_waiting |= said is None
                return said
            case other:
                raise Refused(f"this manager does not know requests of the kind {other!r}")

    def _plan(
        self, request: Request, payload: dict[str, object], now: datetime, todo: Instructions
    ) -> tuple[str | None, str] | None:
        backfill_id = str(payload["backfill_id"])
        ask = CreateBackfill.from_payload(payload["ask"])  # type: ignore[arg-type]
        if request.kind == command_types.BACKFILL_CREATE and self._state_of(backfill_id) is not None:
            return backfill_id, f"backfill {backfill_id} has been made already"
        if backfill_id in self._planning.values():
            return None  # the same one, sent twice: answered when the first has been
        dag = self._state.catalog.dags.get(ask.dag_id)
        if dag is None:
            raise NotFound(
                "DAG", ask.dag_id, [row.dag_id for row in self._state.catalog.dags.values() if row.is_active]
            )
        refuse_inactive(dag)
        backfills.check(ask, self._state.current_spec(ask.dag_id), now)
        backfills.check_pools(ask.pool, ask.overrides, self._state.pools)
        self._planning[request.request_id] = backfill_id
        todo.plans.append(PlanRequest(request.request_id, request.kind, backfill_id, ask, request.requested_by))
        return None

    def _parse(self, request: Request, payload: dict[str, object]) -> ParseRequest:
        self._planning[request.request_id] = ""
        return ParseRequest(
            request.request_id,
            str(payload["bundle"]),
            str(payload["subpath"]).strip("/"),
            dry_run=bool(payload["dry_run"]),
            deactivate_removed=bool(payload["deactivate_removed"]),
        )

    def _deactivate(self, request: Request, bundle: str, subpath: str, now: datetime) -> tuple[str, str]:
        if bundle not in self._state.catalog.bundles:
            raise NotFound("bundle", bundle, self._state.catalog.bundles)
        gone = self._dags.deactivate_subpath(bundle, subpath, by=request.requested_by, at=now)
        where = f"{subpath} of bundle {bundle}" if subpath else f"bundle {bundle}"
        if not gone:
            return bundle, f"{where} makes no DAG that is active"
        return bundle, f"{where}: {', '.join(gone)} {'is' if len(gone) == 1 else 'are'} inactive"

    def _state_of(self, backfill_id: str) -> str | None:
        live = self._state.backfills.get(backfill_id)
        if live is not None:
            return live.row.state
        rows = self._store.read(Backfill, [_is(backfill_id)])
        return rows[0].state if rows else None

    def _ended_by(self, request: Request, backfill_id: str) -> tuple[str, str] | None:
        """A backfill that this very request brought to its end, before a crash took the answer away."""
        if backfill_id in self._state.backfills:
            return None
        rows = self._store.read(Backfill, [_is(backfill_id)])
        if not rows or rows[0].changed_by != request.request_id:
            return None
        return backfill_id, f"backfill {backfill_id} is {rows[0].state}"

    def _live(self, backfill_id: str, what: str) -> ActiveBackfill:
        live = self._state.backfills.get(backfill_id)
        if live is not None:
            return live
        state = self._state_of(backfill_id)
        if state is None:
            raise NotFound("backfill", backfill_id, self._state.backfills)
        raise Refused(f"Backfill {backfill_id} is {state} already; only one that is going on can be {what}.")

    def _pause(self, request: Request, backfill_id: str) -> tuple[str, str]:
        live = self._live(backfill_id, "paused")
        if live.row.is_cancelled:
            raise Refused(f"Backfill {backfill_id} is {live.row.reason}; there is nothing left of it to pause.")
        if not live.row.is_paused:
            paused = c.backfill_paused(live.row, f"paused by {request.requested_by}")
            self._state.put(paused.evolve(changed_by=request.request_id))
        return backfill_id, f"backfill {backfill_id} is paused; what runs goes on"

    def _unpause(self, request: Request, backfill_id: str, now: datetime) -> tuple[str, str]:
        live = self._live(backfill_id, "resumed")
        if live.row.is_paused:
            resumed = c.backfill_resumed(live.row, now, live.counts[s.FAILED])
            self._state.put(resumed.evolve(changed_by=request.request_id))
        return backfill_id, f"backfill {backfill_id} goes on"

    def _cancel(
        self, request: Request, backfill_id: str, let_running_finish: bool, todo: Instructions
    ) -> tuple[str, str]:
        live = self._live(backfill_id, "cancelled")
        reason = f"cancelled by {request.requested_by}"
        close_pending(self._state, live, s.CANCELLED, reason, todo)
        if let_running_finish:
            cancelled = c.backfill_cancelling(live.row, reason, let_running_finish=True)
            self._state.put(cancelled.evolve(changed_by=request.request_id))
            return backfill_id, f"backfill {backfill_id} is cancelled; {len(live.running)} runs that go on may finish"
        self._state.put(c.backfill_cancelling(live.row, reason).evolve(changed_by=request.request_id))
        return backfill_id, f"backfill {backfill_id} is cancelled; {len(live.running)} runs are being stopped"

    def _hide(self, request: Request, backfill_id: str, now: datetime, todo: Instructions) -> tuple[str, str]:
        """Cancelled if it goes on, and left out of lists from now on."""
        live = self._state.backfills.get(backfill_id)
        if live is not None:
            if not live.row.is_cancelled:
                self._cancel(request, backfill_id, False, todo)
            self._state.put(live.row.evolve(hidden_at=now, changed_by=request.request_id))
            return backfill_id, f"backfill {backfill_id} is cancelled and hidden"
        ended = [*self._state.changes.rows(Backfill.TABLE), *self._store.read(Backfill, [_is(backfill_id)])]
        row = next((row for row in ended if isinstance(row, Backfill) and row.backfill_id == backfill_id), None)
        if row is None:
            raise NotFound("backfill", backfill_id, self._state.backfills)
        self._state.put(row.evolve(hidden_at=now, changed_by=request.request_id))
        return backfill_id, f"backfill {backfill_id} ({row.state}) is hidden"

    def _set_backfill(self, request: Request, payload: dict[str, object]) -> tuple[str, str]:
        changes: dict[str, object] = dict(payload["changes"])  # type: ignore[call-overload]
        was: dict[str, object] = dict(payload.get("was", {}))  # type: ignore[call-overload]
        live = self._live(str(payload["backfill_id"]), "changed")
        backfills.check_expected(was, changes)
        backfills.check_not_changed_meanwhile(live.row, changes, was)
        pinned = self._state.spec(live.row.dag_id, live.row.dag_version)
        standing = {name: backfills.setting_of(live.row, name) for name in backfills.CHECKED_TOGETHER}
        backfills.check_for_dag(
            changes,
            pinned,
            standing,
            runs_backwards=bool(live.config.get("run_backwards")),
            reprocess=live.row.reprocess,
        )
        overrides: dict[str, object] = changes.get("overrides", {})  # type: ignore[assignment]
        backfills.check_pools(changes.get("pool"), overrides, self._state.pools)  # type: ignore[arg-type]
        columns = {
            _COLUMN_OF.get(name, name): json.dumps(value) if name in _COLUMN_OF else value
            for name, value in changes.items()
        }
        before = live.row
        self._state.put(before.evolve(**columns, changed_by=request.request_id))
        live.spec = self._state.spec_of_backfill(live.row)
        for key in live.running:
            run = self._state.runs[key]
            run.spec = self._state.spec_of_run(run.row, live.row)
            for ti in list(run.tasks.values()):
                if live.row.priority != before.priority and ti.state not in s.TASK_FINISHED | s.TASK_STARTED:
                    self._state.put(ti.evolve(priority=ti.priority + live.row.priority - before.priority))
        told = ", ".join(f"{name}={backfills.shown_value(value)}" for name, value in sorted(changes.items()))
        return live.row.backfill_id, f"backfill {live.row.backfill_id} goes on with {told}"

    def _set_pool(self, payload: dict[str, object], todo: Instructions) -> tuple[str, str]:
        name = str(payload["name"])
        pool = self._state.pools.get(name)
        if pool is None:
            raise Refused(
                f"There is no pool {name!r}{nearest(name, self._state.pools) or '.'} A new pool is made in conf/manager.yaml: "
                "Spark reads its pools when it starts."
            )
        now = pool.evolve(slots=payload["slots"], weight=payload["weight"], min_share=payload["min_share"])
        self._state.put(now)
        todo.slots[name] = now.slots
        later = "" if (now.weight, now.min_share) == (pool.weight, pool.min_share) else (
            "; weight and minimum share take effect when the manager starts next")  # fmt: skip
        return name, f"pool {name} has {now.slots} slots{later}"

    def _pause_dag(self, dag_id: str, paused: bool, now: datetime) -> tuple[str, str]:
        row = self._state.catalog.dags.get(dag_id)
        if row is None:
            raise NotFound("DAG", dag_id, self._state.catalog.dags)
        refuse_inactive(row)
        self._state.put(row.evolve(is_paused=paused, updated_at=now))
        return dag_id, f"DAG {dag_id} is {'paused' if paused else 'not paused'}"


def _is(backfill_id: str) -> Condition:
    return Condition("backfill_id", "=", backfill_id)
