"""Errors as RFC 9457 problem documents: `application/problem+json` with type, title, status, detail and instance.

Every class of `errors` has a status; a value that does not fit names its field. What has no name is a bug: it is told as
such, and logged. On the addresses of pages the same is told as a page, where the app has pages (`in_its_form`).
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, Response
from pydantic import BaseModel, ConfigDict, Field
from starlette.exceptions import HTTPException
from starlette.routing import compile_path

from backfill_manager import errors
from backfill_manager.logging import get_logger

PROBLEM_JSON: Final = "application/problem+json"
_FASTAPI_CAN_NOT_READ: Final = "There was an error parsing the body"
PAGES: Final = r"(?!api/|api$|static/|metrics$|openapi\.json$).*"  # the paths that pages have, without the first slash
ErrorPage = Callable[[Request, int, str], Awaitable[Response]]  # by status, and what is wrong in words
log = get_logger("api")


class Forbidden(errors.BackfillManagerError):
    """Who asks is known, and may not do this."""


class Unauthenticated(errors.BackfillManagerError):
    """Who asks is not known: a token is missing, or is none of those that are configured."""


class NoActiveManager(errors.BackfillManagerError):
    """What was asked for needs a living manager, and there is none, or it does not answer."""


class RateLimited(errors.BackfillManagerError):
    """More at once than this server takes; `retry_after_s` says when to come back."""

    def __init__(self, message: str, retry_after_s: int = 1) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


# The most special class first: the first that fits gives the status, the name in `type`, and the title.
STATUSES: Final[tuple[tuple[type[errors.BackfillManagerError], int, str], ...]] = (
    (Unauthenticated, 401, "Not known"),
    (Forbidden, 403, "Not allowed"),
    (errors.NotFound, 404, "No such thing"),
    (errors.Refused, 409, "Refused by the manager"),
    (RateLimited, 429, "Too many requests"),
    (errors.StateError, 503, "The state can't be used"),
    (NoActiveManager, 503, "No manager"),
    (errors.InvalidConfig, 500, "Wrong configuration"),
    (errors.Ambiguous, 422, "Ambiguous id"),
    (errors.InvalidInput, 422, "Invalid input"),
    (errors.BackfillManagerError, 500, "Failed"),
)
TITLES: Final[Mapping[int, str]] = {
    400: "Bad request", 404: "No such address", 405: "Method not allowed", 408: "Request timeout", 413: "Too large",
    415: "Unsupported media type", 422: "Invalid input", 431: "Request head too large", 500: "Unexpected error",
    503: "Too many connections",
}  # fmt: skip


class FieldProblem(BaseModel):
    """One value that does not fit."""

    field: str = Field(description="Where it is: `body.max_active_runs`, `query.limit`.", examples=["query.limit"])
    message: str = Field(examples=["Input should be less than or equal to 1000"])


class Problem(BaseModel):
    """An RFC 9457 problem document."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "type": "urn:backfill-manager:problem:not-found", "title": "No such thing", "status": 404,
                    "detail": "There is no backfill 'abc'; see `bfm backfill list`.",
                    "instance": "/api/v1/backfills/abc", "errors": [],
                }
            ]
        }
    )  # fmt: skip

    type: str = Field(description="What kind of problem; the same text for the same kind.")
    title: str = Field(description="The kind in words.")
    status: int = Field(description="The HTTP status, again.", ge=400, le=599)
    detail: str = Field(description="What is wrong this time, and what would be right.")
    instance: str = Field(description="The path that was asked for.")
    errors: list[FieldProblem] = Field(default=[], description="Each value that does not fit.")


def problem_type(words: str) -> str:
    return f"urn:backfill-manager:problem:{_dashed(words)}"


def problem_response(
    request_path: str,
    status: int,
    detail: str,
    *,
    name: str | None = None,
    title: str | None = None,
    fields: list[FieldProblem] | None = None,
    headers: Mapping[str, str] | None = None,
) -> Response:
    title = title or TITLES.get(status, "Problem")
    problem = Problem(
        type=problem_type(name or title), title=title, status=status, detail=detail,
        instance=request_path, errors=fields or [],
    )  # fmt: skip
    return JSONResponse(problem.model_dump(), status, headers=dict(headers or {}), media_type=PROBLEM_JSON)


async def in_its_form(request: Request, document: Response, detail: str) -> Response:
    """`document`, or on an address of pages the page that says the same, with the same status and headers."""
    error_page: ErrorPage | None = request.app.state.error_page
    if error_page is None or not re.fullmatch(PAGES, request.scope["path"].removeprefix("/"), re.DOTALL):
        return document
    page = await error_page(request, document.status_code, detail)
    for name, value in document.headers.items():
        if name not in ("content-type", "content-length"):
            page.headers[name] = value
    return page


def status_of(error: errors.BackfillManagerError) -> int:
    return _entry(error)[1]


def of_error(path: str, error: errors.BackfillManagerError) -> Response:
    kind, status, title = _entry(error)
    headers = {}
    if isinstance(error, RateLimited):
        headers["Retry-After"] = str(error.retry_after_s)
    if status == 401:
        headers["WWW-Authenticate"] = 'Bearer realm="backfill_manager"'
    return problem_response(
        path, status, in_fields(str(error)), name=_dashed(kind.__name__), title=title, headers=headers
    )


_FIELD_OF: Final[Mapping[str, str]] = {
    "from": "start_date", "to": "end_date", "date": "dates", "partition": "partitions", "set": "overrides",
    "polite": "is_polite", "dag-regex": "dag_id", "upstream": "with_upstream", "no-upstream": "with_upstream",
    "downstream-tasks": "with_downstream",
}  # fmt: skip


def in_fields(text: str) -> str:
    """Messages are made for whoever asks, and name the command line's options: here they are fields. Commands (between
    backticks) stay."""
    parts = text.split("`")
    parts[::2] = [
        re.sub(r"(?<![\w-])--([a-z][a-z-]*)", lambda found: _FIELD_OF.get(found[1], found[1].replace("-", "_")), part)
        for part in parts[::2]
    ]
    return "`".join(parts)


def _entry(error: errors.BackfillManagerError) -> tuple[type[errors.BackfillManagerError], int, str]:
    return next(entry for entry in STATUSES if isinstance(error, entry[0]))


def _dashed(words: str) -> str:
    """`NotFound`, `No such address` -> `not-found`, `no-such-address`."""
    return re.sub(r"(?<=[a-z])(?=[A-Z])|\W+", "-", words).lower()


def tell_problems(app: FastAPI) -> None:
    """Have the app answer with problem documents, whatever goes wrong."""

    async def named(request: Request, error: errors.BackfillManagerError) -> Response:
        return of_error(request.url.path, error)

    async def invalid(request: Request, error: RequestValidationError) -> Response:
        return of_validation(request.url.path, error, request.headers.get("content-type", ""))

    async def http(request: Request, error: HTTPException) -> Response:
        headers = dict(error.headers or {})
        detail = str(error.detail)
        if error.status_code == 405:
            methods = allowed_methods(app.openapi(), request.scope["path"])
            headers["Allow"] = ", ".join(methods) or headers.get("Allow", "")
            detail = f"{request.method} is not possible here; {headers['Allow']} is."
        elif error.status_code == 404 and detail == "Not Found":
            detail = "There is nothing at this address; /openapi.json lists what there is."
        elif error.status_code == 400 and detail == _FASTAPI_CAN_NOT_READ:
            detail = (
                "The body can't be read as JSON: it takes text in UTF-8 that is not compressed, with no number of"
                " thousands of digits and nothing nested hundreds of levels deep."
            )
        document = problem_response(request.url.path, error.status_code, detail, headers=headers)
        return await in_its_form(request, document, detail)

    async def unexpected(request: Request, error: Exception) -> Response:
        log.error("unexpected", path=request.url.path, error=f"{type(error).__name__}: {error}")
        told = f"Unexpected {type(error).__name__}. A bug in backfill_manager; the server's log tells more."
        return problem_response(request.url.path, 500, told)

    app.add_exception_handler(errors.BackfillManagerError, named)  # type: ignore[arg-type]
    app.add_exception_handler(RequestValidationError, invalid)  # type: ignore[arg-type]
    app.add_exception_handler(HTTPException, http)  # type: ignore[arg-type]
    app.add_exception_handler(Exception, unexpected)


def of_validation(path: str, error: RequestValidationError, content_type: str) -> Response:
    found = [_field_problem(one) for one in error.errors()]
    for one in error.errors():
        if one["type"] == "json_invalid":
            told = f"The body is not JSON: {one['ctx']['error']}, at character {one['loc'][-1] + 1}."
            return problem_response(path, 400, told, fields=found)
        if isinstance(one.get("input"), bytes):  # not read as JSON, as it was not said to be
            told = f"The body was sent as {content_type[:100]!r}; send JSON, with `Content-Type: application/json`."
            return problem_response(path, 415, told, fields=found)
    detail = "; ".join(f"{one.field}: {one.message}" for one in found[:5])
    return problem_response(path, 422, detail, name="invalid-input", fields=found)


def _field_problem(error: Mapping[str, Any]) -> FieldProblem:
    place = ".".join(str(part) for part in error["loc"])
    message = str(error["msg"]).removeprefix("Value error, ")
    return FieldProblem(field=_printable(place)[:200], message=_printable(message)[:500])


def _printable(text: str) -> str:
    return text.encode("utf-8", "replace").decode()


def allowed_methods(document: Mapping[str, Any], path: str) -> list[str]:
    """The methods of an address, by the OpenAPI document."""
    paths = document["paths"]
    if path in paths:  # `/backfills/dry_run` is no id of a backfill
        return sorted(method.upper() for method in paths[path])
    fitting = [paths[template] for template in paths if compile_path(template)[0].fullmatch(path)]
    return sorted({method.upper() for operations in fitting for method in operations})
