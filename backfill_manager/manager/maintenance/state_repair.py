"""Repairs a damaged state that nobody leads: files by the store, then rows that other tables hold, under a lease of its own.

| lost from | is made again from |
|---|---|
| `task_try` | task instances: the last start of each |
| `task_instance` | tries: each task as its last start ended |
| `backfill_item` | runs: the items that they took; one whose run is gone waits for a new run |
| `response` | requests: each unanswered one of before is answered with that it was lost, so that none is carried out twice |
| `dag` | versions: the newest of each DAG, paused |
| `bundle`, `import_error`, `pool` | bundles and configuration, at the manager's next start |

Of several rows with one key the newest is kept, and JSON that can't be read is made null where it may be (store/wrong_rows.py).
Everything else that a data file held is named as lost. Tasks, tries and logs of a run that is gone go with it; the run itself
stays as an overridden one, so that its id is not used again.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final

from backfill_manager.clock import Clock
from backfill_manager.dags.stored_definition import definition_or_why
from backfill_manager.errors import StateCopied, StateError
from backfill_manager.humanise import plural
from backfill_manager.manager.maintenance.short_leadership import leading
from backfill_manager.manager.state_identity import other_place
from backfill_manager.model import records
from backfill_manager.model import states as s
from backfill_manager.model import transitions as c
from backfill_manager.model.transitions import Changes
from backfill_manager.planning.runs.timeline import first_date, key_of_run_id
from backfill_manager.process_info import is_gone
from backfill_manager.schemas import errors, request_kinds
from backfill_manager.settings import Settings
from backfill_manager.store.base import CHILDREN, Condition, Leader, Store, matching
from backfill_manager.store.delta_rs.damage import Damage
from backfill_manager.store.delta_rs.store import DeltaRsStore

POLL_INTERVAL_S: Final = 0.2
MAX_NAMED: Final = 5
NAMING_RUNS: Final = ("task_log", "check_result", "task_try", "table_access", "task_instance")
MAX_DELETED: Final = 1_000  # runs that one statement names
LOST_RUN: Final = "it was lost with a damaged file"
LOST_RESPONSE: Final = "its response was lost with a damaged file; see whether it was carried out before you ask again"


def repair_state(store: Store, settings: Settings, clock: Clock, note: Callable[[str], None]) -> Iterator[str]:
    """What was done and what is lost, a line each. `Refused` while a manager leads; `note` gets what it waits for."""
    if not isinstance(store, DeltaRsStore):
        raise StateError(f"A state of the engine {store.engine} is repaired with Spark's own tools (RESTORE TABLE).")
    damages = store.damages()
    wrong = {} if damages else store.wrong_rows()
    if not damages and not wrong:
        yield "There is nothing to repair."
        return
    _wait_for_no_leader(store, settings.lease.seconds, note)
    # A repair that was killed is repeated: the damaged files, which show what was lost, are out of the tables by then.
    to_do = {"lost": [], "runs": [], **(store.unfinished_repair() or {})}
    lost = {damage.table for damage in damages if damage.kind in ("data", "last entry", "table")} | set(to_do["lost"])
    if lost:
        store.begin_repair({**to_do, "lost": sorted(lost)})
    if damages:
        store.repair(damages)
        left = [damage for damage in store.damages() if damage.kind != "repair"]
        yield from _file_lines(damages, left)
        if any(damage.kind != "data" for damage in left):
            yield "The rows of other tables are made again when the rest is restored: repeat `bfm state check --repair` then."
            return
    store.init()
    yield from store.rewrite_rows(store.wrong_rows())
    if lost:
        yield from _restore_rows(store, settings, clock, lost, to_do["runs"], damages)
    if lost or any(damage.kind == "repair" for damage in damages):
        store.end_repair()


def _file_lines(damages: Sequence[Damage], left: Sequence[Damage]) -> Iterator[str]:
    """`left`: those that are there after the repair."""
    for damage in damages:
        if any((one.table, one.file, one.kind) == (damage.table, damage.file, damage.kind) for one in left):
            yield f"Not repaired: {damage.table}: {damage}."
        elif damage.kind != "repair":
            yield f"Repaired: {damage.table}: {_what_was_done(damage)}."


def _restore_rows(
    store: DeltaRsStore, settings: Settings, clock: Clock, lost: set[str], found_before: Sequence[Sequence[Any]],
    damages: Sequence[Damage],
) -> Iterator[str]:  # fmt: skip
    """Rows of the tables `lost`, of what others tell. `found_before`: lost runs (DAG, run, `run_seq`) that a repair found
    which was killed."""
    named = _named_runs(store) | {(dag_id, run_id): seq for dag_id, run_id, seq in found_before}
    yield from _lost_by_name(store, named)
    runs = sum(one.rows for one in damages if (one.table, one.kind) == ("dag_run", "data"))
    if (nameless := runs - len(named)) > 0:
        yield (
            f"Lost: {plural(nameless, 'run')} that no other table names, so their ids are used again. Backfill their dates "
            "after `bfm state adopt --as-copy`: without it a task writes nothing where its lost run has written."
        )
    if "dag_run" in lost:  # whoever leads deletes rows of some of them
        store.begin_repair({"lost": sorted(lost), "runs": [(*key, seq) for key, seq in named.items()]})
    gone = _lost_runs(store, clock, named) if "dag_run" in lost else []
    with leading(store, settings, clock) as leader:
        yield from _derive(store, leader, clock, lost, gone)
        _delete_tasks(leader, gone)


def _wait_for_no_leader(store: DeltaRsStore, lease_s: int, note: Callable[[str], None]) -> None:
    """Returns when nobody leads. The table of the lease may itself be damaged: a leader writes into its folder."""
    try:
        row = store.lease()
    except StateError:
        row = None
    else:
        if row is not None and (other := other_place(store, row)):
            raise StateCopied(store.root, *other)
        if row is None or row.state != s.LEADING or is_gone(row.manager_id, row.pid):
            return
    first, never = store.lease_files(), threading.Event()
    note(f"Waiting for {lease_s} s to see that no manager leads this state.")
    for _ in range(int((row.lease_s if row else lease_s) / POLL_INTERVAL_S)):
        never.wait(POLL_INTERVAL_S)
        if store.lease_files() != first:
            if row is None:
                raise errors.STATE_IS_LED(term="unknown", pid="unknown", host="unknown", root=store.root)
            raise errors.STATE_IS_LED(term=row.term, pid=row.pid, host=row.host, root=store.root)


def _what_was_done(damage: Damage) -> str:
    where = damage.file or "the table"
    match damage.kind:
        case "table":
            return "the table is made anew"
        case "data":
            span = f", run_seq {damage.run_seqs[0]} to {damage.run_seqs[1]}" if damage.run_seqs else ""
            return f"{where} {damage.problem} and is out of the table; it held {plural(damage.rows, 'row')}{span}"
        case "last entry":
            return f"{where} {damage.problem} and is set aside; the commit is undone"
        case "last checkpoint":
            return f"{where} {damage.problem} and is removed"
        case _:
            return f"{where} {damage.problem} and is written anew"


def _lost_by_name(store: Store, runs: Iterable[records.RunKey]) -> Iterator[str]:
    """These runs, and backfills that are gone while something of them is there."""
    if gone := sorted("/".join(key) for key in runs):
        yield f"Lost: {plural(len(gone), 'run')}: {_some(gone)}. Backfill their dates again."
    backfills = {row.backfill_id for row in store.read(records.Backfill)}
    if gone := sorted({key[0] for key in store.count("backfill_item", ["backfill_id"])} - backfills):
        yield f"Lost: {plural(len(gone), 'backfill')}: {_some(gone)}."


def _named_runs(store: Store) -> dict[records.RunKey, int]:
    """Runs of which no row is left but in other tables, with their `run_seq`."""
    runs = store.count("dag_run", ["dag_id", "run_id"])
    dags = {row.backfill_id: row.dag_id for row in store.read(records.Backfill)}
    items = store.count("backfill_item", ["backfill_id", "run_id", "run_seq"], [Condition("run_id", "not_null")])
    # an item's number is no run's, and tells as well that the run came before new ones
    named = {(dags[of], run_id): run_seq for of, run_id, run_seq in items if of in dags}
    for table in NAMING_RUNS:
        for dag_id, run_id, run_seq in store.count(table, ["dag_id", "run_id", "run_seq"]):
            named[dag_id, run_id] = run_seq
    return {key: run_seq for key, run_seq in named.items() if key not in runs}


def _lost_runs(store: Store, clock: Clock, named: dict[records.RunKey, int]) -> list[records.DagRun]:
    """As overridden ones: a new run of the same date gets an id of its own, and with it writes of its own. With the id of a lost
    one it would find that one's rows in its output tables, and write nothing."""
    versions = {row.dag_id: row.version for row in store.read(records.DagVersion, order_by=["version"])}
    gone = []
    for (dag_id, run_id), run_seq in sorted(named.items()):
        if (known := key_of_run_id(run_id)) is None:
            continue
        run_type, preview, (logical_date, partition_key) = known
        gone.append(
            records.DagRun(
                dag_id=dag_id, run_id=run_id, run_type=run_type, state=s.OVERRIDDEN, dag_version=versions.get(dag_id, 1),
                run_seq=run_seq, created_at=clock.now(), logical_date=logical_date, interval_start=logical_date,
                partition_key=partition_key, backfill_id=preview, reason=LOST_RUN,
            )
        )  # fmt: skip
    return gone


def _delete_tasks(leader: Leader, gone: list[records.DagRun]) -> None:
    """Of lost runs: nothing ends them any more. What they have written stays known."""
    seqs = sorted(run.run_seq for run in gone)
    for table in CHILDREN["dag_run"]:
        for begin in range(0, len(seqs) if table != records.TableAccess.TABLE else 0, MAX_DELETED):
            leader.delete(table, matching(run_seq=seqs[begin : begin + MAX_DELETED]))


def _some(names: list[str]) -> str:
    return ", ".join(names[:MAX_NAMED]) + (f" and {len(names) - MAX_NAMED} more" if len(names) > MAX_NAMED else "")


def _derive(store: Store, leader: Leader, clock: Clock, lost: set[str], gone: list[records.DagRun]) -> Iterator[str]:
    changes, lines = Changes(), list[str]()

    def put(rows: Sequence[records.Record], what: str) -> None:
        for row in rows:
            changes.put(row)
        if rows:
            lines.append(f"Made again: {plural(len(rows), what)}.")

    needs_runs = bool(lost & {"task_instance", "backfill_item", "dag_run"})
    runs = {run.key: run for run in store.read(records.DagRun)} if needs_runs else {}
    for run in gone:
        changes.put(run)
    if "task_instance" in lost:
        put(_task_instances(store, runs), "task instance")
    if "task_try" in lost:
        put(_tries(store, leader.term), "try")
    if lost & {"backfill_item", "dag_run"}:
        put(_items(store, runs), "item")
        lines += _missing_items(store, changes)
    if "response" in lost:
        put([_response(row, clock, leader.term) for row in store.unanswered()], "response")
    if "dag" in lost:
        put(_dags(store, clock), "DAG")
    leader.commit(changes)
    yield from lines


def _task_instances(store: Store, runs: dict[records.RunKey, records.DagRun]) -> list[records.Record]:
    """Their generations are not known. There is a start for each that has written, so as many as the starts before the last one
    are enough: with fewer, what a cleared task writes would count as written."""
    there = set(store.count("task_instance", ["dag_id", "run_id", "task_id"]))
    last: dict[tuple[str, str, str], records.TaskTry] = {}
    for row in store.read(records.TaskTry, order_by=["launch"]):
        last[row.dag_id, row.run_id, row.task_id] = row
    return [
        records.TaskInstance(
            dag_id=row.dag_id, run_id=row.run_id, task_id=row.task_id, run_seq=row.run_seq, launch=row.launch,
            state=row.state if row.state in s.TASK_FINISHED else s.NONE, try_number=row.try_number, pool=row.pool,
            failures=int(row.state == s.FAILED), generation=row.launch - 1, started_at=row.started_at, ended_at=row.ended_at,
            duration_s=row.duration_s, error=row.error,
        )
        for key, row in last.items() if key not in there and key[:2] in runs
    ]  # fmt: skip


def _tries(store: Store, term: int) -> list[records.Record]:
    there = set(store.count("task_try", ["dag_id", "run_id", "task_id", "launch"]))
    ended = [ti for ti in store.read(records.TaskInstance) if ti.launch and ti.state in s.TASK_FINISHED]
    return [c.try_of(ti, term) for ti in ended if (*ti.key, ti.launch) not in there]


def _items(store: Store, runs: dict[records.RunKey, records.DagRun]) -> list[records.Record]:
    """Those that runs took, where they are gone; and those whose run is gone, to be run again."""
    made: list[records.Record] = []
    backfills = {row.backfill_id: row for row in store.read(records.Backfill)}
    there = store.count("backfill_item", ["backfill_id", "ordinal"])
    for run in runs.values():
        backfill = backfills.get(run.backfill_id or "")
        if backfill is None or run.ordinal is None or run.state == s.OVERRIDDEN or run.items > 1:
            continue
        if first_date(run) != run.logical_date:  # a batch of which one date is left: its item is not known
            continue
        state = s.RUNNING if run.state in s.RUN_LIVE else run.state
        if (backfill.backfill_id, run.ordinal) not in there:
            made.append(
                records.BackfillItem(
                    backfill_id=backfill.backfill_id, ordinal=run.ordinal, state=state,
                    run_seq=backfill.run_seq - backfill.planned + run.ordinal - 1, logical_date=run.logical_date,
                    interval_start=run.interval_start, interval_end=run.interval_end, partition_key=run.partition_key,
                    run_id=run.run_id,
                )
            )  # fmt: skip
    for backfill in backfills.values():
        if backfill.state not in s.BACKFILL_FINISHED:
            for item in store.read(records.BackfillItem, matching(backfill_id=backfill.backfill_id)):
                if item.run_id is not None and (backfill.dag_id, item.run_id) not in runs:
                    made.append(item.evolve(state=s.PENDING, run_id=None, batch=None))
    return made


def _missing_items(store: Store, changes: Changes) -> list[str]:
    """Backfills that have fewer items than were planned, after this repair."""
    lines = []
    for row in store.read(records.Backfill):
        there = {item.ordinal for item in store.read(records.BackfillItem, matching(backfill_id=row.backfill_id))}
        there |= {item.ordinal for item in changes.rows(records.BackfillItem) if item.backfill_id == row.backfill_id}
        if len(there) < row.planned:
            gone = [str(ordinal) for ordinal in range(1, row.planned + 1) if ordinal not in there]
            lines.append(
                f"Lost: {plural(len(gone), 'item')} of backfill {row.backfill_id} ({row.dag_id}): {_some(gone)}. "
                "`bfm backfill create` with `--kind missing` runs their dates."
            )
    return lines


def _response(row: records.Request, clock: Clock, term: int) -> records.Record:
    return records.Response(
        request_id=row.request_id, kind=row.kind, outcome=request_kinds.REFUSED, object_id=None, message=LOST_RESPONSE,
        payload_json=None, answered_at=clock.now(), term=term,
    )  # fmt: skip


def _dags(store: Store, clock: Clock) -> list[records.Record]:
    there = store.count("dag", ["dag_id"])
    newest = {row.dag_id: row for row in store.read(records.DagVersion, order_by=["version"])}
    made: list[records.Record] = []
    for row in newest.values():
        if (row.dag_id,) not in there:
            spec = definition_or_why(row)
            schedule = None if spec.schedule is None else str(spec.schedule)
            place = (row.dag_id, row.bundle, row.file, row.version)
            made.append(records.DagRow(*place, True, True, schedule, spec.timezone, clock.now()))
    return made
