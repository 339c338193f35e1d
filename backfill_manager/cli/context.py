"""One call of `bfm`: the global options, and the settings, store and output they lead to.

`command` registers a function as a command and gives it the global options too, so that `bfm --output json dags list`
and `bfm dags list --output json` are the same. An option of the command's own wins over a global one of the same
spelling: `backfill list --state failed` filters, `backfill create --conf '{}'` are run parameters.
"""

from __future__ import annotations

import inspect
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

import typer

from backfill_manager.cli.airflow_aliases import OldSpelling
from backfill_manager.cli.render.output import Format, Output
from backfill_manager.clock import Clock, SystemClock
from backfill_manager.errors import InvalidInput, StateNotInitialised

if TYPE_CHECKING:
    from backfill_manager.cli.backend.base import Backend
    from backfill_manager.settings import Settings
    from backfill_manager.store.base import Store

PANEL: Final = "Global options (before or after the command)"

StateOption = Annotated[
    str | None,
    typer.Option(
        "--state",
        metavar="URI",
        rich_help_panel=PANEL,
        help="Where the state tables are: a path, s3://, abfss://, gs://, or catalog.schema. Also BFM_STATE. "
        "\\[default: ./state]",
    ),
]
ServerOption = Annotated[
    str | None,
    typer.Option(
        "--server",
        metavar="URL",
        rich_help_panel=PANEL,
        help="Go to this `bfm serve` in place of the tables. Also BFM_SERVER; its token is in BFM_TOKEN, or in the file "
        "that BFM_TOKEN_FILE names.",
    ),
]
ConfOption = Annotated[
    str | None,
    typer.Option(
        "--conf",
        metavar="FILE",
        rich_help_panel=PANEL,
        help="The configuration. Also BFM_CONF. \\[default: conf/manager.yaml]",
    ),
]
OutputOption = Annotated[
    Literal["table", "json", "yaml"] | None,
    typer.Option("--output", rich_help_panel=PANEL, help="How to print. \\[default: table]"),
]
DebugOption = Annotated[
    bool, typer.Option("--debug", rich_help_panel=PANEL, help="Show tracebacks of errors.", show_default=False)
]
GLOBALS: Final[Mapping[str, Any]] = {
    "--state": StateOption, "--server": ServerOption, "--conf": ConfOption, "--output": OutputOption,
    "--debug": DebugOption,
}  # fmt: skip


@dataclass(frozen=True)
class CliContext:
    state: str | None = None
    server: str | None = None
    conf: str | None = None
    output: Format = "table"
    debug: bool = False
    environ: Mapping[str, str] = field(default_factory=lambda: os.environ)
    clock: Clock = field(default_factory=SystemClock)
    pause: Callable[[float], None] = time.sleep  # between two looks at the state; tests act in it instead of waiting

    @cached_property
    def out(self) -> Output:
        return Output(self.output)

    @cached_property
    def settings(self) -> Settings:
        from backfill_manager.settings import load_settings

        return load_settings(self.conf, state=self.state, environ=self.environ)

    @property
    def server_url(self) -> str | None:
        """The server to go to; None: to the tables. What the line says of one wins over what the environment says of the
        other."""
        if self.server and self.state:
            raise InvalidInput("--server and --state don't go together: a server knows where its state is.")
        return self.server or (None if self.state else self.environ.get("BFM_SERVER")) or None

    @cached_property
    def source(self) -> Backend:
        """Where this command reads and asks."""
        if url := self.server_url:
            from backfill_manager.cli.backend.remote import RemoteBackend
            from backfill_manager.client.client import Client, token_of

            return RemoteBackend(self, Client(url, token_of(self.environ), pause=self.pause))
        from backfill_manager.cli.backend.local import LocalBackend

        return LocalBackend(self)

    def close(self) -> None:
        if "source" in self.__dict__:
            self.source.close()

    def needs_tables(self, or_else: str = "") -> None:
        """`InvalidInput` when a server was named and only the tables will do. `or_else`: what else could be
        done."""
        if url := self.server_url:
            how = "--server" if self.server else "BFM_SERVER"
            raise InvalidInput(
                f"This command works on the tables of the state, and not over a server ({how} names {url}); "
                f"say where the state is with --state{or_else and f', or {or_else}'}."
            )

    def needs_no_server(self, about: str) -> None:
        """`InvalidInput` when the line names a server, of which nothing would be told. One of the environment is for other
        commands."""
        if self.server:
            raise InvalidInput(f"--server does not go with this command, which is about {about}: leave it out.")

    @cached_property
    def any_store(self) -> Store:
        """The store, made or not yet."""
        self.needs_tables()
        from backfill_manager.store import open_store
        from backfill_manager.store.uri import is_catalog_schema

        if is_catalog_schema(self.settings.state):
            from backfill_manager.cli.backend.local_spark import start_spark

            return open_store(self.settings.state, spark=start_spark(self))
        return open_store(self.settings.state)

    @cached_property
    def store(self) -> Store:
        """The store, which must have been made."""
        store = self.any_store
        if not store.exists():
            raise StateNotInitialised(self.settings.state)
        return store

    def said(
        self, state: str | None, server: str | None, conf: str | None, output: Format | None, debug: bool
    ) -> CliContext:
        """With what was said later on the line laid over it."""
        return replace(
            self,
            state=state or self.state,
            server=server or self.server,
            conf=conf or self.conf,
            output=output or self.output,
            debug=debug or self.debug,
        )

    @property
    def conf_file(self) -> str | None:
        """The configuration file that is read, if any is."""
        from backfill_manager.settings import DEFAULT_CONF

        named = self.conf or self.environ.get("BFM_CONF")
        return named or (DEFAULT_CONF if Path(DEFAULT_CONF).exists() else None)


class CliContextHolder:
    """What `ctx.obj` holds: the call, as far as the line has been read."""

    def __init__(self, call: CliContext) -> None:
        self.call = call


def command(
    app: typer.Typer, name: str, *, old: Sequence[OldSpelling] = ()
) -> Callable[[Callable[..., int | None]], Callable[..., int | None]]:
    """Register `function(call, ...)`; what it returns is the exit code (None is 0). `old` spellings of its options are
    understood, and not told in its help."""

    def register(function: Callable[..., int | None]) -> Callable[..., int | None]:
        signature = inspect.signature(function, eval_str=True)
        own = list(signature.parameters.values())[1:]  # the first is the call
        taken = {spelling for parameter in own for spelling in _spellings(parameter)}
        added = {spelling: annotation for spelling, annotation in GLOBALS.items() if spelling not in taken}
        parameters = [inspect.Parameter("ctx", inspect.Parameter.KEYWORD_ONLY, annotation=typer.Context)]
        parameters += [parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY) for parameter in own]
        parameters += [
            inspect.Parameter(
                _global_name(spelling),
                inspect.Parameter.KEYWORD_ONLY,
                annotation=annotation,
                default=False if annotation is DebugOption else None,
            )
            for spelling, annotation in added.items()
        ]
        parameters += [_hidden(each, _old_name(number)) for number, each in enumerate(old)]
        defaults = {parameter.name: parameter.default for parameter in own}

        def run(**given: Any) -> int | None:
            calls: CliContextHolder = given.pop("ctx").obj
            said = {spelling: given.pop(_global_name(spelling), None) for spelling in GLOBALS}
            calls.call = calls.call.said(
                said["--state"], said["--server"], said["--conf"], said["--output"], bool(said["--debug"])
            )
            for number, each in enumerate(old):
                if value := given.pop(_old_name(number)):
                    calls.call.out.remark(each.says)
                    if each.parameter and given[each.parameter] == defaults[each.parameter]:
                        given[each.parameter] = value if each.means is None else each.means
            return function(calls.call, **given)

        run.__doc__ = function.__doc__
        run.__name__ = function.__name__
        run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
        run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        app.command(name)(run)
        return function

    return register


def group(name: str, help: str) -> typer.Typer:
    """A noun."""
    return typer.Typer(name=name, help=help, no_args_is_help=True, rich_markup_mode="rich", add_completion=False)


def _hidden(old: OldSpelling, name: str) -> inspect.Parameter:
    annotation: Any = str | None if old.takes_value else bool
    return inspect.Parameter(
        name,
        inspect.Parameter.KEYWORD_ONLY,
        annotation=Annotated[annotation, typer.Option(*old.spellings, hidden=True)],
        default=None if old.takes_value else False,
    )


def _old_name(number: int) -> str:
    return f"old_spelling_{number}"


def _global_name(spelling: str) -> str:
    return "global_" + spelling.removeprefix("--")


def _spellings(parameter: inspect.Parameter) -> tuple[str, ...]:
    """`--state`, `-S`: within `Annotated`, Typer keeps the first of them where a default would stand."""
    for said in getattr(parameter.annotation, "__metadata__", ()):
        written = (getattr(said, "default", None), *(getattr(said, "param_decls", None) or ()))
        if found := tuple(one for one in written if isinstance(one, str) and one.startswith("-")):
            return found
    return ("--" + parameter.name.replace("_", "-"),)
