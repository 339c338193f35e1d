"""Tasks without a function: `sql(...)` and `bash_task(...)`, whose text is given, or is that of a file of the bundle."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NoReturn

from backfill_manager.dags.authoring.building import (
    DagBuilder,
    Task,
    check_settings,
    current_collection,
    dag_being_made,
    task_in_errors,
)
from backfill_manager.dags.definition import VALUES_OF_CONDITIONS, has_macros, hint_of_parameter
from backfill_manager.errors import InvalidDag
from backfill_manager.schemas.checks import in_code

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from backfill_manager.schemas.dag_settings import BashSettings, SqlSettings

_INTERVALS_ROWS: Final = "tells which rows of a table are the interval's; name the table with into=..."
_HOW_ROWS_GO: Final = "says how rows go into a table; name the table with into=..."
_OF_INTO: Final = {  # settings of SQL that need `into`, and why
    "time_column": _INTERVALS_ROWS, "partition_column": _INTERVALS_ROWS,
    "mode": _HOW_ROWS_GO, "merge_on": _HOW_ROWS_GO, "schema": _HOW_ROWS_GO,
    "checks": "check rows before they go into a table, and these statements write by themselves; name the table with into=..., "
    "which takes the rows of the last one",
}  # fmt: skip
_OF_SQL: Final = (*VALUES_OF_CONDITIONS, "run_id")  # named parameters of SQL in all tasks, beside the params
MAX_COMMAND: Final = 100_000  # bytes; Linux takes no argument of more than 131,072


def sql(name: str, text: str, **settings: Unpack[SqlSettings]) -> Task:
    """A Spark SQL task: `text` is the statement, or a `.sql` file beside the DAG's file. The interval comes as named
    parameters (`:interval_start`, `:interval_end`, ...); `into` is the table that the rows of the interval go to. Without it
    the statements write by themselves (MERGE, INSERT, ...), each once, and in turn with others that write the same tables. What
    they read makes the DAG downstream of those that write it, if the DAG declares no `reads`."""
    building = dag_being_made.get()
    if building is None:
        raise InvalidDag(f"sql({name!r}, ...) makes a task: call it in the body of a @dag function")
    who = task_in_errors(name)
    checked = check_settings("SqlSettings", {**settings, "task_id": name}, who)
    for option, why in _OF_INTO.items():
        if checked.get(option) and not checked.get("into"):
            raise InvalidDag(f"{who}: {option} {why}")
    if (code := in_code(checked.get("checks", ()))) is not None:
        raise InvalidDag(f"{who}: check {code!r} is code of the bundle, which a sql task does not run; use a @task")
    overwrites = checked.get("mode") == "overwrite"
    for option in ("mode", "time_column", "partition_column"):
        if checked.get(option) and checked.get("merge_on"):
            raise InvalidDag(f"{who}: merge_on updates rows by their key, wherever they are, so it takes no {option}")
        if checked.get(option) and overwrites and option != "mode":
            raise InvalidDag(f"{who}: mode='overwrite' replaces the whole table, so it takes no {option}")
    statement = _text(text, building, who, ".sql", "a statement")
    is_mapped = checked.get("over") is not None
    has_output = checked.get("into") is not None
    _check_statement(
        statement, None if statement == text else text, building, who, is_mapped=is_mapped, has_output=has_output
    )
    return building.add("sql", name, {**checked, "sql": statement})


def _check_statement(
    statement: str, file: str | None, building: DagBuilder, who: str, *, is_mapped: bool, has_output: bool
) -> None:
    """`InvalidDag` for macros that are wrong, for what can be no statement, and for a named parameter that no run has; it names
    the line in the file, or in the text."""
    collection = current_collection()
    if collection is not None and collection.is_for_task:
        return

    def wrong(message: object, line: int | None) -> NoReturn:
        place = "" if line is None else f"line {line}" if file else f"line {line} of its text"
        where = ", ".join(part for part in (file, place) if part)
        raise InvalidDag(f"{who}: {where}: {message}" if where else f"{who}: {message}") from None

    text = statement
    if has_macros(statement):
        from backfill_manager.dags.sql_macros import MacroError, check_macros

        try:
            text = check_macros(statement, building.params)
        except MacroError as error:
            wrong(error, error.line)
    from backfill_manager.store.sql_guard import named_parameters, problem_of_statements

    if problem := problem_of_statements(text, has_output=has_output):
        wrong(problem, None)
    if building.takes_any_param:
        return
    known = (*building.params, *_OF_SQL, *(["mapped_value"] if is_mapped else []))
    for name, line in named_parameters(text, known).items():
        hint = hint_of_parameter(name, known)
        if name == "mapped_value":
            hint = "; only a mapped task, one with over=..., has it"
        wrong(f":{name} is no param of the DAG, and no value that every run has{hint}", line)


def bash_task(name: str, command: str, **settings: Unpack[BashSettings]) -> Task:
    """A command of bash, or a `.sh` file beside the DAG's file: it runs as `bash -euo pipefail` would, and what it prints is its
    log. Values of the run are variables of its environment (`BFM_INTERVAL_START`, `BFM_PARAM_REGION`, ...), `env` adds others,
    `secrets` those with values of secrets. An exit code that is not 0 is a failure, `skip_exit_code` (99) skips the task. The
    last line that it prints is its result."""
    building = dag_being_made.get()
    if building is None:
        raise InvalidDag(f"bash_task({name!r}, ...) makes a task: call it in the body of a @dag function")
    who = task_in_errors(name)
    checked = check_settings("BashSettings", {**settings, "task_id": name}, who)
    text = _text(command, building, who, ".sh", "a command")
    if len(text.encode("utf-8", "surrogatepass")) > MAX_COMMAND:
        more = "put what it does into a script, and call that"
        raise InvalidDag(f"{who}: its command has more than {MAX_COMMAND:,} bytes; {more}")
    cwd = checked.get("cwd")
    if cwd is not None and not Path(cwd).is_absolute() and os.path.normpath(cwd).split("/")[0] == "..":
        raise InvalidDag(f"{who}: cwd must lie in the bundle, or be an absolute path, not {cwd!r}")
    return building.add("bash", name, {**checked, "bash": text})


def _text(text: Any, building: DagBuilder, who: str, suffix: str, what: str) -> str:
    """The text itself, or the content of the file that it names."""
    if not isinstance(text, str) or not text.strip():
        raise InvalidDag(f"{who}: needs {what}, or the name of a {suffix} file, not {text!r}")
    if not text.endswith(suffix) or len(text.split()) > 1:
        return text
    path = Path(os.path.normpath(building.folder / text))
    root = building.root
    if Path(text).is_absolute() or (root is not None and root not in path.parents):
        raise InvalidDag(f"{who}: {text} must lie in the bundle, and be named from the DAG file's folder")
    try:
        statement = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "not UTF-8 text"
        raise InvalidDag(f"{who}: {text} can't be read from the DAG file's folder: {why}") from None
    if not statement.strip():
        raise InvalidDag(f"{who}: {text} is empty")
    return statement
