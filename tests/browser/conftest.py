"""One Chromium for all browser tests, a browser context per user; every console error of a page fails the test."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from support.browser_server import Living, PassingClock, living, served
from support.find_browser import CI, MISSING, find_browser

from backfill_manager.testing import InMemoryManager

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Browser tests run last: while Playwright is active, its event loop runs in this thread, where `asyncio.run` of other
    tests would fail. Without a browser they are skipped."""
    items.sort(key=lambda item: HERE in item.path.parents)
    if find_browser() is None and not CI:
        for item in items:
            if "chromium" in getattr(item, "fixturenames", ()):
                item.add_marker(pytest.mark.skip(reason=MISSING))


@pytest.fixture(scope="session")
def chromium() -> Iterator[Any]:
    from support.web_user import launched

    executable = find_browser()
    if executable is None:  # in CI
        pytest.fail(MISSING, pytrace=False)
    with launched(executable) as browser:
        yield browser


@pytest.fixture
def exit_stack() -> Iterator[ExitStack]:
    """Context managers of a test (`served`, `living`), closed after the last user."""
    with ExitStack() as around:
        yield around


@pytest.fixture
def new_user(chromium: Any, exit_stack: ExitStack) -> Iterator[Callable[..., Any]]:
    """`new_user(url)` opens a browser context, `new_user(url, viewport=PHONE)` one of a phone's size."""
    from support.web_user import DESKTOP, User

    came: list[User] = []

    def come(url: str, **options: Any) -> User:
        given = {"viewport": DESKTOP, "locale": "en-GB", "timezone_id": "UTC", "reduced_motion": "reduce"}
        came.append(User(chromium.new_context(base_url=url, **{**given, **options})))
        return came[-1]

    yield come
    for person in came:
        person.context.close()
    assert [shown for person in came for shown in person.complaints] == []


@pytest.fixture
def url(in_memory: InMemoryManager, exit_stack: ExitStack) -> str:
    """Of the pages of the test's `in_memory`, whose time passes."""
    return exit_stack.enter_context(served(in_memory.store, PassingClock(in_memory.clock)))


@pytest.fixture
def manager(in_memory: InMemoryManager, exit_stack: ExitStack) -> Living:
    """`in_memory`, which ticks by itself."""
    return exit_stack.enter_context(living(in_memory))
