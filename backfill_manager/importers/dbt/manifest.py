"""Reads a dbt project from `target/manifest.json`, which `dbt parse` writes."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from backfill_manager.errors import InvalidInput
from backfill_manager.importers.dbt.model_config import INSTEAD, model_of
from backfill_manager.importers.dbt.models import Names, Project, add_check, dotted, render
from backfill_manager.importers.dbt.settings import variables


def project_of_manifest(file: Path, settings: Mapping[str, Any]) -> Project:
    try:
        document = json.loads(file.read_text(encoding="utf-8"))
        nodes, sources = document["nodes"], document.get("sources", {})
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InvalidInput(f"{file}: is no manifest of dbt: {error}.") from None
    name = str(settings.get("name") or document.get("metadata", {}).get("project_name") or "dbt")
    return _Manifest(nodes, sources, Project(name, settings)).read()


class _Manifest:
    """Nodes (models, tests, seeds, ...) and sources by their keys."""

    def __init__(self, nodes: Mapping[str, Any], sources: Mapping[str, Any], project: Project) -> None:
        self._nodes, self._sources, self._project = nodes, sources, project
        self._names = _unique_names(nodes)
        self._tables = {
            key: dotted(node.get("schema"), node.get("alias") or node.get("name")) for key, node in nodes.items()
        } | {
            key: dotted(node.get("schema"), node.get("identifier") or node.get("name")) for key, node in sources.items()
        }

    def read(self) -> Project:
        context = self._context()
        for key, node in self._nodes.items():
            if node.get("resource_type") == "model":
                self._add_model(key, node, context)
            elif (kind := node.get("resource_type")) in ("snapshot", "seed"):
                self._project.remark(f"the {kind} {node['name']}", INSTEAD[kind])
        for node in self._nodes.values():
            if node.get("resource_type") == "test":
                self._add_check(node)
        for key, node in self._sources.items():
            if any((node.get("freshness") or {}).get(one) for one in ("warn_after", "error_after")):
                self._project.remark(f"freshness of the source {self._tables[key]}", INSTEAD["freshness"])
        return self._project

    def _context(self) -> Names:
        of_refs = {self._names[key]: self._tables[key] for key in self._nodes}
        for key, node in self._nodes.items():
            of_refs[f"{node.get('package_name')}.{_with_version(node)}"] = self._tables[key]
            if node.get("version") is not None and node.get("version") == node.get("latest_version"):
                of_refs[str(node["name"])] = self._tables[key]
        of_sources = {(node["source_name"], node["name"]): self._tables[key] for key, node in self._sources.items()}
        return Names(of_refs, of_sources, variables(self._project.settings))

    def _add_model(self, key: str, node: Mapping[str, Any], context: Names) -> None:
        if node.get("language", "sql") != "sql":
            self._project.remark(f"the Python model {node['name']}", INSTEAD["Python model"])
            return
        config = {**node.get("config", {}), "tags": node.get("tags") or node.get("config", {}).get("tags")}
        path = str(node.get("original_file_path") or node["name"])
        model = model_of(self._names[key], self._tables[key], path, config)
        render(model, str(node.get("raw_code") or node.get("raw_sql") or ""), context, node.get("compiled_code"))
        for upstream in node.get("depends_on", {}).get("nodes", ()):
            if upstream.startswith("model."):
                model.depends_on.append(self._names[upstream])
            elif upstream in self._tables:
                model.sources.append(self._tables[upstream])
        self._project.models[model.name] = model

    def _add_check(self, node: Mapping[str, Any]) -> None:
        """Of the first of the models that the test names."""
        tested = (node.get("attached_node"), *node.get("depends_on", {}).get("nodes", ()))
        attached = next((self._names[one] for one in tested if one in self._names), None)
        if attached not in self._project.models:
            self._project.remark(f"the test {node['name']}, of no model here", INSTEAD["test of no model"])
            return
        metadata = node.get("test_metadata") or {}
        arguments = metadata.get("kwargs") or {}
        column = node.get("column_name") or arguments.get("column_name")
        name = metadata.get("name") or node["name"]
        add_check(self._project.models[attached], name, column, arguments, node.get("config") or {})


def _unique_names(nodes: Mapping[str, Any]) -> dict[str, str]:
    """Each of the versions of a model has a name, and each of those that two packages name alike."""
    names: dict[str, str] = {}
    taken = set[str]()
    for key, node in nodes.items():
        name = _with_version(node)
        names[key] = f"{node.get('package_name')}__{name}" if name in taken else name
        taken.add(name)
    return names


def _with_version(node: Mapping[str, Any]) -> str:
    return str(node["name"]) if node.get("version") is None else f"{node['name']}_v{node['version']}"
