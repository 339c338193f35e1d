"""What each test costs in CPU, and which cases the short form of the suite leaves out for it.

    BFM_TEST_COSTS=/somewhere ./tests/run --all       # each part appends what its tests took
    python tests/support/measured_costs.py /somewhere tests/costs.txt

CPU and not time, with that of all processes below (a JVM, say), so that other work on the machine does not matter. `costs.txt`
has the dear tests alone. `--budget S` runs as many cases of each as S seconds of CPU allow for, which may be none, but at least
one test of each file, its cheapest: every story stays, in its shortest form.
"""

from __future__ import annotations

import json
import os
import sys
from collections import defaultdict
from collections.abc import Generator, Mapping, Sequence
from pathlib import Path
from typing import Final

import psutil
import pytest

COSTS: Final = Path(__file__).parents[1] / "costs.txt"
DEAR_S: Final = 1.5  # of CPU, for all cases of one test
CHEAP_CASE_S: Final = 0.05  # a look at each file of the repository, say: all of its cases run


class Costs:
    """Writes a line for each test: its id, and the seconds of CPU that it took with its fixtures."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._file = (folder / f"{os.getpid()}.jsonl").open("a", buffering=1, encoding="utf-8")

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        before = _cpu_s()
        result = yield
        self._file.write(json.dumps([item.nodeid, _cpu_s() - before]) + "\n")
        return result


def _cpu_s() -> float:
    """Of this process and all below it, those that have ended included."""
    me = psutil.Process()
    total = 0.0
    for process in [me, *me.children(recursive=True)]:
        try:
            took = process.cpu_times()
        except psutil.Error:  # it has just ended
            continue
        total += took.user + took.system + took.children_user + took.children_system
    return total


def name_of(nodeid: str) -> str:
    """The test, without its case."""
    return nodeid.partition("[")[0]


def read_costs(file: Path = COSTS) -> dict[str, float]:
    """Seconds for a case of each dear test."""
    lines = (line.split() for line in file.read_text(encoding="utf-8").splitlines() if not line.startswith("#"))
    return {name: float(seconds) for seconds, name in lines}


def split_by_budget(
    items: Sequence[pytest.Item], costs: Mapping[str, float], budget_s: float
) -> tuple[list[pytest.Item], list[pytest.Item]]:
    """Those that run with a budget of so many seconds of CPU for each test, and those that are left out; each in their order."""
    number, stays = defaultdict[str, int](int), set[str]()
    dear = defaultdict[str, list[pytest.Item]](list)
    for item in items:
        name = name_of(item.nodeid)
        number[name] += 1
        if number[name] * costs.get(name, 0.0) <= budget_s:
            stays.add(item.nodeid)
        else:
            dear[_file_of(item.nodeid)].append(item)
    for file in dear.keys() - {_file_of(item.nodeid) for item in items if item.nodeid in stays and _runs(item)}:
        if runs := [item for item in dear[file] if _runs(item)]:
            stays.add(min(runs, key=lambda item: costs[name_of(item.nodeid)]).nodeid)
    return [item for item in items if item.nodeid in stays], [item for item in items if item.nodeid not in stays]


def _file_of(nodeid: str) -> str:
    return nodeid.partition("::")[0]


def _runs(item: pytest.Item) -> bool:
    return item.get_closest_marker("skip") is None


def main(folder: str, into: str) -> None:
    took, cases = defaultdict[str, float](float), defaultdict[str, int](int)
    for file in Path(folder).glob("*.jsonl"):
        for line in file.read_text(encoding="utf-8").splitlines():
            nodeid, seconds = json.loads(line)
            took[name_of(nodeid)] += max(seconds, 0.0)
            cases[name_of(nodeid)] += 1
    a_case = {name: seconds / cases[name] for name, seconds in took.items()}
    dear = {name: seconds for name, seconds in a_case.items() if took[name] > DEAR_S and seconds > CHEAP_CASE_S}
    text = (
        "# CPU seconds of one case, and the test; written by tests/support/measured_costs.py, read by `./tests/run`.\n"
    )
    text += "".join(f"{dear[name]:.2f} {name}\n" for name in sorted(dear))
    Path(into).write_text(text, encoding="utf-8")
    total_dear = sum(took[name] for name in dear)
    print(
        f"{len(dear)} dear tests of {len(took)}; {sum(took.values()):,.0f} s of CPU, {total_dear:,.0f} of them in dear ones"
    )


if __name__ == "__main__":
    main(*sys.argv[1:])
