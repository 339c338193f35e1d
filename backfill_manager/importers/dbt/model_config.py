"""What the configuration of a dbt model becomes, and of what there is no equal."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from backfill_manager.importers.dbt.models import Model

BATCH_SIZES: Final = {"hour": "@hourly", "day": "@daily", "month": "@monthly", "year": "@yearly"}
INSTEAD: Final = {
    "Python model": "Write it as a @task with ctx.spark and ctx.write",
    "seed": "Load it by a task",
    "snapshot": "Keep history with a MERGE",
    "test": "Write it as a task after its models",
    "test of no model": "Checks are of rows that a task writes: add a task",
    "freshness": 'waits_for=[rows("table", time_column="...")] waits for an interval\'s rows',
}
_INCREMENTAL: Final = {
    "by event time": "Each run replaces its interval by {event_time}: read only the interval's rows",
    "by unique_key": "It updates rows by that key; time_column= would replace the run's interval instead",
    "without event_time": "Each run writes the table anew, or appends without is_incremental(); time_column= in place of the "
    "mode replaces the run's interval",
}


def model_of(name: str, table: str, path: str, config: Mapping[str, Any]) -> Model:
    key = config.get("unique_key") or ()
    tags = config.get("tags") or ()
    model = Model(
        name, table, "", path, str(config.get("materialized") or "view"), config.get("event_time"),
        (key,) if isinstance(key, str) else tuple(key), tags=(tags,) if isinstance(tags, str) else tuple(tags),
    )  # fmt: skip
    if model.materialized == "incremental":
        if model.event_time and config.get("batch_size") in BATCH_SIZES and config.get("begin"):
            model.batch_size, model.begin = str(config["batch_size"]), str(config["begin"])
            if lookback := config.get("lookback", 1):
                instead = f"lookback={lookback} of the DAG does as many intervals before each run again, with all tasks"
                model.remark(f"lookback={lookback}, of batches that are done again", instead)
        by = "by event time" if model.event_time else "by unique_key" if model.unique_key else "without event_time"
        model.remark(f"incremental {by}", _INCREMENTAL[by].format(event_time=model.event_time))
    elif model.materialized == "ephemeral":
        model.remark("an ephemeral model", "It is a table here; put it into the models that use it as WITH")
    elif model.materialized not in ("view", "table"):
        model.remark(f"the materialization {model.materialized}", "It is a table here that each run writes anew")
    for hook in ("pre_hook", "post_hook", "pre-hook", "post-hook"):
        if config.get(hook):
            model.remark(hook.replace("-", "_"), "Write it as a SQL task before or after it")
    for layout in ("partition_by", "clustered_by", "liquid_clustered_by", "tblproperties", "location_root"):
        if config.get(layout):
            model.remark(layout, "Make the table first, as it is to be: CREATE TABLE in a SQL task")
    if model.materialized == "incremental" and config.get("on_schema_change") not in (None, "ignore", "fail"):
        model.new_columns = True
        if (change := config["on_schema_change"]) != "append_new_columns":
            model.remark(f"on_schema_change={change}", "Columns are added; those that are gone stay")
    return model
