"""What a scan changes: versions, last good DAGs, claimed ids, mended errors. Values in, rows out."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from typing import Any

from backfill_manager.dags.bundles.files import BundleContent
from backfill_manager.dags.definition import DagSpec, TaskSpec
from backfill_manager.dags.importing.import_failure import FailedFile
from backfill_manager.dags.importing.loader import ParsedFile
from backfill_manager.dags.versions import Submission, changes_for
from backfill_manager.model.records import BundleRow, DagRow, DagVersion, ImportProblem, Record

AT = datetime(2024, 1, 1, tzinfo=timezone.utc)


class State:
    """The rows as they stand after each scan."""

    def __init__(self) -> None:
        self.rows: dict[tuple[Any, ...], Record] = {}
        self.at = AT

    def take(self, scan: Submission) -> list[Record]:
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


def parsed_file(file: str, made: list[DagSpec], imported: tuple[str, ...] = ()) -> ParsedFile:
    return ParsedFile(file, tuple(one.dag_id for one in made), tuple(one.to_json() for one in made), imported)


def scan_of(
    files: Mapping[str, list[DagSpec] | str],
    helpers: Mapping[str, str] | None = None,
    bundle: str = "b",
    edits: Mapping[str, str] | None = None,
    imported: Mapping[str, tuple[str, ...]] | None = None,
    **settings: Any,
) -> Submission:
    """`files`: file -> its DAGs, or its error; `helpers`: other files -> their text; `edits`: file -> its text."""
    texts = {**{file: f"text of {file}" for file in files}, **(helpers or {}), **(edits or {})}
    digests = {file: hashlib.sha256(text.encode()).hexdigest() for file, text in texts.items()}
    content = BundleContent(digests, tuple(files))
    return Submission(
        bundle, f"/bundles/{bundle}", "standard", content,
        snapshot=f"/snapshots/{content.hash[:8]}",
        parsed=tuple(
            parsed_file(file, made, (imported or {}).get(file, ()))
            for file, made in files.items() if not isinstance(made, str)
        ),
        failed=tuple(FailedFile(file, 3, made, "tb") for file, made in files.items() if isinstance(made, str)),
        **settings,
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
    assert (bundle.content_hash, bundle.path) == (scan.content.hash, "/bundles/b")


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


def test_a_file_whose_name_is_no_text_is_no_code_of_others_and_its_error_is_one_row_that_can_be_written() -> None:
    state, odd = State(), "caf\udce9.py"
    files: dict[str, list[DagSpec] | str] = {"f.py": [spec("d", "f.py")], odd: "its name is not UTF-8"}
    for text, parsed in (("one", ""), ("other", ""), ("other", "f.py")):
        state.take(scan_of(files, edits={odd: text}, covers=(parsed,)))
    assert state.version("d") == 1
    assert state.errors() == {r"caf\udce9.py": "its name is not UTF-8"}


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


def test_the_lines_of_both_are_named_where_they_are_known() -> None:
    state, scan = State(), scan_of({name: [spec("d", name)] for name in ("a.py", "b.py")})
    state.take(replace(scan, parsed=tuple(replace(one, lines=(7,)) for one in scan.parsed)))
    (error,) = [row for row in state.of(ImportProblem) if row.is_current]
    assert (error.file, error.line) == ("b.py", 7)
    assert error.message.startswith("DAG 'd' is already made by a.py, line 7; give ")


def test_a_newcomer_does_not_take_an_id_from_the_file_that_holds_it() -> None:
    state = State()
    state.take(scan_of({"b.py": [spec("d", "b.py")]}))
    state.take(scan_of({"a.py": [spec("d", "a.py")], "b.py": [spec("d", "b.py")]}))
    assert (state.dag("d").file, list(state.errors())) == ("b.py", ["a.py"])
    state.take(scan_of({"a.py": [spec("d", "a.py")], "b.py": "SyntaxError"}))  # it holds it while it is broken, too
    assert (state.dag("d").file, sorted(state.errors())) == ("b.py", ["a.py", "b.py"])
    state.take(scan_of({"a.py": [spec("d", "a.py")]}))
    assert (state.dag("d").file, state.version("d"), state.errors()) == ("a.py", 2, {})


def test_a_file_that_claims_ids_of_two_others_has_the_same_error_when_nothing_has_changed() -> None:
    state = State()
    files = {"a.py": ["p"], "b.py": ["q", "p"], "c.py": ["q"]}
    scan = scan_of({file: [spec(dag_id, file) for dag_id in dag_ids] for file, dag_ids in files.items()})
    state.take(scan)
    assert "DAG 'q' is already made by c.py" in state.errors()["b.py"]
    assert state.take(scan) == []


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
    lost = Submission("b", "/bundles/b", "standard", BundleContent({}, ()), failed=failed, readable=False)
    written = state.take(lost)
    assert [row.TABLE for row in written] == ["import_error"]
    assert (state.dag("d").is_active, sorted(state.errors())) == (True, [".", "x.py"])
    state.take(scan_of({"f.py": [spec("d", "f.py")], "x.py": "SyntaxError"}))
    assert sorted(state.errors()) == ["x.py"]


# -- submissions that speak for a part of the bundle -------------------------------------------------------------------


def two_folders() -> dict[str, list[DagSpec] | str]:
    return {"daily/a.py": [spec("a", "daily/a.py")], "weekly/b.py": [spec("b", "weekly/b.py")]}


def test_what_a_submission_does_not_speak_for_stays_as_it_is() -> None:
    state = State()
    state.take(scan_of(two_folders()))
    files: dict[str, list[DagSpec] | str] = {"daily/a.py": [spec("a", "daily/a.py", owner="new")]}
    state.take(scan_of(files, covers=("daily",)))
    assert (state.version("a"), state.version("b"), state.dag("b").is_active) == (2, 1, True)
    state.take(scan_of(files, leaves_out=("weekly",)))
    assert state.dag("b").is_active
    state.take(scan_of(files, covers=("weekly", "daily")))
    assert not state.dag("b").is_active


def test_the_longest_path_that_fits_decides_who_is_spoken_for() -> None:
    scan = scan_of({}, covers=("", "a/b/c"), leaves_out=("a/b", "x.py"))
    message = {file: scan.covers_file(file) for file in ("y.py", "a/y.py", "a/b/y.py", "a/b/c/y.py", "x.py", "a/bc.py")}
    assert message == {
        "y.py": True, "a/y.py": True, "a/b/y.py": False, "a/b/c/y.py": True, "x.py": False, "a/bc.py": True,
    }  # fmt: skip


def test_dags_that_are_gone_stay_active_unless_the_submission_deactivates() -> None:
    state = State()
    state.take(scan_of({"f.py": [spec("d", "f.py"), spec("e", "f.py")]}))
    state.take(scan_of({"f.py": [spec("d", "f.py")]}, deactivates=False))
    assert state.dag("e").is_active
    state.take(scan_of({"f.py": [spec("d", "f.py")]}))
    assert not state.dag("e").is_active


def test_an_id_whose_file_was_not_looked_at_stays_with_it() -> None:
    state = State()
    state.take(scan_of(two_folders()))
    both = {**two_folders(), "daily/c.py": [spec("b", "daily/c.py")]}
    whole = scan_of(both)
    part = replace(whole, parsed=tuple(p for p in whole.parsed if p.file.startswith("daily")), covers=("daily",))
    state.take(part)
    assert "already made by weekly/b.py" in state.errors()["daily/c.py"]


def test_without_keep_last_good_a_file_that_fails_takes_its_dags_along() -> None:
    state = State()
    state.take(scan_of({"f.py": [spec("d", "f.py")]}))
    state.take(scan_of({"f.py": "SyntaxError"}, keep_last_good=False))
    assert (state.dag("d").is_active, list(state.errors())) == (False, ["f.py"])
    state.take(scan_of({"f.py": [spec("d", "f.py")]}, keep_last_good=False))
    assert (state.dag("d").is_active, state.version("d"), state.errors()) == (True, 1, {})


def test_a_file_that_was_moved_takes_its_dags_along_into_a_new_version() -> None:
    state = State()
    state.take(scan_of({"f.py": [spec("d", "f.py")]}))
    state.rows["dag", "d"] = state.dag("d").evolve(is_paused=True)
    state.take(scan_of({"sub/f.py": [spec("d", "sub/f.py")]}))
    row = state.dag("d")
    assert (row.file, row.current_version, row.is_active, row.is_paused) == ("sub/f.py", 2, True, True)
    assert state.errors() == {}


def test_a_file_that_was_never_read_is_no_code_of_others_while_only_a_part_is_parsed() -> None:
    state = State()
    state.take(scan_of({"f.py": [spec("d", "f.py")]}))
    whole = scan_of({"f.py": [spec("d", "f.py")], "new.py": [spec("n", "new.py")], "broken.py": "SyntaxError"})
    part = replace(whole, parsed=whole.parsed[:1], failed=(), covers=("f.py",), on_request=True)
    assert [row.TABLE for row in state.take(part)] == ["bundle"]
    state.take(whole)
    assert state.take(part) == []
    assert (state.version("d"), state.version("n")) == (1, 1)


def test_a_helper_that_looks_like_a_dag_file_is_remembered_while_only_a_part_is_parsed() -> None:
    state = State()
    whole = scan_of({"f.py": [spec("d", "f.py")], "tools.py": []})
    part = replace(whole, parsed=whole.parsed[:1], covers=("f.py",), on_request=True)
    state.take(whole)
    assert state.take(part) == [] and state.take(whole) == []
    edited = scan_of({"f.py": [spec("d", "f.py")], "tools.py": []}, edits={"tools.py": "used by a task of d"})
    state.take(replace(edited, parsed=edited.parsed[:1], covers=("f.py",)))
    assert state.version("d") == 2


def test_a_file_that_made_dags_and_does_not_look_like_it_any_more_is_a_helper_at_every_scan() -> None:
    state = State()
    state.take(scan_of({"f.py": [spec("d", "f.py")], "was.py": [spec("gone", "was.py")]}))
    read = scan_of({"f.py": [spec("d", "f.py")], "was.py": []}, edits={"was.py": "X = 1"})
    not_read = scan_of({"f.py": [spec("d", "f.py")]}, {"was.py": "X = 1"})
    state.take(replace(read, content=not_read.content))
    assert (state.version("d"), state.dag("gone").is_active) == (2, False)
    assert state.take(not_read) == []


def test_a_newcomer_that_does_not_count_takes_no_id_from_the_next() -> None:
    state = State()
    state.take(scan_of({"held.py": [spec("d", "held.py")]}))
    files: dict[str, list[DagSpec] | str] = {
        "held.py": [spec("d", "held.py")],
        "a.py": [spec("d", "a.py"), spec("x", "a.py")],
        "b.py": [spec("x", "b.py")],
    }
    state.take(scan_of(files))
    assert (state.dag("x").file, list(state.errors())) == ("b.py", ["a.py"])


def test_without_keep_last_good_a_file_that_fails_lets_its_ids_go_at_once() -> None:
    state = State()
    state.take(scan_of({"z.py": [spec("d", "z.py")]}))
    broken = scan_of({"a.py": [spec("d", "a.py")], "z.py": "SyntaxError"}, keep_last_good=False)
    state.take(broken)
    assert (state.dag("d").file, state.dag("d").is_active, list(state.errors())) == ("a.py", True, ["z.py"])
    assert state.take(broken) == []


# -- what a person has deactivated -------------------------------------------------------------------------------------


def test_a_dag_that_a_person_deactivated_stays_so_until_its_content_changes() -> None:
    state = State()
    state.take(scan_of({"f.py": [spec("d", "f.py")]}))
    state.rows["dag", "d"] = state.dag("d").evolve(is_active=False, deactivated_by="ada")
    assert [row.TABLE for row in state.take(scan_of({"f.py": [spec("d", "f.py")]}, commit_id="abc"))] == ["bundle"]
    assert not state.dag("d").is_active
    state.take(scan_of({"f.py": [spec("d", "f.py", owner="new")]}))
    assert (state.dag("d").is_active, state.dag("d").deactivated_by, state.version("d")) == (True, None, 2)


def test_it_comes_back_as_it_was_when_its_file_is_parsed_on_request() -> None:
    state = State()
    state.take(scan_of({"f.py": [spec("d", "f.py")]}))
    state.rows["dag", "d"] = state.dag("d").evolve(is_active=False, deactivated_by="ada")
    state.take(scan_of({"f.py": [spec("d", "f.py")]}, on_request=True))
    assert (state.dag("d").is_active, state.dag("d").deactivated_by, state.version("d")) == (True, None, 1)


def test_no_other_file_brings_back_what_a_person_deactivated() -> None:
    state = State()
    both = scan_of({"z.py": [spec("d", "z.py")], "a.py": [spec("d", "a.py")]})
    state.take(scan_of({"z.py": [spec("d", "z.py")]}))
    state.take(both)
    state.rows["dag", "d"] = state.dag("d").evolve(is_active=False, deactivated_by="ada")
    assert state.take(both) == []
    assert not state.dag("d").is_active and "already made by z.py" in state.errors()["a.py"]
    state.take(scan_of({"a.py": [spec("d", "a.py")]}))  # that file is gone: this is new content
    assert (state.dag("d").file, state.dag("d").is_active) == ("a.py", True)


def test_a_file_that_is_read_by_another_counts_as_its_code() -> None:
    state = State()
    helper = spec("h", "h.py")
    state.take(scan_of({"f.py": [spec("d", "f.py")], "h.py": [helper]}))
    state.take(scan_of({"f.py": [spec("d", "f.py")], "h.py": [helper]}, edits={"h.py": "edited"}))
    assert (state.version("d"), state.version("h")) == (1, 2)
    uses = {"f.py": ("h.py",)}
    state.take(scan_of({"f.py": [spec("d", "f.py")], "h.py": [helper]}, edits={"h.py": "edited"}, imported=uses))
    state.take(scan_of({"f.py": [spec("d", "f.py")], "h.py": [helper]}, edits={"h.py": "again"}, imported=uses))
    assert (state.version("d"), state.version("h")) == (3, 3)


def test_how_a_bundle_is_read_is_no_code_of_its_dags() -> None:
    state = State()
    state.take(scan_of({"f.py": [spec("d", "f.py")]}, {"manifest.yaml": "version: v1beta"}))
    state.take(scan_of({"f.py": [spec("d", "f.py")]}, {"manifest.yaml": "version: v1beta\nfetch_interval: 5"}))
    assert state.version("d") == 1


def test_a_version_has_the_commit_it_came_from() -> None:
    state = State()
    state.take(scan_of({"f.py": [spec("d", "f.py")]}, commit_id="abc123"))
    (version,), (bundle,) = state.of(DagVersion), state.of(BundleRow)
    assert (version.commit_id, bundle.commit_id) == ("abc123", "abc123")
    state.take(scan_of({"f.py": [spec("d", "f.py")]}, commit_id="def456"))
    assert (state.version("d"), state.of(BundleRow)[0].commit_id) == (1, "def456")
