"""Texts of drafts: literals mean what they hold, indentation leaves strings alone, a remark is a comment whatever it says."""

from __future__ import annotations

import ast

from hypothesis import given
from hypothesis import strategies as st

from backfill_manager.importers.draft import Draft, DraftDag, DraftTask, Remark
from backfill_manager.importers.writer import quoted, shifted, write

TEXTS = st.text(st.characters(exclude_categories=["Cs"]) | st.sampled_from("\n\r\"'\\{}#\x0c\u2028"), max_size=40)


@given(TEXTS)
def test_a_literal_is_its_text(text: str) -> None:
    assert ast.literal_eval(quoted(text)) == text


@given(TEXTS, TEXTS)
def test_strings_keep_their_lines_when_a_body_is_indented(first: str, second: str) -> None:
    body = f"x = {quoted(first)}\nif x:\n    y = [\n        {quoted(second)},\n    ]\n"
    [function] = ast.parse(f"def f():\n{shifted(body, 4)}").body
    assert isinstance(function, ast.FunctionDef)
    assert ast.dump(ast.Module(function.body, [])) == ast.dump(ast.Module(ast.parse(body).body, []))
    assert shifted(shifted(body, 4), -4) == body


@given(TEXTS, TEXTS, TEXTS)
def test_whatever_a_file_holds_becomes_text_and_no_code(what: str, doc: str, text: str) -> None:
    remark = Remark(1, what, "see")
    task = DraftTask("a", {"task_id": quoted("a")}, f"return {quoted(text)}", remarks=[remark])
    draft = Draft(
        "Airflow", [DraftDag("d", {"description": quoted(doc)}, doc, [task], [remark])], doc, remarks=[remark]
    )
    tree = ast.parse(write(draft))
    [function] = [node for node in tree.body if isinstance(node, ast.FunctionDef)]
    [made] = [node for node in function.body if isinstance(node, ast.FunctionDef)]
    assert len(function.body) == 1 + bool(doc) and len(made.body) == 1
    assert isinstance(made.body[0], ast.Return) and ast.literal_eval(made.body[0].value) == text  # type: ignore[arg-type]
