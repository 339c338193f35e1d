"""Sizes the batches of a backfill with `batch=auto`: how many items its next run takes. Pure.

A run of n items takes `fixed + per_item * n` seconds, by the runs that have ended (`cost_of`). The next one takes as many items
as let all slots end together (`_share`), but no more than

- would end within the target duration and within the time window, and leave each task half of its `timeout`,
- `GROWTH` times as many as a run has succeeded with; after a failure at most half of what failed (`growth_limit`),
- `MOST`.

The dry run performs the same steps on a clock of its own (`simulate`).
"""

from __future__ import annotations

import heapq
import math
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from backfill_manager import humanise

GROWTH: Final = 4
MOST: Final = 1000  # items of one run: beyond, the fixed part of a run's cost has no weight
MAX_PAST: Final = 50  # runs that are looked at
MAX_SIMULATED: Final = 1000  # runs of one dry run; all later ones are as large as the last
_NEWEST: Final = 5  # runs that say how many rows the coming items have
_LEAST_S: Final = 1e-6
_OF_TIMEOUT: Final = 0.5  # the part of its timeout that a task may be expected to take

Bound = Literal["slots", "target", "window", "timeout", "growth", "most"]  # what decides the size of a batch


@dataclass(frozen=True)
class PastRun:
    """A run that has ended. `seconds`: as if no task of it had waited for a slot or for another run."""

    items: int
    seconds: float
    rows: int = 0  # that its tasks wrote; 0: none, or not known
    failed: bool = False
    own: bool = True  # of this backfill
    lasted_s: float = 0.0  # from its start to its end, with all waits
    of_timeout: float = 0.0  # the largest part of its timeout that a task of it took; 0: none has one


@dataclass(frozen=True)
class Cost:
    """Seconds that a run takes: a fixed part, and one for each item. `runs`: how many runs say so. `longest_s`: of a run whose
    tasks are to end well before their timeouts."""

    fixed_s: float
    per_item_s: float
    runs: int = 0
    longest_s: float = math.inf

    def seconds(self, items: int) -> float:
        return self.fixed_s + self.per_item_s * items

    def fitting(self, seconds: float) -> int:
        """The most items, up to `MOST`, of which a run takes no longer; 1 where even that takes longer."""
        return max(1, int(min(MOST, (seconds - self.fixed_s) / self.per_item_s + 1e-9)))


@dataclass(frozen=True)
class BatchLimits:
    """What a backfill's runs have: `slots` runs at once, of which none is to take longer than `target_s`, nor than what is
    left of the time window."""

    slots: int
    target_s: float
    window_s: float | None = None


@dataclass(frozen=True)
class Size:
    items: int
    bound: Bound


def cost_of(past: Sequence[PastRun]) -> Cost | None:
    """By the backfill's own runs once they are of two sizes; else by all. None: no run has succeeded.

    Least squares over the medians of each size, and more where the newest runs took longer than that. An item counts by its
    rows where all runs have written some: as one of the newest runs counts 1. Where sizes are equal, or larger runs took no
    longer, nothing tells the parts apart: then all of what the largest took is taken to be its items', which is too much for
    a larger run, never too little."""
    done = [run for run in past if not run.failed]
    own = [run for run in done if run.own]
    used = own if len({run.items for run in own}) > 1 else done
    if not used:
        return None
    newest = used[-_NEWEST:]
    rows_of_item = sum(run.rows for run in newest) / sum(run.items for run in newest)
    by_rows = all(run.rows > 0 for run in used)

    def weight(run: PastRun) -> float:
        return run.rows / rows_of_item if by_rows else float(run.items)

    of_sizes = [[run for run in used if run.items == size] for size in sorted({run.items for run in used})]
    weights = [statistics.median(map(weight, runs)) for runs in of_sizes]
    seconds = [statistics.median(run.seconds for run in runs) for runs in of_sizes]
    longest_s = min((run.seconds * _OF_TIMEOUT / run.of_timeout for run in newest if run.of_timeout), default=math.inf)
    line = statistics.linear_regression(weights, seconds) if len(set(weights)) > 1 else None
    if line is None or line.slope <= 0:
        return Cost(0.0, max(_LEAST_S, seconds[-1] / weights[-1]), len(used), longest_s)
    fixed_s, per_item_s = max(0.0, line.intercept), max(_LEAST_S, line.slope)
    slower = max(1.0, statistics.median(run.seconds / (fixed_s + per_item_s * weight(run)) for run in newest))
    return Cost(fixed_s * slower, per_item_s * slower, len(used), longest_s)


def waiting_factor(past: Sequence[PastRun]) -> float:
    """How many times as long the newest runs lasted as their tasks took, at least 1: they wait for slots and for each other."""
    newest = [run for run in past if run.seconds > 0][-_NEWEST:]
    return max(1.0, statistics.median(run.lasted_s / run.seconds for run in newest)) if newest else 1.0


def growth_limit(past: Iterable[PastRun]) -> int:
    """The most items that may be tried, by how runs ended so far; the oldest first."""
    limit = 1
    for run in past:
        limit = max(1, min(limit, run.items // 2)) if run.failed else max(limit, GROWTH * run.items)
    return min(limit, MOST)


def size_of_next(
    cost: Cost | None, limit: int, limits: BatchLimits, pending: int, busy_s: Sequence[float] = ()
) -> Size:
    """How many of the `pending` items (at least 1) the next run takes. `limit`: of `growth_limit`; `busy_s`: for each active
    run the seconds until it ends."""
    bounds: list[tuple[int, Bound]] = [(_share(cost, limits.slots, pending, busy_s), "slots"), (MOST, "most")]
    if cost is not None:
        bounds.append((cost.fitting(limits.target_s), "target"))
        bounds.append((cost.fitting(cost.longest_s), "timeout"))
        if limits.window_s is not None:
            bounds.append((cost.fitting(limits.window_s), "window"))
    bounds.append((limit, "growth"))
    items, bound = min(bounds, key=lambda one: one[0])
    return Size(min(items, pending), bound)


def _share(cost: Cost | None, slots: int, pending: int, busy_s: Sequence[float]) -> int:
    """The part of the pending items that lets all slots end at the same time. A slot that will be free only after that gets
    none: so what is left is split over those that are free, and a run that is nearly over counts as free."""
    if cost is None:
        return -(-pending // slots)
    free_at = [0.0] * (slots - len(busy_s)) + sorted(busy_s)[-slots:]
    work_s, waited_s, used = pending * cost.per_item_s, 0.0, 0
    for at in free_at:  # `(work_s + waited_s) / used` is when all would end that are free before
        if used and at >= (work_s + waited_s) / used:
            break
        used, waited_s = used + 1, waited_s + at
    ends = (work_s + waited_s) / used
    return max(1, math.ceil((ends - free_at[0]) / cost.per_item_s - 1e-9))


_WHY: Final[dict[Bound, str]] = {
    "slots": "so that {slots} end together",
    "target": "so that none takes longer than {target}",
    "window": "so that each ends within the time window",
    "timeout": "so that each task ends in half of its timeout",
    "growth": f"at most {GROWTH} times as many at once as have succeeded before",
    "most": f"{MOST:,} being the most",
}


@dataclass(frozen=True)
class Simulated:
    """The sizes of runs in the order of making, what bound the largest, and the seconds until the last one ends; None where no
    run has ended yet."""

    sizes: tuple[int, ...]
    bound: Bound
    total_s: float | None


def simulate(past: Sequence[PastRun], stretches: Sequence[int], limits: BatchLimits, max_active_runs: int) -> Simulated:
    """The runs of a backfill whose pending items are so many without a gap between them (`stretches`), if all succeed. A run
    that finds no slot free begins when the next one is."""
    cost, limit = cost_of(past), growth_limit(past)
    assumed, pending, now, ends = cost or Cost(1.0, _LEAST_S), sum(stretches), 0.0, 0.0
    sizes: list[int] = []
    largest = Size(0, "slots")
    active: list[tuple[float, int]] = []
    free_at = [0.0] * limits.slots
    for stretch in stretches:
        while stretch:
            if len(active) >= max_active_runs:
                now, ended = heapq.heappop(active)
                limit = max(limit, min(MOST, GROWTH * ended))
            if len(sizes) < MAX_SIMULATED:
                size = size_of_next(cost, limit, limits, pending, [end - now for end, _ in active])
                largest = max(largest, size, key=lambda one: one.items)
            items = min(size.items, stretch)
            end = max(now, free_at[0]) + assumed.seconds(items)
            heapq.heapreplace(free_at, end)
            heapq.heappush(active, (end, items))
            ends = max(ends, end)
            sizes.append(items)
            stretch, pending = stretch - items, pending - items
    return Simulated(tuple(sizes), largest.bound, ends if cost else None)


def why_so_large(runs: Simulated, past: Sequence[PastRun], limits: BatchLimits) -> str:
    """One sentence: which sizes these runs, of which there is one at least, have, and why."""
    cost, target = cost_of(past), humanise.duration(limits.target_s)
    if cost is None:
        return (
            "Batches size themselves: no complete run of this DAG has succeeded yet, so the first runs take 1 item each, later "
            f"ones up to {GROWTH} times as many as have succeeded at once, while a run takes no longer than {target}."
        )
    smallest, largest = min(runs.sizes), max(runs.sizes)
    sizes = (
        humanise.plural(largest, "item") if smallest == largest else f"{smallest} to {humanise.plural(largest, 'item')}"
    )
    why = _WHY[runs.bound].format(slots=humanise.plural(limits.slots, "slot"), target=target)
    return (
        f"Batches size themselves: by {humanise.plural(cost.runs, 'past run')} one takes about {cost.fixed_s:.3g} s and "
        f"{cost.per_item_s:.3g} s for each item, so runs take {sizes}: {why}."
    )
