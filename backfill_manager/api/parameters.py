"""Parameters of addresses: ids in paths, and query parameters.

Query parameters that a route does not have, and those given twice, are refused: a misspelt filter would show everything,
and look as if it had been applied. What a route has is read from its OpenAPI document. (Pages ignore unknown parameters,
as trackers add some to links.)

The id of a partition's run may hold a slash, which a server takes for the end of a path segment. Sent as `%2F` it is kept
apart (`KeepSlashes`) and decoded for the handler; so is a percent sign, or an id with the literal text `%2F` (a key that was
already encoded) would be taken for one with a slash.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, TypeAlias
from urllib.parse import unquote

from fastapi import Path, Query, Request
from fastapi.exceptions import RequestValidationError
from pydantic import AfterValidator
from starlette.types import Receive, Scope, Send

from backfill_manager.api.middleware import Middleware
from backfill_manager.errors import nearest
from backfill_manager.model import states

if TYPE_CHECKING:
    BackfillState: TypeAlias = str
    ItemState: TypeAlias = str
    RunState: TypeAlias = str
    RunType: TypeAlias = str
else:  # filters of lists; a literal of a tuple is beyond type checkers
    BackfillState = Literal[states.BACKFILL_STATES]
    ItemState = Literal[states.ITEM_STATES]
    RunState = Literal[states.RUN_STATES]
    RunType = Literal[states.RUN_TYPES]
IN_STATES: Final = Query(max_length=10, description="Only objects in this state. May be given several times.")
OfDag = Annotated[str | None, Query(max_length=200, description="Only objects of this DAG.")]
OfType = Annotated[RunType | None, Query(description="Only runs of this type.")]
MAX_RUN_ID_LENGTH: Final = (
    6000  # a partition key of percent signs: each is `%25` in the id, and `%2525` as `KeepSlashes` has it
)
MAX_REPORTED: Final = 5
MAX_REPORTED_LENGTH: Final = 100  # characters of a name


class KeepSlashes(Middleware):
    """Has `/runs/a%2Fb` address the run `a/b`, not `b` of the run `a`."""

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        raw: bytes = scope.get("raw_path") or b""
        if b"%" in raw and scope["path"].startswith("/api/"):
            segments = [unquote(segment) for segment in raw.decode("latin-1").split("/")]
            # Not in a copy: the router adds the route, which is counted outside of this.
            scope["path"] = "/".join(segment.replace("%", "%25").replace("/", "%2F") for segment in segments)
        await self._app(scope, receive, send)


_DECODED = AfterValidator(lambda text: text.replace("%2F", "/").replace("%25", "%"))
_ID = "Id or name of the object. For a backfill or a request also a unique prefix of the id, or `latest`."
Id = Annotated[str, Path(min_length=1, max_length=200, description=_ID), _DECODED]
_RUN_ID = (
    "Id of the run, a prefix of it, or `latest`. `422`, with the names of the DAGs, if several DAGs have such a run."
)
_RUN_ID_OF_DAG = (
    "Id of the run, a prefix of it, its logical date or the day of it (in the DAG's time zone), its partition key, "
    "or `latest`."
)
RunId = Annotated[str, Path(min_length=1, max_length=MAX_RUN_ID_LENGTH, description=_RUN_ID), _DECODED]
RunIdOfDag = Annotated[str, Path(min_length=1, max_length=MAX_RUN_ID_LENGTH, description=_RUN_ID_OF_DAG), _DECODED]


def reject_unknown_parameters(request: Request) -> None:
    """A dependency of every route of the API: `422` with an error for each wrong query parameter."""
    query = request.query_params
    if not query:
        return
    known = _query_parameters(request.app.openapi)[request.scope["route"].operation_id]
    wrong = []
    for name in dict.fromkeys(query):
        if name not in known:
            available = f"; there are {', '.join(sorted(known))}" if known else "; this address takes none"
            wrong.append((name, f"there is no such parameter{nearest(name, known, n=1) or available}"))
        elif not known[name] and len(query.getlist(name)) > 1:
            wrong.append((name, "is given more than once, and takes one value"))
    if wrong:
        problems = [
            {"type": "unknown_parameter", "loc": ("query", name[:MAX_REPORTED_LENGTH]), "msg": message, "input": None}
            for name, message in wrong[:MAX_REPORTED]
        ]
        raise RequestValidationError(problems)


@cache
def _query_parameters(openapi: Callable[[], dict[str, Any]]) -> Mapping[str, Mapping[str, bool]]:
    """By operation: its query parameters, and whether each may be given more than once."""
    return {
        operation["operationId"]: {
            one["name"]: "array" in [of.get("type") for of in one["schema"].get("anyOf", [one["schema"]])]
            for one in operation.get("parameters", ())
            if one["in"] == "query"
        }
        for operations in openapi()["paths"].values()
        for operation in operations.values()
    }
