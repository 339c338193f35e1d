"""Writes of several tries that go into a table by one commit.

    each try stages its rows (files in the table's folder) ─► `submit` ─► the table's turn ─► one commit of all that are ready
    by then ─► an answer for each

A commit of Delta costs about as much for one interval as for twenty, and commits of one table go one by one. So each try does by
itself what can be done side by side, and whoever has the turn commits for all that wait. Each keeps its own application
transaction in that commit, so exactly-once holds for each alone: they land together, or none does, and a try that has landed
finds its transaction there.

The commit adds the staged files and removes those that lie wholly in a replaced interval. Everything else is done by the try
itself, in a turn of its own, as if it had never been staged (answer `alone`): a file that lies across the end of an interval, a
table that has changed its columns, a commit that fails. Staged files that are not committed stay in the folder until VACUUM,
as those of a killed Spark writer do.
"""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, Final, Literal

from backfill_manager.errors import AbandonedTry, LostLease
from backfill_manager.execution.error_format import one_line
from backfill_manager.execution.output.staged_write import StagedWrite
from backfill_manager.execution.output.table_turns import PROCESS_TURNS, TurnHolder
from backfill_manager.service import FailureHandler, Pass, ServicePool
from backfill_manager.store.delta_spark.conflicts import retry_on_conflict
from backfill_manager.store.delta_spark.transaction import DeltaTransaction, TransactionLookup, is_available

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MAX_WRITES: Final = 100  # of one commit
THREADS: Final = 4  # tables that are committed to at once
_log = logging.getLogger(__name__)

Kind = Literal["landed", "had_landed", "outdated", "alone", "abandoned", "unsure"]


@dataclass(frozen=True)
class Answer:
    """What became of a staged write."""

    kind: Kind
    why: str = ""
    version: int = 0  # of the table
    others: int = 0  # writes in the same commit

    @classmethod
    def refused(cls, refusal: AbandonedTry | LostLease) -> Answer:
        """As it goes to the process of a task, which raises it again (`checked`)."""
        return cls("abandoned" if isinstance(refusal, AbandonedTry) else "unsure", str(refusal))


def checked(answer: Answer) -> Answer:
    """Raises what a refusal is."""
    if answer.kind == "abandoned":
        raise AbandonedTry(answer.why)
    if answer.kind == "unsure":
        raise LostLease(answer.why)
    return answer


Refusal = Callable[[], AbandonedTry | LostLease | None]  # why a try must write nothing any more, if it must not


@dataclass(frozen=True, eq=False)
class _Submitted:
    staged: StagedWrite
    refusal: Refusal
    on_answer: Callable[[Answer], None]


class GroupCommits:
    """All that the tries of a manager stage. Thread-safe."""

    def __init__(self, spark: SparkSession, pool: str, *, on_failure: FailureHandler | None = None) -> None:
        """`pool`: the fair-scheduler pool of what Spark does for commits."""
        self.is_available = is_available(spark)
        self._spark, self._holder = spark.newSession(), TurnHolder(PROCESS_TURNS, "commits of staged writes")
        self._spark.conf.set("spark.sql.adaptive.enabled", "false")  # reading a table's log is one job then, not three
        self._lookup = TransactionLookup()
        self._lock = threading.Lock()
        self._ready: dict[str, list[_Submitted]] = {}  # by the table's identity; with a turn asked for
        set_pool = partial(spark.sparkContext.setLocalProperty, "spark.scheduler.pool", pool)
        self._threads = ServicePool("commits", THREADS, on_failure=on_failure, set_up=set_pool)

    @property
    def passes(self) -> list[Pass]:
        return self._threads.passes

    def submit(self, staged: StagedWrite, refusal: Refusal, on_answer: Callable[[Answer], None]) -> None:
        """`on_answer` is called once, from another thread, so it must not wait for anything."""
        with self._lock:
            is_first = staged.identity not in self._ready
            self._ready.setdefault(staged.identity, []).append(_Submitted(staged, refusal, on_answer))
        if is_first:
            commit = partial(self._threads.call, self._commit_ready, staged.identity)
            self._holder.request(staged.identity, on_turn=commit)

    def commit(self, refusal: Refusal, staged: StagedWrite) -> Answer:
        """Waits for the answer. `AbandonedTry` or `LostLease` if nothing may be written any more."""
        answers = SimpleQueue[Answer]()
        self.submit(staged, refusal, answers.put)
        return checked(answers.get())

    def close(self) -> None:
        """Once no try runs any more."""
        self._holder.stop_waiting()
        self._threads.close()
        self._holder.release_all()

    def _commit_ready(self, identity: str) -> None:
        turn = next(turn for turn in self._holder.turns if turn.identity == identity and turn.state == "held")
        with self._lock:
            ready = self._ready.pop(identity)
        left = ready
        with turn:
            while left:
                group, left = _group(left)
                for one, answer in zip(group, self._commit(group), strict=True):
                    one.on_answer(answer)

    def _commit(self, group: Sequence[_Submitted]) -> list[Answer]:
        name = group[0].staged.table
        try:
            return retry_on_conflict(_log, name)(self._commit_once, group)
        except Exception as error:  # noqa: BLE001 - whatever it is, each try meets it itself, and reports it
            _log.warning("%s: %d writes could not be committed together: %s", name, len(group), one_line(error))
            return [Answer("alone", one_line(error))] * len(group)

    def _commit_once(self, group: Sequence[_Submitted]) -> list[Answer]:
        transaction = DeltaTransaction.at(self._spark, group[0].staged.folder)
        digest = transaction.definition().digest
        answers = {one: self._answer_without_commit(one, transaction, digest) for one in group}
        ready = [one.staged for one, answer in answers.items() if answer is None]
        across, removed = _replaced_files(transaction, ready)
        alone = Answer("alone", "a file of the table lies across the end of what it replaces")
        answers |= {one: alone for one in answers if one.staged in across}
        ready = [one for one in ready if one not in across]
        if ready:
            version = transaction.commit(
                [action for one in ready for action in one.files],
                [file for one in ready for file in removed[one]],
                [(one.transaction, one.generation) for one in ready],
                metadata=_metadata(ready),
                replaces=any(one.replaced is not None for one in ready),
                rows=sum(one.rows for one in ready),
            )
            landed = Answer("landed", version=version, others=len(ready) - 1)
            answers |= {one: landed for one in answers if one.staged in ready}
        return [answer or Answer("alone") for answer in answers.values()]

    def _answer_without_commit(self, one: _Submitted, transaction: DeltaTransaction, digest: str) -> Answer | None:
        """None: it is to be committed."""
        staged = one.staged
        if (refusal := one.refusal()) is not None:
            return Answer.refused(refusal)
        recorded = self._lookup.recorded(transaction, staged.transaction)
        if recorded is not None and recorded >= staged.generation:
            return Answer("had_landed" if recorded == staged.generation else "outdated")
        return None if digest == staged.definition else Answer("alone", "the table's columns or settings have changed")


def _replaced_files(
    transaction: DeltaTransaction, writes: Sequence[StagedWrite]
) -> tuple[set[StagedWrite], dict[StagedWrite, list[Any]]]:
    """The writes that do not replace whole files only, and for each write the files that it replaces."""
    across, removed = set[StagedWrite](), {one: list[Any]() for one in writes}
    parts = {one: one.replaced for one in writes if one.replaced is not None}
    if not parts:
        return across, removed
    where = " OR ".join(f"({part.where})" for part in parts.values())

    def may_hold(file: dict[str, Any]) -> bool:
        return any(part.place_of(file) != "outside" for part in parts.values())

    for file, of_delta in transaction.files_where(where, may_hold):
        for one, part in parts.items():
            place = part.place_of(file)
            if place == "inside" and not file.get("deletionVector"):
                removed[one].append(of_delta)
            elif place != "outside":
                across.add(one)
    return across, removed


def _group(ready: Sequence[_Submitted]) -> tuple[list[_Submitted], list[_Submitted]]:
    """Those that can go into one commit, which replace different rows, and the others, for commits after it."""
    group: list[_Submitted] = []
    later: list[_Submitted] = []
    for one in ready:
        replaced = one.staged.replaced
        together = [other.staged.replaced for other in group]
        meets = len(group) >= MAX_WRITES or any(
            other is not None and replaced is not None and other.overlaps(replaced) for other in together
        )
        (later if meets else group).append(one)
    return group, later


def _metadata(writes: Sequence[StagedWrite]) -> str:
    """Of a commit of one write its own; of several {"writes": [...]}."""
    if len(writes) == 1:
        return writes[0].metadata
    return json.dumps({"writes": [json.loads(one.metadata) for one in writes]}, ensure_ascii=False)
