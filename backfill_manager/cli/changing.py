"""`bfm backfill set` and `retry`: what can be refused without the manager, is."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from backfill_manager.cli.answers import tell_answer
from backfill_manager.cli.call import Call
from backfill_manager.requests.json_values import conf_of, settings_of
from backfill_manager.errors import InvalidInput
from backfill_manager.requests import asking
from backfill_manager.requests.kinds import BACKFILL_RETRY, BACKFILL_SET
from backfill_manager.views.backfills import find_backfill
from backfill_manager.views.payloads import changed_backfill, going_on, retried_backfill

OPTIONS: Final = (
    "--max-active-runs, --priority, --pool, --batch, --stop-on-failure, --window, --polite, --tasks, --mark-success, "
    "--set, --conf"
)


def change_backfill(call: Call, id: str, changes: dict[str, Any], *, settings: Sequence[str], conf: str | None) -> None:
    """`changes` are the settings that were named; of `settings` (NAME=VALUE) those that were made before stay."""
    found = find_backfill(call.store, id)
    going_on(found, "change", end=" any more.")
    if settings:
        changes["overrides"] = {**found["overrides"], **settings_of(settings)}
    if conf is not None:
        changes["conf"] = conf_of(conf)
    if not changes:
        raise InvalidInput(f"Nothing to change was named; there are {OPTIONS}.")
    payload = changed_backfill(call.store, call.settings, found, changes)
    backfill_id = found["backfill_id"]
    request = asking.ask(call.store, call.clock, BACKFILL_SET, payload)
    tell_answer(call, request, f"Change backfill {backfill_id}", backfill_id=backfill_id)


def retry_backfill(call: Call, id: str) -> None:
    found = find_backfill(call.store, id)
    request = asking.ask(call.store, call.clock, BACKFILL_RETRY, retried_backfill(found))
    backfill_id = found["backfill_id"]
    tell_answer(call, request, f"Retry backfill {backfill_id}", backfill_id=backfill_id)
