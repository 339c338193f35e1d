"""A dbt project as drafts: each model a SQL task, in the order of their `ref`s, with what its DAG reads and writes, and tests as
checks. From `target/manifest.json` where `dbt parse` has written it, else from the project's files: their Jinja is rendered in a
sandbox that knows `ref`, `source`, `config`, `var` and `is_incremental`, and nothing of the machine."""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import yaml  # type: ignore[import-untyped]
from jinja2 import StrictUndefined, TemplateError
from jinja2.sandbox import SandboxedEnvironment

from backfill_manager.errors import InvalidInput
from backfill_manager.humanise import plural
from backfill_manager.importers.draft import Code, Draft, DraftDag, Remark, in_order
from backfill_manager.importers.writer import call, identifier, keywords, quoted

MAX_SQL_LENGTH: Final = 1_000_000
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
_AT: Final = "schedule= and start_date= of the DAG are yours to set"


@dataclass
class Model:
    """A model. `depends_on` and `sources` are names of models, and of tables."""

    name: str
    table: str
    sql: str
    path: str
    materialized: str = "view"
    event_time: str | None = None
    unique_key: tuple[str, ...] = ()
    batch_size: str | None = None  # of a microbatch, a key of BATCH_SIZES
    begin: str | None = None  # of a microbatch: where the first one begins
    new_columns: bool = False  # are added to its table
    tags: tuple[str, ...] = ()
    depends_on: list[str] = field(default_factory=list)
    sources: list[str] = field(default_factory=list)
    checks: list[str] = field(default_factory=list)  # as text of Python
    remarks: list[Remark] = field(default_factory=list)

    def remark(self, what: str, instead: str) -> None:
        _remark(self.remarks, f"{self.path}: {what}", instead)


@dataclass
class Project:
    name: str
    settings: Mapping[str, Any]  # its dbt_project.yml
    models: dict[str, Model] = field(default_factory=dict)
    remarks: list[Remark] = field(default_factory=list)

    def remark(self, what: str, instead: str) -> None:
        _remark(self.remarks, what, instead)


def _remark(remarks: list[Remark], what: str, instead: str) -> None:
    one = Remark(None, what, instead)
    if one not in remarks:
        remarks.append(one)


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


def drafts(project: Project, *, by_tag: bool = False) -> Iterator[tuple[str, Draft]]:
    """The name of each file, and its draft: one, or one for each first tag of a model."""
    if not project.models:
        raise InvalidInput("The project has no models in SQL.")
    groups: dict[str, list[Model]] = {}
    for model in project.models.values():
        groups.setdefault(_name(model.tags[0] if by_tag and model.tags else project.name), []).append(model)
    for number, (name, models) in enumerate(groups.items()):
        _note_other_groups(models, project.models)
        yield f"{name}.py", _draft(name, models, project.remarks if number == 0 else [])


def _note_other_groups(models: Sequence[Model], every: Mapping[str, Model]) -> None:
    """What models need of another DAG's is read like a source."""
    inside = {model.name for model in models}
    for model in models:
        for other in (every[one] for one in model.depends_on if one in every and one not in inside):
            model.sources += [other.table] if other.table not in model.sources else []
            model.remark(f"needs {other.name}, of another DAG", f"Wait for it: waits_for=[{quoted(other.table)}]")


def _draft(name: str, models: Sequence[Model], remarks: Sequence[Remark]) -> Draft:
    schedule = _schedule(models)
    unknown = [] if "start_date" in schedule else [Remark(None, "no schedule is known", _AT)]
    dag = DraftDag(name, schedule, remarks=[*unknown, *remarks])
    inside = {model.name for model in models}
    written = {model.table for model in models}
    reads = sorted({table for model in models for table in model.sources} - written)
    if reads:
        dag.settings["reads"] = _list(reads)
    dag.settings["writes"] = _list(model.table for model in models)
    taken: dict[str, str] = {}
    by_name = {model.name: model for model in models}
    for model in map(by_name.__getitem__, in_order({one.name: one.depends_on for one in models}, "models")):
        variable = _name(model.name)
        while variable in taken.values() or variable in ("sql", "dag"):
            variable += "_"
        taken[model.name] = variable
        dag.items += model.remarks
        dag.items.append(Code(f"{variable} = {_task(model)}"))
        before = [taken[one] for one in dict.fromkeys(model.depends_on) if one in inside and one in taken]
        if before:
            dag.items.append(Code(f"{before[0] if len(before) == 1 else '[' + ', '.join(before) + ']'} >> {variable}"))
    all_remarks = [*dag.remarks, *(remark for model in models for remark in model.remarks)]
    return Draft("dbt", [dag], remarks=all_remarks)


def _schedule(models: Sequence[Model]) -> dict[str, str]:
    """Of microbatches of one size: an interval is a batch."""
    sizes = {model.batch_size for model in models if model.batch_size}
    begins = [model.begin for model in models if model.begin]
    if len(sizes) != 1 or not begins:
        return {"schedule": "None"}
    return {"schedule": quoted(BATCH_SIZES[sizes.pop()]), "start_date": quoted(min(begins))}


def _task(model: Model) -> str:
    settings: dict[str, str] = {}
    if model.materialized == "incremental" and model.event_time:
        settings |= {"into": quoted(model.table), "time_column": quoted(model.event_time)}
    elif model.materialized == "incremental" and model.unique_key:
        settings |= {"into": quoted(model.table), "merge_on": _list(model.unique_key)}
    elif model.materialized == "incremental":
        settings |= {"into": quoted(model.table), "mode": '"append"'}
    elif model.materialized == "view":
        schema, _, _ = _table(model.table).rpartition(".")
        made = f"CREATE SCHEMA IF NOT EXISTS {schema};\n" if schema else ""  # as dbt does; into= does so by itself
        view = f"{made}CREATE OR REPLACE VIEW {_table(model.table)} AS\n{model.sql}"
        return call("sql", [quoted(model.name), quoted(view)])
    else:
        settings |= {"into": quoted(model.table), "mode": '"overwrite"'}
    if model.new_columns:
        settings["schema"] = '"merge"'
    if model.checks:
        settings["checks"] = f"[{', '.join(dict.fromkeys(model.checks))}]"
    return call("sql", [quoted(model.name), quoted(model.sql), *keywords(settings)])


def _list(texts: Iterable[str]) -> str:
    return "[" + ", ".join(map(quoted, texts)) + "]"


# -- manifest.json ----------------------------------------------------------------------------------------------------
def _of_manifest(file: Path, settings: Mapping[str, Any]) -> Project:
    try:
        document = json.loads(file.read_text(encoding="utf-8"))
        nodes, sources = document["nodes"], document.get("sources", {})
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InvalidInput(f"{file}: is no manifest of dbt: {error}.") from None
    name = str(settings.get("name") or document.get("metadata", {}).get("project_name") or "dbt")
    project = Project(name, settings)
    tables = {key: _dotted(node.get("schema"), node.get("alias") or node.get("name")) for key, node in nodes.items()}
    tables |= {
        key: _dotted(node.get("schema"), node.get("identifier") or node.get("name")) for key, node in sources.items()
    }
    names = _unique_names(nodes)
    of_refs = {names[key]: tables[key] for key in nodes}
    for key, node in nodes.items():
        of_refs[f"{node.get('package_name')}.{_with_version(node)}"] = tables[key]
        if node.get("version") is not None and node.get("version") == node.get("latest_version"):
            of_refs[str(node["name"])] = tables[key]
    context = _Names(of_refs, {(node["source_name"], node["name"]): tables[key] for key, node in sources.items()},
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
        _render(model, str(node.get("raw_code") or node.get("raw_sql") or ""), context, node.get("compiled_code"))
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
            _add_check(
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
        (str(source["name"]), str(table["name"])): _dotted(
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
        tables[path.stem] = _dotted(config.get("schema"), config.get("alias") or path.stem)
    loaded = _seeds_and_snapshots(folder, settings, documents)
    context = _Names(loaded | tables, sources, _variables(settings))
    context.macros = _macros(folder, settings)
    for path, text in texts.items():
        document = described.get(path.stem, {})
        model = _model(path.stem, tables[path.stem], str(path.relative_to(folder)), configs[path.stem])
        _render(model, text, context)
        model.sources += [loaded[name] for name in model.depends_on if name not in tables]
        model.depends_on = [name for name in model.depends_on if name in tables]
        for test in document.get("tests") or document.get("data_tests") or ():
            _add_declared(model, test, None)
        for column in document.get("columns") or ():
            for test in column.get("tests") or column.get("data_tests") or ():
                _add_declared(model, test, str(column["name"]))
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
            found[name] = _dotted(config.get("target_schema") or config.get("schema"), config.get("alias") or name)
    for document in (*documents, *(_yaml(path) for place in places for path in place.rglob("*.y*ml"))):
        for one in document.get("snapshots") or ():
            found.setdefault(str(one["name"]), _dotted((one.get("config") or {}).get("schema"), one["name"]))
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
    names = _Names({}, {}, _variables(project.settings))
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
    names = _Names({}, {}, {}, is_first=True)
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


class _Names:
    """What a model's Jinja may use."""

    def __init__(
        self, tables: Mapping[str, str], sources: Mapping[tuple[str, str], str], variables: Mapping[str, Any], *,
        is_first: bool = False,
    ) -> None:  # fmt: skip
        self.tables, self.sources, self.variables, self.is_first = tables, sources, variables, is_first
        self.macros = ""
        self.config: dict[str, Any] = {}
        self.refs: list[str] = []
        self.reads: list[str] = []
        self.used_incremental = False
        self.target = _Target()

    def render(self, text: str, this: str = "this") -> str:
        environment = SandboxedEnvironment(undefined=StrictUndefined, keep_trailing_newline=False)
        globals_ = {
            "ref": self._ref, "source": self._source, "config": self._config, "var": self._var, "this": _table(this),
            "is_incremental": self._is_incremental, "execute": True, "flags": {}, "target": self.target,
        }  # fmt: skip
        return environment.from_string(self.macros + text).render(globals_)

    def try_render(self, text: str) -> None:
        """As far as it goes: `config` stands first in a model."""
        with contextlib.suppress(TemplateError, TypeError, ValueError, InvalidInput, OverflowError):
            self.render(text)

    def _ref(self, *names: str, v: Any = None, version: Any = None) -> str:
        version = version if v is None else v
        name = names[-1] if version is None else f"{names[-1]}_v{version}"
        name = one if (one := ".".join((*names[:-1], name))) in self.tables else name
        if name not in self.tables and not self.is_first:
            raise ValueError(f"ref({name!r}) is no model of the project")
        self.refs.append(name)
        return _table(self.tables.get(name, name))

    def _source(self, source: str, table: str) -> str:
        found = self.sources.get((source, table), _dotted(source, table))
        self.reads.append(found)
        return _table(found)

    def _config(self, *given: Any, **settings: Any) -> str:
        self.config.update(given[0] if given and isinstance(given[0], dict) else {}, **settings)
        return ""

    def _var(self, name: str, *default: Any) -> Any:
        if name not in self.variables and not default and not self.is_first:
            raise ValueError(f"var({name!r}) has no value in dbt_project.yml")
        return self.variables.get(name, *default)

    def _is_incremental(self) -> bool:
        self.used_incremental = True
        return False


class _Target(dict[str, str]):
    """What a project asks of its profile, which is not here."""

    def __init__(self) -> None:
        super().__init__(name="prod", schema="")
        self.is_used = False

    def __getitem__(self, key: str) -> str:
        self.is_used = True
        return super().__getitem__(key)


def _render(model: Model, text: str, names: _Names, compiled: str | None = None) -> None:
    """The model's SQL, with what it refers to."""
    own = _Names(names.tables, names.sources, names.variables)
    own.macros = names.macros
    try:
        if len(text) > MAX_SQL_LENGTH:
            raise ValueError("it is too long")
        sql = own.render(text, model.table)
    except (TemplateError, TypeError, ValueError, OverflowError) as error:
        model.remark(f"its Jinja: {' '.join(str(error).split())[:100]}", "`dbt compile` writes its SQL; put it here")
        sql = compiled or f"SELECT assert_true(false, {_sql_text('write the SQL of this model')})"
        own.refs += [name for name in re.findall(r"""\bref\(\s*['"](\w+)['"]\s*\)""", text) if name in names.tables]
    if own.target.is_used:
        model.remark("target", "Its name is taken as 'prod', and its schema as empty: look at what depends on it")
    if own.used_incremental:
        model.remark("is_incremental()", "It is taken as false: filter by `>= :interval_start AND < :interval_end`")
    model.depends_on += [name for name in own.refs if name not in model.depends_on]
    model.sources += [table for table in own.reads if table not in model.sources]
    model.sql = re.sub(r"\n\s*\n+", "\n", sql).strip().rstrip(";").strip()
    if model.materialized == "incremental" and model.event_time and ":interval_start" not in model.sql:
        column = _sql_name(model.event_time)
        within = f"{column} >= :interval_start AND {column} < :interval_end"
        model.sql = f"SELECT * FROM (\n{model.sql}\n) WHERE {within}"  # noqa: S608 - a draft, of the project's own SQL


# -- tests ------------------------------------------------------------------------------------------------------------
def _add_declared(model: Model, test: Any, column: str | None) -> None:
    if isinstance(test, str):
        _add_check(model, test, column, {}, {})
    elif isinstance(test, dict) and test:
        name = str(test.get("test_name") or test.get("name") or next(iter(test)))
        arguments = next(iter(test.values())) if name in test else test
        name = name.rpartition(".")[2]  # of a package: dbt_utils.unique_combination_of_columns
        arguments = arguments if isinstance(arguments, dict) else {}
        config = {**arguments, **(arguments.get("config") or {})}
        _add_check(model, name, column, {**arguments, **(arguments.get("arguments") or {})}, config)


def _add_check(
    model: Model, name: str, column: str | None, arguments: Mapping[str, Any], config: Mapping[str, Any]
) -> None:
    what = f"the test {name}{f' of {column}' if column else ''}"
    limits = [one for one in ("where", "error_if", "warn_if") if config.get(one) not in (None, "!= 0")]
    if model.materialized == "view":
        model.remark(what, "Checks are of rows that a task writes, and this is a view: into= and checks=")
    elif name == "relationships" and not limits:
        to = f"{arguments.get('to', 'a table')}.{arguments.get('field', 'id')}"
        model.remark(what, f"A check is of single rows: add a task after it that looks for rows without one in {to}")
    elif limits or (condition := _condition(name, column, arguments)) is None:
        what += f" with {' and '.join(limits)}" if limits else ""
        model.remark(what, 'A condition of single rows: checks=["..."]; else a task after it')
    else:
        is_warning = str(config.get("severity")).lower() == "warn"
        text = quoted(condition)
        model.checks.append(call("Check", [text, 'on_failure="warn"']) if is_warning else text)


def _condition(name: str, column: str | None, arguments: Mapping[str, Any]) -> str | None:
    """What a test of dbt says, as a condition of `checks=`; None for what these don't say."""
    key = _sql_name(column) if column else ""
    values, columns = arguments.get("values"), arguments.get("combination_of_columns")
    if name == "not_null" and column:
        return f"no nulls in {key}"
    if name == "unique" and column:
        return f"unique({key})"
    if name == "accepted_values" and column and isinstance(values, list):
        quote = arguments.get("quote", True)
        texts = (_sql_text(str(one)) if quote and not isinstance(one, int | float) else str(one) for one in values)
        return f"{key} IS NULL OR {key} IN ({', '.join(texts)})"
    if name == "unique_combination_of_columns" and isinstance(columns, list):
        return f"unique({', '.join(_sql_name(str(one)) for one in columns)})"
    return None


def _name(name: str) -> str:
    return identifier(name, "m", "dbt")


def _dotted(schema: Any, name: Any) -> str:
    return f"{schema}.{name}" if schema else str(name)


def _sql_name(name: str) -> str:
    return name if re.fullmatch(r"[A-Za-z_]\w*", name, re.ASCII) else "`" + name.replace("`", "``") + "`"


def _table(name: str) -> str:
    return ".".join(_sql_name(part) for part in name.split("."))


def _sql_text(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"
