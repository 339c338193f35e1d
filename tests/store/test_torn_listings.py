"""A log that others append to while it is listed: the listing may have an entry and not the one before it, which is there now.

Seen in a few of a hundred opens beside a process that commits 200 times a second; here the entry is made when we look again.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError
from support.state_changes import request, takes_over

from backfill_manager.errors import StateUnavailable
from backfill_manager.model.records import Request
from backfill_manager.store.delta_rs import tables
from backfill_manager.store.delta_rs.log import is_torn_listing
from backfill_manager.store.delta_rs.store import DeltaRsStore

ENTRIES = 6


@pytest.fixture(params=["after an entry", "after a checkpoint"])
def state(tmp_path: Path, request: pytest.FixtureRequest) -> DeltaRsStore:
    store = DeltaRsStore(str(tmp_path / "state"))
    store.init()
    for version in range(1, ENTRIES):
        add(store, version)
    if request.param == "after a checkpoint":
        DeltaTable(store.tables.location("request")).create_checkpoint()
    return store


def add(state: DeltaRsStore, version: int) -> None:
    """A commit of nothing, by another process."""
    log = Path(state.tables.location("request"), "_delta_log")
    (log / f"{version:020}.json").write_text('{"commitInfo":{}}\n')


def tear(state: DeltaRsStore) -> Callable[[], None]:
    """Leaves out the next entry; the function returned makes it."""
    version = DeltaTable(state.tables.location("request")).version()
    add(state, version + 2)
    return lambda: add(state, version + 1)


def when_it_is_listed_again(monkeypatch: pytest.MonkeyPatch, act: Callable[[], None]) -> None:
    listed = os.listdir

    def listdir(folder: str) -> list[str]:
        act()
        return listed(folder)

    monkeypatch.setattr(tables.os, "listdir", listdir)


def test_who_opens_the_table_finds_it(state: DeltaRsStore, monkeypatch: pytest.MonkeyPatch) -> None:
    mend = tear(state)
    with pytest.raises(DeltaError) as torn:
        DeltaTable(state.tables.location("request"))
    assert is_torn_listing(torn.value)
    when_it_is_listed_again(monkeypatch, mend)
    assert DeltaRsStore(state.root).unanswered() == []


def test_a_log_that_really_lacks_an_entry_is_not_read(state: DeltaRsStore) -> None:
    tear(state)
    with pytest.raises(StateUnavailable, match=r"Table request .* can't be opened"):
        DeltaRsStore(state.root).unanswered()


def test_who_asks_is_heard_once(state: DeltaRsStore, monkeypatch: pytest.MonkeyPatch) -> None:
    takes, mend = state.tables.take_appender, list[Callable[[], None]]()

    def take(table: str) -> DeltaTable:
        """The first time others append right after it, the second time all that they have appended is there."""
        if mend:
            mend.pop()()
            return takes(table)
        handle = takes(table)
        mend.append(tear(state))
        return handle

    monkeypatch.setattr(state.tables, "take_appender", take)
    state.append_request(request("mine"))
    assert not mend, "it was tried twice"
    assert [row.request_id for row in state.read(Request)] == ["mine"]
    assert DeltaTable(state.tables.location("request")).version() == ENTRIES + 2


def test_a_leader_that_compacts_or_deletes_goes_on(state: DeltaRsStore, monkeypatch: pytest.MonkeyPatch) -> None:
    for n in range(3):
        state.append_request(request(f"q{n}"))
    lead, handle = takes_over(state), state.tables.open("request")
    mend = tear(state)
    lead._writer.compactor.compact_shared("request", handle)  # type: ignore[attr-defined]
    monkeypatch.setattr(lead._writer.tables, "open", lambda _: handle)  # type: ignore[attr-defined]
    lead.delete("request", [])
    mend()
    monkeypatch.undo()
    assert [row.request_id for row in DeltaRsStore(state.root).unanswered()] == ["q0", "q1", "q2"], "the next time"


def test_entries_that_were_not_listed_are_no_damage(state: DeltaRsStore) -> None:
    mend = tear(state)
    assert ["is missing" in finding.message for finding in state.check() if not finding.ok] == [True]
    mend()
    assert [finding.message for finding in state.check() if not finding.ok] == []
