"""Runs and backfills are reverted on their pages."""

from __future__ import annotations

import json

import pytest
from fastapi.testclient import TestClient
from support.backfill_pages import (
    page_of,
)
from support.page_client import browser_of

from backfill_manager.execution.messages import Succeeded
from backfill_manager.model.records import (
    Response,
)
from backfill_manager.model.transitions import Changes
from backfill_manager.testing import InMemoryManager, days


def test_a_run_and_a_backfill_are_reverted_and_a_reverted_run_says_so(
    browser: TestClient, manager: InMemoryManager
) -> None:
    manager.script = lambda _: Succeeded()
    backfill_id = manager.backfill("flights", days("2013-01-01", 2))
    manager.drain()
    first, second = (f"backfill__2013-01-0{n}T00:00:00Z" for n in (1, 2))
    home = f"/dags/flights/runs/{first.replace(':', '%3A')}"
    page = page_of(browser, home)
    of_run = next(
        form.attributes["action"] for form in page.forms if str(form.attributes["action"]).endswith("/revert/plan")
    )
    page = page_of(browser, f"/backfills/{backfill_id}")
    assert f"/backfills/{backfill_id}/revert/plan" in [form.attributes["action"] for form in page.forms]

    browser.post(str(of_run).removesuffix("/plan"))
    browser.post(f"/backfills/{backfill_id}/revert")
    asked = {one.kind: json.loads(one.payload_json) for one in manager.store.unanswered()}
    assert asked == {
        "run.revert": {"dag_id": "flights", "run_id": first, "dry_run": False},
        "backfill.revert": {"backfill_id": backfill_id, "dry_run": False},
    }

    row = next(run for run in manager.runs("flights") if run.run_id == first)
    manager.state.put(row.evolve(reverted_at=manager.clock.now(), reverted_by="r1", restored_run_id=second))
    manager.commit()
    page = page_of(browser, home)
    assert "reverted" in page.root.whole_text and "those of " + second in " ".join(page.root.whole_text.split())
    actions = [str(form.attributes["action"]) for form in page.forms]
    assert not [one for one in actions if one.endswith(("/revert/plan", "/mark"))]
    assert "reverted" in page_of(browser, "/dags/flights/timeline").root.whole_text
    browser = browser_of(manager.store, manager.clock)  # no response says that the other's cache is old
    rows = [one.whole_text for one in page_of(browser, f"/backfills/{backfill_id}").root.find("tr")]
    assert [one.split()[0] for one in rows if "reverted" in one] == ["1"]


@pytest.mark.parametrize("of", ["run", "backfill"])
def test_the_plan_of_a_revert_is_shown_before_the_question(
    browser: TestClient, manager: InMemoryManager, of: str
) -> None:
    manager.script = lambda _: Succeeded()
    backfill_id = manager.backfill("flights", days("2013-01-01", 2))
    manager.drain()
    run_id = "backfill__2013-01-01T00:00:00Z"
    home = f"/backfills/{backfill_id}" if of == "backfill" else f"/dags/flights/runs/{run_id.replace(':', '%3A')}"
    object_id = backfill_id if of == "backfill" else run_id
    page = page_of(browser, f"{home}/revert")
    assert [form.attributes["action"] for form in page.forms if "revert" in str(form.attributes["action"])] == [
        f"{home}/revert/plan".replace("%3A", ":")
    ]

    sent = browser.post(f"{home}/revert/plan", follow_redirects=False).headers["location"]
    (asked,) = manager.store.unanswered()
    assert sent.startswith(f"{home}/revert?request_id=".replace("%3A", ":")) and asked.request_id in sent
    assert json.loads(asked.payload_json)["dry_run"] is True
    page = page_of(browser, sent)
    assert "The manager reads the history of the tables" in page.root.whole_text

    table = {
        "table": "gold.<x>", "version": None, "back_to": [3, 7], "intervals": ["2013-01-01", "2013-01-02"],
        "rows_now": 1200, "rows_then": 1100, "runs": [{"dag_id": "flights", "run_id": run_id}],
    }  # fmt: skip
    readers = [{"dag_id": "report", "run_id": f"r{n}", "task_id": "a", "table": "gold.x"} for n in range(12)]
    ends = {"interval_start": "2013-01-01T05:00:00Z", "interval_end": "2013-01-02T05:00:00Z"}
    one = {**table, "table": "gold.y", "intervals": ["2013-01-01T05:00:00Z – 2013-01-02T05:00:00Z"], **ends}
    payload = json.dumps({"tables": [table, one], "read_by": readers, "readers": 12})
    changes = Changes()
    changes.put(Response(asked.request_id, asked.kind, "accepted", object_id, "", payload, manager.clock.now(), 1))
    manager.leader.commit(changes)
    page = page_of(browser, sent)
    shown = page.root.whole_text
    assert "gold.<x> 2 intervals: 2013-01-01 … 2013-01-02 3, 7 1 1,200 1,100" in shown
    assert "gold.y 2013-01-01 – 2013-01-02 3, 7" in shown
    assert "12 tasks read this since" in shown and "report/r9, ..." in shown and "report/r10" not in shown
    assert [form.attributes["action"] for form in page.forms if "revert" in str(form.attributes["action"])] == [
        f"{home}/revert".replace("%3A", ":")
    ]
