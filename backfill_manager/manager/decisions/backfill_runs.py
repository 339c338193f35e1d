"""Advances backfills: items become runs, and backfills end. Pure decisions over `ManagerState`.

Items are taken in order, as many at a time as the backfill's `batch` allows, while fewer than `max_active_runs` of its runs are
active. The timeline is checked again before each: runs that have appeared on a date since the plan was made decide whether it is
run again or skipped. To a backfill of all tasks a date with a partial run counts as one without any.

With `reprocess` `failed_tasks`, the failed tasks of an existing run, and all that depends on them, run again in place: the run
becomes this backfill's, whose limits, pool, pause and cancel apply to it.

The state of a backfill is derived: it ends when its items have ended.
"""

from __future__ import annotations

from datetime import datetime
from itertools import islice, takewhile
from typing import Final, Literal

from backfill_manager.clock import EPOCH
from backfill_manager.dags.stored_definition import UnreadableSpec
from backfill_manager.humanise import not_succeeded, plural
from backfill_manager.logging import get_logger
from backfill_manager.manager.decisions import notification_rules
from backfill_manager.manager.decisions.auto_batch_inputs import next_size
from backfill_manager.manager.decisions.create_run import existing_run, make_run, remove_unmapped
from backfill_manager.manager.decisions.data_waits import external_waits, looked_alike, waiting_alike
from backfill_manager.manager.decisions.item_outcomes import batch_of_half, close_pending, end_items
from backfill_manager.manager.decisions.runs import end_run
from backfill_manager.manager.state import ActiveBackfill, ManagerState
from backfill_manager.manager.tick_context import Tick
from backfill_manager.manager.upstream_items import UpstreamItems, meets
from backfill_manager.model import states as s
from backfill_manager.model import transitions as c
from backfill_manager.model.records import BackfillItem, DagRun
from backfill_manager.planning.backfills.time_window import TimeWindow
from backfill_manager.planning.batches.joined_items import next_batch
from backfill_manager.planning.runs.clear_plan import failed_and_after
from backfill_manager.planning.runs.timeline import is_current, preview_run_type, timeline_key
from backfill_manager.schemas.backfill_options import CreateBackfill

log = get_logger("backfills")

_FAILED: Final = frozenset({s.FAILED, s.CANCELLED})
RERUN_STATES: Final = dict(none=frozenset(), failed=_FAILED, failed_tasks=_FAILED, completed=_FAILED | {s.SUCCESS})
# What becomes of an item. The last two are skipped, and shown as its reason.
Verdict = Literal["make", "rerun", "adopt", "in flight", "already exists"]


def advance_backfills(tick: Tick) -> None:
    for live in list(tick.state.backfills.values()):
        _advance(tick, live)


def next_window_opening(state: ManagerState) -> datetime | None:
    """When the next backfill that waits for its time window may continue."""
    waiting = (live.row.waits_until for live in state.backfills.values())
    return min((opens_at for opens_at in waiting if opens_at is not None), default=None)


def _window_opens_at(live: ActiveBackfill, now: datetime) -> datetime | None:
    """When the time window opens that pending items wait for; None: they wait for none."""
    row = live.row
    if row.window is None or row.is_paused or row.is_cancelled or not live.counts[s.PENDING]:
        return None
    window, zone = TimeWindow.parse(row.window), live.spec.timezone
    return None if window.is_open(now, zone) else window.opens_at(now, zone)


def _advance(tick: Tick, live: ActiveBackfill) -> None:
    if isinstance(live.spec, UnreadableSpec) and not live.row.is_paused and not live.row.is_cancelled:
        reason, row = live.spec.description, live.row
        log.error("a backfill is paused: it can't be read", backfill=row.backfill_id, dag=row.dag_id, reason=reason)
        tick.put(c.backfill_paused(row, reason))
        notification_rules.backfill_paused(tick, live, reason)
    if live.counts[s.FAILED] < live.row.failed_when_resumed:  # some of them run again: if they fail, that counts
        tick.put(live.row.evolve(failed_when_resumed=live.counts[s.FAILED]))
    failures = live.counts[s.FAILED] - live.row.failed_when_resumed
    limit = live.row.stop_on_failure
    if limit is not None and failures >= limit and live.counts[s.PENDING] and not live.row.is_paused:
        tick.halted.append(live)
        reason = f"{plural(failures, 'failed item')}: paused by stop_on_failure={limit}"
        tick.put(c.backfill_paused(live.row, reason))
        notification_rules.backfill_paused(tick, live, reason)
    opens_at = _window_opens_at(live, tick.now)
    if live.row.waits_until != opens_at:
        tick.put(live.row.evolve(waits_until=opens_at))
    since, live.first_look = live.first_look, None
    if not live.row.is_paused and not live.row.is_cancelled and opens_at is None:
        _make_runs(tick, live, since)
    if live.row.state == s.QUEUED and live.running:
        tick.put(c.backfill_started(live.row, tick.now))
    if live.counts[s.PENDING] == 0 and live.counts[s.RUNNING] == 0:
        _end_backfill(tick, live)


def _make_runs(tick: Tick, live: ActiveBackfill, looks_since: datetime | None) -> None:
    """`looks_since`: as `ActiveBackfill.first_look` was in the tick before."""
    if live.timeline.has_gap:
        return  # read again by the next prefetch
    in_order, at = live.depends_on_past, 0  # items before `at` wait for an upstream backfill
    while at < len(live.pending) and _may_make_run(tick.state, live, live.pending[at]):
        most = next_size(tick, live) if live.is_batch_auto else live.most_in_batch
        batch = list(islice(live.pending, at, at + most + 1))  # one more: it shows whether the batch is complete
        if batch[0].batch is not None:  # half of a failed batch, which may have been larger than what is set now
            batch = [item for item in islice(live.pending, at, None) if item.batch == batch[0].batch]
        items = batch[: next_batch(batch, most)]
        if at + len(items) == len(live.pending) and live.window_is_short and 1 < most >= len(items):
            return  # the rest of the batch has not been read yet
        items = items[: waiting_alike(tick.state, live, items)]
        waits, n = _wait_verdict(tick, live, items)
        items = items[:n]
        if waits == "wait":
            if in_order:
                return
            at += len(items)
            continue
        if waits == "start":
            alike = _looked_alike(tick, live, items, looks_since)
            if alike is None:
                return  # until somebody has looked
            items = items[:alike]
        for _ in items:
            del live.pending[at]
        if waits == "start" and not _start_batch(tick, live, items, at):
            return  # read by the next prefetch
        if waits == "ended" and in_order:
            return _fail_items_behind(tick, live, items[-1])


def _looked_alike(tick: Tick, live: ActiveBackfill, items: list[BackfillItem], since: datetime | None) -> int | None:
    """As `data_waits.looked_alike`, of those of the first items that a new run would be made of."""
    if len(items) < 2 or not external_waits(live.spec, live.selected):
        return len(items)
    new = list(takewhile(lambda item: _reprocess_verdict(live, item)[0] == "make", items))
    return looked_alike(tick.state, live, new, since, tick.now) if len(new) > 1 else len(items)


def _may_make_run(state: ManagerState, live: ActiveBackfill, item: BackfillItem) -> bool:
    """Whether a run may be made of this item: within `max_active_runs`, and beyond where all that have a place only wait
    for their past, and the item, which is run again, comes before them: they may be waiting for it."""
    if len(live.running) < live.row.max_active_runs:
        return True
    started = [run for key in live.running if (run := state.runs.get(key)) is not None and run.may_start]
    if not started or item.run_id is None or item.logical_date is None:
        return False
    is_idle = all(run.waits_for_past and not run.is_working for run in started)
    dates = [run.row.logical_date for run in started]
    return is_idle and all(date is not None and item.logical_date < date for date in dates)


def _wait_verdict(tick: Tick, live: ActiveBackfill, items: list[BackfillItem]) -> tuple[str, int]:
    """`start`, `wait`, or `ended` when the data that they read will not come; and for how many of the first of these items it
    is true: one whose data will not come takes no other along."""
    if not live.parents:
        return "start", len(items)
    if live.waits is None:
        return "wait", len(items)  # read by the next prefetch
    verdicts = [live.waits.evaluate(item) for item in items]
    fails = [verdict == "fail" for verdict, _ in verdicts]
    n = next((n for n, one in enumerate(fails) if one != fails[0]), len(items))
    if fails[0]:
        for item, (_, failed) in zip(items[:n], verdicts, strict=False):
            assert failed is not None
            reason = f"it reads item {failed.ordinal} of backfill {failed.backfill_id}, which is {failed.state}"
            tick.state.put_item(live, item, c.item_ended(item, s.FAILED, reason))
        return "ended", n
    if any(verdict == "wait" for verdict, _ in verdicts[:n]):
        return "wait", n
    is_written = not live.row.is_preview and _is_being_written(tick.state, live.waits, items[:n])
    return "wait" if is_written else "start", n


def _is_being_written(state: ManagerState, waits: UpstreamItems, items: list[BackfillItem]) -> bool:
    """Whether a run of others is active over what these items read: items of upstream backfills gave way to it."""
    runs = (run.row for run in state.runs.values() if run.row.dag_id in waits.dag_ids)
    return any(is_current(row) and meets(item, row) for row in runs for item in items)


def _fail_items_behind(tick: Tick, live: ActiveBackfill, item: BackfillItem) -> None:
    """Where tasks depend on the past, what comes after an item that failed without a run can't run: it would follow a gap."""
    failed = tick.state.changes.latest(item)
    why = f"its tasks depend on the past, and item {item.ordinal} failed: {failed.reason}"
    reason = f"{notification_rules.DEADLOCK}{why}"
    if live.counts[s.PENDING]:
        close_pending(tick, live, s.FAILED, reason, ((item.ordinal + 1, live.row.planned),))
        tick.put(live.row.evolve(reason=reason))


def _start_batch(tick: Tick, live: ActiveBackfill, items: list[BackfillItem], at: int) -> bool:
    """Makes one run of as many of the first items as possible and returns the others to the queue, at its place `at`. False: the
    run whose failed tasks are to run again has to be read first."""
    verdicts = [_reprocess_verdict(live, item) for item in items]
    verdict, existing = verdicts[0]
    if verdict in ("adopt", "rerun"):
        assert existing is not None
        items = _items_of_run(live, items, existing, at)
        used = next((n for n, item in enumerate(items) if not _is_current_run(live, item, existing)), len(items))
        if verdict == "adopt":
            _adopt(tick, live, items[:used], existing)
        else:
            used = _rerun(tick, live, items[:used], existing)
    elif verdict == "make":
        used = next((n for n, (other, _) in enumerate(verdicts) if other != "make"), len(items))
        _make(tick, live, items[:used], [run for _, run in verdicts[:used] if run is not None])
    else:
        used = 1
        tick.state.put_item(live, items[0], c.item_ended(items[0], s.SKIPPED, verdict))
    for item in reversed(items[used:]):
        live.pending.insert(at, item)
    return used > 0


def _items_of_run(live: ActiveBackfill, items: list[BackfillItem], run: DagRun, at: int) -> list[BackfillItem]:
    """These items, and those that follow in the queue and for which the run stands."""
    items = list(items)
    while at < len(live.pending) and _is_current_run(live, live.pending[at], run):
        items.append(live.pending[at])
        del live.pending[at]
    return items


def _reprocess_verdict(live: ActiveBackfill, item: BackfillItem) -> tuple[Verdict, DagRun | None]:
    """What to do with an item, and the current run of its date (for `rerun` and `adopt`: or the one that covers it)."""
    current, existing = _runs_of_item(live, item)
    if existing is None:
        return "make", None
    is_own, is_live = existing.backfill_id == live.row.backfill_id, existing.state in s.RUN_LIVE
    if existing.is_undone:
        return "make", current
    is_restored = existing.restored_run_id is not None  # it is as the run before it, which was whole, and succeeded
    is_done_for_this, state = is_restored or not (existing.is_partial and live.is_whole), existing.state
    if is_restored:
        state = s.SUCCESS
    may_rerun = live.reruns_failed_tasks and is_done_for_this and state in RERUN_STATES["failed_tasks"]
    if is_own and existing.run_id == item.run_id and not is_live:  # its own earlier run, which failed
        return ("rerun", existing) if may_rerun and item.batch is None else ("make", current)
    if is_own and (existing.ordinal == item.ordinal or live.took_over(existing)):
        return "adopt", existing
    if is_live:
        return "in flight", None
    if not is_own and is_done_for_this and state not in RERUN_STATES[live.row.reprocess]:
        return ("make", current) if _is_part(live, item, existing) else ("already exists", None)
    return ("rerun", existing) if may_rerun else ("make", current)


def _is_part(live: ActiveBackfill, item: BackfillItem, run: DagRun) -> bool:
    """Whether the run has done the beginning of this `single` interval only."""
    if not live.row.config_json.startswith(CreateBackfill.config_begins("single")):
        return False
    return item.interval_end is not None and (run.interval_end is None or run.interval_end < item.interval_end)


def runs_to_rerun(live: ActiveBackfill) -> list[DagRun]:
    """The runs whose failed tasks are to run again for the next pending items, as many as may be active at once."""
    runs: dict[str, DagRun] = {}
    if live.reruns_failed_tasks:
        for item in live.pending:
            verdict, run = _reprocess_verdict(live, item)
            if verdict == "rerun" and run is not None:
                runs[run.run_id] = run
            if len(runs) >= live.row.max_active_runs:
                break
    return list(runs.values())


def _is_current_run(live: ActiveBackfill, item: BackfillItem, run: DagRun) -> bool:
    """Whether the run stands for the item's date."""
    _, existing = _runs_of_item(live, item)
    return existing is not None and existing.run_id == run.run_id


def _runs_of_item(live: ActiveBackfill, item: BackfillItem) -> tuple[DagRun | None, DagRun | None]:
    """The run of its date, and the run that stands for it: that one, where it is only this backfill's own batch that runs
    around it, as the plan has it."""
    key = timeline_key(item.logical_date, item.partition_key)
    current, existing = live.timeline.current_at(key), live.timeline.standing_at(key)
    is_own = existing is not None and (existing.backfill_id == live.row.backfill_id or live.took_over(existing))
    return current, current if current is not None and is_own else existing


def _adopt(tick: Tick, live: ActiveBackfill, items: list[BackfillItem], run: DagRun) -> None:
    """Takes items into a run that was committed before a crash, when the items were not: they are derived from the run."""
    begun = _start_items(tick, live, items, run)
    if run.key not in tick.state.runs:
        del live.running[run.dag_id, run.run_id]
        end_items(tick.state, live, begun, run)


def _rerun(tick: Tick, live: ActiveBackfill, items: list[BackfillItem], existing: DagRun) -> int:
    """Clears an existing run's failed tasks, with what depends on them, and makes it this backfill's; returns how many items it
    took: none if the run has to be read first, as it has changed in this tick, or if its tables are reverted at the moment."""
    seen, tasks = live.failed_runs.get(existing.key, (None, {}))
    has_changed = seen != existing or any(tick.state.changes.latest(ti) != ti for ti in tasks.values())
    if has_changed or tick.state.is_held(existing.key):
        return 0
    spec = tick.state.spec_of_run(existing, live.row, tasks)
    again = failed_and_after(spec, tasks.values())
    if not again:  # no task of it failed: a new run replaces it
        _make(tick, live, items[:1], [existing] if items[0].logical_date == existing.logical_date else [])
        return 1
    reopened = c.run_reopened(existing).evolve(backfill_id=live.row.backfill_id, ordinal=items[0].ordinal)
    run = existing_run(tick.state, reopened, live, dict(tasks))
    tick.state.runs[run.key] = run
    tick.put(reopened)
    remove_unmapped(tick.state, run)
    for task_id in sorted((again | spec.callbacks_of(again)) & tasks.keys()):
        ti = tasks[task_id].evolve(priority=spec.task(task_id).priority + live.row.priority)
        tick.put(c.cleared(ti, live.row.request_id) if ti.state in s.TASK_FINISHED else ti)
    _start_items(tick, live, items, reopened)
    return len(items)


def _start_items(tick: Tick, live: ActiveBackfill, items: list[BackfillItem], run: DagRun) -> list[BackfillItem]:
    begun = [c.item_started(item, run.run_id) for item in items]
    live.running.setdefault((run.dag_id, run.run_id), []).extend(begun)
    for was, item in zip(items, begun, strict=True):
        tick.state.put_item(live, was, item)
    return begun


def _make(tick: Tick, live: ActiveBackfill, items: list[BackfillItem], overridden: list[DagRun]) -> None:
    first = min(items, key=lambda item: item.interval_start or EPOCH)  # with run_backwards the last one is the oldest
    ends = [item.interval_end for item in items if item.interval_end is not None]
    place = timeline_key(first.logical_date, first.partition_key)
    is_preview = live.row.is_preview
    run_type = s.PREVIEW_RUN if is_preview else s.BACKFILL_RUN
    run_id = live.timeline.next_run_id(preview_run_type(live.row.backfill_id) if is_preview else run_type, place)
    row = DagRun(
        dag_id=live.row.dag_id, run_id=run_id, run_type=run_type,
        state=s.QUEUED, dag_version=live.row.dag_version, run_seq=tick.next_seq(1), created_at=tick.now,
        logical_date=first.logical_date, interval_start=first.interval_start, interval_end=max(ends, default=None),
        partition_key=first.partition_key, backfill_id=live.row.backfill_id, ordinal=items[0].ordinal,
        items=len(items), conf_json=live.row.conf_json,
    )  # fmt: skip
    run = make_run(tick.state, row, live.spec, live.timeline, overridden, selected=live.selected, owner=live)
    run.has_waited = live.waited.get(batch_of_half(items[0]) or "", frozenset())
    _start_items(tick, live, items, run.row)
    if live.row.state == s.QUEUED:  # also when all its runs are marked at once
        tick.put(c.backfill_started(live.row, tick.now))
    if live.row.mark_success:
        for ti in list(run.tasks.values()):
            if ti.state == s.NONE:
                is_callback = run.spec.is_callback(ti.task_id)
                tick.put(c.skipped(ti, tick.now, "marked success") if is_callback else c.succeeded(ti, tick.now))
        end_run(tick, run, s.SUCCESS, "marked success")


def _end_backfill(tick: Tick, live: ActiveBackfill) -> None:
    is_whole = live.counts[s.SUCCESS] + live.counts[s.SKIPPED] >= live.row.planned
    has_failed = live.counts[s.FAILED] or live.counts[s.CANCELLED] or not is_whole
    outcome = s.CANCELLED if live.row.is_cancelled else s.FAILED if has_failed else s.SUCCESS
    notification_rules.backfill_ended(tick, live, outcome)
    reason = None if outcome == s.SUCCESS else live.row.reason
    if outcome == s.FAILED and reason is None:
        reason = not_succeeded(live.counts, live.row.planned)
    tick.put(c.backfill_ended(live.row, outcome, tick.now, reason))
    tick.halted.append(live)
    del tick.state.backfills[live.row.backfill_id]
