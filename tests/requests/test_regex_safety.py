"""Regular expressions from outside: which are used, and which could hold the server or the manager for ever."""

from __future__ import annotations

import re

import pytest
from backfill_manager.requests.regex_safety import LONGEST_ID

from backfill_manager.errors import InvalidInput
from backfill_manager.schemas.commands import ClearTasks
from backfill_manager.schemas.regex import check_regex


@pytest.mark.usefixtures("must_end")
@pytest.mark.parametrize(
    "text",
    [
        "clean", "clean|delays", "^load_.*", "load_.*_daily$", ".*clean.*", ".*a.*b.*", "(load|clean)+_x", "(a|b)*c",
        "(?:_\\w+)?$", "^(extract|load)_\\d{1,4}$", "(?i)CLEAN", "^clean\\.on_failure$", "(?!clean)", "(x)?y(?(1)a|b)",
        "a{1000}", "[a-z]+_[0-9]+$", "",
    ],
)  # fmt: skip
def test_what_people_write_is_taken_and_answered_at_once(text: str) -> None:
    check_regex("--tasks", text)
    for long_id in ("a" * LONGEST_ID, "ab" * (LONGEST_ID // 2), "clean_" * 33, "load_1_" * 28):
        re.search(text, long_id)


@pytest.mark.usefixtures("must_end")
@pytest.mark.parametrize(
    "text",
    [
        "(a+)+$", "(a|aa)+$", "(\\w+\\s?)*x", "(x+x+)+y", "(a{1,200}){1,200}b", "(?=(a+)+$)b", "(a?){30}a{30}",
        "\\w*\\w*\\w*\\w*!", "(?:a|b|ab)*c", "((a+)*x)*", "(?i)(ab|AB)*c", "(?:(?:a{5}|a{6}){9}|b){7}!",
    ],
)  # fmt: skip
def test_what_would_never_end_is_refused_before_it_begins(text: str) -> None:
    with pytest.raises(InvalidInput, match=r"--tasks .* could take very long"):
        ClearTasks(dag_id="flights", tasks=text).check()


@pytest.mark.parametrize("text", ["(", "*", "a{99999999999}", "(" * 500 + ")" * 500, "[z-a]", "(?P<a>x)(?P<a>y)"])
def test_what_is_no_expression_is_told_so(text: str) -> None:
    with pytest.raises(InvalidInput, match=r"--dag-regex .* is not a regular expression: "):
        ClearTasks(dag_id=text, is_regex=True).check()


def test_an_expression_of_a_book_is_refused() -> None:
    with pytest.raises(InvalidInput, match="--tasks holds 1,001 characters; a regular expression may have 1,000"):
        check_regex("--tasks", "a" * 1001)
