"""What `./spark-submit.sh demo` has left in this folder, against plain pandas. `.ci/run` runs this after the demo; where no
demo was run there is nothing to compare."""

from __future__ import annotations

from datetime import date
from pathlib import Path

import pandas as pd
import pytest
from deltalake import DeltaTable, QueryBuilder
from support import flights_in_pandas as by_pandas

WAREHOUSE = Path(__file__).parents[2] / "warehouse"
JANUARY = by_pandas.days_of(date(2013, 1, 1), date(2013, 1, 31))

pytestmark = pytest.mark.skipif(
    not (WAREHOUSE / "rolling_delays" / "_delta_log").exists(), reason="./spark-submit.sh demo has not been run here"
)


@pytest.mark.parametrize(
    ("table", "expected", "key"),
    [
        ("clean_flights", by_pandas.expected_clean_flights, by_pandas.CLEAN_KEY),
        ("daily_delays", by_pandas.expected_daily_delays, by_pandas.DAILY_KEY),
        ("rolling_delays", by_pandas.expected_rolling_delays, by_pandas.ROLLING_KEY),
    ],
)
def test_the_demos_tables_hold_what_pandas_computes_each_interval_once(table: str, expected, key: list[str]) -> None:  # type: ignore[no-untyped-def]
    found = QueryBuilder().register(table, DeltaTable(str(WAREHOUSE / table)))
    rows = found.execute(f"SELECT * FROM {table} WHERE day BETWEEN '2013-01-01' AND '2013-01-31'").read_all()
    frame = pd.DataFrame({name: rows[name].to_pylist() for name in rows.schema.names})
    by_pandas.same_rows(frame, expected(JANUARY), key)
