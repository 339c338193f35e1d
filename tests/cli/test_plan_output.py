"""What people see of a dry run: batches, estimates, and the tree of backfills that follow."""

from __future__ import annotations

from typing import Any

import pytest
from support.bfm import Bfm
from support.sample_state import FilledState

from backfill_manager.cli.render.plan import estimate_lines, tree_lines
from backfill_manager.humanise import size

SUMMARY = {"dag_id": "flights", "items": 4, "pending": 4, "skipped": {}}
ESTIMATE = {
    "rows": 336776, "files": 12, "bytes": 8_500_000, "run_s": {"median": 12.0, "shortest": 8.0, "longest": 40.0},
    "total_s": 360.0, "finishes_at": "2024-05-15T12:06:00Z", "unknown": [],
}  # fmt: skip


def item(n: int, **fields: Any) -> dict[str, Any]:
    at = f"2013-01-0{n}T05:00:00Z"
    return {
        "ordinal": n, "logical_date": at, "interval_start": at, "interval_end": f"2013-01-0{n + 1}T05:00:00Z",
        "partition_key": None, "state": "pending", "reason": None, "run_id": None, "batch": None, **fields,
    }  # fmt: skip


def shown(bfm: Bfm, state: FilledState, plan: dict[str, Any]) -> str:
    state.dag(batchable=True)
    state.pools()
    state.leads()
    state.clock.meanwhile = [lambda: state.answers_next(payload=plan)]
    result = bfm("backfill", "create", "flights", "-s", "2013-01-01", "-e", "2013-01-04", "--batch", "2", "-n")
    assert result.code == 0, result.err
    return result.out


def test_items_that_run_together_have_a_batch(bfm: Bfm, state: FilledState) -> None:
    items = [item(1, batch=1), item(2, batch=1), item(3, batch=3), item(4, batch=3)]

    out = shown(bfm, state, {"items": items, "summary": {**SUMMARY, "runs": 2}})

    assert "batch" in out.splitlines()[0]
    assert "4 items: 4 would run in 2 runs." in out


def test_a_dry_run_says_how_batches_size_themselves(bfm: Bfm, state: FilledState) -> None:
    why = "Batches size themselves: by 3 past runs one takes about 10 s and 0.5 s for each item, so runs take 46 items: ..."
    items = [item(1, batch=1), item(2, batch=1)]

    out = shown(bfm, state, {"items": items, "summary": {**SUMMARY, "runs": 1, "batching": why}})

    assert why in " ".join(out.split())


def test_what_may_not_be_meant_is_pointed_out(bfm: Bfm, state: FilledState) -> None:
    summary = {
        **SUMMARY,
        "pending": 1,
        "skipped": {"already exists": 3},
        "existing_not_succeeded": 2,
        "before_start_date": 1,
        "unknown_pools": {"slow": ["load"]},
    }
    below = {"dag_id": "report", "waits_for": ["flights"], "items": [], "summary": {
        **SUMMARY, "dag_id": "report", "unknown_pools": {"backfil": ["a", "b"]}, "before_start_date": 2,
    }}  # fmt: skip
    plan: dict[str, Any] = {"items": [item(1)], "summary": summary, "downstream": [below]}
    state.dag(batchable=True)
    state.pools()
    state.leads()
    state.clock.meanwhile = [lambda: state.answers_next(payload=plan)]

    result = bfm("backfill", "create", "flights", "-s", "2013-01-01", "-e", "2013-01-04", "-n")

    assert "2 of those that exist already did not succeed; --reprocess failed does them again." in result.err
    assert "1 item that would run starts before the DAG's start_date." in result.err
    assert "report: 2 items that would run start before the DAG's start_date." in result.err
    said = " ".join(result.err.split())
    assert (
        "There is no pool 'slow', which task load of DAG flights names: it fails when it starts. A new pool is made in"
        in said
    )
    assert (
        "There is no pool 'backfil', which tasks a, b of DAG report name: they fail when they start; did you mean 'backfill'?"
        in said
    )


def test_where_tasks_are_chosen_those_that_run_are_named(bfm: Bfm, state: FilledState) -> None:
    plan: dict[str, Any] = {"items": [item(1)], "summary": {**SUMMARY, "tasks": ["clean", "delays"]}}

    assert "Only these tasks run: clean, delays." in shown(bfm, state, plan).splitlines()


def test_items_whose_failed_tasks_run_again_in_place_name_the_run(bfm: Bfm, state: FilledState) -> None:
    run = "backfill__2013-01-02T05:00:00Z"
    items = [item(1, failed_tasks=None), item(2, run_id=run, failed_tasks=2), item(3, failed_tasks=None)]
    summary = {**SUMMARY, "items": 3, "pending": 3, "runs": 3, "reruns": {"runs": 1, "failed_tasks": 2}}

    out = shown(bfm, state, {"items": items, "summary": summary})

    assert [line for line in out.splitlines() if f"2 failed tasks in run {run}" in line] == [out.splitlines()[3]]
    assert "3 items: 3 would run (1 run in place, to re-run 2 failed tasks)." in out


def test_what_will_be_read_and_how_long_it_takes_is_shown(bfm: Bfm, state: FilledState) -> None:
    items = [item(n, rows=1000 * n, files=n, bytes=2_000_000) for n in (1, 2)]

    out = shown(bfm, state, {"items": items, "summary": {**SUMMARY, "estimate": ESTIMATE}})

    assert "2,000" in out
    assert "2.0 MB" in out
    assert "They will read about 336,776 rows in 12 files, 8.5 MB." in out
    assert (
        "An item takes about 12 s (8.0 s to 40 s so far); full range about 6 min 00 s, until 2024-05-15T12:06:00Z."
        in out
    )


def test_items_that_took_equally_long_have_no_span(bfm: Bfm, state: FilledState) -> None:
    alike = {**ESTIMATE, "run_s": {"median": 15.0, "shortest": 15.01, "longest": 15.02}}
    out = shown(bfm, state, {"items": [item(1)], "summary": {**SUMMARY, "estimate": alike}})
    assert "An item takes about 15 s; full range" in out


def test_a_plan_by_which_nothing_runs_takes_no_time_that_is_worth_words(bfm: Bfm, state: FilledState) -> None:
    summary = {**SUMMARY, "pending": 0, "estimate": {**ESTIMATE, "total_s": 0.0}}
    below = [{"dag_id": "delays", "waits_for": ["flights"], "items": [], "summary": summary}]

    out = shown(bfm, state, {"items": [item(1)], "summary": summary, "downstream": below})

    assert not {"about", "takes", "less than"} & set(out.split())


@pytest.mark.parametrize(
    ("estimate", "lines"),
    [
        ({}, []),
        ({"rows": None, "run_s": None, "unknown": []}, []),
        ({"rows": 5, "files": 1, "bytes": 512}, ["They will read about 5 rows in 1 file, 512 B."]),
        ({"unknown": ["raw", "old"]}, ["Unknown size: raw, old."]),
        ({"run_s": {"median": 3.0}}, ["An item takes about 3.0 s."]),
        ({"run_s": {"median": 0.0}, "total_s": 0.02}, ["An item takes less than 1 s; full range less than 1 s."]),
        ({"run_s": None, "total_s": 2.25}, ["The full range takes about 2.2 s."]),
    ],
)
def test_only_what_is_known_is_shown(estimate: dict[str, Any], lines: list[str]) -> None:
    assert list(estimate_lines(estimate)) == lines


def test_backfills_that_follow_are_drawn_as_a_tree(bfm: Bfm, state: FilledState) -> None:
    downstream = [
        {"dag_id": "delays", "waits_for": ["flights"], "items": [], "summary": SUMMARY},
        {"dag_id": "weather", "waits_for": ["flights"], "items": [], "summary": {**SUMMARY, "estimate": ESTIMATE}},
        {"dag_id": "report", "waits_for": ["weather", "delays"], "items": [], "summary": SUMMARY},
    ]

    out = shown(bfm, state, {"items": [item(1)], "summary": SUMMARY, "downstream": downstream})

    assert out.splitlines()[-4:] == [
        "flights: 4 items: 4 would run",
        "├─ delays: 4 items: 4 would run",
        "│  └─ report (waits for weather, too): 4 items: 4 would run",
        "└─ weather: 4 items: 4 would run, about 6 min 00 s",
    ]


def test_what_backfills_that_follow_would_wait_for_is_below_each(bfm: Bfm, state: FilledState) -> None:
    wait = {"waits_for": "a.b", "missing": 2, "unknown": 0, "problem": None}
    summary = {**SUMMARY, "waits": {"items": 2, "unknown": 0, "for": [wait]}}
    downstream = [
        {"dag_id": "delays", "waits_for": ["flights"], "items": [], "summary": summary},
        {"dag_id": "report", "waits_for": ["delays"], "items": [], "summary": summary},
        {"dag_id": "weather", "waits_for": ["flights"], "items": [], "summary": SUMMARY},
    ]

    out = shown(bfm, state, {"items": [item(1)], "summary": SUMMARY, "downstream": downstream})

    assert out.splitlines()[-5:] == [
        "├─ delays: 4 items: 4 would run",
        "│  │  2 items would wait for data: a.b (2 items).",
        "│  └─ report: 4 items: 4 would run",
        "│        2 items would wait for data: a.b (2 items).",
        "└─ weather: 4 items: 4 would run",
    ]


def test_a_dag_that_is_left_out_of_the_tree_is_named_with_the_reason(bfm: Bfm, state: FilledState) -> None:
    state.dag()
    state.pools()
    state.leads()
    plan = {"items": [item(1)], "summary": {**SUMMARY, "left_out": {"by_hand": "it has no schedule"}}, "downstream": []}
    state.clock.meanwhile = [lambda: state.answers_next(payload=plan)]

    result = bfm("backfill", "create", "flights", "-s", "2013-01-01", "-e", "2013-01-04", "--downstream", "-n")

    assert result.err == "by_hand would be skipped: it has no schedule.\n"
    plan = {
        "items": [item(1)],
        "summary": {**SUMMARY, "left_out": {}, "no_downstream": "no DAG reads a"},
        "downstream": [],
    }
    state.clock.meanwhile = [lambda: state.answers_next(payload=plan)]
    result = bfm("backfill", "create", "flights", "-s", "2013-01-01", "-e", "2013-01-04", "--downstream", "-n")
    assert result.err == "Nothing is downstream: no DAG reads a.\n"


def test_a_tree_knows_a_single_parent_by_name() -> None:
    [_, line] = tree_lines("a", SUMMARY, [{"dag_id": "b", "waits_for": "a", "summary": SUMMARY}])

    assert line == "└─ b: 4 items: 4 would run"


def test_sizes_are_written_for_people() -> None:
    assert [size(n) for n in (0, 999, 1500, 123_456, 8_200_000, 5e9, 3e15)] == [
        "0 B", "999 B", "1.5 kB", "123 kB", "8.2 MB", "5.0 GB", "3000 TB",
    ]  # fmt: skip
