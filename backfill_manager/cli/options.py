"""Options and arguments of commands: those that several share, and those that `schemas.commands` declares (`options_of`)."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

import typer

if TYPE_CHECKING:
    from backfill_manager.schemas.fields import DeclaredField

DEFAULT_LIMIT: Final = 50  # rows of a table; documents have all

Dag = Annotated[str, typer.Argument(metavar="DAG", help="The DAG's id, see `bfm dags list`.")]
DagFilter = Annotated[str | None, typer.Option("--dag", metavar="DAG", help="Only of this DAG.")]
Limit = Annotated[
    int | None,
    typer.Option("--limit", min=1, metavar="N", help=f"How many. \\[default: {DEFAULT_LIMIT}, all for JSON]"),
]


def state_filter(states: Sequence[str]) -> Any:
    help = f"Only in this state ({', '.join(states)}); may be repeated."
    return typer.Option("--state", "-S", metavar="S", help=help)


def state_uri_hint(command: str, states: Sequence[str] | None) -> str:
    """For who meant the global option: as an option of `command`, `--state` is a filter."""
    uri = next((one for one in states or () if any(sign in one for sign in "/.\\:")), None)
    return f". (Where the state is comes before the command: `bfm --state {uri} {command}`)" if uri else ""


def options_of(model: str, without: Sequence[str] = (), show_defaults: bool = True) -> list[inspect.Parameter]:
    """A parameter for each field of a class of `schemas.commands`. Their value is None where nothing was typed, which leaves
    the default to the schema."""
    return [_parameter(field, show_defaults) for name, field in _fields(model).items() if name not in without]


def typed_values(model: str, values: Mapping[str, Any]) -> dict[str, Any]:
    """The options that were typed, by field; JSON and NAME=VALUE are parsed."""
    from backfill_manager.requests.json_input import parse_conf, parse_overrides

    fields = _fields(model)
    parse = {"JSON": parse_conf, "NAME=VALUE": parse_overrides}
    return {
        name: parse[fields[name].option.metavar or ""](value) if fields[name].type is dict else value
        for name, value in values.items()
        if value not in (None, [])
    }


def spellings(model: str) -> list[str]:
    return [field.spellings[0] for field in _fields(model).values()]


def _fields(model: str) -> Mapping[str, DeclaredField]:
    from backfill_manager.schemas import commands
    from backfill_manager.schemas.fields import fields_of

    return fields_of(getattr(commands, model))


def _parameter(field: DeclaredField, show_default: bool) -> inspect.Parameter:
    from backfill_manager.schemas.commands import UPDATABLE_FIELDS

    metavar, spellings, help = field.option.metavar, list(field.spellings), field.help
    many = field.is_list or metavar == "NAME=VALUE"
    kind: Any = Literal[field.choices] if field.choices else str if field.type is dict else field.type
    if field.type is bool and (field.default or field.name in UPDATABLE_FIELDS):
        spellings[0] += f"/--no-{spellings[0].removeprefix('--')}"
    if many:
        help += " May be repeated."
    default = field.option.none or ("yes" if field.default is True else field.default)
    if default and show_default:
        help += f" \\[default: {default}]"
    option = typer.Option(
        *spellings, metavar=metavar, help=help, show_default=False, min=field.low if field.low in (0, 1) else None
    )
    is_required = field.is_required and field.option.none is None
    return inspect.Parameter(
        field.name,
        inspect.Parameter.KEYWORD_ONLY,
        annotation=Annotated[list[kind] | None if many else kind if is_required else kind | None, option],
        default=inspect.Parameter.empty if is_required else None,
    )
