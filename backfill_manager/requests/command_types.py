"""Every kind of request, and what its payload must hold: one table, read by those who ask and by the manager's inbox.

A request outlives the process that asked and may have been written by a newer or older client, or by hand. So the
payload is looked at twice: before it is appended (`asking.ask`) and when the manager reads it. Only form is checked
here; whether there is such a DAG or such a backfill is for those who hold the state.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from typing import Any, Final

from backfill_manager.clock import parse_instant
from backfill_manager.errors import InvalidInput, nearest
from backfill_manager.requests.json_input import DEEPEST, invalid_json_values, too_large

BACKFILL_CREATE: Final = "backfill.create"  # {"backfill_id", "ask": BackfillAsk}
BACKFILL_DRY_RUN: Final = (
    "backfill.dry_run"  # the same; answered with {"items": [...], "summary": {...}} as payload_json
)
BACKFILL_PAUSE: Final = "backfill.pause"  # {"backfill_id"}
BACKFILL_UNPAUSE: Final = "backfill.unpause"  # {"backfill_id"}
BACKFILL_CANCEL: Final = "backfill.cancel"  # {"backfill_id", "let_running_finish"}
# {"backfill_id", "changes": {setting: value}}, see backfills.CHANGEABLE; and maybe "was": {setting: value}, of settings in
# `changes`, as the asker saw them: refused when one has another value by now
BACKFILL_SET: Final = "backfill.set"
BACKFILL_RETRY: Final = "backfill.retry"  # {"backfill_id"}: its failed items, once more
BACKFILL_HIDE: Final = "backfill.hide"  # {"backfill_id"}: cancelled if it goes on, and left out of lists
POOL_SET: Final = "pool.set"  # {"name", "slots", "weight", "min_share"}
MANAGER_STOP: Final = "manager.stop"  # {"drain"}
MANAGER_STAND_BY: Final = "manager.stand_by"  # {"manager_id", "host", "pid"}: a sign of life, now and then
STATE_COMPACT: Final = "state.compact"  # {}; answered with {"files": {table: number}} as payload_json
DAG_PAUSE: Final = "dag.pause"  # {"dag_id"}
DAG_UNPAUSE: Final = "dag.unpause"  # {"dag_id"}
DAG_DEACTIVATE: Final = "dag.deactivate"  # {"dag_id"}
BUNDLE_PARSE: Final = "bundle.parse"  # {"bundle", "subpath", "dry_run", "deactivate_removed"}; "" is all of the bundle
BUNDLE_DEACTIVATE: Final = "bundle.deactivate"  # {"bundle", "subpath"}
# {"dag_id", "logical_date": instant or null, "conf": {}}, and maybe "allow_future"; object_id: the run's id
DAG_TRIGGER: Final = "dag.trigger"
RUN_CANCEL: Final = "run.cancel"  # {"dag_id", "run_id"}
RUN_MARK: Final = "run.mark"  # {"dag_id", "run_id", "state": success | failed}
TASK_RUN: Final = "task.run"  # {"dag_id", "task_id", "logical_date": instant}; object_id: the external run's id
TASK_MARK: Final = "task.mark"  # {"dag_id", "run_id", "task_id", "state": success | failed | skipped}
TASKS_CLEAR: Final = "tasks.clear"  # {"ask": ClearAsk}

ACCEPTED: Final = "accepted"
REFUSED: Final = "refused"

LARGEST_PAYLOAD: Final = 32_000_000  # characters of JSON: a million dates or partitions, and more than any server takes
MOST_OF_A_NUMBER: Final = 1_000_000_000  # of slots, a priority, a batch, ...: sums of them still fit a column

_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")
_POOL_NAME = re.compile(r"(?!\.+$)[A-Za-z0-9_.-]{1,200}")  # as in settings

# A test says what is wrong with a value ("must be ..."), or None.
Test = Callable[[Any], "str | None"]


def _text(value: Any) -> str | None:
    return None if isinstance(value, str) and value else "must be a text that is not empty"


def _id(value: Any) -> str | None:
    if isinstance(value, str) and _ID.fullmatch(value):
        return None
    return "must be 1 to 64 letters, digits, '_', '.' or '-', and begin with a letter or digit"


def _subpath(value: Any) -> str | None:
    """A file or folder of a bundle; it is only ever compared with names that are there."""
    if not isinstance(value, str) or value.startswith("/") or ".." in value.split("/"):
        return "must be a path within the bundle, such as daily/flights.py, or empty for all of it"
    return None


def _flag(value: Any) -> str | None:
    return None if isinstance(value, bool) else "must be true or false"


def _whole(low: int) -> Test:
    def test(value: Any) -> str | None:
        if not isinstance(value, int) or isinstance(value, bool) or value < low:
            return f"must be a whole number from {low} up"
        return None if value <= MOST_OF_A_NUMBER else f"must not be above {MOST_OF_A_NUMBER:,}"

    return test


def _pool_name(value: Any) -> str | None:
    if not isinstance(value, str) or not _POOL_NAME.fullmatch(value):
        return "must be up to 200 letters, digits, '_', '.' or '-'"
    return "must be another name: 'control' is the pool that plans" if value == "control" else None


def _ask(value: Any) -> str | None:
    """That it can be read back as a `CreateBackfill`; what it says is checked against the DAG by `backfills.check`."""
    if not isinstance(value, dict):
        return "must be an object, the backfill as asked for"
    if not isinstance(value.get("dag_id"), str) or not value["dag_id"]:
        return "must name its 'dag_id'"
    from backfill_manager.requests.backfills import CreateBackfill

    for name in ("conf", "overrides"):
        if wrong := too_large(value.get(name)):
            return f"is not a backfill that can be made: its {name!r} {wrong}"
    try:
        CreateBackfill.from_payload(value)
    except (TypeError, ValueError, AttributeError, InvalidInput) as error:
        return f"is not a backfill that can be read: {error}"
    return None


def _instant(value: Any) -> str | None:
    wrong = "must be an instant such as 2013-01-31T05:00:00Z"
    if not isinstance(value, str):
        return wrong
    try:
        parse_instant(value)
    except (ValueError, InvalidInput):
        return wrong
    return None


def _or_null(test: Test) -> Test:
    return lambda value: None if value is None else test(value)


def _one_of(*words: str) -> Test:
    return lambda value: None if value in words else f"must be {', '.join(words[:-1])} or {words[-1]}"


def _object(value: Any) -> str | None:
    return None if isinstance(value, dict) else "must be a JSON object"


def _conf(value: Any) -> str | None:
    return _object(value) or too_large(value)


def _changes(value: Any) -> str | None:
    from backfill_manager.requests.backfills import check_changes

    if not isinstance(value, dict):
        return "must be an object of settings and their new values"
    try:
        check_changes(value)
    except InvalidInput as error:
        return f"can't be made: {error}"
    return None


def _clear(value: Any) -> str | None:
    from backfill_manager.requests.clearing import ClearTasks

    if not isinstance(value, dict):
        return "must be an object, what is to be cleared"
    try:
        ClearTasks.from_payload(value)
    except (TypeError, InvalidInput) as error:
        return f"can't be read: {error}"
    return None


_BACKFILL = {"backfill_id": _id}
_DAG = {"dag_id": _text}
_RUN = {"dag_id": _text, "run_id": _text}

PAYLOADS: Final[Mapping[str, Mapping[str, Test]]] = {
    BACKFILL_CREATE: {**_BACKFILL, "ask": _ask},
    BACKFILL_DRY_RUN: {**_BACKFILL, "ask": _ask},
    BACKFILL_PAUSE: _BACKFILL,
    BACKFILL_UNPAUSE: _BACKFILL,
    BACKFILL_CANCEL: {**_BACKFILL, "let_running_finish": _flag},
    POOL_SET: {"name": _pool_name, "slots": _whole(1), "weight": _whole(1), "min_share": _whole(0)},
    MANAGER_STOP: {"drain": _flag},
    MANAGER_STAND_BY: {"manager_id": _text, "host": _text, "pid": _whole(1)},
    STATE_COMPACT: {},
    DAG_PAUSE: _DAG,
    DAG_UNPAUSE: _DAG,
    DAG_DEACTIVATE: _DAG,
    BUNDLE_PARSE: {"bundle": _text, "subpath": _subpath, "dry_run": _flag, "deactivate_removed": _flag},
    BUNDLE_DEACTIVATE: {"bundle": _text, "subpath": _subpath},
    BACKFILL_SET: {**_BACKFILL, "changes": _changes},
    BACKFILL_RETRY: _BACKFILL,
    BACKFILL_HIDE: _BACKFILL,
    DAG_TRIGGER: {**_DAG, "logical_date": _or_null(_instant), "conf": _conf},
    RUN_CANCEL: _RUN,
    RUN_MARK: {**_RUN, "state": _one_of("success", "failed")},
    TASK_RUN: {**_DAG, "task_id": _text, "logical_date": _instant},
    TASK_MARK: {**_RUN, "task_id": _text, "state": _one_of("success", "failed", "skipped")},
    TASKS_CLEAR: {"ask": _clear},
}

MAY_BE_LEFT_OUT: Final[Mapping[str, Mapping[str, Test]]] = {
    BACKFILL_SET: {"was": _object}, DAG_TRIGGER: {"allow_future": _flag},
}  # fmt: skip


def check_payload(kind: str, payload: Any) -> dict[str, Any]:
    """The payload itself, or `InvalidInput` that names the kind, the field and what it should be."""
    if kind not in PAYLOADS:
        raise InvalidInput(
            f"There is no request of the kind {kind!r}{nearest(kind, PAYLOADS) or '; one of ' + ', '.join(PAYLOADS)}"
        )
    if not isinstance(payload, dict):
        raise InvalidInput(f"{kind}: the payload must be a JSON object, not {type(payload).__name__}")
    for told in invalid_json_values(
        payload, deepest=DEEPEST + 2
    ):  # around what was typed are the payload and its `ask`
        raise InvalidInput(f"{kind}: the payload {told}")
    fields = {**PAYLOADS[kind], **MAY_BE_LEFT_OUT.get(kind, {})}
    for name in payload:
        if name not in fields:
            raise InvalidInput(
                f"{kind}: unknown field {name!r}{nearest(name, fields) or '; it has ' + (', '.join(fields) or 'none')}"
            )
    for name, test in fields.items():
        if name not in payload:
            if name not in PAYLOADS[kind]:
                continue
            raise InvalidInput(f"{kind}: the field {name!r} is missing")
        if wrong := test(payload[name]):
            raise InvalidInput(f"{kind}: {name} {wrong}")
    return payload


def check_length(kind: str, text: str) -> None:
    if len(text) > LARGEST_PAYLOAD:
        told = f"the payload has {len(text):,} characters, more than a request may ({LARGEST_PAYLOAD:,})"
        raise InvalidInput(f"{kind[:60]}: {told}; ask for less at once")


def parse_payload(kind: str, text: str) -> dict[str, Any]:
    """A request's `payload_json` as a checked dict; `InvalidInput` for an unknown kind, broken JSON or wrong fields, and for
    what is too large to be looked at between two ticks."""
    check_length(kind, text)
    try:
        payload = json.loads(text)
    except json.JSONDecodeError as error:
        raise InvalidInput(
            f"{kind}: the payload is not JSON: {error.msg} at line {error.lineno}, column {error.colno}"
        ) from None
    except RecursionError:
        raise InvalidInput(f"{kind}: the payload is nested too deeply to be read") from None
    return check_payload(kind, payload)
