"""The catalogue of errors of commands, and the wording of pydantic's.

`[start_date]` in a template is the field, which each interface names in its own way: `--from`, `start_date`, "From". `[field]`
is the error's own field. Its code is its name in lower case. A refusal by the manager is stored with its code, field and
params, and worded by whoever shows it.
"""

from __future__ import annotations

import functools
import json
import re
import typing
from typing import TYPE_CHECKING, Final

from backfill_manager import errors
from backfill_manager.clock import INSTANT_FORM
from backfill_manager.errors import BackfillManagerError, ErrorTemplate, InvalidInput, Refused, nearest
from backfill_manager.masking import mask_text
from backfill_manager.value_rules import describe_error

if TYPE_CHECKING:
    from pydantic import BaseModel, ValidationError
    from pydantic_core import ErrorDetails

    from backfill_manager.model.records import Response


_error = ErrorTemplate
_refused = functools.partial(ErrorTemplate, error=Refused)

# -- values, whatever the command -------------------------------------------------------------------------------------
INVALID_VALUE = _error("[field] {problem}")
INVALID_DATE = _error("[field]: {problem}")
MISSING_FIELD = _error("the field {name!r} is missing")
UNKNOWN_FIELD = _error("unknown field {name!r}{nearest}")
MASKED_VALUE = _error("[field] holds {mask!r}, which is how a secret is shown; give the value itself")
NOT_JSON = _error("[field] is not JSON: {problem}")
REGEX_TOO_LONG = _error("[field] holds {length} characters; a regular expression may have {max}")
NOT_A_REGEX = _error("[field] {pattern!r} is not a regular expression: {reason}")
UNSUPPORTED_REGEX = _error(
    "[field] {pattern!r} can't be matched in linear time: look-around and back-references are not supported"
)
NOT_FOUND = _error(errors.NOT_FOUND)
# -- payloads of requests ---------------------------------------------------------------------------------------------
UNKNOWN_KIND = _error("There is no request of the kind {kind!r}{nearest}")
NOT_AN_OBJECT = _error("{kind}: the payload must be a JSON object, not {type}")
UNREADABLE_PAYLOAD = _error("{kind}: the payload {problem}")
PAYLOAD_TOO_LONG = _error(
    "{kind}: the payload has {length} characters, more than a request may ({max}); ask for less at once"
)
# -- what a backfill covers -------------------------------------------------------------------------------------------
DATES_AND_PARTITIONS = _error("[dates] and [partitions] don't go together: a backfill is over dates or over partitions")
LISTED_WITH_OTHER_KIND = _error("[field] is for [kind] {listed}, not for [kind] {kind}")
LISTED_WITH_RANGE = _error(
    "[start_date] and [end_date] don't go with [field]: name the {listed} or the range, not both"
)
CONFIG_AND_FIELD = _error("[config] says what is covered; leave [field] out, or [config]")
CONFIG_CUT_SHORT = _error(
    "[config] contains only some of the {total} {listed}, as lists of backfills do; use the one of the backfill itself",
    "config",
)
COPY_OF_OTHER_DAG = _error(
    "[copy_of] {backfill_id} is a backfill of {of}; only a backfill of the same DAG can be copied"
)
NOTHING_LISTED = _error("[kind] {kind} needs [field], at least once")
ONLY_DATES = _error("[kind] dates takes [dates] only, neither [start_date] and [end_date] nor [partitions]", "dates")
ONLY_PARTITIONS = _error(
    "[kind] partitions takes [partitions] only, neither [start_date] and [end_date] nor [dates]", "partitions"
)
ONLY_RANGE = _error("[kind] {kind} takes [start_date] and [end_date], neither [dates] nor [partitions]")
BAD_PARTITION = _error("[field] {key!r} must be a text of 1 to {max} printable characters")
TOO_MANY_LISTED = _error("{count} {listed} are more than one backfill holds ({max}); ask for fewer at once")
TOO_MANY_INTERVALS = _error(
    "the range holds about {count} intervals, more than one backfill may ({max}); ask for a shorter one", "end_date"
)
TOO_MANY_TO_COMPARE = _error(
    "the range holds more than {max} intervals, too many to compare with tables at once; take a shorter one", "end_date"
)
NO_SCHEDULE = _error("DAG {dag_id!r} {has}, so a range holds no intervals; use [kind] single, [dates] or [partitions]")
NO_START = _error("[kind] {kind} needs [start_date] (the DAG has no start_date to take instead)", "start_date")
NO_END = _error("[kind] {kind} needs [end_date] (the DAG has no end_date to take instead)", "end_date")
NO_ENDS = _error(
    "[kind] {kind} needs [start_date] (the DAG has no start_date to take instead) and [end_date] (the DAG has no end_date "
    "to take instead)",
    "start_date",
)
RANGE_REVERSED = _error("[start_date] {start} is after [end_date] {end}; the earlier of the two comes first")
EMPTY_RANGE = _error(
    "[kind] single creates one run for the range from [start_date] to [end_date], and this range is empty: {start}",
    "end_date",
)
START_AFTER_END_OF_DAG = _error(
    "[start_date] {start} is after the end_date of DAG {dag_id!r}, {end}: give [end_date] as well"
)
NOT_COMPLETE_YET = _error(
    "no interval that starts at or after [start_date] {start} is complete yet: the first one ends at {end}. Ask again then, "
    "or give [end_date] and [allow_future] to run it before it has ended"
)
NO_INTERVAL = _error(
    "no interval of {schedule!r} ({timezone}) starts between {start} and {end}; {nearest}", "start_date"
)
FUTURE_DATE = _error(
    "[logical_date] {date} lies in the future (it is {now} now); to run it before its time, add [allow_future]"
)
DATE_AND_PARTITION = _error("[logical_date] and [partition_key] don't go together: a run of a partition has no date")
# -- run parameters ---------------------------------------------------------------------------------------------------
UNKNOWN_PARAM = _error("[conf] {name!r} is no parameter of DAG {dag_id!r}{nearest}")
WRONG_PARAM = _error("[conf] {name!r} {problem}, not {given}")
MISSING_PARAM = _error("[conf] must set {name!r} ({what}): DAG {dag_id!r} has no default for it")
# -- options of a backfill --------------------------------------------------------------------------------------------
BY_DATA_WITH_OTHER_KIND = _error(
    "[by] data can be used with [kind] missing only, not with [kind] {kind}; [kind] outdated always compares data", "by"
)
NO_TABLES_BY_DATA = _error(
    "DAG {dag_id!r}: no table is known that its tasks write by interval, so intervals can't be selected "
    "by data; a table is known once a run has written it with time_column=...",
    "by",
)
TABLE_NOT_JUDGED = _error("table {table}: {problem}; so intervals can't be selected by its data", "by")
KIND_IMPLIES_REPROCESS = _error(
    "[kind] {kind} itself determines which dates run again; leave out [reprocess] {reprocess}", "reprocess"
)
FAILED_TASKS_WITH = _error(
    "[reprocess] failed_tasks re-runs the failed tasks of runs as they are; leave [field]{value} out, or take [reprocess] "
    "failed, which makes new runs"
)
FAILED_TASKS_WITH_TASKS = _error(
    "[reprocess] failed_tasks re-runs the failed tasks of runs as they are; leave [tasks] {tasks} out, or clear the failed "
    "tasks",
    "tasks", hint="clear_failed_tasks",
)  # fmt: skip
NOT_BATCHABLE = _error(
    "[batch] needs a DAG whose tasks work on an interval of any length: DAG {dag_id!r} does not say batchable=True"
)
NOTHING_TO_BATCH = _error("[batch] combines intervals, and [kind] {kind} has none to combine")
UPSTREAM_WITHOUT_TASKS = _error("[with_upstream] can only be switched off together with [tasks], which selects tasks")
DOWNSTREAM_WITHOUT_TASKS = _error("[with_downstream] needs [tasks], which selects tasks")
NO_TASK_MATCHES = _error("[tasks] {pattern!r} matches no task{whose}; there are {tasks}")
BACKWARDS_ON_PAST = _error(
    "[run_backwards] can't be used with DAG {dag_id!r}: its task {task_id!r} has depends_on_past, so older dates must run "
    "first"
)
SCHEDULED_POOL = _error(
    "[field] {pool}: the pool 'scheduled' is for scheduled runs; a backfill takes 'backfill' or one of your own"
)
NO_POOL_TO_OVERRIDE = _error("[overrides] {name}: there is no pool {pool!r}{nearest} There are {pools}.")
EMPTY_WINDOW = _error("[window] {window!r} begins where it ends; leave it out to work at any hour")
BAD_WINDOW = _error("[window]: {window!r} is not a span of hours; 20:00-06:00 is one")
BAD_OVERRIDE = _error("[overrides] {pair!r} must be NAME=VALUE, such as retries=3 or clean.timeout=600")
OVERRIDE_TWICE = _error("[overrides] sets {name!r} twice; set it once")
# -- changes of a backfill --------------------------------------------------------------------------------------------
NOTHING_TO_SET = _error("Nothing to set; what can be changed is {fields}.")
NOT_UPDATABLE = _error("{name!r} can't be changed{nearest} There are {fields}.")
WAS_NOT_CHANGED = _error("'was' contains {name!r}, which is not among the changes{nearest}", "was")
CHANGED_MEANWHILE = _refused(
    "[field] is {now} now, not {was}{more}: somebody has changed it in the meantime. Check it, and repeat the request.",
)
BACKFILL_ENDED = _refused("Backfill {backfill_id} has ended ({state}): there is nothing to {action}.")
BACKFILL_NOT_ENDED = _refused(
    "Backfill {backfill_id} is {state}: only one that has ended is retried.", hint="watch_backfill"
)
BACKFILL_KEEPS_VERSION = _refused(
    "Backfill {backfill_id} is {state} and keeps its version of the DAG, {version}, to its end: only one that has ended is "
    "moved to another",
    hint="cancel_and_create_missing",
)
RETRY_IN_PLACE = _refused(
    "Backfill {backfill_id} runs the failed tasks of runs again, which keep their version; clear these tasks with "
    "[latest_version] instead."
)
PREVIEW_WITH = _error(
    "[field]{value} can't be used with [preview]: a preview creates new runs, which write into clones"
)
NOT_A_PREVIEW = _refused("Backfill {backfill_id} is no preview: it was created without [preview].")
PREVIEW_IS_OVER = _refused("The preview {backfill_id} is {outcome}: its clones are gone. Create another one.")
PREVIEW_STILL_RUNS = _refused(
    "Backfill {backfill_id} is {state}; what it has written can be {action} when it has ended, or is cancelled."
)
PREVIEW_BELOW = _refused(
    "Backfill {backfill_id} is downstream of the preview {preview_id}; use the id of that preview, which "
    "includes its downstream backfills."
)
PREVIEW_HAS_FAILED = _refused(
    "Preview {backfill_id}: {failed} did not succeed. Retry what failed, or promote the rest with [partial]."
)
PREVIEW_MEETS_RUN = _refused(
    "Run {run_id} of DAG {dag_id} is {state} on a date of this preview; promote it when that has ended."
)
REVERT_PREVIEW = _refused(
    "Backfill {backfill_id} is a preview, and has written clones of the tables: discard it instead."
)
REVERT_STILL_RUNS = _refused(
    "{what} is {state}: what it has written can be reverted when it has ended, or is cancelled."
)
REVERT_MEETS_RUN = _refused(
    "Run {run_id} of DAG {dag_id} is {state} on the same interval; revert {what} when that has ended."
)
ALREADY_REVERTED = _refused("{what} was reverted already{when}.")
WROTE_NO_TABLE = _refused("{what} has written no Delta table that is known: there is nothing to revert.")
NO_SUCH_ITEM = _error("[items] {item}: backfill {backfill_id} has {planned}, numbered from 1", "items")
NO_CHOSEN_ITEM_FAILED = _refused("None of the {chosen} of backfill {backfill_id} has failed; it has {failed}.")
RETRY_BEHIND_GAP = _refused(
    "Item {next} of backfill {backfill_id} has tasks that depend on the past, and item {ordinal} before it failed without a run; "
    "choose that one, too."
)
NOTHING_TO_RETRY = _refused("Backfill {backfill_id} has no failed item: there is nothing to retry.")
# -- overrides: DAG and task settings of one backfill -----------------------------------------------------------------
INVALID_OVERRIDE = _error("[overrides] {problem}")
UNKNOWN_OVERRIDE = _error(
    "[overrides] {name}: {setting!r} is not a setting that a backfill can set{nearest} There are {known}."
)
OVERRIDE_OF_DAG = _error("[overrides] {name}: {setting} is a setting of the whole DAG; write {setting}=...")
OVERRIDE_UNKNOWN_TASK = _error("[overrides] {name}: DAG {dag_id!r} has no task {task_id!r}{nearest} It has {known}.")
OVERRIDE_OF_CALLBACK = _error("[overrides] {name}: a callback waits only for what it reports on; it has no {setting}")
_NOT_AN_OVERRIDE = "[overrides] {name}: {setting!r} is not a setting that a backfill can set; "
OVERRIDE_MAX_ACTIVE_RUNS = _error(f"{_NOT_AN_OVERRIDE}a backfill has its own [max_active_runs]. There are {{known}}.")
OVERRIDE_PARAMS = _error(f"{_NOT_AN_OVERRIDE}run parameters are given with [conf]. There are {{known}}.")
OVERRIDE_SCHEDULE = _error(
    f"{_NOT_AN_OVERRIDE}which intervals are run is set by [kind], [start_date] and [end_date]. There are {{known}}."
)
OVERRIDE_HAS_A_FIELD: Final = {  # what a backfill sets in another way
    "max_active_runs": OVERRIDE_MAX_ACTIVE_RUNS, "params": OVERRIDE_PARAMS, "schedule": OVERRIDE_SCHEDULE,
}  # fmt: skip
# -- runs and tasks ---------------------------------------------------------------------------------------------------
RUN_ENDED = _refused("Run {run_id} of {dag_id} has ended ({state}): there is nothing to cancel.")
RUN_OVERRIDDEN = _refused("Run {run_id} was overridden and is kept unchanged; the current run is {by}.")
RUN_REVERTED = _refused("Run {run_id} was reverted and is kept unchanged; run its date again in a new run.")
MARK_OF_MAPPED = _refused("Task {task_id!r} has been mapped in this run; mark its mapped tasks: {mapped}.")
MARK_OF_REMOVED = _refused(
    "Task {task_id!r} of run {run_id} was removed: the run's version, or the result over which it was "
    "mapped, no longer contains it. It can't be marked."
)
ONLY_FAILED_AND_RUNNING = _error("[only_failed] and [only_running] exclude each other; use one of them", "only_running")
RUN_NAMES_A_DAG = _error("[run_ids] {run} names a DAG, and [is_regex] selects others as well; clear {dag_id} by its id")
NO_TASK_STARTED = _error("There is nothing to clear: no task{of} {what} in {runs} of {dags}{between}")
LATEST_OF_GONE_DAG = _error(
    "[latest_version]: DAG {dag_id!r} is gone, so there is no later version to move to; without it, its runs are cleared with "
    "the version they had"
)
PARAMS_OF_OLDER_VERSION = _error(
    "[latest_version] leads to version {version} of DAG {dag_id!r}, which does not take the parameters of run {run_id} (without "
    "it, the run keeps version {old}): {problem}"
)
TOO_MANY_RUNS = _error("More than {max} runs are chosen; take a shorter range of dates at once", "end_date")
ITEMS_WITHOUT_BACKFILL = _error("[items] {items} are items of a backfill; name it with [backfill_id]", "items")
DATES_AND_RANGE = _error(
    "[dates] and [start_date] or [end_date] don't go together; a range in [dates] is FIRST/LAST", "dates"
)
DATES_REVERSED = _error("[dates] {range} is the wrong way round; the earlier date comes first", "dates")
NO_BACKFILL_TO_CHOOSE_FROM = _error("there is no backfill {backfill_id!r}", "backfill_id")
BACKFILL_OF_OTHER_DAG = _error(
    "backfill {backfill_id} belongs to DAG {dag_id!r}; select its runs with that DAG", "backfill_id"
)
ITEMS_WITHOUT_RUN = _error("none of the items {items} of backfill {backfill_id} has a run yet", "items")
NO_RUN_TO_MARK = _error(
    "DAG {dag_id!r} has no run{between} to mark; use a backfill for dates that never ran, with "
    "[mark_success] to run no tasks"
)
NEVER_RAN = _error("{none}{between}, and what never ran can't be cleared", hint="create_backfill")
NEVER_RAN_AND_GONE = _error(
    "{none}{between}, and what never ran can't be cleared; nor can it run any more, as no bundle defines it now"
)
PART_OF_A_BATCH = _error(
    "The dates{between} are part of run {run_id}, which processes {items} intervals together from {start} "
    "on: {do} that run as a whole, with [start_date] {start}"
)
CLEAR_OVERRIDDEN = _error(
    "Run {run_id} was overridden and is kept unchanged; the current run is {by}: clear that one",
    "run_ids",
)
CLEAR_LOST = _error("Run {run_id} was lost with a damaged file of the state; backfill its date again", "run_ids")
CLEAR_REVERTED = _error(
    "Run {run_id} was reverted and is kept unchanged; run its date again in a new run",
    "run_ids",
)
RUN_OUT_OF_RANGE = _error(
    "Run {run_id} is outside of the selected dates{between}; leave out [start_date] and [end_date], or "
    "name another run",
    "run_ids",
)
RUN_IS_LIVE = _refused("Run {run_id} of that date is {state}; wait for its end, or cancel it", hint="cancel_run")
BATCH_IS_LIVE = _refused(
    "Run {run_id}, which processes {items} intervals together, including this date, is {state}; wait for "
    "its end, or cancel it",
    hint="cancel_run",
)
DATES_ARE_LIVE = _refused(
    "Run {cleared} can't run again now: run {run_id}, which processes dates of it, is {state}; wait for its end, or cancel it",
    hint="cancel_run",
)
CALLBACK_BY_HAND = _refused(
    "{task_id} is a callback: it reports how a task or a run has ended, so it can't be run by hand. To "
"repeat the report of a run, clear this task",
    "task_id", hint="clear_callback",
)  # fmt: skip
DAG_INACTIVE = _refused("DAG {dag_id!r} is not active: {why}.", "dag_id")
DOWNSTREAM_CIRCLE = _error(
    "[downstream] can't be used with DAG {dag_id!r}: {circle} read each other's tables in a circle, so "
    "none can be first; backfill them one by one, or say by reads=[...] which tables count (a DAG without it reads what its "
    "SQL tasks name)"
)
TOO_MANY_DOWNSTREAM = _error(
    "[downstream]: DAG {dag_id!r} has about {count} intervals in that range, more than one backfill may ({max}); ask for a "
    "shorter one"
)
STATE_IS_LED = _refused(
    "The manager of term {term} (pid {pid} on {host}) leads the state at {root}. Stop it first.", hint="stop_manager"
)  # fmt: skip
NO_RETENTION = _refused(
    "No age is set: everything is kept for ever. Set some below `retention` in the configuration file, such as `runs: 90 days`"
)
UNREADABLE_ROW = _refused(
    "A row of the state that this needs holds JSON that can't be read. `bfm state check` names it"
)
# -- requests ---------------------------------------------------------------------------------------------------------
BAD_REQUEST_ID = _error(
    "The request id {request_id!r} must be 1 to 64 letters (a to z), digits, '_', '.' or '-', and begin with a letter or digit"
)
REQUEST_ID_USED = _error("The request id {request_id!r} was used for another request ({kind}); choose a new one")

CATALOGUE: Final[dict[str, ErrorTemplate]] = {
    name.lower(): value for name, value in globals().items() if isinstance(value, ErrorTemplate)
}
for _code, _template in CATALOGUE.items():
    _template.code = _code
# -- problem documents of the REST API: of each class its status, the end of `type`, and the title --------------------
# The most specific class first: the first that fits is taken.
PROBLEM_TYPE: Final = "urn:backfill-manager:problem:"
PROBLEMS: Final[tuple[tuple[type[BackfillManagerError], int, str, str], ...]] = (
    (errors.Unauthenticated, 401, "not-known", "Unauthenticated"),
    (errors.Forbidden, 403, "not-allowed", "Forbidden"),
    (errors.NotFound, 404, "not-found", "Not found"),
    (Refused, 409, "refused", "Refused by the manager"),
    (errors.RateLimited, 429, "too-many", "Too many requests"),
    (errors.StateError, 503, "state-error", "State unavailable"),
    (errors.NoActiveManager, 503, "nobody-leads", "No manager"),
    (errors.InvalidConfig, 500, "invalid-config", "Invalid configuration"),
    (errors.Ambiguous, 422, "ambiguous", "Ambiguous id"),
    (InvalidInput, 422, "invalid-input", "Invalid input"),
    (BackfillManagerError, 500, "backfill-manager-error", "Failed"),
)


def error_columns(error: BackfillManagerError | str) -> dict[str, str | None]:
    """An error as columns of the response table; nothing but a message has none."""
    if isinstance(error, str):
        return {}
    params = {name: mask_text(value) if isinstance(value, str) else value for name, value in error.params.items()}
    text = json.dumps(params, default=str, sort_keys=True) if params else None
    return {"error_code": error.code, "error_field": error.field, "error_params": text}


def refusal(response: Response) -> Refused:
    """The manager's refusal as an error. Of an older release, or with a code of a newer one, the message stands as it is."""
    error = Refused(response.message, field=response.error_field)
    error.code = response.error_code or error.code
    template = CATALOGUE.get(error.code)
    if template is not None and response.error_params:
        error.template, error.hint, error.params = template.template, template.hint, json.loads(response.error_params)
    return error


_PROBLEMS: Final = {  # of values that came as JSON
    "dict_type": 'must be a JSON object such as {"full": true}',
    "model_type": "must be a JSON object",
    "string_too_short": "must not be empty",
    "datetime_type": f"must be an instant, {INSTANT_FORM}",
}


def invalid_input(error: ValidationError, model: type[BaseModel]) -> BackfillManagerError:
    """The first of pydantic's errors as one of ours: the field, and what would be right; of `config` its part, too."""
    first = error.errors(include_url=False)[0]
    path = [part for part in first["loc"] if isinstance(part, str) and "[" not in part]
    if path[:1] == ["config"] and len(path) > 1:
        return _invalid_field(first, path, model).prefixed("config: ")
    return _invalid_field(first, path, model)


def _invalid_field(first: ErrorDetails, path: list[str], model: type[BaseModel]) -> BackfillManagerError:
    field = path[-1] if path else ""
    if first["type"] == "missing":
        return MISSING_FIELD(field=field, name=field)
    if first["type"] == "extra_forbidden":
        return unknown_field(path, model)
    problem = _PROBLEMS.get(first["type"]) or describe_error(first)
    if first["type"] == "literal_error":
        problem += nearest(str(first["input"]), re.findall(r"'([^']*)'", first["ctx"]["expected"]))
    return INVALID_VALUE(field=field, problem=problem)


def unknown_field(path: list[str], model: type[BaseModel]) -> BackfillManagerError:
    """The last of these names, which its model does not have."""
    owner = _model_at(model, path[:-1])
    known = list(owner.model_fields) if owner else []
    near = nearest(path[-1], known) or f"; it has {', '.join(known) or 'none'}"
    return UNKNOWN_FIELD(field=path[-1], name=path[-1], nearest=near)


def _model_at(model: type[BaseModel] | None, path: list[str]) -> type[BaseModel] | None:
    """The model in which a field was wrong; `path` leads there."""
    from pydantic import BaseModel

    for name in path:
        info = model.model_fields.get(name) if model else None
        candidates = [info.annotation, *typing.get_args(info.annotation)] if info else []
        model = next((each for each in candidates if isinstance(each, type) and issubclass(each, BaseModel)), None)
    return model
