"""What a task returns: a small JSON value, kept in its row, read by `ctx.result(task_id)`."""

from __future__ import annotations

import json
from typing import Any, Final

from backfill_manager.errors import InvalidInput

MAX_RESULT_CHARS: Final = 1_000_000


def to_result_json(task_id: str, value: Any) -> str | None:
    """The JSON text of a return value, None for None. `InvalidInput` if it is no JSON value or too large."""
    if value is None:
        return None
    try:
        text = json.dumps(value, allow_nan=False, ensure_ascii=False)
    except (TypeError, ValueError) as error:
        raise InvalidInput(
            f"task {task_id!r} returned a {type(value).__name__} that is no JSON value ({error}). A result is small: "
            "text, numbers, booleans, None, lists and dicts of them; data goes into a table (ctx.write)."
        ) from None
    if len(text) > MAX_RESULT_CHARS:
        raise InvalidInput(
            f"task {task_id!r} returned {len(text):,} characters of JSON; a result may have {MAX_RESULT_CHARS:,}. "
            "Data goes into a table (ctx.write)."
        )
    return text
