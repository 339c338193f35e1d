"""What the pages of backfills read: items page by page, settings and who changed them, plans, rates."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

import pytest
from support.sample_state import FilledState
from support.scenarios import at

from backfill_manager.errors import NotFound
from backfill_manager.execution.messages import Failed, Succeeded
from backfill_manager.model.records import Backfill, DagRun
from backfill_manager.queries.backfill_items import ItemPage, find_item, list_items
from backfill_manager.queries.backfill_settings import children_of_each, parents_of, settings_now
from backfill_manager.queries.backfills import find_backfill
from backfill_manager.queries.dry_run import plan_shown
from backfill_manager.queries.eta import Pace, _idle_s, at_pace, has_time_left, items_per_minute, with_time_left
from backfill_manager.requests import submit
from backfill_manager.testing import InMemoryManager, dag_spec, days


def ordinals(page: ItemPage) -> list[int]:
    return [item["ordinal"] for item in page.items]


def test_items_are_paged_forwards_and_back_again(state: FilledState) -> None:
    state.backfill("aa", {"success": 7})
    first = list_items(state.store, "aa", first=1, last=7, limit=3)
    assert (ordinals(first), first.after, first.before) == ([1, 2, 3], 3, None)
    second = list_items(state.store, "aa", first=1, last=7, after=first.after, limit=3)
    assert (ordinals(second), second.after, second.before) == ([4, 5, 6], 6, 4)
    third = list_items(state.store, "aa", first=1, last=7, after=second.after, limit=3)
    assert (ordinals(third), third.after, third.before) == ([7], None, 7)
    back = list_items(state.store, "aa", first=1, last=7, before=third.before, limit=3)
    assert (ordinals(back), back.after, back.before) == ([4, 5, 6], 6, 4)
    home = list_items(state.store, "aa", first=1, last=7, before=back.before, limit=3)
    assert (ordinals(home), home.after, home.before) == ([1, 2, 3], 3, None)


def test_a_page_keeps_to_its_range_and_its_states(state: FilledState) -> None:
    state.backfill("aa", {"success": 5, "failed": 5, "pending": 5})
    assert ordinals(list_items(state.store, "aa", first=4, last=8)) == [4, 5, 6, 7, 8]
    assert ordinals(list_items(state.store, "aa", first=4, last=8, in_states=("failed",))) == [6, 7, 8]
    assert ordinals(list_items(state.store, "aa", first=4, last=8, in_states=("failed",), after=6)) == [7, 8]
    assert list_items(state.store, "aa", first=1, last=3, in_states=("pending",)) == ItemPage([], None, None)


def test_one_item_by_its_number(state: FilledState) -> None:
    state.backfill("aa", {"success": 2})
    assert find_item(state.store, "aa", 2)["logical_date"] == "2013-01-02T05:00:00Z"
    with pytest.raises(NotFound, match="'3'"):
        find_item(state.store, "aa", 3)


def test_settings_tell_who_changed_them_and_count_what_waits(state: FilledState) -> None:
    state.backfill("aa", {"pending": 2}, priority=1, conf_json='{"full": true}')
    found = find_backfill(state.store, "aa")
    before = settings_now(state.store, found)
    assert (before.version, before.last, before.waiting) == ("", None, ())
    assert (before.values["priority"], before.values["conf"]) == (1, {"full": True})

    change = {"backfill_id": "aa", "changes": {"priority": 5}}
    submit.submit(state.store, state.clock, "backfill.set", change, request_id="r1", requested_by="grace")
    waiting = settings_now(state.store, found)
    assert waiting.values["priority"] == 5
    assert waiting.version != before.version
    assert [one["requested_by"] for one in waiting.waiting] == ["grace"]
    assert waiting.differing(before.values) == ["priority"]
    assert waiting.differing({**before.values, "priority": 5}) == []

    [row] = state.store.read(Backfill)
    state.put(row.evolve(priority=5, changed_by="r1"))
    state.answers(state.store.unanswered()[0])
    done = settings_now(state.store, find_backfill(state.store, "aa"))
    assert done.last is not None
    assert (done.version, done.last["requested_by"], done.waiting, done.values["priority"]) == ("r1", "grace", (), 5)


def test_changes_of_another_backfill_are_none_of_its_business(state: FilledState) -> None:
    state.backfill("aa", {"pending": 2})
    state.backfill("bb", {"pending": 2})
    submit.submit(state.store, state.clock, "backfill.set", {"backfill_id": "bb", "changes": {"priority": 5}})
    assert settings_now(state.store, find_backfill(state.store, "aa")).waiting == ()


def test_a_cascade_knows_its_family(state: FilledState) -> None:
    state.backfill("aa", {"success": 1}, state="success")
    state.backfill("bb", {"pending": 1}, parents_json='["aa"]')
    child = find_backfill(state.store, "bb")
    assert parents_of(state.store, child) == [{"backfill_id": "aa", "dag_id": "flights", "state": "success"}]
    children = children_of_each(state.store)
    assert {parent: [one["backfill_id"] for one in theirs] for parent, theirs in children.items()} == {"aa": ["bb"]}
    assert parents_of(state.store, find_backfill(state.store, "aa")) == []


def test_the_rate_is_that_of_the_time_left_and_of_the_whole_when_it_has_ended() -> None:
    running = {"state": "running", "time_left_s": 120.0, "pending": 30, "running": 10}
    assert items_per_minute(running) == 20.0
    ended = {
        "state": "failed", "time_left_s": None, "started_at": "2024-01-01T00:00:00Z", "success": 25, "failed": 5,
        "completed_at": "2024-01-01T00:10:00Z",
    }  # fmt: skip
    assert items_per_minute(ended) == 3.0
    assert items_per_minute({**ended, "completed_at": "2024-01-01T00:00:00Z"}) is None
    assert items_per_minute({**ended, "started_at": None}) is None


@pytest.mark.parametrize(("depends_on_past", "left_s"), [(True, 200.0), (False, 30.0)])
def test_before_its_first_run_has_ended_the_time_left_is_that_of_past_runs(
    depends_on_past: bool, left_s: float
) -> None:
    spec = dag_spec("d", "a", each={"a": {"depends_on_past": depends_on_past}})
    manager = InMemoryManager(spec, script=lambda _: None)
    for first, n in (("2024-01-01", 1), ("2024-01-02", 20)):
        backfill = manager.backfill("d", days(first, n), max_active_runs=8)
        manager.drain()
        if n == 1:
            manager.clock.advance(seconds=10)
            manager.finish(next(iter(manager.running)), Succeeded())
            manager.drain()
    found = with_time_left(manager.store, find_backfill(manager.store, backfill), manager.clock.now())
    assert found["time_left_s"] == left_s


@pytest.mark.parametrize(("parents", "left_s"), [("[]", 10.0), ('["above"]', None)])
def test_a_time_in_which_no_run_of_it_was_there_is_no_part_of_its_pace(parents: str, left_s: float | None) -> None:
    """A pause for a night, and two weeks until a retry; what waits for a backfill upstream is as slow as that."""
    manager = InMemoryManager(dag_spec("d", "a"), script=lambda _: None)
    backfill = manager.backfill("d", days("2024-01-01", 6), max_active_runs=1)

    def play(runs: int, outcome: Succeeded | Failed) -> None:
        for _ in range(runs):
            manager.drain()
            manager.clock.advance(seconds=10)
            manager.finish(next(iter(manager.running)), outcome)

    play(2, Succeeded())
    manager.ask("backfill.pause", backfill_id=backfill)
    manager.drain()
    manager.clock.advance(hours=9)
    manager.ask("backfill.unpause", backfill_id=backfill)
    play(3, Succeeded())
    play(1, Failed("boom"))
    manager.drain()
    manager.clock.advance(days=14)
    manager.ask("backfill.retry", backfill_id=backfill)
    manager.drain()
    found = {**find_backfill(manager.store, backfill), "parents": json.loads(parents)}
    shown = with_time_left(manager.store, found, manager.clock.now())["time_left_s"]
    assert (shown == left_s) if left_s is not None else shown > 24 * 3600


ONE_BY_ONE = {"pending": 4, "running": 1, "batch": 1, "max_active_runs": 2}


@pytest.mark.parametrize(
    ("pace", "settings", "left_s"),
    [
        pytest.param(Pace(2.0, 10.0), {}, 10.0, id="its own pace goes first"),
        pytest.param(Pace(None), {}, None, id="nothing is known"),
        pytest.param(Pace(None, 10.0), {}, 30.0, id="two runs at once"),
        pytest.param(Pace(None, 10.0), {"max_active_runs": None}, 50.0, id="one at a time"),
        pytest.param(Pace(None, 10.0, is_serial=True), {}, 50.0, id="each run waits for the one before it"),
        pytest.param(Pace(None, 10.0), {"pending": 6, "batch": 3}, 20.0, id="three batches"),
        pytest.param(Pace(None, 10.0, 3.0), {"batch": "auto"}, 7.5, id="batches of a size that is not known"),
        pytest.param(Pace(None, 10.0), {"batch": "auto"}, None, id="and no pace of an item either"),
    ],
)
def test_the_time_left_follows_from_a_pace(pace: Pace, settings: dict[str, Any], left_s: float | None) -> None:
    assert pace.seconds_left({**ONE_BY_ONE, **settings}) == left_s


def test_an_end_is_estimated_where_a_backfill_runs_at_any_hour() -> None:
    backfill = {**ONE_BY_ONE, "state": "running", "waits_until": None, "window": None}
    for settings in ({"state": "paused"}, {"pending": 0, "running": 0}, {"waits_until": "2024-01-01T20:00:00Z"}):
        assert not has_time_left({**backfill, **settings})
    assert has_time_left(backfill)
    found = at_pace(backfill, Pace(2.04), at("2024-01-01T00:00:00.900000"))
    assert (found["time_left_s"], found["finishes_at"]) == (10.2, "2024-01-01T00:00:11Z")
    found = at_pace({**backfill, "window": "20:00-06:00"}, Pace(2.04), at("2024-01-01"))
    assert (found["time_left_s"], found["finishes_at"]) == (10.2, None)
    assert at_pace(backfill, Pace(None), at("2024-01-01")) == backfill


def test_a_short_run_beside_a_long_one_is_not_followed_by_a_pause() -> None:
    def run(begin_s: int, end_s: int | None) -> DagRun:
        begin = at("2024-01-01") + timedelta(seconds=begin_s)
        end = None if end_s is None else at("2024-01-01") + timedelta(seconds=end_s)
        return DagRun("d", f"r{begin_s}", "backfill", "success", 1, begin_s, created_at=begin, ended_at=end)

    since, now = at("2024-01-01"), at("2024-01-01T01:00")
    assert _idle_s([run(0, 1000), run(10, 20), run(1060, 2000), run(2061, None)], since, now) == 61.0
    assert _idle_s([run(0, 1000)], since, now) == 2600.0


def plan_of(n: int, skipped: dict[int, str]) -> dict[str, Any]:
    items = [
        {
            "ordinal": k, "logical_date": f"2013-01-{(k - 1) % 28 + 1:02}T05:00:00Z", "partition_key": None,
            "state": "skipped" if k in skipped else "pending", "reason": skipped.get(k), "batch": None,
        }
        for k in range(1, n + 1)
    ]  # fmt: skip
    by_reason = {why: list(skipped.values()).count(why) for why in skipped.values()}
    return {"items": items, "summary": {"items": n, "pending": n - len(skipped), "skipped": by_reason}}


def test_a_short_plan_is_shown_whole() -> None:
    shown = plan_shown(plan_of(5, {2: "already exists"}))
    assert ([one["ordinal"] for one in shown["items"]], shown["tail"], shown["hidden"]) == ([1, 2, 3, 4, 5], [], 0)
    assert shown["map"].by_state["skipped"] == 1


def test_of_a_long_plan_the_ends_are_shown_and_why_some_are_left_out() -> None:
    skipped = {k: "already exists" for k in range(100, 150)} | {900: "in flight"}
    shown = plan_shown(plan_of(1000, skipped))
    assert len(shown["items"]) + len(shown["tail"]) + shown["hidden"] == 1000
    assert [one["ordinal"] for one in shown["tail"]] == [998, 999, 1000]
    skipped = {one["reason"]: (one["items"], [item["ordinal"] for item in one["some"]]) for one in shown["skipped"]}
    assert skipped == {"already exists": (50, list(range(100, 108))), "in flight": (1, [900])}


def test_an_empty_plan_has_no_map() -> None:
    assert plan_shown({"items": [], "summary": {"skipped": {}}})["map"] is None
