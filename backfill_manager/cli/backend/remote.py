"""`RemoteBackend`: reads and submits over a server (`--server URL`), by `backfill_manager.client`.

A request and its response come as the rows of the tables would, so that whoever prints them need not know the backend.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

from backfill_manager.cli.backend.base import Document, Log
from backfill_manager.cli.render.errors import HINTS
from backfill_manager.client import Client, NoActiveManager
from backfill_manager.client import models as m
from backfill_manager.errors import InvalidInput
from backfill_manager.model.records import Request, Response
from backfill_manager.schemas import kinds

if TYPE_CHECKING:
    from backfill_manager.cli.context import CliContext

POLL_INTERVAL_S: Final = 0.2
_ONLY_IN_THE_API: Final = ("state", "answer")  # of a request: `outcome` and its neighbours say the same


class RemoteBackend:
    def __init__(self, context: CliContext, client: Client) -> None:
        self._context, self._client = context, client

    def close(self) -> None:
        self._client.close()

    # -- read ---------------------------------------------------------------------------------------------------------
    def has_active_manager(self) -> bool:
        return self._client.health().manager == "leading"

    def manager(self) -> Document:
        health = self._client.health()
        if health.leader is not None:
            return health.leader.document()
        return {"leading": False, "term": None, "state": None, "advice": health.detail}

    def backfills(self, *, dag_id: str | None, states: Sequence[str], limit: int | None) -> list[Document]:
        if dag_id is not None:
            self._client.dag(dag_id)
        documents = _documents(self._client.backfills(dag_id=dag_id, state=states, limit=limit))
        return sorted(documents, key=lambda one: str(one["created_at"]), reverse=True)

    def backfill(self, backfill_id: str, *, with_eta: bool = False) -> Document:
        document = self._client.backfill(backfill_id).document()
        return document if with_eta else {**document, "time_left_s": None, "finishes_at": None}

    def items(
        self, backfill_id: str, *, states: Sequence[str] = (), limit: int | None = None, offset: int = 0
    ) -> list[Document]:
        upto = None if limit is None else offset + limit
        return _documents(islice(self._client.items(backfill_id, state=states, limit=upto), offset, None))

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
        self, *, dag_id: str | None, backfill_id: str | None, states: Sequence[str], limit: int | None
    ) -> list[Document]:
        if dag_id is not None:
            self._client.dag(dag_id)
        return _documents(self._client.runs(dag_id=dag_id, backfill_id=backfill_id, state=states, limit=limit))

    def run(self, run_id: str, dag_id: str | None) -> Document:
        return self._client.run(run_id, dag_id=dag_id).document()

    def run_tasks(self, run: Document) -> Document:
        document = self._client.run_tasks(run["run_id"], dag_id=run["dag_id"]).document()
        return {"tasks": document["items"], "tries": document["tries"]}

    def log(self, run: Document, task_id: str, *, try_number: int | None, after: tuple[int, int] | None) -> Log:
        lines: list[Document] = []
        last = None if after is None else f"{after[0]}.{after[1]}"
        while True:
            log = self._client.logs(
                run["run_id"], task_id, dag_id=run["dag_id"], try_number=try_number, after=last
            )  # fmt: skip
            lines += _documents(log.lines)
            if log.after == last or not log.lines:
                return Log(lines, log.state, log.is_whole)
            last = log.after

    def pools(self) -> list[Document]:
        return _documents(self._client.pools())

    def bundles(self) -> list[Document]:
        return _documents(self._client.bundles())

    def requests(self, limit: int | None) -> list[Document]:
        return [_without(one, *_ONLY_IN_THE_API, "payload", "result") for one in self._client.requests(limit=limit)]

    def request(self, request_id: str) -> Document:
        return _without(self._client.request(request_id), *_ONLY_IN_THE_API)

    # -- submit -------------------------------------------------------------------------------------------------------
    def submit(self, kind: str, values: Mapping[str, Any], request_id: str | None = None) -> Request:
        client, v = self._client, dict(values)
        match kind:
            case kinds.BACKFILL_CREATE:
                return _request(client.create_backfill(**v, idempotency_key=request_id))
            case kinds.BACKFILL_SET:
                return _request(client.change_backfill(v["backfill_id"], **v["changes"]))
            case kinds.TASKS_CLEAR:
                return _request(client.clear(**_clear(v)))
        methods: dict[str, Callable[..., m.RequestDetails]] = {
            kinds.BACKFILL_PAUSE: client.pause_backfill, kinds.BACKFILL_UNPAUSE: client.unpause_backfill,
            kinds.BACKFILL_CANCEL: client.cancel_backfill, kinds.BACKFILL_RETRY: client.retry_backfill,
            kinds.DAG_PAUSE: client.pause_dag, kinds.DAG_UNPAUSE: client.unpause_dag,
            kinds.DAG_DEACTIVATE: client.deactivate_dag, kinds.DAG_TRIGGER: client.trigger,
            kinds.RUN_CANCEL: client.cancel_run, kinds.RUN_MARK: client.mark_run, kinds.TASK_MARK: client.mark_task,
            kinds.POOL_SET: client.set_pool, kinds.BUNDLE_PARSE: client.parse_bundle,
            kinds.BUNDLE_DEACTIVATE: client.deactivate_in_bundle,
        }  # fmt: skip
        if "bundle" in v:
            v["name"] = v.pop("bundle")
        return _request(methods[kind](**v))

    def preview(self, kind: str, values: Mapping[str, Any]) -> Document:
        if kind == kinds.BACKFILL_CREATE:
            return self._client.dry_run(**values).document()
        if kind == kinds.TASKS_CLEAR:
            return self._client.plan_clear(**_clear(values)).document()
        raise NoActiveManager(
            f"What a server is asked to parse is read by a manager, and none is running now: {HINTS['start_manager']}, "
            "or use --state where the bundle and its configuration are."
        )

    def wait(self, request: Request, timeout_s: float) -> Response | None:
        until = self._context.clock.monotonic() + timeout_s
        while True:
            latest = self._client.request(request.request_id)
            if latest.is_answered or self._context.clock.monotonic() >= until:
                return _response(latest)
            self._context.pause(POLL_INTERVAL_S)


def _documents(resources: Iterable[m.Resource]) -> list[Document]:
    return [one.document() for one in resources]


def _without(resource: m.Resource, *names: str) -> Document:
    return {name: value for name, value in resource.document().items() if name not in names}


def _request(request: m.RequestDetails) -> Request:
    return Request(
        request_id=request.request_id, kind=request.kind, payload_json=json.dumps(request.payload),
        requested_by=request.requested_by, requested_at=request.requested_at, source=request.source,
    )  # fmt: skip


def _response(request: m.RequestDetails) -> Response | None:
    if request.answered_at is None:
        return None
    result = request.result
    return Response(
        request_id=request.request_id, kind=request.kind, outcome=request.state, object_id=request.object_id,
        message=request.message or "", payload_json=None if result is None else json.dumps(result),
        answered_at=request.answered_at, term=0,
    )  # fmt: skip


def _clear(values: Mapping[str, Any]) -> Document:
    if values.get("is_regex"):
        raise InvalidInput(
            "--dag-regex does not go with --server, where one DAG is cleared at a time: name it, or use --state."
        )
    return dict(values)
