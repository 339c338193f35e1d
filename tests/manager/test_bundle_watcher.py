"""What the manager's thread for bundles does when parsers, also other people's, do what they should not."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import pytest

from backfill_manager.dags.catalog import DagCatalog
from backfill_manager.manager.services import bundle_watcher
from backfill_manager.manager.services.bundle_watcher import (
    MIN_INTERVAL_S,
    AllBundlesParsed,
    BundleWatcher,
    ParseResult,
)
from backfill_manager.manager.tick_context import ParseRequest
from backfill_manager.settings import BundleSettings, LimitSettings
from backfill_manager.testing import FakeClock

DAG = "from backfill_manager import dag, sql\n@dag('{0}')\ndef d():\n    sql('s', 'SELECT 1')\n"
PARSER = """
from backfill_manager.dags.parsers.parser import BundleParser

class Nightly(BundleParser):
    name = "nightly"

    def next_look(self, last):
        return self.clock.now()

    def look(self):
        {0}

    def parse(self, subpath="", *, deactivate_removed=False):
        raise KeyError("no such\\nsubpath")
"""


class Watching:
    def __init__(self, tmp_path: Path, **parsers: str) -> None:
        """A bundle per parser: `good="standard"` has a folder `good` with a DAG of that name."""
        self.root, self.clock, self.shelf = tmp_path, FakeClock(), DagCatalog()
        self.events: SimpleQueue[Any] = SimpleQueue()
        self.store = self.shelf
        bundles = []
        for name, parser in parsers.items():
            self.write(name, "f.py", DAG.format(name))
            output = {"parser": parser} if parser else {}
            bundles.append(BundleSettings(name=name, path=str(tmp_path / name), **output))  # type: ignore[arg-type]
        self.watcher = BundleWatcher(
            bundles, dags=self.store, snapshots=tmp_path / "snapshots", limits=LimitSettings(), clock=self.clock,
            on_event=self.events.put,
        )  # fmt: skip

    def write(self, bundle: str, file: str, text: str) -> None:
        (self.root / bundle).mkdir(exist_ok=True)
        (self.root / bundle / file).write_text(text)

    def look(self) -> float | None:
        """One round; what it finds is taken in."""
        waits = [service.parse_if_due() for service in self.watcher._services.values()]
        while not self.events.empty():
            found = self.events.get()
            self.store.submit(found.submission, self.clock.now())
        return min((wait for wait in waits if wait is not None), default=None)

    @property
    def active(self) -> list[str]:
        return sorted(row.dag_id for row in self.shelf.dags.values() if row.is_active)

    @property
    def errors(self) -> dict[str, str]:
        return {p.bundle: p.message for p in self.shelf.problems.values() if p.is_current}


Watch = Callable[..., Watching]


@pytest.fixture
def watch(tmp_path: Path) -> Iterator[Watch]:
    made: list[Watching] = []

    def begin(**parsers: str) -> Watching:
        made.append(Watching(tmp_path, **parsers))
        return made[-1]

    yield begin
    for it in made:
        it.watcher.stop()


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """A package with a parser `nightly`, as pip leaves it."""
    about = tmp_path / "site" / "nightly_parser-1.0.dist-info"
    about.mkdir(parents=True)
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: nightly-parser\nVersion: 1.0\n")
    monkeypatch.syspath_prepend(str(tmp_path / "site"))

    def with_text(text: str) -> None:
        module = f"nightly_parser_{abs(hash(text))}"  # another one for each test
        (tmp_path / "site" / f"{module}.py").write_text(text)
        (about / "entry_points.txt").write_text(f"[backfill_manager.bundle_parsers]\nnightly = {module}:Nightly\n")

    return with_text


@pytest.mark.parametrize(
    ("raised", "shown"),
    [
        ("KeyError('what is this?')", "KeyError: 'what is this?'"),
        ("SystemExit('no network')", "SystemExit: no network"),
    ],
)
def test_a_parser_that_breaks_is_an_error_of_its_bundle_and_holds_up_no_other(
    watch: Watch, install: Callable[[str], None], raised: str, shown: str
) -> None:
    install(PARSER.format(f"raise {raised}"))
    it = watch(bad="nightly", good="standard")
    assert it.look() == 30
    assert it.active == ["good"]
    assert it.errors == {"bad": f"bundle 'bad': its parser 'nightly' failed: {shown}"}


def test_a_parser_whose_package_cannot_be_imported_is_an_error_of_its_bundle(
    watch: Watch, install: Callable[[str], None]
) -> None:
    install("import no_such_module")
    it = watch(bad="nightly", good="standard")
    it.look()
    assert it.active == ["good"]
    assert "'nightly'" in it.errors["bad"] and "No module named 'no_such_module'" in it.errors["bad"]


def test_a_parser_that_is_always_due_does_not_keep_the_machine_busy(
    watch: Watch, install: Callable[[str], None]
) -> None:
    install(PARSER.format("yield self.submission(self.bundle.fetch())"))
    it = watch(eager="nightly")
    assert it.look() == MIN_INTERVAL_S
    assert (it.active, it.errors) == (["eager"], {})


def test_who_asks_a_parser_that_breaks_gets_an_answer_and_so_does_the_next(
    watch: Watch, install: Callable[[str], None]
) -> None:
    install(PARSER.format("return ()"))
    it = watch(bad="nightly", good="event")
    for bundle in ("bad", "good", "none"):
        it.watcher.parse(ParseRequest(f"to {bundle}", bundle, "", dry_run=False, deactivate_removed=False))
    it.watcher.start()
    found = [it.events.get(timeout=60) for _ in range(4)]
    assert sum(isinstance(event, AllBundlesParsed) for event in found) == 1
    answers = {event.request.bundle: event for event in found if isinstance(event, ParseResult)}
    bad, good, none = (answers[bundle] for bundle in ("bad", "good", "none"))
    assert bad.request.request_id == "to bad" and bad.refusal.startswith("its parser 'nightly' failed: KeyError")
    assert good.submission.on_request and [parsed.dag_ids for parsed in good.submission.parsed] == [("good",)]
    assert "no bundle 'none'" in str(none.refusal).lower()


def test_a_bundle_that_does_not_come_holds_up_no_other(
    watch: Watch, install: Callable[[str], None], tmp_path: Path
) -> None:
    """As a git server that does not answer."""
    come = tmp_path / "come"
    wait = f"import pathlib, threading\n        while not pathlib.Path({str(come)!r}).exists(): threading.Event().wait(0.01)"
    install(PARSER.format(f"{wait}\n        yield self.submission(self.bundle.fetch())"))
    it = watch(slow="nightly", good="standard")
    it.watcher.start()
    first = it.events.get(timeout=60)
    assert first.submission.bundle == "good"
    it.watcher.parse(ParseRequest("q", "good", "", dry_run=False, deactivate_removed=False))
    assert it.events.get(timeout=60).request.request_id == "q"
    come.touch()
    assert it.events.get(timeout=60).submission.bundle == "slow"
    assert isinstance(it.events.get(timeout=60), AllBundlesParsed)


def test_the_thread_ends_when_the_manager_stops(watch: Watch) -> None:
    it = watch(good="standard")
    it.watcher.start()
    assert isinstance(it.events.get(timeout=60), ParseResult)
    assert isinstance(it.events.get(timeout=60), AllBundlesParsed)
    it.watcher.stop()
    thread = next((one for one in threading.enumerate() if one.name == "bundle good"), None)
    if thread is not None:
        thread.join(60)
        assert not thread.is_alive()


def test_a_manifest_that_comes_to_name_another_parser_is_followed(watch: Watch) -> None:
    it = watch(mine="")
    it.look()
    it.write("mine", "manifest.yaml", "version: v1beta\nparser: event\n")
    it.clock.advance(seconds=30)
    it.look()
    assert it.look() is None
    it.write("mine", "g.py", DAG.format("pushed"))
    it.clock.advance(seconds=3600)
    it.look()
    assert it.active == ["mine"]


def test_a_bundle_that_cannot_be_had_when_the_manager_starts_is_had_later(watch: Watch, tmp_path: Path) -> None:
    it = watch(mine="standard", good="standard")
    (tmp_path / "mine").rename(tmp_path / "away")
    it.look()
    assert it.active == ["good"] and "does not exist" in it.errors["mine"]
    (tmp_path / "away").rename(tmp_path / "mine")
    it.clock.advance(seconds=30)
    it.look()
    assert (it.active, it.errors) == (["good", "mine"], {})


def test_a_parser_whose_package_is_not_installed_is_one_line_of_its_bundle_and_the_others_go_on(watch: Watch) -> None:
    it = watch(bad="sheets_of_somebody", good="standard")
    it.look()
    assert it.active == ["good"]
    assert it.errors["bad"] == (
        "bundle 'bad': There is no bundle parser 'sheets_of_somebody': it must be 'standard', 'single_pass' or 'event', not "
        "'sheets_of_somebody'; is its package installed where the manager runs?"
    )


def test_a_parser_that_gives_something_else_than_it_should_is_an_error_of_its_bundle(
    watch: Watch, install: Callable[[str], None]
) -> None:
    install(PARSER.format("yield 'a DAG'"))
    it = watch(bad="nightly", good="standard")
    it.look()
    assert it.active == ["good"]
    assert "its parser 'nightly' gave a str instead of a Submission" in it.errors["bad"]


@pytest.mark.parametrize("given", ["3600.0", "'tomorrow'", "datetime.datetime(2024, 1, 1)"])
def test_a_next_look_that_is_no_instant_is_an_error_of_its_bundle(
    given: str, watch: Watch, install: Callable[[str], None]
) -> None:
    install("import datetime\n" + PARSER.format("return ()").replace("return self.clock.now()", f"return {given}"))
    it = watch(bad="nightly", good="standard")
    assert it.look() == 30
    assert it.active == ["good"] and "next_scan; an instant with a time zone, or None" in it.errors["bad"]


def test_a_parser_of_before_next_look_gets_an_error_of_what_it_lacks(
    watch: Watch, install: Callable[[str], None]
) -> None:
    install(PARSER.format("return ()").replace("def next_look(self, last)", "def due_in(self)"))
    it = watch(bad="nightly", good="standard")
    it.look()
    assert it.active == ["good"] and "lacks next_" in it.errors["bad"]


def test_a_parser_that_says_an_hour_after_the_last_look_looks_every_hour(
    watch: Watch, install: Callable[[str], None]
) -> None:
    every_hour = "return last and last + datetime.timedelta(hours=1) or self.clock.now()"
    install(
        "import datetime\n"
        + PARSER.format("yield self.submission(self.bundle.fetch())").replace("return self.clock.now()", every_hour)
    )
    it = watch(mine="nightly")
    assert it.look() == 3600
    it.write("mine", "g.py", DAG.format("later"))
    it.clock.advance(seconds=3599)
    assert (it.look(), it.active) == (1, ["mine"])
    it.clock.advance(seconds=1)
    assert (it.look(), it.active) == (3600, ["later", "mine"])
    assert it.look() == 3600


def test_a_manifest_that_names_a_parser_when_the_bundle_comes_back_is_not_read_by_another_one_first(
    watch: Watch, tmp_path: Path
) -> None:
    """The first look found no folder, so that nothing was known of its manifest."""
    it = watch(mine="")
    (tmp_path / "mine").rename(tmp_path / "away")
    it.look()
    (tmp_path / "away" / "manifest.yaml").write_text("version: v1beta\nparser: event\n")
    (tmp_path / "away").rename(tmp_path / "mine")
    it.clock.advance(seconds=30)
    assert it.look() is None
    assert it.active == []


@pytest.mark.parametrize("was_read_before", [False, True])
def test_an_error_of_the_manifest_goes_when_it_is_put_right_and_names_a_parser_that_waits_for_requests(
    watch: Watch, was_read_before: bool
) -> None:
    it = watch(mine="")
    if was_read_before:
        it.look()
    it.write("mine", "manifest.yaml", "version: v2\n")
    it.clock.advance(seconds=30)
    it.look()
    assert "version must be" in it.errors["mine"]
    it.write("mine", "manifest.yaml", "version: v1beta\nparser: event\n")
    it.clock.advance(seconds=30)
    it.look()
    assert (it.errors, it.active) == ({}, ["mine"] if was_read_before else [])


def test_an_error_of_the_bundle_goes_when_a_parser_that_finds_no_change_can_have_it_again(
    watch: Watch, install: Callable[[str], None], tmp_path: Path
) -> None:
    install(PARSER.format("self.bundle.fetch()\n        return ()"))
    it = watch(mine="nightly")
    (tmp_path / "mine").rename(tmp_path / "away")
    it.look()
    assert "does not exist" in it.errors["mine"]
    (tmp_path / "away").rename(tmp_path / "mine")
    it.clock.advance(seconds=30)
    it.look()
    assert it.errors == {}


def test_a_parser_that_does_not_come_back_is_reported_and_who_asks_it_is_answered(
    watch: Watch, install: Callable[[str], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bundle_watcher, "STUCK_TIMEOUT_S", 0.2)
    come = tmp_path / "come"
    wait = f"import pathlib, threading\n        while not pathlib.Path({str(come)!r}).exists(): threading.Event().wait(0.01)"
    install(PARSER.format(f"{wait}\n        return ()"))
    it = watch(stuck="nightly")
    expected = ParseRequest("early", "stuck", "", dry_run=False, deactivate_removed=False)
    it.watcher.start()
    it.watcher.parse(expected)
    result, answer, all_looked = (it.events.get(timeout=60) for _ in range(3))
    assert "its parser 'nightly' has not come back for" in result.submission.failed[0].message
    assert answer.request == expected and "has not come back" in answer.refusal
    assert isinstance(all_looked, AllBundlesParsed)
    late = ParseRequest("late", "stuck", "", dry_run=False, deactivate_removed=False)
    it.watcher.parse(late)
    answer = it.events.get(timeout=60)
    assert answer.request == late and "has not come back" in answer.refusal
    it.store.submit(result.submission, it.clock.now())
    come.touch()
    assert it.events.get(timeout=60).submission.readable  # it came back after all


def test_an_import_error_is_logged_when_it_is_new_though_files_are_read_at_different_times(
    watch: Watch, capfd: pytest.CaptureFixture[str]
) -> None:
    it = watch(mine="standard")

    def logged_in_half_an_hour() -> list[str]:
        for _ in range(1800):
            it.look()
            it.clock.advance(seconds=1)
        lines = capfd.readouterr().err.splitlines()
        return sorted(
            word for line in lines if 'event="import error"' in line for word in line.split() if "file=" in word
        )

    for file in ("a.py", "b.py"):
        it.write("mine", file, DAG.format(file) + "nope\n")
    assert logged_in_half_an_hour() == ["file=a.py", "file=b.py"]
    it.write("mine", "b.py", DAG.format("b.py") + "nor_this\n")
    assert logged_in_half_an_hour() == ["file=b.py"]
    it.write("mine", "b.py", DAG.format("b"))
    assert logged_in_half_an_hour() == []
    it.write("mine", "b.py", DAG.format("b") + "nor_this\n")
    assert logged_in_half_an_hour() == ["file=b.py"]
