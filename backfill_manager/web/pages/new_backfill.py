"""*New backfill*: the form, its preview and the submission.

The preview is the manager's dry run, as of `bfm backfill create --dry-run`. The browser sends the form a moment after the last
change and drops outdated previews; without scripts there is a button.
"""

from __future__ import annotations

import hashlib
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
from backfill_manager.errors import InvalidInput, NotFound, StateError
from backfill_manager.planning.backfill_range import with_defaults
from backfill_manager.queries.dags import current_dag, current_dags
from backfill_manager.queries.managers import has_active_manager
from backfill_manager.queries.plan_preview import plan_shown
from backfill_manager.requests.submit import id_from
from backfill_manager.requests.validation import new_backfill
from backfill_manager.schemas.commands import CreateBackfill
from backfill_manager.schemas.errors import refusal
from backfill_manager.schemas.kinds import BACKFILL_CREATE, BACKFILL_DRY_RUN, REFUSED
from backfill_manager.web import links
from backfill_manager.web.filters import plain_day
from backfill_manager.web.page import OperatorContext, PageContext, ViewerContext, message_of, page_router, redirect
from backfill_manager.web.pages.backfill_form import (
    CHECKBOXES,
    DEFAULTS,
    INPUTS,
    MORE_OPTIONS,
    PLAIN_DAY,
    estimated_items,
    quick_ranges,
    read_form,
    typed_of,
)
from backfill_manager.web.pages.backfill_update_form import pool_choices
from backfill_manager.web.pages.backfills import map_json
from backfill_manager.web.pages.form_fields import (
    FORM_FIELDS,
    KINDS,
    REPROCESS,
    SETTINGS,
    Errors,
    Typed,
    add_error,
    form_of,
)

router: Final = page_router()

PLAN_TIMEOUT_S: Final = 20.0
MAX_LIVE_ITEMS: Final = 50_000  # larger plans are previewed only when the button is pressed


@dataclass
class SubmittedForm:
    """The form as submitted. `command` and `payload` are None while there are `errors`."""

    dag: DagSpec
    typed: Typed
    errors: Errors = field(default_factory=dict)
    command: CreateBackfill | None = None
    payload: dict[str, Any] | None = None


@router.get("/backfills/new")
def new_backfill_form(context: ViewerContext, dag: Annotated[str, Query(max_length=250)] = "") -> Response:
    spec = current_dag(context.store, dag)[1] if dag else None
    return _page(context, spec, typed_of(context.request.query_params, spec))


@router.post("/backfills/new")
async def submit_form(context: OperatorContext) -> Response:
    form = await form_of(context.request)
    submitted = await run_in_threadpool(_read, context, form)
    if form.get("do") == "create" and submitted.payload is not None:
        return await _create(context, submitted, submitted.payload["ask"], once=form.get("once", ""))
    plan = None
    if form.get("do") != "create" and submitted.payload and not form.get("quick"):
        plan = await _plan(context, submitted)
    status = 422 if submitted.errors and form.get("do") in ("create", "preview") else 200
    return await run_in_threadpool(
        _page, context, submitted.dag, submitted.typed, errors=submitted.errors, plan=plan, status=status
    )


@router.post("/backfills/new/preview")
async def preview(context: OperatorContext) -> Response:
    """The fragment beside the form."""
    form = await form_of(context.request)
    submitted = await run_in_threadpool(_read, context, form)
    plan = await _plan(context, submitted, is_live=form.get("do") != "preview") if submitted.payload else None
    return await run_in_threadpool(
        context.page, "backfills/preview.html", errors=submitted.errors, plan=plan, zone=submitted.dag.timezone,
        inputs=INPUTS,
    )  # fmt: skip


def _read(context: PageContext, form: Mapping[str, str]) -> SubmittedForm:
    if not form.get("dag"):
        raise InvalidInput("Select a DAG first.")
    _, dag = current_dag(context.store, form["dag"])
    submitted = SubmittedForm(dag, typed_of(form, dag))
    command = read_form(submitted.typed, dag, submitted.errors)
    if command is None:
        return submitted
    app = context.app
    try:
        submitted.payload = new_backfill(context.store, app.settings, command, app.clock.new_id(), app.clock.now())
        submitted.command = command
    except StateError:
        raise
    except (InvalidInput, NotFound) as error:
        add_error(submitted.errors, error)
    return submitted


async def _create(context: PageContext, submitted: SubmittedForm, ask: Mapping[str, Any], *, once: str) -> Response:
    """Submitted twice, the same form creates one backfill: `once` is unique per form."""
    digest = hashlib.sha256(json.dumps(ask, sort_keys=True).encode()).hexdigest()[:16]
    sent = await context.request_change(
        BACKFILL_CREATE, lambda request_id: {"backfill_id": id_from(request_id), "ask": ask},
        idempotency_key=f"ui:{once or secrets.token_hex(8)}:{digest}",
    )  # fmt: skip
    if sent.answer is not None and sent.answer.outcome == REFUSED:
        errors = {"": message_of(refusal(sent.answer))}
        return await run_in_threadpool(_page, context, submitted.dag, submitted.typed, errors=errors, status=409)
    return redirect(links.to("backfills", id_from(sent.request_id), request_id=sent.request_id))


async def _plan(context: PageContext, submitted: SubmittedForm, *, is_live: bool = False) -> dict[str, Any]:
    """What the preview shows. `is`: plan, no_manager, slow, large or refused."""
    assert submitted.command is not None and submitted.payload is not None
    now, dag = context.app.clock.now(), submitted.dag
    config = with_defaults(submitted.command, dag, now).config()
    about = await run_in_threadpool(estimated_items, submitted.command, dag, now)
    base = {
        "what": humanise.backfill_config(config, lambda at: plain_day(at, dag.timezone)), "about": about,
        "dag_id": dag.dag_id, "timeout_s": PLAN_TIMEOUT_S,
    }  # fmt: skip
    if not await run_in_threadpool(has_active_manager, context.store, now):
        return {"is": "no_manager", **base}
    if is_live and about > MAX_LIVE_ITEMS:
        return {"is": "large", **base}
    sent = await context.request_change(BACKFILL_DRY_RUN, submitted.payload, timeout_s=PLAN_TIMEOUT_S)
    if sent.answer is None:
        return {"is": "slow", **base}
    if sent.answer.outcome == REFUSED:
        return {"is": "refused", **base, "message": message_of(refusal(sent.answer))}

    def shown(document: str) -> dict[str, Any]:
        plan = plan_shown(json.loads(document))
        drawn = None if plan["map"] is None else map_json(plan["map"], dag.timezone)
        return {"is": "plan", **base, **plan, "json": drawn}

    return await run_in_threadpool(shown, sent.answer.payload_json or "{}")


def _page(
    context: PageContext,
    dag: DagSpec | None,
    typed: Typed,
    *,
    errors: Errors | None = None,
    plan: Mapping[str, Any] | None = None,
    status: int = 200,
) -> Response:
    dags = context.app.cached_by_version(["dag", "dag_version"], "ui:current-dags", lambda: current_dags(context.store))
    errors = errors or {}
    return context.page(
        "backfills/new.html", status=status, more=[SETTINGS[name] for name in MORE_OPTIONS],
        is_more_open=any(name in errors or typed[name] != DEFAULTS[name] for name in MORE_OPTIONS),
        dag=dag, dags=[spec for spec, _ in dags.values()], typed=typed,
        errors=errors, plan=plan, kinds=KINDS, reprocess=REPROCESS, checkboxes=CHECKBOXES, fields=FORM_FIELDS,
        pools=pool_choices(context.store), quick=quick_ranges(dag, context.now) if dag else [],
        zone=dag.timezone if dag else "UTC", once=secrets.token_hex(8), is_plain_day=PLAIN_DAY.fullmatch, inputs=INPUTS,
    )  # fmt: skip
