"""When which files of a bundle are read: by change, by interval, once, or only on request."""

from __future__ import annotations

import threading
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from support.bundle_folder import BundleFolder

from backfill_manager.dags.bundles.files import BundleContent
from backfill_manager.dags.catalog import DagCatalog
from backfill_manager.dags.definition import DagSpec, TaskSpec
from backfill_manager.dags.importing.loader import DagLoader, ParsedFile
from backfill_manager.dags.parsers import StandardBundleParser
from backfill_manager.dags.parsers.bundle_state import BundleState
from backfill_manager.dags.parsers.parser import BundleParser
from backfill_manager.dags.parsers.registry import OURS, parser_named
from backfill_manager.dags.versions import Submission
from backfill_manager.errors import InvalidConfig, InvalidInput
from backfill_manager.settings import BundleSettings
from backfill_manager.testing import FakeClock


class CountingLoader(DagLoader):
    """The real one; it records the files that it parses."""

    def __init__(self) -> None:
        super().__init__(workers=1)
        self.requested: list[str] = []

    def load(self, root: Path, files: Any, **settings: Any) -> Any:
        self.requested += files
        return super().load(root, files, **settings)

    def take(self) -> list[str]:
        requested, self.requested = sorted(self.requested), []
        return requested


class Watching:
    """A bundle, its parser and a store; `scan` lets the parser look and submits what it finds."""

    def __init__(self, folder: BundleFolder, loader: CountingLoader, parser: str, **settings: Any) -> None:
        self.folder, self.clock, self.loader, self.catalog = folder, FakeClock(), loader, DagCatalog()
        self.store = self.catalog
        bundle = BundleState(folder.settings(parser=parser, **settings), snapshots=folder.snapshots)
        self.parser = parser_named(parser)(bundle, self.loader, self.store, self.clock)

    def scan(self) -> list[str]:
        """What was read."""
        for submission in self.parser.scan_results():
            self.store.submit(submission, self.clock.now())
        return self.loader.take()

    def later(self, seconds: float) -> list[str]:
        self.clock.advance(seconds=seconds)
        due = self.parser.due_in()
        return self.scan() if due is not None and due <= 0 else []

    def within(self, seconds: int) -> list[str]:
        """What was read while a manager looked whenever it was due."""
        read: list[str] = []
        for _ in range(seconds):
            read += self.later(1)
        return sorted(read)

    @property
    def active(self) -> list[str]:
        return sorted(row.dag_id for row in self.catalog.dags.values() if row.is_active)

    @property
    def versions(self) -> dict[str, int]:
        return {row.dag_id: row.current_version for row in self.catalog.dags.values()}

    @property
    def errors(self) -> dict[str, str]:
        return {p.file: p.message for p in self.catalog.problems.values() if p.is_current}


Watch = Callable[..., Watching]


@pytest.fixture(scope="module")
def loader() -> Iterator[CountingLoader]:
    with CountingLoader() as loader:
        yield loader


@pytest.fixture
def watch(loader: CountingLoader) -> Watch:
    loader.take()
    return lambda folder, parser="standard", **settings: Watching(folder, loader, parser, **settings)


@pytest.fixture
def folder(bundle: BundleFolder) -> BundleFolder:
    bundle.write_dag("a.py", "a")
    bundle.write_dag("sub/b.py", "b")
    return bundle


# -- standard ---------------------------------------------------------------------------------------------------------


def test_the_standard_parser_reads_what_has_changed_and_nothing_else(folder: BundleFolder, watch: Watch) -> None:
    it = watch(folder, fetch_interval=30)
    assert it.scan() == ["a.py", "sub/b.py"]
    assert it.later(29) == [] and it.parser.due_in() == pytest.approx(1)
    assert it.later(1) == []
    folder.write_dag("a.py", "a", "a2")
    folder.write_dag("c.py", "c")
    assert it.later(30) == ["a.py", "c.py"]
    assert it.active == ["a", "a2", "b", "c"]
    (folder.root / "sub/b.py").unlink()
    assert it.later(30) == []
    assert it.active == ["a", "a2", "c"]


def test_a_file_is_read_again_when_something_that_it_read_has_changed(folder: BundleFolder, watch: Watch) -> None:
    folder.write("names.py", "NAMES = ['x']")
    folder.write("params.json", '{"owner": "ada"}')
    folder.write_dag("imports.py", "imports", top="import names")
    folder.write_dag(
        "opens.py", "opens", top="import pathlib\npathlib.Path(__file__).with_name('params.json').read_text()"
    )
    folder.write_dag(
        "lists.py", "lists", top="import pathlib\nlist((pathlib.Path(__file__).parent / 'more').glob('*'))"
    )
    folder.write("more/one.txt", "")
    it = watch(folder)
    assert len(it.scan()) == 5
    folder.write("names.py", "NAMES = ['y']")
    assert it.later(30) == ["imports.py"]
    folder.write("params.json", '{"owner": "bob"}')
    assert it.later(30) == ["opens.py"]
    folder.write("more/two.txt", "")
    assert it.later(30) == ["lists.py"]


def test_every_dag_gets_a_version_when_shared_code_changes_whether_it_was_read_again_or_not(
    folder: BundleFolder, watch: Watch
) -> None:
    folder.write("late.py", "X = 1")  # a task may import it when it runs
    it = watch(folder)
    it.scan()
    folder.write("late.py", "X = 2")
    assert it.later(30) == []
    assert it.versions == {"a": 2, "b": 2}


def test_a_broken_file_keeps_its_last_good_dags_and_is_read_again_at_every_change(
    folder: BundleFolder, watch: Watch
) -> None:
    it = watch(folder)
    it.scan()
    folder.write("a.py", "from backfill_manager import dag\n1 / 0")
    assert it.later(30) == ["a.py"]
    assert it.active == ["a", "b"] and "ZeroDivisionError" in it.errors["a.py"]
    assert it.later(30) == []
    folder.write("helper.py", "")  # it may have been what was missing
    assert it.later(30) == ["a.py"]
    folder.write_dag("a.py", "a")
    it.later(30)
    assert it.errors == {} and it.versions == {"a": 2, "b": 2}


def test_a_file_that_made_dags_is_read_even_if_it_looks_like_no_dag_file_any_more(
    folder: BundleFolder, watch: Watch
) -> None:
    it = watch(folder)
    it.scan()
    folder.write("a.py", "from backf")  # cut off in the middle of a copy
    assert it.later(30) == ["a.py"]
    assert it.active == ["a", "b"] and "a.py" in it.errors
    folder.write("a.py", "")
    it.later(30)
    assert it.active == ["b"] and it.errors == {}


def test_a_folder_with_a_pace_of_its_own_is_looked_at_then(folder: BundleFolder, watch: Watch) -> None:
    it = watch(folder, directories=[{"path": "sub", "scan_interval": 100}])
    it.scan()
    folder.write_dag("a.py", "a", "a2")
    folder.write_dag("sub/b.py", "b", "b2")
    assert it.later(30) == ["a.py"]
    assert it.later(30) == []
    assert it.active == ["a", "a2", "b"]
    assert it.later(40) == ["sub/b.py"]
    assert it.active == ["a", "a2", "b", "b2"]


def test_a_folder_that_the_bundle_does_not_have_is_an_error_until_it_is_there(
    folder: BundleFolder, watch: Watch
) -> None:
    folder.write("manifest.yaml", "version: v1beta\ndirectories:\n- path: subs\n  scan_interval: 100\n")
    it, message = watch(folder), "directories[0].path: there is no folder 'subs' in the bundle; did you mean 'sub'?"
    for _ in range(2):
        it.scan()
        assert it.errors == {"manifest.yaml": f"manifest.yaml, line 3: {message}"}
        assert it.active == ["a", "b"], "the other folders go on"
    folder.write_dag("a.py", "a", "a2")
    it.later(30)
    assert (it.active, len(it.errors)) == (["a", "a2", "b"], 1)
    (folder.root / "subs").mkdir()
    it.later(30)
    assert it.errors == {} and it.active == ["a", "a2", "b"]
    of_configuration = watch(folder, directories=[{"path": "sub"}, {"path": "sbu"}])
    of_configuration.scan()
    (error,) = of_configuration.errors.values()
    assert error == f"bundle 'b': {message.replace('[0]', '[1]').replace('subs', 'sbu')}"


@pytest.mark.parametrize(("keep_last_good", "active"), [(True, ["a", "b"]), (False, ["a"])])
def test_a_folder_with_a_pace_of_its_own_that_is_gone_for_a_while_deactivates_nothing_unless_told_to(
    folder: BundleFolder, watch: Watch, keep_last_good: bool, active: list[str]
) -> None:
    it = watch(folder, directories=[{"path": "sub"}], keep_last_good=keep_last_good)
    it.scan()
    (folder.root / "sub").rename(folder.root.with_name("away"))
    it.later(30)
    assert it.active == active and "there is no folder 'sub'" in it.errors["."]
    folder.root.with_name("away").rename(folder.root / "sub")
    it.later(30)
    assert it.active == ["a", "b"] and it.errors == {}


def test_a_file_that_changes_all_the_time_is_not_read_more_often_than_its_folder_allows(
    folder: BundleFolder, watch: Watch
) -> None:
    it = watch(folder, fetch_interval=10, directories=[{"path": "sub", "min_file_parse_interval": 25}])
    it.scan()
    folder.write_dag("sub/b.py", "b", "b2")
    assert it.later(10) == []
    folder.write_dag("sub/b.py", "b", "b3")
    assert it.later(10) == []
    assert it.active == ["a", "b"]
    assert it.later(10) == ["sub/b.py"]
    assert it.active == ["a", "b", "b3"]


def test_a_folder_that_is_gone_for_a_while_deactivates_nothing(folder: BundleFolder, watch: Watch) -> None:
    it = watch(folder)
    it.scan()
    folder.root.rename(folder.root.with_name("away"))
    assert it.later(30) == []
    assert it.active == ["a", "b"] and "does not exist" in it.errors["."]
    folder.root.with_name("away").rename(folder.root)
    assert it.later(30) == []
    assert it.active == ["a", "b"] and it.errors == {}


def test_an_id_that_another_bundle_lets_go_is_taken_at_the_next_scan(folder: BundleFolder, watch: Watch) -> None:
    it = watch(folder)
    before = parsed_elsewhere("a")
    it.store.submit(before, it.clock.now())
    it.scan()
    assert it.active == ["a", "b"] and "already made by other.py of bundle 'elsewhere'" in it.errors["a.py"]
    it.store.submit(replace(before, parsed=()), it.clock.now())
    assert it.active == ["b"]
    assert it.later(30) == []  # nothing has changed here, and nothing is read
    assert it.active == ["a", "b"] and it.errors == {} and it.catalog.dags["a"].bundle == "b"


def parsed_elsewhere(dag_id: str) -> Submission:
    spec = DagSpec(dag_id, (TaskSpec("s", kind="sql", sql="SELECT 1"),), file="other.py")
    parsed = ParsedFile("other.py", (dag_id,), (spec.to_json(),))
    content = BundleContent({"other.py": "0"}, ("other.py",))
    return Submission("elsewhere", "/elsewhere", "standard", content, parsed=(parsed,))


def test_without_keep_last_good_an_error_stays_until_the_file_is_mended(folder: BundleFolder, watch: Watch) -> None:
    it = watch(folder, keep_last_good=False)
    it.scan()
    folder.write("a.py", "from backf")  # it doesn't even look like a DAG file
    it.later(30)
    assert it.active == ["b"] and list(it.errors) == ["a.py"]
    folder.write("note.txt", "")
    assert it.later(30) == ["a.py"]
    assert list(it.errors) == ["a.py"]
    folder.write("a.py", "")
    it.later(30)
    assert it.errors == {}


def test_a_manifest_sets_the_pace_and_a_wrong_one_stops_nothing(folder: BundleFolder, watch: Watch) -> None:
    folder.write("manifest.yaml", "version: v1beta\nfetch_interval: 5\n")
    it = watch(folder)
    it.scan()
    assert it.parser.due_in() == pytest.approx(5)
    folder.write("manifest.yaml", "version: v1beta\nfetch_intervall: 5\n")
    it.later(5)
    assert it.active == ["a", "b"]
    assert "manifest.yaml, line 2" in it.errors["manifest.yaml"] and "fetch_interval" in it.errors["manifest.yaml"]
    folder.write("manifest.yaml", "version: v1beta\n")
    it.later(30)
    assert it.errors == {}


def test_a_wheel_is_a_bundle_and_a_new_one_in_its_place_makes_new_versions(
    folder: BundleFolder, loader: CountingLoader, tmp_path: Path
) -> None:
    wheel, catalog, clock = tmp_path / "dags-1.0-py3-none-any.whl", DagCatalog(), FakeClock()
    store, settings = catalog, BundleSettings(name="b", path=str(wheel))
    parser = parser_named("standard")(BundleState(settings, snapshots=folder.snapshots), loader, store, clock)
    for expected in ({"a": 1, "b": 1}, {"a": 2, "b": 1}):
        with zipfile.ZipFile(tmp_path / "new.whl", "w") as archive:
            for path in sorted(folder.root.rglob("*.py")):
                archive.write(path, path.relative_to(folder.root))
        (tmp_path / "new.whl").rename(wheel)
        for submission in parser.scan_results():
            store.submit(submission, clock.now())
        assert {row.dag_id: row.current_version for row in catalog.dags.values()} == expected
        folder.write_dag("a.py", "a", top="# edited")
    first = catalog.versions["a", 1]
    assert "# edited" not in (Path(first.snapshot) / first.file).read_text()


# -- standard: files that make their DAGs from something outside of the bundle ------------------------------------------

MAKES_WHAT_A_COMMAND_SAYS = """
import subprocess
from backfill_manager import dag, sql

for name in subprocess.run(["cat", {list!r}], capture_output=True, text=True, check=True).stdout.split():
    @dag(name)
    def made():
        sql("s", "SELECT 1")
"""


@pytest.fixture
def outside(folder: BundleFolder, tmp_path: Path) -> Path:
    """A list of DAG ids outside of the bundle. A process of its own reads it for the file `made.py`, so that nothing of it is
    seen here."""
    listed = tmp_path / "names.txt"
    listed.write_text("x y")
    folder.write("made.py", MAKES_WHAT_A_COMMAND_SAYS.format(list=str(listed)))
    return listed


def test_a_file_that_depends_on_something_outside_is_not_read_again_by_itself(
    folder: BundleFolder, watch: Watch, outside: Path
) -> None:
    it = watch(folder)
    it.scan()
    outside.write_text("x z")
    assert it.later(86400) == [] and it.active == ["a", "b", "x", "y"]


def test_every_file_is_read_again_within_max_file_parse_interval_although_nothing_has_changed(
    folder: BundleFolder, watch: Watch, outside: Path
) -> None:
    it = watch(folder, fetch_interval=30, max_file_parse_interval=60)
    it.scan()
    assert it.within(60) == ["a.py", "made.py", "sub/b.py"]
    assert (it.active, set(it.versions.values())) == (["a", "b", "x", "y"], {1})  # the same definitions: no new version
    outside.write_text("x z")
    assert it.within(60) == ["a.py", "made.py", "sub/b.py"]
    assert it.active == ["a", "b", "x", "z"]
    assert it.versions == {"a": 1, "b": 1, "x": 1, "y": 1, "z": 1}


def test_a_definition_that_differs_when_it_is_read_again_is_a_new_version(folder: BundleFolder, watch: Watch) -> None:
    owner = folder.root.parent / "owner"
    owner.write_text("ada")
    read = f"import subprocess\nOWNER = subprocess.check_output(['cat', {str(owner)!r}], text=True)\n"
    folder.write(
        "o.py",
        f"{read}from backfill_manager import dag, sql\n@dag('o', owner=OWNER)\ndef o():\n    sql('s', 'SELECT 1')",
    )
    it = watch(folder, max_file_parse_interval=60)
    it.scan()
    owner.write_text("bob")
    it.within(60)
    assert it.versions == {"a": 1, "b": 1, "o": 2}
    assert it.store.read("o")[0].owner == "bob"


def test_a_folder_has_a_max_file_parse_interval_of_its_own(folder: BundleFolder, watch: Watch) -> None:
    only_sub = watch(folder, directories=[{"path": "sub", "max_file_parse_interval": 60}])
    only_sub.scan()
    assert only_sub.within(60) == ["sub/b.py"]
    both = watch(folder, max_file_parse_interval=600, directories=[{"path": "sub", "max_file_parse_interval": 60}])
    both.scan()
    assert sorted(both.within(600)) == ["a.py", *["sub/b.py"] * 10]


def test_reading_again_is_spread_over_the_interval_and_fetches_no_files(
    bundle: BundleFolder, watch: Watch, monkeypatch: pytest.MonkeyPatch
) -> None:
    for n in range(20):
        bundle.write_dag(f"f{n}.py", f"d{n}")
    it = watch(bundle, fetch_interval=3600, max_file_parse_interval=1000)
    it.scan()
    fetched: list[object] = []
    fetch = it.parser.bundle.fetch
    monkeypatch.setattr(it.parser.bundle, "fetch", lambda: (fetched.append(1), fetch())[1])
    at_once = [it.later(10) for _ in range(100)]
    assert sorted(file for read in at_once for file in read) == sorted(f"f{n}.py" for n in range(20))
    assert max(len(read) for read in at_once) < 6
    assert fetched == []


def test_a_file_that_is_read_again_is_not_read_before_its_folder_allows(folder: BundleFolder, watch: Watch) -> None:
    it = watch(
        folder,
        fetch_interval=10,
        directories=[{"path": "sub", "min_file_parse_interval": 50, "max_file_parse_interval": 100}],
    )
    it.scan()
    read_at = [0.0]
    for second in range(10, 2000, 10):
        folder.write_dag("sub/b.py", "b", top=f"# {second}")
        read_at += [float(second)] * len(it.later(10))
    assert min(after - before for before, after in pairwise(read_at)) >= 50


def test_a_file_that_could_not_be_read_is_tried_again_as_the_reason_may_lie_outside(
    folder: BundleFolder, watch: Watch, outside: Path
) -> None:
    outside.rename(outside.with_name("away"))
    it = watch(folder)
    it.scan()
    assert it.active == ["a", "b"] and "CalledProcessError" in it.errors["made.py"]
    outside.with_name("away").rename(outside)
    assert it.within(300) == ["made.py"]
    assert (it.active, it.errors) == (["a", "b", "x", "y"], {})
    assert it.within(3600) == []


def test_a_bundle_with_many_slow_files_holds_up_no_other(bundle: BundleFolder, warm_loader: DagLoader) -> None:
    """One worker: the other bundle's file is read when the file that is read now has come to its end, and not after all."""
    gate = bundle.root.parent / "gate"
    wait = f"import pathlib, threading\nwhile not pathlib.Path({str(gate)!r}).exists(): threading.Event().wait(0.01)"
    for n in range(5):
        bundle.write_dag(f"slow{n}.py", f"slow{n}", top="pass")
    bundle.write_dag("slow0.py", "slow0", top=wait)
    slow = [f"slow{n}.py" for n in range(5)] * 20
    order: list[str] = []
    other = bundle.root.parent / "other"
    other.mkdir()
    (other / "quick.py").write_text((bundle.root / "slow1.py").read_text())

    def load(root: Path, files: list[str]) -> None:
        warm_loader.load(root, files)
        order.append(root.name)

    many = threading.Thread(target=load, args=(bundle.root, slow))
    one = threading.Thread(target=load, args=(other, ["quick.py"]))
    many.start()
    one.start()
    gate.touch()
    one.join(120)
    many.join(120)
    assert order == ["other", "bundle"]


# -- single pass ------------------------------------------------------------------------------------------------------


def test_the_single_pass_parser_scans_once(folder: BundleFolder, watch: Watch) -> None:
    it = watch(folder, "single_pass")
    assert it.parser.due_in() == 0
    assert it.scan() == ["a.py", "sub/b.py"]
    assert it.parser.due_in() is None
    folder.write_dag("a.py", "a", "a2")
    assert it.later(3600) == []
    it.store.submit(it.parser.parse(), it.clock.now())
    assert it.active == ["a", "a2", "b"]


# -- event ------------------------------------------------------------------------------------------------------------


def test_the_event_parser_reads_only_on_request(folder: BundleFolder, watch: Watch) -> None:
    it = watch(folder, "event")
    assert it.parser.due_in() is None and it.scan() == []
    it.store.submit(it.parser.parse("sub"), it.clock.now())
    assert (it.active, it.loader.take()) == (["b"], ["sub/b.py"])
    it.store.submit(it.parser.parse("a.py"), it.clock.now())
    assert (it.active, it.loader.take()) == (["a", "b"], ["a.py"])


def test_a_dry_run_says_what_would_change_and_changes_nothing(folder: BundleFolder, watch: Watch) -> None:
    it = watch(folder, "event")
    it.store.submit(it.parser.parse(), it.clock.now())
    folder.write_dag("a.py", "a", "a2")
    folder.write("sub/b.py", "from backfill_manager import dag\n1 / 0")
    result = it.store.dry_run(it.parser.parse(), it.clock.now())
    assert [(change.dag_id, change.change, change.version) for change in result.changes] == [
        ("a", "changed", 2),
        ("a2", "new", 1),
    ]
    assert [problem.file for problem in result.errors] == ["sub/b.py"]
    assert (it.active, it.versions, it.errors) == (["a", "b"], {"a": 1, "b": 1}, {})


def test_removed_dags_are_deactivated_on_request(folder: BundleFolder, watch: Watch) -> None:
    it = watch(folder, "event")
    it.store.submit(it.parser.parse(), it.clock.now())
    (folder.root / "sub/b.py").unlink()
    left = it.store.submit(it.parser.parse(), it.clock.now())
    assert it.active == ["a", "b"] and (left.changes, left.still_active) == ((), ("b",))
    assert it.store.dry_run(it.parser.parse("a.py"), it.clock.now()).still_active == (), "b.py is not looked at"
    taken = it.store.submit(it.parser.parse("sub/b.py", deactivate_removed=True), it.clock.now())
    assert it.active == ["a"] and [change.change for change in taken.changes] == ["deactivated"]
    assert taken.still_active == ()


def test_a_path_that_the_bundle_does_not_have_is_refused(folder: BundleFolder, watch: Watch) -> None:
    it = watch(folder, "event")
    with pytest.raises(InvalidInput, match="has no file or folder 'nope'"):
        it.parser.parse("nope")


def test_deactivating_a_path_holds_until_it_is_parsed_on_request(folder: BundleFolder, watch: Watch) -> None:
    it = watch(folder)
    it.scan()
    assert it.store.deactivate_subpath("b", "sub", by="ada", at=it.clock.now()) == ("b",)
    folder.write("note.txt", "")  # not their code; but the bundle is looked at
    (folder.root / "note.txt").unlink()
    it.later(30)
    assert it.active == ["a"]
    it.store.submit(it.parser.parse("sub"), it.clock.now())
    assert it.active == ["a", "b"]


# -- others -----------------------------------------------------------------------------------------------------------


def test_a_parser_that_does_not_exist_is_reported_with_those_that_do() -> None:
    with pytest.raises(InvalidConfig, match=r"no bundle parser 'standart'.*standard"):
        parser_named("standart")
    assert set(OURS) == {"standard", "single_pass", "event"}


@pytest.mark.parametrize("parser", ["standard", "single_pass"])
def test_a_parser_that_says_now_is_due_although_the_clock_goes_on_meanwhile(
    parser: str, folder: BundleFolder, watch: Watch, monkeypatch: pytest.MonkeyPatch
) -> None:
    it = watch(folder, parser)
    now = it.clock.now
    monkeypatch.setattr(it.clock, "now", lambda: (it.clock.advance(seconds=0.001), now())[1])
    due = it.parser.due_in()
    assert due is not None and due <= 0


def test_a_parser_with_the_older_names_of_its_methods_still_works(folder: BundleFolder, loader: DagLoader) -> None:
    class Older(StandardBundleParser):
        name = "older"

        def next_look(self, last: datetime | None) -> datetime | None:
            return self.clock.now()

        def look(self) -> Iterator[Submission]:
            yield from super().look()  # type: ignore[misc]

    parser = Older(BundleState(folder.settings(), snapshots=folder.snapshots), loader, DagCatalog(), FakeClock())
    assert parser.due_in() == 0
    (submission,) = parser.scan_results()
    assert [parsed.file for parsed in submission.parsed] == ["a.py", "sub/b.py"]


def test_a_parser_of_ones_own_is_a_subclass_with_two_methods(folder: BundleFolder, loader: DagLoader) -> None:
    class OnlyTop(BundleParser):
        name = "only_top"

        def next_scan(self, last: datetime | None) -> datetime | None:
            return self.clock.now()

        def scan(self) -> Iterator[Submission]:
            yield self.submission(self.bundle.fetch(), leaves_out=("sub",))

    catalog, clock = DagCatalog(), FakeClock()
    store = catalog
    parser = OnlyTop(BundleState(folder.settings(), snapshots=folder.snapshots), loader, store, clock)
    for submission in parser.scan_results():
        store.submit(submission, clock.now())
    assert list(catalog.dags) == ["a"]
