"""Checks of what a task is about to publish: `Check`, as an author declares one, and what its text means. No Spark here.

    rows > 0                            the number of rows, compared with a number
    no nulls in origin, dest            of the columns
    unique(carrier, flight)             no two rows with these values; NULL is a value like any other
    rows within 20 % of the 7 before    of the mean of the 7 intervals before that the task wrote into this table
    within 20 % of the 7 days before    ... of those of the 7 days before
    pandera schemas:Flights             all that this schema of the library pandera, in a module of the bundle, expects
    delay IS NULL OR delay > -120       any other text: a condition in Spark SQL that no row may break

`parse` makes a form of a text; a form says what `Figures`, which Spark computes, mean for it.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, get_args

from backfill_manager.errors import nearest
from backfill_manager.humanise import plural
from backfill_manager.value_rules import refuse_unknown

OnFailure = Literal["fail", "warn"]
# skipped: an earlier try of the run has checked and committed the rows
CheckOutcome = Literal["passed", "failed", "warned", "error", "skipped"]
MAX_CONDITION_LENGTH: Final = 2000
MAX_BEFORE: Final = 1000  # intervals, or days, to compare with
MIN_BEFORE: Final = 3  # with fewer that are known there is nothing to compare with


@dataclass(frozen=True)
class Check:
    """A check of the rows of a write. If it fails: with `fail`, nothing is published and the try fails; with `warn`, the rows are
    published and the failure is only reported."""

    condition: str
    name: str | None = None  # shown together with its condition
    on_failure: OnFailure = "fail"


@dataclass(frozen=True)
class Figures:
    """What a write is about to publish."""

    rows: int
    failing: int | None = None  # rows that break the condition; None: it is not of single rows
    before: tuple[int, ...] = ()  # rows of the intervals before, the newest first


@dataclass(frozen=True)
class Verdict:
    holds: bool
    value: float | None = None  # what was compared: the number of rows, or percent above the mean
    message: str | None = None


@dataclass(frozen=True)
class RowCount:
    comparison: str
    number: int

    def judge(self, figures: Figures) -> Verdict:
        holds = _COMPARISONS[self.comparison](figures.rows, self.number)
        return Verdict(holds, figures.rows, plural(figures.rows, "row"))


@dataclass(frozen=True)
class NearRowsBefore:
    percent: float
    number: int
    unit: Literal["intervals", "days"]

    def judge(self, figures: Figures) -> Verdict:
        known = len(figures.before)
        if known < min(MIN_BEFORE, self.number):
            return Verdict(True, None, f"not compared: {plural(known, 'interval')} before it {_is(known)} known")
        mean = sum(figures.before) / known
        holds = abs(figures.rows - mean) <= mean * self.percent / 100
        percent = round(100 * (figures.rows / mean - 1), 1) if mean else None
        by = "" if percent is None else f", {percent:+.1f} %"
        message = (
            f"{plural(figures.rows, 'row')}{by} against {mean:,.1f}, the mean of {plural(known, 'interval')} before"
        )
        return Verdict(holds, percent, message)


class _OfRows:
    """A form that each row meets or breaks."""

    def judge(self, figures: Figures) -> Verdict:
        assert figures.failing is not None
        message = f"{figures.failing:,} of {plural(figures.rows, 'row')}" if figures.failing else None
        return Verdict(figures.failing == 0, None, message)


@dataclass(frozen=True)
class NoNulls(_OfRows):
    columns: tuple[str, ...]


@dataclass(frozen=True)
class Unique(_OfRows):
    columns: tuple[str, ...]


@dataclass(frozen=True)
class Condition(_OfRows):
    sql: str


@dataclass(frozen=True)
class PanderaSchema:
    """Not judged here: the library says what holds (execution/output/pandera_checks.py)."""

    module: str
    name: str


Form = RowCount | NearRowsBefore | NoNulls | Unique | Condition
AnyForm = Form | PanderaSchema

_COMPARISONS: Final[dict[str, Callable[[int, int], bool]]] = {
    ">": operator.gt, ">=": operator.ge, "<": operator.lt, "<=": operator.le, "=": operator.eq, "==": operator.eq,
    "!=": operator.ne, "<>": operator.ne,
}  # fmt: skip
_ROWS: Final = re.compile(r"rows\s*(>=|<=|==|!=|<>|>|<|=)\s*(.*)", re.IGNORECASE | re.DOTALL)
_NUMBER: Final = re.compile(r"\d{1,15}|\d{1,3}([_,]\d{3}){1,4}")
_NO_NULLS: Final = re.compile(r"no\s+nulls?\b(?:\s+in\b)?(.*)", re.IGNORECASE | re.DOTALL)
_UNIQUE: Final = re.compile(r"unique\s*\((.*)\)", re.IGNORECASE | re.DOTALL)
_WITHIN: Final = re.compile(r"(?:rows\s+)?within\b(.*)", re.IGNORECASE | re.DOTALL)
_BEFORE: Final = re.compile(
    r"\s*(\d{1,4}(?:\.\d{1,3})?)\s*%\s*of\s+the\s+(\d{1,6})(?:\s+(intervals?|days?))?\s+before\s*",
    re.IGNORECASE,
)
_PANDERA: Final = re.compile(r"pandera\s+([\w.:-]+)")
_REFERENCE: Final = re.compile(r"([^\W\d]\w*(?:\.[^\W\d]\w*)*):([^\W\d]\w*)")
_COLUMN: Final = re.compile(r"(?:\w+|`[^`]+`)(?:\.(?:\w+|`[^`]+`))*")


def parse(text: str) -> AnyForm:
    """`ValueError` for a text that begins as one of our forms and isn't one. Whether a condition is good SQL only Spark knows."""
    text = text.strip()
    if match := _ROWS.fullmatch(text):
        if not _NUMBER.fullmatch(match[2]):
            raise ValueError(
                f"{text!r} compares the number of rows with {match[2]!r}, which is no whole number; "
                "a column that is called rows is written `rows`, in backticks"
            )
        return RowCount(match[1], int(re.sub("[_,]", "", match[2])))
    if match := _NO_NULLS.fullmatch(text):
        return NoNulls(_columns(match[1], text, "no nulls in a, b"))
    if match := _UNIQUE.fullmatch(text):
        return Unique(_columns(match[1], text, "unique(a, b)"))
    if match := _WITHIN.fullmatch(text):
        return _near_rows_before(match[1], text)
    if match := _PANDERA.fullmatch(text):
        if (named := _REFERENCE.fullmatch(match[1])) is None:
            raise ValueError(f"{text!r} is written as `pandera module:Schema`, both as they are named in the bundle")
        return PanderaSchema(named[1], named[2])
    return Condition(text)


def _near_rows_before(text: str, whole: str) -> NearRowsBefore:
    match = _BEFORE.fullmatch(text)
    if match is None:
        raise ValueError(f"{whole!r} is written as `rows within 20 % of the 7 before`, or `... of the 7 days before`")
    percent, number = float(match[1]), int(match[2])
    if not 1 <= number <= MAX_BEFORE:
        raise ValueError(f"{whole!r} compares with 1 to {MAX_BEFORE:,} before, not {number:,}")
    return NearRowsBefore(percent, number, "days" if (match[3] or "").lower().startswith("day") else "intervals")


def _columns(text: str, whole: str, right: str) -> tuple[str, ...]:
    names = [name.strip() for name in re.split(r",(?=(?:[^`]*`[^`]*`)*[^`]*$)", text)]
    wrong = next((name for name in names if not _COLUMN.fullmatch(name)), None)
    if wrong is not None:
        what = f"{wrong!r} is no name of a column" if wrong else "a column's name is missing"
        raise ValueError(f"{whole!r}: {what}; write it as `{right}`, unusual names in backticks")
    return tuple(names)


def _is(number: int) -> str:
    return "is" if number == 1 else "are"


def read_checks(value: Any) -> tuple[Check, ...]:
    """The setting `checks`: a list of texts, `Check`s or, in YAML, mappings with their fields. `ValueError` for what is wrong."""
    if isinstance(value, str | Check | Mapping) or not isinstance(value, Sequence):
        raise ValueError(f"must be a list of checks, such as ['rows > 0', 'no nulls in id'], not {value!r}")
    checks = tuple(_read(each, number) for number, each in enumerate(value))
    for number, check in enumerate(checks):
        if any(check.condition == other.condition for other in checks[:number]):
            raise ValueError(f"[{number}] {check.condition!r} is in the list twice")
    return checks


def _read(value: Any, number: int) -> Check:
    where = f"[{number}]"
    if isinstance(value, Mapping):
        value = _of_mapping(value, where)
    check = value if isinstance(value, Check) else Check(value)
    if not isinstance(check.condition, str) or not check.condition.strip():
        raise ValueError(f"{where} is a text such as 'rows > 0', or Check('rows > 0', ...), not {check.condition!r}")
    if len(check.condition) > MAX_CONDITION_LENGTH:
        raise ValueError(f"{where} has {len(check.condition):,} characters; {MAX_CONDITION_LENGTH:,} is the most")
    if check.name is not None and (not isinstance(check.name, str) or not check.name.strip()):
        raise ValueError(f"{where}: name is a text, not {check.name!r}")
    if check.on_failure not in get_args(OnFailure):
        near = nearest(str(check.on_failure), get_args(OnFailure), n=1)
        raise ValueError(f"{where}: on_failure is 'fail' or 'warn', not {check.on_failure!r}{near}")
    try:
        parse(check.condition)
    except ValueError as error:
        raise ValueError(f"{where} {error}") from None
    return Check(check.condition.strip(), check.name, check.on_failure)


def _of_mapping(value: Mapping[Any, Any], where: str) -> Check:
    refuse_unknown(value, tuple(Check.__dataclass_fields__), where)
    if "condition" not in value:
        raise ValueError(f"{where} needs a condition, such as 'rows > 0'")
    return Check(**value)


def in_code(checks: Sequence[Check]) -> str | None:
    """The first that is code of the bundle, which only a Python task runs."""
    return next((one.condition for one in checks if isinstance(parse(one.condition), PanderaSchema)), None)


def with_own(of_task: Sequence[Check], own: Sequence[Check]) -> tuple[Check, ...]:
    """The checks of a write: its task's, then its own. An own one with the same condition replaces the task's."""
    replaced = {check.condition for check in own}
    return (*(check for check in of_task if check.condition not in replaced), *own)
