"""What tests of the pages of backfills share: two DAGs, forms as a browser sends them, and readings of pages."""

from __future__ import annotations

import json
from datetime import datetime
from typing import Any

from fastapi.testclient import TestClient

from backfill_manager.clock import UTC
from backfill_manager.execution.messages import Succeeded
from backfill_manager.model.records import (
    Record,
    Request,
)
from backfill_manager.model.transitions import Changes
from backfill_manager.store.base import Leader
from backfill_manager.testing import InMemoryManager, dag_spec, days
from support.page_checks import Page, wrongs

SPECS = (
    dag_spec("flights", "clean", "delays", upstream={"delays": ["clean"]}, batchable=True, description="Flights of a day",
             start_date=datetime(2013, 1, 1, 5, tzinfo=UTC), end_date=datetime(2013, 12, 31, 5, tzinfo=UTC),
             timezone="America/New_York", schedule="@daily"),
    dag_spec("regions", "load", schedule=None, params={"full": False}),
)  # fmt: skip


def page_of(browser: TestClient, address: str, status: int = 200) -> Page:
    answer = browser.get(address)
    page = Page(answer.text)
    assert (answer.status_code, wrongs(page)) == (status, []), address
    return page


def sent(browser: TestClient, address: str, status: int, **form: Any) -> Page:
    """Submits a form that is answered with a page."""
    answer = browser.post(address, data=form)
    page = Page(answer.text)
    assert (answer.status_code, wrongs(page)) == (status, [])
    return page


def followed(browser: TestClient, address: str, **form: Any) -> tuple[str, Page]:
    """Submits a form that redirects; returns the address and the page there."""
    answer = browser.post(address, data=form)
    assert answer.status_code == 303, answer.text
    return answer.headers["location"], page_of(browser, answer.headers["location"])


def fields_of(page: Page, form: str) -> dict[str, str]:
    """The fields that a browser would submit of this form if nothing was edited."""
    (found,) = [one for one in page.forms if form in (one.attributes.get("id"), one.attributes.get("action"))]
    sent: dict[str, str] = {}
    for one in found.find("input"):
        if one.attributes.get("type") not in ("checkbox", "radio") or "checked" in one.attributes:
            sent[str(one.attributes["name"])] = one.attributes.get("value") or ""
    for one in found.find("textarea"):
        sent[str(one.attributes["name"])] = one.whole_text
    for one in found.find("select"):
        options = one.find("option")
        chosen = [option for option in options if "selected" in option.attributes] or options[:1]
        sent[str(one.attributes["name"])] = chosen[0].attributes.get("value") or chosen[0].whole_text
    return sent


def text_of(page: Page, id_: str) -> str:
    return next(one for one in page.root.all() if one.attributes.get("id") == id_).whole_text


def queued_request(manager: InMemoryManager) -> tuple[str, dict[str, Any]]:
    row = manager.store.read(Request)[-1]
    return row.kind, json.loads(row.payload_json)


def put(leader: Leader, *rows: Record) -> None:
    changes = Changes()
    for row in rows:
        changes.put(row)
    leader.commit(changes)


def run_some(
    manager: InMemoryManager, first: str = "2013-01-01", *, n: int = 6, failing: int = 0, **fields: Any
) -> str:
    """A backfill of `n` days from `first` whose tasks have all ended; the last `failing` days failed."""
    from backfill_manager.execution.messages import Failed

    bad = {end for _, end in days(first, n)[n - failing :]} if failing else set()
    manager.script = lambda launch: Failed("ValueError: no rows") if launch.run.interval_end in bad else Succeeded()
    made = manager.backfill("flights", days(first, n), **fields)
    manager.drain()
    manager.script = lambda launch: None
    return made


def partitions(manager: InMemoryManager, *keys: str) -> str:
    config = {"type": "partitions", "partitions": keys, "run_backwards": False}
    return manager.backfill("regions", keys=keys, config_json=json.dumps(config))


def map_of(page: Page) -> str:
    (found,) = [one.attributes["data-map"] for one in page.root.all() if "data-map" in one.attributes]
    return str(found)


FORM = {"dag": "flights", "sent": "1", "kind": "schedule", "reprocess": "none", "start_date": "2013-01-01",
        "end_date": "2013-01-31", "once": "abc"}  # fmt: skip
