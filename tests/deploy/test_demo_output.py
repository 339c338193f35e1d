"""What `./spark-submit.sh demo` prints beside the tables."""

from __future__ import annotations

from pathlib import Path

import pytest

from backfill_manager.settings import Settings

JOBS = Path(__file__).parents[2] / "jobs"


def test_paths_and_commands_stay_on_one_line_of_a_narrow_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    monkeypatch.syspath_prepend(JOBS)
    import demo

    console = demo.new_console()
    demo.tell_start(console, Settings(state="/srv/a folder with a long name/of the demo/state"))
    demo.tell_more(console, Settings(warehouse="/srv/a folder with a long name/warehouse"), 61.0, year=False)

    lines = capsys.readouterr().out.splitlines()
    assert (
        f"The manager runs: state in /srv/a folder with a long name/of the demo/state, its log in {JOBS.parent / 'manager.log'}"
        in lines
    )
    assert f"Done in 61 s, and the manager has stopped. Look further, in {JOBS.parent}:" in lines
    assert any(line.startswith("  .venv/bin/bfm tasks logs flights latest clean  ") for line in lines)
    assert "The DAG is jobs/bundles/flights.py; its tables lie in /srv/a folder with a long name/warehouse." in lines
