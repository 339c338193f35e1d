"""The pictures of the docs: `python tests/take_screenshots.py docs/images`.

Those of README.md are taken without Spark: a manager in memory is half way through a year of flights, and three days of it had no
file. Those of docs/how-to/a-year-of-flights.md are of its own state, at the place of the page where they stand.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from itertools import pairwise
from pathlib import Path
from zoneinfo import ZoneInfo

from playwright.sync_api import Page
from support.browser_server import PassingClock, served
from support.find_browser import MISSING, find_browser
from support.flights_story import flights_story, is_printed, steps
from support.web_user import DESKTOP, EXPECT_MS, launched

from backfill_manager.clock import UTC, SystemClock, format_instant, parse_instant
from backfill_manager.execution.messages import Failed, LaunchKey, Succeeded
from backfill_manager.execution.spark.session import build_session
from backfill_manager.model.records import Backfill, Pool
from backfill_manager.store import open_store
from backfill_manager.testing import FakeClock, InMemoryManager, dag_spec

MAX_BYTES = 120_000
WIDE = 1760  # the lineage of the story, side by side
NEW_YORK = ZoneInfo("America/New_York")
DAYS, DAYS_DONE, DAYS_WITHOUT_A_FILE = 365, 209, (38, 39, 196)
SECONDS = {"clean": 2.1, "daily_delays": 0.8, "holidays": 0.2, "rolling_delays": 0.6}
# Name -> address, and what must be there before it is taken. {backfill}: its id.
PICTURES = {
    "backfill.png": ("/backfills/{backfill}", "#item-map .cell"),
    "dag-grid.png": ("/dags/flights?order=made", "#grid .mark"),
    "dag-graph.png": ("/dags/flights/graph?run=latest", "#graph-svg"),
    "dag-calendar.png": ("/dags/flights/calendar?year=2013&show=duration", ".year rect"),
}
# Name -> address, and the part of the page that is taken. {preview}: the id of the last preview.
PICTURES_OF_STORY = {
    "story-diff.png": ("/backfills/{preview}/diff", "#diff section.card"),
    "story-gaps.png": ("/dags/flight_months/gaps?start_date=2013-01-01&end_date=2013-12-31", "#gaps"),
    "story-lineage.png": ("/tables/one?table=default.flights_by_month", "#lineage"),
}


def seconds(task_id: str, day: int) -> float:
    """More in summer and on Fridays, and never quite the same."""
    return SECONDS[task_id] * (1 + 0.5 * (day % 7 == 3) + day / 400 + (day * 7919 % 97) / 120)


def half_a_year() -> tuple[InMemoryManager, str]:
    """Tasks end one after the other, each in its time, until so many days are done; the rest is as it is at that moment."""
    clock = FakeClock(parse_instant("2024-05-15T13:00:00Z"))
    midnights = [datetime(2013, 1, 1, tzinfo=NEW_YORK) + timedelta(days=n) for n in range(DAYS + 1)]
    instants = [one.astimezone(UTC) for one in midnights]
    spec = dag_spec(
        "flights", *SECONDS, upstream={"daily_delays": ["clean"], "rolling_delays": ["daily_delays", "holidays"]},
        schedule="@daily", timezone="America/New_York", start_date=instants[0], end_date=instants[-2], max_active_runs=8,
        description="Delays at New York's three airports in 2013, by day, carrier and airport.",
    )  # fmt: skip
    manager = InMemoryManager(spec, script=lambda _: None, clock=clock)
    backfill = manager.backfill(
        "flights", list(pairwise(instants)), max_active_runs=8, created_by="ada", config_json=json.dumps(
            {"type": "schedule", "start_date": format_instant(instants[0]), "end_date": format_instant(instants[-2])}
        ),
    )  # fmt: skip
    number = {at: n for n, at in enumerate(instants)}
    ends: dict[LaunchKey, datetime] = {}
    while True:
        while manager.tick():
            pass
        for key, launch in manager.running.items():
            assert launch.run.logical_date is not None
            ends.setdefault(key, clock.now() + timedelta(seconds=seconds(key[2], number[launch.run.logical_date])))
        if manager.states(backfill).get("success", 0) >= DAYS_DONE:
            clock.advance(seconds=1)
            return manager, backfill
        first = min(manager.running, key=ends.__getitem__)
        clock.advance(seconds=max(0.0, (ends[first] - clock.now()).total_seconds()))
        day = number[manager.running[first].run.logical_date or instants[0]]
        broken = day in DAYS_WITHOUT_A_FILE and first[2] == "clean"
        manager.finish(first, Failed(f"FileNotFoundError: no flights of day {day + 1}") if broken else Succeeded())


def take(folder: Path) -> None:
    executable = find_browser()
    if executable is None:
        raise SystemExit(MISSING)
    folder.mkdir(parents=True, exist_ok=True)
    manager, backfill = half_a_year()
    with served(manager.store, PassingClock(manager.clock)) as url, a_page(executable, url) as page:
        for name, (address, there) in PICTURES.items():
            page.goto(address.format(backfill=backfill))
            page.locator(there).first.wait_for(timeout=EXPECT_MS)
            check_size(folder / name, page.screenshot(path=folder / name))
    with tempfile.TemporaryDirectory() as warehouse, tempfile.TemporaryDirectory() as root:
        take_story(folder, executable, warehouse, Path(root))


def take_story(folder: Path, executable: str, warehouse: str, root: Path) -> None:
    pools = [Pool(name=name, slots=16, weight=1, min_share=0) for name in ("scheduled", "backfill")]
    spark = build_session(
        pools=pools, master="local[2]", warehouse=warehouse, conf={"spark.sql.shuffle.partitions": "1"}
    )
    with flights_story(spark, root) as story:
        store = open_store(story.settings.state)
        for step in steps():
            _, printed = story.do(step)
            if not is_printed(step.shown, printed):
                raise SystemExit(f"the page shows something else of {step.text}:\n{printed}")
            if step.kind != "picture":
                continue
            address, part = PICTURES_OF_STORY[step.text]
            previews = [row.backfill_id for row in store.read(Backfill, order_by=["run_seq"]) if row.is_preview]
            with served(store, SystemClock(), story.settings) as url, a_page(executable, url, width=WIDE) as page:
                take_part(page, address.format(preview=previews[-1] if previews else ""), part, folder / step.text)
    spark.stop()


def take_part(page: Page, address: str, part: str, file: Path) -> None:
    page.goto(address)
    page.add_style_tag(content="main { max-width: none }")
    check_size(file, page.locator(part).screenshot(path=file))


@contextmanager
def a_page(executable: str, url: str, **size: int) -> Iterator[Page]:
    with launched(executable) as browser:
        viewport = {**DESKTOP, **size}
        context = browser.new_context(
            base_url=url, viewport=viewport, color_scheme="light", reduced_motion="reduce", bypass_csp=True
        )  # fmt: skip
        yield context.new_page()
        context.close()


def check_size(file: Path, picture: bytes) -> None:
    print(f"{file}: {len(picture) / 1000:.0f} kB")
    if len(picture) > MAX_BYTES:
        raise SystemExit(f"{file} is larger than {MAX_BYTES / 1000:.0f} kB")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        raise SystemExit("usage: take_screenshots.py FOLDER")
    take(Path(sys.argv[1]))
