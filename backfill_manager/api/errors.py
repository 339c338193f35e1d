"""Errors as RFC 9457 problem documents: `application/problem+json` with type, title, status, detail and instance.

Every class of `errors` has a status and a problem type; a value that does not fit names its field. Any other exception is a
bug: status 500, and logged. At the addresses of pages the error is a page, where the app has pages (`page_or_problem`).
"""

from __future__ import annotations

import json
import re
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, get_args

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, Response
from pydantic import BaseModel, ConfigDict, Field
from starlette.exceptions import HTTPException
from starlette.routing import compile_path

from backfill_manager import errors
from backfill_manager.logging import get_logger
from backfill_manager.schemas.errors import PROBLEM_TYPE, PROBLEMS, unknown_field

PROBLEM_JSON: Final = "application/problem+json"
PAGE_PATHS: Final = r"(?!api/|api$|static/|metrics$|openapi\.json$).*"  # without the first slash
_FASTAPI_UNREADABLE_BODY: Final = "There was an error parsing the body"
ErrorPage = Callable[[Request, int, str], Awaitable[Response]]  # of a status and a message
log = get_logger("api")

TITLES: Final[Mapping[int, str]] = {
    400: "Bad request", 404: "No such address", 405: "Method not allowed", 408: "Request timeout",
    412: "Precondition failed", 413: "Too large", 415: "Unsupported media type", 422: "Invalid input",
    431: "Request head too large", 500: "Unexpected error", 503: "Too many connections",
}  # fmt: skip


_EXAMPLE: Final[dict[str, Any]] = {
    "type": f"{PROBLEM_TYPE}not-found", "title": "Not found", "status": 404, "errors": [],
    "detail": "There is no backfill 'abc'.", "instance": "/api/v1/backfills/abc",
}  # fmt: skip


class FieldProblem(BaseModel):
    """An invalid value in a request."""

    field: str = Field(
        description="Location of the value: `body.max_active_runs`, `query.limit`.", examples=["query.limit"]
    )
    message: str = Field(description="What is wrong with it.", examples=["Input should be less than or equal to 1000"])


class Problem(BaseModel):
    """An RFC 9457 problem document."""

    model_config = ConfigDict(json_schema_extra={"examples": [_EXAMPLE]})

    type: str = Field(description="Type of the problem, as a constant URI.")
    title: str = Field(description="Type of the problem, as text.")
    status: int = Field(description="HTTP status code.", ge=400, le=599)
    detail: str = Field(description="What is wrong in this case, and what would be right.")
    instance: str = Field(description="Path of the request.")
    errors: list[FieldProblem] = Field(default=[], description="Invalid values, one entry each.")
    code: str | None = Field(
        None, description="Code of the error. It stays the same when the wording of `detail` changes."
    )
    field: str | None = Field(default=None, description="Field of the body that is wrong.")
    params: dict[str, Any] = Field(default={}, description="Values that occur in `detail`.")
    hint: str | None = Field(default=None, description="Code of what could be done next.")


def problem(
    path: str, status: int, detail: str, *, type: str | None = None, title: str | None = None, **more: Any
) -> dict[str, Any]:
    """A problem document. By default type and title are those of the status. With an `error` clients can word it anew."""
    title = title or TITLES.get(status, "Problem")
    type = PROBLEM_TYPE + (type or title.lower().replace(" ", "-"))
    return Problem(type=type, title=title, status=status, detail=detail, instance=path, **more).model_dump()


def problem_response(
    path: str, status: int, detail: str, *, headers: Mapping[str, str] | None = None, **more: Any
) -> Response:
    """A response with a `problem`."""
    document = problem(path, status, detail, **more)
    return JSONResponse(document, status, headers=dict(headers or {}), media_type=PROBLEM_JSON)


async def page_or_problem(request: Request, response: Response, detail: str) -> Response:
    """`response`, or at the address of a page an error page with the same status, message and headers."""
    error_page: ErrorPage | None = request.app.state.error_page
    if error_page is None or not re.fullmatch(PAGE_PATHS, request.scope["path"].removeprefix("/"), re.DOTALL):
        return response
    page = await error_page(request, response.status_code, detail)
    for name, value in response.headers.items():
        if name not in ("content-type", "content-length"):
            page.headers[name] = value
    return page


def status_of(error: errors.BackfillManagerError) -> int:
    return next(status for kind, status, _, _ in PROBLEMS if isinstance(error, kind))


def error_response(path: str, error: errors.BackfillManagerError, headers: Mapping[str, str] | None = None) -> Response:
    """The problem document of an error."""
    _, status, type, title = next(entry for entry in PROBLEMS if isinstance(error, entry[0]))
    headers = dict(headers or {})
    if isinstance(error, errors.RateLimited):
        headers["Retry-After"] = str(error.retry_after_s)
    if status == 401:
        headers["WWW-Authenticate"] = 'Bearer realm="backfill_manager"'
    params = {} if error.prefix else json.loads(json.dumps(error.params, default=str))
    return problem_response(
        path, status, str(error), type=type, title=title, headers=headers,
        code=error.code, field=error.field, params=params, hint=error.hint,
    )  # fmt: skip


def add_error_handlers(app: FastAPI) -> None:
    """Has the app answer every error with a problem document (or a page)."""

    async def expected(request: Request, error: errors.BackfillManagerError) -> Response:
        return error_response(request.url.path, error)

    async def invalid(request: Request, error: RequestValidationError) -> Response:
        path, fields = request.url.path, [_field_problem(one, _body_model(request)) for one in error.errors()]
        for one in error.errors():
            if one["type"] == "json_invalid":
                detail = f"The body is not JSON: {one['ctx']['error']}, at character {one['loc'][-1] + 1}."
                return problem_response(path, 400, detail, errors=fields)
            if isinstance(one.get("input"), bytes):  # not parsed as JSON, because of its content type
                sent = request.headers.get("content-type", "")[:100]
                detail = f"The body was sent as {sent!r}; send JSON, with `Content-Type: application/json`."
                return problem_response(path, 415, detail, errors=fields)
        detail = "; ".join(f"{one.field}: {one.message}" for one in fields[:5])
        return problem_response(path, 422, detail, type="invalid-input", errors=fields)

    async def http(request: Request, error: HTTPException) -> Response:
        headers, detail = dict(error.headers or {}), str(error.detail)
        if error.status_code == 405:
            methods = allowed_methods(app.openapi()["paths"], request.scope["path"])
            headers["Allow"] = ", ".join(methods) or headers.get("Allow", "")
            detail = f"{request.method} is not possible here; {headers['Allow']} is."
        elif error.status_code == 404 and detail == "Not Found":
            detail = "There is nothing at this address; /openapi.json lists what there is."
        elif error.status_code == 400 and detail == _FASTAPI_UNREADABLE_BODY:
            detail = (
                "The body can't be read as JSON: it must be uncompressed UTF-8 text, without numbers of"
                " thousands of digits or values that are nested hundreds of levels deep."
            )
        response = problem_response(request.url.path, error.status_code, detail, headers=headers)
        return await page_or_problem(request, response, detail)

    async def unexpected(request: Request, error: Exception) -> Response:
        log.error("unexpected", path=request.url.path, error=f"{type(error).__name__}: {error}")
        detail = f"Unexpected {type(error).__name__}. A bug in backfill_manager; see the server's log."
        return problem_response(request.url.path, 500, detail)

    app.add_exception_handler(errors.BackfillManagerError, expected)  # type: ignore[arg-type]
    app.add_exception_handler(RequestValidationError, invalid)  # type: ignore[arg-type]
    app.add_exception_handler(HTTPException, http)  # type: ignore[arg-type]
    app.add_exception_handler(Exception, unexpected)


def _body_model(request: Request) -> type[BaseModel] | None:
    """What the body of this request is to be, or may be: of `Retry | None`, `Retry`."""
    dependant = getattr(request.scope.get("route"), "dependant", None)
    declared = [param.field_info.annotation for param in dependant.body_params] if dependant else []
    kinds = [kind for one in declared for kind in (one, *get_args(one))]
    return next((kind for kind in kinds if isinstance(kind, type) and issubclass(kind, BaseModel)), None)


def _field_problem(error: Mapping[str, Any], body: type[BaseModel] | None) -> FieldProblem:
    def printable(text: str, most: int) -> str:
        return text.encode("utf-8", "replace").decode()[:most]

    place, message = ".".join(map(str, error["loc"])), error["msg"].removeprefix("Value error, ")
    if error["type"] == "extra_forbidden" and body is not None and error["loc"][0] == "body":
        message = str(unknown_field([str(part) for part in error["loc"][1:]], body))
    return FieldProblem(field=printable(place, 200), message=printable(message, 500))


def allowed_methods(paths: Mapping[str, Any], path: str) -> list[str]:
    """The methods of an address, by the paths of the OpenAPI document."""
    # `/backfills/dry_run` is not the id of a backfill.
    fitting = [path] if path in paths else [one for one in paths if compile_path(one)[0].fullmatch(path)]
    return sorted({method.upper() for template in fitting for method in paths[template]})
