"""Options and arguments of commands: those that several share, and those that `schemas` declares (`options_of`)."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

import typer

from backfill_manager.cli.render.printer import DEFAULT_LIMIT
from backfill_manager.errors import InvalidInput
from backfill_manager.model import states

if TYPE_CHECKING:
    from backfill_manager.schemas.fields import DeclaredField


def argument(metavar: str, help: str, default: Any = ..., **more: Any) -> Any:
    return typer.Argument(default, metavar=metavar, help=help, **more)


def option(spellings: str, help: str, default: Any = None, **more: Any) -> Any:
    return typer.Option(default, *spellings.split(), help=help, callback=not_empty, **more)


def not_empty(of: typer.CallbackParam, typed: Any) -> Any:
    """`InvalidInput` for an empty text, as of a variable of the shell that is not set: it would be as if it were not there."""
    if typed == "" or (isinstance(typed, list | tuple) and "" in typed):
        raise InvalidInput(f"{of.opts[0]} must not be empty: give it a value, or leave it out.")
    return typed


def flag(spellings: str, help: str) -> Any:
    return option(spellings, help, default=False)


# Those that several commands have.
Backfill = Annotated[str, argument("ID", "Id of the backfill, a prefix of it, or `latest`.", show_default=False)]
Bundle = Annotated[str, argument("BUNDLE", "Name of the bundle, see `bfm bundles list`.")]
Dag = Annotated[str, argument("DAG", "Id of the DAG, see `bfm dags list`.")]
Run = Annotated[str, argument("RUN", "Id of the run, a prefix of it, or `latest`. DAG/RUN also names the DAG.")]
RunOfDag = Annotated[
    str,
    argument(
        "RUN", "Id of the run, a prefix of it, its logical date or the day of it, its partition key, or `latest`."
    ),
]
NoteText = Annotated[str, argument("TEXT", "Text of the note. An empty text removes it.")]
Task = Annotated[str, argument("TASK", "Id of the task.")]
BACKFILL_STATE, ITEM_STATE, RUN_STATE = (
    option("--state -S", f"Only objects in this state ({', '.join(known)}); may be repeated.", metavar="S")
    for known in (states.BACKFILL_STATES, states.ITEM_STATES, states.RUN_STATES)
)
DAG_OF_RUN: Final = option(
    "--dag", "Id of the DAG. RUN may then also be a logical date or a partition key.", metavar="DAG"
)
DAG_FILTER: Final = option("--dag", "Only objects of this DAG.", metavar="DAG")
CONF: Final = option("--conf -c", "Parameters of the run, as a JSON object (64 kB at most).", metavar="JSON")
LIMIT: Final = option(
    "--limit", f"Maximum number of rows. \\[default: {DEFAULT_LIMIT}, all for JSON]", min=1, metavar="N"
)


def chosen_states(command: str, kind: str, typed: Sequence[str] | None, known: Sequence[str]) -> tuple[str, ...]:
    """`InvalidInput` for a state that things of this kind don't have; with a hint for who meant the global option: of
    `command`, `--state` is a filter."""
    from backfill_manager.queries.backfills import check_states

    uri = next((one for one in typed or () if any(sign in one for sign in "/.\\:")), None)
    hint = f". (Where the state is comes before the command: `bfm --state {uri} {command}`)" if uri else ""
    return check_states(kind, typed or (), known, hint)


def parameter(name: str, annotation: Any, default: Any = inspect.Parameter.empty) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, annotation=annotation, default=default)


def options_of(model: str, without: Sequence[str] = (), show_defaults: bool = True) -> list[inspect.Parameter]:
    """A parameter for each field of a class in `schemas`, `commands.SetPool` say. Their value is None where nothing was typed,
    which leaves the default to the schema."""
    return [_parameter(field, show_defaults) for name, field in _fields(model).items() if name not in without]


def removals_of(model: str) -> dict[str, inspect.Parameter]:
    """Field -> the flag `--no-window`, for each field of an update that may have no value."""
    from backfill_manager.schemas.backfill_options import NEVER_NULL

    return {
        field.name: parameter(
            f"no_{field.name}", bool, flag(_no(field), f"Remove {field.spellings[0]}: {field.option.none}.")
        )
        for field in _fields(model).values()
        if field.may_be_none and field.name not in NEVER_NULL
    }


def without_removed(model: str, values: Mapping[str, Any], removed: Sequence[str]) -> dict[str, Any]:
    """`values`, and None for each field of `removed`; `InvalidInput` for one that was given too."""
    for name in removed:
        if name in values:
            field = _fields(model)[name]
            raise InvalidInput(f"{field.spellings[0]} and {_no(field)} contradict each other; use one of them.")
    return {**values, **dict.fromkeys(removed)}


def _no(field: DeclaredField) -> str:
    return f"--no-{field.spellings[0].removeprefix('--')}"


def typed_values(model: str, values: Mapping[str, Any]) -> dict[str, Any]:
    """The options that were typed, by field; JSON and NAME=VALUE are parsed."""
    from backfill_manager.requests.json_input import parse_object, parse_overrides

    def parsed(name: str, value: Any) -> Any:
        match _fields(model)[name].option.metavar:
            case "JSON":
                return parse_object(name, value)
            case "NAME=VALUE":
                return parse_overrides(value)
        return value

    return {name: parsed(name, value) for name, value in values.items() if value not in (None, [])}


def spellings(model: str) -> list[str]:
    return [field.spellings[0] for field in _fields(model).values()]


def _fields(model: str) -> Mapping[str, DeclaredField]:
    from backfill_manager.schemas.fields import fields_of

    module, _, name = model.partition(".")
    return fields_of(getattr(import_module(f"backfill_manager.schemas.{module}"), name))


def _parameter(field: DeclaredField, show_default: bool) -> inspect.Parameter:
    from backfill_manager.schemas.backfill_options import UPDATABLE_FIELDS

    metavar, spellings, help = field.option.metavar, list(field.spellings), field.help
    is_text = metavar in ("JSON", "NAME=VALUE") or field.option.as_text
    kind: Any = Literal[field.choices] if field.choices else str if is_text else field.type
    if field.type is bool and (field.default or field.name in UPDATABLE_FIELDS):
        spellings[0] += f"/--no-{spellings[0].removeprefix('--')}"
    if field.is_list or metavar == "NAME=VALUE":
        kind = list[kind]
        help += " May be repeated."
    default = field.option.none or ("yes" if field.default is True else field.default)
    if default and show_default:
        help += f" \\[default: {default}]"
    option = typer.Option(
        *spellings,
        metavar=metavar,
        help=help,
        show_default=False,
        min=field.low if field.low in (0, 1) and not is_text else None,
    )
    if field.is_required and field.option.none is None:
        return parameter(field.name, Annotated[kind, option])
    return parameter(field.name, Annotated[kind | None, option], None)
