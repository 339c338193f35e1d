"""Rows that are wrong in a table whose files are whole: several of one key, JSON that can't be read, unknown states,
and numbers that are too small.

Somebody else wrote them: no leader does. `request` is left out: clients append to it whatever they like, one request twice, too,
and the manager refuses what it can't read.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from backfill_manager.clock import EPOCH
from backfill_manager.humanise import plural
from backfill_manager.model import states as s
from backfill_manager.model.records import Record, Request, columns, has_run_seq
from backfill_manager.model.stored_json import KINDS, is_readable
from backfill_manager.store.sql_text import python_columns, select

MAX_NAMED: Final = 3
SEQS_AT_ONCE: Final = 50_000  # whose JSON is read at once
BACK_UP: Final = "restore it from a back-up (docs/how-to/back-it-up.md)"
LEAST: Final = {"backfill": {"max_active_runs": 1, "batch": 0}, "dag_run": {"items": 1}, "pool": {"slots": 1}}
_COUNTERS: Final = ("generation", "launch", "try_number", "current_version", "term")  # a newer row has a higher one
_FINISHED: Final = s.TASK_FINISHED | s.RUN_FINISHED | s.BACKFILL_FINISHED | {s.STOPPED, "sent"}
# `run_seq`, where there is one, and key: states of older releases have one key with two `run_seq`s.
Place = tuple[Any, ...]
Run = Callable[[str], Any]  # a statement over the table; gives an Arrow table


@dataclass(frozen=True)
class Wrong:
    what: str
    remedy: str  # what `--repair` does, or what a person has to do
    can_be_repaired: bool
    places: Sequence[Place]  # of the rows
    column: str | None = None  # that is no JSON; None: the rows have their key in common

    def __str__(self) -> str:
        return f"{self.what}: {self.remedy}"


def wrong_rows(record: type[Record], name: str, run: Run) -> list[Wrong]:
    """`name`: of the table in statements."""
    if record is Request:
        return []
    by, found = place_columns(record), list[Wrong]()
    twice = _rows(run(select(name, [*by, "count(*)"], group_by=by, having="count(*) > 1")))
    if twice:
        places = [row[:-1] for row in twice]
        what = f"several rows of {plural(len(places), 'key')} ({_some(record, places)})"
        found.append(Wrong(what, "the repair keeps the newest row of each", True, places))
    for column, condition, what in _conditions(record):
        if wrong := _rows(run(select(name, by, condition))):
            what = f"{column} of {plural(len(wrong), 'row')} {what} ({_some(record, wrong)})"
            found.append(Wrong(what, BACK_UP, False, wrong, column))
    for column, places in _unreadable(record, name, run).items():
        can_be_null = columns(record)[column][1]
        what = f"{column} of {plural(len(places), 'row')} is no JSON{_kind_of(column)} ({_some(record, places)})"
        found.append(Wrong(what, "the repair makes it null" if can_be_null else BACK_UP, can_be_null, places, column))
    return found


def _conditions(record: type[Record]) -> Iterator[tuple[str, str, str]]:
    """Column, what holds for its wrong values, and what is wrong with them."""
    if known := s.STATES.get(record.TABLE):
        yield "state", f"state NOT IN ({', '.join(map(repr, known))})", "is no state"
    for column, least in LEAST.get(record.TABLE, {}).items():
        yield column, f"{column} < {least}", f"is less than {least}"


def corrected(record: type[Record], rows: Sequence[Record]) -> list[Record]:
    """One row of each place, the newest, without the JSON that can't be read where null may stand for it."""
    newest: dict[Place, Record] = {}
    for row in rows:
        place = _place(record, row)
        if place not in newest or _age(row) > _age(newest[place]):
            newest[place] = row
    return [row.evolve(**dict.fromkeys(_unreadable_columns(record, row))) for row in newest.values()]


def place_columns(record: type[Record]) -> list[str]:
    return ["run_seq", *record.KEY] if has_run_seq(record) else list(record.KEY)


def _place(record: type[Record], row: Record) -> Place:
    return tuple(getattr(row, name) for name in place_columns(record))


def _age(row: Record) -> tuple[Any, ...]:
    """Of two rows of one place the greater is the newer one."""
    values = vars(row)
    instants = [at for name, at in values.items() if name.endswith("_at") and isinstance(at, datetime)]
    is_finished = values.get("state") in _FINISHED
    counters = [values.get(name) or 0 for name in _COUNTERS]
    can_be_read = all(is_readable(name, values[name]) for name in _json_columns(type(row)))
    return (
        can_be_read,
        *counters,
        is_finished,
        max(instants, default=EPOCH),
        sum(value is not None for value in values.values()),
    )


def _unreadable(record: type[Record], name: str, run: Run) -> dict[str, list[Place]]:
    """Column -> the places of its rows."""
    names, by, found = _json_columns(record), place_columns(record), defaultdict[str, list[Place]](list)
    for where in _parts(record, name, run) if names else ():
        read = python_columns(run(select(name, [*by, *names], where)))
        places = list(zip(*read[: len(by)], strict=True))
        for column, values in zip(names, read[len(by) :], strict=True):
            wrong = {value for value in set(values) if not is_readable(column, value)}
            if wrong:
                found[column] += [place for place, value in zip(places, values, strict=True) if value in wrong]
    return found


def _kind_of(column: str) -> str:
    if column not in KINDS:
        return ""
    return " object" if KINDS[column][0] is dict else " array of the right kind"


def _parts(record: type[Record], name: str, run: Run) -> Iterator[str]:
    """Conditions that divide the table, so that no large one is in memory as a whole."""
    if not has_run_seq(record):
        yield "TRUE"
        return
    ((first, last),) = _rows(run(select(name, ["min(run_seq)", "max(run_seq)"])))
    for begin in range(first, last + 1, SEQS_AT_ONCE) if first is not None else ():
        yield f"run_seq >= {begin} AND run_seq < {begin + SEQS_AT_ONCE}"


def _unreadable_columns(record: type[Record], row: Record) -> list[str]:
    return [
        name for name in _json_columns(record) if columns(record)[name][1] and not is_readable(name, getattr(row, name))
    ]


def _json_columns(record: type[Record]) -> list[str]:
    return [name for name in columns(record) if name.endswith("_json")]


def _rows(table: Any) -> list[tuple[Any, ...]]:
    return list(zip(*python_columns(table), strict=True))


def _some(record: type[Record], places: Sequence[Place]) -> str:
    names = sorted({"/".join(map(str, place[-len(record.KEY) :])) for place in places})
    return ", ".join(names[:MAX_NAMED]) + (f" and {len(names) - MAX_NAMED:,} more" if len(names) > MAX_NAMED else "")
