"""The short form of the suite leaves out what is dear, and no more than that."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from support import measured_costs
from support.measured_costs import DEAR_S, read_costs, split_by_budget

TESTS = Path(__file__).parent


class Item:
    def __init__(self, nodeid: str, *, skipped: bool = False) -> None:
        self.nodeid, self._skipped = nodeid, skipped

    def get_closest_marker(self, name: str) -> object:
        return pytest.mark.skip if name == "skip" and self._skipped else None


def split(items: list[Item], costs: dict[str, float], budget_s: float) -> tuple[list[str], list[str]]:
    kept, left_out = split_by_budget(items, costs, budget_s)  # type: ignore[arg-type]
    return [item.nodeid for item in kept], [item.nodeid for item in left_out]


def test_of_a_dear_test_as_many_cases_stay_as_the_budget_allows_for() -> None:
    costs = {"t.py::some": 1.0, "t.py::whole": 2.2}
    items = [
        Item(nodeid) for nodeid in ("t.py::some[a]", "t.py::cheap", "t.py::some[b]", "t.py::some[c]", "t.py::whole")
    ]
    assert split(items, costs, 2.0) == (
        ["t.py::some[a]", "t.py::cheap", "t.py::some[b]"],
        ["t.py::some[c]", "t.py::whole"],
    )
    assert split(items, costs, 3.0) == ([item.nodeid for item in items], [])


def test_of_a_file_in_which_all_is_dear_the_cheapest_test_stays() -> None:
    costs = {"t.py::dear": 9.0, "t.py::dearer": 10.0, "u.py::dear": 8.0}
    items = [
        Item("t.py::dearer"),
        Item("t.py::dear[a]"),
        Item("t.py::dear[b]"),
        Item("u.py::cheap"),
        Item("u.py::dear"),
    ]
    assert split(items, costs, 2.0) == (
        ["t.py::dear[a]", "u.py::cheap"],
        ["t.py::dearer", "t.py::dear[b]", "u.py::dear"],
    )


def test_a_skipped_test_does_not_stand_for_its_file() -> None:
    costs = {"t.py::dear": 9.0, "t.py::slow": 1.6}
    items = [Item("t.py::cheap", skipped=True), Item("t.py::slow", skipped=True), Item("t.py::dear")]
    assert split(items, costs, 2.0) == ([item.nodeid for item in items], [])


def test_what_was_measured_becomes_a_file_of_the_dear_tests(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    many, one = DEAR_S * 0.8, DEAR_S * 2
    measured = {
        "1": [("t.py::many[1]", many), ("t.py::cheap", 0.1)],
        "2": [("t.py::many[2]", many), ("t.py::one", one)],
    }
    for process, lines in measured.items():
        (tmp_path / f"{process}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    measured_costs.main(str(tmp_path), str(tmp_path / "costs.txt"))
    assert read_costs(tmp_path / "costs.txt") == pytest.approx({"t.py::many": many, "t.py::one": one})
    assert (
        capsys.readouterr().out
        == f"2 dear tests of 3; {2 * many + one + 0.1:.0f} s of CPU, {2 * many + one:.0f} of them in dear ones\n"
    )


def test_every_test_that_is_called_dear_exists() -> None:
    gone = []
    for nodeid in read_costs():
        file, *names = nodeid.split("::")
        source = TESTS.parent / file
        names = [name for name in names if name != "runTest"]  # of a state machine
        if not source.exists() or not all(
            re.search(rf"(def|class|^) ?{name}\b", source.read_text(), re.M) for name in names
        ):
            gone.append(nodeid)
    assert gone == []
