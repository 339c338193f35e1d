"""*New backfill*: the form, its dry run and the submission; and *Settings* of a backfill: what can be changed while it runs, and
conflicting edits.

The dry run is that of `bfm backfill create --dry-run`. The browser sends the form a moment after the last
change and drops outdated ones; without scripts there is a button.

The settings form carries the version it was drawn from (`SettingsNow.version`) and the values of then. If someone has changed a
setting since, nothing is submitted: the page shows the typed text and both values side by side; submitting that page decides.

Two simultaneous submissions, neither of which sees the other's request, are distinguished by the manager: the request holds the
expected value of each setting (`was`), and the second one is refused.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Final

from fastapi import Query
from starlette.concurrency import run_in_threadpool
from starlette.responses import Response

from backfill_manager import humanise
from backfill_manager.dags.definition import DagSpec
from backfill_manager.errors import InvalidInput, NotFound, Refused, StateError
from backfill_manager.model.records import Pool
from backfill_manager.model.states import BACKFILL_FINISHED, SCHEDULED_RUN
from backfill_manager.planning.backfills.backfill_range import with_defaults
from backfill_manager.queries.backfill_settings import SettingsNow, options_to_copy, settings_now
from backfill_manager.queries.dags import current_dag, current_dags, params_of
from backfill_manager.queries.dry_run import plan_shown
from backfill_manager.queries.managers import has_active_manager
from backfill_manager.requests.checked_payloads import changed_backfill, new_backfill
from backfill_manager.requests.submit import id_from
from backfill_manager.schemas.backfill_options import CreateBackfill
from backfill_manager.schemas.params import example_conf, list_params
from backfill_manager.schemas.request_kinds import BACKFILL_CREATE, BACKFILL_DRY_RUN, BACKFILL_SET
from backfill_manager.store.base import Store
from backfill_manager.web.filters import plain_day
from backfill_manager.web.links import PathId, to
from backfill_manager.web.page import (
    OperatorContext,
    PageContext,
    ViewerContext,
    message_of,
    once_key,
    page_router,
    redirect,
)
from backfill_manager.web.pages import form_fields as f
from backfill_manager.web.pages.backfills import find, map_json

router: Final = page_router()

PLAN_TIMEOUT_S: Final = 20.0
MAX_LIVE_ITEMS: Final = 50_000  # larger plans are made only when the button is pressed


@dataclass
class SubmittedForm:
    """The form as submitted. `command` and `payload` are None while there are `errors`."""

    dag: DagSpec
    typed: f.Typed
    errors: f.Errors = field(default_factory=dict)
    command: CreateBackfill | None = None
    payload: dict[str, Any] | None = None


@router.get("/backfills/new")
def new_backfill_form(
    context: ViewerContext, dag: Annotated[str, Query(max_length=250)] = "",
    copy: Annotated[str, Query(max_length=250)] = "",
) -> Response:  # fmt: skip
    """`copy`: the backfill whose options and settings it begins with."""
    if copy:
        found, current = _backfill_and_settings(context, copy)
        copied = current_dag(context.store, found["dag_id"])[1]
        typed = f.typed_of_copy(
            options_to_copy(context.store, found), current.shown, copied, context.field_zone(copied.timezone)
        )
        return new_backfill_page(context, copied, typed, copied=found["backfill_id"])
    spec = current_dag(context.store, dag)[1] if dag else None
    return new_backfill_page(
        context,
        spec,
        f.typed_of(context.request.query_params, spec, context.field_zone(spec.timezone if spec else "UTC")),
    )


@router.post("/backfills/new")
async def submit_form(context: OperatorContext) -> Response:
    form = await f.form_of(context.request)
    submitted = await run_in_threadpool(_read, context, form)
    copied = form.get("copied", "")
    if form.get("do") == "create" and submitted.payload is not None:
        return await _create(context, submitted, submitted.payload["ask"], once=form.get("once", ""), copied=copied)
    plan = None
    if form.get("do") != "create" and submitted.payload and not form.get("quick"):
        plan = await _plan(context, submitted)
    status = 422 if submitted.errors and form.get("do") in ("create", "dry_run") else 200
    return await run_in_threadpool(
        new_backfill_page,
        context,
        submitted.dag,
        submitted.typed,
        errors=submitted.errors,
        plan=plan,
        status=status,
        copied=copied,
    )  # fmt: skip


@router.post("/backfills/new/dry-run")
async def dry_run(context: OperatorContext) -> Response:
    """The fragment beside the form."""
    form = await f.form_of(context.request)
    submitted = await run_in_threadpool(_read, context, form)
    plan = await _plan(context, submitted, is_live=form.get("do") != "dry_run") if submitted.payload else None
    return await run_in_threadpool(
        context.page, "backfills/dry_run.html", errors=submitted.errors, plan=plan, zone=submitted.dag.timezone,
        inputs=f.INPUTS,
    )  # fmt: skip


def _read(context: PageContext, form: Mapping[str, str]) -> SubmittedForm:
    if not form.get("dag"):
        raise InvalidInput("Select a DAG first.")
    _, dag = current_dag(context.store, form["dag"])
    zone = context.field_zone(dag.timezone)
    submitted = SubmittedForm(dag, f.typed_of(form, dag, zone))
    command = f.read_form(submitted.typed, dag, submitted.errors, zone)
    if form.get("do") == "create" and f.lacks_range(submitted.typed):
        submitted.errors["start_date"] = "Choose a range: type one of its ends at least."
    if command is None or submitted.errors:
        return submitted
    if copied := form.get("copied"):
        found, current = _backfill_and_settings(context, copied)
        if found["dag_id"] == dag.dag_id:  # secrets stay with their DAG
            command = command.evolve(conf=current.unmasked({"conf": command.conf})["conf"])
    app, clock = context.app, context.app.clock
    try:
        submitted.payload = new_backfill(
            context.store, app.settings, command, clock.new_id(), clock.now(), typed=f.typed_range(submitted.typed)
        )
        submitted.command = command
    except StateError:
        raise
    except (InvalidInput, NotFound) as error:
        f.add_error(submitted.errors, error)
    return submitted


async def _create(
    context: PageContext, submitted: SubmittedForm, ask: Mapping[str, Any], *, once: str, copied: str
) -> Response:
    """Submitted twice, the same form creates one backfill."""
    sent = await context.request_change(
        BACKFILL_CREATE, lambda request_id: {"backfill_id": id_from(request_id), "ask": ask},
        idempotency_key=once_key(once, submitted.typed),
    )  # fmt: skip
    if sent.refusal:
        errors = {"": message_of(sent.refusal)}
        return await run_in_threadpool(
            new_backfill_page, context, submitted.dag, submitted.typed, errors=errors, status=409, copied=copied
        )
    request_id = sent.request.request_id
    return redirect(to("backfills", id_from(request_id), request_id=request_id))


async def _plan(context: PageContext, submitted: SubmittedForm, *, is_live: bool = False) -> dict[str, Any]:
    """What the dry run shows. `is`: plan, no_manager, slow, large or refused."""
    assert submitted.command is not None and submitted.payload is not None
    now, dag = context.app.clock.now(), submitted.dag
    config = with_defaults(submitted.command, dag, now).config()
    about = await run_in_threadpool(f.estimated_items, submitted.command, dag, now)
    zone = context.chosen_zone or dag.timezone
    base = {
        "what": humanise.backfill_config(config, lambda at: plain_day(at, zone)), "about": about,
        "dag_id": dag.dag_id, "timeout_s": PLAN_TIMEOUT_S,
    }  # fmt: skip
    if not await run_in_threadpool(has_active_manager, context.store, now):
        return {"is": "no_manager", **base}
    if is_live and about > MAX_LIVE_ITEMS:
        return {"is": "large", **base}
    sent = await context.request_change(BACKFILL_DRY_RUN, submitted.payload, timeout_s=PLAN_TIMEOUT_S)
    if sent.answer is None:
        return {"is": "slow", **base}
    if sent.refusal:
        return {"is": "refused", **base, "message": message_of(sent.refusal)}

    def shown(document: str) -> dict[str, Any]:
        plan = plan_shown(json.loads(document))
        drawn = None if plan["map"] is None else map_json(plan["map"], zone)
        pools = [row.name for row in context.store.read(Pool)]
        return {"is": "plan", **base, **plan, "json": drawn, "pools": pools}

    return await run_in_threadpool(shown, sent.answer.payload_json or "{}")


def new_backfill_page(
    context: PageContext, dag: DagSpec | None, typed: f.Typed, *, errors: f.Errors | None = None,
    plan: Mapping[str, Any] | None = None, status: int = 200, copied: str = "",
) -> Response:  # fmt: skip
    """`copied`: the backfill that the form began with. Its secrets are masked in the form, and taken from it when it is sent."""
    dags = context.app.cached_by_version(["dag", "dag_version"], "ui:current-dags", lambda: current_dags(context.store))
    errors = errors or {}
    own = dag.timezone if dag else "UTC"
    params = params_of(dag) if dag else {"params": {}, "declared_params": {}}
    return context.page(
        "backfills/new.html", status=status, params=list_params(**params), example_conf=example_conf(**params),
        more=[f.SETTINGS[name] for name in f.MORE_OPTIONS],
        is_more_open=any(name in errors or typed[name] != f.DEFAULTS[name] for name in f.MORE_OPTIONS)
        or any(one["is_required"] for one in params["declared_params"].values()),
        dag=dag, dags=[spec for spec, _ in dags.values()], typed=typed, errors=errors, plan=plan, kinds=f.KINDS,
        reprocess=f.REPROCESS, by=f.BY, checkboxes=f.CHECKBOXES, fields=f.FORM_FIELDS, pools=_pool_choices(context.store),
        quick=f.quick_ranges(dag, context.now, context.field_zone(own)) if dag else [], zone=own, inputs=f.INPUTS,
        field_zone=context.field_zone(own),
        once=secrets.token_hex(8), copied=copied,
    )  # fmt: skip


@router.get("/backfills/{backfill_id}/settings")
def settings_form(context: ViewerContext, backfill_id: PathId) -> Response:
    backfill, current = _backfill_and_settings(context, backfill_id)
    return _form(context, backfill, current, {name: f.as_typed(name, value) for name, value in current.shown.items()})


@router.get("/backfills/{backfill_id}/settings/notice")
def notice(context: ViewerContext, backfill_id: PathId, drawn: Annotated[str, Query(max_length=2000)] = "") -> Response:
    """For an open form: whether someone has changed the settings since it was drawn."""
    _, current = _backfill_and_settings(context, backfill_id)
    is_stale = bool(drawn) and drawn != _version(current)
    return context.page("backfills/settings_notice.html", current=current, drawn=drawn, is_stale=is_stale)


@router.post("/backfills/{backfill_id}/settings")
async def save(context: OperatorContext, backfill_id: PathId) -> Response:
    form = await f.form_of(context.request)
    typed: f.Typed = {name: form.get(name, "") for name in f.SETTINGS}
    errors: f.Errors = {}
    values = f.read_settings(typed, errors)
    backfill, current = await run_in_threadpool(_backfill_and_settings, context, backfill_id)
    is_outdated = form.get("version", "") != current.version
    conflicts = _merge(typed, values, _drawn_values(form.get("drawn", "")), current) if is_outdated else []
    if errors or conflicts:
        status = 422 if errors else 409
        return await run_in_threadpool(_form, context, backfill, current, typed, errors, conflicts, status)
    expected = current.values
    changes = {name: value for name, value in current.unmasked(values).items() if value != expected[name]}
    if not changes:
        return redirect(to("backfills", backfill["backfill_id"]))
    was, shown = {name: expected[name] for name in changes}, current.shown
    try:
        sent = await context.request_change(
            BACKFILL_SET, lambda _: changed_backfill(context.store, context.app.settings, backfill, changes, was)
        )
        if sent.refusal:
            raise sent.refusal
    except StateError:
        raise
    except (InvalidInput, NotFound, Refused) as error:
        f.add_error(errors, error)
        status = 409 if isinstance(error, Refused) else 422
        # There may be a new conflict.
        backfill, current = await run_in_threadpool(_backfill_and_settings, context, backfill_id)
        conflicts = _merge(typed, values, shown, current)
        return await run_in_threadpool(_form, context, backfill, current, typed, errors, conflicts, status)
    return redirect(to("backfills", backfill["backfill_id"], request_id=sent.request.request_id))


def _pool_choices(store: Store) -> list[str]:
    return [row.name for row in store.read(Pool, order_by=("name",)) if row.name != SCHEDULED_RUN] or ["backfill"]


def _backfill_and_settings(context: PageContext, backfill_id: str) -> tuple[dict[str, Any], SettingsNow]:
    backfill = find(context, backfill_id)
    return backfill, settings_now(context.store, backfill)


def _drawn_values(text: str) -> dict[str, Any]:
    """The values that the form was drawn with. A form that was tampered with has none: nothing conflicts."""
    try:
        values = json.loads(text)
    except (ValueError, RecursionError):
        values = None
    drawn = values.items() if isinstance(values, dict) else ()
    return {name: value for name, value in drawn if name not in ("conf", "overrides") or isinstance(value, dict)}


def _version(current: SettingsNow) -> str:
    return current.version or "-"  # never changed


def _merge(
    typed: f.Typed, values: Mapping[str, Any], drawn: Mapping[str, Any], current: SettingsNow
) -> list[dict[str, Any]]:
    """For each setting that someone else changed: the value when the form was drawn (`expected`), now, and as typed here
    (`values` as read). A field that was left as it came takes the current value, in `typed` too."""
    changed, shown = current.differing(drawn), current.shown
    untouched = [name for name in changed if name in values and values[name] == drawn[name]]
    conflicts = [
        {
            "label": f.SETTINGS[name].label, "expected": f.as_typed(name, drawn[name]),
            "now": f.as_typed(name, shown[name]), "yours": typed[name], "is_untouched": name in untouched,
        }
        for name in changed
    ]  # fmt: skip
    typed |= {name: f.as_typed(name, shown[name]) for name in untouched}
    return conflicts


def _form(
    context: PageContext, backfill: Mapping[str, Any], current: SettingsNow, typed: f.Typed,
    errors: f.Errors | None = None, conflicts: list[dict[str, Any]] | None = None, status: int = 200,
) -> Response:  # fmt: skip
    return context.page(
        "backfills/settings.html", status=status, b=backfill, current=current, typed=typed, errors=errors or {},
        conflicts=conflicts or [], fields=f.SETTINGS, pools=_pool_choices(context.store), drawn=_version(current),
        is_stale=False, drawn_values=json.dumps(current.shown, sort_keys=True),
        has_ended=backfill["state"] in BACKFILL_FINISHED,
    )  # fmt: skip
