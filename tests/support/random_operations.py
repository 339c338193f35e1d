"""Commands that are chosen by chance, of a real command line beside a real manager that is killed again and again. At the end
nothing fails any more, and state and tables have to agree.

What is checked needs no model of what the commands do: whatever they were, each day of a table has the rows of one run, whole;
that run is one that wrote them, and was not reverted; and whatever was requested has been answered and has ended.
"""

from __future__ import annotations

import json
import os
import random
import re
import subprocess
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from functools import cached_property
from pathlib import Path
from typing import Any, Final

from backfill_manager.clock import UTC, SystemClock
from backfill_manager.model import states as s
from backfill_manager.model.records import Backfill, DagRun, Request, Response, TaskInstance, TaskTry
from backfill_manager.store import open_store
from backfill_manager.store.base import Store, matching
from support.manager_process import TIMEOUT_S, kill, rows_in, wait_for

FIRST: Final = datetime(2024, 1, 1, tzinfo=UTC)
ROWS: Final = 4  # of each day
PROGRESS_S: Final = 20.0  # at most, until something more has ended
TABLES: Final = {  # of the DAG and its task
    "replaced": ("days", "replace"),
    "appended": ("days", "append"),
    "batched": ("batches", "write"),
}
DAG_FILE: Final = '''
from datetime import timedelta
from pathlib import Path

from backfill_manager import Param, dag, task

FAILING, VERSION, ROWS = Path({failing!r}), {version}, {rows}
SETTINGS = dict(
    schedule="@daily", start_date="2024-01-01", end_date="2024-02-29", catchup=False, params={{"k": Param(1, type="integer")}}
)


def rows_of(ctx):
    """Of each day of the interval. Days of which a file is in FAILING fail."""
    days, at = [], ctx.interval.start
    while at < ctx.interval.end:
        if (FAILING / f"{{at:%Y-%m-%d}}").exists():
            raise ValueError(f"{{at:%Y-%m-%d}} fails")
        days.append(at)
        at += timedelta(days=1)
    rows = [(at, ctx.run_id, VERSION, ctx.params["k"]) for at in days for _ in range(ROWS)]
    return ctx.spark.createDataFrame(rows, "at timestamp, run string, version int, k int")


@dag(max_active_runs=4, **SETTINGS)
def days():
    @task(retries=1, retry_delay=0.1)
    def replace(ctx):
        ctx.write(rows_of(ctx), "replaced", time_column="at")

    @task
    def append(ctx):
        ctx.write(rows_of(ctx), "appended", mode="append")

    replace() >> append()


@dag(max_active_runs=2, batchable=True, **SETTINGS)
def batches():
    @task
    def write(ctx):
        ctx.write(rows_of(ctx), "batched", time_column="at")

    write()


@dag(max_active_runs=2, depends_on_past=True, **SETTINGS)
def readers():
    @task
    def read(ctx):
        found = ctx.spark.table("replaced").where(f"at >= '{{ctx.interval.start}}' AND at < '{{ctx.interval.end}}'")
        ctx.write(found, "read", time_column="at")

    read()
'''


class RandomOperations:
    def __init__(self, root: Path, seed: int, days: int, start: Callable[..., subprocess.Popen[bytes]]) -> None:
        """`days`: on which backfills begin."""
        self._root, self._random, self._days, self._start = root, random.Random(seed), days, start
        self._version, self._waiting = 0, list[subprocess.Popen[str]]()
        self.said: list[str] = []
        self._failing = root / "failing"
        for folder in (self._failing, root / "bundle"):
            folder.mkdir()
        conf = {
            "state": str(root / "state"), "warehouse": str(root / "warehouse"), "snapshots": str(root / "snapshots"),
            "bundles": [{"name": "tests", "path": str(root / "bundle")}], "lease": {"seconds": 15},
            "spark": {"master": "local[2]", "conf": {"spark.sql.shuffle.partitions": "1"}},
        }  # fmt: skip
        (root / "manager.yaml").write_text(json.dumps(conf))
        self._new_version()

    @cached_property
    def store(self) -> Store:
        return open_store(str(self._root / "state"))

    def run(self, steps: int) -> None:
        self._manager = self._start()
        wait_for(self.store.exists)
        wait_for(lambda: self.store.count("dag", [])[()] == 3)
        last = _day(self._days // 2)
        self._bfm("backfill", "create", "days", "--from", _day(0), "--to", last, "--wait")
        self._bfm("backfill", "create", "readers", "--from", _day(0), "--to", last)
        self._bfm("backfill", "create", "batches", "--from", _day(0), "--to", last)
        operations = list(self._operations())
        for _ in range(steps):
            assert self._manager.poll() is None, (self.said, "the manager has ended by itself")
            [operation] = self._random.choices([one for _, one in operations], [weight for weight, _ in operations])
            arguments = operation()
            if arguments:
                self._bfm(*arguments, is_waited_for=self._random.random() < 0.6)

    def end(self) -> None:
        """Nothing fails or is held up from now on, until there is nothing left to do."""
        for process in self._waiting:
            self._answer(process)
        for file in self._failing.iterdir():
            file.unlink()
        for row in self.store.read(Backfill):
            if row.is_paused:
                self._bfm("backfill", "unpause", row.backfill_id)
        wait_for(lambda: (lease := self.store.lease()) and lease.pid == self._manager.pid)
        self._bfm("manager", "stop", "--drain", "--timeout", str(TIMEOUT_S))
        assert self._manager.wait(TIMEOUT_S) == 0
        assert self._start("--until-idle").wait(2 * TIMEOUT_S) == 0

    # -- operations ---------------------------------------------------------------------------------------------------
    def _operations(self) -> Iterator[tuple[float, Callable[[], list[str] | None]]]:
        def of_backfill(*words: str) -> Callable[[], list[str]]:
            return lambda: ["backfill", words[0], self._a_backfill(), *words[1:]]

        yield 10, self._create
        yield 3, self._retry
        yield 1.5, of_backfill("pause")
        yield 2, of_backfill("unpause")
        yield 1.5, of_backfill("cancel")
        yield 2.5, of_backfill("revert", "--yes")
        yield 3, of_backfill("promote")
        yield 1, of_backfill("discard")
        yield 1, lambda: ["backfill", "set", self._a_backfill(), "--max-active-runs", str(self._random.randint(1, 5))]
        yield 3, self._clear
        yield 3, lambda: ["dags", "trigger", self._a_dag(), "--logical-date", _day(self._random.randrange(self._days))]
        yield 1, lambda: ["runs", "mark", self._a_run(), self._random.choice(["success", "failed"])]
        yield 1.5, lambda: ["runs", "cancel", self._a_run()]
        yield 1.5, lambda: ["runs", "revert", self._a_run(), "--yes"]
        yield 3, self._fail_or_mend
        yield 1.5, self._new_version
        yield 5, self._wait
        yield 4, self._kill
        yield 1, self._kill_early

    def _create(self) -> list[str]:
        chance, dag_id = self._random.random, self._a_dag()
        first = self._random.randrange(self._days)
        made = ["backfill", "create", dag_id, "--from", _day(first), "--to", _day(first + self._random.randrange(8))]
        if chance() < 0.15:
            made += ["--kind", self._random.choice(["missing", "stale", "outdated"])]
        elif chance() < 0.2:
            made += ["--preview", "--reprocess", "completed"]
        else:
            made += ["--reprocess", self._random.choice(["none", "failed", "failed_tasks", "completed", "completed"])]
            made += ["--run-backwards"] if dag_id != "readers" and chance() < 0.2 else []
            made += ["--downstream"] if dag_id == "days" and chance() < 0.25 else []
        made += ["--conf", json.dumps({"k": self._random.randint(2, 9)})] if chance() < 0.3 else []
        made += ["--max-active-runs", str(self._random.randint(1, 4))] if chance() < 0.2 else []
        made += ["--batch", str(self._random.randint(1, 5))] if dag_id == "batches" and chance() < 0.5 else []
        return made + (["--stop-on-failure", "1"] if chance() < 0.15 else [])

    def _retry(self) -> list[str]:
        latest = ["--latest-version"] if self._random.random() < 0.4 else []
        return ["backfill", "retry", self._a_backfill(), *latest]

    def _clear(self) -> list[str]:
        first = self._random.randrange(self._days)
        cleared = ["tasks", "clear", self._a_dag(), "--from", _day(first), "--to", _day(first + 4), "--yes"]
        for share, more in (
            (0.4, ["-t", "replace|write|read"]),
            (0.7, ["-d"]),
            (0.3, ["-f"]),
            (0.3, ["--latest-version"]),
        ):
            cleared += more if self._random.random() < share else []
        return cleared

    def _fail_or_mend(self) -> None:
        file = self._failing / _day(self._random.randrange(self._days))
        self.said.append(f"{'mended' if file.exists() else 'fails'}: {file.name}")
        if file.exists():
            file.unlink()
        else:
            file.touch()

    def _new_version(self) -> None:
        self._version += 1
        self.said.append(f"version {self._version}")
        new = self._root / "new.py"
        new.write_text(DAG_FILE.format(failing=str(self._failing), version=self._version, rows=ROWS))
        new.replace(self._root / "bundle" / "random.py")

    def _wait(self) -> None:
        self._progress(self._random.randint(1, 12))

    def _kill(self) -> None:
        self._progress(self._random.randint(1, 8))
        self.said.append("kill -9")
        kill(self._manager)
        self._manager = self._start()

    def _kill_early(self) -> None:
        """Its successor has perhaps just begun."""
        kill(self._manager)
        self._manager = self._start()
        self._kill()

    def _progress(self, n: int) -> None:
        """Until `n` more tries have ended or requests are answered, or for a while."""
        clock, wanted = SystemClock(), self._done() + n
        end = clock.monotonic() + PROGRESS_S
        wait_for(lambda: self._done() >= wanted or clock.monotonic() > end)

    def _done(self) -> int:
        return self.store.count("task_try", [])[()] + self.store.count("response", [])[()]

    def _a_dag(self) -> str:
        return self._random.choice(["days", "days", "batches", "batches", "readers"])

    def _a_backfill(self) -> str:
        return self._random.choice(self.store.read(Backfill)).backfill_id

    def _a_run(self) -> str:
        run = self._random.choice(self.store.read(DagRun))
        return f"{run.dag_id}/{run.run_id}"

    def _bfm(self, *arguments: str, is_waited_for: bool = True) -> None:
        self.said.append(f"bfm {' '.join(arguments)}")
        process = subprocess.Popen(
            [sys.executable, "-m", "backfill_manager", "--conf", str(self._root / "manager.yaml"), *arguments],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, env={**os.environ},
        )  # fmt: skip
        if is_waited_for:
            self._answer(process)
        else:
            self._waiting.append(process)

    def _answer(self, process: subprocess.Popen[str]) -> None:
        _, error = process.communicate(timeout=TIMEOUT_S)
        self.said.append(f"  {process.returncode} {error.strip()[-300:]}")
        assert process.returncode in range(6), self.said
        assert "Traceback" not in error, self.said

    # -- what must hold at the end ------------------------------------------------------------------------------------
    def problems(self) -> Iterator[str]:
        yield from (str(finding) for finding in self.store.check() if not finding.ok)
        answered = {row.request_id for row in self.store.read(Response)}
        for request in self.store.read(Request):
            if request.request_id not in answered:
                yield f"{request.kind} {request.request_id} has no response"
        for backfill in self.store.read(Backfill):
            if backfill.state not in s.BACKFILL_FINISHED:
                yield f"backfill {backfill.backfill_id} is {backfill.state}: {backfill.reason}"
        for run in self.store.read(DagRun):
            if run.state not in s.RUN_FINISHED:
                yield f"run {run.dag_id}/{run.run_id} is {run.state}"
        for table in TABLES:
            yield from self._problems_of(table)
        for log in self._root.glob("manager*.log"):
            for line in re.findall(r".*(?:Traceback|IllegalTransition|AssertionError|KeyError).*", log.read_text()):
                yield f"{log.name}: {line}"

    def _problems_of(self, table: str) -> Iterator[str]:
        dag_id, task_id = TABLES[table]
        runs = {run.run_id: run for run in self.store.read(DagRun, matching(dag_id=dag_id))}
        tasks = self.store.read(TaskInstance, matching(dag_id=dag_id, task_id=task_id))
        cleared = {task.run_id: task.generation for task in tasks}  # how often: it writes again then
        days = defaultdict[datetime, list[tuple[str, int, int]]](list)
        place = self._root / "warehouse" / table
        # Where its backfill was cancelled before a task has written, there is none.
        found = rows_in(place, "t", "SELECT at, run, version, k FROM t") if (place / "_delta_log").exists() else []
        for at, *rest in found:
            days[at].append((rest[0], rest[1], rest[2]))
        for day, rows in sorted(days.items()):
            written_by = {run for run, _, _ in rows}
            if table != "appended" and len(written_by) != 1:
                yield f"{table} {day:%m-%d}: rows of {sorted(written_by)}"
            for run_id in written_by:
                of_run = [row for row in rows if row[0] == run_id]
                times = len(of_run) // ROWS
                most = 1 if table != "appended" else 1 + cleared.get(run_id, 0)
                if len(of_run) % ROWS or times > most or (times == 1 and len(set(of_run)) != 1):
                    yield f"{table} {day:%m-%d}: {of_run} of {run_id}, which may have written {most} times"
                if (run := runs.get(run_id)) is None:
                    yield f"{table} {day:%m-%d}: {run_id} is no run"
                elif run.reverted_at is not None:
                    yield f"{table} {day:%m-%d}: {run_id} was reverted"
        yield from self._missing_from(table, runs, days)

    def _missing_from(self, table: str, runs: dict[str, DagRun], days: dict[datetime, list[Any]]) -> Iterator[str]:
        """What the runs in the timeline have written is there."""
        dag_id, task_id = TABLES[table]
        previews = {
            row.backfill_id
            for row in self.store.read(Backfill)
            if row.preview_id is not None and row.preview_outcome != s.PROMOTED
        }
        succeeded = matching(dag_id=dag_id, task_id=task_id, state=s.SUCCESS)
        wrote = {one.run_id for one in self.store.read(TaskTry, succeeded)}
        # Of each day the last one: a batch stays in the timeline when some of its days are done again.
        writers: dict[datetime, str] = {}
        for one in sorted(self.store.read(TaskInstance, succeeded), key=lambda one: one.ended_at or FIRST):
            run = runs[one.run_id]
            is_in_timeline = run.state != s.OVERRIDDEN and run.reverted_at is None and run.backfill_id not in previews
            if not is_in_timeline or run.run_id not in wrote:  # it may have been marked
                continue
            assert run.interval_start is not None and run.interval_end is not None
            length = (run.interval_end - run.interval_start).days
            writers |= {run.interval_start + timedelta(days=n): run.run_id for n in range(length)}
        for at, run_id in sorted(writers.items()):
            if run_id not in {row[0] for row in days[at]}:
                yield f"{table} {at:%m-%d}: rows of {run_id} are missing, there are {days[at]}"


def _day(n: int) -> str:
    return f"{FIRST + timedelta(days=n):%Y-%m-%d}"
