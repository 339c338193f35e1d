"""Measures what others take for what we do: 60 and 200 runs of three chained no-op tasks (Airflow, Dagster), and 365 days of one
model (SQLMesh), sixteen at a time.

Each as its user sees it, by its own command line, from the command to the end of the last task; the manager, a scheduler or a
daemon is running and has run the DAG before. Airflow and Dagster give each task a process, as our Python tasks have; SQLMesh
computes in DuckDB. What a peer keeps is in a temporary folder, it listens on loopback only, and sends nothing home.
"""

from __future__ import annotations

import json
import os
import secrets
import shutil
import signal
import socket
import sqlite3
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from datetime import date, timedelta
from pathlib import Path
from typing import Any, Final

from backfill_manager.model import states as s
from support.manager_process import TIMEOUT_S, wait_for
from support.measured_manager import MeasuredManager, cpu_of_tree, measured_manager
from support.process_tree import processes_below

PEERS: Final = Path(__file__).parents[1] / "bench" / "peers"
FIRST: Final = date(2024, 1, 1)
SLOTS: Final = 16
DAG_FILE: Final = f"""
from backfill_manager import dag, sql, task

daily = {{"schedule": "@daily", "start_date": "2018-01-01", "max_active_runs": {SLOTS}, "max_active_tasks": {SLOTS}}}

def chain():
    @task
    def extract(ctx):
        return None

    @task
    def transform(ctx):
        return None

    @task
    def load(ctx):
        return None

    extract() >> transform() >> load()

dag("processes", **daily, catchup=False)(chain)
dag("reused_processes", **daily, catchup=False, default_args={{"reuse_process": True}})(chain)

@dag(**daily, catchup=False)
def statements():
    sql("extract", "SELECT 1") >> sql("transform", "SELECT 1") >> sql("load", "SELECT 1")

@dag(**daily, catchup=False, batchable=True)
def model():
    days = "sequence(:interval_start, :interval_end - INTERVAL 1 SECOND, INTERVAL 1 DAY)"
    sql("daily", f"SELECT explode({{days}}) AS at", into="daily", time_column="at")
"""


# -- ours ---------------------------------------------------------------------------------------------------------------
@contextmanager
def ours(root: Path) -> Iterator[MeasuredManager]:
    pools = [{"name": "scheduled", "slots": SLOTS}, {"name": "backfill", "slots": SLOTS}]
    with measured_manager(root, {"chains.py": DAG_FILE}, pools=pools) as manager:
        for dag_id in ("processes", "reused_processes", "statements", "model"):
            _ours(manager, dag_id, 30, date(2018, 3, 1))  # the JVM compiles the code
        yield manager


def ours_chain(manager: MeasuredManager, dag_id: str, runs: int) -> dict[str, Any]:
    return _ours(manager, dag_id, runs, FIRST)


def ours_model(manager: MeasuredManager, year: int, batch: str) -> dict[str, Any]:
    """365 days from the first of January on."""
    days = 365
    figures = _ours(manager, "model", days, date(year, 1, 1), "--batch", batch)
    return {"runs": figures.pop("tasks"), "wall_s": figures["wall_s"], "days_per_s": round(days / figures["wall_s"], 2)}


def _ours(manager: MeasuredManager, dag_id: str, runs: int, first: date, *options: str) -> dict[str, Any]:
    last = first + timedelta(days=runs - 1)
    command = [
        sys.executable, "-m", "backfill_manager", "--state", str(manager.root / "state"), "--output", "json", "backfill",
        "create", dag_id, "--from", str(first), "--to", str(last), "--reprocess", "completed", *options,
    ]  # fmt: skip
    before, began = manager.cpu(), time.perf_counter()
    created = json.loads(subprocess.run(command, check=True, capture_output=True, cwd=manager.root).stdout)
    asked = time.perf_counter() - began
    backfill_id = created["backfill_id"]
    manager.ended(backfill_id)
    wall, cpu = time.perf_counter() - began, manager.cpu()
    done = manager.tasks(backfill_id, s.SUCCESS)
    starts, ends = [ti.started_at for ti in done if ti.started_at], [ti.ended_at for ti in done if ti.ended_at]
    each = {kind: round((cpu[kind] - before[kind]) / len(done) * 1000, 1) for kind in cpu}
    return _figures(len(done), wall, asked, (max(ends) - min(starts)).total_seconds()) | {"cpu_ms_per_task": each}


def _figures(tasks: int, wall: float, asked: float, working: float) -> dict[str, Any]:
    return {
        "tasks": tasks, "wall_s": round(wall, 2), "tasks_per_s": round(tasks / wall, 2), "command_s": round(asked, 2),
        "first_start_to_last_end_s": round(working, 2), "tasks_per_s_of_these": round(tasks / working, 2),
    }  # fmt: skip


# -- Airflow ------------------------------------------------------------------------------------------------------------
class Postgres:
    """A server on loopback with a database `peers`, in a folder of its own; as root, under the user `postgres`."""

    def __init__(self) -> None:
        self._bin = Path(os.path.realpath(shutil.which("pg_ctl") or shutil.which("postgres") or "")).parent
        self._folder, self._port = Path(tempfile.mkdtemp(prefix="bfm-peers-")), _free_port()
        self.address = f"postgres@127.0.0.1:{self._port}/peers"

    @contextmanager
    def running(self) -> Iterator[Postgres]:
        data, settings = (
            self._folder / "data",
            f"-c listen_addresses=127.0.0.1 -c port={self._port} -c max_connections=200",
        )
        try:
            if os.getuid() == 0:
                shutil.chown(self._folder, "postgres", "postgres")
            self._run("initdb", "-D", str(data), "-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale=C")
            options = f"{settings} -c unix_socket_directories={self._folder}"
            self._run("pg_ctl", "-D", str(data), "-w", "-l", str(self._folder / "log"), "-o", options, "start")
            self.pid = int((data / "postmaster.pid").read_text().split()[0])
            try:
                self._psql("postgres", "CREATE DATABASE peers")
                yield self
            finally:
                self._run("pg_ctl", "-D", str(data), "-w", "-m", "immediate", "stop")
        finally:
            shutil.rmtree(self._folder, ignore_errors=True)

    def query(self, sql: str) -> list[list[str]]:
        return [line.split("|") for line in self._psql("peers", sql).splitlines()]

    def _psql(self, database: str, sql: str) -> str:
        return self._run(
            "psql", "-h", "127.0.0.1", "-p", str(self._port), "-U", "postgres", "-d", database, "-qAtc", sql
        )

    def _run(self, name: str, *args: str) -> str:
        as_user = ["setpriv", "--reuid=postgres", "--regid=postgres", "--init-groups"] if os.getuid() == 0 else []
        with (self._folder / "said").open("w+") as said:  # a pipe would be held open by the server
            code = subprocess.run(
                [*as_user, str(self._bin / name), *args], cwd="/", stdout=said, stderr=said, check=False
            ).returncode
            said.seek(0)
            if code:
                raise RuntimeError(f"{name} ended with {code}: {said.read()[-2000:]}")
            return said.read()


class Airflow:
    """API server, DAG processor and scheduler with its LocalExecutor, over PostgreSQL."""

    def __init__(self, python: Path, root: Path, database: Postgres) -> None:
        root.mkdir()
        self._bin, self.root, self._database, port = python.parent, root, database, _free_port()
        self._url = f"http://127.0.0.1:{port}"
        section = {
            "DATABASE__SQL_ALCHEMY_CONN": f"postgresql+psycopg2://{database.address}", "CORE__DAGS_FOLDER": str(root / "dags"),
            "CORE__LOAD_EXAMPLES": "False", "CORE__EXECUTOR": "LocalExecutor", "CORE__PARALLELISM": str(SLOTS),
            "CORE__MAX_ACTIVE_TASKS_PER_DAG": str(SLOTS), "CORE__MAX_ACTIVE_RUNS_PER_DAG": str(SLOTS),
            "CORE__DAGS_ARE_PAUSED_AT_CREATION": "False", "CORE__EXECUTION_API_SERVER_URL": f"{self._url}/execution/",
            "CORE__SIMPLE_AUTH_MANAGER_ALL_ADMINS": "True", "API__HOST": "127.0.0.1", "API__PORT": str(port), "API__WORKERS": "1",
            "API__BASE_URL": self._url, "API__SECRET_KEY": secrets.token_hex(32), "API_AUTH__JWT_SECRET": secrets.token_hex(64),
            "USAGE_DATA_COLLECTION__ENABLED": "False",
        }  # fmt: skip
        self._env = {"AIRFLOW_HOME": str(root), "PYTHONWARNINGS": "ignore"}
        self._env |= {f"AIRFLOW__{name}": value for name, value in section.items()}
        self._processes: list[subprocess.Popen[bytes]] = []
        (root / "dags").mkdir()
        (root / "dags" / "airflow_chain.py").write_text((PEERS / "airflow_chain.py").read_text())

    @contextmanager
    def running(self) -> Iterator[Airflow]:
        """Once it has ended the scheduled run that is due at its start."""
        self._run("db", "migrate")
        self._run("dags", "reserialize")
        with ExitStack() as stack:
            for name, *options in (("api-server",), ("dag-processor",), ("scheduler", "--skip-serve-logs")):
                command = [str(self._bin / "airflow"), name, *options]
                self._processes.append(stack.enter_context(_process(command, self.root, self._env, name)))
                if name == "api-server":
                    wait_for(lambda: _answers(f"{self._url}/api/v2/version"))
            wait_for(lambda: self._query("SELECT DISTINCT state FROM dag_run") == [["success"]])
            yield self

    def chain(self, runs: int) -> dict[str, Any]:
        wait_for(lambda: not self._query("SELECT 1 FROM backfill WHERE completed_at IS NULL"))  # one at a time
        first = FIRST + timedelta(days=300 if runs < 100 else 0)  # others for each
        last = first + timedelta(days=runs - 1)
        before, began = self._cpu(), time.perf_counter()
        self._run(
            "backfill", "create", "--dag-id", "chain", "--from-date", str(first), "--to-date", str(last), "--max-active-runs",
            str(SLOTS), "--reprocess-behavior", "none",
        )  # fmt: skip
        asked = time.perf_counter() - began
        ((number,),) = self._query("SELECT max(id) FROM backfill")
        of_it = f"FROM dag_run r JOIN task_instance t USING (dag_id, run_id) WHERE r.backfill_id = {number}"

        def done() -> bool:
            found = dict(
                self._query(f"SELECT state, count(*) FROM dag_run WHERE backfill_id = {number} GROUP BY state")
            )
            return sum(int(found.get(state, 0)) for state in ("success", "failed")) == runs

        wait_for(done, 2 * TIMEOUT_S)
        wall, cpu = time.perf_counter() - began, self._cpu() - before
        ((tasks, working),) = self._query(
            f"SELECT count(*), extract(epoch FROM max(t.end_date) - min(t.start_date)) {of_it} AND t.state = 'success'"
        )
        return _figures(int(tasks), wall, asked, float(working)) | {
            "cpu_ms_per_task": round(cpu / int(tasks) * 1000, 1)
        }

    def _cpu(self) -> float:
        return sum(cpu_of_tree(pid) for pid in (self._database.pid, *(process.pid for process in self._processes)))

    def _run(self, *args: str) -> None:
        _command([str(self._bin / "airflow"), *args], self.root, self._env)

    def _query(self, sql: str) -> list[list[str]]:
        return self._database.query(sql)


# -- Dagster ------------------------------------------------------------------------------------------------------------
_DAGSTER_YAML: Final = f"""
telemetry: {{enabled: false}}
concurrency: {{runs: {{max_concurrent_runs: {SLOTS}}}}}
"""
_LAUNCH: Final = """
mutation($p: LaunchBackfillParams!) { launchPartitionBackfill(backfillParams: $p) {
  __typename ... on LaunchBackfillSuccess { backfillId } ... on PythonError { message } } }
"""


class Dagster:
    """Its daemon, over SQLite."""

    def __init__(self, python: Path, root: Path) -> None:
        root.mkdir()
        self._bin, self.root, self._file = python.parent, root, str(PEERS / "dagster_chain.py")
        (root / "dagster.yaml").write_text(_DAGSTER_YAML)
        self._env = {"DAGSTER_HOME": str(root), "DAGSTER_DISABLE_TELEMETRY": "1"}

    @contextmanager
    def running(self) -> Iterator[Dagster]:
        command = [str(self._bin / "dagster-daemon"), "run", "-f", self._file]
        with _process(command, self.root, self._env, "daemon") as self._daemon:
            wait_for(lambda: "configured with the following daemons" in (self.root / "daemon.log").read_text())
            yield self

    def chain(self, runs: int) -> dict[str, Any]:
        keys = [str(FIRST + timedelta(days=n)) for n in range(runs)]
        selector = {
            "partitionSetName": "chain_partition_set",
            "repositorySelector": {"repositoryName": "__repository__", "repositoryLocationName": "dagster_chain.py"},
        }
        variables = json.dumps({"p": {"selector": selector, "partitionNames": keys}})
        before, began = cpu_of_tree(self._daemon.pid), time.perf_counter()
        said = _command(
            [str(self._bin / "dagster-graphql"), "-f", self._file, "-t", _LAUNCH, "-v", variables], self.root, self._env
        )
        if "backfillId" not in said:
            raise RuntimeError(said)
        asked = time.perf_counter() - began
        database = self.root / "history" / "runs.db"

        def done() -> bool:
            found = dict(_query(database, "SELECT status, count(*) FROM runs GROUP BY status"))
            if "FAILURE" in found:
                raise RuntimeError(f"runs of Dagster failed: {found}")
            return bool(found.get("SUCCESS", 0) == runs)

        wait_for(done, 4 * TIMEOUT_S)
        wall, cpu = time.perf_counter() - began, cpu_of_tree(self._daemon.pid) - before
        ((working,),) = _query(database, "SELECT max(end_time) - min(start_time) FROM runs")
        return _figures(3 * runs, wall, asked, working) | {"cpu_ms_per_task": round(cpu / (3 * runs) * 1000, 1)}


# -- SQLMesh ------------------------------------------------------------------------------------------------------------
_SQLMESH_YAML: Final = """
gateways:
  local:
    connection: {{type: duckdb, database: {root}/data.db}}
    state_connection: {{type: duckdb, database: {root}/state.db}}
default_gateway: local
model_defaults: {{dialect: duckdb, start: 2024-01-01}}
disable_anonymized_analytics: true
"""
_MODEL: Final = """
MODEL (name bench.daily, kind INCREMENTAL_BY_TIME_RANGE (time_column ds{batch}), start '2024-01-01', end '2024-12-30',
  cron '@daily');
SELECT CAST(@start_ds AS DATE) + CAST(i AS INTEGER) AS ds, i AS n
FROM range(0, DATE_DIFF('day', CAST(@start_ds AS DATE), CAST(@end_ds AS DATE)) + 1) AS t(i)
"""


def sqlmesh(python: Path, root: Path, batch: int | None) -> dict[str, Any]:
    """365 days of one model: from the command to its end."""
    (root / "models").mkdir(parents=True)
    (root / "config.yaml").write_text(_SQLMESH_YAML.format(root=root))
    (root / "models" / "daily.sql").write_text(_MODEL.format(batch=f", batch_size {batch}" if batch else ""))
    env = {"SQLMESH__DISABLE_ANONYMIZED_ANALYTICS": "true", "HOME": str(root), "NO_COLOR": "1"}
    began = time.perf_counter()
    _command([str(python.parent / "sqlmesh"), "-p", str(root), "plan", "--auto-apply", "--no-prompts"], root, env)
    wall = time.perf_counter() - began
    count = "SELECT count(DISTINCT ds) FROM bench.daily"
    program = "import duckdb, sys; print(duckdb.connect(sys.argv[1]).sql(sys.argv[2]).fetchone()[0])"
    days = int(_command([str(python), "-c", program, str(root / "data.db"), count], root, env))
    if days != 365:
        raise RuntimeError(f"SQLMesh made {days} days")
    return {"wall_s": round(wall, 2), "days_per_s": round(days / wall, 2)}


# -- of all -------------------------------------------------------------------------------------------------------------
def _free_port() -> int:
    with closing(socket.create_server(("127.0.0.1", 0))) as server:
        return int(server.getsockname()[1])


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=2):
            return True
    except (urllib.error.URLError, OSError):
        return False


def _environment(env: Mapping[str, str]) -> dict[str, str]:
    """Ours without what is meant for us or another Airflow."""
    foreign = ("AIRFLOW", "DAGSTER", "SQLMESH", "BFM_", "PYTHONPATH")
    return {**{name: value for name, value in os.environ.items() if not name.startswith(foreign)}, **env}


def _command(command: Sequence[str], folder: Path, env: Mapping[str, str]) -> str:
    ended = subprocess.run(command, cwd=folder, env=_environment(env), capture_output=True, text=True, check=False)
    if ended.returncode:
        raise RuntimeError(
            f"{' '.join(command[:3])} ended with {ended.returncode}:\n{ended.stdout[-2000:]}\n{ended.stderr[-2000:]}"
        )
    return ended.stdout


@contextmanager
def _process(
    command: Sequence[str], folder: Path, env: Mapping[str, str], name: str
) -> Iterator[subprocess.Popen[bytes]]:
    """Ends with all that it has started."""
    with (folder / f"{name}.log").open("wb") as log:
        process = subprocess.Popen(
            command, cwd=folder, env=_environment(env), stdout=log, stderr=subprocess.STDOUT, start_new_session=True
        )
    try:
        yield process
    finally:
        below = processes_below(process.pid)
        process.terminate()
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        for pid in below:
            _end(pid)


def _end(pid: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def _query(database: Path, sql: str) -> list[Any]:
    """Of a database that another process writes; nothing while it isn't there yet."""
    if not database.exists():
        return []
    with closing(sqlite3.connect(f"file:{database}?mode=ro", uri=True, timeout=30)) as connection:
        return connection.execute(sql).fetchall()
