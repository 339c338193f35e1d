"""Swagger UI on the page of the REST API, under the same content policy as every page."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack

import pytest
from support.browser_server import PassingClock, served
from support.web_user import User, expect

from backfill_manager.testing import FakeClock, InMemoryManager, dag_spec


@pytest.fixture
def url(exit_stack: ExitStack) -> str:
    in_memory = InMemoryManager(dag_spec("flights", "clean"), clock=FakeClock())
    return exit_stack.enter_context(served(in_memory.store, PassingClock(in_memory.clock)))


def test_a_route_that_reads_can_be_tried_and_one_that_changes_can_only_be_read(
    new_user: Callable[..., User], url: str
) -> None:
    ada = new_user(url)
    page = ada.goes("/manager")
    page.get_by_role("link", name="REST API").click()
    page.locator("#operations-tag-dags .expand-operation").click()
    reads = page.locator(".opblock-get").filter(has=page.get_by_text("/api/v1/dags", exact=True))
    reads.locator(".opblock-summary-control").click()
    reads.get_by_role("button", name="Try it out").click()
    reads.get_by_role("button", name="Execute").click()
    expect(reads.locator(".live-responses-table .response-col_status").last).to_contain_text("200")
    expect(reads.locator(".live-responses-table")).to_contain_text("flights")
    changes = page.locator(".opblock-post").first
    changes.locator(".opblock-summary-control").click()
    expect(changes.get_by_text("Parameters", exact=True)).to_be_visible()
    expect(changes.get_by_role("button", name="Try it out")).to_have_count(0)
