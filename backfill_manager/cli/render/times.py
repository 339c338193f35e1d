"""`Times`: in which zone people see instants, as `--timezone` chooses. Documents for programs have UTC."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from datetime import datetime
from functools import cached_property
from typing import Any, Final
from zoneinfo import ZoneInfo, available_timezones

from backfill_manager.clock import UTC, format_instant, in_zone, parse_instant
from backfill_manager.errors import InvalidInput, nearest

UTC_CHOICE: Final = "utc"
OF_DAG: Final = "dag"
OF_MACHINE: Final = "local"
# Fields that hold instants; not ids, messages and what people have typed, which may look like one.
_FIELDS: Final = re.compile(r"at|.+_(?:at|date|since|until)|interval_(?:start|end)")
_INSTANT: Final = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?Z")


class Times:
    """`choice`: `utc`, `dag` (each DAG's zone, UTC for what belongs to none), `local` (this machine's), or the name of a zone."""

    def __init__(self, choice: str = UTC_CHOICE, zones_of_dags: Callable[[], Mapping[str, str]] = dict) -> None:
        self._choice, self._read_zones = choice, zones_of_dags

    def in_row(self, row: Mapping[str, Any], dag_id: str | None = None) -> dict[str, Any]:
        """The row with its instants in the chosen zone, each with its offset; of DAG `dag_id` where the row names none."""
        if self._choice == UTC_CHOICE:
            return dict(row)
        zone = self._zone(row, dag_id)
        return {name: self._value(name, value, zone) for name, value in row.items()}

    def _value(self, name: str, value: Any, zone: str | None) -> Any:
        if name == "config" and isinstance(value, Mapping):  # of a backfill: the bounds of its range
            return {key: self._value(key, one, zone) for key, one in value.items()}
        if not _FIELDS.fullmatch(name):
            return value
        if isinstance(value, datetime):
            value = format_instant(value)
        if not isinstance(value, str) or not _INSTANT.fullmatch(value):
            return value
        at = parse_instant(value)
        return at.astimezone().isoformat() if zone is None else in_zone(at, zone)

    def _zone(self, row: Mapping[str, Any], dag_id: str | None) -> str | None:
        """None: this machine's."""
        if self._choice == OF_MACHINE:
            return None
        if self._choice != OF_DAG:
            return self._choice
        zone = row.get("timezone") or self._zones.get(row.get("dag_id") or dag_id or "")
        return str(zone or UTC)

    @cached_property
    def _zones(self) -> Mapping[str, str]:
        return self._read_zones()


def check_choice(typed: str, option: str) -> str:
    """What `option` may be; `InvalidInput` with the nearest name."""
    choices = (UTC_CHOICE, OF_DAG, OF_MACHINE)
    if typed.lower() in choices:
        return typed.lower()
    try:
        return ZoneInfo(typed).key
    except (KeyError, ValueError, OSError):
        near = (
            nearest(typed, [*choices, *available_timezones()])
            or "; use utc, dag, local, or a name such as Europe/Berlin"
        )
        raise InvalidInput(f"{option}: there is no time zone {typed!r}{near}") from None
