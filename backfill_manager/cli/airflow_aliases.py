"""Spellings of Airflow 1 to 3, and words that are near at hand: options with another name here, options that nothing here
needs, and commands in another group or with another name. Each is answered with one line; an option that has a meaning here
takes effect as well.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True)
class AirflowOption:
    """A hidden option of a command."""

    spellings: tuple[str, ...]
    message: str
    parameter: str | None = None  # the field of the command's schema; None: it has no meaning here
    value: str | None = None  # the field's value when the flag is given; None: the value that follows
    takes_value: bool = False


def _renamed(old: str, new: str, parameter: str, value: str | None = None) -> AirflowOption:
    return AirflowOption((old,), f"{old} is {new} here.", parameter, value, takes_value=value is None)


def _dropped(*spellings: str, why: str, takes_value: bool = False) -> AirflowOption:
    return AirflowOption(spellings, f"{spellings[0]} is left out: {why}.", takes_value=takes_value)


_DATES: Final = (
    _renamed("--start-date", "--from", "start_date"),
    _renamed("--end-date", "--to", "end_date"),
    _renamed("--task-regex", "--tasks", "tasks"),
)
_ANYWHERE: Final = (
    _dropped("--subdir", "-S", why="the manager reads DAGs from its bundles, see `bfm bundles list`", takes_value=True),
    _dropped("--verbose", "-v", why="`bfm tasks logs` has what tasks log, --debug shows where an error came from"),
)

OF_BACKFILL_CREATE: Final = (
    *_DATES,
    _renamed("--from-date", "--from", "start_date"),
    _renamed("--to-date", "--to", "end_date"),
    _renamed("--dag-run-conf", "--conf", "conf"),
    _renamed("--reprocess-behavior", "--reprocess", "reprocess"),
    _renamed("--reset-dagruns", "--reprocess completed", "reprocess", "completed"),
    _renamed("--rerun-failed-tasks", "--reprocess failed_tasks", "reprocess", "failed_tasks"),
    _dropped("--local", "-l", why="there is no need, the manager runs the tasks wherever it is asked from"),
    _dropped("--donot-pickle", "-x", why="there is no need, nothing is pickled: runs load their version of the DAG"),
    _dropped(
        "--continue-on-failures",
        why="there is no need, a failed run doesn't stop the others unless --stop-on-failure says so",
    ),
    _dropped(
        "--delay-on-limit", takes_value=True, why="there is no need, a run starts as soon as --max-active-runs lets it"
    ),
    _dropped(
        "--run-at-least-once",
        why="there is no need, an interval that never ran is run; a range with no interval in it takes --kind single",
    ),
    _dropped("--disable-retry", why="there is no need, --set retries=0 sets it for this backfill alone"),
    _dropped(
        "--treat-dag-as-regex", "--treat-dag-id-as-regex",
        why="there is no need, a backfill is of one DAG, and several may run at once: ask for each",
    ),
    _dropped("--yes", "-y", why="there is no need, nothing is asked; --dry-run shows what would run"),
    *_ANYWHERE,
)  # fmt: skip
OF_TASKS_CLEAR: Final = (
    *_DATES,
    _dropped("--exclude-subdags", "-x", why="there is no need, there are no sub-DAGs"),
    _dropped("--exclude-parentdag", "-X", why="there is no need, there are no sub-DAGs"),
    *_ANYWHERE,
)

# Where a command of Airflow 1 or 2 is here, or one that has another name here: by the group it was typed in ("" is `bfm`
# itself).
_MOVED: Final[Mapping[str, Mapping[str, str]]] = {
    "": {
        "clear": "tasks clear", "trigger_dag": "dags trigger", "list_dags": "dags list", "list_tasks": "tasks list",
        "next_execution": "dags next", "unpause": "dags unpause", "pause": "dags pause", "run": "tasks run",
        "logs": "tasks logs", "status": "manager status", "start": "manager start", "stop": "manager stop",
        "watch": "backfill watch", "trigger": "dags trigger", "test": "dags test",
    },
    "dags": {
        "backfill": "backfill create", "clear": "tasks clear", "list-runs": "runs list", "next-execution": "dags next",
        "list-import-errors": "dags import-errors", "details": "dags show", "list-jobs": "runs list",
        "resume": "dags unpause", "run": "dags trigger",
    },
    "backfill": {"resume": "backfill unpause", "stop": "backfill cancel", "abort": "backfill cancel"},
    "runs": {"stop": "runs cancel", "abort": "runs cancel"},
    "tasks": {"states-for-dag-run": "tasks states", "state": "tasks states", "test": "tasks run"},
}  # fmt: skip
# The same for commands that take other arguments here: the line to fill in.
_FILLED_IN: Final[Mapping[str, Mapping[str, str]]] = {
    "runs": {
        "retry": "tasks clear DAG --run RUN --only-failed", "rerun": "tasks clear DAG --run RUN",
        "clear": "tasks clear DAG --run RUN",
    },
}  # fmt: skip


def moved_command(group: str, wrong: str, args: Sequence[str]) -> str | None:
    """The command line that does what was typed, or None. `args` is the whole line, `wrong` the word that is no command of
    `group`."""
    after = list(args)[list(args).index(wrong) + 1 :] if wrong in args else []
    if (moved := _MOVED.get(group, {}).get(wrong)) is not None:
        return _line(moved, after)
    if (line := _FILLED_IN.get(group, {}).get(wrong)) is not None:
        return _line(line, [])
    if group == "backfill" and any(one.startswith("-") for one in after):  # `airflow backfill DAG -s T -e T`
        return _line("backfill create", [wrong, *after])
    return None


def _line(command: str, rest: Sequence[str]) -> str:
    return f"bfm {command} {shlex.join(rest)}".rstrip()
