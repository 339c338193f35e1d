"""The `git` program: started without a shell, without a question to anyone, and never for longer than its time limit."""

from __future__ import annotations

import os
import re
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from backfill_manager.errors import InvalidInput
from backfill_manager.masking import without_credentials
from backfill_manager.settings import GIT_TRANSPORTS

GIT_TIMEOUT_S: Final = 300.0
_OF_ANOTHER_REPOSITORY: Final = (
    "GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_OBJECT_DIRECTORY", "GIT_ALTERNATE_OBJECT_DIRECTORIES",
    "GIT_COMMON_DIR", "GIT_NAMESPACE", "GIT_SHALLOW_FILE", "GIT_PREFIX", "GIT_TRACE", "GIT_TRACE_CURL",
)  # fmt: skip
_OURS: Final = {
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_ASKPASS": "",
    "SSH_ASKPASS_REQUIRE": "never",
    "GCM_INTERACTIVE": "never",
    "GIT_ALLOW_PROTOCOL": ":".join(GIT_TRANSPORTS),  # redirections and `insteadOf` too
    "LC_ALL": "C",
}
_OPTIONS: Final = (
    "-c", "gc.autoDetach=false", "-c", "maintenance.autoDetach=false", "-c", f"core.hooksPath={os.devnull}",
)  # fmt: skip


class Damaged(Exception):
    """The repository in the cache can't be used: a process was killed at work in it, or it was changed from outside."""


@dataclass(frozen=True)
class Ended:
    is_good: bool
    printed: bytes
    reason: str  # git's own, in one line, without passwords


class Git:
    """Commands in the bare repository `repository`."""

    def __init__(self, repository: Path) -> None:
        self.repository = repository

    def run(self, *args: str, time_limit: float = GIT_TIMEOUT_S) -> Ended:
        """`InvalidInput` when there is no git, or it takes too long; `Damaged` when what is wrong is here."""
        with self._process(*args) as process:
            try:
                printed, stderr = process.communicate(timeout=time_limit)
            except subprocess.TimeoutExpired:
                raise InvalidInput(f"`git {args[0]}` took longer than {time_limit:g} seconds") from None
        complaint = stderr.decode("utf-8", "replace")
        if process.returncode and str(self.repository) in complaint:
            raise Damaged(_in_a_line(complaint))
        return Ended(process.returncode == 0, printed, _in_a_line(complaint))

    def output(self, *args: str) -> bytes:
        """Of a command that only fails when the repository here is no good."""
        ended = self.run(*args)
        if not ended.is_good:
            raise Damaged(ended.reason)
        return ended.printed

    @contextmanager
    def blobs(self) -> Iterator[Blobs]:
        with self._process("cat-file", "--batch") as process:
            yield Blobs(process)

    @contextmanager
    def _process(self, *args: str) -> Iterator[subprocess.Popen[bytes]]:
        """In a session of its own: no terminal to prompt at, and what it starts (ssh) ends with it."""
        stdin = subprocess.PIPE if args[0] == "cat-file" else subprocess.DEVNULL
        environ = {name: value for name, value in os.environ.items() if name not in _OF_ANOTHER_REPOSITORY}
        try:
            process = subprocess.Popen(
                ["git", *_OPTIONS, "--git-dir", str(self.repository), *args],
                stdin=stdin, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                env={**environ, **_OURS}, start_new_session=True,
            )  # fmt: skip
        except FileNotFoundError:
            raise InvalidInput(
                "a bundle from a git repository needs the program `git`, which is not installed here: "
                "`apt-get install git` (Debian), `dnf install git` (Fedora), `xcode-select --install` (macOS)"
            ) from None
        with process:
            try:
                yield process
            finally:
                if process.poll() is None:
                    with suppress(ProcessLookupError, PermissionError):  # gone; or a zombie, on macOS
                        os.killpg(process.pid, signal.SIGKILL)


class Blobs:
    """Contents by their ids, one after the other from one process."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        assert process.stdin is not None and process.stdout is not None
        self._input, self._output = process.stdin, process.stdout

    def read(self, blob: str) -> bytes:
        try:
            self._input.write(f"{blob}\n".encode())
            self._input.flush()
        except BrokenPipeError:
            raise Damaged("git cat-file ended") from None
        _, _, about = self._output.readline().partition(b" ")
        kind, _, size = about.strip().partition(b" ")
        if kind != b"blob":
            raise Damaged(f"the content {blob} is missing")
        content = self._output.read(int(size) + 1)
        if len(content) <= int(size):
            raise Damaged(f"the content {blob} breaks off")
        return content[:-1]


def _in_a_line(complaint: str) -> str:
    """The first line with content; consequences and advice follow it."""
    lines = (line.strip() for line in complaint.splitlines())
    first = next((line for line in lines if line and not line.lower().startswith(("warning:", "hint:"))), "")
    plain = "".join(c if c.isprintable() else " " for c in without_credentials(first))
    return re.sub(r"^((fatal|error|remote|ERROR): ?)+", "", plain).rstrip(".") or "git gives no reason"
