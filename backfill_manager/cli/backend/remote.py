"""`RemoteBackend`: reads and submits over a server (`--server URL`), by `backfill_manager.client`.

A request and its response come as the rows of the tables would, so that whoever prints them need not know the backend.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import islice
from threading import Timer
from typing import TYPE_CHECKING, Any, Final

from backfill_manager.cli.backend.base import Document, Log
from backfill_manager.cli.backend.watched import UNSAID_WAIT_S, say_who_is_waited_for
from backfill_manager.cli.render.errors import HINTS
from backfill_manager.client import Client, NoActiveManager
from backfill_manager.client import models as m
from backfill_manager.errors import InvalidInput
from backfill_manager.model.records import Request, Response
from backfill_manager.schemas import request_kinds

if TYPE_CHECKING:
    from backfill_manager.cli.context import CliContext

POLL_INTERVAL_S: Final = 0.2
_ONLY_IN_THE_API: Final = ("state", "answer")  # of a request: `outcome` and its neighbours say the same
_METHODS: Final[Mapping[str, Callable[..., m.RequestDetails]]] = {
    request_kinds.BACKFILL_CREATE: Client.create_backfill, request_kinds.BACKFILL_SET: Client.change_backfill,
    request_kinds.BACKFILL_PAUSE: Client.pause_backfill, request_kinds.BACKFILL_UNPAUSE: Client.unpause_backfill,
    request_kinds.BACKFILL_CANCEL: Client.cancel_backfill, request_kinds.BACKFILL_RETRY: Client.retry_backfill,
    request_kinds.BACKFILL_DIFF: Client.diff_backfill, request_kinds.BACKFILL_PROMOTE: Client.promote_backfill,
    request_kinds.BACKFILL_DISCARD: Client.discard_backfill, request_kinds.BACKFILL_REVERT: Client.revert_backfill,
    request_kinds.RUN_REVERT: Client.revert_run, request_kinds.RUN_NOTE: Client.note_run,
    request_kinds.BACKFILL_NOTE: Client.note_backfill, request_kinds.DAG_PAUSE: Client.pause_dag,
    request_kinds.DAG_UNPAUSE: Client.unpause_dag, request_kinds.DAG_TRIGGER: Client.trigger,
    request_kinds.DAG_DEACTIVATE: Client.deactivate_dag, request_kinds.RUN_CANCEL: Client.cancel_run,
    request_kinds.RUN_MARK: Client.mark_run, request_kinds.TASK_MARK: Client.mark_task,
    request_kinds.RUNS_MARK: Client.mark_runs, request_kinds.TASKS_CLEAR: Client.clear,
    request_kinds.POOL_SET: Client.set_pool, request_kinds.BUNDLE_PARSE: Client.parse_bundle,
    request_kinds.BUNDLE_DEACTIVATE: Client.deactivate_in_bundle,
}  # fmt: skip


class RemoteBackend:
    """Reads as `LocalBackend` does; those that it does not define are the client's, of the same name."""

    def __init__(self, context: CliContext, client: Client) -> None:
        self._context, self._client = context, client

    def __getattr__(self, name: str) -> Callable[..., Any]:
        read = getattr(self._client, name)
        return lambda *args, **filters: _plain(read(*args, **filters))

    def close(self) -> None:
        self._client.close()

    def has_active_manager(self) -> bool:
        return self._client.health().manager == "leading"

    def manager(self) -> Document:
        health = self._client.health()
        if health.leader is not None:
            return health.leader.document()
        return {"leading": False, "term": None, "state": None, "advice": health.detail}

    def backfills(self, *, dag_id: str | None, **filters: Any) -> list[Document]:
        if dag_id is not None:
            self._client.dag(dag_id)
        documents: list[Document] = _plain(self._client.backfills(dag_id=dag_id, **filters))
        return sorted(documents, key=lambda one: str(one["created_at"]), reverse=True)

    def backfill(self, backfill_id: str, *, with_eta: bool = False) -> Document:
        document = self._client.backfill(backfill_id).document()
        return document if with_eta else {**document, "time_left_s": None, "finishes_at": None}

    def overrides(self, backfill_id: str) -> Document:
        """Of a backfill, as the manager has them."""
        return dict(self.backfill(backfill_id)["overrides"])

    def items(self, id: str, *, state: Sequence[str], limit: int | None = None, offset: int = 0) -> Any:
        upto = None if limit is None else offset + limit
        return _plain(islice(self._client.items(id, state=state, limit=upto), offset, None))

    def running_tasks(self, backfill: Document) -> Any:
        return _plain(self._client.running_tasks(backfill["backfill_id"])) if backfill["running"] else []

    def runs(self, *, dag_id: str | None, **filters: Any) -> Any:
        if dag_id is not None:
            self._client.dag(dag_id)
        return _plain(self._client.runs(dag_id=dag_id, **filters))

    def run_tasks(self, run: Document, task_id: str | None = None) -> Document:
        document = self._client.run_tasks(run["run_id"], dag_id=run["dag_id"], task_id=task_id).document()
        return {"tasks": document["items"], "tries": document["tries"]}

    def checks(self, run: Document, task_id: str | None) -> Any:
        return _plain(self._client.checks(run["run_id"], dag_id=run["dag_id"], task_id=task_id))

    def log(self, run: Document, task_id: str, *, try_number: int | None, after: tuple[int, int] | None) -> Log:
        lines: list[Document] = []
        last = None if after is None else f"{after[0]}.{after[1]}"
        while True:
            log = self._client.logs(run["run_id"], task_id, dag_id=run["dag_id"], try_number=try_number, after=last)
            lines += _plain(log.lines)
            if log.after == last or not log.lines:
                return lines, log.state, log.is_whole
            last = log.after

    def gaps(self, dag_id: str, *, start_date: str | None, end_date: str | None, count: bool) -> Any:
        if count:
            raise InvalidInput(
                "--count starts Spark where the command runs, so it does not go with --server; use --state."
            )
        return _plain(self._client.gaps(dag_id, start_date=start_date, end_date=end_date))

    def pool_names(self) -> list[str]:
        return [pool.name for pool in self._client.pools()]

    def requests(self, *, limit: int | None) -> list[Document]:
        return [_without(one, *_ONLY_IN_THE_API, "payload", "result") for one in self._client.requests(limit=limit)]

    def notifications(self, **filters: Any) -> list[Document]:
        documents: list[Document] = _plain(self._client.notifications(**filters))
        return documents

    def request(self, request_id: str) -> Document:
        return _without(self._client.request(request_id), *_ONLY_IN_THE_API)

    def submit(self, kind: str, values: Mapping[str, Any], request_id: str | None = None) -> Request:
        arguments = dict(values)
        match kind:
            case request_kinds.BACKFILL_CREATE:
                arguments["idempotency_key"] = request_id
            case request_kinds.BACKFILL_SET:
                arguments |= arguments.pop("changes")
            case request_kinds.TASKS_CLEAR:
                _refuse_regex(values)
            case request_kinds.BUNDLE_PARSE | request_kinds.BUNDLE_DEACTIVATE:
                arguments["name"] = arguments.pop("bundle")
        request = _METHODS[kind](self._client, **arguments)
        return Request(
            request_id=request.request_id, kind=request.kind, payload_json=json.dumps(request.payload),
            requested_by=request.requested_by, requested_at=request.requested_at, source=request.source,
        )  # fmt: skip

    def dry_run(self, kind: str, values: Mapping[str, Any]) -> Document:
        if kind == request_kinds.BACKFILL_CREATE:
            # The server answers when the manager has planned it; until then there is nothing to be polled.
            said = Timer(UNSAID_WAIT_S, say_who_is_waited_for, (self._context, self.manager(), "plan"))
            said.start()
            try:
                return self._client.dry_run(**values).document()
            finally:
                said.cancel()
        if kind == request_kinds.TASKS_CLEAR:
            _refuse_regex(values)
            return self._client.plan_clear(**values).document()
        if kind == request_kinds.RUNS_MARK:
            return self._client.plan_mark(**values).document()
        raise NoActiveManager(
            f"What a server is asked to parse is read by a manager, and none is running now: {HINTS['start_manager']}, "
            "or use --state where the bundle and its configuration are."
        )

    def wait(self, request: Request, timeout_s: float) -> Response | None:
        until = self._context.clock.monotonic() + timeout_s
        while True:
            latest = self._client.request(request.request_id)
            if latest.answered_at is not None:
                return Response(
                    request_id=latest.request_id, kind=latest.kind, outcome=latest.state, object_id=latest.object_id,
                    message=latest.message or "", answered_at=latest.answered_at, term=0,
                    payload_json=None if latest.result is None else json.dumps(latest.result),
                )  # fmt: skip
            if self._context.clock.monotonic() >= until:
                return None
            self._context.pause(POLL_INTERVAL_S)


def _plain(found: m.Resource | Iterable[m.Resource]) -> Any:
    """A resource as a document, or several."""
    return found.document() if isinstance(found, m.Resource) else [one.document() for one in found]


def _without(resource: m.Resource, *names: str) -> Document:
    return {name: value for name, value in resource.document().items() if name not in names}


def _refuse_regex(values: Mapping[str, Any]) -> None:
    if values.get("is_regex"):
        raise InvalidInput(
            "--dag-regex does not go with --server, where one DAG is cleared at a time: name it, or use --state."
        )
