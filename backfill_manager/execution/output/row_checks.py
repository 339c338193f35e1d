"""Runs the checks of a write with Spark: over rows that are staged, or kept in memory, before they are committed.

All checks of a write are one query, so each row is read once. It knows whether they hold; a sample of the rows that break one is
read only then, and goes to the try's log. Rows that an earlier try has committed are not checked again: that try had checked
them, or they would not be there.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce
from typing import TYPE_CHECKING, Final, NoReturn

from pyspark.errors import AnalysisException, PySparkException

from backfill_manager.errors import CheckFailedToRun, ChecksFailed, InvalidInput, shorten
from backfill_manager.execution.error_format import one_line
from backfill_manager.execution.messages import CheckedWrite
from backfill_manager.execution.output.pandera_checks import expectations_of
from backfill_manager.humanise import plural
from backfill_manager.schemas.checks import (
    Check,
    CheckOutcome,
    Condition,
    Figures,
    Form,
    NearRowsBefore,
    NoNulls,
    PanderaSchema,
    RowCount,
    Unique,
    parse,
)

if TYPE_CHECKING:
    import logging

    from pyspark.sql import Column, DataFrame

SAMPLE_ROWS: Final = 5  # of those that break a check
MAX_ROW_CHARS: Final = 1000  # of such a row in the log
MAX_RESULTS: Final = 1000  # of one try; those that are no mere `passed` are kept beyond

# (table, number, "intervals" or "days") -> rows of the intervals before that this task has written into it, the newest first
RowsBefore = Callable[[str, int, str], Sequence[int]]


class CheckResults:
    """Those of one try."""

    def __init__(self) -> None:
        self._of_writes: dict[str, list[CheckedWrite]] = {}  # by transaction: rows that are checked again count once

    def put(self, transaction: str, results: list[CheckedWrite]) -> None:
        # Its environment ends with this process.
        self._of_writes[transaction] = [one.without_secrets() for one in results]

    def all(self) -> tuple[CheckedWrite, ...]:
        found = [one for results in self._of_writes.values() for one in results]
        return tuple(one for n, one in enumerate(found) if n < MAX_RESULTS or one.outcome != "passed")


class RowChecks:
    def __init__(
        self, checks: Sequence[Check], *, task_id: str, table: str, transaction: str, log: logging.Logger,
        rows_before: RowsBefore, results: CheckResults,
    ) -> None:  # fmt: skip
        forms = [(check, parse(check.condition)) for check in checks]
        self._checks = [(check, form) for check, form in forms if not isinstance(form, PanderaSchema)]
        self._schemas = [(check, form) for check, form in forms if isinstance(form, PanderaSchema)]
        self._task_id, self._table, self._transaction, self._log = task_id, table, transaction, log
        self._rows_before, self._results = rows_before, results
        self._checked: DataFrame | None = None

    def __bool__(self) -> bool:
        return bool(self._checks or self._schemas)

    def run(self, rows: DataFrame, number: int | None = None) -> None:
        """Returns if the rows may be committed; else raises `ChecksFailed`, or `CheckFailedToRun`. `number`: of the rows, where
        it is known. The same rows are checked once, however often their commit is repeated."""
        if not self or rows is self._checked:
            return
        figures = self._figures(rows, number) if self._checks else []
        verdicts = [form.judge(each) for (_, form), each in zip(self._checks, figures, strict=True)]
        results = list[CheckedWrite]()
        for (check, _), each, verdict in zip(self._checks, figures, verdicts, strict=True):
            outcome: CheckOutcome = "passed" if verdict.holds else _FAILED[check.on_failure]
            found = (each.rows, each.failing, verdict.value, verdict.message)
            results.append(CheckedWrite(self._table, check.condition, check.name, outcome, *found))
        of_schemas = self._of_schemas(rows, figures[0].rows if figures else number)
        self._results.put(self._transaction, [*results, *of_schemas])
        for (_, form), result in zip(self._checks, results, strict=True):
            self._report(rows, form, result)
        for result in of_schemas:
            self._report_result(result)
        results += of_schemas
        if failed := [result for result in results if result.outcome == "failed"]:
            named = [f"check {_label(one.condition, one.name)} failed: {one.message}" for one in failed]
            raise ChecksFailed(f"task {self._task_id!r}, {self._table}: {'; '.join(named)}; nothing was written")
        self._checked = rows

    def skip(self) -> None:
        """An earlier try has written these rows."""
        message = "an earlier try of the run has checked and committed these rows"
        results = [
            CheckedWrite(self._table, check.condition, check.name, "skipped", message=message)
            for check, _ in (*self._checks, *self._schemas)
        ]
        self._results.put(self._transaction, results)

    def _of_schemas(self, rows: DataFrame, number: int | None) -> list[CheckedWrite]:
        """Each thing that a schema expects is a result of its own."""
        results = list[CheckedWrite]()
        for check, form in self._schemas:
            try:
                found = expectations_of(form, rows)
            except (InvalidInput, PySparkException) as error:
                self._refuse(check, error)
            for name, why in found.items():
                outcome: CheckOutcome = "passed" if why is None else _FAILED[check.on_failure]
                condition = f"{check.condition}: {name}"
                results.append(CheckedWrite(self._table, condition, check.name, outcome, number, None, None, why))
        return results

    def _figures(self, rows: DataFrame, number: int | None) -> list[Figures]:
        from pyspark.sql import functions as F

        of_rows = [(i, *one) for i, one in enumerate(self._checks) if not _is_of_write(one[1])]
        counted = {i: self._failing(rows, check, form) for i, check, form in of_rows}
        if counted or number is None:
            try:
                number, *failing = rows.agg(F.count("*"), *counted.values()).collect()[0]
            except PySparkException as error:
                self._refuse_the_cause(error, rows, counted)
                raise
            found = dict(zip(counted, failing, strict=True))
        else:
            found = {}
        return [Figures(number, found.get(i), self._before(form)) for i, (_, form) in enumerate(self._checks)]

    def _before(self, form: Form) -> tuple[int, ...]:
        return tuple(self._rows_before(self._table, form.number, form.unit)) if isinstance(form, NearRowsBefore) else ()

    def _failing(self, rows: DataFrame, check: Check, form: Form) -> Column:
        """The number of rows that break it, as an aggregate."""
        from pyspark.sql import functions as F

        try:
            if isinstance(form, Unique):
                failing = F.count("*") - F.count_distinct(F.struct(*form.columns))
            else:
                if isinstance(form, Condition):
                    rows.where(form.sql)  # refuses what is no condition of single rows
                failing = F.count_if(_breaks(form))
            rows.agg(failing)  # analyses it, so that the check that is wrong is known
        except AnalysisException as error:
            self._refuse(check, error)
        return failing

    def _refuse_the_cause(self, error: PySparkException, rows: DataFrame, counted: dict[int, Column]) -> None:
        """Raises if it is a check that fails by itself, such as one that divides by zero, and not the rows."""
        if error.getCondition() is None:  # Spark's own trouble
            return
        rows.count()
        for i, failing in counted.items():
            try:
                rows.agg(failing).collect()
            except PySparkException as why:
                self._refuse(self._checks[i][0], why)

    def _refuse(self, check: Check, error: PySparkException | InvalidInput) -> NoReturn:
        why = one_line(error).rstrip(";")
        result = CheckedWrite(self._table, check.condition, check.name, "error", message=why)
        self._results.put(self._transaction, [result])
        label = _label(check.condition, check.name)
        raise CheckFailedToRun(
            f"task {self._task_id!r}, {self._table}: check {label} can't be run: {why}; nothing was written"
        ) from None

    def _report(self, rows: DataFrame, form: Form, result: CheckedWrite) -> None:
        if (say := self._report_result(result)) is not None and not _is_of_write(form):
            for number, row in enumerate(self._sample(rows, form), start=1):
                say("  row %d that fails: %s", number, shorten(row, MAX_ROW_CHARS))

    def _report_result(self, result: CheckedWrite) -> Callable[..., None] | None:
        """Returns what logs more about a check that did not pass."""
        what = f"{self._table}: check {_label(result.condition, result.name)}"
        more = f": {result.message}" if result.message else f": {plural(result.rows or 0, 'row')}"
        if result.outcome == "passed":
            self._log.info("%s passed%s", what, more)
            return None
        say = self._log.warning if result.outcome == "warned" else self._log.error
        say("%s failed%s", what, more)
        return say

    def _sample(self, rows: DataFrame, form: Form) -> list[str]:
        """Some of the rows that break it, as JSON; of `unique` their values, with how often they are there."""
        from pyspark.sql import functions as F

        try:
            if isinstance(form, Unique):
                of_value = rows.groupBy(F.struct(*form.columns).alias("values")).agg(F.count("*").alias("rows"))
                found = of_value.where("rows > 1").select("values.*", "rows")
            else:
                found = rows.where(_breaks(form))
            as_json = found.limit(SAMPLE_ROWS).select(F.to_json(F.struct("*"), {"ignoreNullFields": "false"}))
            return [str(row[0]) for row in as_json.collect()]
        except PySparkException as error:  # of a type that JSON does not have; the check has failed all the same
            self._log.warning("the rows that fail can't be shown: %s", one_line(error))
            return []


_FAILED: Final[dict[str, CheckOutcome]] = {"fail": "failed", "warn": "warned"}


def _is_of_write(form: Form) -> bool:
    """It compares numbers of rows, and asks nothing of a single one."""
    return isinstance(form, RowCount | NearRowsBefore)


def _breaks(form: Form) -> Column:
    """True for a row that breaks it. NULL is no breach, as in CHECK of standard SQL."""
    from pyspark.sql import functions as F

    if isinstance(form, NoNulls):
        return reduce(lambda one, other: one | other, [F.col(name).isNull() for name in form.columns])
    assert isinstance(form, Condition)
    return F.coalesce(~F.expr(form.sql), F.lit(False))


def _label(condition: str, name: str | None) -> str:
    return f"`{condition}`" if name is None else f"{name} (`{condition}`)"
