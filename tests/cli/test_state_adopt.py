"""`bfm state adopt`: the answer to a manager that would not start on a copied state."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from support.bfm import Bfm

from backfill_manager.clock import SystemClock
from backfill_manager.errors import StateCopied
from backfill_manager.manager.leader_election import LeaderElector
from backfill_manager.manager.maintenance import short_leadership
from backfill_manager.schemas import errors
from backfill_manager.store.delta_rs.store import DeltaRsStore


def led_once(root: Path) -> str:
    store = DeltaRsStore(str(root))
    store.init()
    leader = LeaderElector(store, SystemClock(), lease_s=15).run_once()
    assert leader is not None and leader.row.state_id is not None
    leader.resign(SystemClock().now())
    return leader.row.state_id


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """A copy of the state at ./state."""
    led_once(tmp_path / "state")
    shutil.copytree(tmp_path / "state", tmp_path / "copy")
    return tmp_path / "copy"


def test_no_manager_starts_on_a_copy_and_no_spark_is_started_for_that(bfm: Bfm, copy: Path) -> None:
    for command in (("manager", "start"), ("state", "compact")):
        result = bfm("--state", "copy", *command)
        assert result.code == 2
        assert "`bfm --state copy state adopt --as-copy`" in result.err
        assert "`bfm --state copy state adopt --as-original`" in result.err
    assert bfm("--state", "copy", "dags", "list").code == 0, "it can be read as it is"


def test_as_a_copy_it_goes_on_under_a_new_id(bfm: Bfm, copy: Path) -> None:
    result = bfm("--state", "copy", "--output", "json", "state", "adopt", "--as-copy")
    assert result.code == 0
    shown = result.document
    assert shown["state_id"] != shown["previous_state_id"] == led_once(copy.parent / "state")
    assert (shown["other_state"], shown["other_state_id"]) == (str(copy.parent / "state"), None)
    assert led_once(copy) == shown["state_id"]


def test_as_the_original_it_keeps_its_id_and_the_other_one_is_reported_as_a_copy(bfm: Bfm, copy: Path) -> None:
    result = bfm("--state", "copy", "state", "adopt", "--as-original")
    assert result.code == 0
    new = led_once(copy.parent / "state")
    assert f"The one at {copy.parent / 'state'} is a copy from now on: {new}." in " ".join(result.err.split())
    assert f"continues as {led_once(copy)}." in result.out
    assert new != led_once(copy)


@pytest.mark.parametrize("flags", [(), ("--as-copy", "--as-original")])
def test_it_wants_one_answer(bfm: Bfm, copy: Path, flags: tuple[str, ...]) -> None:
    result = bfm("--state", "copy", "state", "adopt", *flags)
    assert (result.code, result.error) == (2, "Choose what this state is: --as-copy or --as-original.")
    with pytest.raises(StateCopied):
        led_once(copy)


def test_an_import_as_the_original_of_a_state_that_is_led_says_how_it_goes_on(
    bfm: Bfm, copy: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The new state is there: to import it again would be refused."""
    assert bfm("--state", "state", "state", "export", "out").code == 0

    def refuse(*_: object) -> None:
        raise errors.STATE_IS_LED(term=1, pid=7, host="h", root="./state")

    with monkeypatch.context() as led:
        led.setattr(short_leadership, "adopt_state", refuse)
        result = bfm("--state", "new", "state", "import", "out", "--as-original")
    assert result.code == 4 and "leads the state at ./state. Stop it first" in result.err
    assert (
        "The state at new is complete, and can't be led before `bfm --state new state adopt --as-original`"
        in result.err
    )
    with pytest.raises(StateCopied):
        led_once(copy.parent / "new")
    assert bfm("--state", "new", "state", "adopt", "--as-original").code == 0
    led_once(copy.parent / "new")


def test_a_state_that_is_not_there_is_not_adopted(bfm: Bfm, tmp_path: Path) -> None:
    assert bfm("--state", "nowhere", "state", "adopt", "--as-copy").code == 2
    assert list(tmp_path.iterdir()) == []
