"""Who leads, and whether it lives: the lease row, judged by the age of its heartbeat."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from backfill_manager.clock import format_instant
from backfill_manager.model import states
from backfill_manager.model.records import Manager
from backfill_manager.process_info import is_gone
from backfill_manager.store.base import Store

START_ONE = "start one with `bfm manager start`"


def is_lease_live(row: Manager | None, now: datetime) -> bool:
    """True for a leader whose lease has not run out, and that was not killed on this very machine. Two hosts' clocks may
    differ by a part of the lease, not more."""
    return (
        row is not None
        and row.state == states.LEADING
        and now - row.heartbeat_at <= timedelta(seconds=row.lease_s)
        and not is_gone(row.manager_id, row.pid)
    )


def spark_pages(row: Manager | None, now: datetime) -> str | None:
    """Where Spark shows what the manager of this term runs; None when it is gone, or when there are no such pages."""
    told = row.spark_ui if row is not None and is_lease_live(row, now) else None
    return told.rstrip("/") if told is not None and told.startswith(("http://", "https://")) else None


def has_active_manager(store: Store, now: datetime) -> bool:
    return is_lease_live(store.lease(), now)


def manager_status(store: Store, now: datetime) -> dict[str, Any]:
    """The highest term: `leading` says whether that manager lives; `advice` what to do when it does not."""
    return status_of_lease(store.lease(), now)


def status_of_lease(row: Manager | None, now: datetime) -> dict[str, Any]:
    """`manager_status` of a lease that has been read."""
    if row is None:
        return {"leading": False, "term": None, "state": None, "advice": f"No manager has ever led here; {START_ONE}."}
    leading = is_lease_live(row, now)
    if leading:
        advice = None
    elif row.state == states.LEADING:
        advice = f"The last manager went away without a word; {START_ONE}: it goes on where that one stopped."
    else:
        advice = f"The last manager has stopped; {START_ONE}."
    return {
        "leading": leading,
        "term": row.term,
        "manager_id": row.manager_id,
        "host": row.host,
        "pid": row.pid,
        "state": row.state,
        "started_at": format_instant(row.started_at),
        "heartbeat_at": format_instant(row.heartbeat_at),
        "heartbeat_age_s": round((now - row.heartbeat_at).total_seconds(), 1),
        "lease_s": row.lease_s,
        "ended_at": format_instant(row.ended_at),
        "version": row.version,
        "application_id": row.application_id,
        "spark_ui": row.spark_ui,
        "ticks": row.ticks,
        "commits": row.commits,
        "tick_ms": row.tick_ms,
        "commit_ms": row.commit_ms,
        "advice": advice,
    }
