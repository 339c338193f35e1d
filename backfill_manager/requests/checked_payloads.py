"""The payload of a request, or at once the reason why it would be refused.

The CLI, the API and the pages call these before they send a request; the manager checks once more when it reads it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, TypeVar

from backfill_manager.clock import format_instant
from backfill_manager.dags.definition import DagSpec
from backfill_manager.dags.run_params import check_conf
from backfill_manager.dags.schedule.timetable import parse_date
from backfill_manager.dags.schedule.timezones import check_timezone
from backfill_manager.errors import NotFound, RunOfSeveralDags
from backfill_manager.humanise import name_list
from backfill_manager.masking import MASK, mask_text, secrets_in
from backfill_manager.model import states
from backfill_manager.model.records import DagRun, Pool
from backfill_manager.model.stored_json import read_column
from backfill_manager.planning.backfills.backfill_range import with_settled_ends
from backfill_manager.planning.runs.mark_plan import MarkPlan, plan_mark
from backfill_manager.queries.backfill_settings import settings_now
from backfill_manager.queries.backfills import find_backfill
from backfill_manager.queries.bundles import find_bundle, list_bundles
from backfill_manager.queries.dags import all_dags, current_dag, spec_reader, unknown_dag
from backfill_manager.queries.named_run import find_run
from backfill_manager.queries.tasks import find_task_instance
from backfill_manager.requests import backfill_checks
from backfill_manager.requests.backfill_copy import with_copied
from backfill_manager.requests.typed_dates import repeat_typed
from backfill_manager.schemas import errors
from backfill_manager.schemas.backfill_options import CHECKED_TOGETHER, BackfillInput, CreateBackfill
from backfill_manager.schemas.commands import ClearTasks, MarkRuns, NoteBackfill, NoteRun, RetryBackfill
from backfill_manager.schemas.json_values import check_sizes
from backfill_manager.settings import Settings
from backfill_manager.store.base import Store, matching

Payload = dict[str, Any]
Chosen = TypeVar("Chosen", ClearTasks, MarkRuns)


def pool_names(store: Store, settings: Settings) -> list[str]:
    """Their names, as the manager has them, or as it will when it starts for the first time."""
    rows = store.read(Pool) if store.exists() else []
    return [row.name for row in rows] or [pool.name for pool in settings.pools]


def _check_target(settings: Settings, name: str | None) -> None:
    """Where this configuration has targets it is taken for the manager's, which checks again."""
    if settings.notifications:
        backfill_checks.check_target(name, [target.name for target in settings.notifications])


def new_backfill(
    store: Store, settings: Settings, command: CreateBackfill, backfill_id: str, now: datetime, *,
    typed: tuple[str | None, str | None] = (None, None),
) -> Payload:  # fmt: skip
    """Of `backfill.create` and `backfill.dry_run`: checked as far as possible without Spark. `typed`: the texts of the range's
    ends, for refusals."""
    _, dag = current_dag(store, command.dag_id)
    with repeat_typed(start=(command.start_date, typed[0]), end=(command.end_date, typed[1])):
        backfill_checks.check_backfill(command, dag, now)
    _refuse_masked(command.conf)
    backfill_checks.check_pools(command.pool, command.overrides, pool_names(store, settings))
    _check_target(settings, command.notify)
    return {"backfill_id": backfill_id, "ask": with_settled_ends(command, dag, now).to_payload()}


def typed_backfill(
    store: Store, settings: Settings, values: BackfillInput, backfill_id: str, now: datetime
) -> Payload:  # fmt: skip
    """The same of what a person or a REST client has typed: dates are read in the DAG's zone."""
    values = with_copied(store, values)
    command = backfill_checks.read_backfill(values, current_dag(store, values.dag_id)[1])
    return new_backfill(store, settings, command, backfill_id, now, typed=(values.start_date, values.end_date))


def changed_backfill(
    store: Store, settings: Settings, backfill: Mapping[str, Any], changes: dict[str, Any],
    was: dict[str, Any] | None = None,
) -> Payload:  # fmt: skip
    """Of `backfill.set`. `backfill` as `queries.backfills` gives it. `was`: settings that are to be changed, as the sender
    saw them; whether they still are so is for the manager, who may have others' changes to make before."""
    check_not_ended(backfill, "change any more")
    changes = backfill_checks.as_read(changes)
    backfill_checks.check_expected(was or {}, changes)
    if "conf" in changes:
        settings_of_it = settings_now(store, backfill)
        changes, was = settings_of_it.unmasked(changes), settings_of_it.unmasked(was) if was else was
        _refuse_masked(changes["conf"])
    if backfill["dag_version"]:  # one that waits for its plan has none yet: the manager checks the rest
        spec = spec_reader(store)(backfill["dag_id"], backfill["dag_version"])
        current = {name: backfill[name] for name in CHECKED_TOGETHER}
        backwards = bool(backfill["config"].get("run_backwards"))
        backfill_checks.check_changes_for_dag(
            changes, spec, current, runs_backwards=backwards, reprocess=backfill["reprocess"]
        )
    backfill_checks.check_pools(changes.get("pool"), changes.get("overrides", {}), pool_names(store, settings))
    _check_target(settings, changes.get("notify"))
    payload = {"backfill_id": backfill["backfill_id"], "changes": changes}
    return {**payload, "was": was} if was else payload


def _refuse_masked(conf: Any) -> None:
    """`InvalidInput` where a parameter is what stands for a hidden one: it was copied from where parameters are shown."""
    below = conf.values() if isinstance(conf, dict) else conf if isinstance(conf, list) else ()
    if MASK in below:
        raise errors.MASKED_VALUE(field="conf", mask=MASK)
    for one in below:
        _refuse_masked(one)


def check_not_ended(backfill: Mapping[str, Any], action: str) -> Payload:
    """Of pause, unpause and cancel: `Refused` for a backfill that has ended."""
    backfill_id, state = backfill["backfill_id"], backfill["state"]
    if state in states.BACKFILL_FINISHED:
        raise errors.BACKFILL_ENDED(backfill_id=backfill_id, state=state, action=action)
    return {"backfill_id": backfill_id}


def previewed_backfill(backfill: Mapping[str, Any]) -> Payload:
    """Of diff, promote and discard: `Refused` for what is no preview, or none any more."""
    backfill_id, preview_id, outcome = (backfill.get(name) for name in ("backfill_id", "preview_id", "preview_outcome"))
    if preview_id is None:
        raise errors.NOT_A_PREVIEW(backfill_id=backfill_id)
    if preview_id != backfill_id:
        raise errors.PREVIEW_BELOW(backfill_id=backfill_id, preview_id=preview_id)
    if outcome is not None:
        raise errors.PREVIEW_IS_OVER(backfill_id=backfill_id, outcome=outcome)
    return {"backfill_id": backfill_id}


def reverted_backfill(backfill: Mapping[str, Any], *, dry_run: bool) -> Payload:
    backfill_id, state = backfill["backfill_id"], backfill["state"]
    if state not in states.BACKFILL_FINISHED:
        raise errors.REVERT_STILL_RUNS(what=f"Backfill {backfill_id}", state=state)
    if backfill["preview_id"] is not None and backfill["preview_outcome"] != states.PROMOTED:
        raise errors.REVERT_PREVIEW(backfill_id=backfill_id)
    return {"backfill_id": backfill_id, "dry_run": dry_run}


def retried_backfill(backfill: Mapping[str, Any], *, latest_version: bool, items: Sequence[str] = ()) -> Payload:
    """`items`: the numbers of those that are to be retried, if not all that failed."""
    backfill_id, state = backfill["backfill_id"], backfill["state"]
    command = RetryBackfill.parse({"backfill_id": backfill_id, "items": tuple(items)})
    backfill_checks.check_items(command.ordinals or (), backfill_id, backfill["planned"])
    if latest_version and state not in states.BACKFILL_FINISHED:
        raise errors.BACKFILL_KEEPS_VERSION(
            backfill_id=backfill_id, state=state, version=backfill["dag_version"], dag_id=backfill["dag_id"]
        )
    if state not in states.BACKFILL_FINISHED:
        raise errors.BACKFILL_NOT_ENDED(backfill_id=backfill_id, state=state)
    if state == states.SUCCESS:
        raise errors.NOTHING_TO_RETRY(backfill_id=backfill_id)
    return {"backfill_id": backfill_id} | ({"items": list(command.items)} if items else {})


def known_bundle(store: Store, settings: Settings, name: str) -> str:
    """`NotFound` for a bundle that is neither configured here nor known to the state."""
    bundle: str = find_bundle(list_bundles(store, settings.bundles), name)["name"]
    return bundle


def triggered_dag(
    store: Store, dag_id: str, logical_date: str | None, conf: dict[str, Any], now: datetime, *,
    partition_key: str | None = None, allow_future: bool = False,
) -> Payload:  # fmt: skip
    """`logical_date` as a person writes it, in the DAG's zone; None: the manager chooses the latest complete interval, unless
    the run is of a partition."""
    _, spec = current_dag(store, dag_id)
    at = None if logical_date is None else parse_date(logical_date, spec.timezone, name="logical_date")
    check_sizes(conf=conf)
    _refuse_masked(conf)
    check_place(at, partition_key)
    check_conf(conf, spec)
    now_there = now.astimezone(check_timezone(spec.timezone)).isoformat(timespec="seconds").replace("+00:00", "Z")
    with repeat_typed(date=(at, logical_date), now=(now, now_there)):
        check_logical_date(at, now, allow_future=allow_future)
    payload: Payload = {"dag_id": dag_id, "logical_date": format_instant(at), "conf": conf}
    payload |= {} if partition_key is None else {"partition_key": partition_key}
    return {**payload, "allow_future": True} if allow_future else payload


def task_by_hand(spec: DagSpec, task_id: str, logical_date: str, conf: dict[str, Any]) -> Payload:
    """`logical_date` as a person writes it, in the DAG's zone."""
    at = parse_date(logical_date, spec.timezone, name="T")
    check_sizes(conf=conf)
    _refuse_masked(conf)
    check_conf(conf, spec)
    payload: Payload = {"dag_id": spec.dag_id, "task_id": task_id, "logical_date": format_instant(at)}
    return {**payload, "conf": conf} if conf else payload


def check_place(logical_date: datetime | None, partition_key: str | None) -> None:
    """`InvalidInput` for a run of a date and of a partition at once, or of what is no partition key."""
    if partition_key is not None:
        if logical_date is not None:
            raise errors.DATE_AND_PARTITION()
        backfill_checks.check_partition(partition_key, "partition_key")


def check_logical_date(at: datetime | None, now: datetime, *, allow_future: bool) -> None:
    """`InvalidInput` for a date in the future, unless it is allowed."""
    if at is not None and at > now and not allow_future:
        raise errors.FUTURE_DATE(date=format_instant(at), now=format_instant(now))


def cancelled_run(run: DagRun) -> Payload:
    if run.state in states.RUN_FINISHED:
        raise errors.RUN_ENDED(run_id=run.run_id, dag_id=run.dag_id, state=run.state)
    return {"dag_id": run.dag_id, "run_id": run.run_id}


def marked_run(run: DagRun, state: str) -> Payload:
    _refuse_kept(run)
    return {"dag_id": run.dag_id, "run_id": run.run_id, "state": state}


def marked_runs(store: Store, command: MarkRuns) -> tuple[MarkRuns, MarkPlan]:
    """The command with whole ids, and what it would do."""
    command.check()
    known = with_whole_ids(store, command)
    return known, plan_mark(store, known, all_dags(store))


def marked_task(store: Store, run: DagRun, task_id: str, state: str) -> Payload:
    _refuse_kept(run)
    find_task_instance(store, run, task_id)
    return {"dag_id": run.dag_id, "run_id": run.run_id, "task_id": task_id, "state": state}


def reverted_run(run: DagRun, *, dry_run: bool) -> Payload:
    if run.state not in states.RUN_FINISHED:
        raise errors.REVERT_STILL_RUNS(what=f"Run {run.run_id}", state=run.state)
    if run.run_type == states.PREVIEW_RUN:
        raise errors.REVERT_PREVIEW(backfill_id=run.backfill_id)
    if run.reverted_at is not None:
        raise errors.ALREADY_REVERTED(what=f"Run {run.run_id}", when=f" at {format_instant(run.reverted_at)}")
    return {"dag_id": run.dag_id, "run_id": run.run_id, "dry_run": dry_run}


def noted_run(run: DagRun, text: str, was: str | None = None) -> Payload:
    """`was`: the note as the sender saw it; whether it still is so is for the manager."""
    note = NoteRun.parse({"dag_id": run.dag_id, "run_id": run.run_id, "text": text, "was": was})
    return _without_secrets(note, secrets_in(read_column(run, "conf_json")))


def noted_backfill(backfill: Mapping[str, Any], text: str, was: str | None = None) -> Payload:
    """Likewise."""
    note = NoteBackfill.parse({"backfill_id": backfill["backfill_id"], "text": text, "was": was})
    return _without_secrets(note, ())


def _without_secrets(note: NoteRun | NoteBackfill, secrets: tuple[str, ...]) -> Payload:
    """What is written to the request table. A note is refused if it is too long, whatever is masked of it."""
    masked = {name: text and mask_text(text, secrets) for name, text in (("text", note.text), ("was", note.was))}
    return {**note.to_payload(), **masked}


def _refuse_kept(run: DagRun) -> None:
    if run.state == states.OVERRIDDEN:
        raise errors.RUN_OVERRIDDEN(run_id=run.run_id, by=run.overridden_by)
    if run.reverted_at is not None:
        raise errors.RUN_REVERTED(run_id=run.run_id)


def with_whole_ids(store: Store, command: Chosen) -> Chosen:
    """Runs may be named by a prefix of their id, a logical date, a partition key, or `latest`; the backfill by a prefix, or
    `latest`."""
    if command.backfill_id is not None:
        backfill = find_backfill(store, command.backfill_id)
        backfill_checks.check_items(command.ordinals or (), backfill["backfill_id"], backfill["planned"])
        command = command.evolve(backfill_id=backfill["backfill_id"])
    if not command.run_ids:
        return command
    dag_id = None if isinstance(command, ClearTasks) and command.is_regex else command.dag_id
    if dag_id is not None and dag_id not in (known := all_dags(store)):
        raise unknown_dag(store, dag_id, known)
    whole = (
        {run.run_id for run in store.read(DagRun, matching(dag_id=dag_id, run_id=command.run_ids))} if dag_id else ()
    )
    ids = (one if one in whole else _whole_run_id(store, one, dag_id) for one in command.run_ids)
    return command.evolve(run_ids=tuple(dict.fromkeys(ids)))


def _whole_run_id(store: Store, id_or_prefix: str, dag_id: str | None) -> str:
    """Without a DAG (several are chosen by an expression), an id means the run of each of them that has it."""
    try:
        run = find_run(store, id_or_prefix, dag_id=dag_id)
    except RunOfSeveralDags as error:
        ids = {run_id for _, run_id in error.found}
        if dag_id is None and len(ids) == 1:
            return ids.pop()
        raise
    if dag_id is None and id_or_prefix.startswith(f"{run.dag_id}/") and not run.run_id.startswith(id_or_prefix):
        raise errors.RUN_NAMES_A_DAG(run=id_or_prefix, dag_id=run.dag_id)
    return run.run_id


def set_pool(
    store: Store, settings: Settings, name: str, *, slots: int | None = None, weight: int | None = None,
    min_share: int | None = None, **of_processes: Any,
) -> Payload:  # fmt: skip
    """What is None stays as it is when the manager takes it; of `memory_mb` and `nice` it means none, and what is left out
    stays."""
    names = [row.name for row in store.read(Pool)]
    if not names:
        made = f" yet: the first manager that starts makes those of its configuration ({name_list(pool_names(store, settings))})."
        raise NotFound("pool", name, hint="start_manager", more=made, field="name")
    if name not in names:
        raise NotFound("pool", name, names, hint="new_pool", field="name")
    asked = {"slots": slots, "weight": weight, "min_share": min_share}
    return {"name": name, **of_processes, **{field: to for field, to in asked.items() if to is not None}}
