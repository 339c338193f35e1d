"""What a fork server does before it serves: imports and fills what every process for a DAG file or a task would for itself."""

from __future__ import annotations

import importlib
from typing import Final

from backfill_manager.dags.authoring import dag, sql
from backfill_manager.masking import mask_code, mask_text
from backfill_manager.schemas.dag_settings import DagSettings, SqlSettings, TaskSettings, YamlDag, adapter

_MODULES: Final = (  # what files and the reports of their mistakes need
    "backfill_manager.dags.importing.parse_file",
    "backfill_manager.dags.schedule.timetable",
    "backfill_manager.dags.yaml.reader",
    "backfill_manager.logging",
    "croniter",
    "yaml",
)


def warm_up() -> None:
    for module in _MODULES:
        importlib.import_module(module)
    for settings in (DagSettings, TaskSettings, SqlSettings, YamlDag):
        adapter(settings)
    made = dag("rehearsal", schedule="0 5 * * *", timezone="Europe/Berlin", start_date="2013-01-01")
    made(lambda: sql("count", "SELECT 1")).spec.to_json()
    mask_text("token")  # compiles what a task's first line is masked with
    mask_code("token")
