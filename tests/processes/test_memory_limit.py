"""What a cgroup's files say of its limit of memory, as the kernel writes them."""

from __future__ import annotations

from pathlib import Path

import pytest

from backfill_manager.processes.memory_cgroup import MemoryLimit, _limit

V1 = ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")
V2 = ("memory.max", "memory.current", "inactive_file")


@pytest.mark.parametrize(
    ("names", "most", "expected"),
    [
        (V2, "2000", MemoryLimit(2000, 1100)),
        (V2, "100", MemoryLimit(100, 0)),
        (V2, "max", None),
        (V1, "2000", MemoryLimit(2000, 1100)),
        (V1, "9223372036854771712", None),
    ],
)
def test_the_limit_and_what_is_free_of_it(
    tmp_path: Path, names: tuple[str, str, str], most: str, expected: MemoryLimit | None
) -> None:
    limit, usage, cache = names
    (tmp_path / limit).write_text(f"{most}\n")
    (tmp_path / usage).write_text("1500\n")
    (tmp_path / "memory.stat").write_text(f"cache 700\n{cache} 600\n")
    assert _limit(tmp_path, names is V2) == expected


def test_the_root_has_no_limit(tmp_path: Path) -> None:
    assert _limit(tmp_path, is_v2=True) is None
