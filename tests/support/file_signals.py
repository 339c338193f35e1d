"""Events between processes: a test and the tasks that it runs share no memory, only files.

Waiting sleeps in the kernel. It is a poll of a FIFO that nobody writes into: it returns when somebody has opened the FIFO for
writing and closed it again. Linux remembers for each reader whether a writer has come since it opened the FIFO, so nothing is
missed between looking and waiting.
"""

from __future__ import annotations

import errno
import os
import select
import threading
from pathlib import Path


class FileSignal:
    """An event that is set once, perhaps with a text, and seen by all who wait for it and all who come later. It may be
    pickled: whoever has it, in whichever process, has the same one."""

    def __init__(self, path: Path) -> None:
        self._file, self._pipe = str(path), f"{path}.pipe"
        os.mkfifo(self._pipe)

    def set(self, text: str = "") -> None:
        unfinished = f"{self._file}.{os.getpid()}.{threading.get_ident()}"
        Path(unfinished).write_text(text)
        os.replace(unfinished, self._file)
        try:
            os.close(os.open(self._pipe, os.O_WRONLY | os.O_NONBLOCK))
        except OSError as error:
            if error.errno != errno.ENXIO:  # nobody waits
                raise

    def is_set(self) -> bool:
        return os.path.exists(self._file)

    def text(self) -> str:
        return Path(self._file).read_text()

    def wait(self, timeout: float) -> bool:
        """False if it has not been set within this time."""
        pipe = os.open(self._pipe, os.O_RDONLY | os.O_NONBLOCK)
        try:
            if not self.is_set():
                poll = select.poll()
                poll.register(pipe, select.POLLIN)
                poll.poll(timeout * 1000)
            return self.is_set()
        finally:
            os.close(pipe)


class FileBarrier:
    """A place where processes or threads wait until all of them have come, as often as there are rounds."""

    def __init__(self, path: Path, parties: int, rounds: int = 1) -> None:
        self._path, self._parties = str(path), parties
        self._complete = [FileSignal(Path(f"{path}.{n}")) for n in range(rounds)]

    def wait(self, timeout: float, nth_round: int = 0) -> bool:
        """False if not all have come within this time."""
        came = os.open(f"{self._path}.{nth_round}.came", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        try:
            os.write(came, b".")
            if os.fstat(came).st_size >= self._parties:
                self._complete[nth_round].set()
        finally:
            os.close(came)
        return self._complete[nth_round].wait(timeout)
