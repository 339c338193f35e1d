"""Looks again and again, in threads of their own, for what tasks wait for and no run of ours writes: rows, files, conditions.

    tick: what is awaited ─► `WaitCheckers.want` ─► a look now, then one in each interval ─► a change: `WaitsChecked` ─► tick

Each kind has its thread, so that a storage that hangs holds up no query. A look that takes long is made less often: it takes a
tenth of the time at most. What fails is what was seen: a run shows it, and the next look may find otherwise. Nothing is kept: a
manager that begins looks anew.
"""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Final

from backfill_manager.clock import Clock
from backfill_manager.execution.error_format import one_line
from backfill_manager.execution.inputs.wait_checks import Found, look_for_condition, look_for_file, look_for_rows
from backfill_manager.execution.spark.spark_health import ignore_stopped_context, spark_gone_reason
from backfill_manager.execution.spark.spark_job_group import SparkJobGroup
from backfill_manager.logging import get_logger
from backfill_manager.model.pools import SCHEDULED_POOL
from backfill_manager.planning.data.wait_conditions import Seen, WaitCheck
from backfill_manager.schemas.waits import ConditionWait, FileWait, RowsWait
from backfill_manager.service import Service

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

QUERY_TIMEOUT_S: Final = 300.0  # of a condition, and of rows that Spark counts
REST_PER_LOOK: Final = 9.0  # its duration is waited so many times before the next one
TOO_SLOW: Final = f"it has taken longer than {QUERY_TIMEOUT_S / 60:g} minutes, and was stopped"

log = get_logger("waits")


@dataclass(frozen=True)
class WaitsChecked:
    """What has changed."""

    seen: Mapping[WaitCheck, Seen]


class WaitChecker(Service):
    """Looks for one kind of thing. `together` divides what is due into what one look answers; `look` may raise anything."""

    JOINED: ClassVar = False  # a storage or a Spark that hangs would hold up the manager's end

    def __init__(
        self, name: str, clock: Clock, interval_s: float, on_seen: Callable[[WaitsChecked], None],
        look: Callable[[Sequence[WaitCheck]], Found], together: Callable[[WaitCheck], object],
    ) -> None:  # fmt: skip
        super().__init__(name)
        self._clock, self._interval_s, self._on_seen = clock, interval_s, on_seen
        self._look, self._together = look, together
        self._lock = threading.Lock()
        self._next: dict[WaitCheck, float] = {}  # all that is wanted, and when it is looked for
        self._seen: dict[WaitCheck, Seen] = {}

    def want(self, looks: Collection[WaitCheck]) -> None:
        """All that is waited for now. What is new is looked for at once; what is not wanted any more is forgotten."""
        with self._lock:
            new = [look for look in looks if look not in self._next]
            if not new and len(looks) == len(self._next):
                return
            self._next = {look: self._next.get(look, 0.0) for look in looks}
            self._seen = {look: seen for look, seen in self._seen.items() if look in self._next}
        if new:
            self.wake()

    def run_once(self) -> float | None:
        now = self._clock.monotonic()
        with self._lock:
            due = [look for look, at in self._next.items() if at <= now]
        groups: dict[object, list[WaitCheck]] = defaultdict(list)
        for look in due:
            groups[self._together(look)].append(look)
        for looks in groups.values():
            if self._stopping.is_set():
                return None
            began = self._clock.monotonic()
            found = self._found(looks)
            ended = self._clock.monotonic()
            self._report(found, ended + max(self._interval_s, REST_PER_LOOK * (ended - began)))
        with self._lock:
            first = min(self._next.values(), default=None)
        return None if first is None else max(0.0, first - self._clock.monotonic())

    def _found(self, looks: Sequence[WaitCheck]) -> Found:
        try:
            return self._look(looks)
        except Exception as error:  # noqa: BLE001 - seen at the run that waits; the manager goes on
            return dict.fromkeys(looks, one_line(error))

    def _report(self, found: Found, next_at: float) -> None:
        changed: dict[WaitCheck, Seen] = {}
        at = self._clock.now()
        with self._lock:
            for look, result in found.items():
                if look not in self._next:
                    continue
                self._next[look] = next_at
                seen = Seen(result is True, result if isinstance(result, str) else None, at)
                before = self._seen.get(look)
                if before is None or (before.is_there, before.problem) != (seen.is_there, seen.problem):
                    self._seen[look] = changed[look] = seen
        for problem in {seen.problem for seen in changed.values() if seen.problem}:
            names = sorted({look.label for look, seen in changed.items() if seen.problem == problem})
            log.warning("could not look for what a task waits for", waits_for=", ".join(names[:3]), reason=problem)
        if changed and not self._stopping.is_set():
            self._on_seen(WaitsChecked(changed))


class _SparkWaitChecker(WaitChecker):
    """One whose looks may run Spark jobs: in the pool of scheduled runs, one at a time, each for a limited time."""

    def __init__(
        self, name: str, spark: SparkSession, clock: Clock, interval_s: float, on_seen: Callable[[WaitsChecked], None],
        on_spark_gone: Callable[[str], None], look: Callable[[SparkSession, Sequence[WaitCheck]], Found],
        together: Callable[[WaitCheck], object],
    ) -> None:  # fmt: skip
        super().__init__(name, clock, interval_s, on_seen, lambda looks: look(self._session, looks), together)
        self._spark, self._on_spark_gone = spark, on_spark_gone
        self._group = SparkJobGroup(SCHEDULED_POOL, f"bfm/{name.replace(' ', '-')}", name)

    def set_up(self) -> None:
        self._session = self._spark.newSession()
        self._group.enter(self._session)
        # Delta's parser loses the arguments otherwise (delta-io/delta#7640).
        self._session.conf.set("spark.sql.legacy.parameterSubstitution.constantsOnly", "true")

    def stop(self) -> None:
        self._stopping.set()
        self._cancel()
        super().stop()

    def _cancel(self) -> None:
        """What runs now. (The group could run nothing after it.)"""
        with ignore_stopped_context():
            self._spark.sparkContext.cancelJobsWithTag(self._group.tag)

    def _found(self, looks: Sequence[WaitCheck]) -> Found:
        with self._limited() as is_over:
            found = super()._found(looks)
        if (reason := spark_gone_reason(self._spark)) and not self._stopping.is_set():
            self._on_spark_gone(reason)
            return {}
        return dict.fromkeys(looks, TOO_SLOW) if is_over.is_set() else found

    @contextmanager
    def _limited(self) -> Iterator[threading.Event]:
        """Stops the Spark jobs of this thread when they take too long; the event says so."""
        is_over = threading.Event()

        def stop() -> None:
            is_over.set()
            self._cancel()

        timer = threading.Timer(QUERY_TIMEOUT_S, stop)
        timer.daemon = True
        timer.start()
        try:
            yield is_over
        finally:
            timer.cancel()


class WaitCheckers:
    def __init__(
        self, spark: SparkSession, clock: Clock, interval_s: float, *, on_seen: Callable[[WaitsChecked], None],
        on_spark_gone: Callable[[str], None],
    ) -> None:  # fmt: skip
        common = (spark, clock, interval_s, on_seen, on_spark_gone)
        self._by_kind: dict[type, WaitChecker] = {
            RowsWait: _SparkWaitChecker("waits for rows", *common, look_for_rows, together=_table),
            FileWait: WaitChecker(
                "waits for files", clock, interval_s, on_seen,
                lambda looks: {look: look_for_file(look) for look in looks}, together=lambda look: look,
            ),
            ConditionWait: _SparkWaitChecker(
                "waits for conditions", *common,
                lambda spark, looks: {look: look_for_condition(spark, look) for look in looks}, together=lambda look: look,
            ),
        }  # fmt: skip

    @property
    def services(self) -> list[WaitChecker]:
        return list(self._by_kind.values())

    def want(self, looks: Collection[WaitCheck]) -> None:
        """All that tasks wait for now, and that has not been found."""
        for kind, checker in self._by_kind.items():
            checker.want([look for look in looks if isinstance(look.wait, kind)])


def _table(look: WaitCheck) -> object:
    return (look.wait.rows, look.wait.time_column) if isinstance(look.wait, RowsWait) else look
