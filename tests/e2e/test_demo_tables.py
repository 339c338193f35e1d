"""What `./spark-submit.sh demo` has left in this folder, against plain pandas. `.ci/run` runs this after the demo; where no
demo was run there is nothing to compare."""

from __future__ import annotations

from datetime import date
from pathlib import Path

import pytest
from support import flights_in_pandas as by_pandas
from support.notebooks import executed

WAREHOUSE = Path(__file__).parents[2] / "warehouse"
JANUARY = by_pandas.days_of(date(2013, 1, 1), date(2013, 1, 31))

pytestmark = pytest.mark.skipif(
    not (WAREHOUSE / "rolling_delays" / "_delta_log").exists(), reason="./spark-submit.sh demo has not been run here"
)


@pytest.mark.parametrize("table", by_pandas.EXPECTED)
def test_the_demos_tables_hold_what_pandas_computes_each_interval_once(table: str) -> None:
    by_pandas.check_table(WAREHOUSE, table, JANUARY, has_others=True)  # with `--year` there are more


def test_the_notebook_looks_at_the_state_as_it_is_and_as_it_was(tmp_path: Path) -> None:
    for name in ("state", "warehouse"):
        (tmp_path / name).symlink_to(WAREHOUSE.parent / name)
    cells = executed("look_at_state", tmp_path)
    assert "backfill" in cells[1] and "rolling_delays" in "".join(cells)
    by_version = cells[-1].splitlines()
    assert "success" in by_version[0] + by_version[1]
    assert int(by_version[-1].split()[-1]) >= 31, "the items of January have succeeded in the newest version"
