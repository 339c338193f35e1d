"""Query parameters that a route does not have, and those given twice, are refused: a filter that is misspelt would show
everything, and look as if it had been applied.

What a route has is what its OpenAPI document says, so there is one list of it. Pages ignore what they do not know
(trackers add to addresses); they show which filter holds.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError

from backfill_manager.errors import nearest

MOST_TOLD: Final = 5
LONGEST_TOLD: Final = 100  # characters of a name


def only_known_parameters(request: Request) -> None:
    """A dependency of every route of the API. `422`, each parameter as an error of its own."""
    given = request.query_params
    if not given:
        return
    known = _parameters(request.app)[request.scope["route"].operation_id]
    wrong = []
    for name in dict.fromkeys(given):
        if name not in known:
            there_are = f"; there are {', '.join(sorted(known))}" if known else "; this address takes none"
            wrong.append((name, f"there is no such parameter{nearest(name, known, n=1) or there_are}"))
        elif not known[name] and len(given.getlist(name)) > 1:
            wrong.append((name, "is given more than once, and takes one value"))
    if wrong:
        raise RequestValidationError(
            [
                {"type": "unknown_parameter", "loc": ("query", name[:LONGEST_TOLD]), "msg": told, "input": None}
                for name, told in wrong[:MOST_TOLD]
            ]
        )


def _parameters(app: FastAPI) -> Mapping[str, Mapping[str, bool]]:
    """Of every operation its query parameters, and whether each may be given more than once."""
    found: dict[str, dict[str, bool]] | None = getattr(app.state, "parameters", None)
    if found is None:
        found = app.state.parameters = {
            operation["operationId"]: {
                one["name"]: _takes_many(one["schema"])
                for one in operation.get("parameters", ())
                if one["in"] == "query"
            }
            for operations in app.openapi()["paths"].values()
            for operation in operations.values()
        }
    return found


def _takes_many(schema: Mapping[str, Any]) -> bool:
    return "array" in [one.get("type") for one in schema.get("anyOf", [schema])]
