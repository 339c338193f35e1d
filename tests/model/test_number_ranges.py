"""Sets of numbers as ranges: read, merged, written, and widened over gaps that don't matter."""

from __future__ import annotations

import random

import pytest

from backfill_manager.number_ranges import count_numbers, is_in, merged, range_texts, read_ranges, widened


def test_ranges_are_read_in_any_order_and_merged() -> None:
    ranges = read_ranges(["9", "1-3", "4", "2-3", "20-30"])
    assert ranges == ((1, 4), (9, 9), (20, 30))
    assert range_texts(ranges) == ("1-4", "9", "20-30")
    assert count_numbers(ranges) == 16
    assert read_ranges(range_texts(ranges)) == ranges


@pytest.mark.parametrize("text", ["", "x", "1-", "-3", "1,2", "1.5", "9" * 16, "0x1"])
def test_what_is_no_range_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="must be a number such as 5, or a range such as 5-20"):
        read_ranges([text])


def test_a_reversed_range_is_refused_with_the_right_one() -> None:
    with pytest.raises(ValueError, match="must begin with the lower number, 3-9"):
        read_ranges(["9-3"])


def test_widened_ranges_hold_what_was_chosen_of_those_that_are_there_and_no_other() -> None:
    dice = random.Random(7)
    for _ in range(200):
        there = sorted(dice.sample(range(60), dice.randint(0, 20)))
        chosen = merged((n, n) for n in dice.sample(range(60), dice.randint(0, 40)))
        wide = widened(chosen, there)
        assert [n for n in there if is_in(n, wide)] == [n for n in there if is_in(n, chosen)]
        assert len(wide) <= len(chosen)
        assert wide == merged(wide)
    assert widened(((1, 1), (5, 5), (9, 9)), [1, 5, 9]) == ((1, 9),)
    assert widened(((1, 1), (9, 9)), [1, 5, 9]) == ((1, 1), (9, 9))
