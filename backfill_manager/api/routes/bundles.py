"""`/bundles` and `/import_errors`."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Query
from fastapi.responses import Response

from backfill_manager.api.bodies import Deactivate, Parse
from backfill_manager.api.conditional_get import Reader
from backfill_manager.api.openapi import CHANGE, reads
from backfill_manager.api.paging import Paging, paged
from backfill_manager.api.parameters import Id
from backfill_manager.api.submit import ApiSubmit, ApiSubmitter
from backfill_manager.queries.bundles import list_bundles
from backfill_manager.queries.dags import list_import_errors
from backfill_manager.requests import validation
from backfill_manager.schemas import kinds
from backfill_manager.schemas.resources import BundleInfo, ImportProblem, Page

router = APIRouter(tags=["dags"])


@router.get("/bundles", operation_id="list_bundles", **reads(Page[BundleInfo]))
def get_bundles(reader: Reader, paging: Annotated[Paging, paged("name", "-name")]) -> Response:
    """The sources of DAGs, each with its active DAGs and import errors."""

    def compute() -> dict[str, Any]:
        return paging.short_page(list_bundles(reader.store, reader.context.settings.bundles), "name")

    return reader.response(("bundle", "dag", "import_error"), compute)


@router.post("/bundles/{name}/parse", operation_id="parse_bundle", **CHANGE)
async def parse(name: Id, submitter: ApiSubmit, body: Parse | None = None) -> Response:
    """Parses files of a bundle now, changed or not. The outcome is `result` of the request."""

    return await _with_bundle(kinds.BUNDLE_PARSE, name, submitter, (body or Parse()).model_dump())


@router.post("/bundles/{name}/deactivate", operation_id="deactivate_in_bundle", **CHANGE)
async def deactivate(name: Id, body: Deactivate, submitter: ApiSubmit) -> Response:
    """Deactivates the DAGs of a file or folder, until they have new content or are parsed on request."""
    return await _with_bundle(kinds.BUNDLE_DEACTIVATE, name, submitter, body.model_dump())


async def _with_bundle(kind: str, name: str, submitter: ApiSubmitter, given: dict[str, Any]) -> Response:
    def payload(_: str) -> dict[str, Any]:
        return {"bundle": validation.known_bundle(submitter.store, submitter.context.settings, name), **given}

    return await submitter(kind, payload)


@router.get("/import_errors", operation_id="list_import_errors", **reads(Page[ImportProblem]))
def get_import_errors(
    reader: Reader,
    paging: Annotated[Paging, paged("bundle", "-bundle", "file", "-file", "last_seen_at", "-last_seen_at")],
    bundle: Annotated[str | None, Query(max_length=200)] = None,
) -> Response:
    """Files that could not be imported, with the error. The last good version of their DAGs stays."""

    def compute() -> dict[str, Any]:
        rows = [one for one in list_import_errors(reader.store) if bundle in (None, one["bundle"])]
        return paging.short_page(rows, "bundle", "file")

    return reader.response(("import_error",), compute)
