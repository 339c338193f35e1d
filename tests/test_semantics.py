"""The rules of docs/semantics.md are numbered consecutively, and each names tests that exist."""

from __future__ import annotations

import re

import pytest
from support.named_tests import REPOSITORY, exists, named_tests

PAGE = (REPOSITORY / "docs" / "semantics.md").read_text(encoding="utf-8")
RULE = re.compile(r"^- \*\*S(\d+)\*\* (.+?)(?=^- |^#|\Z)", re.MULTILINE | re.DOTALL)


def faults(page: str) -> list[str]:
    """Returns everything that is wrong with a page of rules, a line each."""
    rules = RULE.findall(page)
    found = [] if rules else ["there is no rule: a line `- **S1** ...` is wanted"]
    for number, (result, text) in enumerate(rules, 1):
        if int(result) != number:
            found.append(f"S{result} stands where S{number} is wanted")
        named = named_tests(text)
        if not named:
            found.append(f"S{result} names no test: `tests/file.py::test_name` is wanted beneath it")
        found += [f"S{result} names {test}, which does not exist" for test in named if not exists(test)]
    stray = len(re.findall(r"\*\*S\d+", page)) - len(rules)
    return found + ([f"{stray} rules are not written as `- **S1** ...`"] if stray else [])


def test_each_rule_of_the_semantics_has_a_number_of_its_own_and_a_test_that_holds_it() -> None:
    assert faults(PAGE) == []


HELD = "A rule.<br>\n  `tests/test_semantics.py::test_a_rule_that_nothing_holds_is_seen`\n"


@pytest.mark.parametrize(
    ("page", "expected"),
    [
        ("# Rules\n", "there is no rule"),
        ("- **S1** A rule of which nobody knows whether it holds.\n\n## Next\n\n`tests/x.py::test_y`\n", "S1 names no test"),
        ("- **S1** A rule, see `tests/test_semantics.py`.\n", "S1 names no test"),
        ("- **S1** A rule.<br>\n  `tests/test_semantics.py::test_that_was_renamed`\n", "test_that_was_renamed, which does not"),
        ("- **S1** A rule.<br>\n  `tests/test_gone.py::test_gone`\n", "test_gone, which does not exist"),
        (f"- **S1** {HELD}- **S1** {HELD}", "S1 stands where S2 is wanted"),
        (f"- **S1** {HELD}- **S3** {HELD}", "S3 stands where S2 is wanted"),
        (f"- **S1** {HELD}* **S2** {HELD}", "1 rules are not written as"),
    ],
)  # fmt: skip
def test_a_rule_that_nothing_holds_is_seen(page: str, expected: str) -> None:
    (fault,) = faults(page)
    assert expected in fault


def test_a_page_whose_rules_are_held_is_not_complained_of() -> None:
    assert faults(f"# Rules\n\n- **S1** {HELD}\n## More\n\n- **S2** {HELD}") == []
