"""An HTTP proxy in front of an object store that counts requests, and by a seed delays, repeats, drops and fails them.

It is a process of its own (delta-rs may hold the interpreter's lock while it waits for an answer) and is instructed what to do by
requests to `/proxy-control`.
"""

from __future__ import annotations

import http.client
import json
import os
import random
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import urlsplit

import httpx

CONTROL = "/proxy-control"
HOP_BY_HOP = {"connection", "keep-alive", "transfer-encoding", "te", "trailer", "upgrade", "proxy-connection"}
# What may happen to a request: `repeat` is sent twice (the first answer is given), `drop` never arrives, `lose_answer` arrives
# and is not answered, `fail` is refused with a 503 before it arrives, `fail_after` with one after it has arrived.
FAULTS = ("delay", "repeat", "drop", "lose_answer", "fail", "fail_after")


@dataclass
class Plan:
    """What happens to requests: each fault with its probability; `latency_s` for every request."""

    seed: int = 0
    latency_s: float = 0.0
    faults: dict[str, float] = field(default_factory=dict)
    delay_s: float = 0.3
    without_headers: tuple[str, ...] = ()  # headers that the store is never shown, as one that knows nothing of them
    only: str = ""  # a part of the path of those requests that faults may meet


class StoreProxy:
    """The tests' end of a proxy."""

    def __init__(self, address: str) -> None:
        self.address = address

    def plan(self, **values: Any) -> None:
        """From now on; forgets what was counted."""
        httpx.put(f"{self.address}{CONTROL}", json=asdict(Plan(**values))).raise_for_status()

    def seen(self) -> list[tuple[str, str, str, float]]:
        """Method, path with query, what happened to it ("" for nothing), and seconds of each request since the last `plan`."""
        return [tuple(one) for one in httpx.get(f"{self.address}{CONTROL}").json()]


@contextmanager
def store_proxy(upstream: str) -> Iterator[StoreProxy]:
    environ = {**os.environ, "PYTHONPATH": os.path.dirname(os.path.dirname(__file__))}
    with subprocess.Popen(
        [sys.executable, "-m", "support.store_proxy", upstream],
        env=environ, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    ) as process:  # fmt: skip
        assert process.stdin is not None and process.stdout is not None
        try:
            yield StoreProxy(f"http://127.0.0.1:{int(process.stdout.readline())}")
        finally:
            process.kill()


class _State:
    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.set(Plan())

    def set(self, plan: Plan) -> None:
        self.plan, self.random, self.seen = plan, random.Random(plan.seed), list[tuple[str, str, str, float]]()

    def fate(self, path: str) -> str:
        """The fault that the next request meets: a function of the seed and of its number."""
        with self.lock:
            drawn = self.random.random()
            if self.plan.only not in path:
                return ""
            for fault in FAULTS:
                drawn -= self.plan.faults.get(fault, 0.0)
                if drawn < 0:
                    return fault
            return ""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    state: _State
    upstream: str

    def handle_one_request(self) -> None:
        try:
            super().handle_one_request()
        except OSError:  # the client is gone
            self.close_connection = True

    def _handle(self) -> None:
        began, body, state = time.monotonic(), self._body(), self.state
        if self.path == CONTROL:
            return self._control(body)
        fault, plan = state.fate(self.path), state.plan
        time.sleep(plan.latency_s + (plan.delay_s if fault == "delay" else 0.0))
        if fault == "drop":
            answer = None
        elif fault == "fail":
            answer = _unavailable()
        else:
            answer = self._forward(body)
            if fault == "repeat":
                self._forward(body)
            answer = {"lose_answer": None, "fail_after": _unavailable()}.get(fault, answer)
        state.seen.append((self.command, self.path, fault, time.monotonic() - began))
        if answer is None:
            self.close_connection = True
            self.connection.shutdown(socket.SHUT_RDWR)
        else:
            self._answer(*answer)

    do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = do_PATCH = _handle

    def _control(self, body: bytes) -> None:
        if self.command == "PUT":
            self.state.set(Plan(**json.loads(body)))
        self._answer(200, [], json.dumps(self.state.seen).encode())

    def _body(self) -> bytes:
        if self.headers.get("Transfer-Encoding", "").lower() != "chunked":
            return self.rfile.read(int(self.headers.get("Content-Length") or 0))
        parts = []
        while size := int(self.rfile.readline().split(b";")[0], 16):
            parts.append(self.rfile.read(size))
            self.rfile.readline()
        while self.rfile.readline().strip():
            pass
        return b"".join(parts)

    def _forward(self, body: bytes) -> tuple[int, list[tuple[str, str]], bytes]:
        hidden = HOP_BY_HOP | {"content-length", "expect"} | {name.lower() for name in self.state.plan.without_headers}
        headers = {name: value for name, value in self.headers.items() if name.lower() not in hidden}
        if body or self.command in ("PUT", "POST"):
            headers["Content-Length"] = str(len(body))
        connection = http.client.HTTPConnection(self.upstream, timeout=60)
        try:
            connection.request(self.command, self.path, body or None, headers)
            response = connection.getresponse()
            return response.status, response.getheaders(), response.read()
        finally:
            connection.close()

    def _answer(self, status: int, headers: list[tuple[str, str]], body: bytes) -> None:
        self.send_response_only(status)
        length = str(len(body))
        for name, value in headers:
            if name.lower() == "content-length" and self.command == "HEAD":
                length = value
            elif name.lower() not in HOP_BY_HOP | {"content-length"}:
                self.send_header(name, value)
        if status not in (204, 304):
            self.send_header("Content-Length", length)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)


def _unavailable() -> tuple[int, list[tuple[str, str]], bytes]:
    return (
        503,
        [("Content-Type", "application/xml")],
        b"<Error><Code>SlowDown</Code><Message>by the proxy</Message></Error>",
    )


@contextmanager
def proxy_in_this_process(upstream: str) -> Iterator[str]:
    """Its address. It answers as long as other threads of this process run."""
    _Handler.state, _Handler.upstream = _State(), urlsplit(upstream).netloc
    with ThreadingHTTPServer(("127.0.0.1", 0), _Handler) as server:
        server.daemon_threads, server.block_on_close = True, False
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def main() -> None:
    with proxy_in_this_process(sys.argv[1]) as address:
        print(address.rpartition(":")[2], flush=True)
        sys.stdin.read()  # to the end of the one who started it


if __name__ == "__main__":
    main()
