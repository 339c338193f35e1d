"""What a look at a bundle costs when nothing, or one file, has changed: figures to print, never a timed assertion.

./tests/run tests/bench --bench -s
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from backfill_manager.clock import SystemClock
from backfill_manager.dags.bundles.files import FileFingerprints, read_bundle
from backfill_manager.dags.bundles.snapshot import take
from backfill_manager.testing import FakeClock

FILES = 1000


def milliseconds(look: Callable[[], object], rounds: int = 9) -> str:
    walls = []
    for _ in range(rounds):
        began = time.perf_counter()
        look()
        walls.append((time.perf_counter() - began) * 1000)
    return f"median {statistics.median(walls):.1f} ms of {rounds} (worst {max(walls):.1f})"


@pytest.mark.bench
def test_a_thousand_files(tmp_path: Path) -> None:
    root, base = tmp_path / "bundle", tmp_path / "snapshots"
    for n in range(FILES):
        path = root / f"team{n % 20}" / f"dag{n}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"from backfill_manager import dag\nN = {n}\n" + "# what it does\n" * 100)
    clock = FakeClock(SystemClock().now())
    clock.advance(hours=1)  # the files are not of this very moment
    stamps = FileFingerprints(clock)
    content = read_bundle(root, fingerprints=stamps)

    print(f"\n{FILES} files, each read: {milliseconds(lambda: read_bundle(root))}")
    print(f"{FILES} unchanged files: {milliseconds(lambda: read_bundle(root, fingerprints=stamps))}")
    print(f"first snapshot: {milliseconds(lambda: take(root, base, content=content), 1)}")

    def edited() -> None:
        with (root / "team0" / "dag0.py").open("a") as file:
            file.write("# edited\n")
        take(root, base, fingerprints=stamps)

    print(f"one edit, look and snapshot: {milliseconds(edited)}")
    assert len({path.stat().st_ino for path in base.rglob("*.py")}) == FILES + 9
