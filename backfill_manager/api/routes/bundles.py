"""`/bundles` and `/import_errors`."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Query

from backfill_manager.api.bodies import Deactivate, Parse
from backfill_manager.api.conditional_get import Reader, read_from
from backfill_manager.api.openapi import CHANGE, reads
from backfill_manager.api.paging import Paging, paged
from backfill_manager.api.parameters import Id
from backfill_manager.api.submit import ApiSubmit, ApiSubmitter, Payload, submits
from backfill_manager.queries.bundles import list_bundles
from backfill_manager.queries.dags import list_import_errors
from backfill_manager.requests import validation
from backfill_manager.schemas import kinds
from backfill_manager.schemas.resources import BundleInfo, ImportProblem, Page

router = APIRouter(tags=["dags"])


@router.get("/bundles", operation_id="list_bundles", **reads(Page[BundleInfo]))
@read_from("bundle", "dag", "import_error")
def get_bundles(reader: Reader, paging: Annotated[Paging, paged("name", "-name")]) -> Any:
    """The sources of DAGs, each with its active DAGs and import errors."""
    return paging.short_page(list_bundles(reader.store, reader.context.settings.bundles), "name")


@router.post("/bundles/{name}/parse", operation_id="parse_bundle", **CHANGE)
@submits(kinds.BUNDLE_PARSE)
def parse(name: Id, submitter: ApiSubmit, body: Parse | None = None) -> Payload:
    """Parses files of a bundle now, changed or not. The outcome is `result` of the request."""
    return {"bundle": _known(submitter, name), **(body or Parse()).model_dump()}


@router.post("/bundles/{name}/deactivate", operation_id="deactivate_in_bundle", **CHANGE)
@submits(kinds.BUNDLE_DEACTIVATE)
def deactivate(name: Id, body: Deactivate, submitter: ApiSubmit) -> Payload:
    """Deactivates the DAGs of a file or folder, until they have new content or are parsed on request."""
    return {"bundle": _known(submitter, name), "subpath": body.subpath}


def _known(submitter: ApiSubmitter, name: str) -> str:
    return validation.known_bundle(submitter.store, submitter.context.settings, name)


@router.get("/import_errors", operation_id="list_import_errors", **reads(Page[ImportProblem]))
@read_from("import_error")
def get_import_errors(
    reader: Reader,
    paging: Annotated[Paging, paged("bundle", "-bundle", "file", "-file", "last_seen_at", "-last_seen_at")],
    bundle: Annotated[str | None, Query(max_length=200)] = None,
) -> Any:
    """Files that could not be imported, with the error. The last good version of their DAGs stays."""
    rows = [one for one in list_import_errors(reader.store) if bundle in (None, one["bundle"])]
    return paging.short_page(rows, "bundle", "file")
