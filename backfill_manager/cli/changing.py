"""`bfm backfill set`: what can be refused without the manager, is."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from backfill_manager.cli.answers import tell_answer
from backfill_manager.cli.call import Call
from backfill_manager.errors import InvalidInput
from backfill_manager.requests.json_values import conf_of, settings_of
from backfill_manager.views.payloads import going_on

OPTIONS: Final = (
    "--max-active-runs, --priority, --pool, --batch, --stop-on-failure, --window, --polite, --tasks, --mark-success, "
    "--set, --conf"
)


def change_backfill(call: Call, id: str, changes: dict[str, Any], *, settings: Sequence[str], conf: str | None) -> None:
    """`changes` are the settings that were named; of `settings` (NAME=VALUE) those that were made before stay."""
    found = call.source.backfill(id)
    going_on(found, "change", end=" any more.")
    if settings:
        changes["overrides"] = {**found["overrides"], **settings_of(settings)}
    if conf is not None:
        changes["conf"] = conf_of(conf)
    if not changes:
        raise InvalidInput(f"Nothing to change was named; there are {OPTIONS}.")
    backfill_id = found["backfill_id"]
    request = call.source.change_backfill(found, changes)
    tell_answer(call, request, f"Change backfill {backfill_id}", backfill_id=backfill_id)
