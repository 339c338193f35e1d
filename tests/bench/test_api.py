"""How fast a real `bfm serve` answers on a big state, beside the same on an empty one, and what memory it holds. Figures
to print, never a timed assertion; what is always asserted is that no page reads more than a page.

./tests/run tests/bench/test_api.py --bench -s
"""

from __future__ import annotations

import json
import random
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import httpx
import pytest
from support.large_state import BigState, write_big_state
from support.served_process import Served, as_fast_as_it_goes, at_a_pace, led, percentiles, served

from backfill_manager.api.app import create_app
from backfill_manager.api.server import listen, served_beside
from backfill_manager.clock import SystemClock
from backfill_manager.model.records import Record
from backfill_manager.settings import Settings
from backfill_manager.store.base import Condition, R
from backfill_manager.store.delta_rs.store import DeltaRsStore

API = "/api/v1/backfills"
PER_SECOND = 50
SECONDS = 20


def cursors_of(url: str, backfill_id: str, page: int) -> list[str]:
    """Where each page of its items begins but the first."""
    found: list[str] = []
    path = f"{API}/{backfill_id}/items"
    with httpx.Client(base_url=url, trust_env=False, timeout=60) as client:
        while True:
            cursor = {"cursor": found[-1]} if found else {}
            result = client.get(path, params={"limit": page, **cursor}).json()
            if result["next_cursor"] is None:
                return found
            found.append(result["next_cursor"])


def mixed(ids: Sequence[str], largest: str, cursors: Sequence[str], n: int) -> list[str]:
    """Lists, single backfills and pages of items of the API in turn."""
    dice = random.Random(n)
    kinds = (
        lambda: f"{API}?limit=50",
        lambda: f"{API}/{dice.choice(ids)}",
        lambda: f"{API}/{largest}/items?limit=100&cursor={dice.choice(cursors)}",
    )
    return [kinds[k % len(kinds)]() for k in range(n)]


def with_pages(api: Sequence[str], ids: Sequence[str]) -> list[str]:
    """The same, but each fifth is a page that people look at: the list of backfills and one of them, in turn."""
    dice = random.Random(len(api))
    pages = (lambda: "/backfills", lambda: f"/backfills/{dice.choice(ids)}")
    return [pages[k // 5 % 2]() if k % 5 == 4 else path for k, path in enumerate(api)]


def paced(server: Served, paths: Sequence[str], per_second: float = PER_SECOND) -> dict[str, Any]:
    """Figures of these requests, by default at the pace of the bar."""
    before = server.cpu_s()
    result: dict[str, Any] = {**percentiles(at_a_pace(server.url, paths, per_second))}
    return {**result, "cpu_ms_per_request": round((server.cpu_s() - before) / len(paths) * 1000, 1)}


def first_ms(server: Served, path: str) -> float:
    begun = time.perf_counter()
    assert httpx.get(server.url + path, trust_env=False, timeout=60).status_code == 200
    return round((time.perf_counter() - begun) * 1000, 1)


@pytest.fixture(scope="module")
def big(tmp_path_factory: pytest.TempPathFactory) -> BigState:
    root = tmp_path_factory.mktemp("big") / "state"
    return write_big_state(root, task_instances=1_000_000, items=100_000, backfills=400)


@pytest.fixture(scope="module")
def nothing(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A state without a backfill."""
    root = tmp_path_factory.mktemp("nothing") / "state"
    DeltaRsStore(str(root)).init()
    return root


@pytest.mark.bench
def test_the_first_requests(big: BigState) -> None:
    with served(big.root) as server:
        result: dict[str, Any] = {"from_start_to_health_ms": first_ms(server, "/api/v1/health")}
        result["from_start_to_health_ms"] = round((time.perf_counter() - server.started_at) * 1000)
        for path in (f"{API}?limit=50", f"{API}/{big.largest}", f"{API}/{big.largest}/items?limit=100"):
            result[f"first {path}"] = first_ms(server, path)
        for path in ("/backfills", f"/backfills/{big.largest}"):
            result[f"first {path}"] = first_ms(server, path)
        result["rss_mb"] = round(server.rss_mb())
    print("\n" + json.dumps(result, indent=2))


@pytest.mark.bench
def test_fifty_requests_a_second(big: BigState, nothing: Path) -> None:
    result: dict[str, Any] = {}
    n = PER_SECOND * SECONDS
    with served(nothing) as server:
        result["an empty state"] = paced(server, [f"{API}?limit=50"] * n)
    with served(big.root) as server:
        cursors = cursors_of(server.url, big.largest, 1000)
        api = mixed(big.backfill_ids, big.largest, cursors, n)
        result["a big state that stands still"] = paced(server, api)
        with led(big.root, big.largest):
            result["a big state and a leader at work"] = paced(server, api)
            result["the same, each fifth a page"] = paced(server, with_pages(api, big.backfill_ids))
            result["one page that is looked at, twice a second"] = paced(server, [f"/backfills/{big.largest}"] * 40, 2)
        result["rss_mb"] = round(server.rss_mb())
    print("\n" + json.dumps(result, indent=2))


@pytest.mark.bench
def test_memory_over_ten_thousand_requests(big: BigState) -> None:
    with served(big.root) as server, led(big.root, big.largest):
        cursors = cursors_of(server.url, big.largest, 1000)
        paths = with_pages(mixed(big.backfill_ids, big.largest, cursors, 10_000), big.backfill_ids)
        result: dict[str, Any] = {"rss_mb at first": round(server.rss_mb())}
        done, seconds = 0, 0.0
        for upto in (1_000, 2_500, 5_000, 7_500, 10_000):
            seconds += as_fast_as_it_goes(server.url, paths[done:upto])
            done = upto
            result[f"rss_mb after {upto}"] = round(server.rss_mb())
            print(f"\nafter {upto}: {server.rss_mb():.0f} MB", flush=True)
        result["requests_per_s"] = round(done / seconds, 1)
    print("\n" + json.dumps(result, indent=2))


# -- always: no page reads more than a page -----------------------------------------------------------------------------


class CountingStore(DeltaRsStore):
    """Remembers how many rows each read has made of a table."""

    def __init__(self, root: str) -> None:
        super().__init__(root)
        self.rows: dict[str, int] = {}

    def read(
        self,
        record: type[R],
        where: Sequence[Condition] = (),
        order_by: Sequence[str] = (),
        limit: int | None = None,
        without: Sequence[str] = (),
    ) -> list[R]:
        found = super().read(record, where, order_by, limit, without)
        self._count_rows(record, len(found))
        return found

    def _count_rows(self, record: type[Record], rows: int) -> None:
        self.rows[record.TABLE] = self.rows.get(record.TABLE, 0) + rows


def test_a_page_of_a_long_list_reads_no_more_than_a_page(tmp_path: Path) -> None:
    state = write_big_state(tmp_path / "state", task_instances=20_000, items=4_000, backfills=60, dags=3)
    store = CountingStore(str(state.root))
    settings = Settings.model_validate({"state": str(state.root)})
    app = create_app(settings, store, clock=SystemClock())
    with (
        served_beside(app, listen("127.0.0.1", 0)) as url,
        httpx.Client(base_url=url, trust_env=False, timeout=60) as client,
    ):

        def rows_for(path: str) -> tuple[dict[str, Any], dict[str, int]]:
            store.rows.clear()
            answer = client.get(path)
            assert answer.status_code == 200, answer.text
            return answer.json(), {table: rows for table, rows in store.rows.items() if rows}

        items = f"{API}/{state.largest}/items"
        first, for_first = rows_for(f"{API}?limit=10")
        second, for_second = rows_for(f"{API}?limit=10&cursor={first['next_cursor']}")
        _, for_one = rows_for(f"{API}/{state.largest}")
        page, for_page = rows_for(f"{items}?limit=100")
        far, for_far = rows_for(f"{items}?limit=100&cursor={cursors_of(url, state.largest, 900)[-1]}")
        failed, for_failed = rows_for(f"{items}?limit=10&state=failed")

    assert for_first["backfill"] <= 11 and for_second["backfill"] <= 22
    assert {one["backfill_id"] for one in first["items"]}.isdisjoint(one["backfill_id"] for one in second["items"])
    assert "backfill_item" not in for_one and for_one.get("dag_run", 0) <= 100
    assert for_page["backfill_item"] <= 101 and for_far["backfill_item"] <= 101 and for_failed["backfill_item"] <= 11
    assert [one["ordinal"] for one in page["items"]] == list(range(1, 101))
    assert far["items"][0]["ordinal"] == 1801
    assert {one["state"] for one in failed["items"]} == {"failed"} and len(failed["items"]) == 10
    for read in (for_first, for_second, for_one, for_page, for_far, for_failed):
        assert "task_instance" not in read
