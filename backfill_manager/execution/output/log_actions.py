"""What actions of Delta's log, as JSON, say of a table's settings and columns. Pure."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from backfill_manager.store.sql_guard import identifier_if_needed


def settings_in(metadata: Mapping[str, Any], columns: Collection[str]) -> dict[str, Any]:
    """What a table is set to by ALTER and REPLACE TABLE, except for the names and types of its columns, by what people call it.
    `metadata`: Delta's action. Of columns, these alone."""
    found = {f"the property {key}": value for key, value in settable(metadata["configuration"]).items()}
    found |= {"its comment": metadata.get("description"), "its partitioning": ", ".join(metadata["partitionColumns"])}
    for field in json.loads(metadata["schemaString"])["fields"]:
        name, about = field["name"], field["metadata"]
        if name in columns:
            found[f"NOT NULL of {name}"] = not field["nullable"]
            found |= {f"{key} of {name}": value for key, value in settable(about).items()}
    return {key: value for key, value in found.items() if value}


def settable(settings: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in settings.items() if key not in _OF_DELTA_ITSELF}


def metadata_set_by(actions: Iterable[Mapping[str, Any]]) -> dict[str, Any] | None:
    """Delta's action of a commit with these actions; None if it has not set it."""
    return next((action["metaData"] for action in actions if "metaData" in action), None)


def clustering_set_by(actions: Iterable[Mapping[str, Any]], fields: Sequence[Mapping[str, Any]]) -> list[str]:
    """The columns, quoted as in SQL, by which Delta clusters a table with these `fields` after a commit with these actions that
    has set them."""
    for action in actions:
        domain = action.get("domainMetadata", {})
        if domain.get("domain") == "delta.clustering" and not domain["removed"]:
            columns = json.loads(domain["configuration"])["clusteringColumns"]
            return [".".join(identifier_if_needed(name) for name in _names_now(column, fields)) for column in columns]
    return []


def _names_now(column: Iterable[str], fields: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Of a column, or of a field of a struct with those that it is in; `column` has their names in files."""
    for in_files in column:
        field = dict(zip(names_in_files(fields).values(), fields, strict=True))[in_files]
        yield field["name"]
        fields = field["type"]["fields"] if isinstance(field["type"], dict) else ()  # no table is clustered by an array


def columns_set_by(actions: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]] | None:
    """The columns after a commit with these actions, as in Delta's log; None if it has not set them."""
    metadata = metadata_set_by(actions)
    return None if metadata is None else json.loads(metadata["schemaString"])["fields"]


def names_in_files(columns: Iterable[Mapping[str, Any]]) -> dict[str, str]:
    """By column its name in files and their statistics: with a column mapping another one, which stays."""
    return {one["name"]: one["metadata"].get("delta.columnMapping.physicalName", one["name"]) for one in columns}


def last_numbers(fields: Sequence[Mapping[str, Any]]) -> dict[str, int | None]:
    """`fields` of a schema, as Delta's log has it."""
    numbered = (one for one in fields if "delta.identity.start" in one["metadata"])
    return {one["name"]: one["metadata"].get("delta.identity.highWaterMark") for one in numbered}


_OF_DELTA_ITSELF: Final = {
    "delta.columnMapping.id", "delta.columnMapping.maxColumnId", "delta.columnMapping.physicalName",
    "delta.identity.highWaterMark", "delta.rowTracking.materializedRowIdColumnName",
    "delta.rowTracking.materializedRowCommitVersionColumnName",
}  # fmt: skip
