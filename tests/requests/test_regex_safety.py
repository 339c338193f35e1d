"""Regular expressions from outside: which are used, and that none holds the server or the manager for ever."""

from __future__ import annotations

import re

import pytest

from backfill_manager.errors import InvalidInput
from backfill_manager.schemas.commands import ClearTasks
from backfill_manager.schemas.regex import check_regex, searcher

MAX_ID_LENGTH = 200
LONG_IDS = ("a" * MAX_ID_LENGTH, "ab" * (MAX_ID_LENGTH // 2), "clean_" * 33, "load_1_" * 28)


@pytest.mark.usefixtures("must_end")
@pytest.mark.parametrize(
    "text",
    [
        "clean", "clean|delays", "^load_.*", "load_.*_daily$", ".*clean.*", ".*a.*b.*", "(load|clean)+_x", "(a|b)*c",
        "(?:_\\w+)?$", "^(extract|load)_\\d{1,4}$", "(?i)CLEAN", "^clean\\.on_failure$", "a{1000}", "[a-z]+_[0-9]+$", "",
    ],
)  # fmt: skip
def test_what_people_write_matches_as_python_would(text: str) -> None:
    check_regex("tasks", text)
    for task_id in (*LONG_IDS, "clean", "Clean", "load_1_daily", "clean.on_failure"):
        assert bool(searcher(text)(task_id)) == bool(re.search(text, task_id))


@pytest.mark.usefixtures("must_end")
@pytest.mark.parametrize(
    "text",
    [
        "(a+)+$", "(a|aa)+$", "(\\w+\\s?)*x", "(x+x+)+y", "(a?){30}a{30}", "\\w*\\w*\\w*\\w*!", "(?:a|b|ab)*c",
        "((a+)*x)*", "(?i)(ab|AB)*c", "(?:(?:a{5}|a{6}){9}|b){7}!",
    ],
)  # fmt: skip
def test_what_would_never_end_by_backtracking_is_answered_at_once(text: str) -> None:
    check_regex("tasks", text)
    for task_id in LONG_IDS:
        searcher(text)(task_id + "!")


@pytest.mark.parametrize("text", ["(?!clean)", "(x)?y(?(1)a|b)", "(a)\\1", "(?=(a+)+$)b", "(a{1,200}){1,200}b"])
def test_what_has_no_linear_match_is_refused_with_the_reason(text: str) -> None:
    with pytest.raises(
        InvalidInput, match=r"tasks .* can't be matched in linear time: look-around and back-references"
    ):
        ClearTasks(dag_id="flights", tasks=text).check()


def test_a_stored_expression_of_an_older_release_still_selects() -> None:
    is_selected = searcher("^(?!clean)")
    assert is_selected("delays") and not is_selected("clean")


@pytest.mark.parametrize("text", ["(", "*", "a{99999999999}", "(" * 500 + ")" * 500, "[z-a]", "(?P<a>x)(?P<a>y)"])
def test_what_is_no_expression_is_refused_with_the_reason(text: str) -> None:
    with pytest.raises(InvalidInput, match=r"is_regex .* is not a regular expression: "):
        ClearTasks(dag_id=text, is_regex=True).check()


def test_an_expression_of_a_book_is_refused() -> None:
    with pytest.raises(InvalidInput, match="tasks holds 1,001 characters; a regular expression may have 1,000"):
        check_regex("tasks", "a" * 1001)
