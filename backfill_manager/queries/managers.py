"""The leading manager and whether it is alive (the lease row, judged by the age of its heartbeat), terms, and standbys."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any, Final

from backfill_manager.clock import Clock, format_instant
from backfill_manager.errors import InvalidInput
from backfill_manager.humanise import duration
from backfill_manager.model import states
from backfill_manager.model.records import Manager, Request
from backfill_manager.process_info import is_gone
from backfill_manager.queries.documents import document
from backfill_manager.schemas.payloads import parse_payload
from backfill_manager.schemas.request_kinds import MANAGER_STAND_BY
from backfill_manager.store.base import Condition, Store

_TERM_FIELDS: Final = (
    "term", "manager_id", "host", "pid", "state", "started_at", "heartbeat_at", "ended_at", "version", "application_id",
)  # fmt: skip
_STATUS_FIELDS: Final = (
    "leading", "term", "manager_id", "host", "pid", "state", "started_at", "heartbeat_at", "heartbeat_age_s", "lease_s",
    "ended_at", "version", "application_id", "spark_ui", "ticks", "commits", "tick_ms", "commit_ms", "slow_loop",
    "slow_loop_s", "advice",
)  # fmt: skip


def is_lease_live(row: Manager | None, now: datetime) -> bool:
    """True for a leader whose lease has not expired, and whose process on this machine is not gone. Two hosts' clocks may
    differ by a part of the lease, not more."""
    return (
        row is not None
        and row.state == states.LEADING
        and now - row.heartbeat_at <= timedelta(seconds=row.lease_s)
        and not is_gone(row.manager_id, row.pid)
    )


class LeaseWatch:
    """Who leads, by the time that passes here: a leader whose row has not changed for the time of its lease has ended. For what
    must be right where this machine's clock is wrong."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self._store, self._clock = store, clock
        self._row: Manager | None = None
        self._changed_at = 0.0

    def leader(self) -> Manager | None:
        row, now = self._store.lease(), self._clock.monotonic()
        if row != self._row:
            self._row, self._changed_at = row, now
        if row is None or row.state != states.LEADING or is_gone(row.manager_id, row.pid):
            return None
        return row if now - self._changed_at < row.lease_s else None


def spark_pages(row: Manager | None, now: datetime) -> str | None:
    """The URL of the Spark UI of the manager of this term; None when it is gone, or has none."""
    url = row.spark_ui if row is not None and is_lease_live(row, now) else None
    return url.rstrip("/") if url is not None and url.startswith(("http://", "https://")) else None


def has_active_manager(store: Store, now: datetime) -> bool:
    return is_lease_live(store.lease(), now)


def manager_status(store: Store, now: datetime) -> dict[str, Any]:
    """The highest term: `leading` says whether that manager is active, `advice` what to do when it is not, or one
    of its loops may hang."""
    return status_of_lease(store.lease(), now)


def status_of_lease(row: Manager | None, now: datetime) -> dict[str, Any]:
    """`manager_status` of a lease that has been read."""
    if row is None:
        return {"leading": False, "term": None, "state": None, "advice": "No manager has run here yet."}
    leading = is_lease_live(row, now)
    age_s = round((now - row.heartbeat_at).total_seconds(), 1)
    since = row.slow_loop_since if leading else None
    slow_loop_s = None if since is None else round((now - since).total_seconds(), 1)
    advice = None
    if slow_loop_s is not None:
        at_work = f"Its loop `{row.slow_loop}` has been at the same work for {duration(slow_loop_s)}"
        advice = f"{at_work}, or hangs; its log says where (`component=long_passes`)."
    elif row.state != states.LEADING:
        advice = "The last manager has stopped."
    elif not leading:
        crashed = "The last manager ended without giving its lease back"
        if not is_gone(row.manager_id, row.pid):
            crashed = (
                f"The last heartbeat was {duration(age_s)} ago: the manager has ended, or this machine's clock is ahead"
            )
        advice = f"{crashed}; the next one continues where it stopped."
    return document(_STATUS_FIELDS, row, leading=leading, heartbeat_age_s=age_s, slow_loop_s=slow_loop_s, advice=advice)


STANDBY_TIMEOUT: Final = timedelta(minutes=12)  # a standby reports every five


def list_terms(store: Store, now: datetime) -> list[dict[str, Any]]:
    """The newest terms of leadership first. `leads` is true for the active one, if there is one."""
    rows = store.read(Manager, order_by=("-term",), limit=20)
    return [{**document(_TERM_FIELDS, row), "leads": n == 0 and is_lease_live(row, now)} for n, row in enumerate(rows)]


def list_standbys(store: Store, now: datetime) -> list[dict[str, Any]]:
    """Managers that have reported of late that they stand by: `manager_id`, `host`, `pid`, `since` (first of these reports),
    `said_at` (last one). One that leads by now is left out."""
    where = [Condition("kind", "=", MANAGER_STAND_BY), Condition("requested_at", ">=", now - STANDBY_TIMEOUT)]
    lease = store.lease()
    found: dict[str, dict[str, Any]] = {}
    for row in store.read(Request, where, order_by=("requested_at",)):
        try:
            report = parse_payload(row.kind, row.payload_json)
        except InvalidInput:  # not a manager's
            continue
        at = format_instant(row.requested_at)
        first = found.get(report["manager_id"], {"since": at})
        found[report["manager_id"]] = {**report, "since": first["since"], "said_at": at}
    return [one for one in found.values() if lease is None or one["manager_id"] != lease.manager_id]
