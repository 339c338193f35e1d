"""What the items of a dry run would wait for."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any

import pyarrow as pa
import pytest
from support.sample_state import FilledState

from backfill_manager import condition, file, rows
from backfill_manager.cli.render.plan import wait_lines
from backfill_manager.model.records import TableAccess
from backfill_manager.planning.backfills.backfill_plan import BackfillPlan
from backfill_manager.planning.backfills.plan_waits import with_waits
from backfill_manager.planning.data.wait_conditions import WaitCheck
from backfill_manager.schemas.backfill_options import CreateBackfill
from backfill_manager.testing import dag_spec, days

DAYS = days("2024-01-01", 4)
SUCCESS, RATES = file("/in/{interval_start:%d}/_SUCCESS"), condition("SELECT true")
ORDERS = rows("partner.orders", time_column="at")


def plan(*waits: Any, **command: Any) -> BackfillPlan:
    """Of four days, of which the last is skipped."""
    spec = dag_spec("silver", "clean", "report", each={"clean": {"waits_for": waits}})
    instant = pa.timestamp("us", tz="UTC")
    items = pa.table({
        "ordinal": [1, 2, 3, 4], "logical_date": pa.array([start for start, _ in DAYS], instant),
        "interval_start": pa.array([start for start, _ in DAYS], instant),
        "interval_end": pa.array([end for _, end in DAYS], instant), "partition_key": pa.nulls(4, pa.string()),
        "state": ["pending"] * 3 + ["skipped"], "reason": [None, None, None, "already exists"],
    })  # fmt: skip
    return BackfillPlan(CreateBackfill(dag_id="silver", batch=1, **command), spec, 1, items)


def nothing(looks: Sequence[WaitCheck]) -> Mapping[WaitCheck, bool | str]:
    assert not looks
    return {}


def test_tables_of_ours_by_what_tasks_have_written(state: FilledState) -> None:
    start, _ = DAYS[0]
    write = TableAccess(
        dag_id="bronze", run_id="r", task_id="load", launch=1, number=0, dag_version=1, run_seq=1, access="write",
        succeeded=True, at=start,
        table_name="bronze.events", interval_start=start, interval_end=start + timedelta(days=2),
    )  # fmt: skip
    state.put(write)
    made = with_waits(plan("bronze.events"), state.store, nothing)
    document = made.to_json_document()
    assert [item["waits_for"] for item in document["items"]] == [[], [], ["bronze.events"], []]
    assert document["summary"]["waits"] == {
        "items": 1, "unknown": 0,
        "for": [{"waits_for": "bronze.events", "missing": 1, "unknown": 0, "problem": None}],
    }  # fmt: skip
    assert json.dumps(document["summary"]["waits"])


def test_what_others_deliver_by_looks_and_what_nobody_has_looked_for(state: FilledState) -> None:
    def check_waits(looks: Sequence[WaitCheck]) -> Mapping[WaitCheck, bool | str]:
        assert len(looks) == 9
        there = {look: look.path != "/in/02/_SUCCESS" for look in looks if look.path}
        return there | dict.fromkeys((look for look in looks if look.wait == ORDERS), "table not found")

    made = with_waits(plan(SUCCESS, RATES, ORDERS), state.store, check_waits)
    items = made.to_json_document()["items"]
    assert [item["waits_for"] for item in items] == [
        ["partner.orders"],
        ["/in/02/_SUCCESS", "partner.orders"],
        ["partner.orders"],
        [],
    ]
    assert [item["may_wait_for"] for item in items] == [["condition SELECT true"]] * 3 + [[]]
    assert list(wait_lines(made.summary["waits"])) == [
        "3 items would wait for data: /in/{interval_start:%d}/_SUCCESS (1 item); partner.orders (3 items: table not found).",
        "Not looked for in a dry run: condition SELECT true.",
    ]


def test_an_item_of_several_days_waits_for_each_of_them(state: FilledState) -> None:
    days_of_one = plan().items.slice(0, 1)
    end = pa.array([DAYS[2][1]], days_of_one["interval_end"].type)
    spec = dag_spec("silver", "clean", schedule="@daily", each={"clean": {"waits_for": (SUCCESS,)}})
    of_three = dataclasses.replace(plan(), dag=spec, items=days_of_one.set_column(3, "interval_end", end))
    found = with_waits(of_three, state.store, lambda looks: {look: look.path != "/in/02/_SUCCESS" for look in looks})
    assert found.waits[1].missing == ("/in/02/_SUCCESS",)


def test_of_items_behind_those_that_are_looked_for_nothing_is_known(
    state: FilledState, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("backfill_manager.planning.backfills.plan_waits.MAX_LOOKED_AT", 1)
    found = with_waits(plan(SUCCESS), state.store, lambda looks: dict.fromkeys(looks, True))
    assert {ordinal: (one.missing, one.unknown) for ordinal, one in found.waits.items()} == dict.fromkeys(
        (2, 3), ((), ("/in/{interval_start:%d}/_SUCCESS",))
    )


def test_only_tasks_that_run_wait_and_without_waits_nothing_is_said(state: FilledState) -> None:
    for made in (plan(), plan(SUCCESS, tasks="report", with_upstream=False), plan(SUCCESS, mark_success=True)):
        with_none = with_waits(made, state.store, nothing)
        assert with_none is made and "waits" not in with_none.summary
    found = with_waits(plan(SUCCESS), state.store, lambda looks: dict.fromkeys(looks, True))
    assert list(wait_lines(found.summary["waits"])) == ["All data that its tasks wait for are there."]


def test_plans_downstream_say_it_too_and_count_on_those_above(state: FilledState) -> None:
    above = dataclasses.replace(plan(), dag=dag_spec("bronze", "load", writes=("Bronze.Events",)))
    below = dataclasses.replace(plan("bronze.events", "bronze.places", SUCCESS), parents=("bronze",))
    calls = list[int]()

    def check_waits(looks: Sequence[WaitCheck]) -> Mapping[WaitCheck, bool | str]:
        calls.append(len(looks))
        return dict.fromkeys(looks, False)

    made = with_waits(dataclasses.replace(above, downstream=(below,)), state.store, check_waits)
    assert calls == [3] and "waits" not in made.summary
    (document,) = made.to_json_document()["downstream"]
    assert [item["waits_for"] for item in document["items"]] == [
        ["bronze.places", f"/in/0{n}/_SUCCESS"] for n in (1, 2, 3)
    ] + [[]]
    assert list(wait_lines(document["summary"]["waits"])) == [
        "3 items would wait for data: bronze.places (3 items); /in/{interval_start:%d}/_SUCCESS (3 items)."
    ]
