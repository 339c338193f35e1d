"""The catalogue of errors of commands, and the wording of pydantic's.

`[start_date]` in a template is the field, which each interface names in its own way: `--from`, `start_date`, "From". `[field]`
is the error's own field. A refusal by the manager is stored with its code, field and params, and worded by whoever shows it.
"""

from __future__ import annotations

import json
import typing
from typing import TYPE_CHECKING, Any, Final

from backfill_manager.errors import BackfillManagerError, ErrorTemplate, InvalidInput, nearest, shorten

if TYPE_CHECKING:
    from pydantic import BaseModel, ValidationError
    from pydantic_core import ErrorDetails

CATALOGUE: Final[dict[str, ErrorTemplate]] = {}


def _define(
    code: str, template: str, field: str | None = None, *, error: Any = InvalidInput, hint: str | None = None
) -> ErrorTemplate:
    CATALOGUE[code] = ErrorTemplate(code, template, field, error, hint)
    return CATALOGUE[code]


# -- values, whatever the command -------------------------------------------------------------------------------------
INVALID_VALUE = _define("invalid_value", "[field] {problem}")
MISSING_FIELD = _define("missing_field", "the field {name!r} is missing")
UNKNOWN_FIELD = _define("unknown_field", "unknown field {name!r}{nearest}")
NOT_A_WHOLE_NUMBER = _define("not_a_whole_number", "[field] must be a whole number{limits}, not {value}")
NOT_A_CHOICE = _define("not_a_choice", "[field] {value!r} is not known{nearest}")
NOT_A_FLAG = _define("not_a_flag", "[field] must be true or false, not {value}")
NOT_JSON_OBJECT = _define("not_json_object", "[field] must be a JSON object such as {example}, not {value}")
BAD_FORMAT = _define("bad_format", "[field] {value!r} is not valid{example}")
TOO_LARGE = _define("too_large", "[field] {problem}")
# -- payloads of requests ---------------------------------------------------------------------------------------------
UNKNOWN_KIND = _define("unknown_kind", "There is no request of the kind {kind!r}{nearest}")
NOT_AN_OBJECT = _define("not_an_object", "{kind}: the payload must be a JSON object, not {type}")
UNREADABLE_PAYLOAD = _define("unreadable_payload", "{kind}: the payload {problem}")
PAYLOAD_TOO_LONG = _define(
    "payload_too_long",
    "{kind}: the payload has {length} characters, more than a request may ({max}); ask for less at once",
)
# -- changes of a backfill --------------------------------------------------------------------------------------------
NOTHING_TO_SET = _define("nothing_to_set", "Nothing to set; what can be changed is {fields}.")
NOT_UPDATABLE = _define("not_updatable", "{name!r} can't be changed{nearest} There are {fields}.")
# -- overrides: DAG and task settings of one backfill -----------------------------------------------------------------
INVALID_OVERRIDE = _define("invalid_override", "[overrides] {problem}", "overrides")
UNKNOWN_OVERRIDE = _define(
    "unknown_override",
    "[overrides] {name}: {setting!r} is not a setting that a backfill can set{nearest} There are {known}.",
    "overrides",
)
OVERRIDE_OF_DAG = _define(
    "override_of_dag",
    "[overrides] {name}: {setting} is a setting of the whole DAG; write {setting}=...",
    "overrides",
)
OVERRIDE_UNKNOWN_TASK = _define(
    "override_unknown_task",
    "[overrides] {name}: DAG {dag_id!r} has no task {task_id!r}{nearest} It has {known}.",
    "overrides",
)
OVERRIDE_OF_CALLBACK = _define(
    "override_of_callback",
    "[overrides] {name}: a callback waits only for what it reports on; it has no {setting}",
    "overrides",
)
_NOT_AN_OVERRIDE = "[overrides] {name}: {setting!r} is not a setting that a backfill can set; "
OVERRIDE_HAS_A_FIELD = {  # what a backfill sets in another way
    setting: _define(f"override_{setting}", f"{_NOT_AN_OVERRIDE}{instead} There are {{known}}.", "overrides")
    for setting, instead in (
        ("max_active_runs", "a backfill has its own [max_active_runs]."),
        ("params", "run parameters are given with [conf]."),
        ("schedule", "which intervals are run is set by [kind], [start_date] and [end_date]."),
    )
}


def invalid_input(error: ValidationError, model: type[BaseModel]) -> BackfillManagerError:
    """The first of pydantic's errors as one of ours: the field, and what would be right."""
    first = error.errors(include_url=False)[0]
    path = [part for part in first["loc"] if isinstance(part, str) and not part.startswith(("function-", "tuple["))]
    field = path[-1] if path else ""
    if first["type"] == "missing":
        return MISSING_FIELD(field=field, name=field)
    owner = _model_at(model, path[:-1])
    if first["type"] == "extra_forbidden":
        known = list(owner.model_fields) if owner else []
        return UNKNOWN_FIELD(
            field=field, name=field, nearest=nearest(field, known) or f"; it has {', '.join(known) or 'none'}"
        )
    return _wrong_value(first, field, owner)


def _wrong_value(error: ErrorDetails, field: str, owner: type[BaseModel] | None) -> BackfillManagerError:
    from backfill_manager.schemas.fields import fields_of

    about = fields_of(owner).get(field) if owner else None
    value = shorten(json.dumps(error["input"], ensure_ascii=False, default=str), 60)
    kind = error["type"]
    if kind.startswith("int") or kind in ("greater_than_equal", "less_than_equal"):
        low, high = (about.low, about.high) if about else (None, None)
        limits = (
            "" if low is None or high is None else f" from {low} up" if low in (0, 1) else f" from {low:,} to {high:,}"
        )
        if kind == "less_than_equal" and low in (0, 1):
            return INVALID_VALUE(field=field, problem=f"must not be above {high:,}, not {value[:30]}")
        return NOT_A_WHOLE_NUMBER(field=field, limits=limits, value=value[:30])
    if kind.startswith("bool"):
        return NOT_A_FLAG(field=field, value=value)
    if kind == "literal_error" and about:
        choices = list(about.choices)
        near = nearest(str(error["input"]), choices) or f"; one of {', '.join(choices)}"
        return NOT_A_CHOICE(field=field, value=error["input"], nearest=near)
    if kind in ("dict_type", "model_type"):
        example = json.dumps(about.example if about and about.example else {"full": True})
        return NOT_JSON_OBJECT(field=field, example=example, value=value)
    if kind == "string_pattern_mismatch":
        example = f"; an example is {about.example}" if about and about.example else ""
        return BAD_FORMAT(field=field, value=shorten(str(error["input"]), 60), example=example)
    if kind in ("string_type", "string_too_short"):
        return INVALID_VALUE(field=field, problem=f"must be a text that is not empty, not {value}")
    if kind in ("string_too_long", "too_long"):
        return INVALID_VALUE(field=field, problem=f"is too long: up to {error['ctx']['max_length']:,} are possible")
    return INVALID_VALUE(field=field, problem=error["msg"].removeprefix("Value error, "))


def _model_at(model: type[BaseModel] | None, path: list[str]) -> type[BaseModel] | None:
    """The model in which a field was wrong; `path` leads there."""
    from pydantic import BaseModel

    for name in path:
        info = model.model_fields.get(name) if model else None
        candidates = [info.annotation, *typing.get_args(info.annotation)] if info else []
        model = next((each for each in candidates if isinstance(each, type) and issubclass(each, BaseModel)), None)
    return model
