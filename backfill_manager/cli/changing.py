"""`bfm backfill set` and `retry`: what can be refused without the manager, is."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from backfill_manager.cli.answers import tell_answer
from backfill_manager.cli.call import Call
from backfill_manager.cli.creating import check_pool
from backfill_manager.cli.json_values import conf_of, settings_of
from backfill_manager.errors import InvalidInput, Refused
from backfill_manager.model import states
from backfill_manager.requests import asking
from backfill_manager.requests.backfills import check_changes, check_for_dag
from backfill_manager.requests.kinds import BACKFILL_RETRY, BACKFILL_SET
from backfill_manager.views.backfills import find_backfill
from backfill_manager.views.dags import spec_reader

OPTIONS: Final = (
    "--max-active-runs, --priority, --pool, --batch, --stop-on-failure, --window, --polite, --tasks, --mark-success, "
    "--set, --conf"
)


def change_backfill(call: Call, id: str, changes: dict[str, Any], *, settings: Sequence[str], conf: str | None) -> None:
    """`changes` are the settings that were named; of `settings` (NAME=VALUE) those that were made before stay."""
    found = find_backfill(call.store, id)
    backfill_id = found["backfill_id"]
    if found["state"] in states.BACKFILL_FINISHED:
        raise Refused(f"Backfill {backfill_id} has ended ({found['state']}): there is nothing to change any more.")
    if settings:
        changes["overrides"] = {**found["overrides"], **settings_of(settings)}
    if conf is not None:
        changes["conf"] = conf_of(conf)
    if not changes:
        raise InvalidInput(f"Nothing to change was named; there are {OPTIONS}.")
    check_changes(changes)
    if found["dag_version"]:  # one that waits for its plan has none yet: the manager checks the rest
        spec = spec_reader(call.store)(found["dag_id"], found["dag_version"])
        check_for_dag(changes, spec, runs_backwards=bool(found["config"].get("run_backwards")))
    if "pool" in changes:
        check_pool(call, changes["pool"])
    request = asking.ask(call.store, call.clock, BACKFILL_SET, {"backfill_id": backfill_id, "changes": changes})
    tell_answer(call, request, f"Change backfill {backfill_id}", backfill_id=backfill_id)


def retry_backfill(call: Call, id: str) -> None:
    found = find_backfill(call.store, id)
    backfill_id = found["backfill_id"]
    if found["state"] not in states.BACKFILL_FINISHED:
        raise Refused(
            f"Backfill {backfill_id} is {found['state']}: only one that has ended is retried. "
            f"`bfm backfill watch {backfill_id}` waits for its end."
        )
    if found["state"] == states.SUCCESS:
        raise Refused(f"Backfill {backfill_id} has no failed item: there is nothing to retry.")
    request = asking.ask(call.store, call.clock, BACKFILL_RETRY, {"backfill_id": backfill_id})
    tell_answer(call, request, f"Retry backfill {backfill_id}", backfill_id=backfill_id)
