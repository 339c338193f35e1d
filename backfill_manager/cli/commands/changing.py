"""`bfm backfill set`: what can be refused without the manager, is."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from backfill_manager.cli.context import CliContext
from backfill_manager.cli.render.response import print_response
from backfill_manager.errors import InvalidInput
from backfill_manager.requests.json_input import parse_conf, parse_overrides
from backfill_manager.requests.validation import check_not_ended

OPTIONS: Final = (
    "--max-active-runs, --priority, --pool, --batch, --stop-on-failure, --window, --polite, --tasks, --mark-success, "
    "--set, --conf"
)


def change_backfill(
    call: CliContext, id: str, changes: dict[str, Any], *, settings: Sequence[str], conf: str | None
) -> None:
    """`changes` are the settings that were named; of `settings` (NAME=VALUE) those that were made before stay."""
    found = call.source.backfill(id)
    check_not_ended(found, "change any more")
    if settings:
        changes["overrides"] = {**found["overrides"], **parse_overrides(settings)}
    if conf is not None:
        changes["conf"] = parse_conf(conf)
    if not changes:
        raise InvalidInput(f"Nothing to change was named; there are {OPTIONS}.")
    backfill_id = found["backfill_id"]
    request = call.source.change_backfill(found, changes)
    print_response(call, request, f"Change backfill {backfill_id}", backfill_id=backfill_id)
