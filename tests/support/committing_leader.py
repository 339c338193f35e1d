"""Runs a leader on a large state as a process: `python committing_leader.py ROOT BACKFILL`. Every second one tick, which ends
the runs of twenty items, with their task instances, and starts as many. It says `leading` when it does, and goes when its
standard input is closed."""

from __future__ import annotations

import os
import select
import sys
from datetime import timedelta

from backfill_manager.clock import SystemClock
from backfill_manager.model.records import Backfill, BackfillItem, DagRun, Manager, TaskInstance
from backfill_manager.model.transitions import Changes
from backfill_manager.store import open_store
from backfill_manager.store.base import Condition, Leader, Store

TICK_S = 1.0
AT_ONCE = 20
TASKS = 10


def lead(store: Store) -> Leader:
    now, last = SystemClock().now(), store.lease()
    return store.lead(
        Manager(
            term=last.term + 1 if last else 1, manager_id="busy", host="here", pid=os.getpid(), state="leading",
            started_at=now, heartbeat_at=now, lease_s=3600, version="bench",
        )
    )  # fmt: skip


def tick(leader: Leader, dag_id: str, running: list[BackfillItem], coming: list[BackfillItem]) -> None:
    """What runs succeeds, what comes runs."""
    now, changes = SystemClock().now(), Changes()
    for item in running:
        changes.put(item.evolve(state="success"))
        _put_run(changes, item, dag_id, "success", now)
    for item in coming:
        changes.put(item)
        _put_run(changes, item, dag_id, "running", now)
    leader.commit(changes)


def _put_run(changes: Changes, item: BackfillItem, dag_id: str, state: str, now) -> None:  # type: ignore[no-untyped-def]
    begun = now - timedelta(seconds=TICK_S)
    changes.put(
        DagRun(
            dag_id=dag_id, run_id=str(item.run_id), run_type="backfill", state=state, dag_version=1,
            run_seq=item.run_seq, created_at=begun, logical_date=item.logical_date, backfill_id=item.backfill_id,
            ordinal=item.ordinal, started_at=begun, ended_at=now if state == "success" else None,
        )
    )  # fmt: skip
    for n in range(TASKS):
        changes.put(TaskInstance(dag_id, str(item.run_id), f"task_{n}", state, item.run_seq, try_number=1, launch=1))


def main(root: str, backfill_id: str) -> None:
    store = open_store(root)
    leader = lead(store)
    [backfill] = store.read(Backfill, [Condition("backfill_id", "=", backfill_id)])
    of_it = [Condition("backfill_id", "=", backfill_id), Condition("state", "=", "pending")]
    pending = store.read(BackfillItem, of_it, order_by=("ordinal",))
    running: list[BackfillItem] = []
    print("leading", flush=True)
    ticks = 0
    while not select.select([sys.stdin], [], [], TICK_S)[0]:
        first = ticks * AT_ONCE % len(pending)  # after the last from the first again
        coming = [
            item.evolve(state="running", run_id=f"busy__{item.ordinal}__{ticks}")
            for item in pending[first : first + AT_ONCE]
        ]
        tick(leader, backfill.dag_id, running, coming)
        running, ticks = coming, ticks + 1
        leader.compact()


if __name__ == "__main__":
    main(*sys.argv[1:3])
