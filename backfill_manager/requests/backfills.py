"""Asking for a backfill: what can be said, and everything that can be refused before the manager hears of it.

The payload of a `backfill.create` request is `BackfillAsk.to_payload()`. The backfill's id is chosen by whoever asks, so
that the answer to "which backfill is mine?" needs no waiting, and the same request sent twice makes one backfill.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final, Literal

from backfill_manager.clock import format_instant, parse_instant
from backfill_manager.dags.definition import DagSpec
from backfill_manager.errors import InvalidInput

KINDS: Final = ("schedule", "single", "dates", "partitions")
REPROCESS: Final = ("none", "failed", "completed")


@dataclass(frozen=True)
class BackfillAsk:
    """One backfill as asked for. Instants are UTC. `config` in the state is the tagged union that `config_json` makes."""

    dag_id: str
    kind: Literal["schedule", "single", "dates", "partitions"] = "schedule"
    start_date: datetime | None = None  # schedule, single
    end_date: datetime | None = None  # schedule: the last interval starts at or before it; single: the range's end
    dates: tuple[datetime, ...] = ()
    partitions: tuple[str, ...] = ()
    run_backwards: bool = False
    reprocess: str = "none"
    max_active_runs: int | None = None  # None: the DAG's own
    batch: int = 1
    conf: dict[str, Any] = field(default_factory=dict)
    tasks: str | None = None
    mark_success: bool = False
    stop_on_failure: int | None = None
    pool: str = "backfill"
    priority: int = 0

    def config(self) -> dict[str, Any]:
        """The tagged union as it is kept and shown."""
        if self.kind == "dates":
            body: dict[str, Any] = {"dates": [format_instant(d) for d in self.dates]}
        elif self.kind == "partitions":
            body = {"partitions": list(self.partitions)}
        else:
            body = {"start_date": format_instant(self.start_date), "end_date": format_instant(self.end_date)}
        return {"type": self.kind, **body, "run_backwards": self.run_backwards}

    def to_payload(self) -> str:
        plain = {name: value for name, value in self.__dict__.items() if name not in {"start_date", "end_date", "dates"}}
        plain["partitions"] = list(self.partitions)
        plain["start_date"], plain["end_date"] = format_instant(self.start_date), format_instant(self.end_date)
        plain["dates"] = [format_instant(d) for d in self.dates]
        return json.dumps(plain, sort_keys=True)

    @classmethod
    def from_payload(cls, plain: dict[str, Any]) -> BackfillAsk:
        known = dict(plain)
        for name in ("start_date", "end_date"):
            known[name] = parse_instant(known[name]) if known.get(name) else None
        known["dates"] = tuple(parse_instant(d) for d in known.get("dates", ()))
        known["partitions"] = tuple(known.get("partitions", ()))
        return cls(**known)
