"""Log in with a token, log out; and what the head of every page fetches by itself."""

from __future__ import annotations

from typing import Annotated, Final

from fastapi import Form
from starlette.responses import Response

from backfill_manager.api.auth import check_origin, close_session, open_session
from backfill_manager.errors import Unauthenticated
from backfill_manager.web import paths
from backfill_manager.web.page import PageContextOf, StrangerVisit, page_router, redirect

router: Final = page_router()


@router.get("/login")
def login(visit: StrangerVisit, next: str = "/dags") -> Response:
    own = next if paths.is_own(next) else "/dags"
    if visit.person is not None:
        return redirect(own)
    return visit.page("login.html", next=own, wrong=None)


@router.post("/login")
def open_it(
    visit: StrangerVisit,
    token: Annotated[str, Form(max_length=1000)] = "",
    next: Annotated[str, Form()] = "/dags",
) -> Response:
    check_origin(visit.request)  # or another site could log a browser in as somebody else
    own = next if paths.is_own(next) else "/dags"
    answer = redirect(own)
    try:
        open_session(visit.house, visit.request, answer, token.strip())
    except Unauthenticated as error:
        return visit.page("login.html", status=401, next=own, wrong=str(error))
    return answer


@router.post("/logout")
def logout(visit: PageContextOf) -> Response:
    answer = redirect("/login")
    close_session(visit.request, answer)
    return answer


@router.get("/fragments/standing")
def standing(visit: PageContextOf) -> Response:
    """The manager's light, the banner and the number of import errors: fetched every few seconds, as a manager that dies
    changes no table."""
    return visit.page("fragments/standing.html")
