"""Code on pages: numbers of lines that are links, colours by classes, and texts that are never markup."""

from __future__ import annotations

from pathlib import Path

import pytest
from fastapi.testclient import TestClient
from hypothesis import given
from hypothesis import strategies as st
from support.busy_state import put
from support.page_checks import Element, Page, wrongs

from backfill_manager.model.records import DagVersion
from backfill_manager.testing import InMemoryManager
from backfill_manager.web.highlight import MAX_CHARACTERS, code_lines

CODE = '"""Two\nlines <b>"""\nfrom backfill_manager import dag\n\n\n@dag(retries=2)\ndef shop():  # the <shop>\n    return "é"\n'


def _text(element: Element) -> str:
    """With every space, unlike `whole_text`."""
    return "".join(part if isinstance(part, str) else _text(part) for part in element.parts)


@given(
    st.text(st.characters(exclude_characters="\r\x00", exclude_categories=("Cs",))),
    st.sampled_from((".py", ".sql", ".yaml", ".sh", ".txt")),
)
def test_lines_are_those_of_the_text_and_every_element_ends_in_its_line(text: str, file: str) -> None:
    lines = code_lines(text, file)
    pages = [Page(f"<p>{line}</p>") for line in lines]
    assert [wrong for page in pages for wrong in page.wrong] == []
    assert [_text(page.root) for page in pages] == text.removesuffix("\n").split("\n")


def test_each_language_has_its_keywords() -> None:
    for text, file, marked in (
        ("def f(): pass", "a/b.py", '<span class="t-k">def</span>'), ("SELECT 1", ".sql", '<span class="t-k">SELECT</span>'),
        ("if true; then :; fi", "x.sh", '<span class="t-k">if</span>'), 
        ("dag_id: shop", "x.yaml", '<span class="t-nt">dag_id</span>'),
    ):  # fmt: skip
        assert marked in code_lines(text, file)[0]
    assert code_lines("def <f>", "notes.txt") == ["def &lt;f&gt;"]
    assert "t-" not in code_lines("#" * (MAX_CHARACTERS + 1), "x.py")[0]


@pytest.fixture
def with_code(manager: InMemoryManager, tmp_path: Path) -> InMemoryManager:
    """The newest version of `shop` has its file."""
    newest = max((one for one in manager.store.read(DagVersion) if one.dag_id == "shop"), key=lambda one: one.version)
    (tmp_path / "shop.py").write_text(CODE)
    put(manager, newest.evolve(snapshot=str(tmp_path), file="shop.py"))
    return manager


def test_the_code_of_a_dag_has_numbers_links_and_colours(with_code: InMemoryManager, browser: TestClient) -> None:
    page = Page(browser.get("/dags/shop/code").text)
    assert wrongs(page) == []
    lines = [one for one in page.root.find("span") if one.attributes.get("class") == "code-line"]
    assert [one.attributes["id"] for one in lines] == [f"L{n}" for n in range(1, 9)]
    assert [_text(one).rstrip("\n") for one in lines] == CODE.splitlines()
    links = [link for line in lines for link in line.find("a")]
    assert [(one.attributes["href"], one.attributes["aria-label"]) for one in links[:2]] == [
        ("#L1", "Line 1"),
        ("#L2", "Line 2"),
    ]
    classes = {one.attributes.get("class") for line in lines for one in line.find("span")}
    assert {"t-sd", "t-kn", "t-nd", "t-nf", "t-c1", "t-mi", "t-s2"} <= classes
