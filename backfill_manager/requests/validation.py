"""What can be asked of a thing that is there: the payload of the request, or at once the reason why not.

Command line, API and pages call these before they ask; the manager looks once more when it reads the request.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from backfill_manager.clock import format_instant
from backfill_manager.dags.schedule.timetable import parse_date
from backfill_manager.errors import InvalidInput, NotFound, Refused, RunOfSeveralDags
from backfill_manager.model import states
from backfill_manager.model.records import DagRun, Pool
from backfill_manager.queries.bundles import find_bundle, list_bundles
from backfill_manager.queries.dags import all_dags, current_dag, spec_reader
from backfill_manager.queries.runs import find_run
from backfill_manager.queries.tasks import find_task_instance
from backfill_manager.requests.backfills import (
    CHECKED_TOGETHER,
    CreateBackfill,
    check,
    check_changes,
    check_expected,
    check_for_dag,
    check_pools,
)
from backfill_manager.requests.clearing import ClearTasks
from backfill_manager.requests.json_input import too_large
from backfill_manager.requests.triggering import check_logical_date
from backfill_manager.settings import Settings
from backfill_manager.store.base import Store

Payload = dict[str, Any]


def _pools(store: Store, settings: Settings) -> list[str]:
    """Their names, as the manager has them, or as it will when it starts for the first time."""
    return [row.name for row in store.read(Pool)] or [pool.name for pool in settings.pools]


def new_backfill(store: Store, settings: Settings, ask: CreateBackfill, backfill_id: str, now: datetime) -> Payload:
    """Of `backfill.create` and `backfill.dry_run`: in order as far as can be told without Spark."""
    _, dag = current_dag(store, ask.dag_id)
    check(ask, dag, now)
    check_pools(ask.pool, ask.overrides, _pools(store, settings))
    return {"backfill_id": backfill_id, "ask": json.loads(ask.with_settled_ends(dag, now).to_payload())}


def changed_backfill(
    store: Store,
    settings: Settings,
    found: Mapping[str, Any],
    changes: dict[str, Any],
    was: dict[str, Any] | None = None,
) -> Payload:
    """Of `backfill.set`. `found`: the backfill as `queries.backfills` tells it. `was`: settings that are to be changed, as
    the asker saw them; whether they still are so is for the manager, who may have others' changes to make before."""
    going_on(found, "change", end=" any more.")
    check_changes(changes)
    check_expected(was or {}, changes)
    if found["dag_version"]:  # one that waits for its plan has none yet: the manager checks the rest
        spec = spec_reader(store)(found["dag_id"], found["dag_version"])
        standing = {name: found[name] for name in CHECKED_TOGETHER}
        backwards = bool(found["config"].get("run_backwards"))
        check_for_dag(changes, spec, standing, runs_backwards=backwards, reprocess=found["reprocess"])
    check_pools(changes.get("pool"), changes.get("overrides", {}), _pools(store, settings))
    about = {"backfill_id": found["backfill_id"], "changes": changes}
    return {**about, "was": was} if was else about


def going_on(found: Mapping[str, Any], verb: str, *, end: str = ".") -> Payload:
    """Of pause, unpause and cancel: `Refused` for a backfill that has ended."""
    backfill_id = found["backfill_id"]
    if found["state"] in states.BACKFILL_FINISHED:
        raise Refused(f"Backfill {backfill_id} has ended ({found['state']}): there is nothing to {verb}{end}")
    return {"backfill_id": backfill_id}


def retried_backfill(found: Mapping[str, Any]) -> Payload:
    backfill_id = found["backfill_id"]
    if found["state"] not in states.BACKFILL_FINISHED:
        raise Refused(
            f"Backfill {backfill_id} is {found['state']}: only one that has ended is retried. "
            f"`bfm backfill watch {backfill_id}` waits for its end."
        )
    if found["state"] == states.SUCCESS:
        raise Refused(f"Backfill {backfill_id} has no failed item: there is nothing to retry.")
    return {"backfill_id": backfill_id}


def known_bundle(store: Store, settings: Settings, name: str) -> str:
    """`NotFound` for a bundle that is neither configured here nor known to the state."""
    found: str = find_bundle(list_bundles(store, settings.bundles), name)["name"]
    return found


def triggered_dag(
    store: Store,
    dag_id: str,
    logical_date: str | None,
    conf: dict[str, Any],
    now: datetime,
    *,
    allow_future: bool = False,
) -> Payload:
    """`logical_date` as a person writes it, in the DAG's zone; None: the manager chooses the latest complete interval. One
    in the future is refused unless `allow_future` says otherwise."""
    _, spec = current_dag(store, dag_id)
    at = None if logical_date is None else parse_date(logical_date, spec.timezone, name="--logical-date")
    if wrong := too_large(conf):
        raise InvalidInput(f"--conf {wrong}")
    check_logical_date(at, now, allow_future=allow_future)
    about = {"dag_id": dag_id, "logical_date": format_instant(at), "conf": conf}
    return {**about, "allow_future": True} if allow_future else about


def cancelled_run(run: DagRun) -> Payload:
    if run.state in states.RUN_FINISHED:
        raise Refused(f"Run {run.run_id} of {run.dag_id} has ended ({run.state}): there is nothing to cancel.")
    return {"dag_id": run.dag_id, "run_id": run.run_id}


def marked_run(run: DagRun, state: str) -> Payload:
    _refuse_overridden(run)
    return {"dag_id": run.dag_id, "run_id": run.run_id, "state": state}


def marked_task(store: Store, run: DagRun, task_id: str, state: str) -> Payload:
    _refuse_overridden(run)
    find_task_instance(store, run, task_id)
    return {"dag_id": run.dag_id, "run_id": run.run_id, "task_id": task_id, "state": state}


def _refuse_overridden(run: DagRun) -> None:
    if run.state == states.OVERRIDDEN:
        raise Refused(
            f"Run {run.run_id} was overridden and is kept as it was; the run that stands there is {run.overridden_by}."
        )


def with_whole_run_ids(store: Store, ask: ClearTasks) -> ClearTasks:
    """Runs may be named as everywhere: by a beginning, a logical date, or `latest`."""
    if not ask.run_ids:
        return ask
    dag_id = None if ask.is_regex else ask.dag
    if dag_id is not None and dag_id not in (known := all_dags(store)):
        raise NotFound("DAG", dag_id, known, hint="; see `bfm dags list`.")
    ids = (_whole_run_id(store, one, dag_id) for one in ask.run_ids)
    return dataclasses.replace(ask, run_ids=tuple(dict.fromkeys(ids)))


def _whole_run_id(store: Store, wanted: str, dag_id: str | None) -> str:
    """Without a DAG (several are chosen by an expression), an id means the run of each of them that has it."""
    try:
        run = find_run(store, wanted, dag_id=dag_id)
    except RunOfSeveralDags as error:
        ids = {run_id for _, run_id in error.found}
        if dag_id is None and len(ids) == 1:
            return ids.pop()
        raise
    if dag_id is None and wanted.startswith(f"{run.dag_id}/") and not run.run_id.startswith(wanted):
        raise InvalidInput(
            f"--run {wanted} names a DAG, and --dag-regex chooses others beside it; clear {run.dag_id} by its id."
        )
    return run.run_id


def set_pool(store: Store, name: str, *, slots: int | None, weight: int | None, min_share: int | None) -> Payload:
    """What is None stays as it is."""
    known = {row.name: row for row in store.read(Pool)}
    if name not in known:
        raise NotFound(
            "pool", name, known, hint="; a new one is made in conf/manager.yaml, for the manager's next start."
        )
    now = known[name]
    return {
        "name": name,
        "slots": now.slots if slots is None else slots,
        "weight": now.weight if weight is None else weight,
        "min_share": now.min_share if min_share is None else min_share,
    }
