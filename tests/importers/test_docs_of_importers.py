"""The drafts that the docs show are those that `bfm import` makes."""

from __future__ import annotations

import re
from pathlib import Path

from backfill_manager.importers.airflow.translate import translate
from backfill_manager.importers.dbt.drafts import drafts
from backfill_manager.importers.dbt.project import read_project
from backfill_manager.importers.writer import write

HOW_TO = Path(__file__).parents[2] / "docs" / "how-to"


def blocks(page: str, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", (HOW_TO / page).read_text(), re.MULTILINE | re.DOTALL)


def test_the_draft_from_airflow() -> None:
    source, draft = blocks("migrate-from-airflow.md", "python")
    assert write(translate(source, "orders_report.py")) == draft


def test_the_draft_from_dbt(tmp_path: Path) -> None:
    [model] = blocks("migrate-from-elsewhere.md", "sql")
    draft, _ = blocks("migrate-from-elsewhere.md", "python")
    (tmp_path / "models").mkdir()
    (tmp_path / "dbt_project.yml").write_text("name: shop\n")
    (tmp_path / "models" / "orders.sql").write_text(model)
    (tmp_path / "models" / "schema.yml").write_text(
        "sources: [{name: raw, schema: bronze, tables: [{name: orders}]}]\n"
        "models: [{name: orders, columns: [{name: id, tests: [unique, not_null]}]}]\n"
    )
    [(_, made)] = drafts(read_project(tmp_path))
    assert write(made) == draft
