"""What the OpenAPI document says of every route: problems, security, and what makes it one document of one kind."""

from __future__ import annotations

from typing import Any, Final

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi

from backfill_manager.api.errors import PROBLEM_JSON, FieldProblem, Problem

Responses = dict[int | str, dict[str, Any]]
_OF: Final = {
    400: "The body is not JSON.",
    401: "No token, or none of those that are configured.",
    403: "Known, and not allowed to do this.",
    404: "There is no such thing.",
    408: "The body did not arrive in time.",
    409: "Refused: the state of things does not allow it. The reason is in `detail`.",
    413: "The body is larger than this server takes.",
    415: "The body is not said to be JSON.",
    422: "A value does not fit, or there is no such query parameter; `errors` names it. Or an Idempotency-Key that was used for "
    "something else.",
    429: "Too many requests; `Retry-After` says when to come back (seconds).",
    431: "Address and headers are too large.",
    503: "The state can't be read or written now; a living manager is needed and there is none; or too many connections.",
}  # fmt: skip
_ETAG: Final = {"ETag": {"description": "Changes when the answer does.", "schema": {"type": "string"}}}
_LOCATION: Final = {
    "Location": {"description": "Where the request, or what it made, is found.", "schema": {"type": "string"}}
}
SECURITY: Final[list[dict[str, list[str]]]] = [{"bearer": []}, {"session": []}]
OPEN_TO_ALL: Final = "get_health"
TAGS: Final = [
    {"name": "backfills", "description": "Ask for a backfill, look at it, steer it."},
    {"name": "dags", "description": "What can run."},
    {"name": "runs", "description": "DAG runs, whatever made them, their tasks and logs."},
    {"name": "pools", "description": "How many tasks may run at once."},
    {"name": "requests", "description": "What was asked, by whom, and what the manager answered."},
    {"name": "health", "description": "Whether it works, and what changes."},
]


def _problems(*statuses: int) -> Responses:
    return {status: {"model": Problem, "description": _OF[status]} for status in statuses}


READS: Final[Responses] = {
    200: {"headers": _ETAG},
    304: {"description": "Not changed: `If-None-Match` named the answer's ETag."},
    **_problems(401, 403, 404, 422, 429, 431, 503),
}
CHANGES: Final[Responses] = {
    200: {"description": "Accepted by the manager within `wait` seconds.", "headers": _LOCATION},
    202: {"description": "Asked for; not answered yet.", "headers": _LOCATION},
    **_problems(400, 401, 403, 404, 408, 409, 413, 415, 422, 429, 431, 503),
}
TELLS: Final[Responses] = _problems(400, 401, 403, 404, 408, 409, 413, 415, 422, 429, 431, 503)


def document(app: FastAPI) -> None:
    """Let `/openapi.json` be made once, with problem documents as problem documents."""

    def openapi() -> dict[str, Any]:
        if not app.openapi_schema:
            app.openapi_schema = _document(app)
        return app.openapi_schema

    app.openapi = openapi  # type: ignore[method-assign]


def _document(app: FastAPI) -> dict[str, Any]:
    made = get_openapi(title=app.title, version=app.version, description=app.description, routes=app.routes, tags=TAGS)
    for operations in made["paths"].values():
        for operation in operations.values():
            if operation["operationId"] != OPEN_TO_ALL:
                operation["security"] = SECURITY
            for status, response in operation["responses"].items():
                if status.isdigit() and int(status) >= 400:
                    schema = {"$ref": "#/components/schemas/Problem"}
                    response["content"] = {PROBLEM_JSON: {"schema": schema}}
    components = made.setdefault("components", {})
    schemas = components.setdefault("schemas", {})
    for name in ("HTTPValidationError", "ValidationError"):  # FastAPI's own, which nobody sends here
        schemas.pop(name, None)
    for model in (FieldProblem, Problem):
        schemas[model.__name__] = model.model_json_schema(ref_template="#/components/schemas/{model}")
        schemas[model.__name__].pop("$defs", None)
    components["securitySchemes"] = {
        "bearer": {"type": "http", "scheme": "bearer", "description": "A token of conf/manager.yaml, as itself."},
        "session": {
            "type": "apiKey", "in": "cookie", "name": "bfm_session",
            "description": "Of a browser, opened at /login; a change needs the header `X-CSRF-Token` too.",
        },
    }  # fmt: skip
    return made
