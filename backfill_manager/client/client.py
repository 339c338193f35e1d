"""`Client`: a method for each route of the REST interface.

Lists are iterators that fetch page after page. A change gives the `Request` that was made of it; with `wait=seconds` the
manager's answer with it, if it comes in time (`Refused` if it is a no). Dates may be text (`2013-01-31`: in the DAG's
time zone), or `datetime`s. Ids may be beginnings that only one thing has, or `latest`.

Errors are those of `backfill_manager.errors`: `InvalidInput`, `NotFound`, `Refused`, `StateError`, and beside them
`Unreachable`, `Unauthenticated` and `Forbidden` of `client.errors`.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from itertools import islice
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Literal, TypeVar
from urllib.parse import quote

from backfill_manager.client import models as t
from backfill_manager.client import watch
from backfill_manager.client.connection import Connection
from backfill_manager.clock import format_instant
from backfill_manager.errors import InvalidInput

PAGE: Final = 1000  # rows that a page of a list holds at most
TIMEOUT_S: Final = 30.0
PLAN_PATIENCE_S: Final = 65.0  # a dry run is planned while we wait
Date = str | datetime
T = TypeVar("T", bound=t.Resource)


class Client:
    def __init__(
        self,
        url: str,
        token: str | None = None,
        timeout: float = TIMEOUT_S,
        *,
        pause: Callable[[float], None] = time.sleep,
    ) -> None:
        """`timeout` in seconds. `pause` is how it waits before another try, and between two looks."""
        self._connection = Connection(url, token, timeout, pause)
        self._pause = pause

    @classmethod
    def from_environ(cls, environ: Mapping[str, str] = os.environ, timeout: float = TIMEOUT_S) -> Client:
        """The server of `BFM_SERVER`, with the token of `BFM_TOKEN` or of the file that `BFM_TOKEN_FILE` names."""
        url = environ.get("BFM_SERVER")
        if not url:
            raise InvalidInput("BFM_SERVER is not set; it must name a server, such as http://127.0.0.1:8099.")
        return cls(url, token_of(environ), timeout)

    @property
    def url(self) -> str:
        return self._connection.url

    def close(self) -> None:
        self._connection.close()

    def __enter__(self) -> Client:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    # -- backfills ----------------------------------------------------------------------------------------------------
    def backfills(
        self,
        *,
        dag_id: str | None = None,
        state: Sequence[str] = (),
        kind: str | None = None,
        order_by: str | None = None,
        limit: int | None = None,
    ) -> Iterator[t.Backfill]:
        """Newest first, unless `order_by` says otherwise; up to `limit` of them (None: all)."""
        said = {"dag_id": dag_id, "state": tuple(state), "kind": kind, "order_by": order_by}
        return self._pages("/backfills", t.Backfill, said, limit)

    def backfill(self, backfill_id: str) -> t.Backfill:
        return t.Backfill.model_validate(self._connection.read(_path("backfills", backfill_id)))

    def items(
        self,
        backfill_id: str,
        *,
        state: Sequence[str] = (),
        order_by: str | None = None,
        limit: int | None = None,
    ) -> Iterator[t.Item]:
        said = {"state": tuple(state), "order_by": order_by}
        return self._pages(_path("backfills", backfill_id, "items"), t.Item, said, limit)

    def running_tasks(self, backfill_id: str) -> list[t.TaskInstance]:
        """Those of the backfill that run now, longest first; `for_s` tells for how many seconds."""
        found = self._connection.read(_path("backfills", backfill_id, "running"))
        return [t.TaskInstance.model_validate(one) for one in found["items"]]

    def create_backfill(
        self, dag_id: str, *, wait: float = 0.0, idempotency_key: str | None = None, **settings: Any
    ) -> t.Request:
        """`settings`: start_date, end_date, kind, dates, partitions, run_backwards, reprocess, max_active_runs, batch,
        conf, tasks (with_upstream, with_downstream), mark_success, stop_on_failure, pool, priority, overrides, window,
        is_polite, downstream, allow_future, ignore_first_depends_on_past. A date alone as `end_date` is its whole day; left
        out, the end is the last interval that is complete. The new backfill's id is `payload["backfill_id"]`, at once."""
        return self._ask("POST", "/backfills", {"dag_id": dag_id, **settings}, wait, idempotency_key)

    def dry_run(self, dag_id: str, **settings: Any) -> t.Plan:
        """What `create_backfill` would make; the manager plans it (`NoActiveManager` when there is none)."""
        body = t.plain({"dag_id": dag_id, **settings})
        return t.Plan.model_validate(
            self._connection.change("POST", "/backfills/dry_run", body, silence_s=PLAN_PATIENCE_S)
        )

    def change_backfill(self, backfill_id: str, *, wait: float = 0.0, **settings: Any) -> t.Request:
        """Those settings that are named change. With `was={"priority": 0}`, what you saw them to be, it is refused when
        somebody else has changed one of these meanwhile."""
        return self._ask("PATCH", _path("backfills", backfill_id), settings, wait)

    def pause_backfill(self, backfill_id: str, *, wait: float = 0.0) -> t.Request:
        return self._ask("POST", _path("backfills", backfill_id, "pause"), None, wait)

    def unpause_backfill(self, backfill_id: str, *, wait: float = 0.0) -> t.Request:
        return self._ask("POST", _path("backfills", backfill_id, "unpause"), None, wait)

    def cancel_backfill(self, backfill_id: str, *, let_running_finish: bool = False, wait: float = 0.0) -> t.Request:
        body = {"let_running_finish": let_running_finish}
        return self._ask("POST", _path("backfills", backfill_id, "cancel"), body, wait)

    def retry_backfill(self, backfill_id: str, *, wait: float = 0.0) -> t.Request:
        return self._ask("POST", _path("backfills", backfill_id, "retry"), None, wait)

    def delete_backfill(self, backfill_id: str, *, wait: float = 0.0) -> t.Request:
        """Cancelled if it goes on, and left out of lists."""
        return self._ask("DELETE", _path("backfills", backfill_id), None, wait)

    def watch(self, backfill_id: str) -> Iterator[t.Backfill]:
        """The backfill as it is, and again at each change, until it has ended. It goes on when nobody watches."""
        backfill_id = self.backfill(backfill_id).backfill_id
        return watch.watch(self._connection, _path("backfills", backfill_id), self._pause)

    # -- DAGs ---------------------------------------------------------------------------------------------------------
    def dags(self, *, active: bool | None = True, limit: int | None = None) -> Iterator[t.Dag]:
        """By id. `active=False`: those that no file defines any more; None: these as well."""
        said = {True: {}, False: {"active": "false"}, None: {"active": "all"}}[active]
        return self._pages("/dags", t.Dag, said, limit)

    def dag(self, dag_id: str) -> t.DagDetails:
        return t.DagDetails.model_validate(self._connection.read(_path("dags", dag_id)))

    def pause_dag(self, dag_id: str, *, wait: float = 0.0) -> t.Request:
        return self._ask("PATCH", _path("dags", dag_id), {"is_paused": True}, wait)

    def unpause_dag(self, dag_id: str, *, wait: float = 0.0) -> t.Request:
        return self._ask("PATCH", _path("dags", dag_id), {"is_paused": False}, wait)

    def deactivate_dag(self, dag_id: str, *, wait: float = 0.0) -> t.Request:
        return self._ask("POST", _path("dags", dag_id, "deactivate"), None, wait)

    def trigger(
        self,
        dag_id: str,
        *,
        logical_date: Date | None = None,
        conf: Mapping[str, Any] | None = None,
        allow_future: bool = False,
        wait: float = 0.0,
        idempotency_key: str | None = None,
    ) -> t.Request:
        """One run by hand; its id is `object_id` of the answer. Without a date: of the latest complete interval. A date in
        the future is refused, unless `allow_future` says otherwise."""
        body: dict[str, Any] = {"logical_date": logical_date, "conf": conf or {}}
        body |= {"allow_future": True} if allow_future else {}
        return self._ask("POST", _path("dags", dag_id, "runs"), body, wait, idempotency_key)

    def next_intervals(self, dag_id: str, n: int = 1) -> list[t.Interval]:
        """The next that the scheduler makes runs of."""
        found: list[t.Interval] = []
        while len(found) < n:
            size = min(PAGE, n - len(found))
            after = format_instant(found[-1].interval_end) if found else None
            page = self._connection.read(_path("dags", dag_id, "next"), {"n": size, "after": after})
            found += map(t.Interval.model_validate, page)
            if len(page) < size:
                break
        return found

    def timeline(self, dag_id: str, *, limit: int | None = None) -> list[t.TimelineRun]:
        """The runs that stand, of the newest dates (None: of all), oldest first."""

        size = PAGE if limit is None else max(1, min(limit, PAGE))
        newest_first = self._every(_path("dags", dag_id, "timeline"), t.TimelineRun, {}, size)
        return list(islice(newest_first, limit))[::-1]

    def grid(
        self, dag_id: str, *, limit: int = 30, cursor: str | None = None, order: Literal["date", "made"] = "date"
    ) -> t.Grid:
        """The newest runs, oldest first, with the state of each task; older ones by `cursor`."""
        said = {"limit": limit, "cursor": cursor, "order": order}
        return t.Grid.model_validate(self._connection.read(_path("dags", dag_id, "grid"), said))

    def versions(self, dag_id: str) -> Iterator[t.DagVersion]:
        return self._pages(_path("dags", dag_id, "versions"), t.DagVersion, {}, None)

    def version_diff(self, dag_id: str, before: int, after: int) -> t.VersionDiff:
        said = {"before": before, "after": after}
        return t.VersionDiff.model_validate(self._connection.read(_path("dags", dag_id, "versions", "diff"), said))

    def clear(self, dag_id: str, *, wait: float = 0.0, **which: Any) -> t.Request:
        """Have tasks that ran run again. `which`: start_date, end_date, run_ids, tasks, upstream, downstream,
        only_failed, only_running, latest_version."""
        return self._ask("POST", _path("dags", dag_id, "clear"), {**which, "dry_run": False}, wait)

    def plan_clear(self, dag_id: str, **which: Any) -> t.ClearPlan:
        """What `clear` would touch."""
        body = t.plain({**which, "dry_run": True})
        return t.ClearPlan.model_validate(self._connection.change("POST", _path("dags", dag_id, "clear"), body))

    def import_errors(self) -> Iterator[t.ImportProblem]:
        return self._pages("/import_errors", t.ImportProblem, {}, None)

    # -- runs ---------------------------------------------------------------------------------------------------------
    def runs(
        self,
        *,
        dag_id: str | None = None,
        backfill_id: str | None = None,
        state: Sequence[str] = (),
        run_type: str | None = None,
        order_by: str | None = None,
        limit: int | None = None,
    ) -> Iterator[t.Run]:
        """Newest made first, unless `order_by` says otherwise."""
        said = {
            "dag_id": dag_id, "backfill_id": backfill_id, "state": tuple(state), "run_type": run_type,
            "order_by": order_by,
        }  # fmt: skip
        return self._pages("/runs", t.Run, said, limit)

    def run(self, run_id: str, *, dag_id: str | None = None) -> t.Run:
        """With its DAG (here, or as `DAG/RUN`) also by logical date. Without one an id that several DAGs have is an
        `InvalidInput`, which names them."""
        return t.Run.model_validate(self._connection.read(_run(run_id, dag_id)))

    def run_tasks(self, run_id: str, *, dag_id: str | None = None, task_id: str | None = None) -> t.RunTasks:
        """Of all tasks large results are left out; of one (`task_id`) it is there whatever its size."""
        return t.RunTasks.model_validate(self._connection.read(_run(run_id, dag_id, "tasks"), {"task_id": task_id}))

    def logs(
        self,
        run_id: str,
        task_id: str,
        *,
        dag_id: str | None = None,
        try_number: int | None = None,
        after: str | None = None,
    ) -> t.Log:
        """What a task logged; `after` of one answer, given to the next call, goes on behind it."""
        said = {"try": try_number, "after": after}
        return t.Log.model_validate(self._connection.read(_run(run_id, dag_id, "tasks", task_id, "logs"), said))

    def cancel_run(self, run_id: str, *, dag_id: str | None = None, wait: float = 0.0) -> t.Request:
        return self._ask("POST", _run(run_id, dag_id, "cancel"), None, wait)

    def mark_run(
        self, run_id: str, state: Literal["success", "failed"], *, dag_id: str | None = None, wait: float = 0.0
    ) -> t.Request:
        return self._ask("POST", _run(run_id, dag_id, "mark"), {"state": state}, wait)

    def mark_task(
        self,
        run_id: str,
        task_id: str,
        state: Literal["success", "failed", "skipped"],
        *,
        dag_id: str | None = None,
        wait: float = 0.0,
    ) -> t.Request:
        body = {"state": state, "task_id": task_id}
        return self._ask("POST", _run(run_id, dag_id, "mark"), body, wait)

    # -- the rest -----------------------------------------------------------------------------------------------------
    def pools(self) -> Iterator[t.Pool]:
        return self._pages("/pools", t.Pool, {}, None)

    def set_pool(self, name: str, *, wait: float = 0.0, **settings: int | None) -> t.Request:
        """`slots`, `weight`, `min_share`; what is not named stays."""
        said = {key: value for key, value in settings.items() if value is not None}
        return self._ask("PATCH", _path("pools", name), said, wait)

    def requests(self, *, limit: int | None = None) -> Iterator[t.Request]:
        return self._pages("/requests", t.Request, {}, limit)

    def request(self, request_id: str) -> t.Request:
        return t.Request.model_validate(self._connection.read(_path("requests", request_id)))

    def bundles(self) -> Iterator[t.BundleInfo]:
        return self._pages("/bundles", t.BundleInfo, {}, None)

    def parse_bundle(
        self,
        name: str,
        subpath: str = "",
        *,
        dry_run: bool = False,
        deactivate_removed: bool = False,
        wait: float = 0.0,
    ) -> t.Request:
        body = {"subpath": subpath, "dry_run": dry_run, "deactivate_removed": deactivate_removed}
        return self._ask("POST", _path("bundles", name, "parse"), body, wait)

    def deactivate_in_bundle(self, name: str, subpath: str, *, wait: float = 0.0) -> t.Request:
        """The DAGs of a file or folder."""
        return self._ask("POST", _path("bundles", name, "deactivate"), {"subpath": subpath}, wait)

    def health(self) -> t.Health:
        return t.Health.model_validate(self._connection.read("/health"))

    # -- inside -------------------------------------------------------------------------------------------------------
    def _ask(
        self,
        method: str,
        path: str,
        body: Mapping[str, Any] | None,
        wait: float,
        key: str | None = None,
    ) -> t.Request:
        told = self._connection.change(method, path, t.plain(body), wait=wait, key=key)
        return t.Request.model_validate(told)

    def _pages(self, path: str, kind: type[T], said: Mapping[str, Any], limit: int | None) -> Iterator[T]:
        return islice(self._every(path, kind, said, PAGE if limit is None else min(PAGE, limit)), limit)

    def _every(self, path: str, kind: type[T], said: Mapping[str, Any], page: int) -> Iterator[T]:
        cursor: str | None = None
        while True:
            found = self._connection.read(path, {**said, "limit": page, "cursor": cursor})
            yield from (kind.model_validate(one) for one in found["items"])
            cursor = found.get("next_cursor")
            if cursor is None:
                return


def token_of(environ: Mapping[str, str]) -> str | None:
    """From `BFM_TOKEN`, or the file that `BFM_TOKEN_FILE` names. Never from an option: everybody sees those in `ps`."""
    if token := environ.get("BFM_TOKEN", "").strip():
        return token
    named = environ.get("BFM_TOKEN_FILE")
    if not named:
        return None
    try:
        return Path(named).expanduser().read_text(encoding="utf-8").strip() or None
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is no text"
        raise InvalidInput(f"BFM_TOKEN_FILE: {named} can't be read: {reason}.") from None


def _path(*parts: str) -> str:
    """Each part whole, whatever it holds: a partition's run id may have a slash."""
    return "/" + "/".join(quote(part, safe="") for part in parts)


def _run(run_id: str, dag_id: str | None, *more: str) -> str:
    """The address of a run: with its DAG the one that no other run has."""
    return _path("runs", run_id, *more) if dag_id is None else _path("dags", dag_id, "runs", run_id, *more)
