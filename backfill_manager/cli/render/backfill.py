"""Backfills and their items in words and columns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from backfill_manager.cli.render.output import Column
from backfill_manager.model.states import ITEM_STATES

LAST_COMPLETE = "the last complete interval"  # an end that was left out, until the manager has planned it


def format_config(config: Any) -> str:
    """`schedule 2013-01-01T05:00:00Z .. 2013-01-31T05:00:00Z`, `3 dates`, `2 partitions`."""
    kind = config.get("type", "?")
    backwards = ", newest first" if config.get("run_backwards") else ""
    future = ", also intervals that have not ended" if config.get("allow_future") else ""
    if kind in {"dates", "partitions"}:
        number = config.get("total", len(config.get(kind, ())))
        return f"{number} {kind if number != 1 else kind[:-1]}{backwards}{future}"
    return f"{kind} {config.get('start_date') or ''} .. {config.get('end_date') or LAST_COMPLETE}{backwards}{future}"


def format_item_counts(backfill: dict[str, Any]) -> str:
    """`31: 4 success, 1 failed, 26 pending`"""
    counts = [f"{backfill[state]} {state}" for state in ITEM_STATES if backfill[state]]
    return f"{backfill['planned']}: {', '.join(counts)}" if counts else ""


def item_columns(items: Sequence[Mapping[str, Any]], *more: str) -> list[Column | str]:
    """Those in which some item has a value."""
    names = ["logical_date", "interval_start", "interval_end", "partition_key", "batch", "state", "reason", *more]
    if all(item.get("interval_start") == item.get("logical_date") for item in items):
        names.remove("interval_start")
    return [
        Column("ordinal", "#", right=True),
        *(
            Column(name, fold=name == "reason", optional=name == "interval_end")
            for name in names
            if name == "state" or any(item.get(name) is not None for item in items)
        ),
    ]
