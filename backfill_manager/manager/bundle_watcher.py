"""Looks after the bundles: when a bundle's files have changed, it is scanned and the scan handed to the next tick.

Scanning runs DAG files in processes of their own (dags/loading/); this thread only waits for them.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from backfill_manager.clock import Clock
from backfill_manager.dags.loading.loader import BundleScan, content_hash, scan_bundle
from backfill_manager.errors import BackfillManagerError
from backfill_manager.settings import BundleSettings, LimitSettings
from backfill_manager.telemetry import get_logger

log = get_logger("bundles")


@dataclass(frozen=True)
class Scanned:
    scan: BundleScan


@dataclass(frozen=True)
class ScannedAll:
    """Every bundle has been scanned once: what the state says of DAGs is up to date."""


class BundleWatcher:
    def __init__(
        self,
        bundles: Sequence[BundleSettings],
        *,
        snapshots: Path,
        limits: LimitSettings,
        clock: Clock,
        on_event: Callable[[Scanned | ScannedAll], None],
    ) -> None:
        self._bundles, self._snapshots, self._limits = bundles, snapshots, limits
        self._clock, self._on_event = clock, on_event
        self._seen: dict[str, str | None] = {}
        self._due: dict[str, float] = {}
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._loop, name="bundle watcher", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()

    def run_once(self) -> float:
        """Scan what is due and has changed; returns the seconds until the next look."""
        now = self._clock.monotonic()
        for bundle in self._bundles:
            if self._due.get(bundle.name, now) > now:
                continue
            self._due[bundle.name] = now + bundle.fetch_interval
            looked = content_hash(bundle, snapshots=self._snapshots)
            if bundle.name in self._seen and self._seen[bundle.name] == looked:
                continue
            try:
                scan = scan_bundle(bundle, snapshots=self._snapshots, limits=self._limits)
            except (BackfillManagerError, OSError) as error:
                log.error("bundle not scanned", bundle=bundle.name, reason=str(error))
                continue
            self._seen[bundle.name] = looked
            for failure in scan.failed:
                log.warning(
                    "import error", bundle=bundle.name, file=failure.file, line=failure.line, message=failure.message
                )
            self._on_event(Scanned(scan))
        return max(0.0, min(self._due.values(), default=now + 60.0) - now)

    def _loop(self) -> None:
        wait = self.run_once()
        self._on_event(ScannedAll())
        while not self._stop.wait(wait):
            wait = self.run_once()
