"""The part of a dry run's plan that a page shows: the first and last items, why others are skipped, the figures.

The document is the one that the manager answers with (`BackfillPlan.to_json_document`); there may be a million items in it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import islice
from typing import Any, Final

import pyarrow as pa

from backfill_manager.model import states
from backfill_manager.queries.item_map import ItemMap, Label, item_map

SHOWN_FIRST: Final = 12
SHOWN_LAST: Final = 3
SHOWN_SKIPPED: Final = 8  # of each reason


def plan_shown(document: Mapping[str, Any]) -> dict[str, Any]:
    """`summary`, `items` (some), `hidden` (how many are left out between the first and the last), `skipped` (by reason:
    how many, some of them), `map`, and `downstream`: the same of each backfill that follows, without items."""
    items: Sequence[Mapping[str, Any]] = document["items"]
    few = len(items) <= SHOWN_FIRST + SHOWN_LAST + 1
    return {
        "summary": document["summary"],
        "items": list(items) if few else items[:SHOWN_FIRST],
        "tail": [] if few else items[-SHOWN_LAST:],
        "hidden": 0 if few else len(items) - SHOWN_FIRST - SHOWN_LAST,
        "skipped": _skipped(items, document["summary"]["skipped"]),
        "map": _map_of(items),
        "downstream": [
            {"dag_id": one["dag_id"], "waits_for": one["waits_for"], "summary": one["summary"]}
            for one in document.get("downstream", ())
        ],
    }


def _skipped(items: Sequence[Mapping[str, Any]], by_reason: Mapping[str, int]) -> list[dict[str, Any]]:
    def some(reason: str) -> list[Mapping[str, Any]]:
        of_it = (item for item in items if item["state"] == states.SKIPPED and item["reason"] == reason)
        return list(islice(of_it, min(SHOWN_SKIPPED, by_reason[reason])))

    return [{"reason": reason, "items": number, "some": some(reason)} for reason, number in by_reason.items()]


def _map_of(items: Sequence[Mapping[str, Any]]) -> ItemMap | None:
    if not items:
        return None
    label: Label = "partition_key" if items[0]["logical_date"] is None and items[0]["partition_key"] else "logical_date"
    types = {"ordinal": pa.int64(), "state": pa.string(), label: pa.string()}
    table = pa.table({name: pa.array([item[name] for item in items], type) for name, type in types.items()})
    return item_map(table, 1, len(items), label)
