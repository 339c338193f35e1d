"""What the tasks of a run would see, as a dry run and `bfm dags render` show it."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pyarrow as pa
import pytest

from backfill_manager.clock import UTC
from backfill_manager.dags.definition import DagSpec, TaskSpec
from backfill_manager.model.records import BackfillItem
from backfill_manager.planning.backfills.backfill_plan import BackfillPlan
from backfill_manager.planning.backfills.rendering import PlannedRun, literal, render
from backfill_manager.schemas.backfill_options import CreateBackfill
from backfill_manager.store.table_properties import arrow_schema

NEW_YEAR = datetime(2013, 1, 1, tzinfo=UTC)
DAY = timedelta(days=1)
ROWS = TaskSpec("rows", kind="sql", sql="SELECT :region", into="copied")
DAG = DagSpec(
    dag_id="copy", tasks=(ROWS, TaskSpec("tell", upstream=("rows",))),
    params={"region": "eu", "api_key": "", "not a name": 1}, batchable=True, schedule="@daily",
)  # fmt: skip


def test_a_run_is_rendered() -> None:
    run = PlannedRun("manual__x", (NEW_YEAR, NEW_YEAR + DAY), None, {"region": "it's", "api_key": "s3cr3t"})
    assert render(DAG, run, ["rows", "tell"]) == {
        "dag_id": "copy", "run_id": "manual__x", "logical_date": "2013-01-01T00:00:00Z",
        "interval_start": "2013-01-01T00:00:00Z", "interval_end": "2013-01-02T00:00:00Z", "partition_key": None, "note": None,
        "params": {"region": "it's", "api_key": "***", "not a name": 1},
        "sql_parameters": {
            "region": r"'it\'s'", "api_key": "***", "run_id": "'manual__x'",
            "logical_date": "TIMESTAMP '2013-01-01T00:00:00Z'", "interval_start": "TIMESTAMP '2013-01-01T00:00:00Z'",
            "interval_end": "TIMESTAMP '2013-01-02T00:00:00Z'",
        },
        "tasks": [
            {"task_id": "rows", "kind": "sql", "sql": "SELECT :region", "into": "copied", "mapped_value": None},
            {"task_id": "tell", "kind": "python", "sql": None, "into": None, "mapped_value": None},
        ],
    }  # fmt: skip


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "NULL"), (True, "true"), (1, "1"), (1.5, "1.5D"), ("a\\'b", r"'a\\\'b'"), ([1, None], "array(1, NULL)"),
        ({"a": False}, "map('a', false)"),
    ],
)  # fmt: skip
def test_values_are_written_as_spark_sql_writes_them(value: Any, text: str) -> None:
    assert literal(value) == text


def plan(*states: str, partitions: tuple[str, ...] = (), **settings: Any) -> BackfillPlan:
    n = len(states)
    dates = [None] * n if partitions else [NEW_YEAR + DAY * at for at in range(n)]
    columns = {
        "ordinal": range(1, n + 1), "logical_date": dates, "interval_start": dates,
        "interval_end": [at and at + DAY for at in dates], "partition_key": partitions or [None] * n, "state": states,
        "reason": [None if state == "pending" else "already exists" for state in states],
    }  # fmt: skip
    schema = arrow_schema(BackfillItem)
    items = pa.table({name: pa.array(values, schema.field(name).type) for name, values in columns.items()})
    return BackfillPlan(CreateBackfill(dag_id="copy", **settings), DAG, 1, items)


def test_a_dry_run_shows_the_first_item_that_runs() -> None:
    shown = plan("skipped", "pending", "pending", conf={"region": "us"}).to_json_document()["first_item"]
    assert (shown["run_id"], shown["params"]["region"]) == ("backfill__2013-01-02T00:00:00Z", "us")
    assert (shown["interval_start"], shown["interval_end"]) == ("2013-01-02T00:00:00Z", "2013-01-03T00:00:00Z")
    assert [task["task_id"] for task in shown["tasks"]] == ["rows", "tell"]


def test_of_a_batch_the_whole_interval_is_shown() -> None:
    shown = plan("skipped", "pending", "pending", "pending", batch=2).first_item()
    assert shown is not None
    assert (shown["interval_start"], shown["interval_end"]) == ("2013-01-02T00:00:00Z", "2013-01-04T00:00:00Z")


def test_of_partitions_and_of_chosen_tasks() -> None:
    shown = plan("pending", partitions=("north",), kind="partitions", tasks="^tell$", with_upstream=False).first_item()
    assert shown is not None
    assert (shown["partition_key"], shown["interval_start"], shown["run_id"]) == ("north", None, "backfill__north")
    assert [task["task_id"] for task in shown["tasks"]] == ["tell"]


def test_where_nothing_runs_nothing_is_shown() -> None:
    assert plan("skipped").to_json_document()["first_item"] is None


def test_the_first_item_of_a_preview_has_the_id_of_a_previews_run() -> None:
    shown = plan("pending", preview=True).first_item()
    assert shown is not None and shown["run_id"] == "preview__BACKFILL_ID__2013-01-01T00:00:00Z"
