"""All pages on one router: `create_app(..., extra_routers=[router], error_page=page.error_page)`. The last route is a 404 page
for every other address but the API's."""

from __future__ import annotations

import re
from typing import Final

from starlette.convertors import PathConvertor, register_url_convertor
from starlette.exceptions import HTTPException
from starlette.responses import RedirectResponse, Response

from backfill_manager.api.errors import PAGE_PATHS
from backfill_manager.errors import nearest
from backfill_manager.web.page import PageRoute, ViewerContext, page_router
from backfill_manager.web.pages import (
    backfill_forms,
    backfills,
    dag,
    dag_graph,
    dags,
    data_gaps,
    grid_panel,
    home,
    login,
    manager,
    notes,
    pools,
    reverts,
    run,
    runs,
    selections,
    tables,
)
from backfill_manager.web.static_files import static_response


class _PagePath(PathConvertor):
    """Any path that is not the API's or a static file's."""

    regex = PAGE_PATHS


register_url_convertor("page_path", _PagePath())

router: Final = page_router()


@router.get("/static/{digest}/{name:path}")
async def static_file(digest: str, name: str) -> Response:
    if (response := static_response(digest, name)) is None:
        raise HTTPException(404, "There is no such file.")
    return response


_addresses: list[str] = []  # of the pages that are about no single object
for _pages in (
    home,
    backfill_forms,
    backfills,
    login,
    dags,
    dag,
    dag_graph,
    grid_panel,
    data_gaps,
    runs,
    selections,
    run,
    notes,
    reverts,
    tables,
    pools,
    manager,
):
    router.include_router(_pages.router)
    _addresses += [
        route.path
        for route in _pages.router.routes
        if isinstance(route, PageRoute)
        and "GET" in (route.methods or ())
        and not re.search(r"\{|^/fragments/", route.path)
    ]


@router.get("/docs")
@router.get("/redoc")
def docs() -> Response:
    """Where other servers have the description of their API."""
    return RedirectResponse("/rest-api")


@router.get("/{path:page_path}")  # the last route: matches every address
def not_found(context: ViewerContext, path: str) -> Response:
    raise HTTPException(404, f"There is no page at this address{nearest(f'/{path}', _addresses, n=1) or '.'}")
