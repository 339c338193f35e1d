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
DESCRIPTION: Final = """Backfills, DAGs, runs and tasks, read from the state tables.

Reads work without a manager. A change is a request to the manager. The response is `202` with the address of the request or,
with `?wait=seconds`, the answer of the manager. Errors are problem documents (RFC 9457). See docs/rest-api.md of the project.
"""
Responses = dict[int | str, dict[str, Any]]
_PROBLEMS: Final = {
    400: "The body is not JSON.",
    401: "The token is missing or invalid.",
    403: "Authenticated, but not authorized for this operation.",
    404: "Not found.",
    408: "The body did not arrive in time.",
    409: "Refused because of the current state. `detail` has the reason.",
    412: "The condition `If-Match` or `If-None-Match` is not met.",
    413: "The body is larger than the server accepts.",
    415: "The content type of the body is not JSON.",
    422: "A value is invalid, or a query parameter does not exist; `errors` names it. Or the Idempotency-Key "
    "was used for another request.",
    429: "Too many requests. `Retry-After` is the number of seconds to wait.",
    431: "URL and headers are too large.",
    503: "The state cannot be read or written now, no manager is running although one is needed, or too many "
    "connections are open.",
}  # fmt: skip
_TEXT: Final = {"schema": {"type": "string"}}
_ETAG: Final = {"ETag": {"description": "Changes whenever the response changes.", **_TEXT}}
_LOCATION: Final = {"Location": {"description": "URL of the request, or of the object that it created.", **_TEXT}}
SECURITY: Final[list[dict[str, list[str]]]] = [{"bearer": []}, {"session": []}]
PUBLIC_OPERATION: Final = "get_health"
TAGS: Final = [
    {"name": "backfills", "description": "Create, read and change backfills."},
    {"name": "dags", "description": "DAGs, their versions and bundles."},
    {"name": "runs", "description": "DAG runs of every type, their tasks and logs."},
    {"name": "pools", "description": "Limits on the number of running tasks."},
    {"name": "tables", "description": "Tables that tasks have read and written, and their lineage."},
    {"name": "requests", "description": "All submitted changes, with their authors and the manager's answers."},
    {"name": "notifications", "description": "Messages about runs and backfills for targets of the configuration."},
    {"name": "health", "description": "Health, metrics and events."},
]


def _problems(*statuses: int) -> Responses:
    return {status: {"model": Problem, "description": _PROBLEMS[status]} for status in statuses}


READS: Final[Responses] = {
    200: {"headers": _ETAG},
    304: {"description": "Not modified: `If-None-Match` matches the ETag of the response."},
    **_problems(401, 403, 404, 412, 422, 429, 431, 503),
}
PLANS: Final[Responses] = _problems(400, 401, 403, 404, 408, 409, 412, 413, 415, 422, 429, 431, 503)
CHANGES: Final[Responses] = {
    200: {
        "model": RequestDetails,
        "description": "Accepted by the manager within `wait` seconds.",
        "headers": _LOCATION,
    },
    202: {"description": "Submitted. There is no answer yet.", "headers": _LOCATION},
    **PLANS,
}


def reads(model: Any) -> dict[str, Any]:
    """How a route that reads is declared."""
    return {"response_model": model, "responses": READS}


# How routes that change something are declared.
CHANGE: Final[dict[str, Any]] = {"status_code": 202, "response_model": RequestDetails, "responses": CHANGES}
_CREATED: Final = {"model": RequestDetails, "description": "Created.", "headers": _LOCATION}
CREATE: Final[dict[str, Any]] = {**CHANGE, "responses": {**CHANGES, 201: _CREATED}}


def change_or_plan(plan: Any, done: str) -> dict[str, Any]:
    """How a route is declared that changes something, or tells with `dry_run` what would be `done`."""
    planned = f"With `dry_run`: what would be {done}. Otherwise: accepted by the manager."
    return {**CHANGE, "responses": {**CHANGES, 200: {"model": plan | RequestDetails, "description": planned}}}


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
        "bearer": {"type": "http", "scheme": "bearer", "description": "Token whose SHA-256 digest is in conf/manager.yaml."},
        "session": {
            "type": "apiKey", "in": "cookie", "name": "bfm_session",
            "description": "Session of a browser (/login). Changes also need the header `X-CSRF-Token`.",
        },
    }  # fmt: skip
    return document
