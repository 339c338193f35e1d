"""All pages, gathered: `create_app(..., extra_routers=[router], error_page=site.error_page)`. The last route answers
whatever address no other has, with a page, and leaves the API's addresses to the API."""

from __future__ import annotations

from typing import Final

from starlette.convertors import Convertor, register_url_convertor
from starlette.exceptions import HTTPException
from starlette.responses import RedirectResponse, Response

from backfill_manager.api.errors import PAGE_PATHS
from backfill_manager.web.page import PageContextOf, page_router
from backfill_manager.web.pages import (
    backfill_update_form,
    backfills,
    dag,
    dag_forms,
    dag_versions,
    dags,
    import_errors,
    login,
    manager,
    new_backfill,
    pools,
    requests,
    runs,
    tasks,
)
from backfill_manager.web.static_files import static_response


class _OfPages(Convertor[str]):
    """Any path that is not one of the API's or of the static files."""

    regex = PAGE_PATHS

    def convert(self, value: str) -> str:
        return value

    def to_string(self, value: str) -> str:
        return value


register_url_convertor("of_pages", _OfPages())

router: Final = page_router()


@router.get("/")
def home() -> Response:
    return RedirectResponse("/dags", status_code=307)


@router.get("/static/{digest}/{name:path}")
async def static_file(digest: str, name: str) -> Response:
    found = static_response(digest, name)
    if found is None:
        raise HTTPException(404, "There is no such file.")
    return found


for _part in (
    new_backfill,
    backfills,
    backfill_update_form,
    login,
    dags,
    dag,
    dag_versions,
    dag_forms,
    runs,
    tasks,
    pools,
    import_errors,
    requests,
    manager,
):
    router.include_router(_part.router)


@router.get("/{path:of_pages}")  # the last one: it takes what no other has
def nothing_here(visit: PageContextOf, path: str) -> Response:
    raise HTTPException(404, "There is nothing at this address.")
