"""What every page stands on: the templates, the visit (who came, to which house), errors told as pages.

A handler is given a `PageContext` and answers with `visit.page(template, ...)`; a change goes through `visit.ask(...)`, which
waits a moment for the manager and leads back with what it said (see the head of this package).
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from typing import Annotated, Any, Final
from urllib.parse import urlencode, urlsplit

from fastapi import APIRouter, Depends, Request
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from jinja2 import Environment, PackageLoader, StrictUndefined
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.responses import HTMLResponse, RedirectResponse, Response

from backfill_manager import __version__
from backfill_manager.api.auth import Operator, User, Viewer, csrf_token, is_same_host, user_or_none
from backfill_manager.api.context import AppContext, Context
from backfill_manager.api.errors import status_of
from backfill_manager.api.submit import Payload, Submitter
from backfill_manager.errors import BackfillManagerError, StateError, Unauthenticated
from backfill_manager.logging import get_logger
from backfill_manager.model.records import Request as RequestRow
from backfill_manager.model.records import Response as ResponseRow
from backfill_manager.queries.dags import count_import_errors
from backfill_manager.queries.managers import has_active_manager, status_of_lease
from backfill_manager.queries.requests import NOT_LISTED, request_view
from backfill_manager.store.base import Condition, Store
from backfill_manager.web import paths
from backfill_manager.web.filters import FILTERS
from backfill_manager.web.static_files import static

REFRESH_HEADER: Final = "X-Live"
_AGO: Final = re.compile(r'(<time [^<>]*class="ago">)[^<]*')
WAIT_S: Final = 3.0  # for the manager's answer, before the page comes without it
TITLES: Final = {
    400: "That can't be read", 401: "Who are you?", 403: "Not allowed", 404: "There is no such page or thing",
    405: "That can't be done here", 408: "It took too long to arrive", 409: "Refused", 413: "Too much",
    422: "Something in it is not right", 429: "Too many requests", 431: "Too long an address, or too many cookies",
    503: "Not at the moment",
}  # fmt: skip
log = get_logger("ui")


class _KeysFirst(Environment):
    """`run.items` is what the row says under `items`, not the dict's method; which stays for dicts without that key."""

    def getattr(self, obj: Any, attribute: str) -> Any:
        if isinstance(obj, dict) and attribute in obj:
            return obj[attribute]
        return super().getattr(obj, attribute)


@cache
def templates() -> Environment:
    """Autoescaped; a name that a handler forgot is an error, not an empty place."""
    made = _KeysFirst(
        loader=PackageLoader("backfill_manager.web"), autoescape=True, undefined=StrictUndefined, trim_blocks=True,
        lstrip_blocks=True,
    )  # fmt: skip
    made.filters.update(FILTERS)
    made.globals.update(static=static, to=paths.to, to_run=paths.to_run, app_version=__version__)
    return made


@dataclass(frozen=True)
class PageContext:
    """One person's call of one page."""

    request: Request
    house: AppContext
    person: User | None  # None: on the login page, and on errors before anyone is known
    now: datetime

    @property
    def store(self) -> Store:
        return self.house.store

    @property
    def here(self) -> str:
        """The address as asked for, for forms that lead back; without the request that was told of last time."""
        kept = [(k, v) for k, v in self.request.query_params.multi_items() if k != "asked"]
        path = self.request.scope.get("raw_path", b"").decode("ascii", "replace") or self.request.url.path
        return f"{path}?{urlencode(kept)}" if kept else path

    @property
    def is_refresh(self) -> bool:
        """Asked by `live.js`, which has the page already: the content alone is enough, or that nothing of it has changed."""
        return REFRESH_HEADER in self.request.headers

    def page(self, template: str, *, status: int = 200, **values: Any) -> HTMLResponse:
        """The template, with what `base.html` needs. Never kept by the browser: the state goes on."""
        frame = self._frame()
        text = templates().get_template(template).render(**frame, **values)
        headers = {"Cache-Control": "no-store"}
        if self.is_refresh and status == 200:
            headers["ETag"] = etag_of(text, frame["csrf"])
            if self.request.headers.get("if-none-match") == headers["ETag"]:
                return HTMLResponse(status_code=304, headers=headers)
        return HTMLResponse(text, status, headers=headers)

    async def ask(self, kind: str, payload: Payload | Callable[[str], Payload], *, back: str | None) -> Response:
        """Ask the manager, wait for its answer for some seconds, and lead back to the page that the form was on, which
        then tells what came of it."""
        assert self.person is not None, "only a known person may ask; the handler takes an `OperatorVisit`"
        wait_s = await self.patience_s()
        submitter = Submitter(self.house, self.person, self.request, source="ui")
        asked = await submitter.submit(kind, payload, wait_s=wait_s)
        return redirect(_with_asked(back if back is not None and paths.is_own(back) else "/", asked.request_id))

    async def patience_s(self) -> float:
        """How long an answer is waited for: not at all where nobody leads, who could give one."""
        return WAIT_S if await run_in_threadpool(has_active_manager, self.store, self.now) else 0.0

    def _frame(self) -> dict[str, Any]:
        return {
            "request": self.request,
            "person": self.person,
            "may_change": self.person is not None and self.person.may_change,
            "has_login": bool(self.house.settings.api.tokens),
            "csrf": csrf_token(self.request),
            "now": self.now,
            "here": self.here,
            "path": self.request.url.path,
            "is_refresh": self.is_refresh,
            **self.standing(),
            "flash": self._flash() if self.person else None,
        }

    def standing(self) -> dict[str, Any]:
        """What the head of every page tells: `manager` (None when the state can't be read), `import_errors`."""
        if self.person is None:
            return {"manager": None, "import_errors": 0}
        try:
            broken = self.house.cached_by_version(
                ["import_error"], "ui:import-errors", lambda: count_import_errors(self.store)
            )
            lease = self.house.cached_by_version(["manager"], "ui:lease", self.store.lease)
            return {"manager": status_of_lease(lease, self.now), "import_errors": broken}
        except StateError:  # told by the page itself, or by the error page that this is the head of
            return {"manager": None, "import_errors": 0}

    def _flash(self) -> dict[str, Any] | None:
        """The request that this page was led back from."""
        wanted = self.request.query_params.get("asked")
        return None if not wanted else request_of(self.store, wanted)


def etag_of(text: str, csrf: str) -> str:
    """The same for pages that show the same: without the CSRF token, which differs each time, and without how long ago
    something was, which the browser keeps going."""
    told = _AGO.sub(r"\1", text.replace(csrf, "") if csrf else text)
    return f'W/"{hashlib.sha256(told.encode()).hexdigest()[:24]}"'


def request_of(store: Store, request_id: str) -> dict[str, Any] | None:
    """A request by its whole id, beside its answer; None when it is not there."""
    by_id = [Condition("request_id", "=", request_id)]
    try:
        rows = store.read(RequestRow, by_id, limit=1, without=NOT_LISTED)
        answers = store.read(ResponseRow, by_id, limit=1, without=NOT_LISTED) if rows else []
    except StateError:
        return None
    return request_view(rows[0], answers[0] if answers else None) if rows else None


def _with_asked(back: str, request_id: str) -> str:
    path, _, rest = back.partition("#")
    path, _, query = path.partition("?")
    kept = [part for part in query.split("&") if part and not part.startswith("asked=")]
    return f"{path}?{'&'.join([*kept, f'asked={request_id}'])}" + (f"#{rest}" if rest else "")


def redirect(address: str) -> RedirectResponse:
    """After a form: fetch that page (303), so that a reload does not send the form again."""
    return RedirectResponse(address, status_code=303)


def _viewer(request: Request, house: Context, person: Viewer) -> PageContext:
    return PageContext(request, house, person, house.clock.now())


def _operator(request: Request, house: Context, person: Operator) -> PageContext:
    return PageContext(request, house, person, house.clock.now())


def _stranger(request: Request, house: Context) -> PageContext:
    return PageContext(request, house, user_or_none(house, request), house.clock.now())


PageContextOf = Annotated[PageContext, Depends(_viewer)]  # may look
OperatorVisit = Annotated[PageContext, Depends(_operator)]  # may change: for every handler of a form
StrangerVisit = Annotated[PageContext, Depends(_stranger)]  # not known yet


class PageRoute(APIRoute):
    """A route whose errors are told as pages; a stranger is led to the login."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        inner = super().get_route_handler()

        async def handle(request: Request) -> Response:
            try:
                return await inner(request)
            except Unauthenticated as error:
                if "authorization" in request.headers:  # a program, with a wrong token: slowed down as in the API
                    return await error_page(request, 401, str(error))
                visit = PageContext(request, request.app.state.context, None, request.app.state.context.clock.now())
                return redirect(paths.to("login", next=visit.here if request.method == "GET" else None))
            except BackfillManagerError as error:
                return await error_page(request, status_of(error), str(error))
            except RequestValidationError as error:
                return await error_page(request, 422, "; ".join(map(_told, error.errors()[:5])))
            except HTTPException as error:
                return await error_page(request, error.status_code, str(error.detail))
            except Exception as error:  # the last door: whatever it is, it is logged, and a person gets a page
                log.error("unexpected", path=request.url.path, exc_info=error)
                return await error_page(
                    request, 500, f"Unexpected {type(error).__name__}: a bug of ours. The server's log tells more."
                )

        return handle


def _told(detail: Any) -> str:
    return f"{'.'.join(str(part) for part in detail['loc'][1:])}: {str(detail['msg']).removeprefix('Value error, ')}"


async def error_page(request: Request, status: int, told: str) -> Response:
    """What is wrong, in the frame of every page. For whoever asks too often nothing is looked up, and no thread taken."""
    house: AppContext = request.app.state.context

    def make() -> Response:
        try:
            person = user_or_none(house, request) if status != 429 else None
        except BackfillManagerError:  # somebody who must not come in at all
            person = None
        title = TITLES.get(status, "Something went wrong")
        came_from = request.headers.get("referer", "")
        path = urlsplit(came_from).path if is_same_host(request, came_from) else ""
        back = path if paths.is_own(path) else ""
        visit = PageContext(request, house, person, house.clock.now())
        again = visit.here if request.method in ("GET", "HEAD") and paths.is_own(visit.here) else ""
        return visit.page("error.html", status=status, code=status, title=title, told=told, back=back, again=again)

    return make() if status == 429 else await run_in_threadpool(make)


def page_router() -> APIRouter:
    """For a file of pages; `pages.py` gathers them all."""
    return APIRouter(route_class=PageRoute, default_response_class=HTMLResponse, include_in_schema=False)
