"""A day of New York's flights, from raw rows to a rolling figure: the example to read first.

    flights_raw, weather_raw ─► clean ─► daily_delays ─┐
                                         holidays ─────┴─► rolling_delays

Each run has a data interval, one day in New York here, and every task writes its interval and nothing else: that is
what makes a run repeatable, and a year of runs a backfill. As no task cares how long the interval is, the DAG is
`batchable`: a backfill does as many days per run as pay, `--batch 1` one.
"""

import json
from datetime import date, timedelta
from zoneinfo import ZoneInfo

from pyspark.sql import Window
from pyspark.sql import functions as F

from backfill_manager import dag, sql, task

NEW_YORK = "America/New_York"


def federal_holidays(year: int) -> dict[date, str]:
    def weekday(month: int, weekday: int, nth: int) -> date:
        """The nth Monday (0), Tuesday (1), ... of a month."""
        first = date(year, month, 1)
        return first + timedelta(days=(weekday - first.weekday()) % 7 + 7 * (nth - 1))

    return {
        date(year, 1, 1): "New Year's Day",
        weekday(1, 0, 3): "Martin Luther King Jr. Day",
        weekday(2, 0, 3): "Presidents' Day",
        weekday(6, 0, 1) - timedelta(days=7): "Memorial Day",  # the last Monday of May
        date(year, 7, 4): "Independence Day",
        weekday(9, 0, 1): "Labor Day",
        weekday(10, 0, 2): "Columbus Day",
        date(year, 11, 11): "Veterans Day",
        weekday(11, 3, 4): "Thanksgiving",
        date(year, 12, 25): "Christmas",
    }


@dag(
    schedule="@daily",
    start_date="2013-01-01",
    end_date="2013-12-31",
    timezone=NEW_YORK,
    catchup=False,
    max_active_runs=8,
    batchable=True,
    reads={"flights_raw": "time_hour", "weather_raw": "time_hour"},
    writes=["clean_flights", "daily_delays", "rolling_delays"],
    tags=["example"],
)
def flights():
    """Delays at New York's three airports in 2013, by day, carrier and airport."""

    # 1. A Python task: runs in the manager, its data work is Spark's. `ctx.write` replaces exactly the interval's rows.
    @task(retries=2, retry_delay=5, timeout=600)
    def clean(ctx):
        """Each flight of the interval with the weather of its hour at its airport, where that is known."""
        of_the_day = ctx.in_interval("time_hour")
        weather = ctx.spark.table("weather_raw").where(of_the_day)
        departures = ctx.spark.table("flights_raw").where(of_the_day)
        joined = departures.join(
            F.broadcast(weather.select("origin", "time_hour", "temp", "wind_speed", "precip", "visib")),
            on=["origin", "time_hour"],
            how="left",
        )
        cleaned = joined.select(
            F.to_date(F.from_utc_timestamp("time_hour", NEW_YORK)).alias("day"),
            *["time_hour", "carrier", "flight", "origin", "dest", "dep_delay", "arr_delay"],
            F.col("dep_delay").isNull().alias("cancelled"),
            *["temp", "wind_speed", "precip", "visib"],
        )
        ctx.write(cleaned, "clean_flights", time_column="time_hour")

    # 2. A SQL task: the query in daily_delays.sql, with the interval as its parameters; its rows go `into` a table.
    daily_delays = sql("daily_delays", "daily_delays.sql", into="daily_delays", time_column="day", retries=2)

    # 3. An executor task: the whole function runs on a Spark executor. This is the place of what must stay off the
    #    manager, such as calls to a service; here it works out a calendar. What it returns, small JSON, is its result.
    @task.executor(retries=2)
    def holidays(ctx):
        """The federal holidays of the interval: `{"2013-01-01": "New Year's Day"}`."""
        first, after = (at.astimezone(ZoneInfo(NEW_YORK)).date() for at in ctx.interval)
        known = [federal_holidays(year) for year in range(first.year, after.year + 1)]
        return {str(day): name for year in known for day, name in year.items() if first <= day < after}

    # 4. A task that builds on earlier days: it waits until the same task of the run before has succeeded.
    @task(depends_on_past=True, retries=2, retry_delay=5)
    def rolling_delays(ctx):
        """Per day and airport: the mean delay of the day and of the seven days that end with it, and the holiday."""
        first = ctx.interval.start.astimezone(ZoneInfo(NEW_YORK)).date()
        days = ctx.spark.table("daily_delays").where(F.col("day") >= first - timedelta(days=6))
        per_airport = days.groupBy("day", "origin").agg(
            *(F.sum(name).alias(name) for name in ("flights", "departed", "delay_minutes"))
        )
        week = Window.partitionBy("origin").orderBy(F.unix_date("day")).rangeBetween(-6, 0)
        holiday = F.from_json(F.lit(json.dumps(ctx.result("holidays"))), "map<string, string>")
        rolling = per_airport.select(
            *["day", "origin", "flights"],
            F.try_divide("delay_minutes", "departed").alias("mean_delay"),
            F.try_divide(F.sum("delay_minutes").over(week), F.sum("departed").over(week)).alias("mean_delay_7d"),
            F.count("day").over(week).cast("int").alias("days"),
            holiday[F.col("day").cast("string")].alias("holiday"),
        )
        ctx.write(rolling.where(ctx.in_interval("day")), "rolling_delays", time_column="day")

    clean() >> daily_delays
    [daily_delays, holidays()] >> rolling_delays()
