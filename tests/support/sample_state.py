"""A real state on disk, filled as a manager would fill it, and a clock that stands still until it is set."""

from __future__ import annotations

import atexit
import functools
import json
import os
import shutil
import tempfile
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from backfill_manager.clock import UTC, format_instant
from backfill_manager.dags.definition import DagSpec, TaskSpec
from backfill_manager.dags.schedule.timetable import parse_date
from backfill_manager.model.records import (
    Backfill,
    BackfillItem,
    DagRow,
    DagRun,
    DagVersion,
    ImportProblem,
    Manager,
    Pool,
    Record,
    Request,
    Response,
    TaskInstance,
    TaskLog,
)
from backfill_manager.model.transitions import Changes
from backfill_manager.schemas.backfill_options import CreateBackfill
from backfill_manager.store.base import Leader
from backfill_manager.store.delta_rs.store import DeltaRsStore

NOON = datetime(2024, 5, 15, 12, 0, tzinfo=UTC)
NEW_YEAR = datetime(2013, 1, 1, 5, 0, tzinfo=UTC)  # midnight in New York
DAY = timedelta(days=1)


@functools.cache
def _made_once(fill: Callable[[FilledState], None] | None) -> tuple[str, StandingClock]:
    """The folder of a state that `fill` has filled, and the clock after that; without `fill`, it has no rows. It is made once
    for all tests of this process, and deleted at its end, not at that of a forked child."""
    folder, owner = tempfile.mkdtemp(prefix="bfm-state-"), os.getpid()
    atexit.register(lambda: os.getpid() == owner and shutil.rmtree(folder, ignore_errors=True))
    clock = StandingClock()
    if fill is None:
        DeltaRsStore(folder, clock=clock).init()
    else:
        os.rmdir(folder)
        fill(FilledState(Path(folder), clock))
    return folder, clock


class StandingClock:
    """Stands at NOON. `pass_time` is what tests hand in as the pause between two looks: time goes on by it, and of what
    was put into `meanwhile` one thing happens."""

    def __init__(self) -> None:
        self.at = NOON
        self.ids = 0
        self.pauses = 0
        self.meanwhile: list[Callable[[], object]] = []

    def now(self) -> datetime:
        return self.at

    def monotonic(self) -> float:
        return (self.at - NOON).total_seconds()

    def boottime(self) -> float:
        return self.monotonic()

    def new_id(self) -> str:
        self.ids += 1
        return f"{self.ids:012x}"

    def pass_time(self, seconds: float) -> None:
        self.at += timedelta(seconds=seconds)
        self.pauses += 1
        assert self.pauses < 2000, "this wait never ends"
        if self.meanwhile:
            self.meanwhile.pop(0)()


class FilledState:
    """What the tests call the manager's hand: each method is one commit of the leader."""

    def __init__(self, root: Path, clock: StandingClock) -> None:
        self.root = root
        self.clock = clock
        self.store = DeltaRsStore(str(root), clock=clock)
        if root.exists():
            self.store.init()
        else:
            shutil.copytree(_made_once(None)[0], root)  # much faster than making fourteen tables
        self._leader: Leader | None = None

    def filled_by(self, fill: Callable[[FilledState], None]) -> FilledState:
        """This state, which is new, as if `fill` had filled it."""
        folder, clock = _made_once(fill)
        shutil.copytree(folder, self.root, dirs_exist_ok=True)  # adds commits: both began with the same empty state
        self.clock.at, self.clock.ids = clock.at, clock.ids
        return self

    @property
    def leader(self) -> Leader:
        """Whoever writes. Its lease is long over unless `leads` has said otherwise."""
        if self._leader is None:
            self._leader = self.store.lead(self._lease(self.clock.at - DAY))
        return self._leader

    def leads(self) -> None:
        """A manager lives."""
        self._leader = self.store.lead(self._lease(self.clock.at))

    def goes(self) -> None:
        self.leader.resign(self.clock.at)

    def _lease(self, at: datetime) -> Manager:
        last = self.store.lease()
        return Manager(
            term=last.term + 1 if last else 1, manager_id="m1", host="here", pid=4711, state="leading", started_at=at,
            heartbeat_at=at, lease_s=3600, version="0.1.0",
        )  # fmt: skip

    def put(self, *rows: Record) -> None:
        changes = Changes()
        for row in rows:
            changes.put(row)
        self.leader.commit(changes)

    def dag(
        self,
        dag_id: str = "flights",
        *,
        tasks: Sequence[TaskSpec] = (TaskSpec("clean"), TaskSpec("delays", upstream=("clean",))),
        schedule: str | dict[str, float] | None = "@daily",
        version: int = 1,
        is_active: bool = True,
        is_paused: bool = False,
        start_date: datetime | None = NEW_YEAR,
        end_date: datetime | None = None,
        **settings: Any,
    ) -> DagSpec:
        spec = DagSpec(
            dag_id=dag_id, tasks=tuple(tasks), schedule=schedule, start_date=start_date, end_date=end_date,
            timezone="America/New_York", file=f"{dag_id}.py", **settings,
        )  # fmt: skip
        row = DagRow(
            dag_id=dag_id, bundle="examples", file=spec.file, current_version=version, is_paused=is_paused,
            is_active=is_active, schedule=json.dumps(schedule), timezone=spec.timezone, updated_at=self.clock.at,
        )  # fmt: skip
        self.put(
            row,
            DagVersion(
                dag_id=dag_id, version=version, content_hash=f"h{version}", definition_json=spec.to_json(),
                bundle="examples", file=spec.file, snapshot="there", created_at=self.clock.at,
            ),
        )  # fmt: skip
        return spec

    def pools(self) -> None:
        self.put(
            Pool(name="scheduled", slots=16, weight=4, min_share=2),
            Pool(name="backfill", slots=16, weight=1, min_share=0),
        )

    def import_error(self, file: str = "broken.py") -> None:
        self.put(
            ImportProblem(
                bundle="examples", file=file, line=3, message="SyntaxError: '(' was never closed",
                traceback="Traceback …", is_current=True, first_seen_at=self.clock.at, last_seen_at=self.clock.at,
            )
        )  # fmt: skip

    def backfill(
        self,
        backfill_id: str,
        items: Mapping[str, int] | None = None,
        *,
        state: str = "running",
        dag_id: str = "flights",
        reason: str | None = None,
        stop_on_failure: int | None = None,
        **fields: Any,
    ) -> None:
        """A backfill whose items are in these states, in this order; each item that ran has a run and its tasks."""
        states = [one for one, number in (items or {}).items() for _ in range(number)]
        seq = self.leader.next_seq(len(states) + 1)
        rows: list[Record] = []
        for n, item_state in enumerate(states):
            at = NEW_YEAR + n * DAY
            run_id = f"backfill__{at:%Y-%m-%dT%H:%M:%SZ}"
            ran = item_state in {"success", "failed", "running"}
            rows.append(
                BackfillItem(
                    backfill_id=backfill_id, ordinal=n + 1, state=item_state, run_seq=seq + n, logical_date=at,
                    interval_start=at, interval_end=at + DAY, run_id=run_id if ran else None,
                    reason="already exists" if item_state == "skipped" else None,
                )
            )  # fmt: skip
            if ran:
                rows += self._run(dag_id, run_id, at, item_state, seq + n, backfill_id)
        over = state in {"success", "failed", "cancelled"}
        rows.append(
            Backfill(
                backfill_id=backfill_id, dag_id=dag_id, state=state,
                config_json=json.dumps({"type": "schedule", "start_date": "2013-01-01T05:00:00Z",
                                        "end_date": "2013-01-31T05:00:00Z", "run_backwards": False}),
                reprocess="none", max_active_runs=16, priority=0, pool="backfill", is_paused=state == "paused",
                created_at=self.clock.at, run_seq=seq + len(states), planned=len(states), dag_version=1,
                created_by="ada", started_at=self.clock.at, reason=reason, stop_on_failure=stop_on_failure,
                completed_at=self.clock.at + timedelta(seconds=42) if over else None,
            ).evolve(**fields)
        )  # fmt: skip
        self.put(*rows)

    def run(
        self,
        on: str | None = None,
        tasks: Mapping[str, str] | None = None,
        *,
        dag_id: str = "flights",
        run_type: str = "scheduled",
        run_id: str | None = None,
        **fields: Any,
    ) -> str:
        """One run for a day in New York (`on`: `2013-01-05`; None: a run without a date) with its tasks by state."""
        at = None if on is None else parse_date(on, "America/New_York", name="on")
        run_id = run_id or "__".join(part for part in (run_type, format_instant(at)) if part)
        seq = self.leader.next_seq()
        plain = {"state": "success", "dag_version": 1, "interval_start": at, "interval_end": at and at + DAY}
        row = DagRun(
            dag_id=dag_id, run_id=run_id, run_type=run_type, run_seq=seq, created_at=self.clock.at, logical_date=at,
            **{**plain, **fields},
        )  # fmt: skip
        instances = [TaskInstance(dag_id, run_id, task, one, seq) for task, one in (tasks or {}).items()]
        self.put(row, *instances)
        return run_id

    def task_goes(self, run_id: str, task_id: str, state: str, **fields: Any) -> None:
        [row] = [ti for ti in self.store.read(TaskInstance) if (ti.run_id, ti.task_id) == (run_id, task_id)]
        self.put(row.evolve(state=state, **fields))

    def goes_on(
        self,
        backfill_id: str,
        state: str | None = None,
        *,
        succeed: Sequence[int] = (),
        fail: Sequence[int] = (),
        start: Sequence[int] = (),
        reason: str | None = None,
    ) -> None:
        """The items of these ordinals succeed, fail, start; then the backfill itself takes this state."""
        moves = [(n, to) for to, ns in (("success", succeed), ("failed", fail), ("running", start)) for n in ns]
        items = {row.ordinal: row for row in self.store.read(BackfillItem) if row.backfill_id == backfill_id}
        rows: list[Record] = []
        for ordinal, to in moves:
            item = items[ordinal]
            assert item.logical_date is not None
            run_id = f"backfill__{item.logical_date:%Y-%m-%dT%H:%M:%SZ}"
            rows.append(item.evolve(state=to, run_id=run_id))
            rows += self._run("flights", run_id, item.logical_date, to, item.run_seq, backfill_id)
        if state is not None:
            [backfill] = [row for row in self.store.read(Backfill) if row.backfill_id == backfill_id]
            over = self.clock.at if state in {"success", "failed", "cancelled"} else None
            rows.append(backfill.evolve(state=state, reason=reason, completed_at=over))
        self.put(*rows)

    def _run(
        self, dag_id: str, run_id: str, at: datetime, state: str, seq: int, backfill_id: str | None
    ) -> list[Record]:
        begun, over = self.clock.at, state != "running"
        ended = begun + timedelta(seconds=2) if over else None
        run = DagRun(
            dag_id=dag_id, run_id=run_id, run_type="backfill", state=state, dag_version=1, run_seq=seq,
            created_at=begun, logical_date=at, interval_start=at, interval_end=at + DAY, backfill_id=backfill_id,
            started_at=begun, ended_at=ended, is_partial=False,
        )  # fmt: skip
        clean = TaskInstance(
            dag_id=dag_id, run_id=run_id, task_id="clean", state=state, run_seq=seq, try_number=1, launch=1,
            pool="backfill", queued_at=begun, started_at=begun, ended_at=ended, duration_s=2.0 if over else None,
            error="ValueError: no such [day]\nsecond line" if state == "failed" else None,
        )  # fmt: skip
        after = "success" if state == "success" else "upstream_failed" if state == "failed" else "none"
        delays = TaskInstance(dag_id=dag_id, run_id=run_id, task_id="delays", state=after, run_seq=seq)
        return [run, clean, delays]

    def logged(
        self, run_id: str, *messages: str, launch: int = 1, dag_id: str = "flights", task_id: str = "clean"
    ) -> None:
        seq = next(row.run_seq for row in self.store.read(DagRun) if row.run_id == run_id)
        before = len(self.store.read(TaskLog))
        self.put(
            *(
                TaskLog(
                    dag_id=dag_id, run_id=run_id, task_id=task_id, launch=launch, try_number=launch, line=before + n,
                    at=self.clock.at, level="info", message=message, run_seq=seq,
                )
                for n, message in enumerate(messages)
            )
        )  # fmt: skip

    def requested(self, backfill_id: str, *, dag_id: str = "flights", request_id: str | None = None) -> Request:
        ask = CreateBackfill(dag_id=dag_id, start_date=NEW_YEAR, end_date=NEW_YEAR + 30 * DAY)
        request = Request(
            request_id=request_id or f"r{backfill_id}", kind="backfill.create",
            payload_json=json.dumps({"backfill_id": backfill_id, "ask": ask.to_payload()}),
            requested_by="ada", requested_at=self.clock.at,
        )  # fmt: skip
        self.store.append_request(request)
        return request

    def answers(
        self,
        request: Request,
        outcome: str = "accepted",
        message: str = "done",
        payload: object = None,
        object_id: str | None = None,
    ) -> None:
        self.put(
            Response(
                request_id=request.request_id, kind=request.kind, outcome=outcome, object_id=object_id, message=message,
                payload_json=None if payload is None else json.dumps(payload), answered_at=self.clock.at,
                term=self.leader.term,
            )
        )  # fmt: skip

    def answers_next(
        self,
        outcome: str = "accepted",
        message: str = "done",
        payload: object = None,
        object_id: str | None = None,
    ) -> None:
        """Whatever was asked last and not answered."""
        self.answers(self.store.unanswered()[-1], outcome, message, payload, object_id)

    def fingerprint(self) -> dict[str, int]:
        """The version of every table: equal before and after means that nothing was written."""
        logs = {table: Path(place) / "_delta_log" for table, place in self.store.locations().items()}
        return {table: max(int(commit.stem) for commit in log.glob("*[0-9].json")) for table, log in logs.items()}
