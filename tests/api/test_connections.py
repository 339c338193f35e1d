"""Hostile and broken connections to a real `bfm serve`, in a process with few file descriptors: it goes on answering."""

from __future__ import annotations

import json
import os
import re
import resource
import select
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import httpx
import pytest
from support.sample_state import FilledState, StandingClock

from backfill_manager import file_descriptors
from backfill_manager.api.client_addresses import network_of
from backfill_manager.api.connections import max_connections
from backfill_manager.settings import ApiSettings

TIMEOUT_S = 120.0
MAX_DESCRIPTORS = 256  # of the server's process
HALF_A_HEADER = b"GET /api/v1/health HTTP/1.1\r\nHost: localhost\r\nX-Slow: "
A_POST = b"POST /api/v1/backfills HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
FULL_REQUEST = b"GET /api/v1/health HTTP/1.1\r\nHost: localhost\r\n\r\n"


class ServerLog:
    """Standard error of the server, as it comes; a thread reads it, so that a test can wait for a line."""

    def __init__(self, stream: IO[str]) -> None:
        self._stream, self._text, self._changed, self._ended = stream, "", threading.Condition(), False
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        for line in self._stream:
            with self._changed:
                self._text += line
                self._changed.notify_all()
        with self._changed:
            self._ended = True
            self._changed.notify_all()

    def read_to_the_end(self) -> None:
        """Of a process that has been killed, before its standard error is closed."""
        self._reader.join(TIMEOUT_S)

    @property
    def text(self) -> str:
        with self._changed:
            return self._text

    def wait_for(self, pattern: str) -> re.Match[str]:
        with self._changed:
            self._changed.wait_for(lambda: self._ended or re.search(pattern, self._text), TIMEOUT_S)
            result = re.search(pattern, self._text)
            assert result, self._text
            return result


@dataclass
class Server:
    url: str
    port: int
    process: subprocess.Popen[str]
    log: ServerLog

    def get(self, path: str, **more: Any) -> httpx.Response:
        return httpx.get(f"{self.url}/api/v1{path}", timeout=TIMEOUT_S, trust_env=False, **more)

    def requests_logged(self) -> int:
        """So many until now. A last one, which is logged, comes behind them."""
        path = "/api/v1/no-such-path"
        assert httpx.post(f"{self.url}{path}", timeout=TIMEOUT_S, trust_env=False).status_code == 404
        self.log.wait_for(f'event="http request" .*{path} ')
        return self.log.text.count('event="http request"') - 1

    def connect(self) -> socket.socket:
        connection = socket.create_connection(("127.0.0.1", self.port), timeout=TIMEOUT_S)
        connection.settimeout(TIMEOUT_S)
        return connection

    def send(self, data: bytes) -> bytes:
        """All that comes back until the server closes the connection."""
        with self.connect() as connection:
            connection.sendall(data)
            return receive_all(connection)

    def send_at_once(self, *requests: bytes) -> list[bytes]:
        """The same for several connections side by side, so that a test waits for their deadlines only once."""
        with ThreadPoolExecutor(len(requests)) as pool:
            return list(pool.map(self.send, requests))


def receive_all(connection: socket.socket) -> bytes:
    received = b""
    with suppress(ConnectionResetError):
        while more := connection.recv(65_536):
            received += more
    return received


def problem_in(answer: bytes) -> dict[str, Any]:
    """The problem document of a raw answer, whose head must name it as one."""
    head, _, body = answer.partition(b"\r\n\r\n")
    assert b"application/problem+json" in head and b"connection: close" in head.lower(), head
    document: dict[str, Any] = json.loads(body)
    assert document["status"] == int(head.split()[1])
    return document


def limit_descriptors() -> None:
    resource.setrlimit(resource.RLIMIT_NOFILE, (MAX_DESCRIPTORS, MAX_DESCRIPTORS))


@contextmanager
def serving(root: Path, **api: Any) -> Iterator[Server]:
    """`bfm serve` over a state on disk, with these settings under `api`."""
    state = FilledState(root / "state", StandingClock())
    state.dag()
    state.pools()
    state.backfill("b1", {"success": 3})
    (root / "manager.yaml").write_text(json.dumps({"state": str(state.root), "bundles": [], "api": {"port": 0, **api}}))
    environ = {name: value for name, value in os.environ.items() if not name.startswith("BFM_")}
    with subprocess.Popen(
        [sys.executable, "-m", "backfill_manager", "--conf", str(root / "manager.yaml"), "serve"],
        cwd=root, env=environ, text=True, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, preexec_fn=limit_descriptors,
    ) as process:  # fmt: skip
        assert process.stderr is not None
        log = ServerLog(process.stderr)
        try:
            port = int(log.wait_for(r"http://127\.0\.0\.1:(\d+)")[1])
            server = Server(f"http://127.0.0.1:{port}", port, process, log)
            assert server.get("/health").status_code == 200
            yield server
        finally:
            process.kill()
            log.read_to_the_end()


SHORT = {"header_timeout": 1, "body_timeout": 1, "send_timeout": 1, "max_body_bytes": 5000}


@pytest.fixture(scope="module")
def quick(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server with short deadlines, for the tests that need no settings of their own."""
    with serving(tmp_path_factory.mktemp("quick"), **SHORT) as server:
        yield server


@pytest.fixture
def unused(tmp_path: Path) -> Iterator[Server]:
    """The same, with nothing in its log yet: a request of another test may be logged long after its answer."""
    with serving(tmp_path, **SHORT) as server:
        yield server


@pytest.mark.parametrize("per_address", [None, 20])
def test_connections_that_never_finish_a_request_do_not_take_the_server_away(
    tmp_path: Path, per_address: int | None
) -> None:
    """More of them than the process has descriptors. The server answers again when their time is up, and until then says why
    it does not."""
    with serving(tmp_path, header_timeout=3, max_connections_per_address=per_address) as server, ExitStack() as held:
        connections = [held.enter_context(server.connect()) for _ in range(MAX_DESCRIPTORS + 50)]
        for connection in connections:
            with suppress(OSError):  # refused already
                connection.sendall(HALF_A_HEADER)
        answers = [receive_all(connection) for connection in connections]
        refused = [problem_in(answer) for answer in answers if b"HTTP/1.1 503" in answer]
        late = [problem_in(answer) for answer in answers if b"HTTP/1.1 408" in answer]
        assert len(refused) >= len(connections) - (per_address or MAX_DESCRIPTORS // 2)
        name = "api.max_connections_per_address" if per_address else "api.max_connections"
        assert name in refused[0]["detail"]
        assert late and "api.header_timeout" in late[0]["detail"]
        assert server.get("/backfills").json()["items"][0]["backfill_id"] == "b1"
        assert server.process.poll() is None and "Traceback" not in server.log.text


def test_a_body_that_trickles_in_is_cut_off_with_408(quick: Server) -> None:
    with quick.connect() as connection:
        connection.sendall(A_POST + b"Content-Length: 1000\r\n\r\n")
        connection.settimeout(0.4)
        answer = b""
        until = time.monotonic() + TIMEOUT_S
        while not answer and time.monotonic() < until:
            with suppress(BrokenPipeError, ConnectionResetError):
                connection.sendall(b" ")
            with suppress(TimeoutError):  # a byte every 0.4 s
                answer = connection.recv(65_536)
        connection.settimeout(TIMEOUT_S)
        problem = problem_in(answer + receive_all(connection))
        assert (problem["status"], "api.body_timeout" in problem["detail"]) == (408, True)
        assert quick.get("/health").status_code == 200


def test_an_unread_body_does_not_hold_a_connection(unused: Server) -> None:
    """The answer is sent at once, or has no end; the connection is kept for the rest of the body only for a while."""
    head = b"GET /api/v1/%s HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000\r\n\r\n"
    for answer in unused.send_at_once(head % b"health", head % b"events"):
        assert answer.startswith(b"HTTP/1.1 200 ")
    assert unused.requests_logged() == 0


def test_an_idle_connection_is_closed(quick: Server) -> None:
    answered, silent, followed = quick.send_at_once(FULL_REQUEST, b"", FULL_REQUEST + HALF_A_HEADER)
    assert answered.startswith(b"HTTP/1.1 200 "), "answered, then closed because it was idle"
    assert silent == b"", "nothing was sent"
    assert followed.count(b"HTTP/1.1 ") in (1, 2) and followed.startswith(b"HTTP/1.1 200 ")


def test_a_response_that_the_client_does_not_read_is_aborted(tmp_path: Path) -> None:
    request = b"GET /openapi.json HTTP/1.1\r\nHost: localhost\r\n\r\n"
    with serving(tmp_path, send_timeout=1, max_connections=1) as server, server.connect() as greedy:
        greedy.settimeout(1.0)
        with suppress(OSError):  # until the server takes nothing more, as this side takes nothing
            while True:
                greedy.sendall(request * 100)
        closed = select.poll()
        closed.register(greedy, 0)  # hang-up and errors are always reported
        assert closed.poll(TIMEOUT_S * 1000), "the server closes the connection"
        assert server.get("/health").status_code == 200


def test_events_outlive_every_deadline(quick: Server) -> None:
    with httpx.stream("GET", f"{quick.url}/api/v1/events", timeout=TIMEOUT_S, trust_env=False) as stream:
        for line in stream.iter_lines():
            if line.startswith(": keep-alive"):  # after 15 s without a change
                break
        else:
            raise AssertionError("the stream has ended")


NO_REQUESTS = {
    "TLS": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(200),
    "long header": b"GET / HTTP/1.1\r\nHost: localhost\r\nX: " + b"a" * 300_000 + b"\r\n\r\n",
    "long address": b"GET /?q=" + b"a" * 300_000 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "cookies": b"GET / HTTP/1.1\r\nHost: localhost\r\n"
    + b"".join(b"Cookie: a%d=b\r\n" % n for n in range(20_000))
    + b"\r\n",
    "no ASCII": b"GET /\xff\xfe HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "no host": b"GET / HTTP/1.1\r\n\r\n",
}


def test_what_is_no_proper_request_is_refused_and_not_logged(unused: Server) -> None:
    for name, sent in NO_REQUESTS.items():
        answer = unused.send(sent)
        assert int(answer.split()[1]) in (400, 431), name
        assert b"connection: close" in answer.partition(b"\r\n\r\n")[0].lower(), name
    assert unused.get("/health").status_code == 200
    assert unused.requests_logged() == 0


@pytest.mark.parametrize(
    "head",
    [
        A_POST + b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n",
        A_POST + b"Transfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n",
        A_POST.replace(b"HTTP/1.1", b"HTTP/1.0") + b"Transfer-Encoding: chunked\r\n\r\n",
    ],
)
def test_a_body_of_two_lengths_is_refused_and_what_follows_is_no_request(quick: Server, head: bytes) -> None:
    answer = quick.send(head + b"0\r\n\r\n" + FULL_REQUEST)
    problem = problem_in(answer)
    assert (problem["status"], "not both" in problem["detail"], answer.count(b"HTTP/1.1 ")) == (400, True, 1)


def test_a_hash_sign_in_a_query_is_of_its_value(quick: Server) -> None:
    """No browser sends one; answers are kept for all clients by their address."""
    head = b"GET /api/v1/backfills?dag_id=flights# HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
    assert b'"items":[]' in quick.send(head)
    assert len(quick.get("/backfills?dag_id=flights").json()["items"]) == 1


def test_chunks_without_end_are_cut_off_by_size_and_by_time(quick: Server) -> None:
    head = A_POST + b"Transfer-Encoding: chunked\r\n\r\n"
    chunk = b"400\r\n" + b" " * 1024 + b"\r\n"
    assert problem_in(quick.send(head + chunk))["status"] == 408
    assert problem_in(quick.send(head + chunk * 10))["status"] == 413


def test_large_bodies_at_once_are_bounded_all_together(tmp_path: Path) -> None:
    head = A_POST + b"Content-Length: 30000000\r\n\r\n"
    with serving(tmp_path, body_timeout=60, max_body_bytes=30_000_000) as server, server.connect() as first:
        first.sendall(head + b" " * 29_000_000)
        with server.connect() as second:
            with suppress(ConnectionResetError, BrokenPipeError):
                second.sendall(head + b" " * 29_000_000)
            problem = problem_in(receive_all(second))
        assert (problem["status"], "all requests together" in problem["detail"]) == (503, True)
        assert server.get("/health").status_code == 200


def test_the_body_of_an_unauthenticated_request_is_not_read(tmp_path: Path, quick: Server) -> None:
    token = {"name": "oleg", "sha256": "0" * 64, "role": "operator"}
    with serving(tmp_path, tokens=[token], body_timeout=60) as server:
        answer = server.send(A_POST + b"Content-Length: 5000000\r\n\r\n")
        assert problem_in(answer)["status"] == 401, "at once, with nothing of the body there"
    answer = quick.send(A_POST + b"Origin: https://evil.example\r\nContent-Length: 4000\r\n\r\n")
    assert problem_in(answer)["status"] == 403, "and not 408 when the time for the body is over"


def test_the_body_of_a_form_is_not_read_either(tmp_path: Path, quick: Server) -> None:
    form = (
        b"POST /dags/flights/trigger HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/x-www-form-urlencoded\r\n"
    )
    token = {"name": "oleg", "sha256": "0" * 64, "role": "operator"}
    with serving(tmp_path, tokens=[token], body_timeout=60) as server:
        head = server.send(form + b"Content-Length: 5000000\r\n\r\n").partition(b"\r\n\r\n")[0].lower()
        assert (
            head.startswith(b"http/1.1 303 ") and b"\r\nlocation: /login" in head and b"\r\nconnection: close" in head
        )
    answer = quick.send(form + b"Origin: https://evil.example\r\nContent-Length: 4000\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 403 ") and b"by a page of another site" in answer


def test_a_server_without_a_free_descriptor_lets_callers_wait(tmp_path: Path) -> None:
    """As when tasks of the manager have taken them: the listener stays, and answers when there are some again."""
    with serving(tmp_path) as server:
        pid, limit = server.process.pid, resource.RLIMIT_NOFILE
        resource.prlimit(pid, limit, (3, MAX_DESCRIPTORS))
        with server.connect() as waiting:
            waiting.sendall(b"GET /api/v1/health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
            server.log.wait_for("no free file descriptor")
            resource.prlimit(pid, limit, (MAX_DESCRIPTORS, MAX_DESCRIPTORS))
            assert receive_all(waiting).startswith(b"HTTP/1.1 200 ")


@pytest.mark.parametrize(
    ("address", "network"),
    [
        ("127.0.0.1", "127.0.0.1"),
        ("::1", "::1"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("fe80::1%eth0", "fe80::/64"),
        ("::ffff:192.0.2.7", "192.0.2.7"),
        ("", ""),
    ],
)
def test_an_ipv6_network_counts_as_one_address(address: str, network: str) -> None:
    assert network_of(address) == network


def test_connections_get_half_of_the_descriptors_at_most() -> None:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (512, before[1]))
        assert max_connections(ApiSettings(max_connections=500)) == 256
        assert max_connections(ApiSettings(max_connections=40)) == 40
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


def test_the_soft_limit_of_descriptors_is_raised_and_never_lowered() -> None:
    script = (
        "import resource; from backfill_manager import file_descriptors as d\n"
        "resource.setrlimit(resource.RLIMIT_NOFILE, (200, 1000)); print(d.raise_limit())\n"
        "print(d.are_free(), d.are_free(10_000))\n"
        "import os; held = [os.open(os.devnull, os.O_RDONLY) for _ in range(980)]; print(d.are_free())\n"
        "os.close(held.pop()); os.closerange(300, 900); print(d.are_free(), d.raise_limit())\n"
    )
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert ran.stdout.split() == ["1000", "True", "True", "False", "True", "1000"]
    assert file_descriptors.limit() > 0
