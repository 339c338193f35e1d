"""Documents of backfills: counts from their items, those that wait, those that were refused, names by prefix."""

from __future__ import annotations

import json

import pytest
from support.sample_state import DAY, FilledState

from backfill_manager.errors import Ambiguous, NotFound, Refused
from backfill_manager.model.records import Request
from backfill_manager.queries import backfills
from backfill_manager.queries.backfill_items import list_items
from backfill_manager.queries.backfills import BackfillFilter, find_backfill, list_backfills, requested_view

FIELDS = [
    "backfill_id",
    "dag_id",
    "state",
    "config",
    "reprocess",
    "max_active_runs",
    "priority",
    "pool",
    "is_paused",
    "created_at",
    "started_at",
    "completed_at",
    "planned",
    "pending",
    "running",
    "success",
    "failed",
    "cancelled",
    "skipped",
    "reason",
]
ITEM_FIELDS = [
    "ordinal",
    "logical_date",
    "interval_start",
    "interval_end",
    "partition_key",
    "state",
    "reason",
    "run_id",
    "batch",
    "reverted_at",
]


def test_a_backfill_has_the_fields_of_the_interface_and_counts_its_items(state: FilledState) -> None:
    state.backfill("b1", {"success": 3, "failed": 1, "running": 2, "pending": 4, "skipped": 1})

    [listed] = list_backfills(state.store).items

    assert list(listed)[: len(FIELDS)] == FIELDS
    assert (listed["planned"], listed["success"], listed["failed"], listed["running"], listed["pending"], listed["skipped"]) == (
        11, 3, 1, 2, 4, 1,
    )  # fmt: skip
    assert listed["created_at"] == "2024-05-15T12:00:00Z"
    assert listed["config"]["type"] == "schedule"


def test_backfills_are_listed_newest_first_and_can_be_chosen(state: FilledState) -> None:
    state.backfill("older", {"success": 1}, state="success")
    state.clock.at += DAY
    state.backfill("newer", {"failed": 1}, state="failed", dag_id="other")

    assert [one["backfill_id"] for one in list_backfills(state.store).items] == ["newer", "older"]
    assert [one["backfill_id"] for one in list_backfills(state.store, BackfillFilter("flights")).items] == ["older"]
    assert [one["backfill_id"] for one in list_backfills(state.store, BackfillFilter(in_states=["failed"])).items] == [
        "newer"
    ]
    assert [one["backfill_id"] for one in list_backfills(state.store, limit=1).items] == ["newer"]


def test_a_backfill_that_waits_for_its_answer_is_queued(state: FilledState) -> None:
    state.requested("b1")

    [listed] = list_backfills(state.store).items

    assert list(listed)[: len(FIELDS)] == FIELDS
    assert (listed["state"], listed["reason"], listed["planned"]) == ("queued", "waiting for the manager", 0)
    assert find_backfill(state.store, "b1") == {**listed, "conf": {}, "overrides": {}}
    assert list_backfills(state.store, BackfillFilter(in_states=["running"])).items == []
    assert list_backfills(state.store, BackfillFilter("other")).items == []


@pytest.mark.parametrize(
    ("limit", "pages"),
    [(2, ["w3 w2", "w1 c2", "c1"]), (3, ["w3 w2 w1", "c2 c1"]), (4, ["w3 w2 w1 c2", "c1"]), (5, ["w3 w2 w1 c2 c1"])],
)
def test_the_pages_of_a_list_begin_with_the_backfills_that_wait(
    state: FilledState, limit: int, pages: list[str]
) -> None:
    for backfill_id in ("c1", "c2", "w1", "w2", "w3"):
        state.clock.at += DAY
        (state.requested if backfill_id.startswith("w") else state.backfill)(backfill_id)
    found, after = [], None
    while not found or after is not None:
        items, after = list_backfills(state.store, limit=limit, after=after)
        found.append(" ".join(one["backfill_id"] for one in items))
    assert found == pages


def test_backfills_are_chosen_by_kind_whether_they_wait_or_not(state: FilledState) -> None:
    state.backfill("made")
    state.backfill("dates", config_json=json.dumps({"type": "dates", "dates": ["2013-01-01T05:00:00Z"]}))
    state.requested("waits")
    chosen = {
        kind: list_backfills(state.store, BackfillFilter(kind=kind)).items for kind in ("schedule", "dates", "stale")
    }
    found = {kind: [one["backfill_id"] for one in items] for kind, items in chosen.items()}
    assert found == {"schedule": ["waits", "made"], "dates": ["dates"], "stale": []}


def test_a_backfill_that_exists_already_is_not_listed_twice_while_its_answer_is_under_way(state: FilledState) -> None:
    state.requested("b1")
    state.backfill("b1", {"pending": 2})

    assert [one["state"] for one in list_backfills(state.store).items] == ["running"]
    assert list_backfills(state.store, BackfillFilter(in_states=["queued"])).items == []


def test_a_refused_backfill_is_reported_with_the_reason_and_is_not_in_the_list(state: FilledState) -> None:
    state.answers(state.requested("b1"), "refused", "the plan is empty: every date has a run")

    assert list_backfills(state.store).items == []
    for name in ("b1", "latest"):
        with pytest.raises(Refused, match="was refused: the plan is empty: every date has a run"):
            find_backfill(state.store, name)


def test_a_lookup_reads_no_request_that_was_accepted(state: FilledState, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("b1", "b2"):
        state.answers(state.requested(name), "accepted", "created")
        state.backfill(name, {})
    state.answers(state.requested("c1"), "refused", "the plan is empty")
    state.requested("c2")
    read: list[str] = []
    monkeypatch.setattr(
        backfills, "requested_view", lambda request: read.append(request.request_id) or requested_view(request)
    )
    assert find_backfill(state.store, "c2")["state"] == "queued"
    assert len(read) == 2


def test_a_beginning_that_only_one_has_is_enough(state: FilledState) -> None:
    state.backfill("abc1", {})
    state.backfill("abd2", {})
    state.requested("abe3")

    assert find_backfill(state.store, "abc")["backfill_id"] == "abc1"
    assert find_backfill(state.store, "abe")["backfill_id"] == "abe3"
    with pytest.raises(Ambiguous, match=r"more than one backfill: .*abd2"):
        find_backfill(state.store, "ab")


def test_the_latest_is_the_newest_whether_it_was_answered_or_not(state: FilledState) -> None:
    state.backfill("made", {})
    assert find_backfill(state.store, "latest")["backfill_id"] == "made"
    state.clock.at += DAY
    state.requested("asked")
    assert find_backfill(state.store, "latest")["backfill_id"] == "asked"
    state.clock.at += DAY
    state.backfill("newest", {})
    assert find_backfill(state.store, "latest")["backfill_id"] == "newest"


def test_the_latest_is_the_one_that_was_asked_for_last_though_the_one_before_was_created_since(
    state: FilledState,
) -> None:
    first = state.requested("first")
    state.clock.at += DAY
    state.requested("second")
    state.clock.at += DAY
    state.backfill("first", {}, request_id=first.request_id)
    assert find_backfill(state.store, "latest")["backfill_id"] == "second"


@pytest.mark.parametrize("order", [("root", "below"), ("below", "root")], ids=" ".join)
def test_the_latest_of_a_backfill_with_downstream_is_that_of_the_dag_that_was_named(
    state: FilledState, order: tuple[str, ...]
) -> None:
    request = state.requested("root")
    for backfill_id in order:
        parents = '["root"]' if backfill_id == "below" else "[]"
        state.backfill(backfill_id, {}, request_id=request.request_id, parents_json=parents)
    assert find_backfill(state.store, "latest")["backfill_id"] == "root"


def test_a_wrong_id_is_reported_with_the_nearest(state: FilledState) -> None:
    with pytest.raises(NotFound, match="there are no backfills yet"):
        find_backfill(state.store, "latest")
    state.backfill("abc123def456", {})
    with pytest.raises(NotFound, match="did you mean 'abc123def456'"):
        find_backfill(state.store, "abc123dfe456")


def test_a_request_that_nobody_can_read_hides_no_backfill(state: FilledState) -> None:
    state.store.append_request(Request("r9", "backfill.create", "{broken", "eve", state.clock.at))
    state.requested("b1")

    assert [one["backfill_id"] for one in list_backfills(state.store).items] == ["b1"]


def test_items_come_in_the_order_of_making_page_by_page(state: FilledState) -> None:
    state.backfill("b1", {"skipped": 1, "success": 2, "failed": 1, "pending": 6})
    state.backfill("b2", {"pending": 3})

    everything = list_items(state.store, "b1").items

    assert [list(one) for one in everything] == [ITEM_FIELDS] * 10
    assert [one["ordinal"] for one in everything] == list(range(1, 11))
    assert everything[0] == {
        "ordinal": 1, "logical_date": "2013-01-01T05:00:00Z", "interval_start": "2013-01-01T05:00:00Z",
        "interval_end": "2013-01-02T05:00:00Z", "partition_key": None, "state": "skipped", "reason": "already exists",
        "run_id": None, "batch": None, "reverted_at": None,
    }  # fmt: skip
    assert [one["ordinal"] for one in list_items(state.store, "b1", limit=3, after=4).items] == [5, 6, 7]
    pending = list_items(state.store, "b1", in_states=["pending"], limit=2, after=7).items
    assert [one["ordinal"] for one in pending] == [8, 9]
    assert len(list_items(state.store, "b1", in_states=["pending"]).items) == 6
