"""`/tables` that tasks have read and written, and `/lineage`."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Query

from backfill_manager.api.conditional_get import Reader, read_from
from backfill_manager.api.openapi import reads
from backfill_manager.api.paging import Paging, paged
from backfill_manager.errors import InvalidInput
from backfill_manager.queries import tables as queries
from backfill_manager.schemas import resources as r

router = APIRouter(tags=["tables"])
_NAME = Query(min_length=1, max_length=1000, description="Name of the table in the catalog, or its path.")


@router.get("/tables", operation_id="list_tables", **reads(r.Page[r.Table]))
@read_from("table_access")
def get_tables(reader: Reader, paging: Annotated[Paging, paged("table", "-table")]) -> Any:
    """Returns the tables with the tasks that read and write them, as recorded by their tries."""
    return paging.short_page(queries.list_tables(reader.store), "table")


@router.get("/tables/intervals", operation_id="list_table_intervals", **reads(r.Page[r.TableInterval]))
@read_from("table_access")
def get_table_intervals(
    reader: Reader, paging: Annotated[Paging, paged("-at", "at")], table: Annotated[str, _NAME]
) -> Any:
    """Returns the intervals and partitions of a table, each with the run that last wrote it."""
    found = queries.list_table_intervals(reader.store, table)
    return paging.short_page(found.writes, "dag_id", "run_id", "task_id", value_of=getattr, documents=found.documents)


@router.get("/lineage", operation_id="get_lineage", **reads(r.Lineage))
@read_from("table_access", "dag")
def get_lineage(
    reader: Reader,
    dag_id: Annotated[str | None, Query(max_length=200, description="Id of the DAG.")] = None,
    table: Annotated[str | None, _NAME] = None,
) -> Any:
    """Returns the lineage of a DAG or a table over all DAGs: what it is made from, and what is made from it. Give either
    `dag_id` or `table`."""
    if (dag_id is None) == (table is None):
        raise InvalidInput("lineage is of a DAG or of a table: give dag_id or table")
    return queries.lineage(reader.store, dag_id=dag_id, table=table)
