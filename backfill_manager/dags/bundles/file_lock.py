"""A lock that processes of one machine take in turn.

The system releases it however its holder ends, but not while that is stopped (SIGSTOP, a debugger) or hangs: so nobody waits
for it without end.
"""

from __future__ import annotations

import fcntl
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from backfill_manager.errors import InvalidInput
from backfill_manager.humanise import duration

MAX_WAIT_S: Final = 660.0  # more than the longest work under it may take: the installation of packages
LOOK_INTERVAL_S: Final = 0.05


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """For one thread of one process. `InvalidInput` if it does not come free; `OSError` if there can be no such file."""
    end, never = time.monotonic() + MAX_WAIT_S, threading.Event()
    with path.open("w") as file:
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() >= end:
                    raise InvalidInput(
                        f"another process has held the lock {path} for {duration(MAX_WAIT_S)}, and may hang: "
                        f"`fuser -v {path}` shows it; end it"
                    ) from None
                never.wait(LOOK_INTERVAL_S)
        yield
