"""Problem documents (RFC 9457) as the errors that the rest of the package raises, so that whoever catches one, and every
exit code, is the same with a server as with the tables."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from backfill_manager import errors

_TYPE: Final = "urn:backfill-manager:problem:"


class Unauthenticated(errors.InvalidInput):
    """The server does not know who asks: the token is missing, or wrong."""


class Forbidden(errors.Refused):
    """The server knows who asks, and this person may not do this."""


class RateLimited(errors.BackfillManagerError):
    """The server has more to do than it takes on, and still had after some waiting."""


class NoActiveManager(errors.BackfillManagerError):
    """What was asked needs a living manager, and none leads, or it does not answer."""


class Unreachable(errors.BackfillManagerError):
    """No server answers at this address, or something else than a server of ours does."""


_BY_NAME: Final[Mapping[str, type[errors.BackfillManagerError]]] = {
    "not-known": Unauthenticated, "not-allowed": Forbidden, "not-found": errors.NotFound, "refused": errors.Refused,
    "too-many": RateLimited, "too-many-connections": RateLimited, "state-error": errors.StateError, "nobody-leads": NoActiveManager,
    "invalid-config": errors.InvalidConfig, "ambiguous": errors.Ambiguous, "invalid-input": errors.InvalidInput,
}  # fmt: skip
_BY_STATUS: Final[Mapping[int, type[errors.BackfillManagerError]]] = {
    400: errors.InvalidInput, 401: Unauthenticated, 403: Forbidden, 409: errors.Refused, 413: errors.InvalidInput,
    422: errors.InvalidInput, 429: RateLimited, 431: errors.InvalidInput,
}  # fmt: skip


def error_of(status: int, problem: Mapping[str, Any]) -> errors.BackfillManagerError:
    """The error that a problem document tells of, with its `detail` as the message."""
    name = str(problem.get("type", "")).removeprefix(_TYPE)
    kind = _BY_NAME.get(name) or _BY_STATUS.get(status, errors.BackfillManagerError)
    message = str(problem.get("detail") or problem.get("title") or f"The server answered with {status}.")
    return kind.__new__(kind, message)  # the message is made already: some classes make theirs of the ids
