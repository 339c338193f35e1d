"""A note is edited in place; of two editors neither overwrites what he has not seen."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack

from support.browser_server import Living, PassingClock, living, served
from support.web_user import PHONE, User, expect, screenshots

from backfill_manager.execution.messages import Succeeded
from backfill_manager.schemas import request_kinds
from backfill_manager.testing import FakeClock, InMemoryManager, dag_spec, days

NewUser = Callable[..., User]
RUN = "backfill__2013-01-01T00:00:00Z"


def started(exit_stack: ExitStack) -> tuple[Living, str, str]:
    in_memory = InMemoryManager(dag_spec("flights", "clean"), script=lambda _: Succeeded(), clock=FakeClock())
    url = exit_stack.enter_context(served(in_memory.store, PassingClock(in_memory.clock)))
    manager = exit_stack.enter_context(living(in_memory))
    backfill_id = manager.do(lambda it: it.backfill("flights", days("2013-01-01", 2)))
    manager.do(lambda it: it.drain())
    return manager, url, backfill_id


def test_of_two_editors_the_second_sees_what_the_first_has_written(new_user: NewUser, exit_stack: ExitStack) -> None:
    manager, url, _ = started(exit_stack)
    ada = new_user(url)
    page = ada.goes(f"/dags/flights/runs/{RUN}")
    page.get_by_text("Add note").focus()
    page.keyboard.press("Enter")
    note = page.get_by_role("textbox", name="Note")
    note.fill("mine")
    ada.stays()

    def bob_writes(it: InMemoryManager) -> None:
        it.ask(request_kinds.RUN_NOTE, dag_id="flights", run_id=RUN, text="Late, see https://example.com/12")

    manager.do(bob_writes)
    expect(page.get_by_role("link", name="https://example.com/12")).to_be_visible()
    assert ada.stayed and note.input_value() == "mine"

    ada.allows.add(409)
    page.get_by_role("button", name="Save note").click()
    expect(page.get_by_role("heading", name="changed this note meanwhile")).to_be_visible()
    expect(page.get_by_role("textbox", name="Note")).to_have_value("mine")
    assert ada.barriers() == []
    page.screenshot(path=screenshots() / "note-conflict.png", full_page=True)
    page.get_by_role("button", name="Save note").click()
    expect(page.locator("#run-note .note-text")).to_have_text("mine")


def test_an_untouched_form_follows_the_note_with_what_its_user_has_seen(
    new_user: NewUser, exit_stack: ExitStack
) -> None:
    manager, url, backfill_id = started(exit_stack)
    ada = new_user(url, viewport=PHONE)
    page = ada.goes(f"/backfills/{backfill_id}")
    page.get_by_text("Add note").click()
    manager.do(lambda it: it.ask(request_kinds.BACKFILL_NOTE, backfill_id=backfill_id, text="tariff"))
    expect(page.locator("#backfill-note .note-text")).to_have_text("tariff")

    note = page.get_by_role("textbox", name="Note")
    expect(note).to_have_value("tariff")
    note.fill("")
    assert ada.too_wide() == [] and ada.barriers() == []
    page.get_by_role("button", name="Save note").click()
    expect(page.get_by_text("Add note")).to_be_visible()
    expect(page.locator("#backfill-note .note-text")).to_have_count(0)
