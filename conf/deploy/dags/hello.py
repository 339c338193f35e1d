"""An hour's number for each hour of a day: something to run and to backfill that reads nothing."""

from backfill_manager import dag, sql, task


@dag(schedule="@daily", start_date="2026-01-01")
def hello():
    @task(retries=2)
    def hours(ctx):
        every_hour = "SELECT explode(sequence(:start, :end - INTERVAL 1 HOUR, INTERVAL 1 HOUR)) AS at"
        hours = ctx.spark.sql(every_hour, args={"start": ctx.interval.start, "end": ctx.interval.end})
        ctx.write(hours.selectExpr("at", "hour(at) AS number"), "hours", time_column="at")

    total = sql(
        "total",
        "SELECT :interval_start AS day, sum(number) AS total FROM hours WHERE at >= :interval_start AND at < :interval_end",
        into="totals",
        time_column="day",
    )
    hours() >> total
