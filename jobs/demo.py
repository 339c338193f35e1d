"""`./spark-submit.sh demo`: a month of real flights through every part of the system, and its results.

The demo is a client like any other. It starts a manager beside itself (spark_driver.py), asks for a backfill with
`bfm`, as a person would, watches it, reads the tables, and stops the manager. All of it can be done again: what is
there is left, and a backfill that was cut short (by Ctrl-C, by `kill -9`) goes on where it stood.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from _thread import interrupt_main
from datetime import date, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Final
from zoneinfo import ZoneInfo

import demo_tables
import raw_flights
from rich.console import Console
from spark_driver import HERE, Driver, spark_arguments

from backfill_manager.cli import main as bfm
from backfill_manager.clock import SystemClock, format_instant
from backfill_manager.errors import BackfillManagerError, InvalidInput, NotFound, StateError
from backfill_manager.model import states
from backfill_manager.queries.backfills import BackfillFilter, list_backfills
from backfill_manager.queries.dags import current_dag
from backfill_manager.queries.managers import has_active_manager, is_lease_live
from backfill_manager.queries.runs import list_runs
from backfill_manager.store import Store, open_store
from backfill_manager.store.uri import is_catalog_schema

if TYPE_CHECKING:
    from backfill_manager.settings import Settings

DAG: Final = "flights"
ZONE: Final = ZoneInfo("America/New_York")
LOG: Final = Path("manager.log")
START_WITHIN_S: Final = 180.0
# A day is 900 flights: compiling queries, and compiling Java well, would cost more than it saves (65 s of CPU for a
# dozen days instead of 105). Real work on real data keeps Spark's own settings.
FOR_SMALL_DATA: Final = (
    "--driver-java-options=-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m",  # with 48m, the default then, it fills
    "--conf=spark.sql.codegen.wholeStage=false",
    "--conf=spark.sql.codegen.factoryMode=NO_CODEGEN",
    "--conf=spark.sql.adaptive.enabled=false",
)
UNFINISHED: Final = (states.QUEUED, states.RUNNING, states.PAUSED)


def run(settings: Settings, options: list[str], *, year: bool) -> int:
    """From raw data to result tables; returns the exit code."""
    began = time.monotonic()
    console = new_console()
    first, last = date(2013, 1, 1), date(2013, 12, 31) if year else date(2013, 1, 31)
    if is_catalog_schema(settings.state):
        raise InvalidInput(f"The demo keeps its state in a folder, not in {settings.state}: unset BFM_STATE.")
    store = open_store(settings.state)
    if raw_flights.prepare(settings.warehouse, console.print):
        _refuse_older_manager(store)
    spark = spark_arguments(settings, [*FOR_SMALL_DATA, *options])
    with open(LOG, "wb", opener=_private) as log, Driver(spark, [], log, interrupts=True) as driver:
        watch = _Watch(driver)
        try:
            with console.status("Starting the manager on a Spark of its own ..."):
                _wait_for_dag(store, watch)
            tell_start(console, settings)
            code = _backfill(store, console, first, last)
            if code == 0:
                demo_tables.show(settings.warehouse, console, first, last)
            watch.over()
        except KeyboardInterrupt:
            code = 130
        if watch.lost is not None:
            return _tell_loss(watch.lost)
        if driver.signalled is not None:
            console.print("Stopping. What has run is kept; ./spark-submit.sh demo goes on with the rest.")
            return 128 + driver.signalled
    if code == 0:
        tell_more(console, settings, time.monotonic() - began, year=year)
    return code


def new_console() -> Console:
    """It wraps no line: a path or command stays whole, to be copied."""
    return Console(highlight=False, soft_wrap=True)


def tell_start(console: Console, settings: Settings) -> None:
    console.print(f"The manager runs: state in {settings.state}, its log in {HERE / LOG}")


class _Watch:
    """If the manager ends before us, whatever we are doing is interrupted, and `lost` says with which exit code."""

    def __init__(self, driver: Driver) -> None:
        self.lost: int | None = None
        self._driver, self._over = driver, threading.Event()
        threading.Thread(target=self._watch, daemon=True).start()

    def over(self) -> None:
        self._over.set()

    def pause(self) -> None:
        self._over.wait(0.2)

    def _watch(self) -> None:
        code = self._driver.wait()
        if not self._over.is_set() and self._driver.signalled is None:
            self.lost = code
            interrupt_main(signal.SIGINT)


def _private(file: str, flags: int) -> int:
    """For `open`: a log has names of users and addresses, so it is its owner's."""
    return os.open(file, flags, 0o600)


def _refuse_older_manager(store: Store) -> None:
    """A manager learns at its start which tables there are; one from before ours were made would not find them."""
    row = store.lease() if store.exists() else None
    if row is not None and is_lease_live(row, SystemClock().now()):
        raise BackfillManagerError(
            f"A manager (pid {row.pid} on {row.host}) runs here since before the demo's tables were made, and does "
            "not know them. Stop it (`bfm manager stop`), then start the demo again."
        )


def _wait_for_dag(store: Store, watch: _Watch) -> None:
    """Until a manager leads, ours or one that was there, and has loaded the DAG."""
    until = time.monotonic() + START_WITHIN_S
    while time.monotonic() < until:
        if store.exists() and has_active_manager(store, SystemClock().now()):
            try:
                current_dag(store, DAG)
                return
            except NotFound:
                pass  # not yet
        watch.pause()
    raise StateError(f"No manager came to know the DAG {DAG!r} in {START_WITHIN_S:g} s; its log: {HERE / LOG}")


def _backfill(store: Store, console: Console, first: date, last: date) -> int:
    """Watch what is under way, then ask for what is missing; returns the exit code."""
    for unfinished in list_backfills(store, BackfillFilter(DAG, UNFINISHED)).items:
        backfill_id = unfinished["backfill_id"]
        console.print(f"Backfill {backfill_id} was cut short: it goes on.")
        if unfinished["state"] == states.PAUSED:
            _bfm(console, "backfill", "unpause", backfill_id)
        code = _bfm(console, "backfill", "watch", backfill_id)
        if code == 130:
            raise KeyboardInterrupt
    missing = _missing(store, first, last)
    if not missing:
        console.print(f"All {(last - first).days + 1} days from {first} to {last} are there.")
        return 0
    again = ["--reprocess", "failed"] if len(missing) <= (last - first).days else []
    code = _bfm(console, "backfill", "create", DAG, "--from", str(first), "--to", str(last), *again, "--wait")
    if code == 130:
        raise KeyboardInterrupt
    return code


def _missing(store: Store, first: date, last: date) -> list[str]:
    """Logical dates in the range that no run has succeeded for; a run may stand for several days."""
    days = [first + timedelta(days=n) for n in range((last - first).days + 1)]
    wanted = [format_instant(datetime(day.year, day.month, day.day, tzinfo=ZONE)) for day in days]
    done = list_runs(store, dag_id=DAG, in_states=(states.SUCCESS,)).items
    return [at for at in wanted if at and not any(one["interval_start"] <= at < one["interval_end"] for one in done)]


def _bfm(console: Console, *words: str) -> int:
    console.print(f"\n[bold]$ bfm {' '.join(words)}[/]")
    return bfm(words)


def _tell_loss(code: int) -> int:
    print(
        f"The manager ended (exit code {code}); its log: {HERE / LOG}. Nothing that had finished is lost: "
        "./spark-submit.sh demo goes on with the rest.",
        file=sys.stderr,
    )
    return code or 1


def tell_more(console: Console, settings: Settings, took_s: float, *, year: bool) -> None:
    console.print(f"\nDone in {took_s:.0f} s, and the manager has stopped. Look further, in {HERE}:")
    for command, why in (
        (".venv/bin/bfm runs list --dag flights", "every run"),
        (".venv/bin/bfm tasks logs flights latest clean", "what a task said"),
        ('.venv/bin/bfm state sql "SELECT state, count(*) FROM task_instance GROUP BY state"', "the state is tables"),
        ("./spark-submit.sh", "a manager that stays"),
        *(() if year else (("./spark-submit.sh demo --year", "the other eleven months"),)),
    ):
        console.print(f"  [cyan]{command}[/]  [dim]{why}[/]")
    console.print(f"The DAG is jobs/bundles/flights.py; its tables lie in {settings.warehouse}.")
