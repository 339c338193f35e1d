"""Login, roles and sessions in a browser."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack

import pytest
from support.browser_server import PassingClock, busy_ground, served, with_tokens
from support.web_user import User, expect

from backfill_manager.model.records import Request
from backfill_manager.testing import InMemoryManager

NewUser = Callable[..., User]


@pytest.fixture(scope="module")
def in_memory() -> InMemoryManager:
    return busy_ground()


@pytest.fixture
def url(in_memory: InMemoryManager, exit_stack: ExitStack) -> str:
    tokens = with_tokens(ada="operator", ben="viewer")
    return exit_stack.enter_context(served(in_memory.store, PassingClock(in_memory.clock), tokens))


def logs_in(person: User, name: str, there: str = "/dags") -> None:
    person.goes(there)
    person.page.get_by_label("Token").fill(f"token of {name}")
    person.page.get_by_role("button", name="Log in").click()


def test_a_wrong_token_stays_outside_and_a_right_one_leads_to_where_one_wanted(new_user: NewUser, url: str) -> None:
    ada = new_user(url)
    ada.allows.add(401)
    logs_in(ada, "nobody", "/dags/shop/calendar?year=2024")
    expect(ada.page.get_by_role("alert")).to_contain_text("Invalid token")
    assert ada.barriers() == []
    ada.page.get_by_label("Token").fill("token of ada")
    ada.page.keyboard.press("Enter")
    expect(ada.page).to_have_url(f"{url}/dags/shop/calendar?year=2024")
    ada.page.get_by_role("button", name="Log out").click()
    expect(ada.page).to_have_url(f"{url}/login")
    ada.goes("/pools")
    expect(ada.page.get_by_role("heading", name="Log in")).to_be_visible()


def test_scripts_of_a_page_do_not_see_the_session(new_user: NewUser, url: str) -> None:
    ada = new_user(url)
    logs_in(ada, "ada")
    expect(ada.page.get_by_role("heading", name="DAGs")).to_be_visible()
    assert [one["name"] for one in ada.context.cookies() if one["httpOnly"]] == ["bfm_session"]
    assert "bfm_session" not in ada.page.evaluate("document.cookie")


def test_a_viewer_looks_and_changes_nothing(new_user: NewUser, url: str, in_memory: InMemoryManager) -> None:
    ben, submitted = new_user(url), len(in_memory.store.read(Request))
    logs_in(ben, "ben")
    page = ben.page
    expect(page.get_by_role("heading", name="DAGs")).to_be_visible()
    expect(page.get_by_role("switch")).to_have_count(0)
    page.get_by_role("link", name="Backfills", exact=True).click()
    expect(page.get_by_role("heading", name="Backfills", exact=True)).to_be_visible()
    expect(page.get_by_role("link", name="New backfill")).to_have_count(0)
    ben.goes("/backfills/new?dag=shop")
    expect(page.get_by_role("heading", name="Read-only access")).to_be_visible()

    ben.allows.add(403)  # and who makes the request by hand is refused
    status = page.evaluate(
        """async () => {
          const token = document.querySelector('meta[name="csrf-token"]').content;
          const answer = await fetch("/dags/shop/pause", {method: "POST", headers: {"X-CSRF-Token": token}});
          return answer.status;
        }"""
    )
    assert status == 403
    assert len(in_memory.store.read(Request)) == submitted


def test_an_operator_asks_in_their_own_name(new_user: NewUser, url: str, in_memory: InMemoryManager) -> None:
    ada = new_user(url)
    logs_in(ada, "ada", "/dags")
    ada.page.get_by_role("switch", name="Schedule of regions").click()
    expect(ada.page.get_by_text("Submitted, waiting for the manager")).to_be_visible()
    (newest,) = in_memory.store.read(Request, order_by=["-requested_at"], limit=1)
    assert (newest.kind, newest.requested_by, newest.source) == ("dag.unpause", "ada", "ui")


def test_another_site_can_not_ask_with_our_session(new_user: NewUser, url: str, in_memory: InMemoryManager) -> None:
    ada, submitted = new_user(url), len(in_memory.store.read(Request))
    logs_in(ada, "ada")
    expect(ada.page.get_by_role("heading", name="DAGs")).to_be_visible()
    elsewhere = ada.context.new_page()
    with ada.context.expect_page() as opened:
        elsewhere.set_content(
            f'<form method="post" action="{url}/dags/shop/pause" target="_blank"><button>win</button></form>'
        )
        elsewhere.get_by_role("button").click()
    expect(opened.value.get_by_role("main")).not_to_contain_text("Asked")
    assert len(in_memory.store.read(Request)) == submitted


def test_a_session_that_ends_while_a_form_is_filled_in_leads_to_the_login_as_a_whole(
    new_user: NewUser, url: str
) -> None:
    ada = new_user(url)
    # It is refreshed every few seconds, and would lead to the login before anything was filled in.
    ada.page.route("**/fragments/status_bar", lambda route: route.fulfill(content_type="text/html", body=""))
    ada.allows.add(401)  # the events of the page, if their stream breaks off meanwhile
    logs_in(ada, "ada", "/backfills/new?dag=shop")
    expect(ada.page.get_by_role("heading", name="New backfill of shop")).to_be_visible()
    ada.page.wait_for_load_state()  # before its scripts run, nobody hears what is filled in
    ada.page.evaluate(
        """() => new MutationObserver(() => {
          if (document.querySelectorAll("main").length > 1) sessionStorage.setItem("within", "the form");
        }).observe(document.body, {childList: true, subtree: true})"""
    )

    ada.context.clear_cookies()
    ada.page.locator("[name=start_date]").fill("2024-01-05")  # soon after that the page asks for a dry run

    expect(ada.page).to_have_url(f"{url}/login?next=%2Fbackfills%2Fnew%3Fdag%3Dshop")
    assert ada.page.evaluate("sessionStorage.getItem('within')") is None
    ada.page.get_by_label("Token").fill("token of ada")
    ada.page.keyboard.press("Enter")
    expect(ada.page.get_by_role("heading", name="New backfill of shop")).to_be_visible()
