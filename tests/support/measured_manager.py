"""A manager as a process of its own, with a JVM of its own, for benches: its requests, and what each of its processes costs."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, Final

from backfill_manager.clock import SystemClock
from backfill_manager.model import states as s
from backfill_manager.model.records import Backfill, DagRow, DagRun, TaskInstance
from backfill_manager.schemas.backfill_options import CreateBackfill
from backfill_manager.store import open_store
from backfill_manager.store.base import Condition, Store, matching
from support.manager_process import TIMEOUT_S, ended, kill, request, wait_for
from support.process_tree import command_of, processes_below

_TICK: Final = os.sysconf("SC_CLK_TCK")


class MeasuredManager:
    def __init__(self, root: Path, process: subprocess.Popen[bytes], store: Store) -> None:
        self.root, self.process, self.store, self.clock = root, process, store, SystemClock()

    def backfill(self, **options: Any) -> str:
        """Requests it; returns its id at once."""
        backfill_id = self.clock.new_id()
        request(self.store, CreateBackfill(**options), backfill_id)
        return backfill_id

    def ended(self, backfill_id: str, seconds: float = TIMEOUT_S) -> Backfill:
        """Once it has succeeded, within so many seconds."""
        row = ended(self.store, backfill_id, seconds)
        if row.state != s.SUCCESS:
            raise RuntimeError(f"the backfill is {row.state}: {row.reason}\n{self.log()[-2000:]}")
        return row

    def tasks(self, backfill_id: str, *states: str) -> list[TaskInstance]:
        runs = self.store.read(DagRun, matching(backfill_id=backfill_id))
        of_backfill = [
            Condition("dag_id", "in", sorted({run.dag_id for run in runs})),
            Condition("run_id", "in", sorted({run.run_id for run in runs})),
        ]
        return self.store.read(TaskInstance, [*of_backfill, *([Condition("state", "in", states)] if states else [])])

    def log(self) -> str:
        return (self.root / "manager.log").read_text()

    def cpu(self) -> Counter[str]:
        """Seconds so far, user and system, by kind of process: the manager, fork servers, task processes (with what they started,
        running or ended), the JVM."""
        found: Counter[str] = Counter(manager=cpu_of(self.process.pid)[0])
        for pid in processes_below(self.process.pid):
            own, of_ended = cpu_of(pid)
            command = command_of(pid)
            if "fork_server" in command:
                found += Counter({"fork servers": own, "task processes": of_ended})
            else:
                found["JVM" if "java" in command.partition(" ")[0] else "task processes"] += own
        return found


@contextmanager
def measured_manager(
    root: Path, dag_files: Mapping[str, str], *, pools: list[dict[str, Any]] | None = None, env: Mapping[str, str] | None = None,
    **spark: Any,
) -> Iterator[MeasuredManager]:  # fmt: skip
    """Yields it at the moment when its DAGs can be asked for. `spark`: that section of the configuration; without `master`, two
    cores of this machine."""
    (root / "bundle").mkdir(parents=True)
    for name, text in dag_files.items():
        (root / "bundle" / name).write_text(text)
    settings = {
        "state": str(root / "state"), "warehouse": str(root / "warehouse"), "spark": {"master": "local[2]", **spark},
        "bundles": [{"name": "bench", "path": str(root / "bundle")}], **({"pools": pools} if pools else {}),
    }  # fmt: skip
    (root / "manager.yaml").write_text(json.dumps(settings))
    command = [sys.executable, "-m", "backfill_manager", "--conf", str(root / "manager.yaml"), "manager", "start"]
    with (root / "manager.log").open("wb") as log:
        process = subprocess.Popen(
            command,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            cwd=root,
            env={**os.environ, **(env or {})},
        )
    try:
        with closing(open_store(settings["state"])) as store:  # type: ignore[arg-type]
            manager = MeasuredManager(root, process, store)

            def is_ready() -> bool:
                assert process.poll() is None, manager.log()
                return store.exists() and bool(store.read(DagRow, matching(is_active=True)))

            wait_for(is_ready)
            yield manager
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(TIMEOUT_S)
        finally:
            kill(process)


def cpu_of_tree(pid: int) -> float:
    """Seconds of CPU so far, of a process, what it has started, and what of that has ended."""
    return sum(sum(cpu_of(one)) for one in (pid, *processes_below(pid)))


def cpu_of(pid: int) -> tuple[float, float]:
    """Seconds of CPU so far, of the process itself, and of its children that have ended."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0, 0.0
    user, system, of_children, system_of_children = (int(field) / _TICK for field in fields[11:15])
    return user + system, of_children + system_of_children
