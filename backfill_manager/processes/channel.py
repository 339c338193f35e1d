"""Messages between two processes over a socket: each a length in four bytes and as many bytes; descriptors go along with it."""

from __future__ import annotations

import json
import os
import select
import socket
import struct
import threading
from array import array
from collections.abc import Sequence
from typing import Any, Final

_LENGTH: Final = struct.Struct("!I")
MAX_MESSAGE: Final = 256 << 20  # bytes; what claims to be longer is no message of ours
MAX_DESCRIPTORS: Final = 4
_to_json = json.dumps  # as it is before a task may put something else in its place


class Channel:
    """One end. Any thread may send; one at a time may receive."""

    def __init__(self, sock: socket.socket) -> None:
        self._socket, self._lock = sock, threading.Lock()
        self._sender: int | None = None  # the thread that is in the middle of a message

    def fileno(self) -> int:
        return self._socket.fileno()

    def keep_whole_in_forks(self) -> None:
        """No fork of this process comes in the middle of a message of another thread, whose lock it would keep for ever."""
        release = self._lock.release
        os.register_at_fork(before=self._lock.acquire, after_in_parent=release, after_in_child=release)

    def send(self, message: dict[str, Any], descriptors: Sequence[int] = (), attachment: bytes = b"") -> None:
        """`OSError` when the other end is gone. The attachment is a second message, see `receive_attachment`."""
        content = _to_json(message).encode()
        with self._lock:
            self._sender = threading.get_ident()
            try:
                self._send(content, descriptors)
                if attachment:
                    self._send(attachment)
            finally:
                self._sender = None

    @property
    def is_sending_here(self) -> bool:
        """Whether this thread is in the middle of a message: a handler of a signal that raises would leave half of it."""
        return self._sender == threading.get_ident()

    def try_send(self, message: dict[str, Any], descriptors: Sequence[int] = ()) -> bool:
        """Sends a short message without waiting; False when the other end is gone, or takes nothing out."""
        content = _to_json(message).encode()
        content = _LENGTH.pack(len(content)) + content
        with self._lock:
            try:
                along = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array("i", descriptors))] if descriptors else []
                return self._socket.sendmsg([content], along, socket.MSG_DONTWAIT) == len(content)
            except OSError:
                return False

    def receive_some(self) -> bytes | None:
        """Bytes that have arrived, for a `MessageBuffer`; b"" when the other end is gone, None when there are none now."""
        try:
            return self._socket.recv(1 << 16, socket.MSG_DONTWAIT)
        except BlockingIOError:
            return None
        except OSError:
            return b""

    def wait(self, timeout_s: float) -> bool:
        """Whether there is something to receive within that time."""
        poll = select.poll()
        poll.register(self._socket, select.POLLIN)
        return bool(poll.poll(timeout_s * 1000))

    def receive(self) -> tuple[dict[str, Any], list[int]] | None:
        """The next message and its descriptors; None when the other end is gone. Waits for it."""
        try:
            head, descriptors, _, _ = socket.recv_fds(self._socket, _LENGTH.size, MAX_DESCRIPTORS)
            text = self._rest(head)
        except ConnectionResetError:  # it was killed before it had read everything
            return None
        return None if text is None else (json.loads(text), descriptors)

    def receive_attachment(self) -> bytes:
        """`EOFError` when the other end is gone."""
        text = self._rest(self._socket.recv(_LENGTH.size))
        if text is None:
            raise EOFError
        return text

    def close(self) -> None:
        self._socket.close()

    def shutdown(self) -> None:
        """Ends it for both sides; who receives here comes back."""
        self._socket.shutdown(socket.SHUT_RDWR)

    def _send(self, content: bytes, descriptors: Sequence[int] = ()) -> None:
        head = _LENGTH.pack(len(content))
        if descriptors:
            socket.send_fds(self._socket, [head], descriptors)
        self._socket.sendall(content if descriptors else head + content)

    def _rest(self, head: bytes) -> bytes | None:
        """The message that begins with these bytes of its length."""
        head = self._exactly(head, _LENGTH.size)
        if len(head) < _LENGTH.size:
            return None
        (length,) = _LENGTH.unpack(head)
        if length > MAX_MESSAGE:
            raise ConnectionResetError(f"a message of {length} bytes")
        content = self._exactly(b"", length)
        return content if len(content) == length else None

    def _exactly(self, begun: bytes, length: int) -> bytes:
        """`begun` with as many bytes as are missing; fewer when the other end is gone."""
        content = bytearray(begun)
        while len(content) < length:
            chunk = self._socket.recv(min(length - len(content), 1 << 20))
            if not chunk:
                break
            content += chunk
        return bytes(content)


class MessageBuffer:
    """Messages out of bytes that come as they come, for one thread that reads many sockets."""

    def __init__(self) -> None:
        self._bytes = bytearray()

    def feed(self, content: bytes) -> list[dict[str, Any]]:
        """The messages that are complete with these bytes. `ValueError` for what is none."""
        self._bytes += content
        messages = []
        while len(self._bytes) >= _LENGTH.size:
            (length,) = _LENGTH.unpack_from(self._bytes)
            if length > MAX_MESSAGE:
                raise ValueError(f"a message of {length} bytes")
            if len(self._bytes) < _LENGTH.size + length:
                break
            message = json.loads(self._bytes[_LENGTH.size : _LENGTH.size + length])
            if not isinstance(message, dict):
                raise ValueError("a message that is no object")
            messages.append(message)
            del self._bytes[: _LENGTH.size + length]
        return messages
