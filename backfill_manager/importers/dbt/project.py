"""Reads a dbt project: from `target/manifest.json` where `dbt parse` has written it, else from the project's files."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from backfill_manager.errors import InvalidInput
from backfill_manager.humanise import plural
from backfill_manager.importers.dbt.manifest import project_of_manifest
from backfill_manager.importers.dbt.models import Project
from backfill_manager.importers.dbt.project_files import project_of_files
from backfill_manager.importers.dbt.settings import folders_of, yaml_of


def read_project(folder: Path) -> Project:
    """`InvalidInput` for what is no dbt project."""
    file = folder / "dbt_project.yml"
    if not file.is_file():
        raise InvalidInput(f"{folder} is no dbt project: it has no dbt_project.yml.")
    settings = yaml_of(file)
    manifest = folder / "target" / "manifest.json"
    if not manifest.is_file():
        return _with_hooks(project_of_files(folder, settings), settings)
    project = _with_hooks(project_of_manifest(manifest, settings), settings)
    if newer := _newer_files(folder, settings, manifest):
        others = f" and {plural(len(newer) - 1, 'other file')}" if newer[1:] else ""
        what = f"target/manifest.json is older than {newer[0].relative_to(folder)}{others}"
        project.remark(what, "The draft is of then: run `dbt parse`, or delete it, and import again")
    return project


def _with_hooks(project: Project, settings: Mapping[str, Any]) -> Project:
    for hook, place in (("on-run-start", "before"), ("on-run-end", "after")):
        if settings.get(hook):
            project.remark(f"{hook} of the project", f"Write it as a SQL task {place} all others")
    return project


def _newer_files(folder: Path, settings: Mapping[str, Any], manifest: Path) -> list[Path]:
    """What `dbt parse` has not seen as it is now."""
    at = manifest.stat().st_mtime
    files = {
        path
        for kind in ("model", "macro", "snapshot", "seed", "test")
        for place in folders_of(settings, kind)
        for path in (folder / place).rglob("*")
        if path.suffix in (".sql", ".yml", ".yaml", ".py", ".csv")
    }
    return sorted(path for path in {*files, folder / "dbt_project.yml"} if path.stat().st_mtime > at)
