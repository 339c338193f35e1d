"""`Group` and `Command`: functions as commands of `bfm`.

A command's function takes the `CliContext` and its own options. It gets the global options too, so that
`bfm --output json dags list` and `bfm dags list --output json` are the same. An option of the command's own wins over a
global one of the same spelling: `backfill list --state failed` filters, `backfill create --conf '{}'` are run parameters.

Only the command that the line calls is handed to Typer (its options are built then), which keeps the start fast.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Annotated, Any, Final, Literal

import typer
from typer.core import TyperCommand

from backfill_manager.cli.airflow_aliases import AirflowOption
from backfill_manager.cli.options import not_empty, options_of, parameter, removals_of, typed_values, without_removed

Function = Callable[..., int | None]  # what it returns is the exit code; None is 0


def _global(kind: Any, name: str, metavar: str | None, help: str) -> Any:
    panel = "Global options (before or after the command)"
    option = typer.Option(
        f"--{name}", metavar=metavar, help=help, rich_help_panel=panel, show_default=False, callback=not_empty
    )
    return parameter(name, Annotated[kind | None, option], None)


GLOBAL_OPTIONS: Final = (
    _global(
        str, "state", "URI",
        "Where the state tables are: a path, s3://, abfss://, gs://, or catalog.schema. Also BFM_STATE. \\[default: ./state]",
    ),
    _global(
        str, "server", "URL",
        "Use this `bfm serve` in place of the tables. Also BFM_SERVER; its token is in BFM_TOKEN, or in the file that "
        "BFM_TOKEN_FILE names.",
    ),
    _global(str, "conf", "FILE", "The configuration. Also BFM_CONF. \\[default: conf/manager.yaml]"),
    _global(Literal["table", "json", "yaml"], "output", None, "Output format. \\[default: table]"),
    _global(
        str, "timezone", "ZONE",
        "Times in tables: `utc`, `dag` (each DAG's zone), `local` (this machine's) or a name such as Europe/Berlin. Also "
        "BFM_TIMEZONE. \\[default: utc]",
    ),
    _global(bool, "debug", None, "Show tracebacks of errors."),
)  # fmt: skip


class _CommandWithHelp(TyperCommand):
    """On a narrow terminal, rich would cut long names of options off (`--max-active-ru…`); its help breaks them into lines."""

    def format_help(self, ctx: Any, formatter: Any) -> None:
        from typer import rich_utils

        class Broken(rich_utils.OptionHighlighter):
            def __call__(self, text: Any) -> Any:
                shown = super().__call__(text)
                shown.overflow = "fold"
                return shown

        class BrokenNegative(Broken, rich_utils.NegativeOptionHighlighter):
            highlights = rich_utils.NegativeOptionHighlighter.highlights

        rich_utils.highlighter, rich_utils.negative_highlighter = Broken(), BrokenNegative()
        super().format_help(ctx, formatter)


@dataclass(frozen=True)
class Command:
    """`schema`: a class in `schemas` (`commands.SetPool`) whose fields (`without` some) become options; the function gets those
    that were typed as `values`. `is_update`: an option that may have no value can be removed, `--no-window`, and is None in
    `values` then; the help shows no defaults. `aliases` of options are understood, and not listed in the help."""

    name: str
    function: Function
    schema: str | None = None
    without: Sequence[str] = ()
    is_update: bool = False
    aliases: Sequence[AirflowOption] = ()
    hidden: bool = False

    def add_to(self, app: typer.Typer) -> None:
        signature = inspect.signature(self.function, eval_str=True)
        of_schema = options_of(self.schema, self.without, not self.is_update) if self.schema else []
        removals = removals_of(self.schema) if self.schema and self.is_update else {}
        own = [option for name, option in signature.parameters.items() if name not in ("context", "values")]
        own = [*of_schema, *removals.values(), *own]
        taken = set().union(*map(_spellings, own))
        parameters = [
            parameter("ctx", typer.Context),
            *own,
            *(one.replace(name=f"global_{one.name}") for one in GLOBAL_OPTIONS if f"--{one.name}" not in taken),
            *(_hidden(f"alias_{number}", alias) for number, alias in enumerate(self.aliases)),
        ]

        def run(**values: Any) -> int | None:
            context = values.pop("ctx").obj
            context.override(**{one.name: values.pop(f"global_{one.name}", None) for one in GLOBAL_OPTIONS})
            for number, alias in enumerate(self.aliases):
                if value := values.pop(f"alias_{number}"):
                    context.out.note(alias.message)
                    if alias.parameter and values[alias.parameter] is None:
                        values[alias.parameter] = alias.value or value
            if self.schema:
                typed = {option.name: values.pop(option.name) for option in of_schema}
                removed = [field for field, option in removals.items() if values.pop(option.name)]
                values["values"] = without_removed(self.schema, typed_values(self.schema, typed), removed)
            return self.function(context, **values)

        run.__doc__ = self.function.__doc__
        in_lists = first_sentence(self.function.__doc__ or "")
        app.command(self.name, cls=_CommandWithHelp, short_help=in_lists, hidden=self.hidden)(
            with_signature(run, parameters)
        )


class Group:
    """The commands of one noun."""

    def __init__(self, name: str, help: str) -> None:
        self.name, self.help = name, help
        self.commands: dict[str, Command] = {}

    def command(self, name: str, **more: Any) -> Callable[[Function], Function]:
        """Registers a function; `more` as in `Command`."""

        def register(function: Function) -> Function:
            self.commands[name] = Command(name, function, **more)
            return function

        return register

    def typer_app(self, args: Sequence[str]) -> typer.Typer:
        """With the command that `args` call; with all of them where that is unknown (a wrong word, `--help`)."""
        app = typer.Typer(
            name=self.name, help=self.help, no_args_is_help=True, rich_markup_mode="rich", add_completion=False
        )
        app.callback()(lambda: None)  # a group, also with one command
        called = [after for word, after in pairwise(args) if word == self.name]
        chosen = [self.commands[called[0]]] if called and called[0] in self.commands else self.commands.values()
        for command in chosen:
            command.add_to(app)
        return app


def first_sentence(text: str) -> str:
    """In one line, as a list of commands has it."""
    return re.split(r"(?<=\.)\s", " ".join(text.split()), maxsplit=1)[0]


def with_signature(function: Function, parameters: Sequence[inspect.Parameter]) -> Function:
    """The function, which Typer shall read as one with these parameters."""
    keywords = [one.replace(kind=inspect.Parameter.KEYWORD_ONLY) for one in parameters]
    function.__annotations__ = {one.name: one.annotation for one in keywords}
    function.__signature__ = inspect.Signature(keywords)  # type: ignore[attr-defined]
    return function


def _hidden(name: str, alias: AirflowOption) -> inspect.Parameter:
    kind: Any = str if alias.takes_value else bool
    return parameter(name, Annotated[kind | None, typer.Option(*alias.spellings, hidden=True)], None)


def _spellings(option: inspect.Parameter) -> set[str]:
    """`--state`, `-S`: within `Annotated`, Typer keeps the first of them where a default would stand."""
    declared = (*getattr(option.annotation, "__metadata__", ()), option.default)
    infos = [one for one in declared if hasattr(one, "param_decls")]
    return {text for info in infos for text in (info.default, *(info.param_decls or ())) if isinstance(text, str)}
