"""A backfill of 100,000 items on disk: its map, zoomed down to one item."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from datetime import timedelta
from pathlib import Path

import pyarrow as pa
from support.browser_server import served
from support.sample_state import NEW_YEAR, FilledState, StandingClock
from support.web_user import User, expect, screenshots

from backfill_manager.clock import SystemClock
from backfill_manager.model.records import BackfillItem, columns
from backfill_manager.store.table_properties import arrow_schema

N = 100_000


def put_items(state: FilledState, backfill_id: str, first_seq: int) -> None:
    """By the hour: 60,000 succeeded but for every 997th, the next 40 are running, the rest is pending."""

    def state_of(n: int) -> str:
        if n < 60_000:
            return "failed" if n % 997 == 996 else "success"
        return "running" if n < 60_040 else "pending"

    rows = {name: [None] * N for name in columns(BackfillItem)}
    dates = [NEW_YEAR + timedelta(hours=n) for n in range(N)]
    rows |= {
        "backfill_id": [backfill_id] * N, "ordinal": list(range(1, N + 1)), "state": [state_of(n) for n in range(N)],
        "run_seq": list(range(first_seq, first_seq + N)), "logical_date": dates, "interval_start": dates,
        "interval_end": [one + timedelta(hours=1) for one in dates],
    }  # fmt: skip
    state.leader.append_items(pa.table(rows, schema=arrow_schema(BackfillItem)))


def test_a_hundred_thousand_items_are_drawn_and_looked_into(
    new_user: Callable[..., User], exit_stack: ExitStack, tmp_path: Path
) -> None:
    at, clock = StandingClock(), SystemClock()
    state = FilledState(tmp_path / "state", at)
    exit_stack.callback(state.store.close)
    state.dag(schedule="@hourly")
    state.leads()
    first_seq = state.leader.next_seq(N)
    state.backfill("many", planned=N)
    put_items(state, "many", first_seq)
    ada = new_user(exit_stack.enter_context(served(state.store, at)))
    cells = ada.page.locator("#item-map a")

    for again in ("first", "second"):
        begun = clock.monotonic()
        ada.goes("/backfills/many")
        expect(cells).to_have_count(1000)
        print(f"\n{N:,} items drawn in {clock.monotonic() - begun:.2f} s ({again} time)")
    page = ada.page
    expect(page.get_by_text("60,000 of 100,000 items done")).to_be_visible()
    assert ada.barriers() == []
    assert ada.too_wide() == []
    page.screenshot(path=screenshots() / "many-items.png")

    # its tenth cell holds the first that failed; a click leads to its hundred items, another to the one
    expect(cells.nth(9)).to_have_accessible_name(
        "2013-02-07 12:00 EST to 2013-02-11 15:00 EST, items 901 to 1,000: 99 success, 1 failed"
    )
    begun = clock.monotonic()
    cells.nth(9).click()
    expect(cells).to_have_count(100)
    print(f"100 of them drawn in {clock.monotonic() - begun:.2f} s")
    failed = page.locator("#item-map a:has(.cell.s-failed)")
    expect(failed).to_have_count(1)
    failed.click()
    expect(page.locator("#items tbody tr")).to_have_count(1)
    expect(page.locator("#items tbody tr")).to_contain_text("failed")
    page.get_by_role("navigation", name="Range of items").get_by_role("link", name="all 100,000").click()
    expect(cells).to_have_count(1000)

    # a rectangle over the whole map is one range, however many items it holds; the cells of a zoom show it
    first, last = (cells.nth(n).bounding_box() for n in (0, 999))
    assert first and last
    begun = clock.monotonic()
    page.mouse.move(first["x"] + 2, first["y"] + 2)
    page.mouse.down()
    page.mouse.move(last["x"] + 200, last["y"])
    page.mouse.move(last["x"] + 2000, last["y"] + last["height"] / 2)
    page.mouse.up()
    expect(page.locator(".selection-count")).to_have_text("100,000 items selected")
    print(f"all of them selected in {clock.monotonic() - begun:.2f} s")
    assert page.locator('#selection [name="selected"]').input_value() == "1-100000"
    page.get_by_role("button", name="Retry failed…").click()
    expect(page.get_by_role("heading", name="Retry 60 failed items")).to_be_visible()
    page.goto("/backfills/many?from=901&to=1000")
    expect(page.locator("#item-map a.is-selected")).to_have_count(100)
