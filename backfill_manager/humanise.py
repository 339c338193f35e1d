"""How durations, sizes, ages, counts and a backfill's range are written, on pages and in the terminal."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from itertools import pairwise
from typing import Any, Final

_UNITS: Final = (("d", 86_400), ("h", 3600), ("min", 60), ("s", 1))
MAX_NAMES: Final = 10  # of a list in a sentence
CONTROL: Final = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
_STYLES: Final = re.compile(  # ECMA-48: colours, titles, moves of the cursor
    r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\^_])"
)


def visible(text: str) -> str:
    """What a terminal would obey (escapes, right-to-left) as Python writes it; ends of lines and tabs stay."""
    return CONTROL.sub(lambda found: ascii(found[0])[1:-1], text)


def without_styles(text: str) -> str:
    """What a terminal would leave to be read: without colours, and of a line that was written over the last state."""
    if "\x1b" in text:
        text = _STYLES.sub("", text)
    return "\n".join(map(_last_state, text.split("\n"))) if "\r" in text else text


def _last_state(line: str) -> str:
    """Of a progress bar, say: what comes after the last carriage return, but for those that end the line."""
    written = line.rstrip("\r")
    return written.rpartition("\r")[2] + line[len(written) :]


def duration(seconds: float, padded: bool = False) -> str:
    """`850 ms`, `4.2 s`, `3 min 5 s`, `2 h 10 min`, `3 d 4 h`; `padded`, for columns of a table: `0.8 s`, `3 min 05 s`."""
    if seconds < 0:
        return "0 s"
    if seconds < 0.9995 and not padded:
        return f"{seconds * 1000:.0f} ms"
    whole = round(seconds)
    for (unit, size_s), (small_unit, small_s) in pairwise(_UNITS):
        if whole >= size_s:
            n, small = whole // size_s, whole % size_s // small_s
            return f"{n} {unit} {small:0{1 + padded}} {small_unit}" if small or padded else f"{n} {unit}"
    return f"{seconds:.1f} s" if seconds < 9.95 else f"{whole} s"


def elapsed(seconds: float) -> str:
    """`4 s`, `3 min 5 s`: of what goes on, in whole seconds. `live.js` writes the same."""
    whole = max(int(seconds), 0)
    return f"{whole} s" if whole < 60 else duration(whole)


def estimate(seconds: float, padded: bool = False) -> str:
    """`about 3 min`, `less than 1 s`: nobody can tell milliseconds in advance."""
    return "less than 1 s" if seconds < 1 else f"about {duration(seconds, padded)}"


def age(at: datetime, now: datetime) -> str:
    """`3 min ago`, `in 2 h`, `now`."""
    seconds = (now - at).total_seconds()
    for unit, length_s in _UNITS:
        if abs(seconds) >= length_s:
            n = int(abs(seconds) // length_s)
            return f"{n} {unit} ago" if seconds > 0 else f"in {n} {unit}"
    return "now"


def size(n: float) -> str:
    """`512 B`, `1.5 kB`, `8.2 MB`: decimal units."""
    for unit in ("B", "kB", "MB", "GB", "TB"):
        if n < 1000 or unit == "TB":
            break
        n /= 1000
    return f"{n:.0f} {unit}" if unit == "B" or n >= 100 else f"{n:.1f} {unit}"


def memory(megabytes: int) -> str:
    """`512 MB`, `2 GB`, `1.5 GB`: of 1024 MB, as limits are set; a size that has no short text in GB stays in MB."""
    in_gb = round(megabytes / 1024, 2)
    return f"{in_gb:g} GB" if megabytes >= 1024 and in_gb * 1024 == megabytes else f"{megabytes} MB"


def number(value: float) -> str:
    """`336,776`; a float keeps two significant digits below 10."""
    if isinstance(value, int) or float(value).is_integer() or abs(value) >= 100:
        return f"{round(value):,}"
    return f"{value:.2g}" if abs(value) < 10 else f"{value:.1f}"


def plural(n: int, noun: str, plural_noun: str | None = None) -> str:
    """`1 run`, `1,234 runs`."""
    return f"{n:,} {noun if n == 1 else plural_noun or noun + 's'}"


def name_list(names: Sequence[str]) -> str:
    """`a, b, c`; of more than ten `a, b and 12 more`."""
    shown, more = ", ".join(names[:MAX_NAMES]), len(names) - MAX_NAMES
    return f"{shown} and {more} more" if more > 0 else shown


def unknown_pool(dag_id: str, pool: str, tasks: Sequence[str]) -> str:
    """`There is no pool 'slow', which task clean of DAG flights names: it fails when it starts`"""
    who, names, fail = (
        ("task", "names", "it fails when it starts")
        if len(tasks) == 1
        else ("tasks", "name", "they fail when they start")
    )
    return f"There is no pool {pool!r}, which {who} {name_list(tasks)} of DAG {dag_id} {names}: {fail}"


def unknown_pools(pools: Iterable[str]) -> str:
    """`; tasks name pools that do not exist: 'slow'`; nothing if there are none."""
    names = name_list(sorted({repr(pool) for pool in pools}))
    return f"; tasks name pools that do not exist: {names}" if names else ""


def not_succeeded(counts: Mapping[str, int], planned: int) -> str:
    """`2 failed, 1 cancelled of 3 items`, of the numbers of items by state: why a backfill has failed."""
    wrong = [f"{counts[state]} {state}" for state in ("failed", "cancelled") if counts[state]]
    known = sum(counts[state] for state in ("success", "skipped", "failed", "cancelled"))
    if (gone := planned - known) > 0:  # somebody else deleted or changed them
        wrong.append(f"{gone} gone or in an unknown state")
    return f"{', '.join(wrong)} of {plural(planned, 'item')}"


def parse_outcome(result: Mapping[str, Any], *, dry_run: bool) -> str:
    """What parsing files of a bundle has changed, or would: `bundle x: nothing has changed (4 DAGs in 3 files)`,
    `bundle x: would be: 2 new (2 DAGs in 1 file); 1 file could not be read`."""
    kinds = Counter(change["change"] for change in result["changes"])
    changes = ", ".join(f"{number} {kind}" for kind, number in sorted(kinds.items()))
    if not changes:
        changes = "nothing would change" if dry_run else "nothing has changed"
    elif dry_run:
        changes = f"would be: {changes}"
    files = result.get("files")  # a manager of an older release does not say it
    looked_at = plural(result["dags"], "DAG") + (f" in {plural(files, 'file')}" if files is not None else "")
    errors = f"; {plural(len(result['errors']), 'file')} could not be read" if result["errors"] else ""
    gone = result.get("still_active")
    still_active = f"; no longer defined, but still active: {name_list(gone)}" if gone else ""
    of_airflow = result.get("airflow_files")
    passed_over = f"; of Airflow, and not read: {name_list(of_airflow)}" if of_airflow else ""
    unknown = unknown_pools(one["pool"] for one in result.get("unknown_pools", ()))
    return f"bundle {result['bundle']}: {changes} ({looked_at}){errors}{still_active}{passed_over}{unknown}"


def window(hours: str | None, zone: str | None) -> str | None:
    """A time window with its zone where it is known: `20:00-06:00 America/New_York`; None without a window."""
    return f"{hours} {zone}" if hours and zone else hours


def backfill_config(config: Mapping[str, Any], day: Callable[[str], str] = str) -> str:
    """`every interval from 2013-01-01 to 2013-01-31, newest first`, `3 dates`; `day` formats an instant."""
    kind = config["type"]
    options = ", newest first" if config.get("run_backwards") else ""
    options += ", with incomplete intervals" if config.get("allow_future") else ""
    if kind in ("dates", "partitions"):
        return plural(config.get("total", len(config[kind])), kind[:-1]) + options
    what = {
        "schedule": "every interval", "missing": "missing intervals", "stale": "stale intervals", "single": "one run",
        "outdated": "outdated intervals",
    }.get(kind, kind)  # fmt: skip
    what = "intervals without data" if config.get("by") == "data" else what
    start, end = (day(config[name]) if config.get(name) else None for name in ("start_date", "end_date"))
    return f"{what} from {start or 'the start_date of the DAG'} to {end or 'the last complete interval'}{options}"
