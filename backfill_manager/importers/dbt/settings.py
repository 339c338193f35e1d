"""`dbt_project.yml`: variables and folders, and how files of a project are read."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml  # type: ignore[import-untyped]

from backfill_manager.errors import InvalidInput


def folders_of(settings: Mapping[str, Any], kind: str) -> list[str]:
    """The folders of models, macros, ..., of which some have had other names in the settings."""
    older = {"model": "source-paths", "seed": "data-paths"}.get(kind, "")
    return settings.get(f"{kind}-paths") or settings.get(older) or [f"{kind}s"]


def variables(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Those of the project itself, `vars: {its_name: ...}`, come before those of all."""
    of_all = settings.get("vars") or {}
    own = of_all.get(settings.get("name"))
    return {**of_all, **(own if isinstance(own, dict) else {})}


def text_of(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8-sig")
    except (OSError, ValueError) as error:
        raise InvalidInput(f"{path} can't be read: {error}.") from None


def yaml_of(path: Path) -> dict[str, Any]:
    try:
        found = yaml.safe_load(text_of(path))
    except yaml.YAMLError as error:
        raise InvalidInput(f"{path} can't be read: {' '.join(str(error).split())}.") from None
    return found if isinstance(found, dict) else {}
