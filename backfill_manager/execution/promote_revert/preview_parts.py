"""The parts of a table that a preview has written: intervals and partitions, joined where they meet. No Spark here."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from backfill_manager.clock import format_instant, parse_instant
from backfill_manager.execution.messages import AccessedTable
from backfill_manager.execution.output.staged_write import EVERY_ROW, Replaced
from backfill_manager.store.sql_guard import identifier


@dataclass(frozen=True)
class WriteOfTry:
    """What a commit says of one write of one try."""

    version: int  # of the clone
    dag_id: str
    run_id: str
    task_id: str
    launch: int
    interval: tuple[str, str] | None = None
    partition: str | None = None
    replaced: Replaced | None = None  # None: it may have changed any row
    key: tuple[str, ...] = ()  # by which it was merged
    reads: tuple[AccessedTable, ...] = ()  # by the try until then, see `Preview.reads`

    @classmethod
    def of(cls, version: int, about: Mapping[str, Any]) -> WriteOfTry:
        """`about`: what `WriteContext.user_metadata` has made."""
        interval, replaced = about.get("interval"), about.get("replaced")
        return cls(
            version, about["dag"], about["run"], about["task"], about["launch"],
            interval=None if interval is None else (interval[0], interval[1]), partition=about.get("partition"),
            replaced=None if replaced is None else Replaced(**replaced), key=tuple(about.get("key", ())),
            reads=tuple(
                AccessedTable("read", name, path, version, table_id=table_id)
                for name, path, version, table_id in about.get("reads", ())
            ),
        )  # fmt: skip

    @property
    def run(self) -> tuple[str, str]:
        return self.dag_id, self.run_id

    def described(self, *, whole: bool) -> dict[str, Any]:
        """What `of` reads. `whole`: as a write that may have changed any row."""
        about = {"dag": self.dag_id, "run": self.run_id, "task": self.task_id, "launch": self.launch}
        more: dict[str, Any] = {"interval": self.interval, "partition": self.partition}
        more["replaced"] = None if self.replaced is None or whole else asdict(self.replaced)
        return {**about, **{name: value for name, value in more.items() if value is not None}}


@dataclass(frozen=True)
class Parts:
    """Those of one table: none is the whole of it."""

    parts: tuple[Replaced, ...] = ()

    @classmethod
    def of(cls, writes: Iterable[WriteOfTry]) -> Parts:
        """Of all these writes; the whole table if one of them is not of an interval or a partition."""
        written = [one.replaced for one in writes]
        known = [one for one in written if one is not None]
        return cls(tuple(joined(known)) if len(known) == len(written) else ())

    @property
    def is_whole(self) -> bool:
        return not self.parts

    @property
    def condition(self) -> str:
        """In SQL: our own literals and quoted names."""
        return " OR ".join(f"({one.where})" for one in self.parts) if self.parts else EVERY_ROW

    @property
    def columns(self) -> list[str]:
        """By which they are parts."""
        return sorted({one.column for one in self.parts})

    def may_hold(self, file: Mapping[str, Any]) -> bool:
        """Whether rows of a file (the fields of Delta's `add` or `remove`) may be in one of them."""
        return self.is_whole or any(one.place_of(file) != "outside" for one in self.parts)

    def at_most(self, number: int) -> list[Replaced]:
        """Not more than so many, each of neighbours that are joined although they do not meet."""
        size = -(-len(self.parts) // number)
        groups = [self.parts[at : at + size] for at in range(0, len(self.parts), size)]
        return [group[0] if len(group) == 1 else _spanning(group) for group in groups]


def joined(parts: Iterable[Replaced]) -> list[Replaced]:
    """The same rows by fewer parts, in order: intervals that meet or overlap are one."""
    keys = dict[tuple[str, str, str], Replaced]()
    ranges = defaultdict[tuple[str, str], list[Replaced]](list)
    for one in parts:
        if one.key is not None:
            keys[one.column, one.kind, one.key] = one
        else:
            ranges[one.column, one.kind].append(one)
    found = [keys[key] for key in sorted(keys)]
    for same in ranges.values():
        run: list[Replaced] = []
        for one in sorted(same, key=_lower):
            if run and _lower(one) <= _upper(run[-1]):
                run[-1] = between(one, _lower(run[-1]), max(_upper(run[-1]), _upper(one)))
            else:
                run.append(one)
        found += run
    return found


def each(writes: Iterable[WriteOfTry], at_most: int) -> list[Replaced]:
    """The intervals and partitions as they were written; where there are more, neighbours are taken together."""
    parts = {one.replaced for one in writes if one.replaced is not None}
    unique = sorted(parts, key=lambda one: (_lower(one), one.key or ""))
    return Parts(tuple(unique)).at_most(at_most) if unique else []


def between(part: Replaced, lower: str, upper: str) -> Replaced:
    """A part of the same column with these ends, which are written as in `Replaced`."""
    column, kind = identifier(part.column), part.kind.upper()
    where = f"{column} >= {kind} '{lower}' AND {column} < {kind} '{upper}'"
    return replace(part, where=where, lower=lower, upper=upper, name=f"interval [{lower}, {upper})")


def label(part: Replaced) -> str:
    """For people."""
    if part.key is not None:
        return part.key
    lower, upper = (_short(end) for end in (_lower(part), _upper(part)))
    return f"{lower} – {upper}"


def instants(parts: Sequence[Replaced]) -> dict[str, str | None]:
    """The first and the last end of these intervals, for people in their zone; null of partitions, dates and readings of a wall
    clock, which have none."""
    if not parts or any(one.key is not None or one.kind != "timestamp" for one in parts):
        return {"interval_start": None, "interval_end": None}
    first, last = min(map(_lower, parts)), max(map(_upper, parts))
    return {"interval_start": format_instant(parse_instant(first)), "interval_end": format_instant(parse_instant(last))}


def _short(end: str) -> str:
    return end.replace(".000000", "").replace("T00:00:00Z", "").replace("T00:00:00", "")


def _spanning(group: Sequence[Replaced]) -> Replaced:
    if group[0].key is not None or len({(one.column, one.kind) for one in group}) > 1:
        where = " OR ".join(f"({one.where})" for one in group)
        return replace(group[0], where=where, key=f"{label(group[0])} … {label(group[-1])}")
    return between(group[0], _lower(group[0]), max(map(_upper, group)))


def _lower(part: Replaced) -> str:
    return part.lower or ""


def _upper(part: Replaced) -> str:
    return part.upper or ""
