"""*New backfill*: the form, its preview, which is the dry run, and the asking.

The preview asks the living manager for the dry run, as `bfm backfill create --dry-run` does, and shows its plan. The
browser sends the form a moment after the last change, and drops what is overtaken; without scripts there is a button.
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

from backfill_manager.api.submit import submit_request
from backfill_manager.dags.definition import DagSpec
from backfill_manager.errors import InvalidInput
from backfill_manager.queries.dags import current_dags
from backfill_manager.queries.managers import has_active_manager
from backfill_manager.queries.plan_preview import plan_shown
from backfill_manager.requests.backfills import CreateBackfill
from backfill_manager.requests.command_types import BACKFILL_CREATE, BACKFILL_DRY_RUN, REFUSED
from backfill_manager.requests.submit import id_from
from backfill_manager.web import links
from backfill_manager.web.page import OperatorContext, PageContext, ViewerContext, page_router, redirect
from backfill_manager.web.pages.backfill_form import (
    CHECKS,
    FIELDS,
    PLAIN_DAY,
    REPROCESS,
    about_how_many,
    checked_payload,
    dag_or_none,
    quick_ranges,
    read_form,
    typed_of,
)
from backfill_manager.web.pages.backfill_update_form import pools_to_choose
from backfill_manager.web.pages.backfills import config_in_words, drawn_map
from backfill_manager.web.pages.form_fields import KINDS, SETTINGS, Typed, Wrong, form_of, in_words

router: Final = page_router()

PATIENCE_S: Final = 20.0  # for a plan
MOST_UNASKED: Final = 50_000  # items that are planned without the button being pressed


@dataclass
class Filled:
    """The form as it came in. `ask` is None while something in it is `wrong`."""

    dag: DagSpec
    typed: Typed
    wrong: Wrong = field(default_factory=dict)
    ask: CreateBackfill | None = None
    payload: dict[str, Any] = field(default_factory=dict)


@router.get("/backfills/new")
def new(context: ViewerContext, dag: Annotated[str, Query(max_length=250)] = "") -> Response:
    spec = dag_or_none(context.store, dag)
    return _page(context, spec, typed_of(context.request.query_params, spec))


@router.post("/backfills/new")
async def send(context: OperatorContext) -> Response:
    await (
        context.request.body()
    )  # kept by the request: the form is read from it, and so is the fingerprint of what is asked
    form = await form_of(context.request)
    filled = await run_in_threadpool(_filled, context, form)
    if form.get("do") != "create":
        plan = await _plan(context, filled) if filled.ask and not form.get("quick") else None
        status = 422 if filled.wrong and form.get("do") == "preview" else 200
        return await run_in_threadpool(_page, context, filled.dag, filled.typed, filled=filled, plan=plan, status=status)
    if filled.ask is None:
        return await run_in_threadpool(_page, context, filled.dag, filled.typed, filled=filled, status=422)
    return await _create(context, filled, once=form.get("once", ""))


@router.post("/backfills/new/preview")
async def preview(context: OperatorContext) -> Response:
    """The fragment that stands beside the form."""
    form = await form_of(context.request)
    filled = await run_in_threadpool(_filled, context, form)
    plan = await _plan(context, filled, is_live=form.get("do") != "preview") if filled.ask else None
    return await run_in_threadpool(
        context.page, "backfills/preview.html", typed=filled.typed, wrong=filled.wrong, plan=plan, zone=filled.dag.timezone,
        field_names=FIELDS,
    )  # fmt: skip


def _filled(context: PageContext, form: Mapping[str, str]) -> Filled:
    spec = dag_or_none(context.store, form.get("dag", ""))
    if spec is None:
        raise InvalidInput("Choose a DAG first.")
    filled = Filled(spec, typed_of(form, spec))
    ask = read_form(filled.typed, spec, filled.wrong)
    if ask is None:
        return filled
    clock = context.app.clock
    payload = checked_payload(context.store, context.app.settings, ask, clock.new_id(), clock.now(), filled.wrong)
    if payload is not None:
        filled.ask, filled.payload = ask, payload
    return filled


async def _create(context: PageContext, filled: Filled, *, once: str) -> Response:
    """Sent twice, the same form makes one backfill: `once` is its own."""
    assert context.user is not None
    ask = filled.payload["ask"]
    about = hashlib.sha256(json.dumps(ask, sort_keys=True).encode()).hexdigest()[:16]
    asked = await submit_request(
        context.app, context.user, context.request, BACKFILL_CREATE,
        lambda request_id: {"backfill_id": id_from(request_id), "ask": ask},
        wait_s=await context.response_timeout_s(), idempotency_key=f"ui:{once or secrets.token_hex(8)}:{about}", source="ui",
    )  # fmt: skip
    if asked.answer is not None and asked.answer.outcome == REFUSED:
        filled.wrong[""] = in_words(asked.answer.message)
        return await run_in_threadpool(_page, context, filled.dag, filled.typed, filled=filled, status=409)
    return redirect(links.to("backfills", id_from(asked.request_id), asked=asked.request_id))


async def _plan(context: PageContext, filled: Filled, *, is_live: bool = False) -> dict[str, Any]:
    """What the preview shows. `is`: plan, nobody (leads), slow, large or refused."""
    assert context.user is not None and filled.ask is not None
    now = context.app.clock.now()
    what = config_in_words(filled.ask.with_defaults(filled.dag, now).config(), filled.dag.timezone)
    about = await run_in_threadpool(about_how_many, filled.ask, filled.dag, now)
    base = {"what": what, "about": about, "dag_id": filled.dag.dag_id}
    if not await run_in_threadpool(has_active_manager, context.store, now):
        return {"is": "nobody", **base}
    if is_live and about > MOST_UNASKED:
        return {"is": "large", **base}
    asked = await submit_request(
        context.app, context.user, context.request, BACKFILL_DRY_RUN, filled.payload, wait_s=PATIENCE_S, source="ui"
    )
    if asked.answer is None:
        return {"is": "slow", **base, "patience_s": PATIENCE_S}
    if asked.answer.outcome == REFUSED:
        return {"is": "refused", **base, "message": in_words(asked.answer.message)}
    return await run_in_threadpool(_shown, asked.answer.payload_json or "{}", filled.dag, base)


def _shown(document: str, dag: DagSpec, base: Mapping[str, Any]) -> dict[str, Any]:
    shown = plan_shown(json.loads(document))
    drawn = None if shown["map"] is None else drawn_map(shown["map"], dag.timezone)
    return {"is": "plan", **base, **shown, "json": drawn}


def _page(
    context: PageContext,
    dag: DagSpec | None,
    typed: Typed,
    *,
    filled: Filled | None = None,
    plan: Mapping[str, Any] | None = None,
    status: int = 200,
) -> Response:
    dags = context.app.cached_by_version(["dag", "dag_version"], "ui:current-dags", lambda: current_dags(context.store))
    return context.page(
        "backfills/new.html", status=status, dag=dag, dags=[spec for spec, _ in dags.values()], typed=typed,
        wrong=filled.wrong if filled else {}, plan=plan, kinds=KINDS, reprocess=REPROCESS, checks=CHECKS,
        fields=SETTINGS, pools=pools_to_choose(context.store), quick=quick_ranges(dag, context.now) if dag else [],
        zone=dag.timezone if dag else "UTC", once=secrets.token_hex(8), is_plain_day=PLAIN_DAY.fullmatch,
        field_names=FIELDS,
    )  # fmt: skip
