"""What the items of a dry run would wait for, were they made now: tables that no task has written, and what others have not
delivered."""

from __future__ import annotations

import copy
import dataclasses
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from backfill_manager.model import states
from backfill_manager.planning.backfills.backfill_plan import BackfillPlan
from backfill_manager.planning.data.wait_conditions import WaitCheck, wait_checks_of
from backfill_manager.planning.data.written_intervals import WrittenIntervals, read_written
from backfill_manager.schemas.waits import ExternalWait, Wait, label
from backfill_manager.store.base import Store
from backfill_manager.value_rules import table_key, table_keys

MAX_LOOKED_AT: Final = 10_000  # items that are looked for; of those behind nothing is known

CheckWaits = Callable[[Sequence[WaitCheck]], Mapping[WaitCheck, bool | str]]
"""What is there, and where nobody can say, why; what it leaves out has not been looked for."""


@dataclass(frozen=True)
class ItemWaits:
    """What an item would wait for, as it is named to people; `unknown`: nobody has looked for it."""

    missing: tuple[str, ...]
    unknown: tuple[str, ...]


def with_waits(plan: BackfillPlan, store: Store, check_waits: CheckWaits) -> BackfillPlan:
    """The plan and those downstream of it with their `waits`, by ordinal, and the sums of them. What a plan's parents will write
    is there for it: its items come after theirs."""
    plans = [_Waiting(one) for one in (plan, *plan.downstream)]
    if not any(one.waits for one in plans):
        return plan
    names = {wait for one in plans for wait in one.waits if isinstance(wait, str)}
    written = read_written(store, names)
    seen = check_waits(tuple(dict.fromkeys(look for one in plans for looks in one.looks.values() for look in looks)))
    by_id = {one.dag.dag_id: one for one in (plan, *plan.downstream)}
    root, *below = (one.made(_with_parents(written, one, by_id), seen) for one in plans)
    return dataclasses.replace(root, downstream=tuple(below))


def _with_parents(
    written: Mapping[str, WrittenIntervals], one: _Waiting, plans: Mapping[str, BackfillPlan]
) -> Mapping[str, WrittenIntervals]:
    """What is written once the plans that this one waits for are done."""
    found = dict(written)
    for parent in (plans[dag_id] for dag_id in one.plan.parents):
        keys = {table_key(table) for table in parent.dag.output_tables}
        for name in (wait for wait in one.waits if isinstance(wait, str) and not keys.isdisjoint(table_keys(wait))):
            found[name] = copy.deepcopy(found[name])
            for item in _pending(parent):
                found[name].add(item["interval_start"], item["interval_end"], item["partition_key"])
    return found


def _pending(plan: BackfillPlan) -> list[dict[str, Any]]:
    columns = ["ordinal", "interval_start", "interval_end", "partition_key", "state"]
    return [item for item in plan.items.select(columns).to_pylist() if item["state"] == states.PENDING]


class _Waiting:
    """One plan, what its tasks wait for, and what has to be looked for."""

    def __init__(self, plan: BackfillPlan) -> None:
        self.plan = plan
        tasks = () if plan.command.mark_success else plan.tasks
        self.waits = tuple(dict.fromkeys(wait for task_id in tasks for wait in plan.dag.task(task_id).waits_for))
        self.items = _pending(plan) if self.waits else []
        self.looks: dict[tuple[int, ExternalWait], tuple[WaitCheck, ...]] = {
            (item["ordinal"], wait): wait_checks_of(
                wait, plan.dag, item["interval_start"], item["interval_end"], item["partition_key"]
            )
            for item in self.items[:MAX_LOOKED_AT]
            for wait in self.waits
            if not isinstance(wait, str)
        }

    def made(self, written: Mapping[str, WrittenIntervals], seen: Mapping[WaitCheck, bool | str]) -> BackfillPlan:
        missing, unknown = Counter[Wait](), Counter[Wait]()
        problems: dict[Wait, str] = {}
        by_item: dict[int, ItemWaits] = {}
        for item in self.items:
            of_item: dict[bool, list[str]] = defaultdict(list)  # whether it is known to be missing
            for wait in self.waits:
                if isinstance(wait, str):
                    part = (item["interval_start"], item["interval_end"], item["partition_key"])
                    if not written[wait].covers(*part):
                        missing[wait] += 1
                        of_item[True].append(wait)
                    continue
                looks = self.looks.get((item["ordinal"], wait), ())
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
            for wait in self.waits
        ]  # fmt: skip
        return dataclasses.replace(self.plan, waits=by_item, wait_sums=sums)
