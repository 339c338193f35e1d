"""A TCP relay between a client and a server that forwards requests and, as often as configured, closes the connection before a
byte of the response is sent back."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import urlsplit


class BreakingLine:
    def __init__(self, to: str) -> None:
        parts = urlsplit(to)
        assert parts.hostname and parts.port
        self._to = (parts.hostname, parts.port)
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listening.getsockname()[1]}"
        self.breaks = 0  # so many answers will be lost
        self.lost = 0

    def run(self) -> None:
        while True:
            try:
                client, _ = self._listening.accept()
            except OSError:  # closed: it is over
                return
            threading.Thread(target=self._relay, args=(client,), daemon=True).start()

    def close(self) -> None:
        self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()

    def _relay(self, client: socket.socket) -> None:
        with client, socket.create_connection(self._to) as server:
            threading.Thread(target=_pass_on, args=(client, server), daemon=True).start()
            while answer := _received(server):
                if self.lost < self.breaks:
                    self.lost += 1
                    client.shutdown(socket.SHUT_RDWR)  # closing alone would wait for the other thread's `recv`
                    return
                client.sendall(answer)


def _pass_on(begin: socket.socket, end: socket.socket) -> None:
    while data := _received(begin):
        try:
            end.sendall(data)
        except OSError:
            return


def _received(from_: socket.socket) -> bytes:
    try:
        return from_.recv(65536)
    except OSError:
        return b""


@contextmanager
def breaking_line(to: str) -> Iterator[BreakingLine]:
    line = BreakingLine(to)
    thread = threading.Thread(target=line.run, daemon=True)
    thread.start()
    try:
        yield line
    finally:
        line.close()
        thread.join(10)
