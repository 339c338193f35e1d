"""The pages under the path of `api.public_url`: what scripts fetch, draw and open has it, too."""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import ExitStack

from support.browser_server import PassingClock, living, served, with_tokens
from support.web_user import User, expect

from backfill_manager.testing import FakeClock, InMemoryManager, dag_spec, days

PATH = "/apps/backfills"


def test_pages_under_a_path_are_live_and_their_scripts_stay_there(
    new_user: Callable[..., User], exit_stack: ExitStack
) -> None:
    in_memory = InMemoryManager(dag_spec("flights", "clean"), script=lambda _: None, clock=FakeClock())
    settings = with_tokens(ada="operator")
    api = settings.api.model_copy(update={"public_url": f"https://example.com{PATH}"})
    settings = settings.model_copy(update={"api": api})
    url = exit_stack.enter_context(served(in_memory.store, PassingClock(in_memory.clock), settings)) + PATH
    manager = exit_stack.enter_context(living(in_memory))
    backfill = manager.do(lambda it: it.backfill("flights", days("2013-01-01", 2)))
    ada = new_user(url)
    page = ada.goes(f"{PATH}/backfills/{backfill}")
    page.get_by_label("Token").fill("token of ada")
    page.get_by_role("button", name="Log in").click()
    expect(page).to_have_url(f"{url}/backfills/{backfill}")

    cells = page.locator("#item-map a")
    expect(cells).to_have_count(2)
    ada.stays()
    manager.let_all_succeed()
    expect(page.locator("#item-map .s-success")).not_to_have_count(0)
    assert ada.stayed
    cells.first.click()
    expect(page).to_have_url(re.compile(f"{url}/dags/flights/runs/backfill__"))

    page.keyboard.press("Control+k")
    page.keyboard.type("flig")
    page.get_by_role("listbox", name="Pages and DAGs").get_by_role("option").filter(has_text="DAG").first.click()
    expect(page).to_have_url(f"{url}/dags/flights")
    page.locator("#grid td a, #grid td button").first.click()
    expect(page.locator("#panel")).to_contain_text(re.compile("Open (run|task) page"))
    page.get_by_role("button", name="Log out").click()
    expect(page).to_have_url(f"{url}/login")
