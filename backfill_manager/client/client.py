"""`Client`: a method for each route of the REST API.

Lists are iterators that fetch page after page. A change returns the request that was submitted; with `wait=seconds` it has
the manager's answer, if that comes in time (`Refused` if it is negative). Dates are text (`2013-01-31`: in the DAG's time
zone) or `datetime`s. Ids may be unique beginnings, or `latest`.

Results are the models of `schemas.resources`, options the fields of `schemas.commands`, and errors those of
`backfill_manager.errors`: `InvalidInput`, `NotFound`, `Refused`, `StateError`, `Unauthenticated`, `Forbidden`, `Unreachable`.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from datetime import date, datetime
from itertools import islice
from pathlib import Path
from typing import Any, Final, Literal, TypeVar
from urllib.parse import quote

from backfill_manager.client.connection import Connection
from backfill_manager.clock import format_instant
from backfill_manager.errors import BackfillManagerError, InvalidInput, Unreachable
from backfill_manager.schemas import resources as r

PAGE: Final = 1000  # rows of a page at most
TIMEOUT_S: Final = 30.0
PLAN_TIMEOUT_S: Final = 65.0  # the manager plans a dry run meanwhile
WATCHED_TABLES: Final = "backfill,backfill_item,request,response"  # what a backfill is read from
POLL_INTERVAL_S: Final = 1.0  # where server-sent events don't come through
RECONNECT_INTERVAL_S: Final = 30.0  # after they have failed
MAX_AWAY_S: Final = 600.0  # of a server while a backfill is watched
Date = str | datetime
T = TypeVar("T", bound=r.Resource)


class Client(AbstractContextManager["Client"]):
    def __init__(
        self, url: str, token: str | None = None, timeout: float = TIMEOUT_S, *,
        pause: Callable[[float], None] = time.sleep,
    ) -> None:  # fmt: skip
        """`timeout` in seconds. `pause` sleeps before another attempt, and between two polls."""
        self._connection = Connection(url, token, timeout, pause)
        self.url, self._pause = self._connection.url, pause

    @classmethod
    def from_environ(cls, environ: Mapping[str, str] = os.environ, timeout: float = TIMEOUT_S) -> Client:
        """The server of `BFM_SERVER`, with the token of `BFM_TOKEN` or of the file that `BFM_TOKEN_FILE` names."""
        url = environ.get("BFM_SERVER")
        if not url:
            raise InvalidInput("BFM_SERVER is not set; it must name a server, such as http://127.0.0.1:8099.")
        return cls(url, token_of(environ), timeout)

    def close(self) -> None:
        self._connection.close()

    def __exit__(self, *error: object) -> None:
        self.close()

    # -- backfills ----------------------------------------------------------------------------------------------------
    def backfills(
        self, *, dag_id: str | None = None, state: str | Sequence[str] = (), kind: str | None = None,
        order_by: str | None = None, limit: int | None = None,
    ) -> Iterator[r.Backfill]:  # fmt: skip
        """Newest first, unless `order_by` says otherwise; up to `limit` of them (None: all)."""
        filters = {"dag_id": dag_id, "state": _several(state), "kind": kind, "order_by": order_by}
        return self._list(r.Backfill, "/backfills", limit, filters)

    def backfill(self, backfill_id: str) -> r.BackfillDetails:
        return self._read(r.BackfillDetails, _path("backfills", backfill_id))

    def items(
        self,
        backfill_id: str,
        *,
        state: str | Sequence[str] = (),
        order_by: str | None = None,
        limit: int | None = None,
    ) -> Iterator[r.Item]:
        filters = {"state": _several(state), "order_by": order_by}
        return self._list(r.Item, _path("backfills", backfill_id, "items"), limit, filters)

    def running_tasks(self, backfill_id: str) -> list[r.RunningTask]:
        """Its running task instances, longest first."""
        return list(self._every(r.RunningTask, _path("backfills", backfill_id, "running"), {}))

    def create_backfill(
        self, dag_id: str, *, wait: float = 0.0, idempotency_key: str | None = None, **options: Any
    ) -> r.RequestDetails:
        """`options`: the fields of `schemas.backfill_options.BackfillInput`. The new backfill's id is `payload["backfill_id"]`,
        at once."""
        return self._submit("/backfills", wait, {"dag_id": dag_id, **options}, key=idempotency_key)

    def dry_run(self, dag_id: str, **options: Any) -> r.Plan:
        """What `create_backfill` would create; the manager plans it (`NoActiveManager` when there is none)."""
        body = _json({"dag_id": dag_id, **options})
        document = self._connection.change("POST", "/backfills/dry_run", body, extra_timeout_s=PLAN_TIMEOUT_S)
        return r.Plan.model_validate(document)

    def change_backfill(self, backfill_id: str, *, wait: float = 0.0, **settings: Any) -> r.RequestDetails:
        """Changes the given fields of `schemas.backfill_options.BackfillSettings`. With `was={"priority": 0}`, the values that
        you saw, it is refused when somebody else has changed one of these meanwhile."""
        return self._submit(_path("backfills", backfill_id), wait, settings, method="PATCH")

    def pause_backfill(self, backfill_id: str, *, wait: float = 0.0) -> r.RequestDetails:
        return self._submit(_path("backfills", backfill_id, "pause"), wait)

    def unpause_backfill(self, backfill_id: str, *, wait: float = 0.0) -> r.RequestDetails:
        return self._submit(_path("backfills", backfill_id, "unpause"), wait)

    def cancel_backfill(
        self, backfill_id: str, *, let_running_finish: bool = False, wait: float = 0.0
    ) -> r.RequestDetails:
        return self._submit(_path("backfills", backfill_id, "cancel"), wait, {"let_running_finish": let_running_finish})

    def retry_backfill(
        self, backfill_id: str, *, items: Sequence[int | str] | None = None, latest_version: bool = False,
        downstream: bool = False, wait: float = 0.0,
    ) -> r.RequestDetails:  # fmt: skip
        """`items`: only those of its failed items, by number or range (`[3, "5-20"]`); `latest_version`: with the DAG's current
        version, not the one that it has; `downstream`: also the backfills downstream of it that failed."""
        how: dict[str, Any] = {"latest_version": latest_version, "downstream": downstream}
        how |= {} if items is None else {"items": list(items)}
        return self._submit(_path("backfills", backfill_id, "retry"), wait, how)

    def diff_backfill(
        self, backfill_id: str, *, key: Sequence[str] = (), table: str | None = None, wait: float = 0.0
    ) -> r.RequestDetails:
        """How the tables would change if this preview was promoted now: the request's `result`, when the manager
        has compared them. `key`: the columns that identify a row; `table`: only this one."""
        return self._submit(_path("backfills", backfill_id, "diff"), wait, {"key": list(key), "table": table})

    def promote_backfill(
        self, backfill_id: str, *, partial: bool = False, rebase: bool = False, wait: float = 0.0
    ) -> r.RequestDetails:
        """Swaps what a preview has written into the tables. `partial`: although some items did not succeed; `rebase`: although
        others have written the same intervals since."""
        how = {"partial": partial, "rebase": rebase}
        return self._submit(_path("backfills", backfill_id, "promote"), wait, how)

    def discard_backfill(self, backfill_id: str, *, wait: float = 0.0) -> r.RequestDetails:
        """Deletes the clones of a preview."""
        return self._submit(_path("backfills", backfill_id, "discard"), wait)

    def revert_backfill(self, backfill_id: str, *, dry_run: bool = False, wait: float = 0.0) -> r.RequestDetails:
        """Puts what its runs have written back to what it was before it; what that is, is the request's `result`. `dry_run`: only
        says so."""
        return self._submit(_path("backfills", backfill_id, "revert"), wait, {"dry_run": dry_run})

    def note_backfill(
        self, backfill_id: str, text: str, *, was: str | None = None, wait: float = 0.0
    ) -> r.RequestDetails:
        """Writes a note on it, in any state; an empty text removes it. `was`: the note that you saw (empty: none), which is not
        overwritten if it is another one now."""
        return self._submit(_path("backfills", backfill_id, "note"), wait, {"text": text, "was": was}, method="PATCH")

    def delete_backfill(self, backfill_id: str, *, wait: float = 0.0) -> r.RequestDetails:
        """Cancels an unfinished backfill, and hides it from lists."""
        return self._submit(_path("backfills", backfill_id), wait, method="DELETE")

    def watch(self, backfill_id: str) -> Iterator[r.BackfillDetails]:
        """The backfill, and again at each change, until it has ended. A server that can't be reached is asked again for ten
        minutes, as it may be started anew; then `Unreachable`."""
        return self._watch(_path("backfills", self.backfill(backfill_id).backfill_id))

    # -- DAGs ---------------------------------------------------------------------------------------------------------
    def dags(
        self, *, active: bool | None = True, is_paused: bool | None = None, tag: str | None = None,
        limit: int | None = None,
    ) -> Iterator[r.Dag]:  # fmt: skip
        """By id. `active=False`: those that no file defines any more; None: these as well."""
        of = {"active": {True: None, False: "false", None: "all"}[active], "is_paused": is_paused, "tag": tag}
        return self._list(r.Dag, "/dags", limit, of)

    def dag(self, dag_id: str) -> r.DagDetails:
        return self._read(r.DagDetails, _path("dags", dag_id))

    def pause_dag(self, dag_id: str, *, wait: float = 0.0) -> r.RequestDetails:
        return self._submit(_path("dags", dag_id), wait, {"is_paused": True}, method="PATCH")

    def unpause_dag(self, dag_id: str, *, wait: float = 0.0) -> r.RequestDetails:
        return self._submit(_path("dags", dag_id), wait, {"is_paused": False}, method="PATCH")

    def deactivate_dag(self, dag_id: str, *, wait: float = 0.0) -> r.RequestDetails:
        return self._submit(_path("dags", dag_id, "deactivate"), wait)

    def trigger(
        self, dag_id: str, *, logical_date: Date | None = None, partition_key: str | None = None,
        conf: Mapping[str, Any] | None = None, allow_future: bool = False, wait: float = 0.0,
        idempotency_key: str | None = None,
    ) -> r.RequestDetails:  # fmt: skip
        """Triggers a manual run; its id is `object_id` of the answer. Without a date or partition: of the latest complete
        interval. A date in the future is refused, unless `allow_future`."""
        more: dict[str, Any] = {"allow_future": True} if allow_future else {}
        more |= {} if partition_key is None else {"partition_key": partition_key}
        body = {"logical_date": logical_date, "conf": conf or {}, **more}
        return self._submit(_path("dags", dag_id, "runs"), wait, body, key=idempotency_key)

    def render(
        self, dag_id: str, logical_date: Date | None = None, *, task_id: str | None = None,
        partition_key: str | None = None, conf: Mapping[str, Any] | None = None,
    ) -> r.RenderedRun:  # fmt: skip
        """What the tasks of a run by hand would see: SQL with its parameters, params, interval."""
        query = {
            "logical_date": None if logical_date is None else str(logical_date), "task_id": task_id,
            "partition_key": partition_key, "conf": json.dumps(conf) if conf else None,
        }  # fmt: skip
        return self._read(r.RenderedRun, _path("dags", dag_id, "render"), query)

    def next_intervals(self, dag_id: str, n: int = 1) -> list[r.Interval]:
        """The next intervals that will be scheduled."""
        intervals: list[r.Interval] = []
        while len(intervals) < n:
            size = min(PAGE, n - len(intervals))
            after = format_instant(intervals[-1].interval_end) if intervals else None
            page = self._connection.read(_path("dags", dag_id, "next"), {"n": size, "after": after})
            intervals += map(r.Interval.model_validate, page)
            if len(page) < size:
                break
        return intervals

    def timeline(self, dag_id: str, *, limit: int | None = None) -> list[r.TimelineRun]:
        """The current runs of the newest dates (None: of all), oldest first."""
        size = None if limit is None else max(1, limit)
        newest_first = self._list(r.TimelineRun, _path("dags", dag_id, "timeline"), size)
        return list(islice(newest_first, limit))[::-1]

    def grid(
        self, dag_id: str, *, limit: int = 30, cursor: str | None = None, order: Literal["date", "made"] = "date"
    ) -> r.Grid:
        """The newest runs, oldest first, with the state of each task; older ones by `cursor`."""
        return self._read(r.Grid, _path("dags", dag_id, "grid"), {"limit": limit, "cursor": cursor, "order": order})

    def versions(self, dag_id: str) -> Iterator[r.DagVersion]:
        return self._list(r.DagVersion, _path("dags", dag_id, "versions"))

    def version_diff(self, dag_id: str, before: int, after: int) -> r.VersionDiff:
        path = _path("dags", dag_id, "versions", "diff")
        return self._read(r.VersionDiff, path, {"before": before, "after": after})

    def clear(self, dag_id: str, *, wait: float = 0.0, **filters: Any) -> r.RequestDetails:
        """Clears finished tasks, so that they run again. `filters`: the fields of `schemas.commands.ClearTasks`."""
        return self._submit(_path("dags", dag_id, "clear"), wait, {**filters, "dry_run": False})

    def plan_clear(self, dag_id: str, **filters: Any) -> r.ClearPlan:
        """What `clear` would clear."""
        body = _json({**filters, "dry_run": True})
        return r.ClearPlan.model_validate(self._connection.change("POST", _path("dags", dag_id, "clear"), body))

    def mark_runs(
        self, dag_id: str, state: Literal["success", "failed"], *, wait: float = 0.0, **filters: Any
    ) -> r.RequestDetails:
        """Sets several runs to a state. `filters`: the fields of `schemas.commands.ChosenRuns`."""
        return self._submit(_path("dags", dag_id, "mark"), wait, {**filters, "state": state, "dry_run": False})

    def plan_mark(self, dag_id: str, state: Literal["success", "failed"], **filters: Any) -> r.MarkPlan:
        """What `mark_runs` would do."""
        body = _json({**filters, "state": state, "dry_run": True})
        return r.MarkPlan.model_validate(self._connection.change("POST", _path("dags", dag_id, "mark"), body))

    def import_errors(self, *, bundle: str | None = None) -> Iterator[r.ImportProblem]:
        return self._list(r.ImportProblem, "/import_errors", filters={"bundle": bundle})

    # -- runs ---------------------------------------------------------------------------------------------------------
    def runs(
        self, *, dag_id: str | None = None, backfill_id: str | None = None, state: str | Sequence[str] = (),
        run_type: str | None = None, order_by: str | None = None, limit: int | None = None,
    ) -> Iterator[r.Run]:  # fmt: skip
        """Newest first, unless `order_by` says otherwise."""
        of = {"dag_id": dag_id, "backfill_id": backfill_id}
        return self._list(
            r.Run, "/runs", limit, {**of, "state": _several(state), "run_type": run_type, "order_by": order_by}
        )

    def run(self, run_id: str, *, dag_id: str | None = None) -> r.RunDetails:
        """With its DAG (here, or as `DAG/RUN`) also by logical date. Without one, an id that several DAGs have raises
        `Ambiguous`, which names them."""
        return self._read(r.RunDetails, _run(run_id, dag_id))

    def run_tasks(self, run_id: str, *, dag_id: str | None = None, task_id: str | None = None) -> r.RunTasks:
        """Large results are left out, except for a single task (`task_id`)."""
        return self._read(r.RunTasks, _run(run_id, dag_id, "tasks"), {"task_id": task_id})

    def checks(self, run_id: str, *, dag_id: str | None = None, task_id: str | None = None) -> Sequence[r.CheckResult]:
        """What the checks of a run, or of one of its tasks, have found, by task and try."""
        return self._read(r.Page[r.CheckResult], _run(run_id, dag_id, "checks"), {"task_id": task_id}).items

    def logs(
        self, run_id: str, task_id: str, *, dag_id: str | None = None, try_number: int | None = None,
        after: str | None = None,
    ) -> r.Log:  # fmt: skip
        """The log of a task; `after` of one result, given to the next call, returns only newer lines."""
        return self._read(r.Log, _run(run_id, dag_id, "tasks", task_id, "logs"), {"try": try_number, "after": after})

    def cancel_run(self, run_id: str, *, dag_id: str | None = None, wait: float = 0.0) -> r.RequestDetails:
        return self._submit(_run(run_id, dag_id, "cancel"), wait)

    def revert_run(
        self, run_id: str, *, dag_id: str | None = None, dry_run: bool = False, wait: float = 0.0
    ) -> r.RequestDetails:
        """Puts what it has written back to what it was before it; what that is, is the request's `result`. `dry_run`: only says
        so."""
        return self._submit(_run(run_id, dag_id, "revert"), wait, {"dry_run": dry_run})

    def note_run(
        self, run_id: str, text: str, *, dag_id: str | None = None, was: str | None = None, wait: float = 0.0
    ) -> r.RequestDetails:
        """As `note_backfill`, on a run."""
        return self._submit(_run(run_id, dag_id, "note"), wait, {"text": text, "was": was}, method="PATCH")

    def mark_run(
        self, run_id: str, state: Literal["success", "failed"], *, dag_id: str | None = None, wait: float = 0.0
    ) -> r.RequestDetails:
        return self._submit(_run(run_id, dag_id, "mark"), wait, {"state": state})

    def mark_task(
        self, run_id: str, task_id: str, state: Literal["success", "failed", "skipped"], *, dag_id: str | None = None,
        wait: float = 0.0,
    ) -> r.RequestDetails:  # fmt: skip
        return self._submit(_run(run_id, dag_id, "mark"), wait, {"state": state, "task_id": task_id})

    # -- pools, bundles, requests, health -----------------------------------------------------------------------------
    def pools(self) -> Iterator[r.Pool]:
        return self._list(r.Pool, "/pools")

    def set_pool(self, name: str, *, wait: float = 0.0, **settings: int | str | None) -> r.RequestDetails:
        """`slots`, `weight`, `min_share`, `memory_mb` (2048, "2 GB"), `nice`; what is None or left out stays. "none" takes memory
        or nice away."""
        given = {key: value for key, value in settings.items() if value is not None}
        return self._submit(_path("pools", name), wait, given, method="PATCH")

    def tables(self) -> Iterator[r.Table]:
        return self._list(r.Table, "/tables")

    def table_intervals(self, table: str, *, limit: int | None = None) -> Iterator[r.TableInterval]:
        """Of the table with this name or path: who has written which interval or partition last, the newest write first."""
        return self._list(r.TableInterval, "/tables/intervals", limit, {"table": table})

    def lineage(self, *, dag_id: str | None = None, table: str | None = None) -> r.Lineage:
        """Of a DAG or of a table."""
        return self._read(r.Lineage, "/lineage", {"dag_id": dag_id, "table": table})

    def gaps(self, dag_id: str, *, start_date: str | None = None, end_date: str | None = None) -> Iterator[r.Gap]:
        """Where the tables that a DAG writes do not hold what its runs say, by the tables' logs. Dates as of a backfill."""
        return self._list(
            r.Gap, _path("dags", dag_id, "gaps"), filters={"start_date": start_date, "end_date": end_date}
        )

    def bundles(self) -> Iterator[r.BundleInfo]:
        return self._list(r.BundleInfo, "/bundles")

    def parse_bundle(
        self,
        name: str,
        subpath: str = "",
        *,
        dry_run: bool = False,
        deactivate_removed: bool = False,
        wait: float = 0.0,
    ) -> r.RequestDetails:
        body = {"subpath": subpath, "dry_run": dry_run, "deactivate_removed": deactivate_removed}
        return self._submit(_path("bundles", name, "parse"), wait, body)

    def deactivate_in_bundle(self, name: str, subpath: str, *, wait: float = 0.0) -> r.RequestDetails:
        """Deactivates the DAGs of a file or folder."""
        return self._submit(_path("bundles", name, "deactivate"), wait, {"subpath": subpath})

    def requests(self, *, kind: str | None = None, limit: int | None = None) -> Iterator[r.Request]:
        """Newest first. `kind`: only such as `backfill.create`."""
        return self._list(r.Request, "/requests", limit, {"kind": kind})

    def request(self, request_id: str) -> r.RequestDetails:
        return self._read(r.RequestDetails, _path("requests", request_id))

    def notifications(
        self, *, state: str | Sequence[str] = (), event: str | Sequence[str] = (), target: str | None = None,
        dag_id: str | None = None, backfill_id: str | None = None, order_by: str | None = None, limit: int | None = None,
    ) -> Iterator[r.Notification]:  # fmt: skip
        """Newest first, unless `order_by` says otherwise; up to `limit` of them (None: all)."""
        filters = {
            "state": _several(state), "event": _several(event), "target": target, "dag_id": dag_id, "backfill_id": backfill_id,
            "order_by": order_by,
        }  # fmt: skip
        return self._list(r.Notification, "/notifications", limit, filters)

    def health(self) -> r.Health:
        return self._read(r.Health, "/health")

    # -- internal -----------------------------------------------------------------------------------------------------
    def _read(self, model: type[T], path: str, params: Mapping[str, Any] | None = None) -> T:
        return model.model_validate(self._connection.read(path, params))

    def _submit(
        self, path: str, wait: float, body: Any = None, *, method: str = "POST", key: str | None = None
    ) -> r.RequestDetails:
        document = self._connection.change(method, path, _json(body), wait=wait, key=key)
        return r.RequestDetails.model_validate(document)

    def _list(
        self, model: type[T], path: str, limit: int | None = None, filters: Mapping[str, Any] | None = None
    ) -> Iterator[T]:
        size = PAGE if limit is None else min(PAGE, limit)
        return islice(self._every(model, path, {**(filters or {}), "limit": size}), limit)

    def _every(self, model: type[T], path: str, params: Mapping[str, Any]) -> Iterator[T]:
        cursor: str | None = None
        while True:
            page = self._connection.read(path, {**params, "cursor": cursor})
            yield from map(model.model_validate, page["items"])
            cursor = page.get("next_cursor")
            if cursor is None:
                return

    def _watch(self, path: str) -> Iterator[r.BackfillDetails]:
        etag: str | None = None
        last: r.BackfillDetails | None = None
        answered_at = time.monotonic()
        for _ in self._ticks():
            try:
                changed = self._connection.read_if_changed(path, etag)
            except Unreachable:
                if last is None or time.monotonic() - answered_at > MAX_AWAY_S:
                    raise
                continue
            answered_at = time.monotonic()
            if changed is None:
                continue
            document, etag = changed
            backfill = r.BackfillDetails.model_validate(document)
            if backfill != last:
                yield backfill
                last = backfill
            if backfill.has_ended:
                return

    def _ticks(self) -> Iterator[None]:
        """When to read: at once, at each server-sent event, or every second where these don't come through."""
        yield
        while True:
            # After an error, the next read meets the same one, or none.
            with suppress(BackfillManagerError), self._connection.events({"topics": WATCHED_TABLES}) as events:
                for event in events:
                    if event.event == "changed":
                        yield
            until = time.monotonic() + RECONNECT_INTERVAL_S
            while time.monotonic() < until:
                self._pause(POLL_INTERVAL_S)
                yield


def token_of(environ: Mapping[str, str]) -> str | None:
    """From `BFM_TOKEN`, or the file that `BFM_TOKEN_FILE` names. Never from an option: every user sees those in `ps`."""
    if token := environ.get("BFM_TOKEN", "").strip():
        return token
    path = environ.get("BFM_TOKEN_FILE")
    if not path:
        return None
    try:
        return Path(path).expanduser().read_text(encoding="utf-8").strip() or None
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not text"
        raise InvalidInput(f"BFM_TOKEN_FILE: {path} can't be read: {reason}.") from None


def _json(value: Any) -> Any:
    """A value as JSON. An aware date is sent as an instant, a naive one without offset: it is in the DAG's time zone."""
    if isinstance(value, datetime):
        return value.isoformat() if value.tzinfo is None else format_instant(value)
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, Mapping):
        return {str(name): _json(one) for name, one in value.items()}
    if isinstance(value, (set, frozenset)):  # in one order, so that a program that sends it again sends the same
        return sorted(map(_json, value), key=str)
    if isinstance(value, (list, tuple)):
        return [_json(one) for one in value]
    return value


def _several(values: str | Sequence[str]) -> tuple[str, ...]:
    """One text is one value, not its letters."""
    return (values,) if isinstance(values, str) else tuple(values)


def _path(*parts: str) -> str:
    """Each part is quoted: a partition's run id may have a slash."""
    return "/" + "/".join(quote(part, safe="") for part in parts)


def _run(run_id: str, dag_id: str | None, *more: str) -> str:
    """The address of a run; with its DAG it is the one that no other run has."""
    return _path("runs", run_id, *more) if dag_id is None else _path("dags", dag_id, "runs", run_id, *more)
