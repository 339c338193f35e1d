"""`stale` goes by content (issue 14, number 10): which versions are as good as the current one, and what a stale backfill that
failed left behind."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from backfill_manager.clock import UTC
from backfill_manager.dags.definition import DagSpec, TaskSpec
from backfill_manager.model.records import Backfill, DagRun, DagVersion, Manager
from backfill_manager.model.transitions import Changes
from backfill_manager.planning.backfills.backfill_plan import existing_runs
from backfill_manager.planning.backfills.make_plan import make_plan
from backfill_manager.planning.backfills.stale import runs_for_stale
from backfill_manager.queries.data_gaps import wanted_by_data
from backfill_manager.schemas.backfill_options import CreateBackfill
from backfill_manager.store.memory import MemoryStore

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DAILY = DagSpec("flights", (TaskSpec("clean"),), schedule="@daily")
JANUARY = datetime(2013, 1, 1, tzinfo=UTC)
CODE = {
    "flights.py": "import helpers\nfrom pkg.deep import tool\nsql(Path(__file__).parent / 'clean.sql')\n",
    "helpers.py": "def task():\n    import lazily\n    render(f'{page}.j2')\n", "lazily.py": "1", "front.j2": "1",
    "pkg/__init__.py": "", "pkg/deep.py": "tool = 1", "clean.sql": "SELECT 1", "unused_helper.py": "1",
    "notes.txt": "buy milk", "other_dag.py": "from backfill_manager import dag",
}  # fmt: skip
ASK = CreateBackfill(dag_id="flights", kind="stale", start_date=JANUARY, end_date=JANUARY + timedelta(days=2))


class State:
    """Versions with snapshots of their own, and runs."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.store, self.changes = folder, MemoryStore(), Changes()
        self.store.init()
        self.leader = self.store.lead(Manager(1, "m", "host", 1, "leading", JANUARY, JANUARY, 15, "0"))

    def version(
        self, number: int, files: Mapping[str, str], definition: str = "{}", snapshot: str | None = None, **more: Any
    ) -> None:
        root = self.folder / f"v{number}"
        for name, text in files.items():
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).write_text(text)
        row = DagVersion(
            dag_id="flights", version=number, content_hash=f"hash-{number}", definition_json=definition, bundle="b",
            file="flights.py", snapshot=str(root) if snapshot is None else snapshot, created_at=JANUARY,
        )  # fmt: skip
        self.changes.put(row.evolve(**more))

    def run(self, day: int, state: str, version: int, backfill_id: str | None = None) -> None:
        at = JANUARY + timedelta(days=day - 1)
        self.changes.put(DagRun(
            "flights", f"r{day}", "backfill", state, version, self.leader.next_seq(), JANUARY, logical_date=at,
            interval_start=at, interval_end=at + timedelta(days=1), backfill_id=backfill_id, is_partial=False,
        ))  # fmt: skip

    def backfill(self, backfill_id: str, kind: str) -> None:
        self.changes.put(Backfill(
            backfill_id=backfill_id, dag_id="flights", state="failed", config_json=f'{{"type": "{kind}"}}', reprocess="none",
            max_active_runs=1, priority=0, pool="backfill", is_paused=False, created_at=JANUARY, run_seq=self.leader.next_seq(),
        ))  # fmt: skip

    def seen(self, version: int) -> list[tuple[str, int]]:
        """State and version of the runs as `stale` sees them."""
        self.leader.commit(self.changes)
        self.changes = Changes()
        runs = runs_for_stale(existing_runs(self.store, ASK, DAILY), self.store, DAILY, version).sort_by("run_id")
        return list(zip(runs["state"].to_pylist(), runs["dag_version"].to_pylist(), strict=True))


@pytest.fixture
def state(tmp_path: Path) -> State:
    return State(tmp_path)


def test_an_edit_that_was_taken_back_leaves_the_first_version_as_good_as_the_current_one(state: State) -> None:
    for number, text in (1, CODE["flights.py"]), (2, "other code"), (3, CODE["flights.py"]):
        state.version(number, {**CODE, "flights.py": text})
    state.run(1, "success", 1)
    state.run(2, "success", 2)
    state.run(3, "success", 3)
    assert state.seen(3) == [("success", 3), ("success", 2), ("success", 3)]


@pytest.mark.parametrize("file", ["unused_helper.py", "notes.txt", "other_dag.py", "new_one.py"])
def test_a_file_that_the_dag_does_not_read_changes_nothing(state: State, file: str) -> None:
    state.version(1, CODE)
    state.version(2, {**CODE, file: "changed"})
    state.run(1, "success", 1)
    assert state.seen(2) == [("success", 2)]


@pytest.mark.parametrize(
    "file", ["flights.py", "helpers.py", "lazily.py", "pkg/deep.py", "pkg/__init__.py", "clean.sql", "front.j2"]
)
def test_a_file_that_it_or_what_it_imports_mentions_does(state: State, file: str) -> None:
    state.version(1, CODE)
    state.version(2, {**CODE, file: CODE[file] + "\n# changed"})
    state.run(1, "success", 1)
    assert state.seen(2) == [("success", 1)]


def test_where_names_are_made_at_run_time_every_file_counts(state: State) -> None:
    code = {**CODE, "helpers.py": "files = Path(__file__).parent.glob('*')"}
    state.version(1, code)
    state.version(2, {**code, "notes.txt": "changed"})
    state.version(3, {**code, "manifest.yaml": "version: v1beta"})  # says how files are found, and no run reads it
    for number in (1, 2, 3):
        state.run(number, "success", number)
    state.version(4, code)
    assert state.seen(4) == [("success", 4), ("success", 2), ("success", 4)]


def test_another_definition_or_a_snapshot_that_is_gone_is_another_version(state: State) -> None:
    state.version(1, CODE, definition='{"retries": 1}')
    state.version(2, CODE, snapshot="/nowhere")
    state.version(3, CODE, snapshot="")
    state.version(4, CODE)
    for number in (1, 2, 3):
        state.run(number, "success", number)
    assert state.seen(4) == [("success", 1), ("success", 2), ("success", 3)]


def test_a_file_counts_that_something_else_than_code_mentions(state: State) -> None:
    """A shell script runs one, a file of settings names another."""
    code = {
        "flights.py": "run('load.sh')",
        "load.sh": "python each.py",
        "each.py": "read('steps.cfg')",
        "steps.cfg": "q7",
    }
    code |= {"q7.sql": "SELECT 1", "q8.sql": "SELECT 1"}
    for number, file in (1, "q8.sql"), (2, "each.py"), (3, "q7.sql"):
        state.version(number, {**code, file: code[file] + " -- changed"})
        state.run(number, "success", number)
    state.version(4, code)
    assert state.seen(4) == [("success", 4), ("success", 2), ("success", 3)]


@pytest.mark.parametrize(
    "now", [{"python": "/envs/new/bin/python"}, {"bundle": "new"}, {"reader_json": "{}"}], ids=lambda now: next(iter(now))
)  # fmt: skip
def test_the_same_code_of_another_bundle_or_with_another_interpreter_or_parser_is_another_version(
    state: State, now: dict[str, str]
) -> None:
    state.version(1, CODE)
    state.version(2, CODE, **now)
    state.run(1, "success", 1)
    assert state.seen(2) == [("success", 1)]


def test_what_a_parser_of_ones_own_read_is_not_known(state: State) -> None:
    reader = '{"reader": "own:Reader", "options": {}}'
    state.version(1, CODE, reader_json=reader)
    state.version(2, {**CODE, "notes.txt": "changed"}, reader_json=reader)
    state.run(1, "success", 1)
    assert state.seen(2) == [("success", 1)]


def test_a_version_of_the_same_content_is_equal_also_when_its_snapshot_is_gone(state: State) -> None:
    state.version(1, CODE, snapshot="/nowhere", content_hash="same")
    state.version(2, {**CODE, "flights.py": "other code"})
    state.version(3, CODE, content_hash="same")
    state.run(1, "success", 1)
    state.run(2, "success", 2)
    assert state.seen(3) == [("success", 3), ("success", 2)]


def test_stale_still_wants_what_a_failed_stale_backfill_left_behind(state: State, spark: SparkSession) -> None:
    """And not what failed otherwise, which `missing` wants."""
    state.version(1, CODE)
    state.version(2, {**CODE, "flights.py": "changed"})
    state.backfill("mine", "stale")
    state.backfill("another", "schedule")
    state.run(1, "failed", 2, "mine")
    state.run(2, "cancelled", 2, "mine")
    state.run(3, "failed", 2, "another")
    assert state.seen(2) == [("success", 0), ("success", 0), ("failed", 2)]
    find_wanted = wanted_by_data(state.store, None)
    plan = make_plan(spark, state.store, ASK, DAILY, 2, {}, datetime(2026, 1, 1, tzinfo=UTC), find_wanted)
    assert [at.day for at in plan.items["logical_date"].to_pylist()] == [1, 2]
    assert plan.items["state"].to_pylist() == ["pending"] * 2
