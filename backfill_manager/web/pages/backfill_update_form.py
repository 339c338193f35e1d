"""*Settings* of one backfill: what may be changed while it runs, and what happens when two people do so at once.

The form carries the version that it was drawn from (`SettingsNow.version`) and the values of then. When somebody has
changed a setting since, nothing is asked for: the page comes back with what was typed, and with both values beside each
other. Sent once more, from there, it counts as decided.

What two people send within the manager's answering time, each before the other's request is there to be seen, the manager
tells apart: the request says what each setting was (`was`), and the second one is refused.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Annotated, Any, Final

from fastapi import Query
from starlette.concurrency import run_in_threadpool
from starlette.responses import Response

from backfill_manager.api.submit import submit_request
from backfill_manager.errors import InvalidInput, NotFound, Refused, StateError
from backfill_manager.model.records import Pool
from backfill_manager.model.states import BACKFILL_FINISHED, SCHEDULED_RUN
from backfill_manager.queries.backfill_settings import SettingsNow, settings_now
from backfill_manager.requests.command_types import BACKFILL_SET, REFUSED
from backfill_manager.requests.validation import changed_backfill
from backfill_manager.store.base import Store
from backfill_manager.web import links
from backfill_manager.web.page import OperatorContext, PageContext, ViewerContext, page_router, redirect
from backfill_manager.web.pages.backfills import find
from backfill_manager.web.pages.form_fields import (
    SETTINGS,
    Typed,
    Wrong,
    as_typed,
    field_of,
    form_of,
    in_words,
    read_settings,
)

router: Final = page_router()

_RUNS_AT_ONCE: Final = replace(SETTINGS["max_active_runs"], hint="How many of its runs go on at a time.")
_FIELDS: Final = {**SETTINGS, "max_active_runs": _RUNS_AT_ONCE}  # it has a number by now


@router.get("/backfills/{wanted}/settings")
def settings(context: ViewerContext, wanted: str) -> Response:
    found = find(context, wanted)
    now = settings_now(context.store, found)
    return _form(context, found, now, {name: as_typed(name, value) for name, value in now.values.items()})


@router.get("/backfills/{wanted}/settings/notice")
def notice(context: ViewerContext, wanted: str, drawn: Annotated[str, Query(max_length=2000)] = "") -> Response:
    """For a form that is open: whether somebody has changed the settings since it was drawn."""
    now = settings_now(context.store, find(context, wanted))
    return context.page(
        "backfills/settings_notice.html", now_set=now, drawn=drawn, is_stale=bool(drawn) and drawn != _mark(now)
    )


@router.post("/backfills/{wanted}/settings")
async def change(context: OperatorContext, wanted: str) -> Response:
    form = await form_of(context.request)
    typed: Typed = {name: form.get(name, "") for name in SETTINGS}
    drawn, version = _drawn(form.get("drawn", "")), form.get("version", "")
    found, now = await run_in_threadpool(_found_and_now, context, wanted)
    wrong: Wrong = {}
    values = read_settings(typed, wrong)
    conflict = _taken_over(typed, values, drawn, now) if version != now.version else []
    if wrong or conflict:
        return await run_in_threadpool(
            _form,
            context,
            found,
            now,
            typed,
            wrong=wrong,
            conflict=conflict,
            status=422 if wrong else 409,
        )
    changes = {name: value for name, value in values.items() if value != now.values[name]}
    if not changes:
        return redirect(links.to("backfills", found["backfill_id"]))
    seen = now.values
    was = {name: seen[name] for name in changes}
    try:
        asked = await submit_request(
            context.app, _person(context), context.request, BACKFILL_SET,
            lambda _: changed_backfill(context.store, context.app.settings, found, changes, was),
            wait_s=await context.response_timeout_s(), source="ui",
        )  # fmt: skip
        if asked.answer is not None and asked.answer.outcome == REFUSED:
            raise Refused(asked.answer.message)
    except StateError:
        raise
    except (InvalidInput, NotFound, Refused) as error:
        wrong[field_of(error)] = in_words(str(error))
        status = 409 if isinstance(error, Refused) else 422
        found, now = await run_in_threadpool(_found_and_now, context, wanted)  # it may be refused for what came between
        conflict = _taken_over(typed, values, seen, now)
        return await run_in_threadpool(_form, context, found, now, typed, wrong=wrong, conflict=conflict, status=status)
    return redirect(links.to("backfills", found["backfill_id"], asked=asked.request_id))


def pools_to_choose(store: Store) -> list[str]:
    return [row.name for row in store.read(Pool, order_by=("name",)) if row.name != SCHEDULED_RUN] or ["backfill"]


def _found_and_now(context: PageContext, wanted: str) -> tuple[dict[str, Any], SettingsNow]:
    found = find(context, wanted)
    return found, settings_now(context.store, found)


def _person(context: PageContext) -> Any:
    assert context.user is not None  # an `OperatorContext`
    return context.user


def _drawn(text: str) -> dict[str, Any]:
    """The values that the form was drawn with. Of a form that was tampered with there are none: nothing conflicts."""
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    if not isinstance(found, dict):
        return {}
    return {name: one for name, one in found.items() if name not in ("conf", "overrides") or isinstance(one, dict)}


def _mark(now: SettingsNow) -> str:
    return now.version or "-"  # never changed


def _taken_over(
    typed: Typed, values: Mapping[str, Any], drawn: Mapping[str, Any], now: SettingsNow
) -> list[dict[str, Any]]:
    """For each setting that somebody changed meanwhile: what it was (`drawn`), what it is, and what was typed here, if
    anything was (`values`: as it was read). One that was left as it came takes the new value, in `typed`, too."""
    theirs = now.differing(drawn)
    untouched = [name for name in theirs if name in values and values[name] == drawn[name]]
    conflict = [
        {
            "name": name,
            "label": SETTINGS[name].label,
            "was": as_typed(name, drawn[name]),
            "now": as_typed(name, now.values[name]),
            "yours": typed[name],
            "is_untouched": name in untouched,
        }
        for name in theirs
    ]
    typed |= {name: as_typed(name, now.values[name]) for name in untouched}
    return conflict


def _form(
    context: PageContext,
    found: Mapping[str, Any],
    now: SettingsNow,
    typed: Typed,
    *,
    wrong: Wrong | None = None,
    conflict: list[dict[str, Any]] | None = None,
    status: int = 200,
) -> Response:
    return context.page(
        "backfills/settings.html", status=status, b=found, now_set=now, typed=typed, wrong=wrong or {},
        conflict=conflict or [], fields=_FIELDS, pools=pools_to_choose(context.store), drawn=_mark(now),
        is_stale=False,
        drawn_values=json.dumps(now.values, sort_keys=True), has_ended=found["state"] in BACKFILL_FINISHED,
    )  # fmt: skip
