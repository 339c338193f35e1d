"""A real server on a real port, over a state on disk: streams, starting and stopping, a state that is broken."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import httpx
import pytest
from fastapi.testclient import TestClient
from support.api_server import bearer, system_app, with_tokens
from support.sample_state import FilledState, StandingClock

from backfill_manager.api import server
from backfill_manager.errors import InvalidInput
from backfill_manager.settings import Settings
from backfill_manager.store.delta_rs.store import DeltaRsStore

TIMEOUT_S = 120.0


@pytest.fixture
def state(tmp_path: Path) -> FilledState:
    result = FilledState(tmp_path / "state", StandingClock())
    result.dag()
    result.pools()
    return result


@contextmanager
def served(state: FilledState, settings: Settings | None = None) -> Iterator[httpx.Client]:
    app = system_app(settings or Settings(), DeltaRsStore(str(state.root)))
    with (
        server.served_beside(app, server.listen("127.0.0.1", 0)) as url,
        httpx.Client(base_url=f"{url}/api/v1", timeout=TIMEOUT_S, trust_env=False) as client,
    ):
        yield client


def changed(lines: Iterator[str]) -> dict[str, int]:
    """The tables of the next event."""
    for line in lines:
        if line.startswith("data: "):
            tables: dict[str, int] = json.loads(line.removeprefix("data: "))["tables"]
            return tables
    raise AssertionError("the stream has ended")


def test_a_listener_gets_all_versions_first_and_then_changes(state: FilledState) -> None:
    with served(state) as client, client.stream("GET", "/events?topics=backfill,backfill_item,pool") as stream:
        assert stream.headers["content-type"].startswith("text/event-stream")
        assert stream.headers["x-accel-buffering"] == "no", "a proxy (nginx) passes events on as they come"
        assert "gzip" in stream.request.headers["accept-encoding"]
        assert "content-encoding" not in stream.headers, "what is compressed is held back until there is enough of it"
        lines = stream.iter_lines()
        first = changed(lines)
        assert set(first) == {"backfill", "backfill_item", "pool"}

        state.backfill("b1", {"pending": 2})
        heard = changed(lines)
        heard |= {} if len(heard) == 2 else changed(lines)
        assert {name: heard[name] > first[name] for name in heard} == {"backfill": True, "backfill_item": True}


def test_topics_that_are_none_are_named(state: FilledState) -> None:
    with served(state) as client:
        response = client.get("/events?topics=backfil")
        assert (response.status_code, "did you mean 'backfill'" in response.json()["detail"]) == (422, True)


def test_a_listener_that_comes_while_the_server_ends_gets_an_ended_stream(state: FilledState) -> None:
    app = system_app(Settings(), DeltaRsStore(str(state.root)))
    app.state.context.tables.close()
    with TestClient(app, base_url="http://localhost", client=("127.0.0.1", 50_000)) as client:
        answer = client.get("/api/v1/events")
    assert (answer.status_code, answer.headers["content-type"].partition(";")[0]) == (200, "text/event-stream")


def test_streams_end_when_the_server_does(state: FilledState) -> None:
    ended = threading.Event()
    begun = threading.Event()

    def listen(url: Any) -> None:
        with httpx.stream("GET", f"{url}events", timeout=TIMEOUT_S, trust_env=False) as stream:
            for _ in stream.iter_lines():
                begun.set()
        ended.set()

    with served(state) as client:
        listener = threading.Thread(target=listen, args=(client.base_url,))
        listener.start()
        assert begun.wait(TIMEOUT_S)
    assert ended.wait(TIMEOUT_S)
    listener.join()


def test_every_route_works_over_a_state_on_disk(state: FilledState) -> None:
    state.backfill("b1", {"skipped": 1, "success": 2, "failed": 1, "pending": 6})
    state.import_error()
    state.requested("b2")
    with served(state) as client:
        listed = client.get("/backfills?limit=1").json()
        assert [one["backfill_id"] for one in listed["items"]] == ["b2"]
        rest = client.get("/backfills", params={"cursor": listed["next_cursor"]}).json()
        assert [(one["backfill_id"], one["success"], one["pending"]) for one in rest["items"]] == [("b1", 2, 6)]
        items = client.get("/backfills/b1/items?limit=4").json()
        more = client.get("/backfills/b1/items", params={"limit": 4, "cursor": items["next_cursor"]}).json()
        assert [one["ordinal"] for one in items["items"] + more["items"]] == list(range(1, 9))
        runs = client.get("/runs?limit=2&backfill_id=b1").json()
        later = client.get("/runs", params={"limit": 5, "backfill_id": "b1", "cursor": runs["next_cursor"]}).json()
        assert len({one["run_id"] for one in runs["items"] + later["items"]}) == 3
        run_id = runs["items"][0]["run_id"]
        assert client.get(f"/runs/{run_id}?dag_id=flights").json()["run_id"] == run_id
        assert client.get(f"/runs/{run_id}/tasks").json()["items"]
        for path in ("/dags", "/dags/flights", "/dags/flights/grid", "/dags/flights/timeline", "/dags/flights/versions",
                     "/import_errors", "/pools", "/bundles", "/requests", "/requests/latest", "/health"):  # fmt: skip
            assert client.get(path).status_code == 200, path

        pause = client.post("/backfills/b1/pause", headers={"Idempotency-Key": "once"})
        again = client.post("/backfills/b1/pause", headers={"Idempotency-Key": "once"})
        assert (pause.status_code, pause.json()) == (202, again.json())
        etag = client.get("/backfills/b1/items").headers["etag"]
        assert client.get("/backfills/b1/items", headers={"If-None-Match": etag}).status_code == 304


def test_a_half_written_state_is_an_error_and_works_again_when_repaired(state: FilledState) -> None:
    state.backfill("b1", {"success": 1})
    with served(state) as client:
        assert client.get("/backfills").status_code == 200
        log = state.root / "backfill" / "_delta_log"
        half = log / f"{len(list(log.glob('*.json'))):020}.json"
        half.write_text('{"add":{"path":"part-')

        response = client.get("/backfills")
        assert response.status_code == 503
        assert response.headers["content-type"] == "application/problem+json"
        assert response.json()["detail"].startswith(f"Table backfill at {state.root}/backfill can't be")
        assert client.get("/dags").status_code == 200, "what does not need it goes on"

        half.unlink()
        assert client.get("/backfills").status_code == 200


def test_a_state_that_is_not_there_yet_is_503_until_it_is_made(tmp_path: Path) -> None:
    app = system_app(Settings(), DeltaRsStore(str(tmp_path / "state")))
    bound = server.listen("127.0.0.1", 0)
    with server.served_beside(app, bound) as url:
        for path in ("/backfills", "/health", "/events"):
            response = httpx.get(f"{url}/api/v1{path}", timeout=TIMEOUT_S, trust_env=False)
            assert (response.status_code, "There is no state at" in response.json()["detail"]) == (503, True)
        DeltaRsStore(str(tmp_path / "state")).init()
        made = httpx.get(f"{url}/api/v1/backfills", timeout=TIMEOUT_S, trust_env=False)
        assert made.json()["items"] == []


def test_a_taken_port_is_an_error() -> None:
    with server.listen("127.0.0.1", 0) as bound:
        port = bound.getsockname()[1]
        with pytest.raises(InvalidInput, match=f"Port {port} of 127.0.0.1 is taken; choose another with --port"):
            server.listen("127.0.0.1", port)
    with pytest.raises(InvalidInput, match="can't be listened on"):
        server.listen("no.such.host.invalid", 0)


@contextmanager
def bfm(folder: Path, *words: str) -> Iterator[subprocess.Popen[str]]:
    """The command as a process of its own, which is gone afterwards however the story ends."""
    environ = {name: value for name, value in os.environ.items() if not name.startswith("BFM_")}
    with subprocess.Popen(
        [sys.executable, "-m", "backfill_manager", *words],
        cwd=folder, env=environ, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    ) as process:  # fmt: skip
        try:
            yield process
        finally:
            process.kill()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_bfm_serve_serves_until_it_gets_a_signal(state: FilledState, number: int) -> None:
    with bfm(state.root.parent, "--state", str(state.root), "serve", "--port", "0") as server:
        assert server.stderr is not None
        url = re.findall(r"http://127\.0\.0\.1:\d+", server.stderr.readline())[0]
        response = httpx.get(f"{url}/api/v1/dags", timeout=TIMEOUT_S, trust_env=False).json()
        assert [one["dag_id"] for one in response["items"]] == ["flights"]
        server.send_signal(number)
        _, err = server.communicate(timeout=TIMEOUT_S)
    assert (server.returncode, err) == (0, "")


def test_bfm_serve_ends_without_a_traceback_however_often_it_is_told_to(state: FilledState) -> None:
    with bfm(state.root.parent, "--state", str(state.root), "serve", "--port", "0") as server:
        assert server.stderr is not None
        url = re.findall(r"http://127\.0\.0\.1:\d+", server.stderr.readline())[0]
        with httpx.stream("GET", f"{url}/api/v1/events", timeout=TIMEOUT_S, trust_env=False) as stream:
            assert stream.status_code == 200
            end = time.monotonic() + TIMEOUT_S
            while server.poll() is None and time.monotonic() < end:
                server.send_signal(signal.SIGINT)
                with suppress(subprocess.TimeoutExpired):
                    server.wait(0.01)
        _, err = server.communicate(timeout=TIMEOUT_S)
    assert err == "" and server.returncode in (0, -signal.SIGINT), "the latter where its last moment meets a signal"


@pytest.mark.parametrize(
    "first", ["/backfills/b1", "/api/v1/backfills/b1/items", "/dags/flights", "/dags/flights/calendar"]
)
def test_the_first_page_of_bfm_serve_is_right_without_pandas(state: FilledState, first: str) -> None:
    """pyarrow looks for pandas in its first conversion, which this process must not load."""
    state.backfill("b1", {"success": 1, "pending": 2})
    with bfm(state.root.parent, "--state", str(state.root), "serve", "--port", "0") as server:
        assert server.stderr is not None
        url = re.findall(r"http://127\.0\.0\.1:\d+", server.stderr.readline())[0]
        assert httpx.get(f"{url}{first}", timeout=TIMEOUT_S, trust_env=False).status_code == 200
        if Path("/proc/self/maps").exists():
            assert "/pandas/" not in Path(f"/proc/{server.pid}/maps").read_text()


def test_bfm_serve_refuses_to_let_others_in_without_tokens(tmp_path: Path) -> None:
    with bfm(tmp_path, "serve", "--host", "0.0.0.0") as server:
        out, err = server.communicate(timeout=TIMEOUT_S)
    assert (server.returncode, out, len(err.splitlines())) == (2, "", 1)
    assert "no token is configured" in err and "bfm config token NAME" in err


def test_a_token_of_bfm_config_token_has_its_role(state: FilledState) -> None:
    with bfm(state.root.parent, "config", "token", "grafana", "--output", "json") as made:
        out, _ = made.communicate(timeout=TIMEOUT_S)
    token = json.loads(out)
    kept = {name: token[name] for name in ("name", "sha256", "role")}
    settings = with_tokens().model_copy(update={"api": Settings.model_validate({"api": {"tokens": [kept]}}).api})
    with served(state, settings) as client:
        headers = {"Authorization": f"Bearer {token['token']}"}
        assert client.get("/dags", headers=headers).status_code == 200
        assert client.patch("/dags/flights", headers=headers, json={"is_paused": True}).status_code == 403
        assert client.get("/dags", headers=bearer("oleg")).status_code == 401
