"""The JSON Schema of `*.dag.yaml` files, for editors: what `bfm dags schema` prints. Made from `schemas.dag_settings` and the
defaults of `DagSpec` and `TaskSpec`."""

from __future__ import annotations

import dataclasses
from typing import Any

from pydantic.json_schema import GenerateJsonSchema

from backfill_manager.dags.definition import DagSpec, TaskSpec
from backfill_manager.schemas.dag_settings import YamlDag, adapter

Schema = dict[str, Any]


class _WithoutTitles(GenerateJsonSchema):
    def field_title_should_be_set(self, schema: Any) -> bool:
        return False


def schema() -> Schema:
    made = adapter(YamlDag).json_schema(schema_generator=_WithoutTitles)
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
