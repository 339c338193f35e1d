"""Bundles and versions with a real manager: what is edited, moved and asked for while things run."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from support.manager_process import ended, request, wait_for

from backfill_manager.clock import UTC, SystemClock
from backfill_manager.model import states as s
from backfill_manager.model.records import BundleRow, DagRow, DagRun, DagVersion, ImportProblem, TaskInstance
from backfill_manager.requests import submit
from backfill_manager.schemas import request_kinds
from backfill_manager.schemas.backfill_options import CreateBackfill
from backfill_manager.settings import BundleSettings, Settings
from backfill_manager.store.base import Condition, Store

DAY = timedelta(days=1)
FIRST = datetime(2024, 3, 1, tzinfo=UTC)

# A task tells which code it runs: its own file's and its helper's. It waits for a file, so that the test can edit
# meanwhile.
DAG_FILE = """
import pathlib, threading
import helper
from backfill_manager import dag, task

@dag(schedule="@daily", start_date="2024-01-01", end_date="2024-12-31")
def tells():
    @task
    def tell(ctx):
        gate = pathlib.Path(ctx.params.get("gate", "/"))
        for _ in range(3000):
            if gate.exists():
                break
            threading.Event().wait(0.1)
        import late
        return ["file VERSION", helper.NAME, late.NAME]
    tell()
"""


def write_version(bundle: Path, number: int) -> None:
    (bundle / "helper.py").write_text(f"NAME = 'helper {number}'\n")
    (bundle / "late.py").write_text(f"NAME = 'late {number}'\n")
    (bundle / "tells.py").write_text(DAG_FILE.replace("VERSION", str(number)))


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    bundle = tmp_path / "bundle"
    bundle.mkdir()
    write_version(bundle, 1)
    return bundle


@pytest.fixture
def settings(tmp_path: Path, bundle: Path) -> Settings:
    pushed = tmp_path / "pushed"
    pushed.mkdir()
    return Settings(
        state=str(tmp_path / "state"),
        bundles=[
            BundleSettings(name="tests", path=str(bundle), fetch_interval=0.2),
            BundleSettings(name="pushed", path=str(pushed), parser="event"),
        ],
    )


def version(store: Store, dag_id: str = "tells") -> int:
    found = store.read(DagRow, [Condition("dag_id", "=", dag_id)])
    return found[0].current_version if found else 0


def caught_up(store: Store, bundle: Path) -> int:
    """The version that holds the bundle's files as they are now. Who edits three of them may be seen between two."""

    def look() -> int:
        number = version(store)
        (row,) = store.read(DagVersion, [Condition("dag_id", "=", "tells"), Condition("version", "=", number)])
        kept, now = (
            {file.name: file.read_text() for file in here.glob("*.py")} for here in (Path(row.snapshot), bundle)
        )
        return number if kept == now else 0

    number: int = wait_for(look)
    return number


def reported(store: Store, backfill_id: str) -> list[tuple[int, Any]]:
    """The version of each of its runs, and what its task gave."""
    runs = store.read(DagRun, [Condition("backfill_id", "=", backfill_id)], order_by=["logical_date"])
    results = {ti.run_id: ti.result_json for ti in store.read(TaskInstance)}
    return [(run.dag_version, json.loads(results[run.run_id] or "null")) for run in runs]


def running(store: Store, backfill_id: str) -> bool:
    ids = {run.run_id for run in store.read(DagRun, [Condition("backfill_id", "=", backfill_id)])}
    return any(ti.run_id in ids for ti in store.read(TaskInstance, [Condition("state", "=", s.RUNNING)]))


def answer(store: Store, kind: str, payload: dict[str, Any]) -> Any:
    submitted = submit.submit(store, SystemClock(), kind, payload)
    found = wait_for(lambda: submit.response_to(store, submitted.request_id))
    assert found.outcome == request_kinds.ACCEPTED, found.message
    return found


def test_a_backfill_that_runs_ends_with_the_version_it_began_with_and_the_next_uses_the_new_one(
    manager: Callable[[], Store], bundle: Path, tmp_path: Path
) -> None:
    store, gate = manager(), tmp_path / "gate"
    slow = CreateBackfill(
        dag_id="tells", start_date=FIRST, end_date=FIRST + 2 * DAY, conf={"gate": str(gate)}, max_active_runs=1
    )
    request(store, slow, "old")
    wait_for(lambda: running(store, "old"))
    write_version(bundle, 2)
    second = caught_up(store, bundle)

    # both at once, each with a helper of its own
    request(store, CreateBackfill(dag_id="tells", start_date=FIRST + 5 * DAY, end_date=FIRST + 6 * DAY), "new")
    assert ended(store, "new").state == s.SUCCESS
    assert reported(store, "new") == [(second, ["file 2", "helper 2", "late 2"])] * 2
    assert running(store, "old")

    write_version(bundle, 3)
    (bundle / "tells.py").write_text("not python")  # what runs is none of its business
    wait_for(lambda: store.read(ImportProblem, [Condition("is_current", "=", True)]))
    gate.touch()
    assert ended(store, "old").state == s.SUCCESS
    assert reported(store, "old") == [(1, ["file 1", "helper 1", "late 1"])] * 3


def test_a_run_keeps_its_version_over_a_restart_of_the_manager(
    start_and_stop: tuple[Callable[[], Store], Callable[[], None]], bundle: Path, tmp_path: Path
) -> None:
    start, stop = start_and_stop
    store, gate = start(), tmp_path / "gate"
    request(store, CreateBackfill(dag_id="tells", start_date=FIRST, end_date=FIRST, conf={"gate": str(gate)}), "old")
    wait_for(lambda: running(store, "old"))
    gate.touch()
    stop()
    write_version(bundle, 2)
    store = start()
    assert version(store) == 2
    assert ended(store, "old").state == s.SUCCESS
    assert reported(store, "old") == [(1, ["file 1", "helper 1", "late 1"])]


def test_a_pushed_bundle_is_parsed_when_it_is_asked_for_and_not_before(
    manager: Callable[[], Store], tmp_path: Path
) -> None:
    store = manager()
    pushed = tmp_path / "pushed"
    (pushed / "daily").mkdir()
    (pushed / "daily" / "one.py").write_text(
        "from backfill_manager import dag, sql\n@dag\ndef one():\n    sql('s', 'SELECT 1')\n"
    )
    (pushed / "broken.py").write_text("from backfill_manager import dag\n1 / 0\n")
    ask = {"bundle": "pushed", "subpath": "", "dry_run": True, "deactivate_removed": False}

    dry = json.loads(answer(store, request_kinds.BUNDLE_PARSE, ask).payload_json)
    assert [(change["dag_id"], change["change"]) for change in dry["changes"]] == [("one", "new")]
    assert [(error["file"], error["line"]) for error in dry["errors"]] == [("broken.py", 2)]
    assert version(store, "one") == 0

    real = answer(store, request_kinds.BUNDLE_PARSE, {**ask, "dry_run": False, "subpath": "daily"})
    assert real.message == "bundle pushed: 1 new (1 DAG in 1 file)"
    assert version(store, "one") == 1

    answer(store, request_kinds.DAG_DEACTIVATE, {"dag_id": "one"})
    assert not store.read(DagRow, [Condition("dag_id", "=", "one")])[0].is_active
    answer(store, request_kinds.BUNDLE_PARSE, {**ask, "dry_run": False, "subpath": "daily"})
    assert store.read(DagRow, [Condition("dag_id", "=", "one")])[0].is_active
    assert answer(store, request_kinds.BUNDLE_DEACTIVATE, {"bundle": "pushed", "subpath": "daily"}).message == (
        "daily of bundle pushed: one is inactive"
    )
    assert answer(store, request_kinds.BUNDLE_DEACTIVATE, {"bundle": "pushed", "subpath": "daily/one.py"}).message == (
        "daily/one.py of bundle pushed has no active DAG"
    )

    submitted = submit.submit(store, SystemClock(), request_kinds.BUNDLE_PARSE, {**ask, "bundle": "pushd"})
    refused = wait_for(lambda: submit.response_to(store, submitted.request_id))
    assert (refused.outcome, "'pushed'" in refused.message) == (request_kinds.REFUSED, True)


def git(folder: Path, *arguments: str) -> str:
    return subprocess.run(
        ["git", "-c", "user.name=ada", "-c", "user.email=ada@example.org", *arguments],
        cwd=folder, check=True, capture_output=True, text=True,
    ).stdout.strip()  # fmt: skip


def test_a_run_from_a_git_bundle_tells_the_commit_of_its_code(
    manager: Callable[[], Store], settings: Settings, tmp_path: Path
) -> None:
    work, bare = tmp_path / "work", tmp_path / "origin.git"
    work.mkdir()
    git(work, "init", "-q", "-b", "main")
    (work / "dags").mkdir()
    write_version(work / "dags", 1)
    git(work, "add", ".")
    git(work, "commit", "-q", "-m", "one")
    git(tmp_path, "clone", "-q", "--bare", str(work), str(bare))
    settings.bundles[0] = BundleSettings(name="repo", git=str(bare), ref="main", path="dags", fetch_interval=0.2)
    store = manager()
    first = git(work, "rev-parse", "HEAD")
    assert [row.commit_id for row in store.read(DagVersion)] == [first]

    write_version(work / "dags", 2)
    git(work, "commit", "-q", "-a", "-m", "two")
    git(work, "push", "-q", str(bare), "main")
    wait_for(lambda: version(store) == 2)
    second = git(work, "rev-parse", "HEAD")
    assert [row.commit_id for row in store.read(DagVersion, order_by=["version"])] == [first, second]
    in_repo = [Condition("name", "=", "repo")]  # committed after the version: children first
    wait_for(lambda: [row.commit_id for row in store.read(BundleRow, in_repo)] == [second])
    request(store, CreateBackfill(dag_id="tells", start_date=FIRST, end_date=FIRST), "b")
    assert ended(store, "b").state == s.SUCCESS
    assert reported(store, "b") == [(2, ["file 2", "helper 2", "late 2"])]


OUTSIDE = """
import subprocess
from backfill_manager import dag, sql

for name in subprocess.run(["cat", LISTED], capture_output=True, text=True, check=True).stdout.split():
    @dag(name)
    def made():
        sql("s", "SELECT 1")
"""


def test_a_file_that_depends_on_something_outside_is_read_again_also_after_a_restart(
    start_and_stop: tuple[Callable[[], Store], Callable[[], None]], settings: Settings, tmp_path: Path
) -> None:
    """The list is read by a process of its own, so that nothing of it is seen when the file is read."""
    start, stop = start_and_stop
    dynamic, listed = tmp_path / "dynamic", tmp_path / "listed"
    dynamic.mkdir()
    listed.write_text("x y")
    (dynamic / "made.py").write_text(OUTSIDE.replace("LISTED", repr(str(listed))))
    settings.bundles[:] = [
        BundleSettings(name="dynamic", path=str(dynamic), fetch_interval=3600, max_file_parse_interval=1)
    ]

    def active(store: Store) -> dict[str, int]:
        rows = store.read(DagRow, [Condition("is_active", "=", True)])
        return {row.dag_id: row.current_version for row in rows}

    store = start()
    assert active(store) == {"x": 1, "y": 1}
    listed.write_text("x z")
    wait_for(lambda: active(store) == {"x": 1, "z": 1})
    stop()
    listed.write_text("x")
    store = start()
    assert active(store) == {"x": 1}
    listed.write_text("x y")
    wait_for(lambda: active(store) == {"x": 1, "y": 1})  # it goes on from the version that it had


SHEET = """\
dag;task;after;runs
sheet;load;;SELECT 1 AS n
sheet;tell;load;python helpers:tell
"""


def results_of(store: Store, backfill_id: str) -> dict[str, str | None]:
    """What the tasks of its only run gave (the schedule makes runs of its own)."""
    (run,) = store.read(DagRun, [Condition("backfill_id", "=", backfill_id)])
    return {ti.task_id: ti.result_json for ti in store.read(TaskInstance, [Condition("run_id", "=", run.run_id)])}


def test_a_bundle_in_a_format_of_somebody_elses_parser_is_read_run_edited_and_parsed_on_demand(
    start_and_stop: tuple[Callable[[], Store], Callable[[], None]],
    settings: Settings,
    tmp_path: Path,
    sheet_parser: Path,
) -> None:
    start, stop = start_and_stop
    sheets = tmp_path / "sheets"
    sheets.mkdir()
    (sheets / "manifest.yaml").write_text(
        "version: v1beta\nparser: sheets\noptions: {delimiter: ';', start_date: 2024-01-01, look_every: 0.2}\n"
    )
    (sheets / "helpers.py").write_text("# dag backfill_manager\ndef tell(ctx):\n    return 'first'\n")
    (sheets / "all.sheet").write_text(SHEET)
    settings.bundles[:] = [BundleSettings(name="sheets", path=str(sheets))]
    store = start()
    assert version(store, "sheet") == 1
    request(store, CreateBackfill(dag_id="sheet", start_date=FIRST, end_date=FIRST), "one")
    assert ended(store, "one").state == s.SUCCESS
    assert results_of(store, "one") == {"load": None, "tell": '"first"'}

    (sheets / "helpers.py").write_text("# dag backfill_manager\ndef tell(ctx):\n    return 'second'\n")
    wait_for(lambda: version(store, "sheet") == 2)
    request(store, CreateBackfill(dag_id="sheet", start_date=FIRST + DAY, end_date=FIRST + DAY), "two")
    assert ended(store, "two").state == s.SUCCESS
    assert results_of(store, "two") == {"load": None, "tell": '"second"'}

    (sheets / "all.sheet").write_text(SHEET.replace("tell;load", "tell;laod"))
    wait_for(lambda: store.read(ImportProblem, [Condition("is_current", "=", True)]))
    (problem,) = store.read(ImportProblem, [Condition("is_current", "=", True)])
    assert (problem.file, problem.line, problem.message) == (
        "all.sheet", 3, "task 'tell' comes after 'laod', which is not above it",
    )  # fmt: skip
    assert version(store, "sheet") == 2

    ask = {"bundle": "sheets", "subpath": "", "dry_run": True, "deactivate_removed": False}
    (sheets / "new.sheet").write_text("dag;task;after;runs\nadded;t;;SELECT 1\n")
    dry = json.loads(answer(store, request_kinds.BUNDLE_PARSE, ask).payload_json)
    assert [(error["file"], error["line"]) for error in dry["errors"]] == [("all.sheet", 3)]
    (sheets / "all.sheet").write_text(SHEET)
    wait_for(lambda: not store.read(ImportProblem, [Condition("is_current", "=", True)]))
    assert answer(store, request_kinds.BUNDLE_PARSE, {**ask, "dry_run": False}).message.startswith("bundle sheets:")

    wait_for(lambda: version(store, "added") == 1)
    stop()
    (before,) = store.read(BundleRow)
    assert before.parsed_at is not None and json.loads(before.settings_json or "{}")["options"]["delimiter"] == ";"
    store = start()  # nothing has changed since: by this parser's own rule nothing is read
    assert store.read(BundleRow) == [before]
    request(store, CreateBackfill(dag_id="sheet", start_date=FIRST + 2 * DAY, end_date=FIRST + 2 * DAY), "three")
    assert ended(store, "three").state == s.SUCCESS
