"""More than anybody should ask for, of a real manager: thousands of requests, DAGs, broken files, viewers, a million items, a
gigabyte of output. Each has a short form for every run of the suite; `--slow` does the whole."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from datetime import datetime, timedelta
from multiprocessing import get_context
from pathlib import Path
from typing import Any, Final

import httpx
import pytest
from support.api_server import system_app
from support.manager_process import TIMEOUT_S, ended, kill, request, wait_for

from backfill_manager.api import server
from backfill_manager.clock import UTC, SystemClock
from backfill_manager.model import states as s
from backfill_manager.model.records import Backfill, DagRun, ImportProblem, Pool, Response, TaskInstance
from backfill_manager.requests import submit
from backfill_manager.schemas import request_kinds
from backfill_manager.schemas.backfill_options import CreateBackfill
from backfill_manager.settings import Settings
from backfill_manager.store import open_store
from backfill_manager.store.base import Condition, Store

LONG_S: Final = 3600.0  # for the long forms, on a machine that is busy
slow = pytest.mark.slow


class Loaded:
    """One manager over a state and a bundle, with one core for Spark."""

    def __init__(self, root: Path, files: dict[str, str]) -> None:
        self.root, self.log = root, root / "manager.log"
        (root / "bundle").mkdir()
        for name, text in files.items():
            (root / "bundle" / name).write_text(text)
        conf = {
            "state": str(root / "state"), "warehouse": str(root / "warehouse"), "lease": {"seconds": 600},
            "bundles": [{"name": "tests", "path": str(root / "bundle")}],
            "spark": {"master": "local[1]", "conf": {"spark.sql.shuffle.partitions": "1"}},
        }  # fmt: skip
        (root / "manager.yaml").write_text(json.dumps(conf))
        self.store: Store = open_store(str(root / "state"))
        self._command = [sys.executable, "-m", "backfill_manager", "--conf", str(root / "manager.yaml")]
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [*self._command, "manager", "start"], stdout=log, stderr=subprocess.STDOUT, start_new_session=True
            )
        wait_for(self.store.exists)

    def count(self, table: str, by: str | None = None, **where: Any) -> Counter[Any]:
        conditions = [Condition(name, "=", value) for name, value in where.items()]
        found = self.store.count(table, [by] if by else [], conditions)
        return Counter({key[0] if key else None: n for key, n in found.items()})

    def bfm(self, *words: str) -> str:
        done = subprocess.run([*self._command, *words], capture_output=True, text=True, check=False, timeout=LONG_S)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def peak_memory_mb(self) -> float:
        """Of the manager's own process so far."""
        (kilobytes,) = re.findall(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{self.process.pid}/status").read_text())
        return int(kilobytes) / 1024


@pytest.fixture
def load(tmp_path: Path) -> Iterator[Callable[[dict[str, str]], Loaded]]:
    started: list[Loaded] = []

    def start(files: dict[str, str]) -> Loaded:
        started.append(Loaded(tmp_path, files))
        return started[-1]

    yield start
    for it in started:
        kill(it.process)


def submit_many(root: str, first: int, number: int) -> list[str]:
    """In a process of its own."""
    store, clock = open_store(root), SystemClock()
    return [
        submit.submit(
            store, clock, request_kinds.POOL_SET, {"name": "backfill", "slots": n + 1, "weight": 1, "min_share": 0}
        ).request_id
        for n in range(first, first + number)
    ]  # fmt: skip


@pytest.mark.parametrize("each", [8, pytest.param(625, marks=slow)])
def test_requests_of_sixteen_processes_at_once_are_answered_once_each(each: int, load: Any) -> None:
    manager = load({})
    wait_for(lambda: manager.count("pool")[None] == 2)
    with ProcessPoolExecutor(16, mp_context=get_context("spawn")) as clients:
        root = str(manager.root / "state")
        given = [clients.submit(submit_many, root, n * each, each) for n in range(16)]
        submitted = [request_id for one in given for request_id in one.result(LONG_S)]
    assert len(set(submitted)) == 16 * each
    wait_for(lambda: manager.count("response")[None] >= 16 * each, LONG_S)
    answers = manager.store.read(Response)
    assert Counter(answer.request_id for answer in answers) == dict.fromkeys(submitted, 1)
    assert {answer.outcome for answer in answers} == {"accepted"}
    (pool,) = manager.store.read(Pool, [Condition("name", "=", "backfill")])
    assert 1 <= pool.slots <= 16 * each


MANY_DAGS = """
from backfill_manager import dag, sql


def make(number):
    @dag(f"dag{number}", schedule="SCHEDULE", start_date="2020-01-01", catchup=False)
    def one():
        sql("work", "SELECT 1")


for number in range(NUMBER):
    make(number)
"""


@pytest.mark.parametrize("number", [20, pytest.param(500, marks=slow)])
def test_many_dags_that_are_due_in_one_minute_run_once_each(number: int, load: Any) -> None:
    # once a day, at a minute that comes when all have been read
    due = (datetime.now(UTC) + timedelta(seconds=100 if number < 100 else 240)).replace(second=0, microsecond=0)
    text = MANY_DAGS.replace("SCHEDULE", f"{due.minute} {due.hour} * * *").replace("NUMBER", str(number))
    manager = load({"many.py": text})
    wait_for(lambda: manager.count("dag")[None] == number)
    wait_for(lambda: manager.count("dag_run", interval_end=due, state=s.SUCCESS)[None] == number, LONG_S)
    runs = manager.store.read(DagRun)
    per_dag = Counter(run.dag_id for run in runs if run.interval_end == due)
    assert per_dag == {f"dag{n}": 1 for n in range(number)}
    assert {run.state for run in runs} == {s.SUCCESS}, [ti.error for ti in manager.store.read(TaskInstance) if ti.error]


EACH_MINUTE = """
from backfill_manager import dag, sql


@dag(schedule="* * * * *", start_date="2020-01-01", end_date="2024-01-01", max_active_runs=4)
def minutes():
    sql("work", "SELECT assert_true(false)", retries=0)
"""


@pytest.mark.parametrize("items", [5_000, pytest.param(1_000_000, marks=slow)])
def test_a_backfill_of_many_items_is_planned_paused_cancelled_and_retried(items: int, load: Any) -> None:
    manager = load({"minutes.py": EACH_MINUTE})
    wait_for(lambda: manager.count("dag")[None] == 1)
    first = datetime(2020, 1, 1, tzinfo=UTC)
    command = CreateBackfill(dag_id="minutes", start_date=first, end_date=first + timedelta(minutes=items - 1))
    request(manager.store, command, "all")
    wait_for(lambda: manager.count("backfill_item")[None] == items, LONG_S)
    wait_for(lambda: manager.count("backfill_item", "state")[s.FAILED] >= 2, LONG_S)

    manager.bfm("backfill", "pause", "all")
    (row,) = manager.store.read(Backfill)
    assert row.is_paused
    manager.bfm("backfill", "unpause", "all")
    manager.bfm("backfill", "cancel", "all")
    ended(manager.store, "all")
    states = manager.count("backfill_item", "state")
    assert states.total() == items and states[s.PENDING] == 0, states
    failed = states[s.FAILED]
    assert failed >= 2

    manager.bfm("backfill", "retry", "all")
    wait_for(lambda: manager.count("dag_run", "state")[s.OVERRIDDEN] == failed, LONG_S)
    ended(manager.store, "all")
    assert manager.count("backfill_item", "state") == states
    assert manager.process.poll() is None
    print(f"{items} items: the manager took {manager.peak_memory_mb():.0f} MB at most")


PRINTS = """
from backfill_manager import dag, task


@dag(schedule=None)
def loud():
    @task
    def prints(ctx):
        print("the first line")
        line = "x" * 1023
        for _ in range(MEGABYTES):
            print("\\n".join([line] * 1024))
        print("the last line")

    prints()


@dag(schedule=None)
def large():
    @task
    def returns(ctx):
        return "x" * (MEGABYTES * 1024 * 1024 // 10)

    returns()
"""


@pytest.mark.parametrize("megabytes", [30, pytest.param(1000, marks=slow)])
def test_a_task_that_prints_or_returns_too_much_costs_the_manager_nothing(megabytes: int, load: Any) -> None:
    manager = load({"loud.py": PRINTS.replace("MEGABYTES", str(megabytes))})
    wait_for(lambda: manager.count("dag")[None] == 2)
    before = manager.peak_memory_mb()
    for dag_id in ("loud", "large"):
        manager.bfm("dags", "trigger", dag_id)
    wait_for(lambda: sum(manager.count("dag_run", "state")[it] for it in (s.SUCCESS, s.FAILED)) == 2, LONG_S)
    by_task = {ti.task_id: ti for ti in manager.store.read(TaskInstance)}
    assert by_task["prints"].state == s.SUCCESS
    assert by_task["returns"].state == s.FAILED and "result" in str(by_task["returns"].error), by_task["returns"].error
    lines = manager.bfm("tasks", "logs", "loud", by_task["prints"].run_id, "prints").splitlines()
    assert "the first line" in lines[0] + lines[1] and any("the last line" in line for line in lines[-3:])
    kept = sum(map(len, lines))
    assert kept < 20 * 1024 * 1024 and any("lines" in line and "x" * 50 not in line for line in lines)
    assert manager.peak_memory_mb() - before < 200


@pytest.mark.parametrize("number", [50, pytest.param(2000, marks=slow)])
def test_broken_dag_files_are_listed_and_hold_nobody_up(number: int, load: Any) -> None:
    files = {f"broken{n}.py": f"from backfill_manager import dag\n\nraise ValueError({n})\n" for n in range(number)}
    manager = load(files | {"minutes.py": EACH_MINUTE})
    first = datetime(2020, 1, 1, tzinfo=UTC)
    wait_for(lambda: manager.count("dag")[None] == 1, LONG_S)
    request(manager.store, CreateBackfill(dag_id="minutes", start_date=first, end_date=first), "one")
    assert ended(manager.store, "one").state == s.FAILED
    wait_for(lambda: manager.count("import_error")[None] == number, LONG_S)
    problems = manager.store.read(ImportProblem)
    assert {problem.file for problem in problems} == files.keys()


def test_two_hundred_viewers_of_a_page_hear_of_a_change_once_each(tmp_path: Path) -> None:
    from support.sample_state import FilledState, StandingClock

    state = FilledState(tmp_path / "state", StandingClock())
    state.dag()
    state.pools()
    settings = Settings.model_validate({"api": {"max_connections_per_address": None, "max_concurrent_requests": 300}})
    heard: Counter[int] = Counter()
    begun, done = threading.Barrier(201), threading.Barrier(201)

    def view(url: str, number: int) -> None:
        with httpx.stream("GET", f"{url}/api/v1/events?topics=backfill", timeout=TIMEOUT_S, trust_env=False) as stream:
            events = (line for line in stream.iter_lines() if line.startswith("data: "))
            next(events)
            begun.wait(TIMEOUT_S)
            next(events)
            heard[number] += 1
            done.wait(TIMEOUT_S)

    with server.served_beside(system_app(settings, open_store(str(state.root))), server.listen("127.0.0.1", 0)) as url:
        viewers = [threading.Thread(target=view, args=(url, n), daemon=True) for n in range(200)]
        for viewer in viewers:
            viewer.start()
        begun.wait(TIMEOUT_S)
        state.backfill("b1", {"pending": 2})
        assert httpx.get(f"{url}/api/v1/dags", timeout=TIMEOUT_S, trust_env=False).status_code == 200
        done.wait(TIMEOUT_S)
    assert heard == dict.fromkeys(range(200), 1)
