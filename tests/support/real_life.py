"""A real manager with Spark, for as long as one likes, and what it and its JVM hold meanwhile.

    python -m support.real_life MINUTES [DAGS]

DAGs are due every minute, with a write into a Delta table each; their file has another version every ten minutes; a backfill of
thirty items is asked for every ten minutes; somebody looks at pages every few seconds. Prints one line of JSON every five
minutes.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
import threading
from collections import Counter
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import httpx

from backfill_manager.client import Client
from backfill_manager.clock import UTC, SystemClock
from backfill_manager.model.records import TaskInstance
from backfill_manager.store import open_store
from backfill_manager.store.base import Condition
from support.manager_process import TIMEOUT_S, kill, wait_for
from support.process_tree import command_of, processes_below

REPORT_S = 300.0
LOOK_S = 5.0
BACKFILL_EVERY = 2  # reports, as each new version of the DAGs
BACKFILL_DAYS = 30
PAGES = ("/", "/dags", "/runs", "/tasks", "/backfills", "/manager", "/dags/due0", "/pools")
_URL = re.compile(r"The web pages are at (http://\S+:\d+)")
DAG_FILE = """
from backfill_manager import dag, task

VERSION = {version}


def heap_after_collection(spark):
    pools = spark._jvm.java.lang.management.ManagementFactory.getMemoryPoolMXBeans()
    used = [pool.getCollectionUsage() for pool in pools if pool.getType().toString() == "Heap memory"]
    return sum(one.getUsed() for one in used if one is not None)


def due(name):
    @dag(dag_id=name, schedule="* * * * *", start_date="2024-01-01", max_active_runs=2)
    def one():
        @task
        def write(ctx):
            from pyspark.sql import functions as f
            row = ctx.spark.range(1).select(f.lit(ctx.interval.start).alias("at"), f.lit(ctx.run_id).alias("run"))
            ctx.write(row, "of_" + name, time_column="at")
            return heap_after_collection(ctx.spark)

        @task
        def look(ctx):
            return ctx.spark.table("of_" + name).where("run = '" + ctx.run_id + "'").count()

        write() >> look()

    return one()


for number in range({dags}):
    due("due" + str(number))


@dag(schedule="@daily", start_date="2024-01-01", end_date="2024-12-31", max_active_runs=4, catchup=False)
def past():
    @task
    def work(ctx):
        return ctx.spark.range(1000).count()

    work()
"""


def conf(root: Path) -> dict[str, Any]:
    return {
        "state": str(root / "state"), "warehouse": str(root / "warehouse"), "snapshots": str(root / "snapshots"),
        "bundles": [{"name": "life", "path": str(root / "bundle")}],
        "api": {"port": 0},
        "retention": {name: "1 hour" for name in ("runs", "tries", "logs", "requests", "snapshots", "import_errors")},
        "spark": {"master": "local[2]", "conf": {"spark.sql.shuffle.partitions": "1", "spark.driver.memory": "1g"}},
    }  # fmt: skip


def of_process(pid: int) -> dict[str, Any]:
    status = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
    return {
        "rss_mb": round(int(status["VmRSS"].split()[0]) / 1024), "threads": int(status["Threads"]),
        "descriptors": len(os.listdir(f"/proc/{pid}/fd")),
    }  # fmt: skip


def files_under(folder: Path) -> tuple[int, float]:
    sizes = []
    for path in folder.rglob("*"):
        try:
            sizes += [path.stat().st_size] if path.is_file() else []
        except FileNotFoundError:  # it was just removed
            continue
    return len(sizes), round(sum(sizes) / 1e6, 2)


class Life:
    def __init__(self, root: Path, dags: int) -> None:
        self._root, self._dags, self._version = root, dags, 0
        (root / "bundle").mkdir()
        self.new_version()
        (root / "manager.yaml").write_text(json.dumps(conf(root)))
        self._log = root / "manager.log"
        with self._log.open("wb") as log:
            command = [
                sys.executable, "-m", "backfill_manager", "--conf", str(root / "manager.yaml"), "manager", "start", "--with-ui"
            ]  # fmt: skip
            self.manager = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)
        found = wait_for(lambda: self.manager.poll() is not None or _URL.search(self._log.read_text()))
        assert isinstance(found, re.Match), self.log()
        self.url = found[1]
        with Client(self.url) as client:
            wait_for(lambda: list(client.dags()))
        self._stop = threading.Event()
        self._answers: Counter[int] = Counter()
        self._viewer = threading.Thread(target=self._look_at_pages)
        self._viewer.start()

    def new_version(self) -> None:
        self._version += 1
        new = self._root / "life.py"
        new.write_text(DAG_FILE.format(version=self._version, dags=self._dags))
        new.replace(self._root / "bundle" / "life.py")

    def ask_for_backfill(self, number: int) -> None:
        first = datetime(2024, 1, 1, tzinfo=UTC) + timedelta(days=number)
        last = first + timedelta(days=BACKFILL_DAYS - 1)
        with Client(self.url) as client:
            client.create_backfill(
                "past", start_date=f"{first:%Y-%m-%d}", end_date=f"{last:%Y-%m-%d}", reprocess="completed"
            )

    def _look_at_pages(self) -> None:
        with httpx.Client(base_url=self.url, timeout=TIMEOUT_S, trust_env=False) as browser:
            while not self._stop.wait(LOOK_S):
                for page in PAGES:
                    self._answers[browser.get(page).status_code] += 1

    def report(self, minutes: float) -> dict[str, Any]:
        below = processes_below(self.manager.pid)
        python = [pid for pid in (self.manager.pid, *below) if "manager start" in command_of(pid)]
        jvm = next(pid for pid in (self.manager.pid, *below) if "java" in command_of(pid).partition(" ")[0])
        store = open_store(str(self._root / "state"))
        written = [Condition("task_id", "=", "write"), Condition("state", "=", "success")]
        newest = store.first(TaskInstance, written, ["-ended_at"])
        heap = json.loads(newest.result_json or "0") if newest else 0  # in use after the last collection
        state_files, state_mb = files_under(self._root / "state")
        runs = {str(key[0]): n for key, n in store.count("dag_run", ["state"], []).items()}
        tries = sum(store.count("task_try", ["state"], []).values())
        return {
            "minutes": round(minutes, 1), "runs": runs, "tries_kept": tries, "manager": of_process(python[-1]),
            "jvm": of_process(jvm), "heap_mb": round(heap / 1e6, 1), "processes": len(below),
            "files": {"state": state_files, "snapshots": files_under(self._root / "snapshots")[0]}, "state_mb": state_mb,
            "pages": dict(self._answers),
        }  # fmt: skip

    def log(self) -> str:
        return self._log.read_text()[-3000:]

    def end(self) -> int:
        self._stop.set()
        self._viewer.join(TIMEOUT_S)
        self.manager.terminate()
        try:
            return self.manager.wait(TIMEOUT_S)
        finally:
            kill(self.manager)


def live(minutes: float, dags: int) -> None:
    clock = SystemClock()
    with tempfile.TemporaryDirectory(prefix="bfm-real-life-") as folder:
        life = Life(Path(folder), dags)
        begun, never, number = clock.monotonic(), threading.Event(), 0
        try:
            while (passed := clock.monotonic() - begun) < minutes * 60:
                if number % BACKFILL_EVERY == 0:
                    life.ask_for_backfill(number)
                    life.new_version()
                number += 1
                never.wait(min(number * REPORT_S, minutes * 60) - passed)
                assert life.manager.poll() is None, life.log()
                print(json.dumps(life.report((clock.monotonic() - begun) / 60)), flush=True)
        finally:
            code = life.end()
        assert code == 0, life.log()


if __name__ == "__main__":
    live(float(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 5)
