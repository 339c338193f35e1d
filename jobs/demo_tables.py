"""What the demo's tables tell a person, read without Spark (delta-rs): by carrier, by weather, by day."""

from __future__ import annotations

from datetime import date
from typing import Any, Final

import raw_flights
from rich.console import Console
from rich.table import Table

CARRIERS: Final = """
    SELECT carrier, sum(flights) AS flights, 100.0 * sum(cancelled) / sum(flights) AS cancelled_percent,
           100.0 * sum(late) / sum(departed) AS late_percent, 1.0 * sum(delay_minutes) / sum(departed) AS mean_delay,
           max(worst_delay) AS worst_delay
    FROM daily_delays WHERE day BETWEEN DATE '{first}' AND DATE '{last}'
    GROUP BY carrier HAVING sum(departed) >= 30 ORDER BY mean_delay DESC"""
WEATHER: Final = """
    SELECT CASE WHEN visib < 3 THEN 'fog or snow, sight < 3 miles' WHEN precip > 0 THEN 'rain or snow'
                WHEN wind_speed >= 20 THEN 'dry, wind of 20 mph and up' WHEN visib IS NULL THEN 'not known'
                ELSE 'dry and calm' END AS weather,
           count(*) AS flights, 100.0 * sum(CASE WHEN cancelled THEN 1 ELSE 0 END) / count(*) AS cancelled_percent,
           100.0 * sum(CASE WHEN dep_delay > 15 THEN 1 ELSE 0 END) / count(dep_delay) AS late_percent,
           avg(dep_delay) AS mean_delay
    FROM clean_flights WHERE day BETWEEN DATE '{first}' AND DATE '{last}'
    GROUP BY 1 ORDER BY mean_delay DESC"""
DAYS: Final = """
    SELECT day, origin, flights, mean_delay, mean_delay_7d, holiday
    FROM rolling_delays WHERE day BETWEEN DATE '{first}' AND DATE '{last}' AND mean_delay IS NOT NULL
    ORDER BY mean_delay DESC LIMIT 8"""
HEADINGS: Final = {
    "carrier": "airline", "origin": "airport", "cancelled_percent": "% cancelled", "late_percent": "% late",
    "mean_delay": "mean min", "worst_delay": "worst min", "mean_delay_7d": "7-day mean min",
}  # fmt: skip


def show(warehouse: str, console: Console, first: date, last: date) -> None:
    """Three tables over the days from `first` to `last`."""
    names = raw_flights.airline_names()
    carriers = query(warehouse, CARRIERS, first, last)
    for row in carriers:
        row["carrier"] = (
            names.get(row["carrier"], row["carrier"])
            .partition(" Airlines")[0]
            .removesuffix(" Inc.")
            .removesuffix(" Corporation")
        )
    console.print()
    console.print(_drawn("Departure delays by airline; late is over 15 minutes (daily_delays)", carriers))
    console.print(_drawn("... by the weather of the hour (clean_flights)", query(warehouse, WEATHER, first, last)))
    console.print(
        _drawn("The worst days, and the week up to each (rolling_delays)", query(warehouse, DAYS, first, last))
    )


def query(warehouse: str, sql: str, first: date, last: date) -> list[dict[str, Any]]:
    import pyarrow as pa
    from deltalake import DeltaTable, QueryBuilder

    builder = QueryBuilder()
    for name in ("clean_flights", "daily_delays", "rolling_delays"):
        if name in sql:
            builder = builder.register(name, DeltaTable(f"{warehouse.rstrip('/')}/{name}"))
    rows: list[dict[str, Any]] = pa.table(builder.execute(sql.format(first=first, last=last)).read_all()).to_pylist()
    return rows


def _drawn(title: str, rows: list[dict[str, Any]]) -> Table:
    table = Table(title=title, title_justify="left", title_style="bold")
    for name in rows[0] if rows else ():
        table.add_column(
            HEADINGS.get(name, name), justify="right" if isinstance(rows[0][name], int | float) else "left"
        )
    for row in rows:
        table.add_row(*(_cell(value) for value in row.values()))
    return table


def _cell(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, float):
        return f"{value:,.1f}"
    return f"{value:,}" if isinstance(value, int) else str(value)
