"""*Settings* of a backfill: what can be changed while it runs, and conflicting edits.

The form carries the version it was drawn from (`SettingsNow.version`) and the values of then. If someone has changed a setting
since, nothing is submitted: the page shows the typed text and both values side by side; submitting that page decides.

Two simultaneous submissions, neither of which sees the other's request, are distinguished by the manager: the request holds the
expected value of each setting (`was`), and the second one is refused.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Annotated, Any, Final

from fastapi import Query
from starlette.concurrency import run_in_threadpool
from starlette.responses import Response

from backfill_manager.errors import InvalidInput, NotFound, Refused, StateError
from backfill_manager.model.records import Pool
from backfill_manager.model.states import BACKFILL_FINISHED, SCHEDULED_RUN
from backfill_manager.queries.backfill_settings import SettingsNow, settings_now
from backfill_manager.requests.validation import changed_backfill
from backfill_manager.schemas.errors import refusal
from backfill_manager.schemas.kinds import BACKFILL_SET, REFUSED
from backfill_manager.store.base import Store
from backfill_manager.web import links
from backfill_manager.web.page import OperatorContext, PageContext, ViewerContext, page_router, redirect
from backfill_manager.web.pages.backfills import find
from backfill_manager.web.pages.form_fields import (
    SETTINGS,
    Errors,
    Typed,
    add_error,
    as_typed,
    form_of,
    read_settings,
)

router: Final = page_router()


@router.get("/backfills/{backfill_id}/settings")
def settings_form(context: ViewerContext, backfill_id: str) -> Response:
    backfill, current = _backfill_and_settings(context, backfill_id)
    return _form(context, backfill, current, {name: as_typed(name, value) for name, value in current.values.items()})


@router.get("/backfills/{backfill_id}/settings/notice")
def notice(context: ViewerContext, backfill_id: str, drawn: Annotated[str, Query(max_length=2000)] = "") -> Response:
    """For an open form: whether someone has changed the settings since it was drawn."""
    _, current = _backfill_and_settings(context, backfill_id)
    is_stale = bool(drawn) and drawn != _version(current)
    return context.page("backfills/settings_notice.html", current=current, drawn=drawn, is_stale=is_stale)


@router.post("/backfills/{backfill_id}/settings")
async def save(context: OperatorContext, backfill_id: str) -> Response:
    form = await form_of(context.request)
    typed: Typed = {name: form.get(name, "") for name in SETTINGS}
    backfill, current = await run_in_threadpool(_backfill_and_settings, context, backfill_id)
    errors: Errors = {}
    values = read_settings(typed, errors)
    is_outdated = form.get("version", "") != current.version
    conflicts = _merge(typed, values, _drawn_values(form.get("drawn", "")), current) if is_outdated else []
    if errors or conflicts:
        status = 422 if errors else 409
        return await run_in_threadpool(_form, context, backfill, current, typed, errors, conflicts, status)
    expected = current.values
    changes = {name: value for name, value in values.items() if value != expected[name]}
    if not changes:
        return redirect(links.to("backfills", backfill["backfill_id"]))
    was = {name: expected[name] for name in changes}
    try:
        sent = await context.request_change(
            BACKFILL_SET, lambda _: changed_backfill(context.store, context.app.settings, backfill, changes, was)
        )
        if sent.answer is not None and sent.answer.outcome == REFUSED:
            raise refusal(sent.answer)
    except StateError:
        raise
    except (InvalidInput, NotFound, Refused) as error:
        add_error(errors, error)
        status = 409 if isinstance(error, Refused) else 422
        backfill, current = await run_in_threadpool(
            _backfill_and_settings, context, backfill_id
        )  # may be a new conflict
        conflicts = _merge(typed, values, expected, current)
        return await run_in_threadpool(_form, context, backfill, current, typed, errors, conflicts, status)
    return redirect(links.to("backfills", backfill["backfill_id"], request_id=sent.request_id))


def pool_choices(store: Store) -> list[str]:
    return [row.name for row in store.read(Pool, order_by=("name",)) if row.name != SCHEDULED_RUN] or ["backfill"]


def _backfill_and_settings(context: PageContext, backfill_id: str) -> tuple[dict[str, Any], SettingsNow]:
    backfill = find(context, backfill_id)
    return backfill, settings_now(context.store, backfill)


def _drawn_values(text: str) -> dict[str, Any]:
    """The values that the form was drawn with. A form that was tampered with has none: nothing conflicts."""
    try:
        values = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    if not isinstance(values, dict):
        return {}
    return {
        name: value for name, value in values.items() if name not in ("conf", "overrides") or isinstance(value, dict)
    }


def _version(current: SettingsNow) -> str:
    return current.version or "-"  # never changed


def _merge(
    typed: Typed, values: Mapping[str, Any], drawn: Mapping[str, Any], current: SettingsNow
) -> list[dict[str, Any]]:
    """For each setting that someone else changed: the value when the form was drawn (`expected`), now, and as typed here
    (`values` as read). A field that was left as it came takes the current value, in `typed` too."""
    changed = current.differing(drawn)
    untouched = [name for name in changed if name in values and values[name] == drawn[name]]
    conflicts = [
        {
            "label": SETTINGS[name].label,
            "expected": as_typed(name, drawn[name]),
            "now": as_typed(name, current.values[name]),
            "yours": typed[name],
            "is_untouched": name in untouched,
        }
        for name in changed
    ]
    typed |= {name: as_typed(name, current.values[name]) for name in untouched}
    return conflicts


def _form(
    context: PageContext,
    backfill: Mapping[str, Any],
    current: SettingsNow,
    typed: Typed,
    errors: Errors | None = None,
    conflicts: list[dict[str, Any]] | None = None,
    status: int = 200,
) -> Response:
    return context.page(
        "backfills/settings.html", status=status, b=backfill, current=current, typed=typed, errors=errors or {},
        conflicts=conflicts or [], fields=SETTINGS, pools=pool_choices(context.store), drawn=_version(current),
        is_stale=False, drawn_values=json.dumps(current.values, sort_keys=True),
        has_ended=backfill["state"] in BACKFILL_FINISHED,
    )  # fmt: skip
