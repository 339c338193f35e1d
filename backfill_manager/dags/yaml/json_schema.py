"""The JSON Schema of `*.dag.yaml` files, for editors: `dag.schema.json`, printed by `bfm dags schema`.

Made from `schemas.dag_settings` and the defaults of `DagSpec` and `TaskSpec`. A test holds that the shipped file is what
`schema()` gives; after a change:

    python -m backfill_manager.dags.yaml.json_schema > backfill_manager/dags/yaml/dag.schema.json
"""

from __future__ import annotations

import dataclasses
import json
from importlib import resources
from typing import Any, Final

from backfill_manager.dags.definition import DagSpec, TaskSpec

FILE: Final = "dag.schema.json"
Schema = dict[str, Any]


def shipped() -> Schema:
    schema: Schema = json.loads(resources.files(__package__).joinpath(FILE).read_text(encoding="utf-8"))
    return schema


def schema() -> Schema:
    from pydantic.json_schema import GenerateJsonSchema

    from backfill_manager.schemas.dag_settings import YamlDag, adapter

    class WithoutTitles(GenerateJsonSchema):
        def field_title_should_be_set(self, schema: Any) -> bool:
            return False

    made = adapter(YamlDag).json_schema(schema_generator=WithoutTitles)
    definitions = made.pop("$defs")
    _add_defaults(made["properties"], DagSpec)
    for each in definitions.values():
        each.pop("title", None)
        _add_defaults(each["properties"], TaskSpec)
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **made, "$defs": definitions}


def _add_defaults(properties: dict[str, Schema], spec: type[DagSpec] | type[TaskSpec]) -> None:
    defaults: dict[str, Any] = {field.name: field.default for field in dataclasses.fields(spec)}
    defaults |= {"on_success": None, "on_failure": None}
    for name, entry in properties.items():
        if isinstance(defaults.get(name, ...), str | int | float | None) and name not in ("sql", "bash", "dag_id"):
            entry["default"] = defaults[name]


if __name__ == "__main__":
    print(json.dumps(schema(), indent=2))
