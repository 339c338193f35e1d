"""Retries a backfill that has ended: its failed items run again as part of it, with the version of the DAG that it has or the
current one, all or those that were chosen; and, when asked, the backfills downstream of it that failed.

Done in one commit of backfills, so that a crash leaves all of it or none; items that were reopened before it are pending, and
the request is handled again.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from backfill_manager.errors import NotFound, Refused
from backfill_manager.humanise import plural
from backfill_manager.manager.decisions.item_outcomes import reopen_failed
from backfill_manager.manager.decisions.reopen import load_backfill, refuse_ended_preview, version_spec
from backfill_manager.manager.prefetch import timeline_around
from backfill_manager.manager.state import ActiveBackfill, ManagerState
from backfill_manager.manager.tick_context import Answer, Call
from backfill_manager.model import states as s
from backfill_manager.model import transitions as c
from backfill_manager.model.records import Backfill, BackfillItem
from backfill_manager.model.stored_json import parents_of, read_column
from backfill_manager.number_ranges import Ranges, count_numbers, is_in, widened
from backfill_manager.planning.runs.timeline import TimelineWindow, timeline_key
from backfill_manager.requests.backfill_checks import check_changes_for_dag, check_items
from backfill_manager.schemas import errors
from backfill_manager.schemas.backfill_columns import AUTO, option_of
from backfill_manager.schemas.backfill_options import UPDATABLE_FIELDS
from backfill_manager.schemas.commands import RetryBackfill
from backfill_manager.store.base import Condition, Store, matching


def retry_backfill(state: ManagerState, store: Store, command: RetryBackfill, call: Call) -> Answer:
    """`Refused` for one that is active, or has nothing to retry; `InvalidInput` where the current version of its DAG does not go
    with its settings."""
    backfill_id = command.backfill_id
    if (active := state.backfills.get(backfill_id)) is not None:
        if active.row.changed_by == call.id:
            return backfill_id, f"backfill {backfill_id} runs its failed items again"
        raise Refused(f"Backfill {backfill_id} is {active.row.state}; failed items can be retried when it has ended.")
    rows = store.read(Backfill, matching(backfill_id=backfill_id))
    if not rows:
        raise NotFound("backfill", backfill_id, state.backfills)
    refuse_ended_preview(rows[0])
    all_below = [row for row in _below(store, backfill_id) if row.hidden_at is None]
    failed = (load_backfill(state, store, row) for row in all_below if row.state == s.FAILED)
    below = [live for live in failed if _has_failed(live)]
    retried = [load_backfill(state, store, rows[0]), *(below if command.downstream else [])]
    if not _has_failed(retried[0]):
        rest = _others(retried[0])
        why = f"Backfill {backfill_id} is {rows[0].state} and has no failed item to retry"
        raise Refused(f"{why}; it has {rest}, which a retry leaves as they are." if rest else f"{why}.")
    chosen, ranges = _chosen_failures(store, rows[0], command) if command.items else (None, ())
    if command.latest_version:  # all are checked before the first is changed
        for live in retried:
            _move_to_current_version(state, store, live)
    if chosen and retried[0].depends_on_past:
        _refuse_gap(store, retried[0].row, chosen)
    texts = [_retry(state, retried[0], call, chosen, ranges), *(_retry(state, live, call) for live in retried[1:])]
    still_active = (state.backfills[row.backfill_id] for row in all_below if row.backfill_id in state.backfills)
    left_out = {
        "downstream of it failed too, and not retried": [] if command.downstream else [live.row for live in below],
        "downstream of it, still active, and so its failed items not retried": [
            live.row for live in still_active if live not in retried and live.counts[s.FAILED]
        ],
        "downstream of it, cancelled, and so not retried": (
            [row for row in all_below if row.state == s.CANCELLED] if command.downstream else []
        ),
    }
    for why, rows_left in left_out.items():
        if rows_left:
            names = ", ".join(f"{row.backfill_id} of {row.dag_id}" for row in rows_left)
            texts.append(f"{why}: {names}")
    return backfill_id, "; ".join(texts)


def _chosen_failures(store: Store, row: Backfill, command: RetryBackfill) -> tuple[list[int], Ranges]:
    """The failed items of those that the command chooses, and ranges with no other failed item in them. `Refused` if there
    is none."""
    wanted = command.ordinals or ()
    check_items(wanted, row.backfill_id, row.planned)
    failed = matching(backfill_id=row.backfill_id, state=s.FAILED)
    there = sorted(store.read_arrow(BackfillItem.TABLE, ["ordinal"], failed)["ordinal"].to_pylist())
    chosen = [ordinal for ordinal in there if is_in(ordinal, wanted)]
    again = [*matching(backfill_id=row.backfill_id, state=s.PENDING), Condition("ordinal", "in_ranges", wanted)]
    # Items that are pending were put back by this request, before a crash.
    if not chosen and not store.count(BackfillItem.TABLE, [], again).get(()):
        raise errors.NO_CHOSEN_ITEM_FAILED(
            backfill_id=row.backfill_id, chosen=plural(count_numbers(wanted), "chosen item"),
            failed=plural(len(there), "failed item"),
        )  # fmt: skip
    return chosen, widened(wanted, there)


def _refuse_gap(store: Store, row: Backfill, chosen: Sequence[int]) -> None:
    """`Refused` where the item right before a chosen one failed without a run and is not chosen: tasks that depend on the past
    would follow the run before the gap."""
    again = set(chosen)
    without_run = [*matching(backfill_id=row.backfill_id, state=s.FAILED), Condition("run_id", "is_null")]
    left = store.read_arrow(BackfillItem.TABLE, ["ordinal", "logical_date"], without_run)
    dates = dict(zip(*(left[name].to_pylist() for name in ("ordinal", "logical_date")), strict=True))
    gaps = {at: dates[at] for at in sorted(dates.keys() - again) if at + 1 in again and dates[at] is not None}
    preview = row.backfill_id if row.is_preview else None
    runs = TimelineWindow.of(timeline_around(row.dag_id, list(gaps.values()), [], store, preview), preview)
    for ordinal, date in gaps.items():
        if runs.standing_at(timeline_key(date, None)) is None:
            raise errors.RETRY_BEHIND_GAP(backfill_id=row.backfill_id, ordinal=ordinal, next=ordinal + 1)


def _retry(
    state: ManagerState, live: ActiveBackfill, call: Call, chosen: Sequence[int] | None = None, ranges: Ranges = ()
) -> str:
    """`chosen`: only these of its failed items, which lie in `ranges`."""
    row = live.row
    state.backfills[row.backfill_id] = live
    items = plural(reopen_failed(call.tick, live, chosen, ranges), "failed item")
    left = live.counts[s.FAILED]  # of which `stop_on_failure` counts none
    again = c.backfill_reopened(row).evolve(is_cancelled=False, reason=None, changed_by=call.id)
    state.put(again.evolve(failed_when_resumed=left))
    text = f"backfill {row.backfill_id} runs {items} again with version {row.dag_version} of {row.dag_id}"
    if rest := " and ".join(part for part in (plural(left, "failed item") if left else "", _others(live)) if part):
        kept = left + live.counts[s.CANCELLED] + live.counts[s.SKIPPED]
        text += f" and leaves {rest} as {'it is' if kept == 1 else 'they are'}"
    dag = state.catalog.dags.get(row.dag_id)
    if dag is None or dag.current_version == row.dag_version:
        return text
    return f"{text}, which is not the current one: that is {dag.current_version}"


def _others(live: ActiveBackfill) -> str:
    """`2 cancelled items and 1 skipped item`, which no retry runs; empty if there are none."""
    counts = {state: live.counts[state] for state in (s.CANCELLED, s.SKIPPED)}
    return " and ".join(plural(n, f"{state} item") for state, n in counts.items() if n)


def _move_to_current_version(state: ManagerState, store: Store, live: ActiveBackfill) -> None:
    """The runs that it makes from now on are of the DAG's current version, with which its settings must go."""
    row, version = live.row, state.active_dag(live.row.dag_id).current_version
    if row.reprocess == "failed_tasks":
        raise errors.RETRY_IN_PLACE(backfill_id=row.backfill_id)
    settings = {name: option_of(row, name) for name in UPDATABLE_FIELDS}
    if settings["batch"] == AUTO:  # which is 1 where the current version is not batchable
        settings["batch"] = 1
    backwards = bool(read_column(row, "config_json").get("run_backwards"))
    check_changes_for_dag(settings, version_spec(state, store, row.dag_id, version), {}, runs_backwards=backwards)
    live.row = row.evolve(dag_version=version)
    live.spec = state.spec_of_backfill(live.row)


def _has_failed(live: ActiveBackfill) -> bool:
    """Pending: a crash came in the middle of a retry."""
    return bool(live.counts[s.FAILED] or live.counts[s.PENDING])


def _below(store: Store, backfill_id: str) -> list[Backfill]:
    """The backfills that wait for this one, for those, and so on; nearest first."""
    readers = defaultdict[str, list[Backfill]](list)
    for row in store.read(Backfill, [Condition("parents_json", "!=", "[]")], order_by=("created_at", "backfill_id")):
        for parent in parents_of(row):
            readers[parent].append(row)
    found: dict[str, Backfill] = {}
    todo = [backfill_id]
    for parent in todo:
        for row in readers[parent]:
            if row.backfill_id not in found:
                found[row.backfill_id] = row
                todo.append(row.backfill_id)
    return list(found.values())
