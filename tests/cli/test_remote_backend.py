"""`--server URL`: the same commands over a real server and over the tables print the same, and fail the same."""

from __future__ import annotations

import asyncio
import importlib
import json
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack
from keyword import iskeyword
from pathlib import Path
from threading import Event
from typing import Any

import pytest
from support.bfm import Bfm, BfmResult
from support.loaded_modules import HEAVY, process
from support.sample_state import DAY, NEW_YEAR, FilledState, StandingClock

from backfill_manager.api.app import create_app
from backfill_manager.api.auth import sha256_of
from backfill_manager.api.polling import ResponseWaiter
from backfill_manager.api.server import listen, served_beside
from backfill_manager.cli.app import COMMANDS, GROUPS
from backfill_manager.cli.backend import remote
from backfill_manager.client import client as client_server
from backfill_manager.model.records import BundleRow, CheckResult, DagRun, Notification, TableAccess
from backfill_manager.settings import Settings

OF_THE_SERVER = " component=api "  # lines of its log: here it lives in the same process and has the same standard error
RUN = "backfill__2013-01-01T05:00:00Z"
TOKEN, LOOKING_ONLY = "bfm_of-the-operator", "bfm_of-the-viewer"


def settings(state: FilledState, *tokens: tuple[str, str]) -> Settings:
    known = [{"name": role, "role": role, "sha256": sha256_of(token)} for token, role in tokens]
    return Settings.model_validate({"state": str(state.root), "api": {"tokens": known, "requests_per_second": 10_000}})


@pytest.fixture
def bfm(bfm: Bfm) -> Bfm:
    def run_it(*args: str, environ: dict[str, str] | None = None) -> BfmResult:
        result = bfm(*args, environ=environ)
        lines = result.err.splitlines(keepends=True)
        return BfmResult(result.code, result.out, "".join(line for line in lines if OF_THE_SERVER not in line))

    return run_it


@pytest.fixture
def url(state: FilledState, clock: StandingClock) -> Iterator[str]:
    app = create_app(settings(state), state.store, clock=clock)
    with served_beside(app, listen("127.0.0.1", 0)) as address:
        yield address


@pytest.fixture
def guarded_url(state: FilledState, clock: StandingClock) -> Iterator[str]:
    known = settings(state, (TOKEN, "operator"), (LOOKING_ONLY, "viewer"))
    with served_beside(create_app(known, state.store, clock=clock), listen("127.0.0.1", 0)) as address:
        yield address


@pytest.fixture
def ways(bfm: Bfm, url: str) -> Callable[..., list[BfmResult]]:
    """One command line over the tables, then over the server."""
    return lambda *args: [bfm(*args), bfm(*args, "--server", url)]


def _access(number: int, task: str, access: str, name: str | None, path: str, **more: Any) -> TableAccess:
    return TableAccess(
        "flights", RUN, task, 1, number, access, 1, NEW_YEAR, True, 1, table_name=name, table_path=path, version=number,
        interval_start=NEW_YEAR, interval_end=NEW_YEAR + DAY, **more,
    )  # fmt: skip


ACCESSES = [
    _access(1, "clean", "read", "bronze.flights", "file:/w/bronze"),
    _access(2, "clean", "write", "silver.flights", "file:/w/silver", rows_written=842, bytes_written=12_345),
    _access(3, "delays", "read", "silver.flights", "file:/w/silver"),
    _access(4, "delays", "write", None, "file:/w/gold", rows_written=3, bytes_written=700),
]


def _check(number: int, condition: str, outcome: str, failing: int | None, message: str | None) -> CheckResult:
    return CheckResult(
        "flights", RUN, "clean", 1, number, 1, "silver.flights", condition, outcome, 1, NEW_YEAR, 1, rows=842,
        failing_rows=failing, message=message, interval_start=NEW_YEAR, interval_end=NEW_YEAR + DAY,
    )  # fmt: skip


CHECKS = [
    _check(1, "rows > 0", "passed", None, "842 rows"),
    _check(2, "delay < 1440", "warned", 3, "3 of 842 rows"),
    _check(3, "no nulls in flight", "passed", 0, None),
]


def notifications(state: FilledState) -> list[Notification]:
    at = state.clock.at
    return [
        Notification("failed/1", "ops", "failed", "waiting", "flights", "flights: run r1 has failed", "x", 9001, at, run_id=RUN,
                     failures=2, error="Failed to send: status 503"),
        Notification("done/2", "ops", "done", "sent", "flights", "flights: backfill b1 has succeeded", "", 9002, at,
                     backfill_id="b1", ended_at=at),
    ]  # fmt: skip


def fill(state: FilledState) -> None:
    state.dag(params={"full": False}, tags=("daily",))
    state.dag("hourly", schedule={"seconds": 5400}, is_paused=True)
    state.pools()
    state.import_error()
    state.put(BundleRow("examples", "dags", "event", "0", state.clock.at))
    state.backfill("b1", {"success": 3, "failed": 1, "running": 2, "skipped": 1, "pending": 5})
    state.clock.at += DAY
    state.backfill("b2", {"failed": 2}, state="failed", dag_id="hourly", reason="2 items failed")
    state.backfill("p1", {"skipped": 2}, state="success", preview_id="p1")
    state.run(on="2024-05-10", tasks={"clean": "success", "delays": "success"})
    state.run(on="2024-05-11", state="overridden", run_id="old", overridden_by="scheduled__2024-05-11T04:00:00Z")
    state.run(on="2024-05-11", tasks={"clean": "failed"}, state="failed", reason="failed: clean")
    state.run(run_type="manual", run_id="manual__a/b c?d", tasks={"clean": "success"}, partition_key="a/b c?d")
    state.put(*ACCESSES, *CHECKS, *notifications(state))
    state.logged(RUN, "read 12 files", "wrote 3 rows [ok]")
    state.clock.at += DAY
    state.requested("b3")
    state.clock.at += DAY


READING = [
    ("backfill", "list"),
    ("backfill", "list", "--state", "running", "--dag", "flights"),
    ("backfill", "list", "--limit", "1"),
    ("backfill", "show", "b1"),
    ("backfill", "show", "latest"),
    ("backfill", "show", "b3"),
    ("backfill", "items", "b1"),
    ("backfill", "items", "b1", "--limit", "3", "--offset", "2"),
    ("backfill", "items", "b1", "--state", "pending", "--state", "failed"),
    ("dags", "list"),
    ("dags", "list", "--all"),
    ("dags", "show", "flights"),
    ("dags", "render", "flights", "2013-01-05", "delays"),
    ("dags", "next", "flights", "-n", "3"),
    ("dags", "versions", "flights"),
    ("dags", "import-errors"),
    ("runs", "list"),
    ("runs", "list", "--backfill", "b1", "--state", "success", "--limit", "2"),
    ("runs", "list", "--dag", "flights"),
    ("runs", "show", "2024-05-11", "--dag", "flights"),
    ("runs", "show", "manual__a/b c?d"),
    ("runs", "timeline", "flights"),
    ("tasks", "list", "flights"),
    ("tasks", "states", "flights", "2024-05-10"),
    ("tasks", "logs", "flights", RUN, "clean"),
    ("tasks", "stages", "flights", RUN, "clean"),
    ("tasks", "checks", "flights", RUN),
    ("tasks", "checks", "flights", RUN, "delays"),
    ("pools", "list"),
    ("tables", "list"),
    ("tables", "show", "silver.flights"),
    ("tables", "show", "/w/gold", "--limit", "1"),
    ("lineage", "silver.flights"),
    ("backfill", "gaps", "flights", "--from", "2013-01-01", "--to", "2013-01-05"),
    ("backfill", "gaps", "--from", "2013-01-01", "--to", "2013-01-05"),
    ("backfill", "gaps", "hourly", "--from", "2013-01-01", "--to", "2013-01-01", "--finding", "empty"),
    ("lineage", "flights"),
    ("bundles", "list"),
    ("bundles", "show", "examples"),
    ("notify", "list"),
    ("notify", "list", "--state", "waiting", "--event", "failed", "--target", "ops", "--dag", "flights"),
    ("notify", "list", "--backfill", "b1", "--limit", "1"),
    ("requests", "list"),
    ("requests", "show", "rb3"),
    ("manager", "status"),
]  # fmt: skip


def test_reading_commands_print_the_same_documents(ways: Callable[..., list[BfmResult]], state: FilledState) -> None:
    state.filled_by(fill)

    for args in READING:
        over_tables, over_server = ways(*args, "--output", "json")
        assert over_server.document == over_tables.document, args
        assert (over_server.code, over_server.err) == (over_tables.code, over_tables.err), args


def test_reading_commands_print_the_same_tables(ways: Callable[..., list[BfmResult]], state: FilledState) -> None:
    state.filled_by(fill)

    for args in READING:
        over_tables, over_server = ways(*args)
        assert _lines(over_server) == _lines(over_tables), args


@pytest.mark.parametrize("n", [1, 2, 3, 5, 6, 7])
def test_what_has_more_than_a_page_is_listed_whole(
    ways: Callable[..., list[BfmResult]], state: FilledState, monkeypatch: pytest.MonkeyPatch, n: int
) -> None:
    state.dag()
    state.put(*history(days=6))
    monkeypatch.setattr(client_server, "PAGE", 2)

    for args in (("dags", "next", "flights"), ("runs", "timeline", "flights")):
        over_tables, over_server = ways(*args, "-n", str(n), "--output", "json")
        assert over_server.document == over_tables.document, args
        assert len(over_tables.document) == (n if args[0] == "dags" else min(n, 6))
    over_tables, over_server = ways("runs", "timeline", "flights", "--output", "json")
    assert over_server.document == over_tables.document
    assert [len(run["overridden"]) for run in over_tables.document] == [1, 0, 0, 1, 0, 0]


def test_intervals_come_to_their_end_over_a_server_too(
    ways: Callable[..., list[BfmResult]], state: FilledState, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client_server, "PAGE", 2)
    state.dag(end_date=state.clock.at + 3 * DAY)
    state.dag("once", schedule="@once")
    state.dag("by_hand", schedule=None)
    state.dag("every_90_minutes", schedule={"seconds": 5400}, catchup=True)

    for dag, shown in (("flights", 5), ("once", 1), ("by_hand", 0), ("every_90_minutes", 9)):
        over_tables, over_server = ways("dags", "next", dag, "-n", "9", "--output", "json")
        assert over_server.document == over_tables.document
        assert len(over_tables.document) == shown, dag


def history(days: int) -> list[DagRun]:
    """A run a day; those of the first and fourth have taken the place of another."""
    made = []
    for n in range(days):
        at = NEW_YEAR + n * DAY
        run = DagRun("flights", f"r{n}", "scheduled", "success", 1, n, NEW_YEAR, logical_date=at, interval_end=at + DAY)
        made.append(run)
        if n % 3 == 0:
            made.append(run.evolve(run_id=f"old{n}", run_seq=100 + n, state="overridden", overridden_by=f"r{n}"))
    return made


def _lines(result: BfmResult) -> list[str]:
    return sorted(result.out.splitlines()) + result.err.splitlines()


@pytest.mark.parametrize(
    "args",
    [
        ("backfill", "show", "nothing"),
        ("backfill", "list", "--dag", "fligths"),
        ("backfill", "create", "flights", "--date", "2013-01-05", "--pool", "swimming"),
        ("backfill", "create", "flights", "--copy-of", "nothing"),
        ("backfill", "create", "hourly", "--copy-of", "b1"),
        ("backfill", "pause", "b2"),
        ("backfill", "retry", "b1"),
        ("backfill", "retry", "b2", "--item", "999"),
        ("backfill", "promote", "b2"),
        ("backfill", "discard", "b2"),
        ("backfill", "set", "b2", "--batch", "7"),
        ("runs", "show", "nothing"),
        ("runs", "cancel", "2024-05-10", "--dag", "flights"),
        ("runs", "show", "2024-05-10"),
        ("runs", "mark", "old", "success"),
        ("dags", "mark", "flights", "success", "--date", "1999-01-01", "--yes"),
        ("dags", "mark", "flights", "success", "--item", "1", "--yes"),
        ("tasks", "clear", "flights", "--backfill", "nothing", "--yes"),
        ("runs", "revert", "nothing", "--yes"),
        ("backfill", "revert", "b1", "--yes"),
        ("backfill", "revert", "p1", "--yes"),
        ("tasks", "states", "nothing", "latest"),
        ("tasks", "mark", "flights", "2024-05-10", "dirty", "success"),
        ("dags", "trigger", "nothing"),
        ("dags", "versions", "flights", "--diff", "1", "9"),
        ("pools", "set", "swimming", "--slots", "3"),
        ("requests", "show", "nothing"),
        ("bundles", "parse", "exmaples"),
        ("bundles", "parse", "examples", "../etc"),
        ("bundles", "deactivate", "exmaples", "a.py"),
        ("dags", "deactivate", "nothing"),
    ],
    ids=" ".join,
)
def test_what_goes_wrong_goes_wrong_the_same_way(
    ways: Callable[..., list[BfmResult]], state: FilledState, args: tuple[str, ...]
) -> None:
    state.filled_by(fill)

    over_tables, over_server = ways(*args)

    assert over_tables.code in (2, 3, 4)
    assert (over_server.code, over_server.error) == (over_tables.code, over_tables.error)


def test_an_error_of_the_server_names_options(ways: Callable[..., list[BfmResult]], state: FilledState) -> None:
    state.filled_by(fill)

    over_tables, over_server = ways("backfill", "create", "flights", "-s", "2013-01-05", "-e", "2013-01-01")

    assert (over_tables.code, over_server.code) == (2, 2)
    assert "--from 2013-01-05 is after --to 2013-01-01;" in over_tables.error
    assert over_server.error == over_tables.error


ASKING = [
    (("backfill", "pause", "b1"), "backfill.pause"),
    (("backfill", "unpause", "b1"), "backfill.unpause"),
    (("backfill", "cancel", "b1", "--let-running-finish"), "backfill.cancel"),
    (("backfill", "retry", "b2"), "backfill.retry"),
    (("backfill", "retry", "b2", "--latest-version", "--downstream"), "backfill.retry"),
    (("backfill", "retry", "b2", "--item", "1", "--item", "1-1"), "backfill.retry"),
    (("backfill", "promote", "p1", "--partial"), "backfill.promote"),
    (("backfill", "discard", "p1"), "backfill.discard"),
    (("backfill", "set", "b1", "--max-active-runs", "4", "--set", "retries=3"), "backfill.set"),
    (("dags", "pause", "flights"), "dag.pause"),
    (("dags", "unpause", "hourly"), "dag.unpause"),
    (("dags", "deactivate", "hourly"), "dag.deactivate"),
    (("dags", "trigger", "flights", "--logical-date", "2013-01-05", "-c", '{"full": true}'), "dag.trigger"),
    (("runs", "cancel", "backfill__2013-01-05T05:00:00Z", "--dag", "flights"), "run.cancel"),
    (("runs", "mark", "manual__a/b c?d", "failed"), "run.mark"),
    (("dags", "mark", "flights", "failed", "--date", "2024-05-10", "-y"), "runs.mark"),
    (("runs", "revert", "manual__a/b c?d", "--yes"), "run.revert"),
    (("backfill", "revert", "b2", "--yes"), "backfill.revert"),
    (("runs", "note", "manual__a/b c?d", "late data"), "run.note"),
    (("backfill", "note", "b2", ""), "backfill.note"),
    (("tasks", "mark", "flights", "2024-05-10", "clean", "skipped"), "task.mark"),
    (("tasks", "clear", "flights", "-s", "2024-05-10", "-t", "clean", "--downstream", "-y"), "tasks.clear"),
    (("pools", "set", "backfill", "--slots", "3"), "pool.set"),
    (("bundles", "parse", "examples"), "bundle.parse"),
    (("bundles", "parse", "examples", "team/a.py", "--deactivate-removed"), "bundle.parse"),
    (("bundles", "deactivate", "examples", "team"), "bundle.deactivate"),
]


@pytest.mark.parametrize(("args", "kind"), ASKING, ids=[" ".join(args[:2]) for args, _ in ASKING])
def test_what_is_asked_over_the_server_is_what_is_asked_over_the_tables(
    ways: Callable[..., list[BfmResult]], state: FilledState, args: tuple[str, ...], kind: str
) -> None:
    state.filled_by(fill)

    result = ways(*args, "--output", "json")
    [over_tables, over_server] = [one for one in state.store.unanswered() if one.kind == kind]

    assert over_server.payload_json == over_tables.payload_json
    assert (over_tables.source, over_server.source, over_server.requested_by) == ("cli", "api", "local")
    documents = [{**one.document, "request_id": "any"} for one in result]
    assert documents[0] == documents[1]
    assert all("No manager is running" in one.err for one in result)


def test_a_backfill_is_created_with_all_its_options(ways: Callable[..., list[BfmResult]], state: FilledState) -> None:
    state.filled_by(fill)
    options = [
        "--reprocess", "failed", "--max-active-runs", "4", "--priority", "7", "--tasks", "clean", "--stop-on-failure",
        "2", "--window", "20:00-06:00", "--polite", "--mark-success", "--run-backwards", "--set", "retries=3",
    ]  # fmt: skip

    over_tables, over_server = ways(
        "backfill", "create", "flights", "-s", "2013-01-01", "-e", "2013-01-05", *options, "-c", '{"full": true}',
        "--output", "json",
    )  # fmt: skip

    shown, expected = over_server.document, over_tables.document
    of_whoever_asked = {"backfill_id": None, "request_id": None, "created_by": None}
    assert {**shown, **of_whoever_asked} == {**expected, **of_whoever_asked}
    assert shown["backfill_id"] != expected["backfill_id"]


def test_an_answer_is_waited_for_and_shown(bfm: Bfm, url: str, state: FilledState, clock: StandingClock) -> None:
    state.filled_by(fill)
    state.leads()
    clock.meanwhile.append(lambda: state.answers_next(message="b1 is paused"))

    result = bfm("backfill", "pause", "b1", "--server", url)

    assert (result.code, result.out, result.err) == (0, "b1 is paused\n", "")


@pytest.mark.parametrize(("output", "is_said"), [((), True), (("--output", "json"), False)])
def test_a_plan_that_takes_long_says_which_manager_is_waited_for(
    bfm: Bfm, url: str, state: FilledState, monkeypatch: pytest.MonkeyPatch, output: tuple[str, ...], is_said: bool
) -> None:
    state.filled_by(fill)
    state.leads()
    looked, say, wait = Event(), remote.say_who_is_waited_for, ResponseWaiter.wait

    def says(*args: Any) -> None:
        say(*args)
        looked.set()

    async def answered_late(waiter: ResponseWaiter, request_id: str, timeout_s: float) -> Any:
        await asyncio.to_thread(looked.wait)
        state.answers_next(payload={"items": [], "summary": {"items": 0, "pending": 0, "skipped": {}}})
        return await wait(waiter, request_id, timeout_s)

    monkeypatch.setattr(ResponseWaiter, "wait", answered_late)
    monkeypatch.setattr(remote, "say_who_is_waited_for", says)
    monkeypatch.setattr(remote, "UNSAID_WAIT_S", 0.0)
    result = bfm(
        "backfill", "create", "flights", "-s", "2013-01-01", "-e", "2013-01-05", "-n", "--server", url, *output
    )

    said = "Waiting for the manager (term 2, pid 4711 on here) to plan."
    assert (said in result.err.splitlines()) == is_said
    assert result.code == 0, result.err


def test_a_refusal_by_the_manager_is_exit_code_four(
    bfm: Bfm, url: str, state: FilledState, clock: StandingClock
) -> None:
    state.filled_by(fill)
    state.leads()
    clock.meanwhile.append(lambda: state.answers_next("refused", "it was too late"))

    result = bfm("backfill", "pause", "b1", "--server", url)

    assert (result.code, result.error) == (4, "it was too late")


PARSED = {
    "bundle": "examples", "commit_id": None, "dags": 2,
    "changes": [{"dag_id": "one", "file": "a.py", "change": "new", "version": 1}],
    "errors": [{"file": "b.py", "line": 7, "message": "ValueError: no"}],
}  # fmt: skip


@pytest.mark.parametrize("output", ["table", "json"])
def test_what_came_of_parsing_is_reported_with_the_exit_code_of_files_that_failed(
    bfm: Bfm, url: str, state: FilledState, clock: StandingClock, output: str
) -> None:
    state.filled_by(fill)
    state.leads()
    result = []
    for way in ((), ("--server", url)):
        for dry in ((), ("--dry-run",)):
            clock.meanwhile.append(lambda: state.answers_next(payload=PARSED))
            result.append(bfm("bundles", "parse", "examples", "team", *dry, *way, "--output", output))
    real, dry_run, real_over_server, dry_run_over_server = result

    assert (real.code, dry_run.code) == (1, 1)
    assert (real_over_server, dry_run_over_server) == (real, dry_run)
    assert real.out != dry_run.out


def test_a_manager_that_refuses_to_parse_is_reported_the_same_way(
    bfm: Bfm, url: str, state: FilledState, clock: StandingClock
) -> None:
    state.filled_by(fill)
    state.leads()
    for way in ((), ("--server", url)):
        clock.meanwhile.append(lambda: state.answers_next("refused", "there is no file or folder 'team'"))
        result = bfm("bundles", "parse", "examples", "team", *way)
        assert (result.code, result.error) == (4, "there is no file or folder 'team'")


def test_without_a_manager_a_server_can_not_try_a_parsing_and_says_what_can(
    bfm: Bfm, url: str, state: FilledState
) -> None:
    state.filled_by(fill)
    before = state.fingerprint()

    result = bfm("bundles", "parse", "examples", "--dry-run", "--server", url)

    assert result.code == 1
    assert result.error == (
        "What a server is asked to parse is read by a manager, and none is running now: start one with "
        "`bfm manager start`, or use --state where the bundle and its configuration are."
    )
    assert state.fingerprint() == before, "nothing was asked"


def test_a_backfill_is_watched_to_its_end(bfm: Bfm, url: str, state: FilledState, clock: StandingClock) -> None:
    state.dag()
    state.leads()
    state.backfill("b1", {"running": 1, "pending": 1})
    clock.meanwhile += [
        lambda: state.goes_on("b1", fail=[1], start=[2]),
        lambda: state.goes_on("b1", "failed", succeed=[2], reason="1 item failed"),
    ]

    result = bfm("backfill", "watch", "b1", "--server", url)

    assert result.code == 1
    assert "failed 2013-01-01T05:00:00Z  clean: ValueError: no such [day]" in result.out
    assert "Backfill b1 of flights: failed, 2 items: 1 success, 1 failed" in result.out


def test_a_server_that_is_started_anew_does_not_end_the_watching(
    bfm: Bfm, state: FilledState, clock: StandingClock
) -> None:
    def serve(port: int) -> AbstractContextManager[str]:
        return served_beside(create_app(settings(state), state.store, clock=clock), listen("127.0.0.1", port))

    def start_again() -> None:
        second.enter_context(serve(int(address.rpartition(":")[2])))
        state.goes_on("b1", "success", succeed=[1])

    state.leads()
    state.backfill("b1", {"running": 1})
    with ExitStack() as first, ExitStack() as second:
        address = first.enter_context(serve(0))
        clock.meanwhile = [first.close, *[lambda: None] * 20, start_again]
        watched = bfm("backfill", "watch", "b1", "--server", address)
        clock.meanwhile = [second.close]
        state.backfill("b2", {"running": 1})
        given_up = bfm("backfill", "watch", "b2", "--server", address)

    assert watched.code == 0 and watched.out.count("can't be reached") == 1
    assert watched.out.splitlines()[-1].startswith("Backfill b1 of flights: success")
    assert (given_up.code, given_up.out.count("can't be reached")) == (1, 1)
    assert given_up.err.startswith(f"The server at {address} can't be reached")


def test_a_log_is_followed_until_the_task_has_ended(
    bfm: Bfm, url: str, state: FilledState, clock: StandingClock
) -> None:
    state.dag()
    state.backfill("b1", {"running": 1})
    state.logged(RUN, "first")
    clock.meanwhile += [
        lambda: state.logged(RUN, "second"),
        lambda: state.task_goes(RUN, "clean", "success"),
        lambda: state.logged(RUN, "last"),
    ]

    result = bfm("tasks", "logs", "flights", RUN, "clean", "--follow", "--server", url)

    assert [line.rpartition(" ")[2] for line in result.out.splitlines()] == ["first", "second", "last"]


def test_a_run_in_the_future_is_refused_alike_and_taken_alike(
    ways: Callable[..., list[BfmResult]], state: FilledState
) -> None:
    state.dag()
    trigger = ("dags", "trigger", "flights", "--logical-date", "2030-01-01")

    over_tables, over_server = ways(*trigger)
    assert (over_tables.code, over_server.code) == (2, 2)
    assert over_tables.error.startswith("--logical-date 2030-01-01 lies in the future")
    assert over_server.error.startswith("--logical-date 2030-01-01 lies in the future")
    assert state.store.unanswered() == []

    ways(*trigger, "--allow-future")
    first, second = (json.loads(request.payload_json) for request in state.store.unanswered())
    assert first == second and first["allow_future"] is True


def test_a_partial_run_is_reported_alike(ways: Callable[..., list[BfmResult]], state: FilledState) -> None:
    state.dag()
    state.run("2013-01-01", {"clean": "success"}, run_type="backfill", is_partial=True)
    for args in (("runs", "list"), ("runs", "show", "latest"), ("runs", "timeline", "flights")):
        over_tables, over_server = ways(*args)
        assert "partial" in over_tables.out and _lines(over_server) == _lines(over_tables), args


def test_a_clear_is_previewed_by_the_server(ways: Callable[..., list[BfmResult]], state: FilledState) -> None:
    state.filled_by(fill)

    over_tables, over_server = ways("tasks", "clear", "flights", "-s", "2024-05-10", "--dry-run", "--output", "json")

    assert over_server.document == over_tables.document
    assert over_server.document["summary"]["runs"] == 2


def test_over_a_server_no_engine_of_the_tables_is_loaded(url: str, state: FilledState, tmp_path: Path) -> None:
    state.backfill("b1", {"success": 1})
    unwanted = (*HEAVY, "deltalake", "backfill_manager.queries.dags")
    program = (
        "import sys; from backfill_manager.cli import main; code = main(sys.argv[1:]); "
        f"print([name for name in {unwanted!r} if name in sys.modules]); sys.exit(code)"
    )

    ended = process("-c", program, "backfill", "show", "b1", "--server", url, cwd=tmp_path)

    assert (ended.returncode, ended.stdout.splitlines()[-1]) == (0, "[]"), ended.stderr


# -- whose server, and who comes ----------------------------------------------------------------------------------------


def test_the_server_and_the_token_may_come_from_the_environment(
    bfm: Bfm, guarded_url: str, state: FilledState, tmp_path: Path
) -> None:
    state.backfill("b1", {"success": 1})
    kept = tmp_path / "token"
    kept.write_text(f"{TOKEN}\n")
    args = ("backfill", "show", "b1", "--output", "json")

    by_token = bfm(*args, environ={"BFM_SERVER": guarded_url, "BFM_TOKEN": TOKEN})
    by_file = bfm(*args, environ={"BFM_SERVER": guarded_url, "BFM_TOKEN_FILE": str(kept)})

    assert by_token.document["backfill_id"] == by_file.document["backfill_id"] == "b1"


def test_a_missing_a_wrong_and_a_weak_token_are_reported(bfm: Bfm, guarded_url: str, state: FilledState) -> None:
    state.dag()

    def pausing(**environ: str) -> BfmResult:
        return bfm("dags", "pause", "flights", environ={"BFM_SERVER": guarded_url, **environ})

    missing, wrong, weak = pausing(), pausing(BFM_TOKEN="bfm_guessed"), pausing(BFM_TOKEN=LOOKING_ONLY)
    no_file = pausing(BFM_TOKEN_FILE="nowhere/token")

    assert (missing.code, missing.error.partition(":")[0]) == (2, "A token is needed")
    assert (wrong.code, "Invalid token" in wrong.error) == (2, True)
    assert (weak.code, "has read-only access" in weak.error) == (4, True)
    assert (no_file.code, "BFM_TOKEN_FILE: nowhere/token can't be read" in no_file.error) == (2, True)
    assert "bfm_guessed" not in wrong.err


def test_the_state_said_on_the_line_wins_over_a_server_of_the_environment(bfm: Bfm, state: FilledState) -> None:
    state.backfill("b1", {"success": 1})
    away = {"BFM_SERVER": "http://127.0.0.1:9"}

    result = bfm("backfill", "show", "b1", "--state", str(state.root), "--output", "json", environ=away)
    both = bfm("backfill", "show", "b1", "--state", str(state.root), "--server", "http://127.0.0.1:9")

    assert result.document["backfill_id"] == "b1"
    assert (both.code, both.error) == (2, "--server and --state don't go together: a server knows where its state is.")


NEEDS_TABLES = {
    ("manager", "start"): "say where the state is with --state.",
    ("manager", "stop"): "or send SIGTERM to the process that `bfm manager status` shows.",
    ("state", "init"): "say where the state is with --state.",
    ("state", "check"): "or see by `bfm manager status` whether the server can read it.",
    ("state", "compact"): "say where the state is with --state.",
    ("state", "prune"): "say where the state is with --state.",
    ("state", "adopt", "--as-copy"): "say where the state is with --state.",
    ("state", "locations"): "say where the state is with --state.",
    ("state", "export", "copy"): "say where the state is with --state.",
    ("state", "import", "copy"): "say where the state is with --state.",
    ("state", "sql", "SELECT 1"): "say where the state is with --state.",
    ("dags", "test", "flights"): "or have the server's manager run it: `bfm dags trigger flights`.",
    ("tasks", "run", "flights", "clean", "2013-01-01"): "`bfm tasks clear flights --run RUN -t '^clean$'`.",
    ("serve",): "say where the state is with --state.",
}  # fmt: skip


@pytest.mark.parametrize(("args", "instead"), NEEDS_TABLES.items(), ids=" ".join)
def test_a_command_that_needs_the_tables_says_so_and_what_to_take(
    bfm: Bfm, args: tuple[str, ...], instead: str
) -> None:
    for way in ((), ("--server", "http://127.0.0.1:9")):
        result = bfm(*args, *way, environ={"BFM_SERVER": "http://127.0.0.1:9"})
        named = "--server" if way else "BFM_SERVER"
        assert result.code == 2
        assert result.error.startswith(
            f"This command works on the tables of the state, and not over a server ({named} names"
        )
        assert result.error.endswith(instead)


ABOUT_THIS_MACHINE = [
    ("config", "show"), ("config", "check"), ("config", "token", "ada"), ("doctor",), ("init", "shop"),
    ("notify", "test"),
    ("import", "airflow", "x.py"), ("import", "dbt", "x"), ("import", "dagster", "x.py"),
]  # fmt: skip


@pytest.mark.parametrize("args", ABOUT_THIS_MACHINE, ids=" ".join)
def test_a_command_about_this_machine_refuses_a_server(bfm: Bfm, args: tuple[str, ...]) -> None:
    result = bfm(*args, "--server", "http://127.0.0.1:9")

    assert result.code == 2
    assert result.error.startswith("--server does not go with this command, which is about")


def test_a_server_of_the_environment_does_not_keep_one_from_seeing_the_configuration(bfm: Bfm) -> None:
    assert bfm("config", "check", environ={"BFM_SERVER": "http://127.0.0.1:9"}).code == 0


def test_of_each_command_it_is_known_how_it_goes_over_a_server() -> None:
    """Those that are compared with the tables above, those that are refused, and the few with a story of their own."""
    compared = [*READING, *(args for args, _ in ASKING), *NEEDS_TABLES, *ABOUT_THIS_MACHINE]
    of_their_own = [
        ("backfill", "create"),
        ("backfill", "watch"),
        ("backfill", "diff"),
        ("dags", "schema"),
    ]  # the schema is the same anywhere
    known = {args[:1] if args[0] in COMMANDS else args[:2] for args in (*compared, *of_their_own)}

    there = {(name,) for name in COMMANDS}
    for name in GROUPS:
        group = importlib.import_module(f"backfill_manager.cli.commands.{name}{'_' * iskeyword(name)}").group
        there |= {(name, one.name) for one in group.commands.values() if not one.hidden}

    assert there == known


def test_a_server_that_is_not_there_is_reported_in_a_line(bfm: Bfm) -> None:
    result = bfm("backfill", "list", "--server", "http://127.0.0.1:9")

    assert result.code == 1
    assert result.error.startswith("The server at http://127.0.0.1:9 can't be reached")


def test_an_address_that_is_none_is_reported_in_a_line(bfm: Bfm) -> None:
    for wrong in ("localhost:8099", "ftp://here", "http://", "http://me:secret@here"):
        result = bfm("backfill", "list", "--server", wrong)
        assert result.code == 2
        assert result.error.startswith("The server's address must")
        assert "secret" not in result.err


def test_clearing_by_expression_is_not_for_a_server(bfm: Bfm, url: str) -> None:
    result = bfm("tasks", "clear", "fl.*", "-R", "-y", "--server", url)

    assert (result.code, "--dag-regex does not go with --server" in result.error) == (2, True)
