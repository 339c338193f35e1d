"""The quick form of the suite leaves out what is dear, and no more than that."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from support import measured_costs
from support.measured_costs import BUDGET_S, read_costs, split_quick

TESTS = Path(__file__).parent


class Item:
    def __init__(self, nodeid: str) -> None:
        self.nodeid = nodeid


def test_of_a_dear_test_as_many_cases_stay_as_the_budget_allows_for() -> None:
    costs = {"t.py::some": BUDGET_S / 2, "t.py::whole": BUDGET_S * 1.1}
    ids = ["t.py::some[a]", "t.py::cheap", "t.py::some[b]", "t.py::some[c]", "t.py::whole"]
    kept, left_out = split_quick([Item(nodeid) for nodeid in ids], costs)  # type: ignore[misc]
    assert [item.nodeid for item in kept] == ["t.py::some[a]", "t.py::cheap", "t.py::some[b]"]
    assert [item.nodeid for item in left_out] == ["t.py::some[c]", "t.py::whole"]


def test_what_was_measured_becomes_a_file_of_the_dear_tests(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    many, one = BUDGET_S * 0.8, BUDGET_S * 2
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
        == f"2 dear tests of 3; about {2 * BUDGET_S + 0.1:.0f} of {2 * many + one + 0.1:.0f} s of CPU stay\n"
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
