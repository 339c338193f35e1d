"""What the text of a check means."""

from __future__ import annotations

from typing import Any

import pytest

from backfill_manager import dag, sql
from backfill_manager.errors import InvalidDag
from backfill_manager.schemas.checks import (
    Check,
    Condition,
    Figures,
    Form,
    NearRowsBefore,
    NoNulls,
    PanderaSchema,
    RowCount,
    Unique,
    Verdict,
    parse,
    read_checks,
    with_own,
)


@pytest.mark.parametrize(
    "text, form",
    [
        ("rows > 0", RowCount(">", 0)),
        ("ROWS>=1,000", RowCount(">=", 1000)),
        ("rows <> 12_345", RowCount("<>", 12345)),
        ("no nulls in a", NoNulls(("a",))),
        ("No null in a, `b, c`,d.e", NoNulls(("a", "`b, c`", "d.e"))),
        ("unique(a)", Unique(("a",))),
        ("unique (a,`b`)", Unique(("a", "`b`"))),
        ("rows within 20 % of the 7 before", NearRowsBefore(20.0, 7, "intervals")),
        ("rows within 12.5% of the 1 interval before", NearRowsBefore(12.5, 1, "intervals")),
        ("within 20 % of the 7 days before", NearRowsBefore(20.0, 7, "days")),
        ("delay > -120", Condition("delay > -120")),
        ("`rows` > 0", Condition("`rows` > 0")),
        ("rows_late = 0", Condition("rows_late = 0")),
        ("note <> 'two  blanks'", Condition("note <> 'two  blanks'")),
        ("uniqueness > 0.9", Condition("uniqueness > 0.9")),
    ],
)
def test_forms(text: str, form: Form) -> None:
    assert parse(text) == form
    assert read_checks([f" {text}\n"]) == (Check(text),)


@pytest.mark.parametrize(
    "checks, message",
    [
        ("rows > 0", "must be a list of checks, such as ['rows > 0', 'no nulls in id'], not 'rows > 0'"),
        ({"rows > 0"}, "must be a list of checks"),
        (["rows > few"], "[0] 'rows > few' compares the number of rows with 'few', which is no whole number"),
        (["a > 0", "rows = 1.5"], "[1] 'rows = 1.5' compares"),
        (["no nulls"], "[0] 'no nulls': a column's name is missing; write it as `no nulls in a, b`"),
        (["no nulls in a,"], "[0] 'no nulls in a,': a column's name is missing"),
        (["pandera schemas.Flights"], "'pandera schemas.Flights' is written as `pandera module:Schema`"),
        (["unique()"], "[0] 'unique()': a column's name is missing; write it as `unique(a, b)`"),
        (["unique(a b)"], "'a b' is no name of a column"),
        (["within 20 % of the mean"], "is written as `rows within 20 % of the 7 before`"),
        (["rows within 20 % of the 0 before"], "compares with 1 to 1,000 before, not 0"),
        ([" "], "[0] is a text such as 'rows > 0', or Check('rows > 0', ...), not ' '"),
        ([5], "not 5"),
        (["a" * 2001], "[0] has 2,001 characters; 2,000 is the most"),
        ([Check("a > 0", name=" ")], "[0]: name is a text, not ' '"),
        ([Check("a > 0", on_failure="wran")], "[0]: on_failure is 'fail' or 'warn', not 'wran'; did you mean 'warn'?"),  # type: ignore[arg-type]
        ([{"condtion": "a > 0"}], "[0] has no 'condtion'; did you mean 'condition'?"),
        ([{"name": "a"}], "[0] needs a condition, such as 'rows > 0'"),
        (["a > 0", Check("a > 0", on_failure="warn")], "[1] 'a > 0' is in the list twice"),
    ],
)
def test_a_wrong_declaration_is_refused_with_its_place(checks: Any, message: str) -> None:
    with pytest.raises(ValueError) as refused:
        read_checks(checks)
    assert message in str(refused.value) and "\n" not in str(refused.value)


def test_a_mapping_is_a_check_as_yaml_has_it() -> None:
    assert read_checks([{"condition": "a > 0", "name": "positive", "on_failure": "warn"}]) == (
        Check("a > 0", "positive", "warn"),
    )


@pytest.mark.parametrize(
    "text, figures, verdict",
    [
        ("rows > 0", Figures(0), Verdict(False, 0, "0 rows")),
        ("rows > 0", Figures(1), Verdict(True, 1, "1 row")),
        ("rows <= 10", Figures(11), Verdict(False, 11, "11 rows")),
        ("rows == 10", Figures(10), Verdict(True, 10, "10 rows")),
        ("rows != 10", Figures(10), Verdict(False, 10, "10 rows")),
        ("no nulls in a", Figures(842, 3), Verdict(False, None, "3 of 842 rows")),
        ("unique(a)", Figures(842, 0), Verdict(True)),
        ("a > 0", Figures(0, 0), Verdict(True)),
        (
            "rows within 20 % of the 7 before", Figures(120, before=(100, 90, 110)),
            Verdict(True, 20.0, "120 rows, +20.0 % against 100.0, the mean of 3 intervals before"),
        ),
        (
            "rows within 20 % of the 7 before", Figures(79, before=(100, 90, 110)),
            Verdict(False, -21.0, "79 rows, -21.0 % against 100.0, the mean of 3 intervals before"),
        ),
        (
            "within 20 % of the 7 days before", Figures(1, before=(0, 0, 0)),
            Verdict(False, None, "1 row against 0.0, the mean of 3 intervals before"),
        ),
        (
            "rows within 20 % of the 7 before", Figures(5, before=(100, 90)),
            Verdict(True, None, "not compared: 2 intervals before it are known"),
        ),
        (
            "rows within 20 % of the 1 before", Figures(5, before=(5,)),
            Verdict(True, 0.0, "5 rows, +0.0 % against 5.0, the mean of 1 interval before"),
        ),
    ],
)  # fmt: skip
def test_meaning(text: str, figures: Figures, verdict: Verdict) -> None:
    assert parse(text).judge(figures) == verdict


def test_an_own_check_of_a_write_replaces_the_same_one_of_its_task() -> None:
    of_task = (Check("rows > 0"), Check("a > 0"))
    assert with_own(of_task, ()) == of_task
    assert with_own(of_task, (Check("rows > 0", on_failure="warn"), Check("b > 0"))) == (
        Check("a > 0"), Check("rows > 0", on_failure="warn"), Check("b > 0"),
    )  # fmt: skip


def test_a_sql_task_has_no_checks_in_code() -> None:
    assert parse("pandera pkg.schemas:Flights") == PanderaSchema("pkg.schemas", "Flights")
    assert parse("pandera IS NULL") == Condition("pandera IS NULL")
    with pytest.raises(
        InvalidDag, match="check 'pandera schemas:A' is code of the bundle, which a sql task does not run"
    ):

        @dag(schedule=None)
        def silver() -> None:
            sql("clean", "SELECT 1", into="t", mode="append", checks=["pandera schemas:A"])
