"""The log of a task in a browser: search, levels, wrapping, links to lines, attempts, and all of it while it grows."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack

import pytest
from support.browser_server import living, put
from support.web_user import PHONE, User, expect, screenshots

from backfill_manager.execution.messages import Failed, Succeeded
from backfill_manager.model.records import TaskLog
from backfill_manager.testing import FakeClock, InMemoryManager, dag_spec

NewUser = Callable[..., User]
TASK = "/dags/flights/runs/backfill__north/tasks/clean"
LEVELS = {7: "ERROR", 120: "WARNING", 1150: "ERROR"}  # by the number of a line as the page shows it


def rows(in_memory: InMemoryManager, launch: int, first: int, last: int) -> list[TaskLog]:
    """Lines that the page numbers from `first` to `last`."""
    (ti,) = in_memory.tasks("flights", "clean")
    return [
        TaskLog(
            ti.dag_id, ti.run_id, ti.task_id, launch, launch, n, in_memory.clock.now(), LEVELS.get(n, "INFO"),
            f"Part {n} of start {launch} (a.b)" + " and so on" * 40 * (n == 3), ti.run_seq,
        )
        for n in range(first, last + 1)
    ]  # fmt: skip


@pytest.fixture
def in_memory() -> InMemoryManager:
    """A task whose first attempt failed after 1,200 lines; of the second there are three."""
    spec = dag_spec("flights", "clean", each={"clean": {"retries": 1, "retry_delay": 1.0}}, schedule=None)
    in_memory = InMemoryManager(spec, script=lambda _: None, clock=FakeClock())
    in_memory.backfill("flights", keys=["north"])
    in_memory.drain()
    (key,) = in_memory.running
    in_memory.finish(key, Failed("boom"))
    in_memory.drain()
    put(in_memory, *rows(in_memory, 1, 1, 1200), *rows(in_memory, 2, 1, 3))
    return in_memory


def test_a_search_marks_counts_and_steps_and_its_address_can_be_shared(new_user: NewUser, url: str) -> None:
    ada = new_user(url)
    page = ada.goes(f"{TASK}?try=2")
    page.keyboard.press("/")
    field, marks, count = (
        page.get_by_role("searchbox", name="Search the log"),
        page.locator("#log mark"),
        page.locator("#log-count"),
    )
    expect(field).to_be_focused()
    field.fill("PART")
    expect(marks).to_have_count(3)
    expect(count).to_have_text("3 matches")
    for key, shown in (("Enter", "1 of 3"), ("Enter", "2 of 3"), ("Shift+Enter", "1 of 3"), ("Shift+Enter", "3 of 3")):
        page.keyboard.press(key)
        expect(count).to_have_text(shown)
    expect(page.locator("#log mark.current")).to_have_count(1)
    for theme in ("light", "dark"):
        page.emulate_media(color_scheme=theme)
        page.screenshot(path=screenshots() / f"log-searched-{theme}.png", full_page=True)
        assert (theme, ada.barriers()) == (theme, [])
    field.fill("(a.b)")  # as it is written: no pattern
    expect(marks.first).to_have_text("(a.b)")
    assert page.locator("#L2\\.1 .text").inner_text() == "Part 1 of start 2 (a.b)"
    expect(page).to_have_url(f"{url}{TASK}?try=2&q=%28a.b%29")
    field.fill("(a<b")
    expect(count).to_have_text("No matches")
    expect(page.get_by_role("button", name="Next")).to_be_disabled()
    expect(marks).to_have_count(0)

    ben = new_user(url)
    expect(ben.goes(f"{TASK}?q=part+1150+of").locator("#log mark.current")).to_be_in_viewport()


def test_a_level_hides_the_lines_below_it_and_lines_wrap_or_not_as_last_time(new_user: NewUser, url: str) -> None:
    ada = new_user(url)
    page = ada.goes(f"{TASK}?try=1&all=true")
    visible = page.locator("#log .line:visible")
    for level, n in (("WARNING", 3), ("ERROR", 2)):
        page.get_by_label("Level").select_option(level)
        expect(visible).to_have_count(n)
    expect(page).to_have_url(f"{url}{TASK}?try=1&all=true&level=ERROR")
    # Shown all the same.
    expect(ada.goes(f"{TASK}?try=1&all=true&level=ERROR#L120").locator("#L120")).to_be_in_viewport()

    sideways = "(log) => log.scrollWidth > log.clientWidth"
    assert not page.locator("#log").evaluate(sideways)
    page.get_by_label("Wrap lines").uncheck()
    assert page.locator("#log").evaluate(sideways)
    assert ada.goes(f"{TASK}?try=1&all=true").locator("#log").evaluate(sideways)
    page.set_viewport_size(PHONE)
    assert (ada.too_wide(), ada.barriers()) == ([], [])


def test_a_line_has_an_address_also_above_those_that_are_shown_first_and_before_it_is_written(
    new_user: NewUser, url: str, in_memory: InMemoryManager, exit_stack: ExitStack
) -> None:
    manager = exit_stack.enter_context(living(in_memory))
    ada = new_user(url)
    page = ada.goes(f"{TASK}#L7")  # the page begins with the last 1,000 lines
    expect(page.locator("#log .pointed")).to_contain_text("Part 7 of start 1")
    expect(page.locator("#L7")).to_be_in_viewport()
    page.locator("#L9 .line-number").click()
    expect(page.locator("#log .pointed")).to_contain_text("Part 9 of start 1")
    assert page.url.endswith("#L9")

    page = ada.goes(f"{TASK}?q=boom")
    page.get_by_role("link", name="Show more").click()
    expect(page).to_have_url(f"{url}{TASK}?q=boom&all=true#log-card")
    expect(page.locator("#L7")).to_have_count(1)

    page = ada.goes(f"{TASK}?try=2&q=part#L2.5")
    expect(page.locator("#log .pointed")).to_have_count(0)
    ada.stays()
    manager.do(lambda it: put(it, *rows(it, 2, 4, 6)))
    expect(page.locator("#log .pointed")).to_contain_text("Part 5 of start 2")
    expect(page.locator("#log mark")).to_have_count(6)
    manager.do(lambda it: it.finish(next(iter(it.running)), Succeeded()))
    assert ada.stayed


def test_attempts_stand_apart_and_the_log_downloads(new_user: NewUser, url: str) -> None:
    page = new_user(url).goes(TASK)
    tries = page.get_by_role("navigation", name="Log of attempt")
    expect(tries.locator("[aria-current]")).to_have_text("All")
    tries.get_by_role("link", name="Attempt 2").click()
    expect(page.locator("#log .line")).to_have_count(3)
    with page.expect_download() as download:
        page.get_by_role("link", name="Download").click()
    assert download.value.suggested_filename == "flights-backfill__north-clean-try-2.log"
    text = download.value.path().read_text()
    first, *lines = text.splitlines()
    assert (first, len(lines)) == ("--- attempt 2, start 2 ---", 3)
    assert lines[1].endswith("Z INFO     Part 2 of start 2 (a.b)")


def test_without_scripts_the_log_its_attempts_and_its_file_are_there(new_user: NewUser, url: str) -> None:
    page = new_user(url, java_script_enabled=False).goes(f"{TASK}?try=2#L2.2")
    expect(page.locator("#log .line")).to_have_count(3)
    expect(page.locator("#log-tools")).to_be_hidden()
    expect(page.get_by_role("navigation", name="Log of attempt")).to_be_visible()
    expect(page.get_by_role("link", name="Download")).to_be_visible()
