"""Takes turns with other clients of this machine at appending to a table on a disk.

Two that append at once race for one entry of the log, and who loses has read and written for nothing: sixteen lose fifteen races
for each that one wins. The log alone keeps commits apart. So a client that can't have its turn (a file system without locks, a
client that was stopped while it had it) goes on without.
"""

from __future__ import annotations

import fcntl
import os
import random
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Final

from backfill_manager.store.uri import is_local

MAX_WAIT_S: Final = 3.0
LOOK_S: Final = (0.002, 0.01)


@contextmanager
def turn_to_append(table: str, max_wait_s: float = MAX_WAIT_S) -> Iterator[None]:
    """`table`: the folder of a table, or its URI in an object store, where everybody goes without."""
    folder = None
    if is_local(table):
        with suppress(OSError):
            folder = os.open(table, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    if folder is None:
        yield
        return
    try:
        _wait_for(folder, max_wait_s)
        yield
    finally:
        os.close(folder)  # with it the lock is given back


def _wait_for(folder: int, max_wait_s: float) -> None:
    end = time.monotonic() + max_wait_s
    while time.monotonic() < end:
        try:
            return fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            time.sleep(random.uniform(*LOOK_S))
        except OSError:
            return None
    return None
