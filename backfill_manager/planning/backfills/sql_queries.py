"""The queries of `sql/`, by name."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from importlib import resources

from backfill_manager.store.sql_text import literal


def query(name: str, values: Mapping[str, str] | None = None) -> str:
    """A query of `sql/`, each `:name` in it a literal: Spark's own parameters are a dozen calls into the JVM each, and each of
    them is slow where others have the cores."""
    return re.sub(r":([a-z_]+)", lambda found: literal((values or {})[found[1]]), _text(name))


@cache
def _text(name: str) -> str:
    text = resources.files("backfill_manager.planning").joinpath(f"sql/{name}.sql").read_text(encoding="utf-8")
    return "".join(line for line in text.splitlines(keepends=True) if not line.startswith("--"))
