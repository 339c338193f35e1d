"""A server on loopback that takes JSON, or what `decode` reads, and remembers it, where the product sends events or messages."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, TypeVar

PATIENCE = 30.0


class Sink(ThreadingHTTPServer):
    """The next `refuses` requests get `status`, as do those of which `is_wrong` says so."""

    def __init__(self, decode: Callable[[bytes], Any] = json.loads, port: int = 0) -> None:
        super().__init__(("127.0.0.1", port), _Handler)
        self.decode, self.status = decode, 503
        self.refuses, self.events = 0, list[dict[str, Any]]()
        self.is_wrong: Callable[[Any], bool] = lambda _: False
        self.reply = b""
        self.location: str | None = None  # of what is refused, if it is redirected
        self.requests: list[tuple[str, dict[str, str]]] = []  # path and headers of those that were taken
        self.changed = threading.Condition()

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.server_address[1]}"

    @property
    def url(self) -> str:
        return f"http://{self.address}"

    def wait_for(self, number: int) -> list[dict[str, Any]]:
        with self.changed:
            assert self.changed.wait_for(lambda: len(self.events) >= number, PATIENCE), self.events
            return list(self.events)


AnySink = TypeVar("AnySink", bound=Sink)


class _Handler(BaseHTTPRequestHandler):
    server: Sink

    def do_POST(self) -> None:
        body = self.server.decode(self.rfile.read(int(self.headers["Content-Length"])))
        with self.server.changed:
            self.server.refuses -= 1
            is_taken = self.server.refuses < 0 and not self.server.is_wrong(body)
            if is_taken:
                self.server.events.append(body)
                self.server.requests.append((self.path, dict(self.headers)))
            self.server.changed.notify_all()
        self.send_response(200 if is_taken else self.server.status)
        if not is_taken and self.server.location is not None:
            self.send_header("Location", self.server.location)
        self.send_header("Content-Length", str(len(self.server.reply)))
        self.end_headers()
        self.wfile.write(self.server.reply)

    def do_GET(self) -> None:
        """A page, such as the one at the end of a redirect."""
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: Any) -> None:
        """Nothing on the terminal."""


@contextmanager
def serving(server: AnySink) -> Iterator[AnySink]:
    with server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


def http_sink(decode: Callable[[bytes], Any] = json.loads, port: int = 0) -> AbstractContextManager[Sink]:
    return serving(Sink(decode, port))
