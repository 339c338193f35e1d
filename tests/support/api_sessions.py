"""Logs browsers in and out of the API without its pages."""

from __future__ import annotations

from typing import Any

from fastapi import Request
from fastapi.responses import JSONResponse, Response

from backfill_manager.api.auth import Viewer, close_session, csrf_token, open_session
from backfill_manager.api.context import Context
from support.api_server import ApiFixture, Caller

LOGIN = "http://localhost:8099/login"
LOGOUT = "http://localhost:8099/logout"


def with_login(api: ApiFixture) -> Caller:
    """Adds routes that log in and out, as the pages do."""

    async def login(request: Request, context: Context) -> Response:
        response = JSONResponse({})
        open_session(context, request, response, request.headers["x-token"])
        return response

    async def csrf(request: Request, _: Viewer) -> dict[str, Any]:
        return {"csrf": csrf_token(request)}

    async def logout(request: Request, context: Context) -> Response:
        response = JSONResponse({})
        close_session(context, request, response)
        return response

    api.app.add_api_route("/login", login, methods=["POST"], response_model=None)
    api.app.add_api_route("/logout", logout, methods=["POST"], response_model=None)
    api.app.add_api_route("/api/v1/csrf", csrf, methods=["GET"])
    return api.call


def session_of(call: Caller, token: str) -> tuple[dict[str, str], dict[str, str]]:
    """The cookie of a browser that logs in, and its CSRF header."""
    result = call("POST", LOGIN, headers={"X-Token": token})
    assert result.status_code == 200
    cookie = {"Cookie": result.headers["set-cookie"].partition(";")[0]}
    return cookie, {"X-CSRF-Token": call.get("/csrf", headers=cookie)["csrf"]}
