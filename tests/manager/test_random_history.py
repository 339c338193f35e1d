"""Ninety days of random operations end by docs/semantics.md, whatever is requested and whenever the manager is killed.

Some eighty histories always, a thousand with `--slow`. A failing seed tells its story: what was asked, and when.
"""

from __future__ import annotations

import pytest
from support.random_history import Calm, History, MarksMidway, Stormy

# In these a batch is cleared while its halves wait in a paused backfill, failed items fail once more after a clear, or a task of
# a batch that succeeded is marked failed.
TOLD = (141, 232, 441, 450, 491, 500)
SLOW = [pytest.param(seed, marks=pytest.mark.slow) for seed in range(40, 700) if seed not in TOLD]
MARKS_SLOW = [pytest.param(seed, marks=pytest.mark.slow) for seed in range(10, 400) if seed != 102]
STORMY_SLOW = [pytest.param(seed, marks=pytest.mark.slow) for seed in range(20, 340)]


def tell(history: History, operations: int) -> None:
    try:
        history.run(operations)
    except Exception as error:
        last = "\n".join(history.story[-25:])
        raise AssertionError(f"seed {history.seed}: {error}\n{last}") from error


@pytest.mark.parametrize("seed", [*range(40), *TOLD, *SLOW])
def test_ninety_days_end_as_a_plain_model_predicts(seed: int) -> None:
    tell(Calm(seed), 110)


@pytest.mark.parametrize("seed", [*range(10), 102, *MARKS_SLOW])
def test_tasks_that_are_marked_while_others_of_their_run_go_on_end_as_the_model_predicts(seed: int) -> None:
    tell(MarksMidway(seed), 110)


@pytest.mark.parametrize("seed", [*range(20), *STORMY_SLOW])
def test_what_is_asked_all_at_once_breaks_no_rule(seed: int) -> None:
    tell(Stormy(seed), 300)


def test_a_history_without_a_crash_ends_in_the_same_state() -> None:
    tell(Calm(1, fragile=0.0), 200)
