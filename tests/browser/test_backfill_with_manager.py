"""A real manager with Spark and Delta, used in a browser: from the list of DAGs to the log of a task; and a backfill that is
steered from browser and command line."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from support.browser_server import served
from support.manager_process import TIMEOUT_S, PatientClock, wait_for
from support.web_user import User, expect, screenshots

from backfill_manager.cli.app import run
from backfill_manager.cli.context import CliContext
from backfill_manager.clock import SystemClock
from backfill_manager.manager.manager import run_manager
from backfill_manager.settings import BundleSettings, Settings
from backfill_manager.store import open_store

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NewUser = Callable[..., User]
REAL_MS = 300_000  # Spark starts cold on a machine with little to spare

# A task that waits until it may go on: the story looks at it meanwhile.
DAG_FILE = """
import pathlib, threading
from backfill_manager import dag, task

@dag(schedule="@daily", start_date="2024-03-01", end_date="2024-03-31", timezone="Europe/Amsterdam")
def readings():
    @task
    def load(ctx):
        gate = pathlib.Path(ctx.params.get("gate", "/"))
        for _ in range(6000):
            if gate.exists():
                break
            threading.Event().wait(0.05)
        ctx.log.info("%s rows of %s", ctx.spark.range(24).count(), ctx.interval.start)

    @task
    def check(ctx):
        ctx.log.info("checked")

    load() >> check()
"""


@pytest.fixture(scope="module")
def settings(tmp_path_factory: pytest.TempPathFactory) -> Settings:
    folder = tmp_path_factory.mktemp("browser")
    bundle = folder / "bundle"
    bundle.mkdir()
    (bundle / "readings.py").write_text(DAG_FILE)
    (bundle / "broken.py").write_text("from backfill_manager import dag\n\n1 / 0\n")
    return Settings.model_validate(
        {
            "state": str(folder / "state"),
            "bundles": [BundleSettings(name="tests", path=str(bundle), fetch_interval=0.2)],
            "api": {"requests_per_second": 10_000},
        }
    )


@pytest.fixture(scope="module")
def manager(settings: Settings, spark: SparkSession) -> Iterator[None]:
    ready, stop = threading.Event(), threading.Event()
    thread = threading.Thread(
        target=run_manager, args=(settings,), kwargs={"state": settings.state, "ready": ready, "stop": stop, "spark": spark}
    )  # fmt: skip
    thread.start()
    assert ready.wait(TIMEOUT_S), "the manager answers requests"
    yield
    stop.set()
    thread.join(TIMEOUT_S)
    assert not thread.is_alive()


@pytest.fixture
def url(manager: None, settings: Settings, exit_stack: ExitStack) -> str:
    """A server as of `bfm serve`: its own store over the same tables."""
    store = open_store(settings.state)
    exit_stack.callback(store.close)
    return exit_stack.enter_context(served(store, SystemClock(), settings))


@pytest.fixture
def bfm(settings: Settings, capfd: pytest.CaptureFixture[str]) -> Callable[..., Any]:
    """Runs `bfm` over the tables; returns the printed document."""

    def call(*args: str) -> Any:
        capfd.readouterr()
        code = run([*args, "--state", settings.state, "--output", "json"], CliContext(environ={}, clock=PatientClock()))
        out, err = capfd.readouterr()
        assert code == 0, err
        return json.loads(out)

    return call


def test_the_whole_story_of_a_backfill_by_clicking(new_user: NewUser, url: str) -> None:
    ada = new_user(url)
    page = ada.goes("/dags")
    page.get_by_role("link", name="readings", exact=True).click()
    page.get_by_role("link", name="New backfill").click()
    page.get_by_label("From", exact=True).fill("2024-03-29")
    page.get_by_label("To", exact=True).fill("2024-03-31")
    dry_run = page.locator("#dry-run")
    expect(dry_run).to_contain_text("3 items would run", timeout=REAL_MS)
    expect(dry_run.locator("tbody tr")).to_have_text([re.compile(f"2024-03-{day}.*would run") for day in (29, 30, 31)])
    assert ada.barriers() == []
    page.screenshot(path=screenshots() / "story-preview.png", full_page=True)

    page.get_by_role("button", name="Create backfill").click()
    expect(page).to_have_url(re.compile(r"/backfills/\w+\?request_id="))
    ada.stays()
    expect(page.locator(".title-line .state")).to_have_text("success", timeout=REAL_MS)
    expect(page.get_by_text("3 of 3 items done")).to_be_visible()
    expect(page.locator("#item-map .cell.s-success")).to_have_count(3)
    assert ada.stayed

    # what has run is left as it is, and the dry run says so
    page.get_by_role("link", name="New backfill").click()
    page.get_by_label("From", exact=True).fill("2024-03-30")
    page.get_by_label("To", exact=True).fill("2024-03-31")
    expect(dry_run).to_contain_text("Nothing would run, 2 skipped", timeout=REAL_MS)
    page.go_back()

    page.locator("#item-map a").nth(1).click()
    expect(page.get_by_role("heading", level=1)).to_have_text("backfill__2024-03-29T23:00:00Z")
    page.locator("#run-tasks").get_by_role("link", name="load").click()
    expect(page.get_by_role("log")).to_contain_text("24 rows of 2024-03-29 23:00:00+00:00")
    page.screenshot(path=screenshots() / "story-log.png", full_page=True)

    page.get_by_role("link", name="Import errors").click()
    expect(page.get_by_role("heading", name="broken.py, line 3")).to_be_visible()
    expect(page.get_by_role("main")).to_contain_text("ZeroDivisionError")


def test_a_backfill_is_steered_from_the_browser_and_from_the_command_line(
    new_user: NewUser, url: str, bfm: Callable[..., Any], tmp_path: Path
) -> None:
    gate = tmp_path / "gate"
    options = ("-s", "2024-03-01", "-e", "2024-03-06", "--max-active-runs", "1", "-c", json.dumps({"gate": str(gate)}))
    backfill = bfm("backfill", "create", "readings", *options)["backfill_id"]
    ada = new_user(url)
    page = ada.goes(f"/backfills/{backfill}")
    state = page.locator(".title-line .state")
    expect(state).to_have_text("running", timeout=REAL_MS)

    page.get_by_role("button", name="Pause").click()
    expect(state).to_have_text("paused")
    assert bfm("backfill", "show", backfill)["is_paused"] is True

    ada.stays()
    bfm("backfill", "unpause", backfill)
    expect(state).to_have_text("running")
    expect(page.get_by_role("button", name="Pause")).to_be_visible()
    bfm("backfill", "pause", backfill)
    expect(page.get_by_role("button", name="Unpause")).to_be_visible()
    assert ada.stayed

    page.get_by_role("button", name="Unpause").click()
    expect(page.get_by_role("button", name="Pause")).to_be_visible()
    wait_for(lambda: not bfm("backfill", "show", backfill)["is_paused"])
    gate.touch()
    expect(page.get_by_text("6 of 6 items done")).to_be_visible(timeout=REAL_MS)
    assert bfm("backfill", "show", backfill)["state"] == "success"
