"""Writes docs/reference/ from the code: CLI, REST API, settings, settings of DAGs, tables, states and errors.

    .venv/bin/python docs/generate_reference.py            # writes the pages
    .venv/bin/python docs/generate_reference.py --check    # exit code 1 if a page is out of date

Texts come from where they are declared: help of Typer options, OpenAPI descriptions, descriptions or comments of settings and
columns, `model.states.LEGAL`, and the error catalogue. tests/test_docs.py runs the check.
"""

from __future__ import annotations

import ast
import inspect
import io
import json
import re
import sys
import textwrap
import tokenize
import types
import typing
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

REPOSITORY: Final = Path(__file__).resolve().parents[1]
REFERENCE: Final = REPOSITORY / "docs" / "reference"
NOTE: Final = "<!-- Made by docs/generate_reference.py; edit the code, then run it again. -->"


# -- Markdown ---------------------------------------------------------------------------------------------------------
def cell(text: object) -> str:
    return " ".join(str(text).split()).replace("|", "\\|")


def table(header: tuple[str, ...], rows: list[tuple[object, ...]]) -> str:
    lines = [header, tuple("---" for _ in header), *rows]
    return "\n".join("| " + " | ".join(cell(value) for value in line) + " |" for line in lines) + "\n"


def code(text: object) -> str:
    return f"`{text}`" if str(text) else ""


def page(title: str, *parts: str) -> str:
    return "\n".join((NOTE, "", f"# {title}", "", *(part.rstrip() + "\n" for part in parts)))


def first_paragraph(text: str | None) -> str:
    return " ".join(inspect.cleandoc(text or "").partition("\n\n")[0].split())


# -- CLI --------------------------------------------------------------------------------------------------------------
def from_rich(text: str) -> str:
    """Typer help with rich markup as Markdown."""
    text = re.sub(r"\[cyan\](.+?)\[/\]", r"`\1`", text)
    return re.sub(r"\\\[", "[", text)


def cli_commands() -> Iterator[tuple[str, Any]]:
    """(`backfill create`, Click command), in the order of `bfm --help`."""
    import typer

    from backfill_manager.cli import app

    def walk(command: Any, path: str) -> Iterator[tuple[str, Any]]:
        if getattr(command, "hidden", False):
            return
        if subcommands := getattr(command, "commands", None):
            for name, sub in subcommands.items():
                yield from walk(sub, f"{path} {name}".strip())
        else:
            yield path, command

    yield from walk(typer.main.get_command(app._app([])), "")


def _option_type(option: Any) -> str:
    if getattr(option, "is_flag", False):
        return ""
    if option.metavar:
        return str(option.metavar)
    annotation = getattr(getattr(option, "type_descriptor", None), "annotation", None)
    if typing.get_origin(annotation) is typing.Literal:
        return "|".join(map(str, typing.get_args(annotation)))
    choices = getattr(getattr(option, "type", None), "choices", None)
    return "|".join(map(str, choices)) if choices else getattr(annotation, "__name__", "").upper()


def _option_row(option: Any) -> tuple[object, ...]:
    spellings = ", ".join(code(name) for name in (*option.opts, *option.secondary_opts))
    metavar = _option_type(option)
    help = from_rich(option.help or "")
    default = option.default
    if default not in (None, False, "", (), []) and "[default" not in help and not callable(default):
        help = f"{help} [default: {default}]"
    if option.multiple and "repeat" not in help:
        help += " May be repeated."
    return f"{spellings} {metavar}".strip(), help


def _in_usage(name: str, is_required: bool) -> str:
    """In brackets, as `--help` has it, unless it must be given."""
    return name if is_required or name.startswith("[") else f"[{name}]"


def cli_page() -> str:
    commands = list(cli_commands())
    global_options: dict[str, tuple[object, ...]] = {}
    sections: list[str] = []
    group = None
    for path, command in commands:
        noun = path.split()[0]
        if noun != group:
            group = noun
            sections.append(f"## bfm {noun}\n")
        arguments = [param for param in command.params if not param.opts[0].startswith("-")]
        options = []
        for param in command.params:
            if param in arguments or getattr(param, "hidden", False):
                continue
            if str(getattr(param, "rich_help_panel", None) or "").startswith("Global"):
                global_options[param.opts[0]] = _option_row(param)
            elif "--help" not in param.opts:
                options.append(_option_row(param))
        names = [_in_usage(param.metavar or param.name.upper(), param.required) for param in arguments]
        usage = " ".join([f"bfm {path}", *names])
        help = "\n".join(line.strip() for line in from_rich(inspect.cleandoc(command.help or "")).splitlines())
        sections.append(
            (f"### bfm {path}\n\n" if " " in path else "")
            + f"```\n{usage}{' [OPTIONS]' * bool(options)}\n```\n\n{help}\n"
        )
        if arguments:
            rows = [(code(param.metavar or param.name.upper()), from_rich(param.help or "")) for param in arguments]
            sections.append(table(("argument", ""), rows))
        if options:
            sections.append(table(("option", ""), options))
    intro = "Every command prints tables by default. With `--output json` it prints one JSON document.\n\n" + table(
        ("exit code", "meaning"),
        [
            (0, "done"),
            (1, "carried out, and failed"),
            (2, "wrong input"),
            (3, "not found"),
            (4, "refused by the manager"),
        ],
    )
    contents = "\n".join(f"- [bfm {path}](#bfm-{path.replace(' ', '-')})" for path, _ in commands)
    return page(
        "Command line",
        intro,
        "## Global options\n\nThey can be given before or after the command.\n\n"
        + table(("option", ""), list(global_options.values())),
        "## Commands\n\n" + contents,
        *sections,
    )


# -- REST -------------------------------------------------------------------------------------------------------------
def openapi() -> dict[str, Any]:
    from backfill_manager.api.app import create_app
    from backfill_manager.clock import SystemClock
    from backfill_manager.settings import Settings
    from backfill_manager.testing import InMemoryManager, dag_spec

    store = InMemoryManager(dag_spec("example", "task")).store
    document: dict[str, Any] = create_app(Settings(), store, clock=SystemClock(), secret=b"reference").openapi()
    return document


def schema_type(schema: dict[str, Any]) -> str:
    if "$ref" in schema:
        name = schema["$ref"].rsplit("/", 1)[1]
        return f"[{name}](#{name.lower()})"
    if "anyOf" in schema or "oneOf" in schema:
        kinds = [schema_type(one) for one in schema.get("anyOf") or schema.get("oneOf", [])]
        return " or ".join(dict.fromkeys(kinds))
    if "allOf" in schema:
        return " and ".join(schema_type(one) for one in schema["allOf"])
    if "enum" in schema:
        return " or ".join(code(value) for value in schema["enum"])
    if "const" in schema:
        return code(schema["const"])
    if schema.get("type") == "array":
        return f"array of {schema_type(schema.get('items', {}))}"
    if schema.get("format") in ("date-time", "binary"):
        return str(schema["format"])
    return str(schema.get("type", "any"))


def _limits(schema: dict[str, Any]) -> str:
    names = {
        "minimum": "≥ {}", "maximum": "≤ {}", "exclusiveMinimum": "> {}", "minLength": "{} or more characters",
        "maxLength": "at most {} characters", "maxItems": "at most {} values",
    }  # fmt: skip
    schemas = [schema, *schema.get("anyOf", [])]
    found = [text.format(one[name]) for one in schemas for name, text in names.items() if name in one]
    return ", ".join(dict.fromkeys(found))


def _described(schema: dict[str, Any], text: str | None = None) -> str:
    text = (text or schema.get("description") or "").strip()
    if limits := _limits(schema):
        text += f" ({limits})"
    if schema.get("default") not in (None, [], {}):
        text += f" [default: {json.dumps(schema['default'])}]"
    return text.strip()


def rest_page() -> str:
    document = openapi()
    by_tag: dict[str, list[str]] = {}
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            lines = [f"### {method.upper()} {path}\n", inspect.cleandoc(operation.get("description", "")) + "\n"]
            if parameters := operation.get("parameters"):
                rows = [
                    (
                        code(one["name"]),
                        one["in"],
                        schema_type(one["schema"]),
                        _described(one["schema"], one.get("description")),
                    )
                    for one in parameters
                ]
                lines.append(table(("parameter", "in", "type", ""), rows))
            body = operation.get("requestBody", {}).get("content", {}).get("application/json", {}).get("schema")
            if body:
                lines.append(f"Body: {schema_type(body)}\n")
            answers = []
            for status, response in operation["responses"].items():
                schema = response.get("content", {}).get("application/json", {}).get("schema")
                if schema and status.startswith("2"):
                    answers.append(f"{status}: {schema_type(schema)}")
            if answers:
                lines.append(f"Returns {', '.join(answers)}\n")
            by_tag.setdefault(operation["tags"][0], []).append("\n".join(lines))
    sections = []
    about = {tag["name"]: tag.get("description", "") for tag in document.get("tags", [])}
    for tag in sorted(by_tag, key=lambda name: list(about).index(name) if name in about else len(about)):
        sections += [f"## {tag}\n\n{about.get(tag, '')}", *by_tag[tag]]
    models = ["## Models\n\nInstants are in UTC, in ISO 8601 format with a `Z`."]
    for name, schema in sorted(document["components"]["schemas"].items()):
        models.append(f"### {name}\n\n{first_paragraph(schema.get('description'))}")
        required = set(schema.get("required", ()))
        if rows := [
            (code(field) + ("" if field in required else " (optional)"), schema_type(one), _described(one))
            for field, one in schema.get("properties", {}).items()
        ]:
            models.append(table(("field", "type", ""), rows))
    intro = (
        "The base address is `/api/v1`. [rest-api.md](../rest-api.md) explains how to use the API: authentication, asynchronous "
        "writes, paging, ETags. A server has the same reference as an OpenAPI document at `/openapi.json`."
    )
    return page("REST API", intro, *sections, *models)


# -- fields with comments ---------------------------------------------------------------------------------------------
def comments(owner: type) -> dict[str, str]:
    """Field -> the comment behind its declaration; a comment may go on in `#` lines behind the following lines."""
    source = textwrap.dedent(inspect.getsource(owner))
    body = typing.cast(ast.ClassDef, ast.parse(source).body[0]).body
    by_line: dict[int, str] = {}
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT and not token.string.startswith("# type:"):
            by_line[token.start[0]] = re.sub(r"\s*#\s*(noqa|type:|fmt:).*", "", token.string.lstrip("# ")).strip()
    found = {}
    for node in body:
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            texts = [
                by_line[line] for line in range(node.lineno, (node.end_lineno or node.lineno) + 1) if line in by_line
            ]
            found[node.target.id] = " ".join(texts)
    return found


def all_comments(owner: type) -> dict[str, str]:
    found: dict[str, str] = {}
    for base in reversed(owner.__mro__):
        if base.__module__.startswith("backfill_manager"):
            found |= comments(base)
    return found


def type_name(annotation: Any) -> str:
    """A type of a setting in words."""
    origin, args = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is typing.Annotated:
        return type_name(args[0])
    if origin in (typing.Union, types.UnionType):
        return " or ".join(type_name(one) for one in args if one is not type(None))
    if origin is typing.Literal:
        return " or ".join(code(one) for one in args)
    if origin is list:
        return f"list of {type_name(args[0])}"
    if origin is dict:
        return "mapping"
    names = {str: "text", int: "integer", float: "number", bool: "boolean"}
    return names.get(annotation, getattr(annotation, "__name__", str(annotation)))


# -- settings ---------------------------------------------------------------------------------------------------------
def setting_models() -> dict[str, type]:
    """Dotted key -> model, the root first: `api.tokens[]` -> TokenSettings."""
    from pydantic import BaseModel

    from backfill_manager.settings import Settings

    found: dict[str, type] = {}

    def walk(model: Any, key: str) -> None:
        found[key] = model
        for name, field in model.model_fields.items():
            for nested, suffix in _models_in(field.annotation, BaseModel):
                walk(nested, f"{key}.{name}{suffix}".lstrip("."))

    walk(Settings, "")
    return found


def _models_in(annotation: Any, base: type) -> Iterator[tuple[Any, str]]:
    if isinstance(annotation, type) and issubclass(annotation, base):
        yield annotation, ""
        return
    suffix = "[]" if typing.get_origin(annotation) is list else ""
    for one in typing.get_args(annotation):
        yield from ((model, suffix + more) for model, more in _models_in(one, base))


def setting_keys() -> list[str]:
    """Every leaf key: `lease.seconds`, `pools[].slots`."""
    models = setting_models()
    keys = [f"{key}.{name}".lstrip(".") for key, model in models.items() for name in model.model_fields]  # type: ignore[attr-defined]
    return [key for key in keys if key not in models and f"{key}[]" not in models]


def settings_page() -> str:
    from pydantic import BaseModel
    from pydantic_core import PydanticUndefined

    sections = []
    for key, model in setting_models().items():
        texts, rows = all_comments(model), []
        for name, field in model.model_fields.items():  # type: ignore[attr-defined]
            dotted = f"{key}.{name}".lstrip(".")
            default = field.get_default(call_default_factory=True)
            nested = next(iter(_models_in(field.annotation, BaseModel)), None)
            if default is PydanticUndefined:
                shown = "required"
            elif nested and default not in ([], None):
                shown = "see below"
            else:
                shown = code(json.dumps(default)) if default is not None else "none"
            kind = f"[section](#{anchor(f'{dotted}{nested[1]}')})" if nested else type_name(field.annotation)
            rows.append((code(dotted), kind, shown, field.description or texts.get(name, "")))
        about = first_paragraph(model.__dict__.get("__doc__"))
        title = f"## {key}" if key else "## Top level"
        sections.append(f"{title}\n\n{about}\n\n" + table(("key", "type", "default", ""), rows))
    intro = (
        "These settings are in `conf/manager.yaml`, or in the file named by `--conf` or `BFM_CONF`.\n\n"
        "- Environment variables override the file (`BFM_LEASE__SECONDS`, `BFM_POOLS__BACKFILL__SLOTS`). Options of the "
        "command line override both.\n"
        "- Durations are seconds, or have a unit: `90s`, `5 minutes`, `2h`, `1 day`.\n"
        "- `bfm config check` reports every wrong key and value, with its line. `bfm config show` prints the settings in effect."
    )
    return page("Settings", intro, *sections)


# -- settings of DAGs --------------------------------------------------------------------------------------------------
# What `default_args` and callbacks are is not in a help text of the schema, as a function is no JSON value.
DAG_SETTING_TEXTS: Final = {
    "default_args": "Settings of all tasks that do not set them themselves.",
    "on_success": "Function that is called with `ctx` after a success.",
    "on_failure": "Function that is called with `ctx` after a failure.",
    "task_id": "Id of the task. Default: the name of the function.",
}


def dag_settings_page() -> str:
    from pydantic.fields import FieldInfo
    from typing_extensions import get_type_hints

    from backfill_manager.dags.definition import DagSpec, TaskSpec
    from backfill_manager.schemas import dag_settings

    seen: set[str] = set()
    sections = []
    for title, settings, spec in (
        ("@dag", dag_settings.DagSettings, DagSpec),
        ("@task, sql and bash_task", dag_settings.TaskSettings, TaskSpec),
        ("sql only", dag_settings.SqlSettings, TaskSpec),
        ("bash_task only", dag_settings.BashSettings, TaskSpec),
    ):
        defaults = {name: field.default for name, field in spec.__dataclass_fields__.items()}
        rows: list[tuple[object, ...]] = []
        for name, hint in get_type_hints(settings, include_extras=True).items():
            if title.endswith(" only") and name in seen:
                continue
            seen.add(name)
            marks = getattr(hint, "__metadata__", ())
            text = next((mark.description for mark in marks if isinstance(mark, FieldInfo) and mark.description), "")
            default = defaults.get(name)
            shown = code(json.dumps(default)) if isinstance(default, str | int | float) else ""
            rows.append((code(name), shown, text or DAG_SETTING_TEXTS.get(name, "")))
        sections.append(f"## {title}\n\n" + table(("setting", "default", ""), rows))
    intro = (
        "These are the keywords of `@dag(...)`, `@task(...)`, `@task.executor(...)`, `sql(...)` and `bash_task(...)`. In "
        "[YAML](../yaml-dags.md), the keys are the same. "
        "Durations are seconds or a `timedelta`. [How to write DAGs](../authoring.md) has examples."
    )
    return page("Settings of DAGs and tasks", intro, *sections)


# -- tables -----------------------------------------------------------------------------------------------------------
def tables_page() -> str:
    from backfill_manager.model.records import RECORDS, columns

    sections = []
    for record in RECORDS:
        texts = comments(record)
        rows = [
            (code(name), _column_type(kind), "yes" if nullable else "", texts.get(name, ""))
            for name, (kind, nullable) in columns(record).items()
        ]
        documented = record.__doc__ if record.__doc__ and not record.__doc__.startswith(f"{record.__name__}(") else ""
        about = " ".join((documented or "").split())
        written = (
            "Rows are appended and never changed." if record.APPEND_ONLY else "One row per key, in its current state."
        )
        sections.append(
            f"## {record.TABLE}\n\n{about}{' ' * bool(about)}Key: {', '.join(code(name) for name in record.KEY)}. {written}\n\n"
            + table(("column", "type", "null", ""), rows)
        )
    intro = (
        "The state consists of Delta tables under the state root.\n\n"
        "- Instants are in UTC, with microseconds. Columns whose names end in `_json` contain a JSON document.\n"
        "- `run_seq` increases with creation, over all tables that have it.\n"
        "- Clients append rows to `request`. They write nothing else.\n"
        "- `bfm state locations` prints where each table is. You can read the tables with `bfm state sql`, or with anything that "
        "reads Delta."
    )
    return page("State tables", intro, *sections)


def _column_type(kind: type) -> str:
    return {"str": "string", "int": "long", "float": "double", "bool": "boolean", "datetime": "timestamp"}[
        kind.__name__
    ]


# -- states -----------------------------------------------------------------------------------------------------------
STATE_TITLES: Final = {
    "task_instance": "Task instance",
    "dag_run": "DAG run",
    "backfill": "Backfill",
    "backfill_item": "Backfill item",
}
# What a state means for another entity than a task instance, where it differs.
STATE_TEXTS: Final = {
    ("dag_run", "queued"): "created; none of its tasks has started",
    ("dag_run", "failed"): "one of its leaf tasks failed (in a batch, also another: S58), or it is deadlocked",
    ("backfill", "queued"): "planned; none of its runs has started",
    ("backfill", "failed"): "an item failed, or it is deadlocked",
    ("backfill_item", "failed"): "its run failed, or it can no longer run",
    ("backfill_item", "skipped"): "left out, with a reason",
}
INITIAL: Final = {"task_instance": "none", "dag_run": "queued", "backfill": "queued", "backfill_item": "pending"}


def states_page() -> str:
    from backfill_manager.model import states

    order = {
        "task_instance": states.TASK_STATES, "dag_run": states.RUN_STATES,
        "backfill": states.BACKFILL_STATES, "backfill_item": states.ITEM_STATES,
    }  # fmt: skip
    texts = state_comments(states)
    sections = []
    for entity, pairs in states.LEGAL.items():
        ranks = {state: rank for rank, state in enumerate(order[entity])}
        lines = [f"    [*] --> {INITIAL[entity]}"]
        lines += [
            f"    {old} --> {new}" for old, new in sorted(pairs, key=lambda pair: (ranks[pair[0]], ranks[pair[1]]))
        ]
        rows = [
            (
                code(state),
                STATE_TEXTS.get((entity, state), texts.get(state, "")),
                ", ".join(code(new) for old, new in sorted(pairs, key=lambda pair: ranks[pair[1]]) if old == state)
                or "(final)",
            )
            for state in order[entity]
        ]
        sections.append(
            f"## {STATE_TITLES[entity]}\n\n"
            + table(("state", "", "may become"), rows)
            + "\n```mermaid\nstateDiagram-v2\n"
            + "\n".join(lines)
            + "\n```\n"
        )
    drawing = inspect.cleandoc(states.__doc__ or "").partition("\n\n")[2]
    intro = (
        "This page shows the legal transitions between states (`LEGAL` in `backfill_manager/model/states.py`). Any other "
        "transition raises an error. Overview:\n\n"
        f"```\n{drawing}\n```\n"
    )
    return page("States", intro, *sections)


def state_comments(module: types.ModuleType) -> dict[str, str]:
    source = inspect.getsource(module)
    return {value: text for value, text in re.findall(r'^[A-Z_]+: Final = "(\w+)"  # (.+)$', source, re.MULTILINE)}


# -- errors -----------------------------------------------------------------------------------------------------------
def errors_page() -> str:
    from backfill_manager import errors

    def subclasses(of: type) -> Iterator[type]:
        for one in of.__subclasses__():
            if one.__module__ == errors.__name__:
                yield one
                yield from subclasses(one)

    rows = [
        (code(one.__name__), one.exit_code, first_paragraph(one.__dict__.get("__doc__")))  # type: ignore[attr-defined]
        for one in dict.fromkeys(subclasses(errors.BackfillManagerError))
    ]
    classes = "## Classes\n\nThe classes of `backfill_manager.errors`, with the exit code of `bfm`.\n\n" + table(
        ("class", "exit code", ""), rows
    )
    return page("Errors", *error_codes(), classes)


def error_codes() -> list[str]:
    """Sections of the error catalogue: codes with their templates, grouped as in schemas/errors.py."""
    from backfill_manager.errors import ErrorTemplate
    from backfill_manager.schemas import errors

    sections = [
        "The errors of commands have a `code`, often a `field`, and `params`.\n\n"
        "- `[start_date]` in a text is a field. The command line shows it as an option (`--from`), a page as the label of the "
        "field, and REST as the name itself.\n"
        "- `{names}` in a text are params."
    ]
    title, rows = "", []
    for line in inspect.getsource(errors).splitlines():
        if heading := re.fullmatch(r"# -- (.+?) -+", line):
            if rows:
                sections.append(f"## {title.capitalize()}\n\n" + table(("code", "field", "class", "text"), rows))
            title, rows = heading[1], []
        elif declared := re.match(r"([A-Z][A-Z0-9_]+)(?:: Final)? = ", line):
            template = getattr(errors, declared[1])
            if isinstance(template, ErrorTemplate):
                name = getattr(template.error, "__name__", "")
                rows.append((code(declared[1].lower()), code(template.field or ""), code(name), template.template))
    if rows:
        sections.append(f"## {title.capitalize()}\n\n" + table(("code", "field", "class", "text"), rows))
    return sections


PAGES: Final[dict[str, Callable[[], str]]] = {
    "cli.md": cli_page,
    "rest-api.md": rest_page,
    "settings.md": settings_page,
    "dag-settings.md": dag_settings_page,
    "tables.md": tables_page,
    "states.md": states_page,
    "errors.md": errors_page,
}


def anchor(heading: str) -> str:
    """The anchor that GitHub gives to a heading."""
    return re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-")


def outdated() -> list[str]:
    """Names of pages that are not as the code says."""
    return [
        name
        for name, make in PAGES.items()
        if not (REFERENCE / name).is_file() or (REFERENCE / name).read_text(encoding="utf-8") != make()
    ]


def main(arguments: list[str]) -> int:
    if arguments == ["--check"]:
        stale = outdated()
        for name in stale:
            print(f"docs/reference/{name} is out of date; run `python docs/generate_reference.py`", file=sys.stderr)
        return bool(stale)
    REFERENCE.mkdir(exist_ok=True)
    for name, make in PAGES.items():
        (REFERENCE / name).write_text(make(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
