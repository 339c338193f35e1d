"""Bundles, as the manager last read them."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, Final

from backfill_manager.errors import NotFound
from backfill_manager.model.records import BundleRow
from backfill_manager.model.stored_json import shown_column
from backfill_manager.queries.documents import document
from backfill_manager.settings import BundleSettings
from backfill_manager.store.base import Condition, Store

_FROM_ROW: Final = ("commit_id", "content_hash", "refreshed_at", "parsed_at")
_NEVER_READ: Final = SimpleNamespace(**dict.fromkeys(_FROM_ROW))


def list_bundles(store: Store, configured: list[BundleSettings]) -> list[dict[str, Any]]:
    """Those that were read, and those that are configured; `dags` counts active ones, `errors` files that can't be read."""
    dags = store.count("dag", ("bundle",), [Condition("is_active", "=", True)])
    errors = store.count("import_error", ("bundle",), [Condition("is_current", "=", True)])
    rows = {row.name: row for row in store.read(BundleRow)}
    here = {bundle.name: bundle for bundle in configured}
    found = []
    for name in sorted({*rows, *here}):
        row, settings = rows.get(name), here.get(name)
        found.append({
            "name": name,
            "path": settings.place if settings else row.path if row else "",
            "parser": row.parser if row else settings.parser if settings else "",
            "is_configured": settings is not None, "dags": dags.get((name,), 0), "errors": errors.get((name,), 0),
            **document(_FROM_ROW, row or _NEVER_READ),
            "settings": _settings(row, settings),
        })  # fmt: skip
    return found


def _settings(row: BundleRow | None, settings: BundleSettings | None) -> dict[str, Any] | None:
    """How it is read: as the manager last found in configuration and manifest together; before that, as it is configured
    here, without the parser's own options, of which only the parser knows which are secret."""
    found: dict[str, Any] | None = shown_column(row, "settings_json") if row is not None else None
    if found:
        return found
    return settings.model_copy(update={"options": {}}).shown() if settings else None


def find_bundle(bundles: list[dict[str, Any]], name: str) -> dict[str, Any]:
    """`NotFound` when there is none of that name."""
    found = next((one for one in bundles if one["name"] == name), None)
    if found is None:
        raise NotFound("bundle", name, [one["name"] for one in bundles], hint="see_bundles")
    return found
