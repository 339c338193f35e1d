"""Runs that a person asks for: a trigger of a DAG, and a run of one task."""

from __future__ import annotations

import json
from datetime import datetime

from backfill_manager.clock import in_zone
from backfill_manager.dags.run_params import check_conf
from backfill_manager.errors import NotFound
from backfill_manager.manager.decisions.create_run import make_run
from backfill_manager.manager.prefetch import timeline_around
from backfill_manager.manager.state import ManagerState
from backfill_manager.manager.tick_context import Answer, Call, Handler
from backfill_manager.model import states as s
from backfill_manager.model.records import DagRow, DagRun
from backfill_manager.planning.runs.next_run import interval_from, manual_interval
from backfill_manager.planning.runs.timeline import TimelineWindow, run_id_for, timeline_key
from backfill_manager.requests.checked_payloads import check_logical_date, check_place
from backfill_manager.schemas import commands, errors
from backfill_manager.schemas.command import Command
from backfill_manager.store.base import Store, matching


class NewRuns:
    def __init__(self, state: ManagerState, store: Store) -> None:
        self._state, self._store = state, store
        self.handlers: dict[type[Command], Handler] = {
            commands.TriggerDag: self._trigger, commands.RunTask: self._run_task,
        }  # fmt: skip

    def _trigger(self, command: commands.TriggerDag, call: Call) -> Answer:
        dag, spec = self._state.active_dag(command.dag_id), self._state.current_spec(command.dag_id)
        check_place(command.logical_date, command.partition_key)
        partition = command.partition_key
        interval = None if partition is not None else manual_interval(spec, command.logical_date, call.now)
        dates, keys = ([interval[0]], []) if interval else ([], [partition or ""])
        timeline = TimelineWindow.of(timeline_around(dag.dag_id, dates, keys, self._store))
        key = timeline_key(interval[0] if interval else None, partition)
        current = timeline.current_at(key)
        if current is not None and current.request_id == call.id:
            return current.run_id, f"run {current.run_id} exists already"
        check_conf(command.conf, spec)
        check_logical_date(command.logical_date, call.now, allow_future=command.allow_future)
        if current is not None and current.state in s.RUN_LIVE:
            raise errors.RUN_IS_LIVE(run_id=current.run_id, state=current.state)
        batch = timeline.covering(key[0])
        if batch is not None and batch.state in s.RUN_LIVE:
            raise errors.BATCH_IS_LIVE(run_id=batch.run_id, items=batch.items, state=batch.state)
        run_id, conf = timeline.next_run_id(s.MANUAL_RUN, key), json.dumps(command.conf)
        row = _new_run(call, dag, s.MANUAL_RUN, run_id, interval).evolve(conf_json=conf, partition_key=partition)
        make_run(self._state, row, spec, timeline, [current] if current else [])
        text = f"run {row.run_id}"
        if interval and interval[0] != interval[1]:
            whole = interval_from(spec, interval[0], call.now)
            if whole[0] != interval[0]:
                text += f", of a part of an interval (the next whole one starts at {in_zone(whole[0], spec.timezone)}),"
            text += f" from {in_zone(interval[0], spec.timezone)} to {in_zone(interval[1], spec.timezone)}"
        if current:
            keeps_others = self._state.changes.latest(current).state != s.OVERRIDDEN
            text += f"; it overrides {current.run_id}{' on this date' if keeps_others else ''}"
        if interval and interval[1] > max(interval[0], call.now):
            text += "; its interval has not ended: the schedule does it over when it has"
        return row.run_id, text

    def _run_task(self, command: commands.RunTask, call: Call) -> Answer:
        dag, spec = self._state.active_dag(command.dag_id), self._state.current_spec(command.dag_id)
        task_id = command.task_id
        if task_id not in spec.by_id:
            raise NotFound("task", task_id, spec.by_id, more=f" in DAG {dag.dag_id!r}; it has {', '.join(spec.by_id)}")
        if spec.is_callback(task_id):
            raise errors.CALLBACK_BY_HAND(task_id=task_id, dag_id=dag.dag_id)
        run_id = run_id_for(s.EXTERNAL_RUN, timeline_key(call.request.requested_at, None))
        own_id = f"{run_id}__{call.id}"  # when another request came in the same microsecond
        existing = self._store.read(DagRun, matching(dag_id=dag.dag_id, run_id=(run_id, own_id)))
        for run in existing:
            if run.request_id == call.id:
                return run.run_id, f"run {run.run_id} exists already"
        check_conf(command.conf, spec)
        interval = manual_interval(spec, command.logical_date, call.now)
        row = _new_run(call, dag, s.EXTERNAL_RUN, own_id if existing else run_id, interval)
        row = row.evolve(conf_json=json.dumps(command.conf))
        make_run(self._state, row, spec, TimelineWindow(), selected=[task_id])
        return row.run_id, f"task {task_id} runs in {row.run_id}"


def _new_run(
    call: Call, dag: DagRow, run_type: str, run_id: str, interval: tuple[datetime, datetime] | None
) -> DagRun:  # fmt: skip
    """`interval`: None for a run of a partition."""
    start, end = interval or (None, None)
    return DagRun(
        dag_id=dag.dag_id, run_id=run_id, run_type=run_type, state=s.QUEUED, dag_version=dag.current_version,
        run_seq=call.tick.next_seq(1), created_at=call.now, request_id=call.id, logical_date=start,
        interval_start=start, interval_end=end,
    )  # fmt: skip
