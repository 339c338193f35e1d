"""Trigger rules, against their definitions written down a second way, over every combination of three upstream states."""

from __future__ import annotations

import itertools

import pytest

from backfill_manager.errors import InvalidInput
from backfill_manager.manager.decisions.trigger_rules import evaluate, run_outcome
from backfill_manager.model import states as s
from backfill_manager.model.states import TRIGGER_RULES

STATES = (s.RUNNING, s.SUCCESS, s.FAILED, s.UPSTREAM_FAILED, s.SKIPPED, s.CANCELLED)
BAD = {s.FAILED, s.UPSTREAM_FAILED, s.CANCELLED}


def starts(rule: str, upstream: tuple[str, ...]) -> bool:
    """When the rule lets a task start, as Airflow's documentation puts it."""
    succeeded, failed = [x == s.SUCCESS for x in upstream], [x in BAD for x in upstream]
    skipped, done = [x == s.SKIPPED for x in upstream], s.RUNNING not in upstream
    return {
        "all_success": all(succeeded),
        "all_failed": all(failed),
        "all_done": done,
        "one_success": any(succeeded),
        "one_failed": any(failed),
        "none_failed": done and not any(failed),
        "none_failed_min_one_success": done and not any(failed) and any(succeeded),
        "none_skipped": done and not any(skipped),
        "always": True,
    }[rule]


@pytest.mark.parametrize("rule", TRIGGER_RULES)
def test_a_task_starts_exactly_when_its_rule_says(rule: str) -> None:
    for n in (1, 2, 3):
        for upstream in itertools.product(STATES, repeat=n):
            assert (evaluate(rule, upstream) == "start") == starts(rule, upstream), (rule, upstream)


@pytest.mark.parametrize("rule", TRIGGER_RULES)
def test_a_task_whose_upstream_is_done_never_waits_for_ever(rule: str) -> None:
    for upstream in itertools.product(STATES[1:], repeat=3):
        assert evaluate(rule, upstream) != "wait", (rule, upstream)


@pytest.mark.parametrize("rule", TRIGGER_RULES)
def test_what_will_not_start_ends_the_same_way_in_whatever_order_its_upstream_ends(rule: str) -> None:
    for upstream in itertools.product(STATES, repeat=2):
        early = evaluate(rule, upstream)
        if early in ("skip", "upstream_failed"):
            for rest in itertools.product(STATES[1:], repeat=upstream.count(s.RUNNING)):
                left = iter(rest)
                later = tuple(next(left) if state == s.RUNNING else state for state in upstream)
                assert evaluate(rule, later) == early, (rule, upstream, later)


def test_a_root_starts_whatever_its_rule() -> None:
    assert {evaluate(rule, ()) for rule in TRIGGER_RULES} == {"start"}


def test_an_unknown_rule_is_reported() -> None:
    with pytest.raises(InvalidInput, match="all_sucess"):
        evaluate("all_sucess", [s.SUCCESS])


def test_the_leaves_decide_how_a_run_ends_and_a_cancelled_task_decides_for_all() -> None:
    assert run_outcome([s.SUCCESS], [s.FAILED, s.SUCCESS]) == s.SUCCESS, "an all_done leaf has mended it"
    assert run_outcome([s.SUCCESS, s.UPSTREAM_FAILED], [s.FAILED, s.SUCCESS, s.UPSTREAM_FAILED]) == s.FAILED
    assert run_outcome([s.SKIPPED], [s.SUCCESS, s.SKIPPED]) == s.SUCCESS
    assert run_outcome([s.SUCCESS], [s.CANCELLED, s.SUCCESS]) == s.CANCELLED
