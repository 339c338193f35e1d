"""The parsers that docs/bundles.md shows do what it says of them, installed as it says."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest
from support.bundle_folder import BundleFolder

from backfill_manager.dags.catalog import DagCatalog
from backfill_manager.dags.importing.loader import DagLoader
from backfill_manager.dags.parsers.bundle_state import BundleState
from backfill_manager.dags.parsers.parser import BundleParser
from backfill_manager.dags.parsers.registry import parser_for
from backfill_manager.testing import FakeClock

PAGE = (Path(__file__).parents[2] / "docs" / "bundles.md").read_text(encoding="utf-8")


def shown(class_name: str) -> str:
    (block,) = [text for text in re.findall(r"```python\n(.+?)```", PAGE, re.DOTALL) if f"class {class_name}(" in text]
    return str(block)


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """A package with the parser of that class, named by the lines that the guide has for it."""
    (points,) = re.findall(r"```ini\n\[options.entry_points\]\n(.+?)```", PAGE, re.DOTALL)
    group = points.splitlines()[0].partition(" ")[0]

    def install(class_name: str) -> None:
        package = f"guide_{class_name.lower()}"
        about = tmp_path / "site" / f"{package}-1.0.dist-info"
        about.mkdir(parents=True)
        (tmp_path / "site" / package).mkdir()
        (tmp_path / "site" / package / "__init__.py").write_text("")
        (tmp_path / "site" / package / "parsers.py").write_text(shown(class_name))
        (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n")
        (about / "entry_points.txt").write_text(f"[{group}]\n{class_name.lower()} = {package}.parsers:{class_name}\n")
        monkeypatch.syspath_prepend(str(tmp_path / "site"))

    return install


@pytest.fixture
def loader() -> Iterator[DagLoader]:
    with DagLoader(workers=1) as loader:
        yield loader


class Reading:
    def __init__(self, bundle: BundleFolder, loader: DagLoader, at: datetime) -> None:
        self.bundle, self.loader, self.clock, self.catalog = bundle, loader, FakeClock(at), DagCatalog()
        self.store = self.catalog
        self.restart()

    def restart(self) -> None:
        made = BundleState(self.bundle.settings(), snapshots=self.bundle.snapshots)
        self.parser: BundleParser = parser_for(made, self.loader, self.store, self.clock)

    def scan(self) -> None:
        for submission in self.parser.scan_results():
            self.store.submit(submission, self.clock.now())

    def due_at(self) -> datetime:
        due = self.parser.due_in()
        assert due is not None
        return self.clock.now() + timedelta(seconds=due)

    @property
    def active(self) -> list[str]:
        return sorted(row.dag_id for row in self.catalog.dags.values() if row.is_active)


def test_nightly_reads_its_folder_at_its_hour_every_night_over_restarts(
    bundle: BundleFolder, installed: Callable[[str], None], loader: DagLoader
) -> None:
    installed("Nightly")
    bundle.write(
        "manifest.yaml", re.findall(r"```yaml\n(version: v1beta\nparser: nightly\n.+?)```", PAGE, re.DOTALL)[0]
    )
    bundle.write_dag("nightly/a.py", "a")
    bundle.write_dag("other.py", "other")
    first = datetime(2024, 5, 1, 12, tzinfo=timezone.utc)
    it = Reading(bundle, loader, first)
    assert it.due_at() == first  # it never has
    it.scan()
    assert it.active == ["a"]
    bundle.write_dag("nightly/b.py", "b")
    for night in range(1, 4):
        assert it.due_at() == datetime(2024, 5, 1 + night, 4, tzinfo=timezone.utc)
        it.clock.advance(hours=1)
        it.restart()
        assert it.due_at() == datetime(2024, 5, 1 + night, 4, tzinfo=timezone.utc)
        it.clock.advance(seconds=(it.due_at() - it.clock.now()).total_seconds())
        it.scan()
        assert it.active == ["a", "b"]


def test_tasks_reads_a_format_of_its_own_and_reports_the_line_of_a_mistake(
    bundle: BundleFolder, installed: Callable[[str], None], loader: DagLoader
) -> None:
    installed("Tasks")
    bundle.write("manifest.yaml", "version: v1beta\nparser: tasks\n")
    bundle.write("totals.tasks", "load: SELECT 1\ncheck: SELECT assert_true(1 = 1)\n")
    bundle.write("wrong.tasks", "load: SELECT 1\nwhat is this\n")
    bundle.write("wrong_too.tasks", "load: SELECT 1\nload: SELECT 2\n")
    it = Reading(bundle, loader, datetime(2024, 5, 1, tzinfo=timezone.utc))
    it.scan()
    assert it.active == ["totals"]
    spec, _ = it.store.read("totals")
    assert [(task.task_id, task.upstream) for task in spec.tasks] == [("load", ()), ("check", ("load",))]
    errors = {p.file: (p.line, p.message) for p in it.catalog.problems.values()}
    assert errors["wrong.tasks"] == (2, "a line must be `name: SQL`")
    assert errors["wrong_too.tasks"][0] == 2 and "two tasks with the id 'load'" in errors["wrong_too.tasks"][1]
    assert it.due_at() == it.clock.now() + timedelta(minutes=1)
