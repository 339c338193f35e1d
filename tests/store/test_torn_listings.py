"""A log that others append to while it is listed: the listing may show an entry and not the one before it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError
from support.state_changes import request, takes_over

from backfill_manager.store.delta_rs.store import DeltaRsStore
from backfill_manager.store.delta_rs.tables import is_torn_listing

ENTRIES = 1_000  # of the log, so that a listing takes a while
WRITER = """
import os, sys, time
log, version = sys.argv[1], int(sys.argv[2])
made = os.path.join(log, "made.tmp")
while os.getppid() == int(sys.argv[3]):
    with open(made, "w") as file:
        file.write('{"commitInfo":{}}\\n')
    while True:
        try:
            os.link(made, os.path.join(log, f"{version:020}.json"))
            break
        except FileExistsError:
            version += 1
    os.unlink(made)
    time.sleep(float(sys.argv[4]))
"""


@pytest.fixture
def state(tmp_path: Path) -> DeltaRsStore:
    store = DeltaRsStore(str(tmp_path / "state"))
    store.init()
    log = Path(store.tables.location("request"), "_delta_log")
    for version in range(1, ENTRIES):
        (log / f"{version:020}.json").write_text('{"commitInfo":{}}\n')
    DeltaTable(store.tables.location("request")).create_checkpoint()
    return store


@contextmanager
def others_append(state: DeltaRsStore, pause_s: float) -> Iterator[None]:
    """Another process commits nothing, again and again."""
    log = f"{state.tables.location('request')}/_delta_log"
    with subprocess.Popen([sys.executable, "-c", WRITER, log, str(ENTRIES), str(os.getpid()), str(pause_s)]) as writer:
        try:
            yield
        finally:
            writer.kill()


def see_a_torn_listing(state: DeltaRsStore) -> bool:
    """By delta-rs alone. A file system may have none."""
    for _ in range(2_000):
        try:
            DeltaTable(state.tables.location("request"))
        except DeltaError as error:
            assert is_torn_listing(error)
            return True
    return False


def test_who_opens_the_table_finds_it(state: DeltaRsStore) -> None:
    with others_append(state, 0.004):
        assert see_a_torn_listing(state) or sys.platform != "linux"
        for _ in range(4):
            assert DeltaRsStore(state.root).unanswered() == []


def test_who_asks_is_heard_once_and_the_leader_goes_on(state: DeltaRsStore) -> None:
    lead = takes_over(state)
    with others_append(state, 0.02):
        for n in range(12):
            DeltaRsStore(state.root).append_request(request(f"q{n}"))
            lead.compact(everywhere=n % 4 == 0)
        lead.delete("request", [])
    assert sorted(row.request_id for row in state.unanswered()) in ([], sorted(f"q{n}" for n in range(12)))
