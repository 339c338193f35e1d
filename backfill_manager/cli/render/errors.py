"""Errors in the command line's terms: options in place of fields, and commands as hints."""

from __future__ import annotations

import shlex
from typing import Any, Final

from backfill_manager.errors import BackfillManagerError

# hint -> what could be done next; filled with the error's params
HINTS: Final = {
    "see_dags": "see `bfm dags list`",
    "see_import_errors": "it may be in a file that could not be read, see `bfm dags import-errors`",
    "see_runs": "see `bfm runs list`",
    "see_backfills": "see `bfm backfill list`",
    "see_bundles": "see `bfm bundles list`",
    "see_tables": "see `bfm tables list`",
    "see_requests": "see `bfm requests list`",
    "check_state": "`bfm state check` tells more",
    "set_credentials": "set {variables}, or give this machine a role that may use it",
    "start_manager": "start one with `bfm manager start`",
    "see_manager": "`bfm manager status` says whether one runs, `bfm manager start` starts one",
    "stop_manager": "`bfm --state {root} manager stop`",
    "init_state": "Create it with `bfm --state {root} state init`",
    "state_is_a_place": "Here --state is where the state is kept; the states of a run's tasks are shown by "
    "`bfm tasks states DAG RUN`",
    "upgrade_state": "`bfm state init` does it, too",
    "adopt_state": "`bfm --state {root} state adopt --as-copy` if it is the one at {other}, `bfm --state {root} state adopt "
    "--as-original` if it is this one",
    "new_pool": "a new one is made in the configuration file, for the manager's next start",
    "create_backfill": "create a backfill with `bfm backfill create {dag_id} --from {start} --to {end}`",
    "create_first_backfill": "create one with `bfm backfill create DAG --from T --to T`",
    "watch_backfill": "`bfm backfill watch {backfill_id}` waits for its end",
    "cancel_and_create_missing": "`bfm backfill cancel {backfill_id}` ends it, and `bfm backfill create {dag_id} --kind missing "
    "--from … --to …` runs the rest with the current version",
    "clear_failed_tasks": "`bfm tasks clear {dag_id} --only-failed --tasks {tasks}`",
    "clear_callback": "`bfm tasks clear {dag_id} --run RUN -t {task_id}`",
    "cancel_run": "`bfm runs cancel {run_id}`",
    "parse_bundle": "`bfm bundles parse {bundle}`",
    "conf_is_no_file": "the configuration file is named before the command: `bfm --conf {text} backfill create …`",
}


def worded(error: BackfillManagerError) -> str:
    """The message with options for fields, and the hint at its end: a command alone, a clause, or a sentence (upper case)."""
    text = error.worded(option_of)
    if (hint := HINTS.get(error.hint or "")) is None:
        return text
    is_command = hint.startswith("`") and hint.endswith("`")
    separator = ": " if is_command else ". " if hint[0].isupper() else "; "
    return f"{text.rstrip('.')}{separator}{hint.format(**_for_a_shell(error.params))}."


def _for_a_shell(params: dict[str, Any]) -> dict[str, Any]:
    """The root of a state is part of commands that people copy, and may have spaces."""
    return params | {"root": shlex.quote(str(params["root"]))} if "root" in params else params


def option_of(field: str) -> str:
    """`start_date` -> `--from`; a name that is no option stays."""
    from backfill_manager.schemas.commands import find_field

    declared = find_field(field)
    return field if declared is None or field in ("dag_id", "name", "bundle", "subpath") else declared.spellings[0]
