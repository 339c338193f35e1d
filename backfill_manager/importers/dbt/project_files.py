"""Reads a dbt project from its files: models, their YAML files, seeds, snapshots and macros."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from jinja2 import TemplateError
from jinja2.sandbox import SandboxedEnvironment

from backfill_manager.importers.dbt.model_config import INSTEAD, model_of
from backfill_manager.importers.dbt.models import Model, Names, Project, add_declared, dotted, render
from backfill_manager.importers.dbt.settings import folders_of, text_of, variables, yaml_of


def project_of_files(folder: Path, settings: Mapping[str, Any]) -> Project:
    project = Project(str(settings.get("name") or folder.name), settings)
    paths = folders_of(settings, "model")
    places = {path: folder / one for one in paths for path in sorted((folder / one).rglob("*.sql"))}
    texts = {path: text_of(path) for path in places}
    documents = [yaml_of(path) for one in paths for path in sorted((folder / one).rglob("*.y*ml"))]
    sources = _sources(documents, project)
    described = {str(one["name"]): one for document in documents for one in document.get("models") or ()}
    configs = {
        path.stem: {
            key: _plain(value, project)
            for key, value in {
                **_config_of_folder(settings, path.relative_to(places[path])),
                **(described.get(path.stem, {}).get("config") or {}),
            }.items()
        }
        | _config_in(text)
        for path, text in texts.items()
    }
    texts = {path: text for path, text in texts.items() if configs[path.stem].get("enabled") is not False}
    tables = {path.stem: _table(configs[path.stem], path.stem) for path in texts}
    loaded = _seeds_and_snapshots(folder, settings, documents)
    context = Names(loaded | tables, sources, variables(settings))
    context.macros = _macros(folder, settings)
    for path, text in texts.items():
        model = model_of(path.stem, tables[path.stem], str(path.relative_to(folder)), configs[path.stem])
        render(model, text, context)
        model.sources += [loaded[name] for name in model.depends_on if name not in tables]
        model.depends_on = [name for name in model.depends_on if name in tables]
        _add_declared_checks(model, described.get(path.stem, {}))
        project.models[model.name] = model
    _remark_other_files(project, folder)
    for source, table in _tables_of_sources(documents):
        _remark_source(project, sources[str(source["name"]), str(table["name"])], source, table)
    return project


def _tables_of_sources(documents: Iterable[Mapping[str, Any]]) -> Iterator[tuple[Mapping[str, Any], Mapping[str, Any]]]:
    """Each source with each of its tables."""
    for document in documents:
        for source in document.get("sources") or ():
            yield from ((source, table) for table in source.get("tables") or ())


def _sources(documents: Iterable[Mapping[str, Any]], project: Project) -> dict[tuple[str, str], str]:
    return {
        (str(source["name"]), str(table["name"])): dotted(
            _plain(source.get("schema") or source["name"], project),
            _plain(table.get("identifier") or table["name"], project),
        )
        for source, table in _tables_of_sources(documents)
    }


def _table(config: Mapping[str, Any], name: str) -> str:
    return dotted(config.get("schema"), config.get("alias") or name)


def _add_declared_checks(model: Model, document: Mapping[str, Any]) -> None:
    """The tests that the description of a model has, of itself and of its columns."""
    for test in document.get("tests") or document.get("data_tests") or ():
        add_declared(model, test, None)
    for column in document.get("columns") or ():
        for test in column.get("tests") or column.get("data_tests") or ():
            add_declared(model, test, str(column["name"]))


def _remark_other_files(project: Project, folder: Path) -> None:
    others = (
        ("model", "*.py", "Python model"), ("seed", "*.csv", "seed"), ("snapshot", "*.sql", "snapshot"),
        ("test", "*.sql", "test"),
    )  # fmt: skip
    for kind, pattern, what in others:
        places = [folder / one for one in folders_of(project.settings, kind)]
        for path in sorted(path.relative_to(folder) for place in places for path in place.rglob(pattern)):
            if "generic" not in path.parts:
                project.remark(f"the {what} {path.stem}", INSTEAD[what])


def _seeds_and_snapshots(
    folder: Path, settings: Mapping[str, Any], documents: Iterable[Mapping[str, Any]]
) -> dict[str, str]:
    """The tables that models refer to, and that are not theirs."""
    found = {path.stem: path.stem for one in folders_of(settings, "seed") for path in (folder / one).rglob("*.csv")}
    places = [folder / one for one in folders_of(settings, "snapshot")]
    for path in (path for place in places for path in place.rglob("*.sql")):
        for name, text in re.findall(
            r"{%-?\s*snapshot\s+(\w+)\s*-?%}(.*?){%-?\s*endsnapshot", text_of(path), re.DOTALL
        ):
            config = _config_in(text)
            found[name] = dotted(config.get("target_schema") or config.get("schema"), config.get("alias") or name)
    for document in (*documents, *(yaml_of(path) for place in places for path in place.rglob("*.y*ml"))):
        for one in document.get("snapshots") or ():
            found.setdefault(str(one["name"]), dotted((one.get("config") or {}).get("schema"), one["name"]))
    return found


def _remark_source(project: Project, name: str, source: Mapping[str, Any], table: Mapping[str, Any]) -> None:
    columns = table.get("columns") or ()
    if any(one.get("tests") or one.get("data_tests") for one in (table, *columns)):
        project.remark(f"tests of the source {name}", INSTEAD["test of no model"])
    if table.get("freshness") or source.get("freshness"):
        project.remark(f"freshness of the source {name}", INSTEAD["freshness"])


def _plain(value: Any, project: Project) -> Any:
    """A value of a YAML file, with the Jinja in it rendered."""
    if not isinstance(value, str) or "{{" not in value:
        return value
    names = Names({}, {}, variables(project.settings))
    try:
        text = names.render(value)
    except (TemplateError, TypeError, ValueError, OverflowError):
        names.target.is_used, text = True, value
    if names.target.is_used:
        project.remark(f"`{value}` in a YAML file", "It depends on what is not here: look at what is made of it")
    return {"True": True, "False": False}.get(text, text)


def _macros(folder: Path, settings: Mapping[str, Any]) -> str:
    """The project's macros, those files left out that hold more than Jinja knows."""
    environment, texts = SandboxedEnvironment(), []
    for path in (
        path for one in settings.get("macro-paths") or ["macros"] for path in sorted((folder / one).rglob("*.sql"))
    ):
        try:
            environment.parse(text := path.read_text(encoding="utf-8"))
        except (TemplateError, OSError, ValueError):
            continue
        texts.append(text)
    return "\n".join(texts)


def _config_of_folder(settings: Mapping[str, Any], path: Path) -> dict[str, Any]:
    """`models:` of dbt_project.yml for a file of a folder of models: `+materialized`, the deeper folder wins."""
    at, config = (settings.get("models") or {}), dict[str, Any]()
    for step in (None, str(settings.get("name")), *path.parts[:-1], path.stem):
        at = at if step is None else at.get(step)
        if not isinstance(at, dict):
            break
        config |= {
            key.lstrip("+"): value
            for key, value in ((str(key), value) for key, value in at.items())
            if key.startswith("+") or key in ("enabled", "materialized", "schema", "tags")
        }
    return config


def _config_in(text: str) -> dict[str, Any]:
    """What `config(...)` of a model sets, as far as it is written out."""
    found: dict[str, Any] = {}
    names = Names({}, {}, {}, is_first=True)
    names.config = found
    names.try_render(text)
    return found
