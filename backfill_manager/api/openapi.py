"""What all routes have in common in the OpenAPI document: the prefix, responses, problems and security."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from fastapi.openapi.utils import get_openapi
from starlette.routing import BaseRoute

from backfill_manager import __version__
from backfill_manager.api.errors import PROBLEM_JSON, FieldProblem, Problem
from backfill_manager.schemas.resources import RequestDetails

PREFIX: Final = "/api/v1"
DESCRIPTION: Final = """Backfills, DAGs, runs and tasks, over the state tables.

Reads need no manager. A change is a request to the manager: `202` with the address of the request, or with
`?wait=seconds` the manager's answer. Errors are problem documents (RFC 9457). See docs/rest-api.md of the project.
"""
Responses = dict[int | str, dict[str, Any]]
_PROBLEMS: Final = {
    400: "The body is not JSON.",
    401: "No token, or none of those that are configured.",
    403: "Authenticated, but not authorized to do this.",
    404: "Not found.",
    408: "The body did not arrive in time.",
    409: "Refused because of the current state. The reason is in `detail`.",
    412: "`If-Match` or `If-None-Match` does not hold.",
    413: "The body is larger than this server accepts.",
    415: "The content type of the body is not JSON.",
    422: "A value does not fit, or there is no such query parameter; `errors` names it. Or an Idempotency-Key that was used for "
    "something else.",
    429: "Too many requests; `Retry-After` is when to try again (seconds).",
    431: "Address and headers are too large.",
    503: "The state can't be read or written now; no manager is running, and one is needed; or too many connections.",
}  # fmt: skip
_TEXT: Final = {"schema": {"type": "string"}}
_ETAG: Final = {"ETag": {"description": "Changes when the response does.", **_TEXT}}
_LOCATION: Final = {"Location": {"description": "The address of the request, or of what it created.", **_TEXT}}
SECURITY: Final[list[dict[str, list[str]]]] = [{"bearer": []}, {"session": []}]
PUBLIC_OPERATION: Final = "get_health"
TAGS: Final = [
    {"name": "backfills", "description": "Create, read and change backfills."},
    {"name": "dags", "description": "DAGs, their versions and bundles."},
    {"name": "runs", "description": "DAG runs of every type, their tasks and logs."},
    {"name": "pools", "description": "Limits of the number of running tasks."},
    {"name": "tables", "description": "Tables that tasks have read and written, and what is made of what."},
    {"name": "requests", "description": "Every change that was submitted, by whom, and the manager's answer."},
    {"name": "notifications", "description": "Messages about runs and backfills to targets of the configuration."},
    {"name": "health", "description": "Health, metrics and events."},
]


def _problems(*statuses: int) -> Responses:
    return {status: {"model": Problem, "description": _PROBLEMS[status]} for status in statuses}


READS: Final[Responses] = {
    200: {"headers": _ETAG},
    304: {"description": "Not modified: `If-None-Match` has the ETag of the response."},
    **_problems(401, 403, 404, 412, 422, 429, 431, 503),
}
PLANS: Final[Responses] = _problems(400, 401, 403, 404, 408, 409, 412, 413, 415, 422, 429, 431, 503)
CHANGES: Final[Responses] = {
    200: {
        "model": RequestDetails,
        "description": "Accepted by the manager within `wait` seconds.",
        "headers": _LOCATION,
    },
    202: {"description": "Submitted, without an answer yet.", "headers": _LOCATION},
    **PLANS,
}


def reads(model: Any) -> dict[str, Any]:
    """How a route that reads is declared."""
    return {"response_model": model, "responses": READS}


# How routes that change something are declared.
CHANGE: Final[dict[str, Any]] = {"status_code": 202, "response_model": RequestDetails, "responses": CHANGES}
_CREATED: Final = {"model": RequestDetails, "description": "Created.", "headers": _LOCATION}
CREATE: Final[dict[str, Any]] = {**CHANGE, "responses": {**CHANGES, 201: _CREATED}}


def document_of(routes: Sequence[BaseRoute]) -> dict[str, Any]:
    """The OpenAPI document, with the errors of every route as problem documents."""
    document = get_openapi(
        title="backfill_manager", version=__version__, description=DESCRIPTION, routes=routes, tags=TAGS
    )
    for operations in document["paths"].values():
        for operation in operations.values():
            if operation["operationId"] != PUBLIC_OPERATION:
                operation["security"] = SECURITY
            for status, response in operation["responses"].items():
                if status.isdigit() and int(status) >= 400:
                    response["content"] = {PROBLEM_JSON: {"schema": {"$ref": "#/components/schemas/Problem"}}}
    components = document["components"]
    schemas = components["schemas"]
    for name in ("HTTPValidationError", "ValidationError"):  # FastAPI's own, which this API never sends
        schemas.pop(name, None)
    for model in (FieldProblem, Problem):
        schemas[model.__name__] = model.model_json_schema(ref_template="#/components/schemas/{model}")
        schemas[model.__name__].pop("$defs", None)
    components["securitySchemes"] = {
        "bearer": {"type": "http", "scheme": "bearer", "description": "A token whose SHA-256 is in conf/manager.yaml."},
        "session": {
            "type": "apiKey", "in": "cookie", "name": "bfm_session",
            "description": "The session of a browser (/login); a change needs the header `X-CSRF-Token`, too.",
        },
    }  # fmt: skip
    return document
