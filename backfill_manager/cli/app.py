"""The command line as a whole: the groups in the order of use, and the one handler of everything that goes wrong.

An error that has a name (`errors`) is one red line and its class's exit code; one that has not is a bug, told in a line
with how to learn more. A traceback is for those who ask with `--debug`. Only the group that is called is imported.
"""

from __future__ import annotations

import importlib
import os
import sys
import traceback
from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated, Any, Final

import typer

from backfill_manager.cli.airflow_aliases import command_here
from backfill_manager.cli.context import (
    CliContext,
    CliContextHolder,
    ConfOption,
    DebugOption,
    OutputOption,
    ServerOption,
    StateOption,
)
from backfill_manager.errors import BackfillManagerError, nearest

# name, module, what it is for; in the order in which a newcomer needs them
GROUPS: Final = (
    ("manager", "Start, look at and stop the manager, which alone runs things."),
    ("dags", "What can run: DAGs, their next intervals, files that could not be read."),
    ("bundles", "Where DAGs come from; parse them now, or try what would change."),
    ("backfill", "Ask for a backfill, watch it, pause it, cancel it."),
    ("runs", "DAG runs, whatever made them."),
    ("tasks", "Tasks of a DAG, their states in a run, their logs."),
    ("requests", "What was asked, by whom, and what the manager answered."),
    ("pools", "How many tasks may run at once, and how Spark shares its cores."),
    ("state", "The Delta tables that hold it all: make, check, query."),
    ("config", "The configuration as it is understood."),
)
# a command that is no group: name, module, of which the function `register` puts it there
COMMANDS: Final = (("serve", "serve"),)
INTRODUCTION: Final = """Spark-native backfills with their state in Delta tables.

A manager runs in the background ([cyan]bfm manager start[/]); everything else asks it or reads what it wrote:

[cyan]bfm dags list[/] · what there is to run

[cyan]bfm backfill create flights --from 2013-01-01 --to 2013-01-31 --dry-run[/] · what would run

[cyan]bfm backfill create flights --from 2013-01-01 --to 2013-01-31 --wait[/] · run it and watch

Exit codes: 0 done, 1 carried out and failed, 2 wrong input, 3 no such thing, 4 refused by the manager.
"""
INTERRUPTED: Final = 130
BROKEN_PIPE: Final = 1
# Typer carries a copy of Click since 0.2x and used the package before; its errors have one base either way.
_USAGE_ERROR: Final[Any] = next(base for base in typer.BadParameter.__mro__ if base.__name__ == "ClickException")


def run(argv: Sequence[str] | None = None, call: CliContext | None = None) -> int:
    """One command line, from words to exit code. `call` brings a clock and an environment of the caller's own."""
    args = list(sys.argv[1:] if argv is None else argv)
    calls = CliContextHolder(replace(call or CliContext(), debug="--debug" in args))
    try:
        code = _app(args)(args, prog_name="bfm", obj=calls, standalone_mode=False)
        sys.stdout.flush()
        return code if isinstance(code, int) else 0
    except BackfillManagerError as error:
        return _tell(error, str(error) or type(error).__name__, error.exit_code, calls)
    except _USAGE_ERROR as error:
        return _tell_usage(error, calls, args)
    except BrokenPipeError:
        # Whoever read us has seen enough; Python must not complain when it flushes at the end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return BROKEN_PIPE
    except SystemExit as ended:  # Typer and rich do the same when they are the first to meet the closed pipe
        return ended.code if isinstance(ended.code, int) else BROKEN_PIPE
    except KeyboardInterrupt:
        return INTERRUPTED
    except typer.Abort:
        return INTERRUPTED
    except Exception as error:  # noqa: BLE001 - the one place where what has no name is told instead of thrown
        text = f"Unexpected {type(error).__name__}: {_one_line(str(error))}. A bug in backfill_manager"
        return _tell(error, f"{text}; run again with --debug to see where.", 1, calls)
    finally:
        calls.call.close()


def _app(args: Sequence[str]) -> typer.Typer:
    app = typer.Typer(
        name="bfm", help=INTRODUCTION, no_args_is_help=True, rich_markup_mode="rich", add_completion=False,
        pretty_exceptions_enable=False, context_settings={"help_option_names": ["-h", "--help"]},
    )  # fmt: skip
    app.callback()(_globals)
    called = [name for name, _ in (*GROUPS, *COMMANDS) if name in args]
    for name, help in GROUPS:
        if not called or name in called:
            module = importlib.import_module(f"backfill_manager.cli.commands.{name}")
            app.add_typer(module.app, name=name, help=help)
    for name, file in COMMANDS:
        if not called or name in called:
            importlib.import_module(f"backfill_manager.cli.commands.{file}").register(app)
    return app


def _print_version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        typer.echo(f"backfill_manager {version('backfill-manager')}")
        raise typer.Exit


def _globals(
    ctx: typer.Context,
    state: StateOption = None,
    server: ServerOption = None,
    conf: ConfOption = None,
    output: OutputOption = None,
    debug: DebugOption = False,
    version: Annotated[
        bool,
        typer.Option(
            "--version",
            help="Print the version and end.",
            show_default=False,
            is_eager=True,
            callback=_print_version,
        ),
    ] = False,
) -> None:
    calls: CliContextHolder = ctx.obj
    calls.call = calls.call.said(state, server, conf, output, debug)


def _tell(error: Exception, message: str, code: int, calls: CliContextHolder) -> int:
    from rich.console import Console
    from rich.text import Text

    if calls.call.debug:
        traceback.print_exception(error)
    Console(stderr=True).print(Text(message, style="red"), soft_wrap=True, highlight=False)
    return code


def _tell_usage(error: Any, calls: CliContextHolder, args: Sequence[str]) -> int:
    context = getattr(error, "ctx", None)
    message = error.format_message()
    if type(error).__name__ == "NoArgsIsHelpError":  # the help, which is what was wanted
        sys.stdout.write(message + "\n" if message else "")
        return 2
    path = context.command_path if context else "bfm"
    if message.startswith("No such command") and context is not None:
        wrong = message.split("'")[1] if "'" in message else ""
        if here := command_here(path.removeprefix("bfm").strip(), wrong, args):
            return _tell(error, f"`{path} {wrong}` is no command here; what you want is `{here}`.", 2, calls)
        if "did you mean" not in message.lower():
            known = (
                [name for name, _ in (*GROUPS, *COMMANDS)]
                if path == "bfm"
                else list(getattr(context.command, "commands", ()))
            )
            message = message.rstrip(".") + (nearest(wrong, known) or f"; one of {', '.join(known)}.")
    message = message.strip().replace("Value error, ", "")
    stop = "" if message.endswith((".", "?")) else "."
    return _tell(error, f"{message}{stop} See `{path} --help`.", 2, calls)


def _one_line(text: str) -> str:
    return " ".join(text.split())
