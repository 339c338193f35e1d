"""`PageContext`: what every page handler gets; templates, submitted forms, and errors as pages.

A handler answers with `context.page(template, ...)`; a change goes through `context.submit(...)`, which waits a moment for the
manager's response and redirects to a page that shows it (see the docstring of this package).
"""

from __future__ import annotations

import hashlib
import json
import re
import secrets
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import cache, cached_property
from html import escape
from typing import Annotated, Any, Final
from urllib.parse import unquote, urlencode, urlsplit
from zoneinfo import ZoneInfo

from fastapi import APIRouter, Depends, Request
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from jinja2 import Environment, PackageLoader, StrictUndefined
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.responses import HTMLResponse, RedirectResponse, Response

from backfill_manager.api.auth import Operator, User, Viewer, csrf_token, is_same_host, user_or_none
from backfill_manager.api.context import AppContext, Context
from backfill_manager.api.errors import status_of
from backfill_manager.api.submit import Payload, Submitted, Submitter
from backfill_manager.errors import BackfillManagerError, RateLimited, StateError, Unauthenticated
from backfill_manager.logging import get_logger
from backfill_manager.model.records import Request as RequestRow
from backfill_manager.model.records import Response as ResponseRow
from backfill_manager.queries.dags import count_import_errors
from backfill_manager.queries.managers import has_active_manager, status_of_lease
from backfill_manager.queries.requests import NOT_LISTED, request_view
from backfill_manager.schemas.commands import find_field
from backfill_manager.schemas.field_types import MAX_NOTE_LENGTH
from backfill_manager.store.base import Condition, Store
from backfill_manager.web import links
from backfill_manager.web.filters import FILTERS, example_days
from backfill_manager.web.static_files import static

REFRESH_HEADER: Final = "X-Live"
ZONE_COOKIE: Final = "bfm-zone"  # written by `zone.js`
FAVOURITES_COOKIE: Final = "bfm-favourites"  # written by `favourites.js`
RESPONSE_TIMEOUT_S: Final = 3.0  # for the manager's response, before the page is shown without it
_AGO: Final = re.compile(r'(<time [^<>]*class="(?:ago|elapsed)">)[^<]*')
# Text of users holds no such thing: its quotes are escaped.
_ADDRESS: Final = re.compile(
    r'\s(?:href|src|action|formaction|hx-get|hx-post|data-(?:src|url|at|select-all))="(?=/(?!/))'
)
TITLES: Final = {
    400: "Bad request", 401: "Login required", 403: "Forbidden", 404: "Not found", 405: "Method not allowed",
    408: "Request timeout", 409: "Refused", 413: "Request too large", 422: "Invalid input", 429: "Too many requests",
    431: "Request header too large", 503: "Temporarily unavailable",
}  # fmt: skip
# What a page suggests by the hint of an error; the other hints have no place in a browser.
HINTS: Final = {
    "init_state": "Create it with `bfm --state {root} state init`.",
    "check_state": "`bfm state check` reports details.",
    "upgrade_state": "`bfm state init` upgrades it, too.",
    "adopt_state": "Use `bfm --state {root} state adopt --as-copy` if it is a copy of {other}, `--as-original` if it is the"
    " original.",
    "start_manager": "Start a manager with `bfm manager start`.",
    "see_manager": "The page Manager says whether one runs; `bfm manager start` starts one.",
    "set_credentials": "Set {variables} for the server, or give its machine a role that may use it.",
}
log = get_logger("web")


class _DictKeysFirst(Environment):
    """`run.items` in a template is the key `items` of the row if there is one, not the dict's method."""

    def getattr(self, obj: Any, attribute: str) -> Any:
        if isinstance(obj, dict) and attribute in obj:
            return obj[attribute]
        return super().getattr(obj, attribute)


@cache
def templates() -> Environment:
    """The Jinja environment: autoescaped, and an undefined name is an error."""
    environment = _DictKeysFirst(
        loader=PackageLoader("backfill_manager.web"), autoescape=True, undefined=StrictUndefined, trim_blocks=True,
        lstrip_blocks=True,
    )  # fmt: skip
    environment.filters.update(FILTERS)
    environment.globals.update(static=static, to=links.to, to_run=links.to_run, example_days=example_days)
    environment.globals["max_note_length"] = MAX_NOTE_LENGTH
    return environment


def compile_templates() -> None:
    """All of them; else each is compiled for the first page that needs it, which takes up to half a second."""
    for name in templates().list_templates():
        templates().get_template(name)


@dataclass(frozen=True)
class PageContext:
    """One HTTP request for a page: who asks, and the application that answers."""

    request: Request
    app: AppContext
    user: User | None  # None: not logged in
    now: datetime

    @property
    def store(self) -> Store:
        return self.app.store

    @property
    def here(self) -> str:
        """The address of this page, for forms that return to it; without the id of an earlier request."""
        query = [(k, v) for k, v in self.request.query_params.multi_items() if k != "request_id"]
        path = self.request.scope.get("raw_path", b"").decode("ascii", "replace") or self.request.url.path
        return f"{path}?{urlencode(query)}" if query else path

    @cached_property
    def zone_choice(self) -> tuple[str, str | None]:
        """What the user has chosen for all times of pages: `utc`, `mine` (the browser's) or nothing, and which zone that is
        (None: each DAG's own)."""
        mode, _, name = self.request.cookies.get(ZONE_COOKIE, "").partition(":")
        if mode == "utc":
            return mode, "UTC"
        try:
            return ("mine", ZoneInfo(name).key) if mode == "mine" else ("", None)
        except (KeyError, ValueError, OSError):  # of a browser that knows more zones, or by hand
            return "", None

    @property
    def chosen_zone(self) -> str | None:
        return self.zone_choice[1]

    def field_zone(self, own: str = "UTC") -> str:
        """The zone in which dates are typed into fields of this page: the chosen one, else `own` of the DAG."""
        return self.chosen_zone or own

    @cached_property
    def favourites(self) -> frozenset[str]:
        """Ids of the DAGs that the user has starred in this browser; there need not be such DAGs."""
        listed = self.request.cookies.get(FAVOURITES_COOKIE, "")
        return frozenset(unquote(one) for one in listed.split(",") if one)

    @property
    def is_refresh(self) -> bool:
        """Whether `live.js` fetches the page again: it needs the content alone, or 304 if that has not changed."""
        return REFRESH_HEADER in self.request.headers

    def page(self, template: str, *, status: int = 200, **values: Any) -> HTMLResponse:
        """Renders the template, with the values that `base.html` needs. Not cached by the browser: the state changes."""
        frame = self._frame()
        text = _with_path(templates().get_template(template).render(**frame, **values), self.app.settings.api.path)
        headers = {"Cache-Control": "no-store"}
        if self.is_refresh and status == 200:
            # Equal for equal content: without the CSRF token, which differs each time, and without ages, which the browser
            # keeps current.
            content = _AGO.sub(r"\1", text.replace(frame["csrf"], "") if frame["csrf"] else text)
            headers["ETag"] = f'W/"{hashlib.sha256(content.encode()).hexdigest()[:24]}"'
            if self.request.headers.get("if-none-match") == headers["ETag"]:
                return HTMLResponse(status_code=304, headers=headers)
        return HTMLResponse(text, status, headers=headers)

    async def request_change(
        self, kind: str, payload: Payload | Callable[[str], Payload], *, idempotency_key: str | None = None,
        timeout_s: float | None = None,
    ) -> Submitted:  # fmt: skip
        """Submits a request and waits for the response; not at all if no manager runs."""
        assert self.user is not None, "the handler takes an `OperatorContext`"
        has_manager = await run_in_threadpool(has_active_manager, self.store, self.now)
        wait_s = RESPONSE_TIMEOUT_S if timeout_s is None else timeout_s
        submitter = Submitter(self.app, self.user, self.request, source="ui", idempotency_key=idempotency_key)
        return await submitter.submit(kind, payload, wait_s=wait_s if has_manager else 0.0)

    async def submit(
        self,
        kind: str,
        payload: Payload | Callable[[str], Payload],
        *,
        back: str | None,
        idempotency_key: str | None = None,
    ) -> Response:
        """Submits a request and redirects to `back`, which shows the response."""
        return self.show_response(await self.request_change(kind, payload, idempotency_key=idempotency_key), back=back)

    def show_response(self, submitted: Submitted, *, back: str | None) -> Response:
        """Redirects to `back`, which shows what became of a request."""
        path, _, fragment = (back if back is not None and links.is_local(back) else "/").partition("#")
        path, _, query = path.partition("?")
        kept = [part for part in query.split("&") if part and not part.startswith("request_id=")]
        query = "&".join([*kept, f"request_id={submitted.request.request_id}"])
        return redirect(f"{path}?{query}" + (f"#{fragment}" if fragment else ""))

    def _frame(self) -> dict[str, Any]:
        request_id = self.request.query_params.get("request_id")
        return {
            "request": self.request, "user": self.user,
            "may_change": self.user is not None and self.user.may_change,
            "has_login": bool(self.app.settings.api.tokens), "csrf": csrf_token(self.request), "now": self.now,
            "zone_choice": self.zone_choice[0], "chosen_zone": self.chosen_zone,
            "here": self.here, "path": self.request.url.path, "is_refresh": self.is_refresh, **self.status_bar(),
            "flash": request_of(self.store, request_id) if self.user and request_id else None,
        }  # fmt: skip

    def status_bar(self) -> dict[str, Any]:
        """`manager` (None when the state can't be read) and the number of `import_errors`, shown on every page."""
        unknown = {"manager": None, "import_errors": 0}
        if self.user is None:
            return unknown
        cached = self.app.cached_by_version
        try:
            n = cached(["import_error"], "ui:import-errors", lambda: count_import_errors(self.store))
            lease = cached(["manager"], "ui:lease", self.store.lease)
        except StateError:  # the page itself reports it
            return unknown
        return {"manager": status_of_lease(lease, self.now), "import_errors": n}


def _with_path(text: str, path: str) -> str:
    """A page whose addresses of this server begin with the path of `api.public_url`. Handlers and forms (`back`, `next`) have
    them without it."""
    return _ADDRESS.sub(lambda found: found[0] + escape(path), text) if path else text


def request_of(store: Store, request_id: str) -> dict[str, Any] | None:
    """A request by its whole id with its response; None if there is none."""
    by_id = [Condition("request_id", "=", request_id)]
    try:
        rows = store.read(RequestRow, by_id, limit=1, without=NOT_LISTED)
        responses = store.read(ResponseRow, by_id, limit=1, without=NOT_LISTED) if rows else []
    except StateError:
        return None
    return request_view(rows[0], responses[0] if responses else None) if rows else None


def once_key(once: str, values: Mapping[str, Any]) -> str:
    """The idempotency key of a form: a reload that sends it again makes no second request. `once` is its hidden field, another
    one each time that it is drawn; with other `values` it is another request."""
    digest = hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()[:16]
    return f"ui:{once or secrets.token_hex(8)}:{digest}"


def redirect(address: str) -> RedirectResponse:
    """A redirect after a form (303), so that a reload does not submit it again."""
    return RedirectResponse(address, status_code=303)


def context_of(request: Request, user: User | None) -> PageContext:
    app: AppContext = request.app.state.context
    return PageContext(request, app, user, app.clock.now())


def _viewer(request: Request, user: Viewer) -> PageContext:
    return context_of(request, user)


def _operator(request: Request, user: Operator) -> PageContext:
    return context_of(request, user)


def _anonymous(request: Request, app: Context) -> PageContext:
    return context_of(request, user_or_none(app, request))


ViewerContext = Annotated[PageContext, Depends(_viewer)]  # logged in
OperatorContext = Annotated[PageContext, Depends(_operator)]  # may make changes: for every POST handler
AnonymousContext = Annotated[PageContext, Depends(_anonymous)]  # anyone


class PageRoute(APIRoute):
    """A route whose errors become pages; an unauthenticated user is redirected to the login."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        inner = super().get_route_handler()

        async def handle(request: Request) -> Response:
            try:
                return await inner(request)
            except Unauthenticated as error:
                if "authorization" in request.headers:  # a program with an invalid token
                    return await error_page(request, 401, str(error))
                here = context_of(request, None).here if request.method == "GET" else None
                return redirect(links.to("login", next=here))
            except BackfillManagerError as error:
                page = await error_page(request, status_of(error), message_of(error))
                if isinstance(error, RateLimited):
                    page.headers["Retry-After"] = str(error.retry_after_s)
                return page
            except RequestValidationError as error:
                return await error_page(request, 422, "; ".join(map(_describe, error.errors()[:5])))
            except HTTPException as error:
                return await error_page(request, error.status_code, str(error.detail))
            except ClientDisconnect:
                return await error_page(request, 400, "The form did not arrive whole: the connection broke off.")
            except Exception as error:  # logged, and shown as a page
                log.error("unexpected", path=request.url.path, exc_info=error)
                message = f"Unexpected {type(error).__name__}: this is a bug. See the server's log."
                return await error_page(request, 500, message)

        return handle


def message_of(error: BackfillManagerError) -> str:
    """An error as sentences, with the labels of fields and what could be done next."""

    def quoted_label(name: str) -> str:
        field = find_field(name)
        return f"“{field.label if field else name}”"

    text = error.worded(quoted_label)
    text = text[:1].upper() + text[1:]
    text = text if text.endswith((".", "?", "!")) else f"{text}."
    return f"{text} {HINTS[error.hint].format(**error.params)}" if error.hint in HINTS else text


def _describe(detail: Any) -> str:
    return f"{'.'.join(str(part) for part in detail['loc'][1:])}: {str(detail['msg']).removeprefix('Value error, ')}"


async def error_page(request: Request, status: int, message: str) -> Response:
    """An error in the frame of every page. For 429 nothing is read and no thread taken."""
    app: AppContext = request.app.state.context

    def render() -> Response:
        try:
            user = user_or_none(app, request) if status != 429 else None
        except BackfillManagerError:
            user = None
        referer = request.headers.get("referer", "")
        back = urlsplit(referer).path.removeprefix(app.settings.api.path) if is_same_host(request, referer) else ""
        context = context_of(request, user)
        again = context.here if request.method in ("GET", "HEAD") and links.is_local(context.here) else ""
        return context.page(
            "error.html", status=status, code=status, title=TITLES.get(status, "Something went wrong"), message=message,
            back=back if links.is_local(back) else "", again=again,
        )  # fmt: skip

    return render() if status == 429 else await run_in_threadpool(render)


def page_router() -> APIRouter:
    """A router for a module of `pages/`; `router.py` includes it."""
    return APIRouter(route_class=PageRoute, default_response_class=HTMLResponse, include_in_schema=False)
