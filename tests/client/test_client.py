"""The typed client against the real API, served by uvicorn, over a manager in memory."""

from __future__ import annotations

import http.server
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from datetime import datetime, timedelta
from inspect import signature
from pathlib import Path

import httpx
import pytest
from support.flaky_transport import breaking_line

from backfill_manager import errors
from backfill_manager.api import polling
from backfill_manager.api.app import create_app
from backfill_manager.api.server import listen, served_beside
from backfill_manager.client import (
    Client,
    Forbidden,
    NoActiveManager,
    RateLimited,
    Unauthenticated,
    Unreachable,
)
from backfill_manager.client import client as client_module
from backfill_manager.client.connection import ATTEMPTS
from backfill_manager.clock import UTC
from backfill_manager.execution.messages import Failed, Succeeded
from backfill_manager.model.records import Request
from backfill_manager.settings import Settings
from backfill_manager.store.memory import MemoryStore
from backfill_manager.testing import FakeClock, InMemoryManager, days

Deed = Callable[[], None]
AtWork = Callable[[], AbstractContextManager[None]]

# Every route of the API, and the method that goes there.
METHODS = {
    "list_backfills": "backfills", "create_backfill": "create_backfill", "plan_backfill": "dry_run",
    "get_backfill": "backfill", "change_backfill": "change_backfill", "delete_backfill": "delete_backfill",
    "list_items": "items", "list_running_tasks": "running_tasks", "pause_backfill": "pause_backfill",
    "unpause_backfill": "unpause_backfill", "cancel_backfill": "cancel_backfill", "retry_backfill": "retry_backfill",
    "diff_backfill": "diff_backfill", "promote_backfill": "promote_backfill", "discard_backfill": "discard_backfill",
    "revert_backfill": "revert_backfill", "revert_run": "revert_run", "revert_run_of_dag": "revert_run",
    "note_backfill": "note_backfill", "note_run": "note_run", "note_run_of_dag": "note_run",
    "list_dags": "dags", "get_dag": "dag", "change_dag": "pause_dag", "deactivate_dag": "deactivate_dag",
    "next_intervals": "next_intervals", "trigger_dag": "trigger", "render_run": "render",
    "list_runs_of_dag": "runs", "get_grid": "grid",
    "get_timeline": "timeline", "list_versions": "versions", "diff_versions": "version_diff", "clear_tasks": "clear",
    "mark_runs": "mark_runs",
    "list_import_errors": "import_errors", "list_runs": "runs", "get_run": "run", "cancel_run": "cancel_run",
    "mark_run": "mark_run", "list_tasks_of_run": "run_tasks", "get_log": "logs", "list_checks_of_run": "checks",
    "list_checks_of_run_of_dag": "checks", "list_pools": "pools", "list_tables": "tables",
    "list_table_intervals": "table_intervals", "get_lineage": "lineage", "list_gaps": "gaps",
    "change_pool": "set_pool", "list_bundles": "bundles", "parse_bundle": "parse_bundle",
    "deactivate_in_bundle": "deactivate_in_bundle", "list_requests": "requests",
    "list_notifications": "notifications", "get_request": "request",
    "get_health": "health", "follow_events": "watch", "get_run_of_dag": "run", "cancel_run_of_dag": "cancel_run",
    "mark_run_of_dag": "mark_run", "list_tasks_of_run_of_dag": "run_tasks", "get_log_of_run_of_dag": "logs",
}  # fmt: skip
FOR_OTHERS = {"get_metrics"}  # Prometheus


def test_every_route_has_a_method(settings: Settings) -> None:
    app = create_app(settings, MemoryStore(), clock=FakeClock())
    operations = {one["operationId"] for path in app.openapi()["paths"].values() for one in path.values()}

    assert operations - FOR_OTHERS == set(METHODS)
    assert [name for name in METHODS.values() if not hasattr(Client, name)] == []


def test_every_filter_of_a_list_is_a_parameter_of_its_method(settings: Settings) -> None:
    app = create_app(settings, MemoryStore(), clock=FakeClock())
    missing = []
    for operation in (one for path in app.openapi()["paths"].values() for one in path.values()):
        filters = {one["name"] for one in operation.get("parameters", []) if one["in"] == "query"}
        if "cursor" in filters:
            method = METHODS[operation["operationId"]]
            known = {"limit", "cursor", "order_by", *signature(getattr(Client, method)).parameters}
            missing += [(method, name) for name in sorted(filters - known)]
    assert missing == []


def test_dags_requests_and_import_errors_are_filtered(client: Client, manager: InMemoryManager) -> None:
    client.unpause_dag("flights")
    manager.tick()
    assert [dag.dag_id for dag in client.dags(is_paused=False)] == ["flights"]
    assert [dag.dag_id for dag in client.dags(is_paused=True)] == ["weather"]
    assert not list(client.dags(tag="nobody has it"))
    assert [one.kind for one in client.requests(kind="dag.unpause")] == ["dag.unpause"]
    assert not list(client.requests(kind="dag.trigger")) and not list(client.import_errors(bundle="main"))


# -- reading ------------------------------------------------------------------------------------------------------------


def test_a_backfill_comes_typed_and_gives_its_document_back(client: Client, url: str, manager: InMemoryManager) -> None:
    backfill_id = manager.backfill("flights", days("2013-01-01", 3), priority=7)
    manager.tick()

    result = client.backfill(backfill_id[:8])

    assert (result.backfill_id, result.dag_id, result.state, result.priority) == (backfill_id, "flights", "running", 7)
    assert (result.planned, result.running, result.pending) == (3, 3, 0)
    assert result.created_at == manager.clock.now() and result.created_at.tzinfo is not None
    assert not result.has_ended
    assert result.document() == httpx.get(f"{url}/api/v1/backfills/{backfill_id}", timeout=60, trust_env=False).json()
    with pytest.raises(ValueError, match="frozen"):
        result.priority = 8  # type: ignore[misc]


def test_a_single_state_needs_no_list(client: Client, manager: InMemoryManager) -> None:
    backfill_id = manager.backfill("flights", days("2013-01-01", 1))
    manager.tick()
    of = {state: list(client.backfills(state=state)) for state in ("running", "failed")}
    assert [one.backfill_id for one in of["running"]] == [backfill_id] and not of["failed"]
    assert [one.state for one in client.items(backfill_id, state="running")] == ["running"]
    assert [one.state for one in client.runs(state="running")] == ["running"]
    assert not list(client.notifications(state="failed", event="late"))


def test_a_long_list_is_fetched_page_by_page_and_only_as_far_as_it_is_read(
    client: Client, manager: InMemoryManager
) -> None:
    backfill_id = manager.backfill("flights", days("2013-01-01", 2500))

    everything = [item.ordinal for item in client.items(backfill_id)]
    some = [item.ordinal for item in client.items(backfill_id, state=["pending"], limit=1200)]
    backwards = next(client.items(backfill_id, order_by="-ordinal"))

    assert everything == list(range(1, 2501))
    assert some == list(range(1, 1201))
    assert backwards.interval_end == datetime(2013, 1, 1, tzinfo=UTC) + timedelta(days=2500)


def test_a_timeline_and_the_next_intervals_may_be_longer_than_a_page(
    client: Client, manager: InMemoryManager, all_succeed: Deed, monkeypatch: pytest.MonkeyPatch
) -> None:
    manager.backfill("flights", days("2013-01-01", 5))
    all_succeed()
    whole, following = client.timeline("flights"), client.next_intervals("flights", 5)

    monkeypatch.setattr(client_module, "PAGE", 2)

    assert len(whole) == len(following) == 5
    assert client.timeline("flights") == whole
    assert [client.timeline("flights", limit=n) for n in (1, 2, 4, 9)] == [whole[-n:] for n in (1, 2, 4, 9)]
    assert [client.next_intervals("flights", n) for n in (1, 2, 4)] == [following[:n] for n in (1, 2, 4)]
    assert (client.timeline("weather"), client.timeline("flights", limit=0)) == ([], [])


def test_dags_runs_tasks_and_the_rest_are_returned(client: Client, manager: InMemoryManager, all_succeed: Deed) -> None:
    backfill_id = manager.backfill("flights", days("2013-01-01", 2))
    manager.drain()
    running = client.running_tasks(backfill_id)
    assert {(task.task_id, task.state) for task in running} == {("clean", "running")}
    assert all(task.document()["for_s"] >= 0 for task in running)
    all_succeed()

    assert [dag.dag_id for dag in client.dags()] == ["flights", "weather"]
    assert [task.upstream for task in client.dag("flights").tasks] == [(), ("clean",)]
    assert len(client.next_intervals("flights", 3)) == 3
    newest, oldest = client.runs(backfill_id=backfill_id)
    assert (newest.previous_run_id, newest.state) == (oldest.run_id, "success")
    assert [run.run_id for run in client.timeline("flights")] == [oldest.run_id, newest.run_id]
    assert client.run("2013-01-02", dag_id="flights").document() == {**newest.document(), "conf": {}}
    assert {task.task_id: task.state for task in client.run_tasks(newest.run_id).items} == {
        "clean": "success", "delays": "success",
    }  # fmt: skip
    assert client.logs(newest.run_id, "clean").is_whole
    assert client.grid("flights").runs[-1].cells["clean"].state == "success"
    assert [version.version for version in client.versions("flights")] == [1]
    assert {pool.name for pool in client.pools()} == {"backfill", "scheduled"}
    assert (list(client.import_errors()), list(client.requests()), client.running_tasks(backfill_id)) == ([], [], [])
    assert (client.health().status, client.health().manager) == ("ok", "leading")


def test_unknown_fields_of_a_newer_server_are_kept(client: Client, manager: InMemoryManager) -> None:
    result = client.backfill(manager.backfill("flights", days("2013-01-01", 1)))

    assert result.document()["is_polite"] is False, "a field that the client has no name for"
    assert result.is_polite is False  # type: ignore[attr-defined]


# -- asking -------------------------------------------------------------------------------------------------------------


def test_the_managers_answer_is_waited_for(client: Client, manager: InMemoryManager, manager_at_work: AtWork) -> None:
    backfill_id = manager.backfill("flights", days("2013-01-01", 3))

    with manager_at_work():
        paused = client.pause_backfill(backfill_id, wait=60)
        changed = client.change_backfill(backfill_id, max_active_runs=2, priority=9, wait=60)

    assert (paused.state, paused.is_answered, paused.requested_by, paused.source) == ("accepted", True, "local", "api")
    assert changed.state == "accepted"
    result = client.backfill(backfill_id)
    assert (result.is_paused, result.max_active_runs, result.priority) == (True, 2, 9)


def test_without_waiting_a_change_is_a_request_that_waits(client: Client, manager: InMemoryManager) -> None:
    submitted = client.create_backfill("flights", start_date="2013-01-01", end_date=datetime(2013, 1, 3, tzinfo=UTC))

    assert (submitted.state, submitted.is_answered) == ("waiting", False)
    assert client.request(submitted.request_id) == client.request("latest")
    new = client.backfill(submitted.payload["backfill_id"])
    assert (new.state, new.reason) == ("queued", "waiting for the manager")
    assert new.config["end_date"] == "2013-01-03T00:00:00Z"


def test_a_run_is_triggered_marked_and_cleared(
    client: Client, manager: InMemoryManager, manager_at_work: AtWork
) -> None:
    manager.script = lambda _: Failed("ValueError: no such file")
    at = datetime(2013, 1, 5, tzinfo=UTC)

    with manager_at_work():
        triggered = client.trigger("weather", logical_date=at, conf={"full": True}, wait=60)
        run_id = str(triggered.object_id)
        marked = client.mark_run(run_id, "success", dag_id="weather", wait=60)
        plan = client.plan_clear("weather", start_date="2013-01-05")
        manager.script = lambda _: Succeeded()
        cleared = client.clear("weather", run_ids=[run_id], wait=60)

    assert [one.state for one in (triggered, marked, cleared)] == ["accepted"] * 3
    assert plan.summary["runs"] == 1
    run = client.run(run_id)
    assert (run.logical_date, run.run_type) == (at, "manual")


def test_chosen_items_are_marked_cleared_and_retried(
    client: Client, manager: InMemoryManager, manager_at_work: AtWork
) -> None:
    manager.script = lambda _: Failed("ValueError: no such file", retryable=False)
    backfill = manager.backfill("weather", days("2013-01-01", 5))
    manager.drain()
    plan = client.plan_mark("weather", "success", backfill_id=backfill, items=["1-2", 4])
    assert (plan.state, plan.summary.runs, plan.summary.by_state) == ("success", 3, {"failed": 3})
    with manager_at_work():
        marked = client.mark_runs("weather", "success", backfill_id=backfill, items=[1], wait=60)
        cleared = client.clear("weather", dates=["2013-01-02/2013-01-03"], wait=60)
        ended = list(client.watch(backfill))[-1]
        retried = client.retry_backfill(backfill, items=[4, "5-5"], wait=60)
    assert [one.state for one in (marked, cleared, retried)] == ["accepted"] * 3
    assert (ended.failed, ended.success) == (4, 1)
    assert "runs 2 failed items again" in str(retried.message)
    with pytest.raises(errors.InvalidInput, match=r"items\.0: must be a number such as 5"):
        client.retry_backfill(backfill, items=["five"])
    with pytest.raises(errors.InvalidInput, match="items: is empty"):
        client.retry_backfill(backfill, items=[])


def test_a_run_in_the_future_is_refused_unless_it_is_allowed(
    client: Client, manager: InMemoryManager, manager_at_work: AtWork
) -> None:
    ahead = (manager.clock.now() + timedelta(days=40)).replace(hour=0, minute=0, second=0, microsecond=0)
    with pytest.raises(errors.InvalidInput, match=r"lies in the future .* add allow_future"):
        client.trigger("weather", logical_date=ahead)
    with manager_at_work():
        triggered = client.trigger("weather", logical_date=ahead, allow_future=True, wait=60)
    run = client.run(str(triggered.object_id))
    assert (triggered.state, run.logical_date, run.is_partial) == ("accepted", ahead, False)


def test_a_partition_with_a_slash_in_its_name_is_reached(
    client: Client, manager: InMemoryManager, all_succeed: Deed
) -> None:
    manager.backfill("flights", keys=["emea/de?x#y", "apac"])
    all_succeed()

    [run] = [one for one in client.runs() if one.partition_key == "emea/de?x#y"]

    assert "/" in run.run_id
    assert client.run(run.run_id).document() == {**run.document(), "conf": {}}
    assert len(client.run_tasks(run.run_id).items) == 2


# -- when the line breaks -------------------------------------------------------------------------------------------------


def test_a_change_whose_answer_is_lost_is_sent_again_and_made_once(url: str, manager: InMemoryManager) -> None:
    waits: list[float] = []
    with breaking_line(url) as line, Client(line.url, pause=waits.append) as client:
        line.breaks = 2
        submitted = client.create_backfill("flights", start_date="2013-01-01", end_date="2013-01-03")

    assert line.lost == 2
    assert waits == [0.2, 0.4]
    [request] = manager.store.read(Request)
    assert request.request_id == submitted.request_id


def test_trying_again_ends(url: str, manager: InMemoryManager) -> None:
    waits: list[float] = []
    with breaking_line(url) as line, Client(line.url, pause=waits.append) as client:
        line.breaks = 1000
        with pytest.raises(Unreachable, match=f"The server at {line.url} can't be reached") as caught:
            client.pause_dag("flights")

    assert (line.lost, waits) == (4, [0.2, 0.4, 0.8])
    assert isinstance(caught.value.__cause__, httpx.TransportError)
    assert len(manager.store.read(Request)) == 1, "it had arrived all the same"


def test_a_set_is_sent_in_the_same_order_by_every_process() -> None:
    """With a key of its own a program that was restarted sends the same request."""
    texts = [f"2013-01-{day:02}" for day in range(1, 29)]
    assert client_module._json({"dates": set(texts), "items": {3, "1-2"}}) == {"dates": texts, "items": ["1-2", 3]}


def test_the_same_key_makes_one_request_and_another_body_is_refused(client: Client, manager: InMemoryManager) -> None:
    first = client.trigger("flights", logical_date="2013-01-05", idempotency_key="mine")
    again = client.trigger("flights", logical_date="2013-01-05", idempotency_key="mine")

    assert first.request_id == again.request_id
    with pytest.raises(errors.InvalidInput, match="used for another request"):
        client.trigger("flights", logical_date="2013-01-06", idempotency_key="mine")


def test_too_many_connections_are_retried(manager: InMemoryManager) -> None:
    settings = Settings.model_validate({"api": {"max_connections": 1}})
    app = create_app(settings, manager.store, clock=manager.clock)
    waits: list[float] = []
    with served_beside(app, listen("127.0.0.1", 0)) as url, Client(url, pause=waits.append) as client:
        with socket.create_connection(("127.0.0.1", int(url.rpartition(":")[2]))) as other:
            other.sendall(b"GET /api/v1/events HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert other.recv(1), "it has the only connection, and keeps it"
            with pytest.raises(RateLimited, match=r"api\.max_connections"):
                client.health()
            assert waits == [5.0] * (ATTEMPTS - 1)

        def wait_until_it_has_gone(_: float) -> None:
            while True:
                with suppress(httpx.TransportError):  # refused, before it had sent anything
                    if httpx.get(f"{url}/api/v1/health", trust_env=False).status_code == 200:
                        return

        with Client(url, pause=wait_until_it_has_gone) as patient:
            assert patient.health().status == "ok"


def test_a_busy_server_is_retried_after_its_retry_after(manager: InMemoryManager) -> None:
    settings = Settings.model_validate({"api": {"requests_per_second": 1}})
    waits: list[float] = []

    def pause(seconds: float) -> None:
        waits.append(seconds)
        manager.clock.advance(seconds=seconds)

    app = create_app(settings, manager.store, clock=manager.clock)
    with served_beside(app, listen("127.0.0.1", 0)) as url, Client(url, pause=pause) as client:
        for _ in range(5):
            client.health()
        assert waits == [1.0, 1.0]
        with Client(url, pause=waits.append) as hasty, pytest.raises(RateLimited):
            hasty.health()


# -- problems -------------------------------------------------------------------------------------------------------------


def test_problems_are_the_errors_of_the_package(client: Client, manager: InMemoryManager, all_succeed: Deed) -> None:
    ended = manager.backfill("flights", days("2013-01-01", 1))
    all_succeed()

    for call, kind, exit_code, result in (
        (lambda: client.backfill("nothing"), errors.NotFound, 3, "There is no backfill 'nothing'"),
        (lambda: client.dag("fligths"), errors.NotFound, 3, "did you mean 'flights'"),
        (lambda: client.pause_backfill(ended), errors.Refused, 4, "has ended (success)"),
        (lambda: client.create_backfill("flights", priority="high"), errors.InvalidInput, 2, "body.priority"),
        (lambda: client.create_backfill("flights", colour="red"), errors.InvalidInput, 2, "body.colour"),
        (lambda: list(client.items(ended, order_by="colour")), errors.InvalidInput, 2, "query.order_by"),
    ):
        with pytest.raises(kind) as caught:
            call()
        assert type(caught.value) is kind
        assert (caught.value.exit_code, result in str(caught.value)) == (exit_code, True), str(caught.value)


def test_a_dry_run_without_a_manager_is_no_active_manager(manager: InMemoryManager, settings: Settings) -> None:
    manager.clock.advance(days=3650)  # no sign of life for ten years
    app = create_app(settings, manager.store, clock=manager.clock)
    with served_beside(app, listen("127.0.0.1", 0)) as url, Client(url) as client, pytest.raises(NoActiveManager):
        client.dry_run("flights", start_date="2013-01-01", end_date="2013-01-03")


def test_a_state_that_is_not_there_is_a_state_error(settings: Settings) -> None:
    app = create_app(settings, MemoryStore(), clock=FakeClock())
    with (
        served_beside(app, listen("127.0.0.1", 0)) as url,
        Client(url) as client,
        pytest.raises(errors.StateError, match="There is no state") as caught,
    ):
        list(client.backfills())

    assert caught.value.exit_code == 2


def test_forbidden_and_unauthenticated_are_different_errors(manager: InMemoryManager) -> None:
    from backfill_manager.api.auth import sha256_of

    token = {"name": "ada", "role": "viewer", "sha256": sha256_of("bfm_ada")}
    app = create_app(Settings.model_validate({"api": {"tokens": [token]}}), manager.store, clock=manager.clock)
    with served_beside(app, listen("127.0.0.1", 0)) as url:
        with Client(url) as anonymous, pytest.raises(Unauthenticated) as unknown:
            list(anonymous.dags())
        with Client(url, "bfm_ada") as viewer:
            assert len(list(viewer.dags())) == 2
            with pytest.raises(Forbidden) as refused:
                viewer.pause_dag("flights")

    assert (unknown.value.exit_code, refused.value.exit_code) == (2, 4)


@contextmanager
def answering(status: int, body: bytes, **headers: str) -> Iterator[str]:
    """A server that answers each request alike."""

    class Same(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status)
            for name, value in {"Content-Length": str(len(body)), **headers}.items():
                self.send_header(name.replace("_", "-"), value)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Same) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


@pytest.mark.parametrize("status", [502, 503, 504])
@pytest.mark.parametrize("kind", ["text/html", "application/json"])
def test_what_a_proxy_says_of_a_server_that_restarts_is_no_last_word(status: int, kind: str) -> None:
    waits: list[float] = []
    with (
        answering(status, b'{"message": "no upstream"}', Content_Type=kind) as url,
        Client(url, pause=waits.append) as client,
        pytest.raises(Unreachable, match=f"A proxy before .* answered {status}"),
    ):
        client.health()
    assert len(waits) == ATTEMPTS - 1


def test_a_body_that_came_broken_is_asked_for_again() -> None:
    waits: list[float] = []
    with (
        answering(200, b"no gzip", Content_Type="application/json", Content_Encoding="gzip") as url,
        Client(url, pause=waits.append) as client,
        pytest.raises(Unreachable, match="can't be reached"),
    ):
        client.health()
    assert len(waits) == ATTEMPTS - 1


@pytest.mark.parametrize("status", [301, 302, 307, 308])
def test_a_redirect_names_where_it_leads(status: int) -> None:
    with (
        answering(status, b"", Location="https://jobs.example.org/api/v1/health?state=s3cret") as url,
        Client(url) as client,
        pytest.raises(Unreachable, match=r"redirects to https://jobs\.example\.org/api/v1/health; is"),
    ):
        client.health()


def test_another_server_at_the_address_is_unreachable(tmp_path: Path) -> None:
    class Quiet(http.server.SimpleHTTPRequestHandler):
        def __init__(self, *args: object) -> None:
            super().__init__(*args, directory=str(tmp_path))  # type: ignore[arg-type]

        def log_message(self, *_: object) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Quiet) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        with Client(f"http://127.0.0.1:{server.server_port}") as client, pytest.raises(Unreachable, match="text/html"):
            client.health()
        server.shutdown()


def test_an_address_or_token_that_can_not_be_is_refused_at_once() -> None:
    for url in ("127.0.0.1:8099", "file:///etc", "http://", "http://me:word@here", "http://here/?x=1", "http://[::1"):
        with pytest.raises(errors.InvalidInput):
            Client(url)
    with pytest.raises(errors.InvalidInput, match="characters that no token has"):
        Client("http://127.0.0.1:8099", "two words")
    with pytest.raises(errors.InvalidInput, match="BFM_SERVER is not set"):
        Client.from_environ({})


def test_server_and_token_come_from_the_environment(url: str, tmp_path: Path) -> None:
    (tmp_path / "token").write_text("bfm_anything\n")

    with Client.from_environ({"BFM_SERVER": f" {url}/", "BFM_TOKEN_FILE": str(tmp_path / "token")}) as client:
        assert client.url == url
        assert client.health().status == "ok"


# -- watching ---------------------------------------------------------------------------------------------------------------


def test_a_backfill_is_watched_by_events_until_it_has_ended(
    client: Client, manager: InMemoryManager, all_succeed: Deed
) -> None:
    backfill_id = manager.backfill("flights", days("2013-01-01", 3))

    seen = []
    for backfill in client.watch("latest"):
        seen.append((backfill.backfill_id, backfill.state, backfill.success))
        all_succeed()

    assert seen == [(backfill_id, "queued", 0), (backfill_id, "success", 3)]


def test_where_events_do_not_come_through_it_is_looked_at_now_and_then(
    url: str, manager: InMemoryManager, all_succeed: Deed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(polling, "MAX_LISTENERS", 0)
    backfill_id = manager.backfill("flights", days("2013-01-01", 3))
    waits: list[float] = []

    def pause(seconds: float) -> None:
        waits.append(seconds)
        if len(waits) == 3:
            all_succeed()

    with Client(url, pause=pause) as client:
        seen = [backfill.state for backfill in client.watch(backfill_id)]

    assert seen == ["queued", "success"]
    assert waits == [1.0, 1.0, 1.0]


def test_a_server_that_is_away_for_a_while_does_not_end_the_watching(
    url: str, manager: InMemoryManager, all_succeed: Deed
) -> None:
    backfill_id = manager.backfill("flights", days("2013-01-01", 3))
    waits: list[float] = []
    seen = []
    with breaking_line(url) as line, Client(line.url, pause=waits.append) as client:
        for backfill in client.watch(backfill_id):
            seen.append(backfill.state)
            all_succeed()
            line.breaks = line.lost + 12  # more than one request is tried

    assert seen == ["queued", "success"]
    assert line.lost == 12


def test_a_server_that_stays_away_ends_the_watching(
    url: str, manager: InMemoryManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client_module, "MAX_AWAY_S", -1.0)
    backfill_id = manager.backfill("flights", days("2013-01-01", 3))
    with breaking_line(url) as line, Client(line.url, pause=lambda _: None) as client:
        watching = client.watch(backfill_id)
        next(watching)
        line.breaks = 1000
        with pytest.raises(Unreachable):
            next(watching)


def test_who_stops_watching_stops_only_that(client: Client, manager: InMemoryManager) -> None:
    backfill_id = manager.backfill("flights", days("2013-01-01", 3))

    watching = client.watch(backfill_id)
    next(watching)
    watching.close()  # type: ignore[attr-defined]

    assert client.backfill(backfill_id).state == "queued"
