"""One word for one thing (docs/glossary.md): words that were replaced do not come back, in code, tests, pages and docs."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[1]
# Text that is not ours to word: data from outside, vendored files, and what fixes old spellings.
EXEMPT = {"CHANGELOG.md", "tests/test_vocabulary.py"}

# A word or name, as a regular expression, and what is used instead.
REPLACED = {
    r"house|housekeep\w*": "architecture; compaction, vacuum",
    r"rooms?": "package; `component=` in logs",
    r"faces": "interfaces",
    r"laws": "invariants",
    r"(run|item|backfill|time)_?keepers?|keeper": "manager.runs, items, backfills, schedule",
    r"run_maker|backfill_maker|rescuer|doorbell|lifeline|calling_back|bringing_back|reading_ahead": "REDESIGN's names",
    r"Wish|BackfillAsk|ClearAsk|AtHand|Alive|Shelf|Visit|Playground|Doorbell|LiveRun|LiveBackfill": "REDESIGN's names",
    r"NobodyLeads|somebody_leads|START_ONE": "NoActiveManager, has_active_manager",
    r"NotKnown|NotAllowed|TooMany": "Unauthenticated, Forbidden, RateLimited",
    r"(MOST|LONGEST|FEW)_[A-Z_]+|PATIENCE_S|EVERY_S": "MAX_*, MIN_*, *_TIMEOUT_S, POLL_INTERVAL_S",
    r"told(?![ _]to(?![A-Za-z]))|put_behind_us": "name who or what",
    r"Ask for this backfill|Ask for it": "Create backfill",
    r"Tries that have ended": "Attempts",
    r"Who may|Who you are|What the words mean": "Authentication and roles, Semantics",
    r"SEMANTICS(\.md)?|INTERFACE(\.md)?|ARCHITECTURE(\.md)?": "docs/semantics.md, docs/architecture.md",
}
# Parts of names count, too.
PATTERN = re.compile(r"(?<![A-Za-z0-9-])(?:" + "|".join(f"(?:{words})" for words in REPLACED) + r")(?![A-Za-z0-9-])")


def files() -> Iterator[Path]:
    for folder, names in (
        ("backfill_manager", ("*.py", "*.html", "*.sql")),
        ("tests", ("*.py",)),
        ("jobs", ("*.py", "*.yaml", "*.sql")),
        ("docs", ("*.md", "*.py")),
    ):
        for name in names:
            yield from sorted((REPOSITORY / folder).rglob(name))
    yield from sorted(REPOSITORY.glob("*.md"))


def replaced_words(path: Path) -> list[str]:
    lines = path.read_text(encoding="utf-8").splitlines()
    return [f"{number}: {found[0]}" for number, line in enumerate(lines, 1) for found in PATTERN.finditer(line)]


@pytest.mark.parametrize("path", [str(path.relative_to(REPOSITORY)) for path in files()])
def test_replaced_words_do_not_come_back(path: str) -> None:
    if path not in EXEMPT:
        assert replaced_words(REPOSITORY / path) == []


@pytest.mark.parametrize(
    "line",
    [
        "def told():",
        "the house",
        "rooms",
        "MOST_ROWS = 3",
        "class Wish:",
        "def test_it_is_told_in_a_line():",
        "_has_room",
    ],
)
def test_a_replaced_word_is_found(line: str, tmp_path: Path) -> None:
    (tmp_path / "page.md").write_text(line)
    assert replaced_words(tmp_path / "page.md")


@pytest.mark.parametrize(
    "line", ["ALMOST_ALL = 3", "untold", "is_told_to_stop", "warehouse", "mushrooms", "interfaces", "lawsuit"]
)
def test_other_words_pass(line: str, tmp_path: Path) -> None:
    (tmp_path / "page.md").write_text(line)
    assert replaced_words(tmp_path / "page.md") == []
