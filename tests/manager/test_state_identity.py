"""The id of a state: made once, carried from term to term, and never shared by two states without a person's word."""

from __future__ import annotations

import dataclasses
import os
import shutil
from datetime import timedelta
from pathlib import Path

import pytest
from deltalake import DeltaTable, write_deltalake
from support.recorded_state import recorded_state

from backfill_manager.clock import SystemClock
from backfill_manager.errors import Refused, StateCopied
from backfill_manager.manager.leader_election import LeaderElector
from backfill_manager.manager.maintenance.short_leadership import adopt_state
from backfill_manager.manager.state_identity import identity_of
from backfill_manager.model import states as s
from backfill_manager.model.records import DagRun, Manager
from backfill_manager.settings import Settings
from backfill_manager.store.delta_rs.store import DeltaRsStore
from backfill_manager.store.sql_text import arrow_table
from backfill_manager.store.table_properties import VERSION_PROPERTY
from backfill_manager.store.uri import canonical_place
from backfill_manager.testing import FakeClock, MemoryStore

CLOCK = SystemClock()
SETTINGS = Settings()


def a_term(root: Path | str) -> Manager:
    """A manager leads the state at `root`, and stops."""
    store = DeltaRsStore(str(root))
    store.init()
    leader = LeaderElector(store, CLOCK, lease_s=15).run_once()
    assert leader is not None
    leader.resign(CLOCK.now())
    (row,) = store.read(Manager, order_by=["-term"], limit=1)
    return row


def test_the_first_manager_gives_the_state_an_id_and_every_term_carries_it_on(tmp_path: Path) -> None:
    first, second = a_term(tmp_path / "state"), a_term(tmp_path / "state")
    assert first.state_id and (second.term, second.state_id) == (2, first.state_id)
    assert first.started_at - timedelta(seconds=1) < first.state_id_since == second.state_id_since  # type: ignore[operator]
    assert first.state_root == second.state_root == str(tmp_path / "state")
    assert identity_of(DeltaRsStore(str(tmp_path / "state")), second).upgraded_at is None


def test_a_state_whose_runs_were_lost_gets_a_new_id(tmp_path: Path) -> None:
    """New runs of the same dates have the same ids: with the old id of the state their writes would count as made already."""
    recorded_state(tmp_path / "state")
    before = a_term(tmp_path / "state")
    assert a_term(tmp_path / "state").state_id == before.state_id

    shutil.rmtree(tmp_path / "state" / DagRun.TABLE)
    DeltaRsStore(str(tmp_path / "state")).init(recreate=True)
    after = a_term(tmp_path / "state")

    assert after.state_id != before.state_id
    assert identity_of(DeltaRsStore(str(tmp_path / "state")), after).upgraded_at is None


def test_two_states_never_have_one_id(tmp_path: Path) -> None:
    assert a_term(tmp_path / "one").state_id != a_term(tmp_path / "other").state_id


def test_a_state_of_an_older_release_is_given_an_id_and_remembers_since_when(tmp_path: Path) -> None:
    store, now = DeltaRsStore(str(tmp_path)), CLOCK.now()
    store.init()
    its_clock_is_ahead = now + timedelta(minutes=5)
    old = Manager(1, "m.0", "old", 1, s.STOPPED, now, its_clock_is_ahead, 15, "0.1", ended_at=its_clock_is_ahead)
    write_deltalake(store.tables.location("manager"), arrow_table(Manager, [old]), mode="append")

    a_term(tmp_path)
    identity = identity_of(store, a_term(tmp_path))  # also in later terms: a run of then may still be in flight
    assert identity.upgraded_at == its_clock_is_ahead
    run = DagRun("flights", "r", "manual", s.RUNNING, 1, 1, created_at=now)
    assert not identity.is_part_of_ids(run), "it keeps the transaction ids that it began with"
    assert identity.is_part_of_ids(dataclasses.replace(run, created_at=its_clock_is_ahead))


def test_a_state_that_was_moved_goes_on_and_records_its_new_place(tmp_path: Path) -> None:
    before = a_term(tmp_path / "state")
    (tmp_path / "state").rename(tmp_path / "moved")
    after = a_term(tmp_path / "moved")
    assert (after.state_id, after.state_root) == (before.state_id, str(tmp_path / "moved"))
    assert a_term(tmp_path / "moved").state_id == before.state_id


def test_a_new_state_at_the_old_place_of_a_moved_one_is_no_copy(tmp_path: Path) -> None:
    before = a_term(tmp_path / "state")
    (tmp_path / "state").rename(tmp_path / "moved")
    new = a_term(tmp_path / "state")
    assert a_term(tmp_path / "moved").state_id == before.state_id != new.state_id


def test_links_to_one_folder_are_one_state(tmp_path: Path) -> None:
    before = a_term(tmp_path / "state")
    (tmp_path / "link").symlink_to("state")
    assert a_term(tmp_path / "link").state_root == before.state_root
    (tmp_path / "state").rename(tmp_path / "moved")  # and the old path still leads there
    (tmp_path / "state").symlink_to("moved")
    after = a_term(tmp_path / "moved")
    assert (after.state_id, after.state_root) == (before.state_id, str(tmp_path / "moved"))
    assert not list((tmp_path / "moved").glob(".bfm*"))


def copied(tmp_path: Path) -> tuple[Path, Path, Manager]:
    original, copy = tmp_path / "state", tmp_path / "copy"
    before = a_term(original)
    shutil.copytree(original, copy)
    return original, copy, before


def test_a_copied_state_is_not_led_until_a_person_has_said_which_one_goes_on(tmp_path: Path) -> None:
    original, copy, before = copied(tmp_path)
    with pytest.raises(StateCopied) as refused:
        a_term(copy)
    assert str(refused.value).startswith(f"The state at {copy} was last led at {original}, which still holds the same")
    assert str(original) in str(refused.value) and refused.value.hint == "adopt_state"
    assert refused.value.exit_code == 2
    assert len(DeltaRsStore(str(copy)).read(Manager)) == 1, "nothing was written"
    assert a_term(original).state_id == before.state_id, "the one that was copied is not asked"


def test_a_copy_goes_on_under_an_id_of_its_own(tmp_path: Path) -> None:
    original, copy, before = copied(tmp_path)
    made = adopt_state(DeltaRsStore(str(copy)), SETTINGS, CLOCK, "copy")
    assert (made.previous_id, made.other, made.other_id) == (before.state_id, str(original), None)
    row = a_term(copy)
    assert (row.state_id, row.state_root) == (made.state_id, str(copy))
    assert row.state_id != before.state_id == a_term(original).state_id
    assert identity_of(DeltaRsStore(str(copy)), row).upgraded_at is None, "its runs in flight write anew"


def test_a_copy_that_is_the_state_from_now_on_makes_the_other_one_a_copy(tmp_path: Path) -> None:
    original, copy, before = copied(tmp_path)
    made = adopt_state(DeltaRsStore(str(copy)), SETTINGS, CLOCK, "original")
    assert (made.state_id, made.other) == (before.state_id, str(original))
    assert a_term(copy).state_id == before.state_id
    assert a_term(original).state_id == made.other_id not in (None, before.state_id)


def test_a_state_at_the_old_place_that_can_not_be_read_might_be_the_same_one(tmp_path: Path) -> None:
    original, copy, before = copied(tmp_path)
    newer = DeltaTable(str(original / "manager"))
    newer.alter.set_table_properties({VERSION_PROPERTY: "99"}, raise_if_not_exists=False)
    with pytest.raises(StateCopied, match=r"which can't be read from here \(.*state version 99"):
        a_term(copy)
    made = adopt_state(DeltaRsStore(str(copy)), SETTINGS, CLOCK, "original")
    assert (made.state_id, made.other, made.other_id) == (before.state_id, str(original), None)
    assert a_term(copy).state_id == before.state_id


def test_a_state_that_was_restored_is_made_a_copy_by_hand(tmp_path: Path) -> None:
    before = a_term(tmp_path)
    made = adopt_state(DeltaRsStore(str(tmp_path)), SETTINGS, CLOCK, "copy")
    assert a_term(tmp_path).state_id == made.state_id != before.state_id


def test_a_state_that_is_led_is_not_adopted() -> None:
    class ClockOfALeader(FakeClock):
        def monotonic(self) -> float:
            leader.heartbeat(self.now() + timedelta(seconds=1))
            return super().monotonic()

    store, clock = MemoryStore(), ClockOfALeader()
    store.init()
    row = Manager(1, "m.elsewhere", "far", 7, s.LEADING, clock.now(), clock.now(), 15, "0", state_id="abc")
    leader = store.lead(row)
    with pytest.raises(
        Refused, match=r"The manager of term 1 \(pid 7 on far\) leads the state at memory. Stop it first"
    ):
        adopt_state(store, SETTINGS, clock, "copy")
    assert store.lease().state_id == "abc"  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("root", "place"),
    [
        ("s3a://Bucket/jobs//state/", "s3://bucket/jobs/state"),
        ("s3://bucket/jobs/state", "s3://bucket/jobs/state"),
        ("S3N://bucket", "s3://bucket"),
        ("abfs://box@account.dfs.core.windows.net/state/", "abfss://box@account.dfs.core.windows.net/state"),
        ("gs://bucket/State", "gs://bucket/State"),
        ("file:///a%20b/../c/", "/c"),
        ("Main.Jobs", "main.jobs"),
        ("/a/./b//c/..", "/a/b"),
    ],
)
def test_a_place_has_one_spelling(root: str, place: str) -> None:
    assert canonical_place(root) == place


def test_a_relative_path_and_its_link_are_one_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "link").symlink_to("state")
    assert canonical_place("link") == canonical_place("./state/") == os.path.realpath(tmp_path / "state")
