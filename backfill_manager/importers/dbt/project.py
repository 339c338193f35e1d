"""Reads a dbt project: from `target/manifest.json` where `dbt parse` has written it, else from the project's files."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

import yaml  # type: ignore[import-untyped]
from jinja2 import TemplateError
from jinja2.sandbox import SandboxedEnvironment

from backfill_manager.errors import InvalidInput
from backfill_manager.humanise import plural
from backfill_manager.importers.dbt.models import Model, Names, Project, add_check, add_declared, dotted, render

BATCH_SIZES: Final = {"hour": "@hourly", "day": "@daily", "month": "@monthly", "year": "@yearly"}
_INSTEAD: Final = {
    "Python model": "Write it as a @task with ctx.spark and ctx.write",
    "seed": "Load it by a task",
    "snapshot": "Keep history with a MERGE",
    "test": "Write it as a task after its models",
    "test of no model": "Checks are of rows that a task writes: add a task",
    "freshness": 'waits_for=[rows("table", time_column="...")] waits for an interval\'s rows',
}
_INCREMENTAL: Final = {
    "by event time": "Each run replaces its interval by {event_time}: read only the interval's rows",
    "by unique_key": "It updates rows by that key; time_column= would replace the run's interval instead",
    "without event_time": "It appends; give it time_column= to replace the run's interval instead",
}


def read_project(folder: Path) -> Project:
    """`InvalidInput` for what is no dbt project."""
    file = folder / "dbt_project.yml"
    if not file.is_file():
        raise InvalidInput(f"{folder} is no dbt project: it has no dbt_project.yml.")
    settings = _yaml(file)
    manifest = folder / "target" / "manifest.json"
    if not manifest.is_file():
        return _of_files(folder, settings)
    project = _of_manifest(manifest, settings)
    if newer := _newer_files(folder, settings, manifest):
        others = f" and {plural(len(newer) - 1, 'other file')}" if newer[1:] else ""
        what = f"target/manifest.json is older than {newer[0].relative_to(folder)}{others}"
        project.remark(what, "The draft is of then: run `dbt parse`, or delete it, and import again")
    return project


def _newer_files(folder: Path, settings: Mapping[str, Any], manifest: Path) -> list[Path]:
    """What `dbt parse` has not seen as it is now."""
    at = manifest.stat().st_mtime
    files = {
        path
        for kind in ("model", "macro", "snapshot", "seed", "test")
        for place in _paths(settings, kind)
        for path in (folder / place).rglob("*")
        if path.suffix in (".sql", ".yml", ".yaml", ".py", ".csv")
    }
    return sorted(path for path in {*files, folder / "dbt_project.yml"} if path.stat().st_mtime > at)


def _paths(settings: Mapping[str, Any], kind: str) -> list[str]:
    """The folders of models, macros, ..., of which some have had other names in the settings."""
    older = {"model": "source-paths", "seed": "data-paths"}.get(kind, "")
    return settings.get(f"{kind}-paths") or settings.get(older) or [f"{kind}s"]


# -- manifest.json ----------------------------------------------------------------------------------------------------
def _of_manifest(file: Path, settings: Mapping[str, Any]) -> Project:
    try:
        document = json.loads(file.read_text(encoding="utf-8"))
        nodes, sources = document["nodes"], document.get("sources", {})
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InvalidInput(f"{file}: is no manifest of dbt: {error}.") from None
    name = str(settings.get("name") or document.get("metadata", {}).get("project_name") or "dbt")
    project = Project(name, settings)
    tables = {key: dotted(node.get("schema"), node.get("alias") or node.get("name")) for key, node in nodes.items()}
    tables |= {
        key: dotted(node.get("schema"), node.get("identifier") or node.get("name")) for key, node in sources.items()
    }
    names = _unique_names(nodes)
    of_refs = {names[key]: tables[key] for key in nodes}
    for key, node in nodes.items():
        of_refs[f"{node.get('package_name')}.{_with_version(node)}"] = tables[key]
        if node.get("version") is not None and node.get("version") == node.get("latest_version"):
            of_refs[str(node["name"])] = tables[key]
    context = Names(of_refs, {(node["source_name"], node["name"]): tables[key] for key, node in sources.items()},
                     _variables(settings))  # fmt: skip
    for key, node in nodes.items():
        if node.get("resource_type") != "model":
            if (kind := node.get("resource_type")) in ("snapshot", "seed"):
                project.remark(f"the {kind} {node['name']}", _INSTEAD[kind])
            continue
        if node.get("language", "sql") != "sql":
            project.remark(f"the Python model {node['name']}", _INSTEAD["Python model"])
            continue
        config = {**node.get("config", {}), "tags": node.get("tags") or node.get("config", {}).get("tags")}
        path = str(node.get("original_file_path") or node["name"])
        model = _model(names[key], tables[key], path, config)
        render(model, str(node.get("raw_code") or node.get("raw_sql") or ""), context, node.get("compiled_code"))
        for upstream in node.get("depends_on", {}).get("nodes", ()):
            if upstream.startswith("model."):
                model.depends_on.append(names[upstream])
            elif upstream in tables:
                model.sources.append(tables[upstream])
        project.models[model.name] = model
    for node in nodes.values():
        if node.get("resource_type") != "test":
            continue
        tested = (node.get("attached_node"), *node.get("depends_on", {}).get("nodes", ()))
        attached = next((names[one] for one in tested if one in names), None)
        if attached in project.models:
            metadata = node.get("test_metadata") or {}
            arguments = metadata.get("kwargs") or {}
            add_check(
                project.models[attached],
                metadata.get("name") or node["name"],
                node.get("column_name") or arguments.get("column_name"),
                arguments,
                node.get("config") or {},
            )
        else:
            project.remark(f"the test {node['name']}, of no model here", _INSTEAD["test of no model"])
    for key, node in sources.items():
        if any((node.get("freshness") or {}).get(one) for one in ("warn_after", "error_after")):
            project.remark(f"freshness of the source {tables[key]}", _INSTEAD["freshness"])
    return project


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


def _variables(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Those of the project itself, `vars: {its_name: ...}`, come before those of all."""
    of_all = settings.get("vars") or {}
    own = of_all.get(settings.get("name"))
    return {**of_all, **(own if isinstance(own, dict) else {})}


# -- the project's files ----------------------------------------------------------------------------------------------
def _of_files(folder: Path, settings: Mapping[str, Any]) -> Project:
    project = Project(str(settings.get("name") or folder.name), settings)
    paths = _paths(settings, "model")
    places = {path: folder / one for one in paths for path in sorted((folder / one).rglob("*.sql"))}
    texts = {path: _text(path) for path in places}
    documents = [_yaml(path) for one in paths for path in sorted((folder / one).rglob("*.y*ml"))]
    sources = {
        (str(source["name"]), str(table["name"])): dotted(
            _plain(source.get("schema") or source["name"], project),
            _plain(table.get("identifier") or table["name"], project),
        )
        for document in documents
        for source in document.get("sources") or ()
        for table in source.get("tables") or ()
    }  # fmt: skip
    described = {str(one["name"]): one for document in documents for one in document.get("models") or ()}
    configs = {path.stem: _config_of_folder(settings, path.relative_to(place)) for path, place in places.items()}
    configs = {
        name: {
            key: _plain(value, project)
            for key, value in {**config, **(described.get(name, {}).get("config") or {})}.items()
        }
        for name, config in configs.items()
    }
    tables = {}
    for path, text in list(texts.items()):
        configs[path.stem] |= _config_in(text)
        config = configs[path.stem]
        if config.get("enabled") is False:
            del texts[path]
            continue
        tables[path.stem] = dotted(config.get("schema"), config.get("alias") or path.stem)
    loaded = _seeds_and_snapshots(folder, settings, documents)
    context = Names(loaded | tables, sources, _variables(settings))
    context.macros = _macros(folder, settings)
    for path, text in texts.items():
        document = described.get(path.stem, {})
        model = _model(path.stem, tables[path.stem], str(path.relative_to(folder)), configs[path.stem])
        render(model, text, context)
        model.sources += [loaded[name] for name in model.depends_on if name not in tables]
        model.depends_on = [name for name in model.depends_on if name in tables]
        for test in document.get("tests") or document.get("data_tests") or ():
            add_declared(model, test, None)
        for column in document.get("columns") or ():
            for test in column.get("tests") or column.get("data_tests") or ():
                add_declared(model, test, str(column["name"]))
        project.models[model.name] = model
    others = (
        (paths, "*.py", "Python model"),
        (_paths(settings, "seed"), "*.csv", "seed"),
        (_paths(settings, "snapshot"), "*.sql", "snapshot"),
        (_paths(settings, "test"), "*.sql", "test"),
    )
    for folders, pattern, what in others:
        for path in sorted(path.relative_to(folder) for one in folders for path in (folder / one).rglob(pattern)):
            if "generic" not in path.parts:
                project.remark(f"the {what} {path.stem}", _INSTEAD[what])
    for document in documents:
        for source in document.get("sources") or ():
            for table in source.get("tables") or ():
                _remark_source(project, sources[str(source["name"]), str(table["name"])], source, table)
    return project


def _seeds_and_snapshots(
    folder: Path, settings: Mapping[str, Any], documents: Iterable[Mapping[str, Any]]
) -> dict[str, str]:
    """The tables that models refer to, and that are not theirs."""
    found = {path.stem: path.stem for one in _paths(settings, "seed") for path in (folder / one).rglob("*.csv")}
    places = [folder / one for one in _paths(settings, "snapshot")]
    for path in (path for place in places for path in place.rglob("*.sql")):
        for name, text in re.findall(r"{%-?\s*snapshot\s+(\w+)\s*-?%}(.*?){%-?\s*endsnapshot", _text(path), re.DOTALL):
            config = _config_in(text)
            found[name] = dotted(config.get("target_schema") or config.get("schema"), config.get("alias") or name)
    for document in (*documents, *(_yaml(path) for place in places for path in place.rglob("*.y*ml"))):
        for one in document.get("snapshots") or ():
            found.setdefault(str(one["name"]), dotted((one.get("config") or {}).get("schema"), one["name"]))
    return found


def _remark_source(project: Project, name: str, source: Mapping[str, Any], table: Mapping[str, Any]) -> None:
    columns = table.get("columns") or ()
    if any(one.get("tests") or one.get("data_tests") for one in (table, *columns)):
        project.remark(f"tests of the source {name}", _INSTEAD["test of no model"])
    if table.get("freshness") or source.get("freshness"):
        project.remark(f"freshness of the source {name}", _INSTEAD["freshness"])


def _plain(value: Any, project: Project) -> Any:
    """A value of a YAML file, with the Jinja in it rendered."""
    if not isinstance(value, str) or "{{" not in value:
        return value
    names = Names({}, {}, _variables(project.settings))
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


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8-sig")
    except (OSError, ValueError) as error:
        raise InvalidInput(f"{path} can't be read: {error}.") from None


def _yaml(path: Path) -> dict[str, Any]:
    try:
        found = yaml.safe_load(_text(path))
    except yaml.YAMLError as error:
        raise InvalidInput(f"{path} can't be read: {' '.join(str(error).split())}.") from None
    return found if isinstance(found, dict) else {}


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


def _model(name: str, table: str, path: str, config: Mapping[str, Any]) -> Model:
    key = config.get("unique_key") or ()
    tags = config.get("tags") or ()
    model = Model(
        name, table, "", path, str(config.get("materialized") or "view"), config.get("event_time"),
        (key,) if isinstance(key, str) else tuple(key), tags=(tags,) if isinstance(tags, str) else tuple(tags),
    )  # fmt: skip
    if model.materialized == "incremental":
        if model.event_time and config.get("batch_size") in BATCH_SIZES and config.get("begin"):
            model.batch_size, model.begin = str(config["batch_size"]), str(config["begin"])
            if lookback := config.get("lookback", 1):
                instead = f"lookback={lookback} of the DAG does as many intervals before each run again, with all tasks"
                model.remark(f"lookback={lookback}, of batches that are done again", instead)
        by = "by event time" if model.event_time else "by unique_key" if model.unique_key else "without event_time"
        model.remark(f"incremental {by}", _INCREMENTAL[by].format(event_time=model.event_time))
    elif model.materialized == "ephemeral":
        model.remark("an ephemeral model", "It is a table here; put it into the models that use it as WITH")
    elif model.materialized not in ("view", "table"):
        model.remark(f"the materialization {model.materialized}", "It is a table here that each run writes anew")
    for hook in ("pre_hook", "post_hook", "pre-hook", "post-hook"):
        if config.get(hook):
            model.remark(hook.replace("-", "_"), "Write it as a SQL task before or after it")
    for layout in ("partition_by", "clustered_by", "liquid_clustered_by", "tblproperties", "location_root"):
        if config.get(layout):
            model.remark(layout, "Make the table first, as it is to be: CREATE TABLE in a SQL task")
    if model.materialized == "incremental" and config.get("on_schema_change") not in (None, "ignore", "fail"):
        model.new_columns = True
        if (change := config["on_schema_change"]) != "append_new_columns":
            model.remark(f"on_schema_change={change}", "Columns are added; those that are gone stay")
    return model
