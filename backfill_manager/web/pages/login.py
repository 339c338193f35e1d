"""Login with a token, and logout."""

from __future__ import annotations

from typing import Annotated, Final

from fastapi import Form
from starlette.responses import Response

from backfill_manager.api.auth import check_origin, close_session, open_session
from backfill_manager.errors import Unauthenticated
from backfill_manager.web import links
from backfill_manager.web.page import AnonymousContext, ViewerContext, page_router, redirect

router: Final = page_router()


@router.get("/login")
def login_form(context: AnonymousContext, next: str = "/dags") -> Response:
    target = next if links.is_local(next) else "/dags"
    return redirect(target) if context.user else context.page("login.html", next=target, error=None)


@router.post("/login")
def login(
    context: AnonymousContext, token: Annotated[str, Form(max_length=1000)] = "", next: Annotated[str, Form()] = "/dags"
) -> Response:
    check_origin(context.request)  # or another site could log a browser in as somebody else
    target = next if links.is_local(next) else "/dags"
    response = redirect(target)
    try:
        open_session(context.app, context.request, response, token.strip())
    except Unauthenticated as error:
        return context.page("login.html", status=401, next=target, error=str(error))
    return response


@router.get("/logout")
def logout_form(context: AnonymousContext) -> Response:
    """Asks first: a link, or an image of another site, must not log anybody out."""
    return context.page("logout.html") if context.user else redirect("/login")


@router.post("/logout")
def logout(context: ViewerContext) -> Response:
    response = redirect("/login")
    close_session(context.app, context.request, response)
    return response
