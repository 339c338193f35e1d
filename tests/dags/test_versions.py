"""What a scan changes: versions, last good DAGs, claimed ids, mended errors. Values in, rows out."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from datetime import datetime, timedelta, timezone
from typing import Any

from backfill_manager.dags.bundles.files import BundleContent
from backfill_manager.dags.definition import DagSpec, TaskSpec
from backfill_manager.dags.loading.import_failure import FailedFile
from backfill_manager.dags.loading.loader import BundleScan, ParsedFile
from backfill_manager.dags.versions import changes_for
from backfill_manager.model.records import BundleRow, DagRow, DagVersion, ImportProblem, Record

AT = datetime(2024, 1, 1, tzinfo=timezone.utc)


class State:
    """The rows as they stand after each scan."""

    def __init__(self) -> None:
        self.rows: dict[tuple[Any, ...], Record] = {}
        self.at = AT

    def take(self, scan: BundleScan) -> list[Record]:
        self.at += timedelta(minutes=1)
        bundle = self.rows.get(("bundle", scan.bundle))
        assert bundle is None or isinstance(bundle, BundleRow)
        written = changes_for(scan, self.dags(), self.of(DagVersion), self.of(ImportProblem), self.at, bundle)
        self.rows |= {(row.TABLE, *row.key): row for row in written}
        return written

    def of(self, record: type[Any]) -> list[Any]:
        return [row for row in self.rows.values() if isinstance(row, record)]

    def dags(self) -> list[DagRow]:
        return self.of(DagRow)

    def dag(self, dag_id: str) -> DagRow:
        return next(row for row in self.dags() if row.dag_id == dag_id)

    def version(self, dag_id: str) -> int:
        return max(row.version for row in self.of(DagVersion) if row.dag_id == dag_id)

    def errors(self) -> dict[str, str]:
        return {row.file: row.message for row in self.of(ImportProblem) if row.is_current}


def spec(dag_id: str, file: str, **settings: Any) -> DagSpec:
    return DagSpec(dag_id, (TaskSpec("s", kind="sql", sql="SELECT 1"),), file=file, **settings)


def scan_of(
    files: Mapping[str, list[DagSpec] | str],
    helpers: Mapping[str, str] | None = None,
    bundle: str = "b",
    edits: Mapping[str, str] | None = None,
    imported: Mapping[str, tuple[str, ...]] | None = None,
) -> BundleScan:
    """`files`: file -> its DAGs, or its error; `helpers`: other files -> their text; `edits`: file -> its text."""
    texts = {**{file: f"text of {file}" for file in files}, **(helpers or {}), **(edits or {})}
    digests = {file: hashlib.sha256(text.encode()).hexdigest() for file, text in texts.items()}
    content = BundleContent(digests, tuple(files))
    return BundleScan(
        bundle, f"/bundles/{bundle}", "standard", content,
        snapshot=f"/snapshots/{content.hash[:8]}",
        parsed=tuple(
            ParsedFile(file, tuple(made), (imported or {}).get(file, ()))
            for file, made in files.items() if not isinstance(made, str)
        ),
        failed=tuple(FailedFile(file, 3, made, "tb") for file, made in files.items() if isinstance(made, str)),
    )  # fmt: skip


def test_a_new_dag_gets_its_first_version() -> None:
    state = State()
    made = spec("d", "f.py", schedule="@daily", tags=("x",), owner="me")
    scan = scan_of({"f.py": [made]})
    state.take(scan)
    row, (version,), (bundle,) = state.dag("d"), state.of(DagVersion), state.of(BundleRow)
    assert (row.current_version, row.is_active, row.is_paused, row.schedule, row.owner) == (
        1,
        True,
        False,
        "@daily",
        "me",
    )
    assert (row.tags_json, row.file, row.bundle) == ('["x"]', "f.py", "b")
    assert (version.version, version.snapshot, version.file) == (1, scan.snapshot, "f.py")
    assert DagSpec.from_json(version.definition_json) == made
    assert (bundle.content_hash, bundle.path) == (scan.content_hash, "/bundles/b")


def test_nothing_changed_is_nothing_written() -> None:
    state = State()
    scan = scan_of({"f.py": [spec("d", "f.py")], "g.py": "SyntaxError"})
    assert state.take(scan)
    assert state.take(scan) == []


def test_a_changed_definition_is_a_new_version_and_the_pause_stays() -> None:
    state = State()
    state.take(scan_of({"f.py": [spec("d", "f.py")]}))
    state.rows["dag", "d"] = state.dag("d").evolve(is_paused=True)
    state.take(scan_of({"f.py": [spec("d", "f.py", schedule={"seconds": 3600.0})]}))
    row = state.dag("d")
    assert (row.current_version, row.is_paused, row.schedule) == (2, True, "every 1:00:00")


def test_a_changed_helper_is_a_new_version_of_every_dag_that_may_use_it() -> None:
    state = State()
    files: dict[str, list[DagSpec] | str] = {"f.py": [spec("d", "f.py")], "g.py": [spec("e", "g.py")]}
    state.take(scan_of(files, {"helpers.py": "1", "q.sql": "1"}))
    state.take(scan_of(files, {"helpers.py": "2", "q.sql": "1"}))
    assert (state.version("d"), state.version("e")) == (2, 2)
    state.take(scan_of(files, {"helpers.py": "2", "q.sql": "2"}))
    assert (state.version("d"), state.version("e")) == (3, 3)


def test_an_edit_of_one_dags_file_leaves_the_versions_of_others_alone() -> None:
    state = State()
    files: dict[str, list[DagSpec] | str] = {"f.py": [spec("d", "f.py")], "g.py": [spec("e", "g.py")]}
    state.take(scan_of(files))
    state.take(scan_of(files, edits={"f.py": "a task's body"}))
    assert (state.version("d"), state.version("e")) == (2, 1)


def test_a_helper_that_looks_like_a_dag_file_but_makes_none_counts_as_a_helper() -> None:
    state = State()
    files: dict[str, list[DagSpec] | str] = {"f.py": [spec("d", "f.py")], "tools.py": []}
    state.take(scan_of(files))
    state.take(scan_of(files, edits={"tools.py": "used by a task of d"}))
    assert state.version("d") == 2


def test_a_new_file_that_is_still_broken_makes_no_versions_of_others() -> None:
    state = State()
    state.take(scan_of({"f.py": [spec("d", "f.py")]}))
    state.take(scan_of({"f.py": [spec("d", "f.py")], "new.py": "SyntaxError"}))
    state.take(scan_of({"f.py": [spec("d", "f.py")], "new.py": "NameError"}, edits={"new.py": "better"}))
    assert state.version("d") == 1


def test_an_edit_of_a_dag_file_that_another_imports_is_a_new_version_of_both() -> None:
    state = State()
    files: dict[str, list[DagSpec] | str] = {"f.py": [spec("d", "f.py")], "g.py": [spec("e", "g.py")]}
    state.take(scan_of(files, imported={"g.py": ("f.py",)}))
    state.take(scan_of(files, imported={"g.py": ("f.py",)}, edits={"f.py": "other"}))
    assert (state.version("d"), state.version("e")) == (2, 2)


def test_a_file_that_breaks_keeps_its_last_good_dags_with_the_error_beside_them() -> None:
    state = State()
    state.take(scan_of({"f.py": [spec("d", "f.py")]}))
    state.take(scan_of({"f.py": "SyntaxError: invalid syntax"}))
    assert (state.dag("d").is_active, state.version("d")) == (True, 1)
    assert state.errors() == {"f.py": "SyntaxError: invalid syntax"}


def test_a_mended_file_takes_its_error_back() -> None:
    state = State()
    state.take(scan_of({"f.py": "SyntaxError"}))
    first = state.of(ImportProblem)[0]
    state.take(scan_of({"f.py": "NameError"}))
    second = state.of(ImportProblem)[0]
    assert (second.message, second.first_seen_at) == ("NameError", first.first_seen_at)
    assert second.last_seen_at > first.last_seen_at
    state.take(scan_of({"f.py": [spec("d", "f.py")]}))
    assert state.errors() == {}
    state.take(scan_of({"f.py": "SyntaxError"}))
    assert state.of(ImportProblem)[0].first_seen_at == state.at


def test_a_dag_that_is_gone_becomes_inactive_and_comes_back_as_it_was() -> None:
    state = State()
    both = scan_of({"f.py": [spec("d", "f.py"), spec("e", "f.py")]})
    state.take(both)
    state.take(scan_of({"f.py": [spec("d", "f.py")]}))
    assert (state.dag("d").is_active, state.dag("e").is_active) == (True, False)
    state.take(both)
    assert (state.dag("e").is_active, state.version("e")) == (True, 1)
    state.take(scan_of({}))
    assert not any(row.is_active for row in state.dags())


def test_an_error_of_a_file_that_is_deleted_goes_with_it() -> None:
    state = State()
    state.take(scan_of({"f.py": "SyntaxError"}))
    state.take(scan_of({}))
    assert state.errors() == {}


def test_two_files_that_claim_one_id_give_it_to_the_first_and_an_error_to_the_second() -> None:
    state = State()
    state.take(scan_of({"a.py": [spec("d", "a.py")], "b.py": [spec("other", "b.py"), spec("d", "b.py")]}))
    assert state.dag("d").file == "a.py"
    assert [row.dag_id for row in state.dags()] == ["d"]  # b.py counts whole or not at all
    assert state.errors() == {
        "b.py": "DAG 'd' is already made by a.py; give one of them another dag_id, or take one away"
    }


def test_a_newcomer_does_not_take_an_id_from_the_file_that_holds_it() -> None:
    state = State()
    state.take(scan_of({"b.py": [spec("d", "b.py")]}))
    state.take(scan_of({"a.py": [spec("d", "a.py")], "b.py": [spec("d", "b.py")]}))
    assert (state.dag("d").file, list(state.errors())) == ("b.py", ["a.py"])
    state.take(scan_of({"a.py": [spec("d", "a.py")], "b.py": "SyntaxError"}))  # it holds it while it is broken, too
    assert (state.dag("d").file, sorted(state.errors())) == ("b.py", ["a.py", "b.py"])
    state.take(scan_of({"a.py": [spec("d", "a.py")]}))
    assert (state.dag("d").file, state.version("d"), state.errors()) == ("a.py", 2, {})


def test_a_moved_file_takes_its_dag_along() -> None:
    state = State()
    state.take(scan_of({"a.py": [spec("d", "a.py")]}))
    state.take(scan_of({"sub/a.py": [spec("d", "sub/a.py")]}))
    assert (state.dag("d").file, state.dag("d").is_active, state.version("d")) == ("sub/a.py", True, 2)


def test_an_id_that_another_bundle_holds_is_an_error_here_until_it_is_let_go_there() -> None:
    state = State()
    state.take(scan_of({"f.py": [spec("d", "f.py")]}, bundle="one"))
    state.take(scan_of({"g.py": [spec("d", "g.py")]}, bundle="two"))
    assert (state.dag("d").bundle, state.version("d")) == ("one", 1)
    assert "DAG 'd' is already made by f.py of bundle 'one'" in state.errors()["g.py"]
    state.take(scan_of({}, bundle="one"))
    state.take(scan_of({"g.py": [spec("d", "g.py")]}, bundle="two"))
    assert (state.dag("d").bundle, state.dag("d").is_active, state.version("d")) == ("two", True, 2)
    assert state.errors() == {}


def test_one_bundle_says_nothing_of_the_dags_and_errors_of_another() -> None:
    state = State()
    state.take(scan_of({"f.py": [spec("d", "f.py")], "x.py": "SyntaxError"}, bundle="one"))
    state.take(scan_of({}, bundle="two"))
    assert state.dag("d").is_active
    assert list(state.errors()) == ["x.py"]


def test_a_bundle_whose_folder_cannot_be_read_changes_nothing_but_its_error() -> None:
    state = State()
    state.take(scan_of({"f.py": [spec("d", "f.py")], "x.py": "SyntaxError"}))
    failed = (FailedFile(".", None, "the folder does not exist"),)
    lost = BundleScan("b", "/bundles/b", "standard", BundleContent({}, ()), failed=failed, readable=False)
    written = state.take(lost)
    assert [row.TABLE for row in written] == ["import_error"]
    assert (state.dag("d").is_active, sorted(state.errors())) == (True, [".", "x.py"])
    state.take(scan_of({"f.py": [spec("d", "f.py")], "x.py": "SyntaxError"}))
    assert sorted(state.errors()) == ["x.py"]
