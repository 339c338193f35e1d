"""Every route of the API and of the pages needs a token, and every change one of an operator, however a route is declared."""

from __future__ import annotations

import importlib
import pkgutil
import re
from collections.abc import Callable, Iterator

from fastapi.testclient import TestClient

from backfill_manager.api.app import openapi
from backfill_manager.model.records import Request
from backfill_manager.testing import InMemoryManager
from backfill_manager.web import pages
from backfill_manager.web.page import PageRoute

FOR_ANYBODY = {("GET", "/api/v1/health"), ("GET", "/login")}  # POST /login refuses by its own check of the token
CHANGES_NOTHING = {("POST", "/login"), ("POST", "/logout")}


def routes() -> Iterator[tuple[str, str]]:
    for path, operations in openapi()["paths"].items():
        yield from ((method.upper(), path) for method in operations)
    for module in pkgutil.iter_modules(pages.__path__):
        router = getattr(importlib.import_module(f"{pages.__name__}.{module.name}"), "router", None)
        for route in router.routes if router else ():
            assert isinstance(route, PageRoute)
            yield from ((method, route.path) for method in route.methods)


def test_a_stranger_is_refused_and_a_viewer_changes_nothing(
    manager: InMemoryManager, logged_in: Callable[[str], TestClient]
) -> None:
    stranger, viewer = logged_in(""), {"Authorization": "Bearer token of ben"}
    before, all_routes = manager.store.count(Request.TABLE, []), sorted(routes())
    assert len(all_routes) > 140
    open_to_all, changeable = set(), set()
    for method, path in all_routes:
        address = re.sub(r"\{[^}]*\}", "x", path)
        answer = stranger.request(method, address, follow_redirects=False)
        if answer.status_code != 401 and not answer.headers.get("location", "").startswith("/login"):
            open_to_all.add((method, path))
        if method != "GET" and stranger.request(method, address, headers=viewer).status_code != 403:
            changeable.add((method, path))
    assert (open_to_all, changeable) == (FOR_ANYBODY, CHANGES_NOTHING)
    assert manager.store.count(Request.TABLE, []) == before
