"""Groups in the graph of a DAG, and the side panel of its grid."""

from __future__ import annotations

from itertools import pairwise
from urllib.parse import quote

from fastapi.testclient import TestClient
from hypothesis import given
from hypothesis import strategies as st
from support.busy_state import put
from support.page_checks import Element, Page, wrongs
from support.page_client import browser_of

from backfill_manager.execution.messages import Failed, Succeeded
from backfill_manager.model.records import TableAccess
from backfill_manager.testing import FakeClock, InMemoryManager, dag_spec, days
from backfill_manager.web.svg.graph import layered
from backfill_manager.web.svg.groups import Group, collapsed, groups_of

COUNTRIES = [f"load.{one}" for one in ("at", "de", "es", "fr", "it", "uk", "us")]
MAPPED = dag_spec(
    "shops", "start", *COUNTRIES, "check.a", "check.b", "report",
    upstream={**{one: ["start"] for one in COUNTRIES}, "check.a": ["start"], "check.b": ["check.a"],
              "report": [*COUNTRIES, "check.b"]},
    each={one: {"mapped_from": "load", "mapped_json": '"x"'} for one in COUNTRIES}, callbacks=("report.on_failure",),
)  # fmt: skip
RUN = "backfill__2024-01-05T00:00:00Z"


def shops() -> TestClient:
    manager = InMemoryManager(MAPPED, clock=FakeClock())
    manager.script = lambda launch: (
        Failed("boom", retryable=False) if launch.ti.task_id in ("load.it", "load.uk") else Succeeded()
    )
    manager.backfill("shops", days("2024-01-05", 1))
    manager.drain()
    return browser_of(manager.store, manager.clock)


def boxes(page: Page) -> dict[str, str]:
    """What the graph's boxes say, by their names."""
    nodes = [one for one in page.root.all() if str(one.attributes.get("id")).startswith("box-")]
    return {str(one.attributes["id"])[4:]: " ".join(text.whole_text for text in one.find("text")) for one in nodes}


def by_id(page: Page, name: str) -> Element:
    (found,) = [one for one in page.root.all() if one.attributes.get("id") == name]
    return found


def test_mapped_tasks_are_one_box_with_their_states_and_open_again() -> None:
    browser = shops()
    page = Page(browser.get("/dags/shops/graph").text)
    assert wrongs(page) == []
    assert boxes(page) == {
        "start": "start success", "load": "load 2 failed, 5 success", "check.a": "check.a success",
        "check.b": "check.b success", "report": "report upstream failed",
        "report.on_failure": boxes(page)["report.on_failure"],
    }  # fmt: skip
    toggle = by_id(page, "group-load")
    assert toggle.attributes["aria-expanded"] == "false"
    opened = Page(browser.get(str(toggle.attributes["href"])).text)
    assert set(COUNTRIES) <= set(boxes(opened)) and "load" not in boxes(opened)
    assert boxes(opened)["load.it"] == "load.it failed"
    again = Page(browser.get(str(by_id(opened, "group-load").attributes["href"])).text)
    assert boxes(again) == boxes(page)
    shut = Page(browser.get(str(by_id(page, "groups-closed").attributes["href"])).text)
    assert boxes(shut)["check"] == "check 2 success"


def test_the_list_says_what_the_graph_shows_and_no_run_shows_no_states() -> None:
    browser = shops()
    page = Page(browser.get("/dags/shops/graph").text)
    rows = [
        [cell.whole_text for cell in row.find("td")] for row in by_id(page, "graph-tasks").find("tbody")[0].find("tr")
    ]
    listed = {row[0]: (row[1], row[3]) for row in rows}
    assert listed["load.it"] == ("failed", "load") and listed["load.de"] == ("success", "load")
    assert listed["report"] == ("upstream failed", "–")
    without = Page(browser.get("/dags/shops/graph?run=none").text)
    assert boxes(without)["load"] == "load 7 tasks" and boxes(without)["start"] == "start python"
    assert "State" not in by_id(without, "graph-tasks").find("thead")[0].whole_text


@given(st.data())
def test_collapsed_groups_never_make_a_cycle_and_lose_no_task(data: st.DataObject) -> None:
    n = data.draw(st.integers(2, 12))
    names = [f"{data.draw(st.sampled_from('abc'))}.{k}" for k in range(n)]
    upstream = {
        name: data.draw(st.lists(st.sampled_from(names[:k]), unique=True, max_size=3)) if k else []
        for k, name in enumerate(names)
    }
    groups = [
        Group(name, tuple(one for one in names if one.startswith(name)), data.draw(st.booleans()))
        for name in sorted({one[0] for one in names})
    ]
    shown = collapsed(upstream, groups)
    layered(shown)  # CycleError, if there were one
    of_group = {task_id: group.name for group in groups for task_id in group.task_ids}
    assert {name for name in names if name in shown or of_group[name] in shown} == set(names)
    assert all(up in shown and up != box for box, ups in shown.items() for up in ups)


def test_a_group_that_waits_for_itself_over_others_stays_open() -> None:
    upstream = {"a.x": [], "b": ["a.x"], "a.y": ["b"]}
    assert set(collapsed(upstream, [Group("a", ("a.x", "a.y"), True)])) == {"a.x", "b", "a.y"}


def test_callbacks_of_what_is_mapped_in_a_run_are_a_group() -> None:
    keys = [f"load.k{n}" for n in range(6)]
    called = [f"{one}.on_failure" for one in keys]
    from_callback = {one: {"mapped_from": "load.on_failure"} for one in called}
    spec = dag_spec(
        "d", "find", "load", *keys, each={one: {"mapped_from": "load"} for one in keys} | from_callback,
        callbacks=("load.on_failure", *called),
    )  # fmt: skip
    groups = groups_of(spec.by_id)
    assert groups["load"].task_ids == ("load", *keys)
    assert groups["load.on_failure"] == Group("load.on_failure", ("load.on_failure", *called), True)


def test_what_is_no_group() -> None:
    spec = dag_spec("d", "load", "load.de", "load.fr", "one.alone", "x.a", "x.b", callbacks=("x.a.on_failure",))
    groups = groups_of({task.task_id: task for task in spec.tasks})
    assert {name: group.task_ids for name, group in groups.items()} == {"x": ("x.a", "x.b")}
    many = dag_spec("d", *(f"g{n % 3}.t{n}" for n in range(100)))
    assert all(group.is_collapsed for group in groups_of(many.by_id).values())
    assert not groups_of(many.by_id, opened=["g1"])["g1"].is_collapsed
    assert groups_of(spec.by_id, closed=["x"])["x"].is_collapsed


def test_three_hundred_tasks_are_drawn_as_few_boxes() -> None:
    names = [f"g{n // 25:02d}.t{n}" for n in range(300)]
    manager = InMemoryManager(
        dag_spec("large", *names, upstream={b: [a] for a, b in pairwise(names)}), clock=FakeClock()
    )
    page = Page(browser_of(manager.store, manager.clock).get("/dags/large/graph").text)
    assert len(boxes(page)) == 12
    assert len(by_id(page, "graph-tasks").find("tbody")[0].find("tr")) == 300


# -- the side panel ---------------------------------------------------------------------------------------------------


def test_the_panel_is_part_of_the_grid_that_names_a_cell(busy: TestClient) -> None:
    at = "run=backfill__2024-01-13T00:00:00Z&task=clean"
    closed = by_id(Page(busy.get("/dags/shop").text), "panel")
    assert "data-src" not in closed.attributes and closed.whole_text == ""
    page = Page(busy.get(f"/dags/shop?order=made&{at}").text)
    panel = by_id(page, "panel")
    assert wrongs(page) == []
    for words in ("clean", "success", "Attempt 2", "336,776 rows read", "Open task page", "Whole log", "Mark failed"):
        assert words in panel.whole_text, words
    (current,) = [one for one in page.root.find("a") if one.attributes.get("aria-current") == "true"]
    assert (current.attributes["data-run"], current.attributes["data-task"]) == (
        "backfill__2024-01-13T00:00:00Z",
        "clean",
    )
    alone = by_id(Page(busy.get(str(panel.attributes["data-src"])).text), "panel")
    assert alone.whole_text == panel.whole_text
    backs = {one.attributes["value"] for one in panel.find("input") if one.attributes.get("name") == "back"}
    assert len(backs) == 1 and str(backs.pop()).startswith("/dags/shop?order=made&run=")


def test_the_panel_of_a_run_and_what_is_not_there(busy: TestClient) -> None:
    panel = by_id(Page(busy.get("/dags/shop?run=backfill__2024-01-12T00:00:00Z__2").text), "panel")
    for words in ("failed", "7 tasks", "Open run page", "View graph", "Mark success"):
        assert words in panel.whole_text, words
    for address, status in (("?run=nope", 404), ("?run=backfill__2024-01-13T00:00:00Z&task=nope", 404)):
        assert busy.get(f"/dags/shop{address}").status_code == status
        assert busy.get(f"/dags/shop/panel{address}").status_code == status


def test_a_run_of_the_longest_partition_is_shown_and_named_everywhere() -> None:
    manager = InMemoryManager(dag_spec("regions", "load", schedule=None))
    manager.backfill("regions", keys=["x" * 1000, "%" * 1000])
    manager.drain()
    browser = browser_of(manager.store, manager.clock)
    for run in manager.runs("regions"):
        named = {"run": run.run_id, "task": "load"}
        for page in ("/dags/regions", "/dags/regions/panel"):
            assert browser.get(page, params=named).status_code == 200, (page, run.run_id[:20])
        assert browser.get(f"/api/v1/dags/regions/runs/{quote(run.run_id, safe='')}").status_code == 200
        plan = browser.post("/api/v1/dags/regions/clear", json={"run_ids": [run.run_id], "dry_run": True})
        assert (plan.status_code, len(plan.json()["runs"])) == (200, 1)


def test_a_cursor_that_holds_the_longest_run_id_is_taken() -> None:
    manager = InMemoryManager(dag_spec("regions", "load", schedule=None))
    manager.backfill("regions", keys=["ü" * 1000, "%" * 1000, "\U0001f600" * 1000])
    manager.drain()
    written = [
        TableAccess("regions", run.run_id, "load", 1, 1, "write", run.run_seq, manager.clock.now(), True, 1,
                    table_name="gold.regions", partition_key=run.partition_key)
        for run in manager.runs("regions")
    ]  # fmt: skip
    put(manager, *written)
    browser, seen, cursor = browser_of(manager.store, manager.clock), set(), {}
    while cursor is not None:
        page = browser.get("/api/v1/tables/intervals", params={"table": "gold.regions", "limit": 1, **cursor}).json()
        seen |= {one["run_id"] for one in page["items"]}
        cursor = page["next_cursor"] and {"cursor": page["next_cursor"]}
    assert seen == {run.run_id for run in written}


def test_every_cell_names_its_run_and_task_and_leads_to_the_full_page(busy: TestClient) -> None:
    page = Page(busy.get("/dags/shop").text)
    cells = [one for one in by_id(page, "grid").find("a") if "data-run" in one.attributes]
    assert len(cells) == 19 * 2 + 19 * 7
    for one in cells[:3] + cells[-3:]:
        assert busy.get(str(one.attributes["href"])).status_code == 200


def test_a_viewer_sees_no_buttons_in_the_panel(logged_in: object) -> None:
    ben = logged_in("ben")  # type: ignore[operator]
    panel = by_id(Page(ben.get("/dags/shop?run=backfill__2024-01-13T00:00:00Z&task=clean").text), "panel")
    assert "Open task page" in panel.whole_text and panel.find("form") == []


def test_a_task_that_is_mapped_at_run_time_is_shown_before_and_after() -> None:
    spec = dag_spec(
        "late", "find", "load", "sum", upstream={"load": ["find"], "sum": ["load"]},
        each={"load": {"over_result_of": "find"}},
    )  # fmt: skip
    manager = InMemoryManager(spec, clock=FakeClock())
    manager.script = lambda launch: None if launch.ti.task_id == "find" else Succeeded()
    manager.backfill("late", days("2024-01-05", 1))
    manager.drain()
    browser = browser_of(manager.store, manager.clock)
    addresses = (f"/dags/late/graph?run={RUN}", "/dags/late/graph", "/dags/late/grid", f"/dags/late/runs/{RUN}")
    before = {address: Page(browser.get(address).text) for address in addresses}
    assert [wrongs(page) for page in before.values()] == [[]] * len(addresses)
    assert set(boxes(before[addresses[0]])) == {"find", "load", "sum"}
    ((key, _),) = manager.running.items()
    manager.finish(key, Succeeded('["de", "fr"]'))
    manager.drain()
    after = {
        address: Page(browser.get(address).text) for address in (*addresses, f"/dags/late/runs/{RUN}/tasks/load.de")
    }
    assert [wrongs(page) for page in after.values()] == [[]] * len(after)
    drawn = boxes(Page(browser.get(f"/dags/late/graph?run={RUN}&open=all").text))
    assert "find" in drawn and "sum" in drawn and "load" in drawn
    assert "load.fr" in browser.get(f"/dags/late/runs/{RUN}").text


def test_what_is_mapped_in_a_run_is_a_group_that_closes_again_also_in_the_latest_run() -> None:
    manager = InMemoryManager(
        dag_spec("late", "find", "load", upstream={"load": ["find"]}, each={"load": {"over_result_of": "find"}}),
        clock=FakeClock(),
    )
    outcomes = {"find": Succeeded('["de", "fr"]'), "load.fr": Failed("boom")}
    manager.script = lambda launch: outcomes.get(launch.ti.task_id, Succeeded())
    manager.backfill("late", days("2024-01-05", 1))
    manager.drain()
    browser = browser_of(manager.store, manager.clock)
    for address in (f"/dags/late/graph?run={RUN}", "/dags/late/graph"):
        page = Page(browser.get(address).text)
        assert {"load": "load success", "load.fr": "load.fr failed"}.items() <= boxes(page).items()
        shut = Page(browser.get(str(by_id(page, "group-load").attributes["href"])).text)
        assert boxes(shut) == {"find": "find success", "load": "load 1 failed, 2 success"}
        assert wrongs(shut) == []


def test_tasks_that_are_mapped_in_a_run_are_one_cell_of_the_grid_and_a_list_on_the_page_of_their_task() -> None:
    after, each = {"load": ["find"], "report": ["load"]}, {"load": {"over_result_of": "find"}}
    spec = dag_spec("files", "find", "load", "report", upstream=after, each=each)
    manager = InMemoryManager(spec, clock=FakeClock())
    manager.script = lambda launch: (
        Failed("no such file") if launch.ti.task_id == "load.b" else Succeeded('["a", "b", "c"]')
    )
    manager.backfill("files", days("2024-01-05", 1))
    manager.drain()
    browser = browser_of(manager.store, manager.clock)

    page = Page(browser.get("/dags/files").text)
    assert wrongs(page) == []
    heads = [one.whole_text for one in page.root.find("th") if one.attributes.get("scope") == "row"]
    assert heads == ["run", "find", "load", "report", "date"]
    (cell,) = [one for one in page.root.find("a") if one.attributes.get("data-task") == "load"]
    assert str(cell.attributes["title"]).endswith(": 1 failed, 2 success of 3 mapped tasks")

    of_task = Page(browser.get(f"/dags/files/runs/{RUN}/tasks/load").text)
    assert wrongs(of_task) == []
    card = by_id(of_task, "task-mapped")
    assert card.whole_text.startswith("3 mapped tasks")
    assert [one.whole_text for one in card.find("td") if one.attributes.get("class") == "name"] == [
        "load.b",
        "load.a",
        "load.c",
    ]
    assert "no such file" in card.whole_text
    panel = Page(browser.get(f"/dags/files/panel?run={RUN}&task=load").text)
    assert "3 mapped tasks" in panel.root.whole_text

    def mark_buttons(page: Page) -> set[str]:
        return {one.whole_text for one in page.root.find("button") if one.whole_text.startswith("Mark ")} - {
            "Mark failed"
        }

    assert "none yet" not in of_task.root.whole_text, "it has no attempt, and will have none"
    assert mark_buttons(of_task) == set(), "the mapped tasks can be marked, and not the one that they are mapped from"
    assert mark_buttons(Page(browser.get(f"/dags/files/runs/{RUN}/tasks/load.b").text)) == {
        "Mark success",
        "Mark skipped",
    }
    assert mark_buttons(panel) == set()

    graph = Page(browser.get("/dags/files/graph?run=latest").text)
    assert wrongs(graph) == []
    assert "load.* (3)" in by_id(graph, "graph-tasks").whole_text
