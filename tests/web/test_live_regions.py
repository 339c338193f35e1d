"""Live elements are always on their page: one that is left out while empty would never appear."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pytest
from jinja2 import nodes
from support.busy_state import busy_ground, empty_store
from support.page_checks import Page
from support.page_client import browser_of

from backfill_manager.execution.messages import Failed
from backfill_manager.schemas.backfill_options import CreateBackfill
from backfill_manager.testing import FakeClock, InMemoryManager, dag_spec, days
from backfill_manager.web.page import templates

# Conditions that follow from the address alone, so that they hold for as long as the page is shown.
OF_THE_ADDRESS = {"flash", "is_first", "is_refresh"}
LIVE = "data-live="


def names_of_templates() -> list[str]:
    return [name for name in templates().list_templates() if name.endswith(".html")]


def parsed(name: str) -> nodes.Template:
    loader = templates().loader
    assert loader is not None
    return templates().parse(loader.get_source(templates(), name)[0])


def is_live(name: str) -> bool:
    return any(LIVE in text.data for text in parsed(name).find_all(nodes.TemplateData))


def live_within(parts: Iterable[nodes.Node], condition: str = "") -> Iterator[str]:
    """Live elements that a condition or a loop may leave out, by the condition."""
    for part in parts:
        if isinstance(part, nodes.If):
            submitted = {part.test.name} if isinstance(part.test, nodes.Name) else set()
            submitted |= {one.name for one in part.test.find_all(nodes.Name)}
            inside = (
                condition if submitted <= OF_THE_ADDRESS else f"if {', '.join(sorted(submitted))} (line {part.lineno})"
            )
            yield from live_within((*part.body, *part.elif_, *part.else_), inside)
        elif isinstance(part, nodes.For):
            yield from live_within((*part.body, *part.else_), f"for (line {part.lineno})")
        elif isinstance(part, nodes.TemplateData):
            yield from [condition] * part.data.count(LIVE) if condition else []
        elif isinstance(part, nodes.Include) and isinstance(part.template, nodes.Const):
            yield from [condition] if condition and is_live(part.template.value) else []
        else:
            yield from live_within(part.iter_child_nodes(), condition)


@pytest.mark.parametrize("name", names_of_templates())
def test_no_condition_leaves_a_live_element_out(name: str) -> None:
    assert list(live_within([parsed(name)])) == []


def test_the_walk_through_the_templates_finds_what_it_looks_for() -> None:
    for text, found in (
        ('{% if a %}<p id="x" data-live="dag">{% endif %}', 1),
        ('{% if not b %}{% else %}{% if c %}<p data-live="dag">{% endif %}{% endif %}', 1),
        ('{% for d in e %}<p data-live="dag">{% endfor %}', 1),
        ('{% if a %}{% include "backfills/settings_notice.html" %}{% endif %}', 1),
        ('{% if flash %}<p data-live="dag">{% endif %}<p data-live="dag">{% if a %}b{% endif %}</p>', 0),
    ):
        assert len(list(live_within([templates().parse(text)]))) == found, text


def live_ids(text: str) -> set[str]:
    return {str(one.attributes["id"]) for one in Page(text).root.all() if "data-live" in one.attributes}


def of_flights() -> InMemoryManager:
    spec = dag_spec("flights", "clean", "delays", upstream={"delays": ["clean"]})
    return InMemoryManager(spec, script=lambda _: None)


def test_a_page_has_the_same_live_elements_before_and_after_there_is_something_to_show() -> None:
    manager = of_flights()
    browser = browser_of(manager.store, manager.clock)
    run = "/dags/flights/runs/backfill__2013-01-01T00:00:00Z"
    tabs = [f"/dags/flights{tab}" for tab in ("", "/graph", "/timeline", "/calendar", "/versions", "/code")]
    pages = ["/dags", "/backfills", "/pools", "/import-errors", "/requests", "/manager", *tabs]

    def seen(*more: str) -> dict[str, set[str]]:
        return {address: live_ids(browser.get(address).text) for address in (*pages, *more)}

    before = seen()
    manager.ask("dag.trigger", dag_id="flights", logical_date=None, conf={})
    backfill = manager.backfill("flights", days("2013-01-01", 3))
    assert seen() == before
    manager.drain()
    began = seen(run, f"{run}/tasks/clean", f"/backfills/{backfill}")
    assert {one: began[one] for one in before} == before
    for key in list(manager.running):
        manager.finish(key, Failed("ValueError: no rows", retryable=False))
    manager.drain()
    assert seen(run, f"{run}/tasks/clean", f"/backfills/{backfill}") == began
    assert "no rows" in browser.get(f"{run}/tasks/clean").text


def test_an_empty_state_and_a_busy_one_have_the_same_live_elements() -> None:
    manager = busy_ground()
    busy, empty = browser_of(manager.store, manager.clock), browser_of(empty_store(), FakeClock())
    for address in ("/dags", "/backfills", "/pools", "/import-errors", "/requests", "/manager"):
        assert live_ids(busy.get(address).text) == live_ids(empty.get(address).text), address


def test_a_backfill_that_waits_has_the_places_of_its_items_and_reasons() -> None:
    manager = of_flights()
    browser = browser_of(manager.store, manager.clock)
    ask = CreateBackfill(dag_id="flights", kind="partitions", partitions=("a",))
    manager.ask("backfill.create", backfill_id="b1", ask=ask.to_payload())
    waiting = browser.get("/backfills/b1").text
    assert "not planned yet" in waiting
    made = manager.backfill("flights", days("2013-01-01", 3))
    manager.drain()
    assert live_ids(waiting) == live_ids(browser.get(f"/backfills/{made}").text)
    assert {"backfill-map", "backfill-reasons", "backfill-items"} <= live_ids(waiting)
