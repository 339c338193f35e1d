"""How fast DAG files are parsed, and whether the workers grow: figures to print, never a timed assertion.

./tests/run tests/bench/test_parsing.py --bench -s

The short form of it, which asserts and runs always, is in `tests/dags/test_loader.py`.
"""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from backfill_manager.dags.importing.loader import DagLoader, ParsedFile


def process_ids(loader: DagLoader) -> tuple[int, ...]:
    """Of the workers that are alive."""
    return tuple(worker.pid for worker in loader._started if worker.is_alive)


@pytest.fixture
def loader(tmp_path: Path) -> Iterator[DagLoader]:
    """Warm: each of its two workers has read some files before."""
    (tmp_path / "warm.py").write_text(small(0))
    with DagLoader(workers=2) as loader:
        loader.load(tmp_path, ["warm.py"] * 10)
        yield loader


def small(number: int) -> str:
    return many_dags(number, 1)


def many_dags(number: int, dags: int) -> str:
    made = (
        f"@dag('dag_{number}_{i}', schedule='@daily', start_date='2013-01-01')\n"
        f"def dag_{i}():\n"
        "    @task\n    def clean(ctx): ...\n"
        "    clean() >> sql('count', 'SELECT 1')\n"
        for i in range(dags)
    )
    return "from backfill_manager import dag, sql, task\n" + "".join(made)


def many_tasks(number: int) -> str:
    return (
        f"from backfill_manager import dag, sql\n@dag('dag_{number}')\ndef wide():\n    before = sql('t0', 'SELECT 0')\n"
        "    for i in range(1, 500):\n        before = before >> sql(f't{i}', f'SELECT {i}')\n"
    )


def many_parameters(number: int) -> str:
    read = "import json\nfrom pathlib import Path\nfile = Path(__file__).parent / 'parameters.json'\n"
    return f"{read}for _ in range(100):\n    parameters = json.loads(file.read_text())\n{small(number)}"


@pytest.mark.bench
@pytest.mark.parametrize(
    ("what", "count", "text"),
    [
        ("new small files", 1000, small),
        ("files of 10 DAGs", 100, lambda number: many_dags(number, 10)),
        ("files of a DAG of 500 tasks", 20, many_tasks),
        ("files that read a parameter file 100 times", 200, many_parameters),
    ],
)
def test_files_a_second(loader: DagLoader, tmp_path: Path, what: str, count: int, text: Callable[[int], str]) -> None:
    root = tmp_path / "bundle"
    root.mkdir()
    (root / "parameters.json").write_text('{"regions": ["eu", "us"]}')
    files = [f"file_{number}.py" for number in range(count)]
    for number, file in enumerate(files):
        (root / file).write_text(text(number))
    began = time.perf_counter()
    results = loader.load(root, files)
    took = time.perf_counter() - began
    assert all(isinstance(result, ParsedFile) for result in results)
    print(f"\n{count} {what}: {took:.2f} s, {count / took:.0f} files/s")


@pytest.mark.bench
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_memory_of_the_workers_over_ten_thousand_parses(loader: DagLoader, tmp_path: Path) -> None:
    root = tmp_path / "bundle"
    root.mkdir()
    files = [f"file_{number}.py" for number in range(1000)]
    for number, file in enumerate(files):
        (root / file).write_text(small(number))
    resident = []
    for _ in range(10):
        loader.load(root, files)
        resident.append(resident_mb(loader))
    print(f"\nMB of two workers after each thousand parses: {', '.join(f'{mb:.1f}' for mb in resident)}")


def resident_mb(loader: DagLoader) -> float:
    texts = [Path(f"/proc/{pid}/status").read_text() for pid in process_ids(loader)]
    return sum(int(re.findall(r"VmRSS:\s+(\d+)", text)[0]) for text in texts) / 1024
