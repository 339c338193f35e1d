"""Rows as documents: the JSON form of the resources in `schemas.resources`, with instants as text."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Any

from backfill_manager.clock import format_instant


def document(names: Iterable[str], row: object, **computed: Any) -> dict[str, Any]:
    """The fields `names` (of a resource: `Run.model_fields`): computed ones, and columns of the row."""
    values = ((name, computed[name] if name in computed else getattr(row, name)) for name in names)
    return {name: format_instant(value) if isinstance(value, datetime) else value for name, value in values}


def seconds_between(start: datetime | None, end: datetime | None) -> float | None:
    return None if start is None or end is None else (end - start).total_seconds()


def rounded(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds, 3)
