"""All pages on one router: `create_app(..., extra_routers=[router], error_page=page.error_page)`. The last route is a 404 page
for every other address but the API's."""

from __future__ import annotations

from typing import Final

from starlette.convertors import Convertor, register_url_convertor
from starlette.exceptions import HTTPException
from starlette.responses import RedirectResponse, Response

from backfill_manager.api.errors import PAGE_PATHS
from backfill_manager.web.page import ViewerContext, page_router
from backfill_manager.web.pages import (
    backfill_update_form,
    backfills,
    dag,
    dag_forms,
    dags,
    login,
    manager,
    new_backfill,
    pools,
    runs,
    tasks,
)
from backfill_manager.web.static_files import static_response


class _PagePath(Convertor[str]):
    """Any path that is not the API's or a static file's."""

    regex = PAGE_PATHS

    def convert(self, value: str) -> str:
        return value

    def to_string(self, value: str) -> str:
        return value


register_url_convertor("page_path", _PagePath())

router: Final = page_router()


@router.get("/")
def home() -> Response:
    return RedirectResponse("/dags", status_code=307)


@router.get("/static/{digest}/{name:path}")
async def static_file(digest: str, name: str) -> Response:
    response = static_response(digest, name)
    if response is None:
        raise HTTPException(404, "There is no such file.")
    return response


for _pages in (
    new_backfill, backfills, backfill_update_form, login, dags, dag, dag_forms, runs, tasks, pools, manager,
):  # fmt: skip
    router.include_router(_pages.router)


@router.get("/{path:page_path}")  # the last route: matches every address
def not_found(context: ViewerContext, path: str) -> Response:
    raise HTTPException(404, "There is no page at this address.")
