"""The settings of a backfill, changed while it runs."""

from __future__ import annotations

import pytest
from fastapi.testclient import TestClient
from support.backfill_pages import (
    fields_of,
    followed,
    page_of,
    queued_request,
    sent,
    text_of,
)

from backfill_manager.execution.messages import Succeeded
from backfill_manager.model import states as s
from backfill_manager.model.records import (
    AUTO_BATCH,
    Request,
    Response,
)
from backfill_manager.queries.backfills import find_backfill
from backfill_manager.requests import submit
from backfill_manager.schemas.backfill_options import UPDATABLE_FIELDS
from backfill_manager.testing import InMemoryManager, days
from backfill_manager.web.pages.form_fields import SETTINGS, as_typed, read_settings


def test_a_setting_is_changed_while_it_runs(manager: InMemoryManager, browser: TestClient) -> None:
    one = manager.backfill("flights", days("2013-01-01", 4))
    form = fields_of(page_of(browser, f"/backfills/{one}/settings"), "settings-form")
    changed = {"priority": "7", "max_active_runs": "2", "overrides": "retries=3\nclean.timeout=600", "is_polite": "on",
               "conf": '{"full": true}', "window": "20:00-06:00"}  # fmt: skip
    where, _ = followed(browser, f"/backfills/{one}/settings", **{**form, **changed})
    assert queued_request(manager) == (
        "backfill.set",
        {
            "backfill_id": one,
            "changes": {"priority": 7, "max_active_runs": 2, "overrides": {"retries": 3, "clean.timeout": 600},
                        "is_polite": True, "conf": {"full": True}, "window": "20:00-06:00"},
            "was": {"priority": 0, "max_active_runs": 16, "overrides": {}, "is_polite": False, "conf": {}, "window": None},
        },
    )  # fmt: skip
    manager.drain()
    page = page_of(browser, where)
    assert "Done" in text_of(page, "flash")
    zoned = "20:00-06:00 America/New_York"
    assert zoned in text_of(page, "backfill-settings")
    assert any(f"window: {zoned}" in answer.message for answer in manager.store.read(Response))
    for form_of in (f"/backfills/{one}/settings", "/backfills/new?dag=flights"):
        assert text_of(page_of(browser, form_of), "hint-window").endswith("Zone: America/New_York.")
    again = fields_of(page_of(browser, f"/backfills/{one}/settings"), "settings-form")
    assert (again["priority"], again["overrides"].split()) == ("7", ["clean.timeout=600", "retries=3"])


def test_outside_its_window_it_says_until_when_it_waits(manager: InMemoryManager, browser: TestClient) -> None:
    manager.clock.advance(hours=12)
    one = manager.backfill("flights", days("2013-01-01", 4), window="20:00-06:00")
    manager.drain()
    page = page_of(browser, f"/backfills/{one}")
    assert "Waits for its time window, 20:00-06:00 America/New_York, until 31 Jan 2024, 20:00" in text_of(
        page, "backfill-progress"
    )
    assert "waits for its time window, 20:00-06:00 America/New_York, until 31 Jan 2024" in text_of(
        page_of(browser, "/backfills"), f"b-{one}"
    )
    form = fields_of(page_of(browser, f"/backfills/{one}/settings"), "settings-form")
    followed(browser, f"/backfills/{one}/settings", **{**form, "window": ""})
    manager.drain()
    page = page_of(browser, f"/backfills/{one}")
    assert "Waits" not in text_of(page, "backfill-progress") and "any time" in text_of(page, "backfill-settings")


def test_nothing_changed_asks_for_nothing(manager: InMemoryManager, browser: TestClient) -> None:
    one = manager.backfill("flights", days("2013-01-01", 4))
    form = fields_of(page_of(browser, f"/backfills/{one}/settings"), "settings-form")
    where, _ = followed(browser, f"/backfills/{one}/settings", **form)
    assert where == f"/backfills/{one}"
    assert manager.store.read(Request) == []


def test_wrong_settings_are_reported_by_field_and_nothing_typed_is_lost(
    manager: InMemoryManager, browser: TestClient
) -> None:
    one = manager.backfill("flights", days("2013-01-01", 4))
    form = fields_of(page_of(browser, f"/backfills/{one}/settings"), "settings-form")
    wrong = {"priority": "much", "batch": "0", "overrides": "retries", "conf": "{full", "tasks": "keep.*me"}
    page = sent(browser, f"/backfills/{one}/settings", 422, **{**form, **wrong})
    assert text_of(page, "error-priority") == "“Priority” must be a whole number, not 'much'."
    assert text_of(page, "error-batch") == "“Batch” must be a whole number of 1 to 1,000,000,000, or `auto`, not 0."
    assert "must be NAME=VALUE" in text_of(page, "error-overrides")
    assert "is not JSON" in text_of(page, "error-conf")
    again = fields_of(page, "settings-form")
    assert {name: again[name] for name in wrong} == wrong
    assert manager.store.read(Request) == []


@pytest.mark.parametrize(
    ("field", "text", "words"),
    [
        ("tasks", "nothing_has_this", "matches no task of DAG 'flights'"),
        ("tasks", "(((", "is not a regular expression"),
        ("window", "25:00-26:00", "20:00-06:00"),
        ("pool", "nopool", "There is no pool 'nopool'"),
        ("pool", "backfil", "There is no pool 'backfil'; did you mean 'backfill'?"),
        ("overrides", "colour=red", "is not a setting that a backfill can set"),
    ],
)
def test_settings_that_do_not_fit_the_dag_are_reported_at_their_field(
    manager: InMemoryManager, browser: TestClient, field: str, text: str, words: str
) -> None:
    one = manager.backfill("flights", days("2013-01-01", 4))
    form = fields_of(page_of(browser, f"/backfills/{one}/settings"), "settings-form")
    page = sent(browser, f"/backfills/{one}/settings", 422, **{**form, field: text})
    assert words in text_of(page, f"error-{field}")
    assert fields_of(page, "settings-form")[field] == text


def test_two_who_change_it_at_once_see_both_values_and_overwrite_nothing(
    manager: InMemoryManager, browser: TestClient
) -> None:
    one = manager.backfill("flights", days("2013-01-01", 4))
    mine = fields_of(page_of(browser, f"/backfills/{one}/settings"), "settings-form")
    changes = {"priority": 3, "window": "20:00-06:00"}
    submit.submit(
        manager.store, manager.clock, "backfill.set", {"backfill_id": one, "changes": changes}, requested_by="grace"
    )
    manager.drain()
    before = len(manager.store.read(Request))

    page = sent(browser, f"/backfills/{one}/settings", 409, **{**mine, "priority": "9", "batch": "2"})
    assert "grace changed these settings meanwhile" in page.root.whole_text
    (rows,) = [table.find("tbody")[0].find("tr") for table in page.root.find("table")]
    assert [[cell.whole_text for cell in row.find("td")] for row in rows] == [
        ["Priority", "0", "3", "9"],
        ["Time window", "empty", "20:00-06:00", "unchanged: the form has the current value"],
    ]
    assert len(manager.store.read(Request)) == before
    assert find_backfill(manager.store, one)["priority"] == 3

    # What was typed is still there; sent once more it is decided.
    again = fields_of(page, "settings-form")
    assert (again["priority"], again["batch"], again["window"]) == ("9", "2", "20:00-06:00")
    followed(browser, f"/backfills/{one}/settings", **again)
    assert queued_request(manager)[1]["changes"] == {"priority": 9, "batch": 2}


def test_of_two_who_save_in_the_same_moment_the_second_sees_both_values(
    manager: InMemoryManager, browser: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = manager.backfill("flights", days("2013-01-01", 4))
    mine = fields_of(page_of(browser, f"/backfills/{one}/settings"), "settings-form")
    plainly = manager.store.append_request

    def a_moment_later(request: Request) -> None:
        monkeypatch.setattr(manager.store, "append_request", plainly)
        hers = {"backfill_id": one, "changes": {"priority": 3, "batch": 2}, "was": {"priority": 0, "batch": 1}}
        submit.submit(manager.store, manager.clock, "backfill.set", hers, requested_by="grace")
        plainly(request)
        manager.drain()  # the manager answers both

    monkeypatch.setattr(manager.store, "append_request", a_moment_later)
    page = sent(browser, f"/backfills/{one}/settings", 409, **{**mine, "priority": "9", "window": "20:00-06:00"})

    assert text_of(page, "error-priority").startswith("“Priority” is 3 now, not 0: somebody has changed it")
    assert "grace changed these settings meanwhile" in page.root.whole_text
    (rows,) = [table.find("tbody")[0].find("tr") for table in page.root.find("table")]
    assert [[cell.whole_text for cell in row.find("td")] for row in rows] == [
        ["Batch", "1", "2", "unchanged: the form has the current value"],
        ["Priority", "0", "3", "9"],
    ]
    found = find_backfill(manager.store, one)
    assert (found["priority"], found["batch"], found["window"]) == (3, 2, None)

    # What was typed is still there; sent once more it is decided.
    again = fields_of(page, "settings-form")
    assert (again["priority"], again["batch"], again["window"]) == ("9", "2", "20:00-06:00")
    followed(browser, f"/backfills/{one}/settings", **again)
    manager.drain()
    found = find_backfill(manager.store, one)
    assert (found["priority"], found["batch"], found["window"]) == (9, 2, "20:00-06:00")


def test_a_change_that_waits_for_the_manager_counts_as_made(manager: InMemoryManager, browser: TestClient) -> None:
    one = manager.backfill("flights", days("2013-01-01", 4))
    mine = fields_of(page_of(browser, f"/backfills/{one}/settings"), "settings-form")
    changes = {"backfill_id": one, "changes": {"priority": 3}}
    submit.submit(manager.store, manager.clock, "backfill.set", changes, requested_by="grace")
    page = page_of(browser, f"/backfills/{one}/settings")
    assert fields_of(page, "settings-form")["priority"] == "3"
    assert "Pending change by grace" in page.root.whole_text
    notice = browser.get(f"/backfills/{one}/settings/notice?drawn={mine['version'] or '-'}").text
    assert "grace requested a change to these settings" in notice
    again = fields_of(page, "settings-form")["version"]
    assert "grace" not in browser.get(f"/backfills/{one}/settings/notice", params={"drawn": again}).text
    assert sent(browser, f"/backfills/{one}/settings", 409, **{**mine, "priority": "9"})


def test_a_pause_by_another_is_no_conflict_of_settings(manager: InMemoryManager, browser: TestClient) -> None:
    one = manager.backfill("flights", days("2013-01-01", 4))
    mine = fields_of(page_of(browser, f"/backfills/{one}/settings"), "settings-form")
    manager.ask("backfill.pause", backfill_id=one)
    manager.drain()
    followed(browser, f"/backfills/{one}/settings", **{**mine, "priority": "9"})
    assert queued_request(manager)[1]["changes"] == {"priority": 9}


def test_every_setting_is_read_back_as_it_is_shown() -> None:
    values = {
        "max_active_runs": 3, "priority": -2, "pool": "backfill", "batch": 7, "stop_on_failure": 4, "window": "20:00-06:00",
        "is_polite": True, "tasks": "^clean", "mark_success": False, "conf": {"a": [1, "ü"]}, "with_upstream": False,
        "with_downstream": True,
        "overrides": {"retries": 3, "clean.trigger_rule": "all_done", "clean.pool": "7", "x": None, "y": " b ", "z": "a\nb"},
        "batch_target": 90.5, "notify": "ops",
    }  # fmt: skip
    assert set(values) == set(UPDATABLE_FIELDS) == set(SETTINGS)
    errors: dict[str, str] = {}
    assert read_settings({name: as_typed(name, value) for name, value in values.items()}, errors) == values
    assert errors == {}
    typed = {"batch": "auto", "batch_target": "10 min", "pool": "backfill", "priority": "0"}
    found = read_settings(typed, errors)
    assert (found["batch"], found["batch_target"], errors) == ("auto", 600.0, {})


def test_a_backfill_whose_batches_size_themselves_shows_how_large_they_became(
    manager: InMemoryManager, browser: TestClient
) -> None:
    one = manager.backfill("flights", days("2013-01-01", 40), batch=AUTO_BATCH, batch_target=90.0, max_active_runs=1)
    assert "auto, 1 min 30 s at most" in page_of(browser, f"/backfills/{one}").root.whole_text
    manager.script = lambda _: Succeeded()
    manager.drain()
    page = page_of(browser, f"/backfills/{one}")
    assert "auto: up to 19 intervals per run so far, 1 min 30 s at most" in page.root.whole_text
    two = manager.backfill("flights", days("2014-01-01", 3), batch=AUTO_BATCH, is_paused=True, state=s.PAUSED)
    form = fields_of(page_of(browser, f"/backfills/{two}/settings"), "settings-form")
    assert form["batch"] == "auto"
    followed(browser, f"/backfills/{two}/settings", **{**form, "batch": "3", "batch_target": "2 min"})
    assert queued_request(manager)[1]["changes"] == {"batch": 3, "batch_target": 120.0}
