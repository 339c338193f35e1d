"""Problem documents (RFC 9457) as the errors of `backfill_manager.errors`, so that `except` clauses and exit codes are the
same with a server as with the tables."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from backfill_manager import errors
from backfill_manager.errors import Forbidden, NoActiveManager, RateLimited, Unauthenticated, Unreachable

__all__ = ["Forbidden", "NoActiveManager", "RateLimited", "Unauthenticated", "Unreachable", "error_of"]

_TYPE: Final = "urn:backfill-manager:problem:"
_BY_TYPE: Final[Mapping[str, type[errors.BackfillManagerError]]] = {
    "not-known": Unauthenticated, "not-allowed": Forbidden, "not-found": errors.NotFound, "refused": errors.Refused,
    "too-many": RateLimited, "too-many-connections": RateLimited, "state-error": errors.StateError,
    "nobody-leads": NoActiveManager, "invalid-config": errors.InvalidConfig, "ambiguous": errors.Ambiguous,
    "invalid-input": errors.InvalidInput,
}  # fmt: skip
_BY_STATUS: Final[Mapping[int, type[errors.BackfillManagerError]]] = {
    400: errors.InvalidInput, 401: Unauthenticated, 403: Forbidden, 409: errors.Refused, 413: errors.InvalidInput,
    422: errors.InvalidInput, 429: RateLimited, 431: errors.InvalidInput,
}  # fmt: skip


def error_of(status: int, problem: Mapping[str, Any]) -> errors.BackfillManagerError:
    """The error of a problem document, with its `detail` as the message."""
    name = str(problem.get("type", "")).removeprefix(_TYPE)
    kind = _BY_TYPE.get(name) or _BY_STATUS.get(status, errors.BackfillManagerError)
    message = str(problem.get("detail") or problem.get("title") or f"The server answered with {status}.")
    return kind.__new__(kind, message)  # without `__init__`: some classes make their message of ids
