"""Page of a task: the Spark jobs of each attempt, and when their numbers link to the Spark UI."""

from __future__ import annotations

import pytest
from fastapi.testclient import TestClient
from support.page_checks import Page, wrongs
from support.page_client import browser_of

from backfill_manager.execution.messages import Failed, Succeeded
from backfill_manager.testing import FakeClock, InMemoryManager, dag_spec

SPARK = "http://driver:4040"


@pytest.fixture
def manager() -> InMemoryManager:
    """One task; its first attempt ran two jobs and failed, its second ran thirteen."""
    spec = dag_spec("d", "a", each={"a": {"retries": 1, "retry_delay": 1.0}}, schedule=None)
    manager = InMemoryManager(spec, script=lambda launch: None)
    manager.backfill("d", keys=["north"])
    for outcome, jobs in ((Failed("boom"), (3, 4)), (Succeeded(), range(10, 23))):
        manager.drain()
        (key,) = manager.running
        manager.finish(key, outcome, jobs)
    manager.drain()
    return manager


def tries(manager: InMemoryManager, spark_ui: str | None, *, after_s: float = 1.0) -> tuple[list[str], list[str]]:
    """The texts and links of the column *Spark jobs*, `after_s` after the manager's last heartbeat."""
    (run,) = manager.runs("d")
    now = manager.clock.now()
    manager.leader.heartbeat(now, application_id="local-1", spark_ui=spark_ui)
    clock = FakeClock(now)
    clock.advance(seconds=after_s)
    browser: TestClient = browser_of(manager.store, clock)
    page = Page(browser.get(f"/dags/d/runs/{run.run_id}/tasks/a").text)
    assert [one for one in wrongs(page) if not one.startswith(f"{spark_ui}/")] == []  # Spark's pages are not ours
    (table,) = [one for one in page.root.all() if one.attributes.get("id") == "task-tries"]
    cells = [row.find("td")[4] for row in table.find("tbody")[0].find("tr") if len(row.find("td")) == 6]
    return [cell.whole_text for cell in cells], [
        str(link.attributes["href"]) for cell in cells for link in cell.find("a")
    ]


def links(*jobs: int) -> list[str]:
    return [f"{SPARK}/jobs/job/?id={job}" for job in jobs]


SHOWN = ["3, 4", "10, 11, 12, 13, 14 and 8 more"]


def test_each_number_leads_to_its_job_and_of_many_the_first_are_shown(manager: InMemoryManager) -> None:
    assert tries(manager, SPARK) == (SHOWN, links(3, 4, 10, 11, 12, 13, 14))


def test_a_try_without_jobs_has_none(manager: InMemoryManager) -> None:
    manager.ask("tasks.clear", ask={"dag": "d"})
    manager.drain()
    (key,) = manager.running
    manager.finish(key, Succeeded())
    manager.drain()
    shown, found = tries(manager, SPARK)
    assert (shown, len(found)) == ([*SHOWN, "–"], 7)


def test_the_jobs_of_another_managers_application_lead_nowhere(manager: InMemoryManager) -> None:
    manager.crash()
    manager.ask("tasks.clear", ask={"dag": "d"})
    manager.drain()
    (key,) = manager.running
    manager.finish(key, Succeeded(), (3,))
    manager.drain()
    assert tries(manager, SPARK) == ([*SHOWN, "3"], links(3))


@pytest.mark.parametrize("spark_ui", [None, "", "javascript:alert(1)", "//elsewhere", "<script>alert(1)</script>"])
def test_without_an_address_that_can_be_sparks_the_numbers_are_only_shown(
    manager: InMemoryManager, spark_ui: str | None
) -> None:
    assert tries(manager, spark_ui) == (SHOWN, [])


def test_nor_is_there_a_link_when_their_manager_is_gone(manager: InMemoryManager) -> None:
    assert tries(manager, SPARK, after_s=3600.0) == (SHOWN, [])


def test_an_address_with_hostile_signs_stays_an_address(manager: InMemoryManager) -> None:
    shown, found = tries(manager, 'http://driver:4040/"><script>alert(1)</script>')
    assert (shown, len(found)) == (SHOWN, 7)
    assert all(link.startswith("http://driver:4040/\"><script>") and link.endswith(f"?id={n}") for link, n in
               zip(found, (3, 4, 10, 11, 12, 13, 14), strict=True))  # fmt: skip
