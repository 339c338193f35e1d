"""The source of commands that go to a server (`--server URL`), by `backfill_manager.client`.

The server tells the same documents as `views`; what it makes of a request comes as its row would, so that whoever prints
it needs not know which source it was.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from itertools import islice
from typing import Any, Final, Literal

from backfill_manager.cli.backend.base import BackfillAction, Document, Log, RunMark, TaskMark
from backfill_manager.cli.commands.creating import Wish, settings_said
from backfill_manager.cli.context import CliContext
from backfill_manager.client import Client, NoActiveManager
from backfill_manager.client import models as t
from backfill_manager.errors import InvalidInput
from backfill_manager.model.records import Request, Response
from backfill_manager.queries.managers import START_ONE
from backfill_manager.schemas.commands import ClearTasks

LOOK_EVERY_S: Final = 0.2
_OF_THE_API: Final = ("state", "answer")  # of a request: what `outcome` and its neighbours say


class RemoteBackend:
    def __init__(self, call: CliContext, client: Client) -> None:
        self._call, self._client = call, client

    def close(self) -> None:
        self._client.close()

    # -- what there is ------------------------------------------------------------------------------------------------
    def has_active_manager(self) -> bool:
        return self._client.health().manager == "leading"

    def manager(self) -> Document:
        health = self._client.health()
        return health.leader or {"leading": False, "term": None, "state": None, "advice": health.detail}

    def backfills(self, *, dag_id: str | None, in_states: Sequence[str], limit: int | None) -> list[Document]:
        if dag_id is not None:
            self._client.dag(dag_id)
        found = _documents(self._client.backfills(dag_id=dag_id, state=in_states, limit=limit))
        return sorted(found, key=lambda one: str(one["created_at"]), reverse=True)

    def backfill(self, wanted: str, *, time_left: bool = False) -> Document:
        found = self._client.backfill(wanted).document()
        return found if time_left else {**found, "time_left_s": None, "finishes_at": None}

    def items(
        self, backfill_id: str, *, in_states: Sequence[str] = (), limit: int | None = None, offset: int = 0
    ) -> list[Document]:
        upto = None if limit is None else offset + limit
        return _documents(islice(self._client.items(backfill_id, state=in_states, limit=upto), offset, None))

    def running_tasks(self, backfill: Document) -> list[Document]:
        return _documents(self._client.running_tasks(backfill["backfill_id"])) if backfill["running"] else []

    def dags(self, *, active: bool | None = True) -> list[Document]:
        return _documents(self._client.dags(active=active))

    def dag(self, dag_id: str) -> Document:
        return self._client.dag(dag_id).document()

    def next_intervals(self, dag_id: str, n: int) -> list[Document]:
        return _documents(self._client.next_intervals(dag_id, n))

    def import_errors(self) -> list[Document]:
        return _documents(self._client.import_errors())

    def versions(self, dag_id: str) -> list[Document]:
        return _documents(self._client.versions(dag_id))

    def version_diff(self, dag_id: str, before: int, after: int) -> Document:
        return self._client.version_diff(dag_id, before, after).document()

    def timeline(self, dag_id: str, limit: int | None) -> list[Document]:
        return _documents(self._client.timeline(dag_id, limit=limit))

    def runs(
        self, *, dag_id: str | None, backfill: str | None, in_states: Sequence[str], limit: int | None
    ) -> list[Document]:
        if dag_id is not None:
            self._client.dag(dag_id)
        return _documents(self._client.runs(dag_id=dag_id, backfill_id=backfill, state=in_states, limit=limit))

    def run(self, wanted: str, dag_id: str | None) -> Document:
        return self._client.run(wanted, dag_id=dag_id).document()

    def tasks_of(self, run: Document) -> Document:
        told = self._client.run_tasks(run["run_id"], dag_id=run["dag_id"]).document()
        return {"tasks": told["items"], "tries": told["tries"]}

    def log(self, run: Document, task_id: str, *, try_number: int | None, after: tuple[int, int] | None) -> Log:
        lines: list[Document] = []
        seen = None if after is None else f"{after[0]}.{after[1]}"
        while True:
            told = self._client.logs(
                run["run_id"], task_id, dag_id=run["dag_id"], try_number=try_number, after=seen
            )  # fmt: skip
            lines += _documents(told.lines)
            if told.after == seen or not told.lines:
                return Log(lines, told.state, told.is_whole)
            seen = told.after

    def pools(self) -> list[Document]:
        return _documents(self._client.pools())

    def bundles(self) -> list[Document]:
        return _documents(self._client.bundles())

    def requests(self, limit: int | None) -> list[Document]:
        return [_without(one, *_OF_THE_API, "payload", "result") for one in self._client.requests(limit=limit)]

    def request(self, wanted: str) -> Document:
        return _without(self._client.request(wanted), *_OF_THE_API)

    # -- what can be asked --------------------------------------------------------------------------------------------
    def response_to(self, request: Request, patience_s: float) -> Response | None:
        until = self._call.clock.monotonic() + patience_s
        while True:
            now = self._client.request(request.request_id)
            if now.is_answered or self._call.clock.monotonic() >= until:
                return _answer(now)
            self._call.pause(LOOK_EVERY_S)

    def create_backfill(self, wish: Wish, request_id: str | None) -> Request:
        return _request(self._client.create_backfill(**settings_said(wish), idempotency_key=request_id))

    def plan_backfill(self, wish: Wish) -> Document:
        return self._client.dry_run(**settings_said(wish)).document()

    def steer_backfill(self, wanted: str, how: BackfillAction, **more: Any) -> Request:
        steer = {
            "pause": self._client.pause_backfill, "unpause": self._client.unpause_backfill,
            "cancel": self._client.cancel_backfill, "retry": self._client.retry_backfill,
        }[how]  # fmt: skip
        return _request(steer(wanted, **more))

    def change_backfill(self, backfill: Document, changes: Document) -> Request:
        return _request(self._client.change_backfill(backfill["backfill_id"], **changes))

    def steer_dag(self, dag_id: str, how: Literal["pause", "unpause", "deactivate"]) -> Request:
        steer = {
            "pause": self._client.pause_dag, "unpause": self._client.unpause_dag,
            "deactivate": self._client.deactivate_dag,
        }[how]  # fmt: skip
        return _request(steer(dag_id))

    def parse_bundle(self, bundle: str, subpath: str, *, dry_run: bool, deactivate_removed: bool) -> Request:
        return _request(
            self._client.parse_bundle(bundle, subpath, dry_run=dry_run, deactivate_removed=deactivate_removed)
        )

    def parse_here(self, bundle: str, subpath: str, *, deactivate_removed: bool) -> Document:
        raise NoActiveManager(
            f"What a server is asked to parse is read by a manager, and none is leading now: {START_ONE}, "
            "or use --state where the bundle and its configuration are."
        )

    def deactivate_in_bundle(self, bundle: str, subpath: str) -> Request:
        return _request(self._client.deactivate_in_bundle(bundle, subpath))

    def trigger(self, dag_id: str, logical_date: str | None, conf: Document, *, allow_future: bool) -> Request:
        return _request(self._client.trigger(dag_id, logical_date=logical_date, conf=conf, allow_future=allow_future))

    def cancel_run(self, run: Document) -> Request:
        return _request(self._client.cancel_run(run["run_id"], dag_id=run["dag_id"]))

    def mark_run(self, run: Document, state: RunMark) -> Request:
        return _request(self._client.mark_run(run["run_id"], state, dag_id=run["dag_id"]))

    def mark_task(self, run: Document, task_id: str, state: TaskMark) -> Request:
        return _request(self._client.mark_task(run["run_id"], task_id, state, dag_id=run["dag_id"]))

    def plan_clear(self, ask: ClearTasks) -> Document:
        return self._client.plan_clear(ask.dag_id, **_which(ask)).document()

    def clear(self, ask: ClearTasks) -> Request:
        return _request(self._client.clear(ask.dag_id, **_which(ask)))

    def set_pool(self, name: str, slots: int, weight: int | None, min_share: int | None) -> Request:
        return _request(self._client.set_pool(name, slots=slots, weight=weight, min_share=min_share))


def _documents(things: Iterable[t.Resource]) -> list[Document]:
    return [one.document() for one in things]


def _without(thing: t.Resource, *names: str) -> Document:
    return {name: value for name, value in thing.document().items() if name not in names}


def _request(told: t.Request) -> Request:
    return Request(
        request_id=told.request_id, kind=told.kind, payload_json=json.dumps(told.payload),
        requested_by=told.requested_by, requested_at=told.requested_at, source=told.source,
    )  # fmt: skip


def _answer(told: t.Request) -> Response | None:
    if told.answered_at is None:
        return None
    result = (told.model_extra or {}).get("result")
    return Response(
        request_id=told.request_id, kind=told.kind, outcome=told.state, object_id=told.object_id,
        message=told.message or "", payload_json=None if result is None else json.dumps(result),
        answered_at=told.answered_at, term=0,
    )  # fmt: skip


def _which(ask: ClearTasks) -> Document:
    if ask.is_regex:
        raise InvalidInput(
            "--dag-regex does not go with --server, where one DAG is cleared at a time: name it, or use --state."
        )
    said = {"start_date": ask.start_date, "end_date": ask.end_date, "tasks": ask.tasks}
    flags = ("upstream", "downstream", "only_failed", "only_running", "latest_version")
    return {
        "run_ids": list(ask.run_ids),
        **{name: value for name, value in said.items() if value is not None},
        **{name: getattr(ask, name) for name in flags},
    }
