"""The settings of a backfill, with changes that are requested, and a version that shows whether they have changed since.

Changes that wait for the manager count as made: the next person who changes settings sees them, and does not undo them
unseen.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from backfill_manager.masking import mask_values, unmask
from backfill_manager.model.records import Backfill, Request
from backfill_manager.model.stored_json import shown_column
from backfill_manager.queries.requests import request_details, waiting_for
from backfill_manager.schemas.backfill_columns import option_of
from backfill_manager.schemas.backfill_options import UPDATABLE_FIELDS
from backfill_manager.schemas.payloads import parse_payload
from backfill_manager.schemas.request_kinds import BACKFILL_SET
from backfill_manager.store.base import Condition, Store, matching


@dataclass(frozen=True)
class SettingsNow:
    """`values` by name (`UPDATABLE_FIELDS`); `version` is another text after each change. `last`: the
    request that last changed it, and `waiting` those that the manager has not answered yet, oldest first."""

    values: dict[str, Any]
    version: str
    last: dict[str, Any] | None
    waiting: tuple[dict[str, Any], ...]

    @property
    def shown(self) -> dict[str, Any]:
        """The values without secrets."""
        return {**self.values, "conf": mask_values(self.values["conf"])}

    def differing(self, drawn: Mapping[str, Any]) -> list[str]:
        """The names of the settings that are not any more what they were when a form was drawn (as `shown`)."""
        shown = self.shown
        return [name for name in UPDATABLE_FIELDS if name in drawn and drawn[name] != shown[name]]

    def unmasked(self, changes: Mapping[str, Any]) -> dict[str, Any]:
        """Settings as somebody wrote them who was shown these: a secret that is still masked stays as it is."""
        own = {"conf": unmask(changes["conf"], self.values["conf"])} if "conf" in changes else {}
        return {**changes, **own}


def settings_now(store: Store, found: Mapping[str, Any]) -> SettingsNow:
    """`found`: the backfill as `queries.backfills` tells it."""
    backfill_id = found["backfill_id"]
    row = store.first(Backfill, matching(backfill_id=backfill_id))
    changed_by = row.changed_by if row else ""
    waiting = waiting_for(store, backfill_id, BACKFILL_SET)
    values = {name: option_of(row, name) if row else found[name] for name in UPDATABLE_FIELDS}
    if row is None:  # as it was asked for: `found` has it masked
        asked = store.first(Request, matching(request_id=found["request_id"]))
        values["conf"] = parse_payload(asked.kind, asked.payload_json)["ask"]["conf"] if asked else {}
    for request in waiting:
        values |= parse_payload(request.kind, request.payload_json)["changes"]
    last = store.first(Request, matching(request_id=changed_by)) if changed_by else None
    version = "+".join([changed_by, *(one.request_id for one in waiting)])
    details = tuple(request_details(one, None) for one in waiting)
    return SettingsNow(values, version, request_details(last, None) if last else None, details)


def options_to_copy(store: Store, found: Mapping[str, Any]) -> dict[str, Any]:
    """The options that it was created with and that can't be changed, those of `BackfillInput` that are no settings; of one that
    came with its parent (`downstream`) they are its own. `found`: the backfill as `queries.backfills` tells it."""
    request = store.first(Request, matching(request_id=found["request_id"]))
    ask = parse_payload(request.kind, request.payload_json)["ask"] if request else {}
    if ask.get("dag_id") != found["dag_id"]:
        ask = {}  # its parent's, or no longer kept
    has_children = found["backfill_id"] in children_of_each(store)
    config = {name: value for name, value in found["config"].items() if name not in ("type", "total")}
    return {
        **config, "kind": found["config"]["type"], "reprocess": found["reprocess"], "mark_success": found["mark_success"],
        "ignore_first_depends_on_past": found["ignore_first_depends_on_past"],
        "downstream": ask.get("downstream", has_children), "preview": ask.get("preview", found["preview_id"] is not None),
    }  # fmt: skip


def children_of_each(store: Store) -> dict[str, list[dict[str, Any]]]:
    """For each backfill the downstream backfills that wait for it: `backfill_id`, `dag_id`, `state`."""
    found = store.read(Backfill, [Condition("parents_json", "!=", "[]")], order_by=("created_at", "backfill_id"))
    children: dict[str, list[dict[str, Any]]] = {}
    for row in found:
        for parent in shown_column(row, "parents_json") or []:
            children.setdefault(parent, []).append(_short(row))
    return children


def parents_of(store: Store, found: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The backfills that this one waits for, in the same form."""
    ids = tuple(found["parents"])
    rows = store.read(Backfill, [Condition("backfill_id", "in", ids)], order_by=("created_at",)) if ids else []
    return [_short(row) for row in rows]


def _short(row: Backfill) -> dict[str, Any]:
    return {"backfill_id": row.backfill_id, "dag_id": row.dag_id, "state": row.state}
