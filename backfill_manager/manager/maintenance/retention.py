"""Retention: rows and files that are older than their age in the settings are deleted, in small steps between ticks.

Planning, `reprocess`, the schedule, `depends_on_past` and the ids of new runs are the same before and after: the current run of
each date and partition stays with its tasks, and so does what superseded_runs.py keeps (docs/semantics.md, "Retention").
Children go before their parents and requests before their responses, so what a crash leaves half done is deleted by the next
sweep.
"""

from __future__ import annotations

import shutil
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Final

from backfill_manager.dags.bundles.source import BEING_MADE, rename_unless_there
from backfill_manager.errors import StateError
from backfill_manager.humanise import plural
from backfill_manager.logging import get_logger
from backfill_manager.manager.maintenance.superseded_runs import only_writers, superseded
from backfill_manager.model import states as s
from backfill_manager.model.pools import BACKFILL_POOL
from backfill_manager.model.records import (
    Backfill,
    BackfillItem,
    BundleRow,
    CheckResult,
    DagRow,
    DagRun,
    DagVersion,
    ImportProblem,
    Notification,
    Request,
    Response,
    TableAccess,
    TaskInstance,
    TaskLog,
    TaskTry,
)
from backfill_manager.model.stored_json import parents_of
from backfill_manager.settings import RetentionSettings
from backfill_manager.store.base import Condition, Leader, Store, matching, spanning

BATCH: Final = 1_000  # runs, requests of one step
ROWS: Final = 20_000  # log lines, tries, items of one step, or those of a single run or backfill
MAX_NAMED: Final = 200  # live runs that a statement names one by one
HASH_CHARS: Final = 64  # of the folder of a snapshot
WHAT: Final = {  # what goes -> the setting with its age, and what it is called
    "logs": ("logs", "log line"), "tries": ("tries", "try", "tries"), "runs": ("runs", "run"), "backfills": ("runs", "backfill"),
    "notifications": ("runs", "notification"), "requests": ("requests", "request"), "versions": ("snapshots", "version"),
    "snapshots": ("snapshots", "snapshot"), "import_errors": ("import_errors", "import error"),
}  # fmt: skip
log = get_logger("retention")


def summary_of(gone: Mapping[str, int]) -> str:
    """`deleted: 12 runs, 400 log lines`."""
    parts = [plural(number, *WHAT[what][1:]) for what, number in gone.items() if number]
    return f"deleted: {', '.join(parts)}" if parts else "nothing is old enough to be deleted"


def ages(retention: RetentionSettings) -> dict[str, timedelta]:
    """By kind of what goes; those without an age are kept for ever and left out."""
    seconds = {what: getattr(retention, setting) for what, (setting, *_) in WHAT.items()}
    return {what: timedelta(seconds=age) for what, age in seconds.items() if age is not None}


class Sweep:
    """One pass over all tables. Without a leader nothing is deleted: `gone` counts what would be."""

    def __init__(
        self, store: Store, retention: RetentionSettings, now: datetime, *, leader: Leader | None = None,
        snapshots: Path | None = None,
    ) -> None:  # fmt: skip
        """`snapshots`: the folder of snapshots if it belongs to this state alone."""
        self._store, self._leader, self._snapshots = store, leader, snapshots
        self._cutoffs = {what: now - age for what, age in ages(retention).items()}
        self.gone: Counter[str] = Counter(dict.fromkeys(self._cutoffs, 0))
        self._would_go: Counter[tuple[str, int]] = Counter()  # versions of runs and backfills, when nothing is deleted
        self.problems: list[StateError | OSError] = []  # why something was left out
        self._steps = self._all()

    def step(self) -> bool:
        """Some of it; False when there is nothing left to do."""
        return next(self._steps, None) is not None

    def run(self) -> Counter[str]:
        """All of it; the first error at the end, if something could not be done."""
        while self.step():
            pass
        if self.problems:
            raise self.problems[0]
        return self.gone

    def _all(self) -> Iterator[str]:
        """Yields after each step. A table that is damaged stops what needs it, and nothing else."""
        for part in self._parts():
            try:
                yield from part
            except (StateError, OSError) as error:
                self.problems.append(error)

    def _parts(self) -> Iterator[Iterator[str]]:
        if "runs" in self._cutoffs:
            yield self._runs(matching(state=s.OVERRIDDEN))
            yield self._runs(matching(run_type=(s.EXTERNAL_RUN, s.PREVIEW_RUN), state=sorted(s.RUN_FINISHED)))
            yield self._backfills()
            yield self._notifications()
        if "tries" in self._cutoffs:
            yield self._rows(TaskTry, "ended_at", "tries")
            yield self._tries_without_end()
        if "logs" in self._cutoffs:
            yield self._rows(TaskLog, "at", "logs")
        if "requests" in self._cutoffs:
            yield self._requests()
        if "versions" in self._cutoffs:
            yield self._versions_and_snapshots()
        if "import_errors" in self._cutoffs:
            yield self._import_errors()

    def _delete(self, table: str, where: Sequence[Condition]) -> None:
        if self._leader is not None:
            self._leader.delete(table, where)

    def _active_backfills(self) -> list[Backfill]:
        return self._store.read(Backfill, matching(state=sorted(set(s.BACKFILL_STATES) - s.BACKFILL_FINISHED)))

    def _runs(self, which: Sequence[Condition]) -> Iterator[str]:
        """Finished runs outside of the timeline, with their tasks, tries and logs. The newest run stays: numbers of new rows
        continue from it."""
        cutoff, store = self._cutoffs["runs"], self._store
        newest = store.first(DagRun, [], ["-run_seq"])
        after = -1
        while newest is not None:
            span = [Condition("run_seq", ">", after), Condition("run_seq", "<", newest.run_seq)]
            old = [*which, *span, Condition("created_at", "<", cutoff)]
            found = store.read(DagRun, old, ["run_seq"], BATCH)
            if not found:
                return
            after = found[-1].run_seq
            going = [run for run in found if (run.ended_at or run.created_at) < cutoff]
            stay = {row.backfill_id for row in self._active_backfills()}
            going = [run for run in superseded(going, store, cutoff) if run.backfill_id not in stay]
            needed = only_writers(going, store)
            going = [run for run in going if run.key not in needed]
            if going:
                seqs = tuple(run.run_seq for run in going)
                those = [*spanning("run_seq", seqs), *matching(run_seq=seqs)]
                for record in (TaskLog, TableAccess, CheckResult, TaskTry, TaskInstance, DagRun):
                    self._delete(record.TABLE, those)
                self.gone["runs"] += len(going)
                self._would_go.update((run.dag_id, run.dag_version) for run in going)
            yield "runs"

    def _backfills(self) -> Iterator[str]:
        """Those that have ended, with their items. The newest one stays, as the newest run does."""
        store = self._store
        newest = store.first(Backfill, [], ["-run_seq"])
        old = [*matching(state=sorted(s.BACKFILL_FINISHED)), Condition("completed_at", "<", self._cutoffs["backfills"])]
        after = -1
        while newest is not None:
            span = [Condition("run_seq", ">", after), Condition("run_seq", "<", newest.run_seq)]
            found = store.read(Backfill, [*old, *span], ["run_seq"], BATCH)
            going: list[Backfill] = []
            for row in found:
                if going and sum(one.planned for one in going) + row.planned > ROWS:
                    break
                going.append(row)
            if not going:
                return
            after = going[-1].run_seq
            stay = self._needed_backfills(going)
            ids = tuple(row.backfill_id for row in going if row.backfill_id not in stay)
            if ids:
                for record in (BackfillItem, Backfill):
                    self._delete(record.TABLE, matching(backfill_id=ids))
                self.gone["backfills"] += len(ids)
                self._would_go.update((row.dag_id, row.dag_version) for row in going if row.backfill_id in ids)
            yield "backfills"

    def _needed_backfills(self, rows: Sequence[Backfill]) -> set[str]:
        """Those that an active one waits for or a live run names, and those with settings that a run of theirs would lack when
        it is cleared, or that tell what the run was."""
        active = self._active_backfills()
        needed = {parent for row in active for parent in parents_of(row)}
        live = self._store.read(DagRun, matching(state=sorted(s.RUN_LIVE)))
        needed |= {run.backfill_id for run in live if run.backfill_id is not None}
        special = [row.backfill_id for row in rows if _has_settings(row)]
        if special:
            named = self._store.count(DagRun.TABLE, ["backfill_id"], matching(backfill_id=special))
            needed |= {backfill_id for (backfill_id,) in named}
        return needed

    def _rows(self, record: type[TaskTry] | type[TaskLog], instant: str, what: str) -> Iterator[str]:
        """Of finished runs, whichever they are. What was written before the age but belongs to a live run stays."""
        store, cutoff = self._store, self._cutoffs[what]
        long_texts = ("error", "message", "spark_jobs_json", "spark_stages_json")
        others = [name for name in long_texts if name in record.__dataclass_fields__]
        while True:
            live = store.read(DagRun, [*matching(state=sorted(s.RUN_LIVE)), Condition("created_at", "<", cutoff)])
            seqs = [run.run_seq for run in live]
            of_others = [Condition("run_seq", "!=", seq) for seq in seqs]
            if len(seqs) > MAX_NAMED:
                of_others = [Condition("run_seq", "<", min(seqs))]
            old = [Condition(instant, "<", cutoff), *of_others]
            if self._leader is None:
                self.gone[what] += store.count(record.TABLE, [], old).get((), 0)
                return
            found = store.read(record, old, ["run_seq"], ROWS, others)
            if not found:
                return
            some = [*old, Condition("run_seq", "<=", found[-1].run_seq)]
            self.gone[what] += store.count(record.TABLE, [], some).get((), 0)
            self._delete(record.TABLE, some)
            yield what

    def _tries_without_end(self) -> Iterator[str]:
        """Of starts that a crash has lost. They are as old as the end of their run."""
        without_end = Condition("ended_at", "is_null")
        lost = self._store.count(TaskTry.TABLE, ["run_seq"], [without_end])
        seqs = sorted(seq for (seq,) in lost)
        for begin in range(0, len(seqs), BATCH):
            some = tuple(seqs[begin : begin + BATCH])
            span = spanning("run_seq", some)
            runs = self._store.read(DagRun, [*span, *matching(run_seq=some, state=sorted(s.RUN_FINISHED))])
            going = tuple(run.run_seq for run in runs if (run.ended_at or run.created_at) < self._cutoffs["tries"])
            if going:
                self._delete(TaskTry.TABLE, [without_end, *span, *matching(run_seq=going)])
                self.gone["tries"] += sum(lost[seq,] for seq in going)
            yield "tries"

    def _requests(self) -> Iterator[str]:
        """Requests that were answered, and their responses. A request without a response would be carried out again, so a
        response goes only when its request has gone."""
        store, seen = self._store, set[str]()
        after: datetime | None = None
        old = [Condition("answered_at", "<", self._cutoffs["requests"])]
        while True:
            since: list[Condition] = [] if after is None else [Condition("answered_at", ">=", after)]
            in_order, without = ("answered_at", "request_id"), ("payload_json", "message")
            found = store.read(Response, [*old, *since], in_order, BATCH, without)
            stay = self._needed_requests() | seen
            ids = [row.request_id for row in found if row.request_id not in stay]
            seen = {row.request_id for row in found}
            if ids:
                self._delete(Request.TABLE, matching(request_id=ids))
                if self._leader is not None:
                    left = store.read_arrow(Request.TABLE, ["request_id"], matching(request_id=ids))
                    ids = sorted(set(ids) - set(left["request_id"].to_pylist()))
                if ids:
                    self._delete(Response.TABLE, matching(request_id=ids))
                self.gone["requests"] += len(ids)
            if len(found) < BATCH or found[-1].answered_at == after:
                return
            after = found[-1].answered_at
            yield "requests"

    def _needed_requests(self) -> set[str]:
        live = self._store.read(DagRun, matching(state=sorted(s.RUN_LIVE)))
        of_runs = {run.request_id for run in live if run.request_id is not None}
        return of_runs | {id_ for row in self._active_backfills() for id_ in (row.request_id, row.changed_by)}

    def _versions(self) -> Iterator[str]:
        """Those that were replaced by another one longer ago, and that no run, backfill or DAG names."""
        store, cutoff = self._store, self._cutoffs["versions"]
        used = {(row.dag_id, row.current_version) for row in store.read(DagRow)}
        named: Counter[Any] = Counter()
        for table in (DagRun.TABLE, Backfill.TABLE):
            named.update(store.count(table, ["dag_id", "dag_version"]))
        if self._leader is None:
            named.subtract(self._would_go)
        used |= {key for key, rows in named.items() if rows > 0}
        by_dag = defaultdict[str, list[DagVersion]](list)
        for row in store.read(DagVersion, [], ["dag_id", "version"], without=("definition_json", "reader_json")):
            by_dag[row.dag_id].append(row)
        self._kept_snapshots = {row.content_hash for row in store.read(BundleRow)}  # which the next scan compares with
        for dag_id, rows in by_dag.items():
            nexts = [*(row.created_at for row in rows[1:]), None]
            going = [
                row for row, replaced_at in zip(rows, nexts, strict=True)
                if replaced_at is not None and replaced_at < cutoff and (dag_id, row.version) not in used
            ]  # fmt: skip
            self._kept_snapshots |= {Path(row.snapshot).name for row in rows if row not in going}
            if going:
                numbers = tuple(row.version for row in going)
                self._delete(DagVersion.TABLE, [*matching(dag_id=dag_id), Condition("version", "in", numbers)])
                self.gone["versions"] += len(going)
                yield "versions"

    def _versions_and_snapshots(self) -> Iterator[str]:
        """Only who has seen all versions knows which snapshots none of them names."""
        yield from self._versions()
        yield from self._snapshot_folders()

    def _snapshot_folders(self) -> Iterator[str]:
        """Snapshots that no version names any more, what a kill has left of one, then files that no snapshot holds any more."""
        if self._snapshots is None or not self._snapshots.is_dir():
            return
        cutoff = self._cutoffs["snapshots"].timestamp()
        for folder in sorted(self._snapshots.iterdir()):
            is_snapshot = len(folder.name) == HASH_CHARS and folder.name not in self._kept_snapshots
            if not (is_snapshot or folder.name.startswith(BEING_MADE)) or not folder.is_dir():
                continue
            try:
                is_gone = folder.stat().st_mtime < cutoff
                if is_gone and self._leader is not None:
                    is_gone = _delete_snapshot(folder, cutoff)
            except OSError as error:  # what else is old goes all the same
                log.warning("a snapshot can't be deleted", snapshot=folder.name, reason=str(error))
                continue
            if is_gone:
                self.gone["snapshots"] += int(is_snapshot)
                yield "snapshots"
        if self._leader is not None:  # a kill may have come between a snapshot and its files
            for stored in self._snapshots.glob("files/??/*"):
                with suppress(FileNotFoundError):  # a parser has just put another one there
                    if stored.stat().st_nlink == 1:
                        stored.unlink()

    def _notifications(self) -> Iterator[str]:
        """Those that were sent or given up."""
        old = [*matching(state=("sent", "failed")), Condition("created_at", "<", self._cutoffs["notifications"])]
        self.gone["notifications"] += self._store.count(Notification.TABLE, [], old).get((), 0)
        self._delete(Notification.TABLE, old)
        yield "notifications"

    def _import_errors(self) -> Iterator[str]:
        """Those of files that were read again, or gone. There is one for each file at most."""
        old = [*matching(is_current=False), Condition("last_seen_at", "<", self._cutoffs["import_errors"])]
        self.gone["import_errors"] += self._store.count(ImportProblem.TABLE, [], old).get((), 0)
        self._delete(ImportProblem.TABLE, old)
        yield "import_errors"


def _delete_snapshot(folder: Path, cutoff: float) -> bool:
    """Takes it away from its place first: half of one must not be there. One that was taken into use meanwhile (which sets its
    time), also by the leader that has followed this one, is put back."""
    away = folder
    if not folder.name.startswith(BEING_MADE):
        away = folder.rename(folder.with_name(f"{BEING_MADE}{folder.name}"))
        if away.stat().st_mtime >= cutoff:
            rename_unless_there(away, folder)
            return False
    shutil.rmtree(away)
    return True


def _has_settings(row: Backfill) -> bool:
    is_of_older_release = row.tasks is not None and row.with_upstream is None  # it tells which of its runs are partial
    return is_of_older_release or row.mark_success or row.overrides_json != "{}" or row.pool != BACKFILL_POOL
