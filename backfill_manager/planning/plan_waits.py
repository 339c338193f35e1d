"""What the items of a dry run would wait for, were they made now: tables that no task has written, and what others have not
delivered."""

from __future__ import annotations

import dataclasses
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from backfill_manager.model import states
from backfill_manager.planning.backfill_plan import BackfillPlan
from backfill_manager.planning.wait_looks import Look, looks_of
from backfill_manager.planning.written_intervals import read_written
from backfill_manager.schemas.waits import ExternalWait, Wait, label
from backfill_manager.store.base import Store

MAX_LOOKED_AT: Final = 10_000  # items that are looked for; of those behind nothing is known

LookFor = Callable[[Sequence[Look]], Mapping[Look, bool | str]]
"""What is there, and where nobody can say, why; what it leaves out has not been looked for."""


@dataclass(frozen=True)
class ItemWaits:
    """What an item would wait for, as it is named to people; `unknown`: nobody has looked for it."""

    missing: tuple[str, ...]
    unknown: tuple[str, ...]


def with_waits(plan: BackfillPlan, store: Store, look_for: LookFor) -> BackfillPlan:
    """The plan with its `waits`, by ordinal, and the sums of them."""
    waits = tuple(dict.fromkeys(wait for task_id in plan.tasks for wait in plan.dag.task(task_id).waits_for))
    if not waits:
        return plan
    written = read_written(store, [wait for wait in waits if isinstance(wait, str)])
    columns = ["ordinal", "interval_start", "interval_end", "partition_key", "state"]
    items = [item for item in plan.items.select(columns).to_pylist() if item["state"] == states.PENDING]
    others: dict[tuple[int, ExternalWait], tuple[Look, ...]] = {
        (item["ordinal"], wait): looks_of(
            wait, plan.dag, item["interval_start"], item["interval_end"], item["partition_key"]
        )
        for item in items[:MAX_LOOKED_AT]
        for wait in waits
        if not isinstance(wait, str)
    }
    seen = look_for(tuple(dict.fromkeys(look for looks in others.values() for look in looks)))
    missing, unknown = Counter[Wait](), Counter[Wait]()
    problems: dict[Wait, str] = {}
    by_item: dict[int, ItemWaits] = {}
    for item in items:
        of_item: dict[bool, list[str]] = defaultdict(list)  # whether it is known to be missing
        for wait in waits:
            if isinstance(wait, str):
                part = (item["interval_start"], item["interval_end"], item["partition_key"])
                if not written[wait].covers(*part):
                    missing[wait] += 1
                    of_item[True].append(wait)
                continue
            looks = others.get((item["ordinal"], wait), ())
            results = [seen.get(look) for look in looks]
            if results and all(result is True for result in results):
                continue
            problem = next((result for result in results if isinstance(result, str)), None)
            if problem is not None:
                problems.setdefault(wait, problem)
            is_known = problem is not None or False in results
            (missing if is_known else unknown)[wait] += 1
            first = next((look for look, result in zip(looks, results, strict=True) if result is not True), None)
            of_item[is_known].append(label(wait) if first is None else first.label)
        if of_item:
            by_item[item["ordinal"]] = ItemWaits(tuple(of_item[True]), tuple(of_item[False]))
    sums = [
        {
            "waits_for": label(wait), "missing": missing[wait], "unknown": unknown[wait], "problem": problems.get(wait),
        }
        for wait in waits
    ]  # fmt: skip
    return dataclasses.replace(plan, waits=by_item, wait_sums=sums)
