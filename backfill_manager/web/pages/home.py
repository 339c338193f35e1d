"""*Home*: what has failed since yesterday and why, what is late, what runs, backfills under way, and whether all is well.

Each part is read once for each change of its tables (`queries/home.py` has what it costs), and refreshed by itself.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any, Final

from starlette.responses import Response

from backfill_manager.api.backfill_cache import ROW_TABLES, TABLES
from backfill_manager.model import states
from backfill_manager.queries.backfills import BackfillFilter, list_backfills
from backfill_manager.queries.dags import all_dags
from backfill_manager.queries.home import expected_dags, failed_since, late_dags
from backfill_manager.queries.paging import Order
from backfill_manager.queries.runs import list_runs
from backfill_manager.store.base import matching
from backfill_manager.web.page import PageContext, ViewerContext, page_router
from backfill_manager.web.pages.backfills import backfill_details, rate

router: Final = page_router()
SINCE: Final = timedelta(days=1)
FAILURES_SHOWN: Final = 15
LATE_SHOWN: Final = 15
RUNS_SHOWN: Final = 15
BACKFILLS_SHOWN: Final = 10
UNDER_WAY: Final = (states.RUNNING, states.PAUSED, states.QUEUED)
BY_START: Final = Order("started_at", "run_seq")


@router.get("/")
def home(context: ViewerContext) -> Response:
    app, store = context.app, context.store
    minute = context.now.replace(second=0, microsecond=0)  # what depends on the time is as of then
    since = minute - SINCE
    dags = app.cached_by_version(["dag"], "ui:home:dags", lambda: all_dags(store))
    expected = app.cached_by_version(["dag", "dag_version"], "ui:home:expected", lambda: expected_dags(store))
    runs = app.versions(["dag_run"])
    failures = app.at_versions((*runs, _number(minute)), "ui:home:failed", lambda: failed_since(store, since))
    late = app.at_versions(
        (*app.versions(["dag", "dag_version"]), *runs, _number(minute)), "ui:home:late",
        lambda: late_dags(store, expected, since, minute) if expected else [],
    )  # fmt: skip
    active = [dag for dag in dags.values() if dag.is_active]
    return context.page(
        "home.html", failures=failures, failures_shown=FAILURES_SHOWN, late=late, late_shown=LATE_SHOWN,
        has_expected=bool(expected), backfills=_backfills_under_way(context), rate=rate,
        under_way=UNDER_WAY, active=len(active), has_dags=bool(dags), paused=sum(dag.is_paused for dag in active),
        zones={dag_id: dag.timezone for dag_id, dag in dags.items()}, since=since, **_runs_now(context, runs),
    )  # fmt: skip


def _number(minute: datetime) -> int:
    return int(minute.timestamp())


def _runs_now(context: PageContext, versions: tuple[int, ...]) -> dict[str, Any]:
    """The runs at work, those that run for longest first; how many there are, and whether there has been any."""
    store = context.store

    def read() -> dict[str, Any]:
        counts = store.count("dag_run", ("state",), matching(state=(states.QUEUED, states.RUNNING)))
        running = list_runs(store, in_states=(states.RUNNING,), order=BY_START, limit=RUNS_SHOWN).items
        return {
            "running": running, "n_running": counts.get((states.RUNNING,), 0),
            "n_queued": counts.get((states.QUEUED,), 0), "has_runs": bool(running or list_runs(store, limit=1).items),
        }  # fmt: skip

    found: dict[str, Any] = context.app.at_versions(versions, "ui:home:running", read)
    return found


def _backfills_under_way(context: PageContext) -> dict[str, Any]:
    """The newest of them, as the list of backfills shows them, and how many there are."""
    app, store = context.app, context.store
    chosen = BackfillFilter(None, UNDER_WAY)
    rows, after = app.cached_by_version(
        TABLES, "ui:home:backfills", lambda: list_backfills(store, chosen, limit=BACKFILLS_SHOWN)
    )
    has_any = app.cached_by_version(
        ROW_TABLES, "ui:home:any-backfill", lambda: bool(rows) or bool(list_backfills(store, limit=1)[0])
    )
    return {"rows": [backfill_details(context, row) for row in rows], "are_more": after is not None, "has_any": has_any}
