"""Dagster's assets and jobs as drafts."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from pathlib import Path
from types import SimpleNamespace

import pytest
from support.drafted import Drafted

from backfill_manager.execution.interval import Interval
from backfill_manager.importers.dagster.drafts import translate
from backfill_manager.importers.files import convert
from backfill_manager.importers.writer import write
from backfill_manager.testing import load_file

ASSETS = '''
"""Orders of the shop."""

from dagster import (
    AssetExecutionContext, AssetKey, DailyPartitionsDefinition, Definitions, MaterializeResult, Output, RetryPolicy,
    ScheduleDefinition, asset, asset_check, job, op,
)

FACTOR = 2
daily = DailyPartitionsDefinition(start_date="2024-05-01", timezone="Europe/Berlin")


def helper(n):
    return n * FACTOR


@asset(partitions_def=daily, deps=[AssetKey("orders")], io_manager_key="lake")
def totals(context: AssetExecutionContext, customers):
    # what a day has
    context.log.info("%s", context.partition_key)
    return [context.partition_key, context.partition_time_window.end.isoformat(), customers]


@asset(partitions_def=daily, retry_policy=RetryPolicy(max_retries=3, delay=10), group_name="sales", owners=["team:sales"])
def orders():
    return Output(helper(2), metadata={"n": 1})


@asset(partitions_def=daily, name="customers")
def all_customers(orders):
    return orders + 1


@asset
def report(database):
    return MaterializeResult(metadata={"n": 1})


@asset_check(asset=orders)
def some():
    ...


@op
def extract():
    return 5


@op(retry_policy=RetryPolicy(max_retries=1))
def load(context, rows):
    context.log.info("%s", rows)
    return rows * 2


@job
def nightly():
    """Each night."""
    load(load(extract()))


schedule = ScheduleDefinition(job=nightly, cron_schedule="0 2 * * *", execution_timezone="Europe/Berlin")
defs = Definitions(assets=[orders, totals], schedules=[schedule])
'''


def test_assets_and_jobs(tmp_path: Path) -> None:
    draft = translate(ASSETS, "shop.py")
    (tmp_path / "shop.py").write_text(text := write(draft))
    dags = {dag.dag_id: dag for dag in load_file(tmp_path / "shop.py")}
    assert set(dags) == {"shop", "shop_2", "nightly"}
    spec = dags["shop"].spec
    assert (spec.schedule, spec.timezone, str(spec.start_date)) == (
        "@daily",
        "Europe/Berlin",
        "2024-04-30 22:00:00+00:00",
    )
    assert {task.task_id: task.upstream for task in spec.tasks} == {
        "orders": (), "customers": ("orders",), "totals": ("orders", "customers")
    }  # fmt: skip
    assert (spec.task("orders").retries, spec.task("orders").retry_delay, spec.owner, spec.tags) == (
        3,
        10,
        "team:sales",
        ("sales",),
    )
    made = Drafted(draft, text, [dags["shop"]])
    assert made.run("orders") == 4 and made.run("customers", results={"orders": 4}) == 5
    assert made.run("totals", results={"customers": 5}) == ["2024-05-01", "2024-05-02T02:00:00+02:00", 5]
    nightly = dags["nightly"].spec
    assert (nightly.schedule, nightly.description) == ("0 2 * * *", "Each night.")
    assert {task.task_id: task.upstream for task in nightly.tasks} == {
        "extract": (),
        "load": ("extract",),
        "load_2": ("load",),
    }
    assert Drafted(draft, text, [dags["nightly"]]).run("load_2", results={"load": 10}) == 20
    assert dags["shop_2"].spec.schedule is None
    assert {
        "io_manager_key= of totals",
        "`database`, given by Dagster",
        "MaterializeResult",
        "@asset_check some",
    } <= set(made.remarks)
    assert "# what a day has" in text and "import dagster" not in text and "from dagster" not in text


@pytest.mark.parametrize(
    "named",
    ['"orders"', '"shop/orders"', "orders", 'AssetKey("orders")', 'AssetKey(["shop", "orders"])', 'AssetDep("orders")',
     'AssetDep(AssetKey(["shop", "orders"]))', 'SourceAsset(key="orders"), orders'],
)  # fmt: skip
def test_an_asset_comes_after_those_that_it_names_in_any_way(tmp_path: Path, named: str) -> None:
    text = f"""from dagster import AssetDep, AssetKey, SourceAsset, asset
@asset
def orders(): return 1
@asset(deps=[{named}])
def totals(): return 2
"""
    (tmp_path / "shop.py").write_text(write(translate(text, "shop.py")))
    (dag,) = load_file(tmp_path / "shop.py")
    assert dag.spec.task("totals").upstream == ("orders",)


def test_a_file_without_assets() -> None:
    draft = translate("x = 1\n", "x.py")
    assert (draft.dags, [remark.what for remark in draft.remarks]) == ([], ["no asset and no job was found"])


def test_the_window_of_a_partition_is_the_interval(tmp_path: Path) -> None:
    file = tmp_path / "windows.py"
    file.write_text(
        "from dagster import DailyPartitionsDefinition, asset\n"
        "@asset(partitions_def=DailyPartitionsDefinition(start_date='2024-05-01'))\n"
        "def a(context):\n    start, end = context.partition_time_window\n    return str(end - start)\n"
    )
    text = write(translate(file.read_text(), "windows.py"))
    assert "start, end = ctx.interval" in text and "TODO" not in text


def test_the_window_of_a_partition_is_in_its_time_zone(tmp_path: Path) -> None:
    """In UTC a day of Berlin begins on the day before."""
    file = tmp_path / "windows.py"
    file.write_text(
        """
from dagster import DailyPartitionsDefinition, asset

daily = DailyPartitionsDefinition(start_date="2024-05-01", timezone="Europe/Berlin")


@asset(partitions_def=daily)
def days(context):
    window = context.partition_time_window
    start, end = context.partition_time_window
    return [f"{one:%Y-%m-%d %H}" for one in (window.start, start, context.partition_time_window.start, end)]
"""
    )
    file.write_text(write(translate(file.read_text(), "windows.py")))
    [days] = load_file(file)
    start = datetime(2024, 5, 1, 22, tzinfo=timezone.utc)
    ctx = SimpleNamespace(interval=Interval(start, start + timedelta(days=1)))
    assert days.functions["days"](ctx) == ["2024-05-02 00"] * 3 + ["2024-05-03 00"]


def test_other_partitions_of_an_asset_are_said() -> None:
    text = """
from dagster import AssetDep, AssetIn, DailyPartitionsDefinition, TimeWindowPartitionMapping, asset

daily = DailyPartitionsDefinition("2024-05-01")
before = TimeWindowPartitionMapping(start_offset=-1, end_offset=-1)

@asset(partitions_def=daily)
def events(): return 1

@asset(partitions_def=daily, ins={"yesterday": AssetIn("events", partition_mapping=before), "today": AssetIn("events")})
def change(yesterday, today): return today - yesterday

@asset(partitions_def=daily, deps=[AssetDep("events", partition_mapping=before)])
def late(): return 1
"""
    whats = [remark.what for remark in translate(text, "events.py").remarks]
    assert [one for one in whats if "mapping" in one] == ["partition_mapping= of events"] * 2


def test_partitions_are_the_same_intervals_by_the_same_names(tmp_path: Path) -> None:
    """Dagster's `end_date` is the first that has no partition, and a partition is named by its local time."""
    file = tmp_path / "parts.py"
    file.write_text(
        """
from dagster import DailyPartitionsDefinition, HourlyPartitionsDefinition, asset

daily = DailyPartitionsDefinition(start_date="2024-05-01", end_date="2024-06-01", timezone="Europe/Berlin")
hourly = HourlyPartitionsDefinition(start_date="2024-05-01-06:00", end_date="2024-05-02-06:00")


@asset(partitions_def=daily)
def days(context):
    return context.partition_key, f"{context.partition_key}.csv"


@asset(partitions_def=hourly)
def hours(context):
    return context.partition_key
"""
    )
    draft = translate(file.read_text(), "parts.py")
    file.write_text(text := write(draft))
    days, hours = load_file(file)
    begin = datetime(2024, 4, 30, 22, tzinfo=timezone.utc)
    assert (days.spec.start_date, days.spec.end_date) == (begin, datetime(2024, 5, 30, 22, tzinfo=timezone.utc))
    assert (hours.spec.start_date, hours.spec.end_date) == (
        datetime(2024, 5, 1, 6, tzinfo=timezone.utc), datetime(2024, 5, 2, 5, 59, tzinfo=timezone.utc)
    )  # fmt: skip
    assert Drafted(draft, text, [days]).run("days", logical_date=begin) == ("2024-05-01", "2024-05-01.csv")
    assert Drafted(draft, text, [hours]).run("hours", logical_date=begin) == "2024-04-30-22:00"
    assert draft.remarks == []


def test_retries_renamed_inputs_and_settings_of_jobs(tmp_path: Path) -> None:
    file = tmp_path / "more.py"
    file.write_text(
        """
from dagster import AssetIn, Backoff, RetryPolicy, ScheduleDefinition, asset, define_asset_job, job, op


@asset(retry_policy=RetryPolicy(3))
def first():
    return 1


@asset(ins={"given": AssetIn(key="first")}, retry_policy=RetryPolicy(delay=5, backoff=Backoff.EXPONENTIAL))
def second(given):
    return given + 1


one = ScheduleDefinition(job=define_asset_job("a", selection="first"), cron_schedule="0 1 * * *")
two = ScheduleDefinition(job=define_asset_job("b", selection="second"), cron_schedule="0 2 * * 1")


@op
def work():
    return 1


@job(name="nightly", op_retry_policy=RetryPolicy(max_retries=3))
def made_here():
    work()
"""
    )
    draft = translate(file.read_text(), "more.py")
    file.write_text(text := write(draft))
    assets, nightly = load_file(file)
    made = Drafted(draft, text, [assets])
    first, second = (assets.spec.task(name) for name in ("first", "second"))
    assert (first.retries, second.retries, second.retry_delay, second.retry_backoff) == (3, 1, 5, 2)
    assert made.order["second"] == ("first",) and made.run("second", results={"first": 1}) == 2
    assert nightly.dag_id == "nightly"
    assert {"the schedule 0 2 * * 1", "op_retry_policy= of nightly"} <= set(made.remarks)


def test_a_schedule_is_that_of_the_assets_that_its_job_selects(tmp_path: Path) -> None:
    """Never of others: a table would be written on a schedule that nobody has given it."""
    text = """
from dagster import AssetSelection, MonthlyPartitionsDefinition, ScheduleDefinition, asset, define_asset_job

some = ["report", "other"]

@asset(partitions_def=MonthlyPartitionsDefinition(start_date="2024-01-01"))
def report():
    return 1

@asset
def other():
    return 1

of_report = define_asset_job("of_report", selection=[report])
one = ScheduleDefinition(job=of_report, cron_schedule="0 4 2 * *")
two = ScheduleDefinition(job=define_asset_job("also", ["silver/report"]), cron_schedule="0 5 2 * *")
"""
    job = 'three = ScheduleDefinition(job=define_asset_job("x", {}), cron_schedule="0 6 * * *")'
    cases: dict[str, str | None] = {"": None}
    for selection in ("[other, report]", 'AssetSelection.groups("report")', '"tag:report"', "some"):
        cases[job.format(selection)] = "0 6 * * *"
    for more, schedule in cases.items():
        draft = translate(text + more, "more.py")
        (tmp_path / "more.py").write_text(write(draft))
        dags = {dag.spec.tasks[0].task_id: dag.spec for dag in load_file(tmp_path / "more.py")}
        assert (dags["report"].schedule, dags["other"].schedule) == ("@monthly", schedule)
        remarks = {remark.what for remark in draft.remarks}
        assert {"the schedule 0 4 2 * * of of_report", "the schedule 0 5 2 * * of also"} <= remarks


def test_outputs_that_are_yielded_and_functions_that_are_async(tmp_path: Path) -> None:
    text = """
from dagster import AssetIn, Output, ScheduleDefinition, asset

@asset
def first():
    yield Output(3, metadata={"n": 1})

@asset(ins={"given": AssetIn("first")})
async def second(given, *, others=0):
    given = given + 1
    return given

@asset
def many(second):
    for n in range(second):
        yield n
    yield Output(-1)

@asset(name="first", key_prefix="us")
def first_of_us():
    return 1

hourly = ScheduleDefinition(job_name="x", cron_schedule=["0 5 * * *", "0 6 * * *"])
"""
    draft = translate(text, "outputs.py")
    (tmp_path / "outputs.py").write_text(write(draft))
    made = Drafted(draft, write(draft), load_file(tmp_path / "outputs.py"))
    assert made.order == {"first": (), "second": ("first",), "many": ("second",), "first_of_us": ()}
    assert made.run("first") == 3
    assert made.run("second", results={"first": 3}) == 4
    assert made.run("many", results={"second": 2}) == [0, 1, -1]
    for what in ("another asset first", "many yields its outputs", 'cron_schedule=["0 5 * * *", "0 6 * * *"]'):
        assert what in made.remarks


def test_partitions_that_begin_later_have_a_schedule_in_cron(tmp_path: Path) -> None:
    text = """
from dagster import DailyPartitionsDefinition, HourlyPartitionsDefinition, asset
from dagster import MonthlyPartitionsDefinition, WeeklyPartitionsDefinition

HOUR = 6

@asset(partitions_def=HourlyPartitionsDefinition(start_date="2024-01-01-00:00", minute_offset=10))
def hourly(context): ...

@asset(partitions_def=DailyPartitionsDefinition(start_date="2024-01-01", hour_offset=5, end_offset=0))
def daily(context): ...

@asset(partitions_def=WeeklyPartitionsDefinition(start_date="2024-01-01", day_offset=1, hour_offset=4))
def weekly(context): ...

@asset(partitions_def=MonthlyPartitionsDefinition(start_date="2024-01-01", day_offset=3))
def monthly(context): ...

@asset(partitions_def=DailyPartitionsDefinition(start_date="2024-01-01", hour_offset=0))
def midnight(context): ...

@asset(partitions_def=DailyPartitionsDefinition(start_date="2024-01-01", hour_offset=HOUR, end_offset=1))
def computed(context): ...
"""
    draft = translate(text, "offsets.py")
    (tmp_path / "offsets.py").write_text(write(draft))
    schedules = [dag.spec.schedule for dag in load_file(tmp_path / "offsets.py")]
    assert schedules == ["10 * * * *", "0 5 * * *", "0 4 * * 1", "0 0 3 * *", "@daily", "@daily"]
    what = [remark.what for remark in draft.remarks]
    assert what == ["an offset of the partitions", "end_offset=1"]


def test_partitions_that_are_left_out_are_excluded_dates_or_said(tmp_path: Path) -> None:
    text = """
import pendulum
from datetime import datetime, timezone
from dagster import DailyPartitionsDefinition, HourlyPartitionsDefinition, asset

@asset(partitions_def=DailyPartitionsDefinition(start_date="2025-01-01", exclusions=[
    datetime(2025, 12, 25), pendulum.datetime(2025, 12, 26, tz="UTC"), datetime(2026, 1, 1, tzinfo=timezone.utc)]))
def holidays(context): ...

@asset(partitions_def=DailyPartitionsDefinition(start_date="2025-01-01", exclusions=["0 0 * * 6"]))
def by_cron(context): ...

@asset(partitions_def=DailyPartitionsDefinition(start_date="2025-01-01", exclusions=[datetime(2025, 12, 25, 6)]))
def at_six(context): ...

@asset(partitions_def=DailyPartitionsDefinition(start_date="2025-01-01", exclusions=DAYS))
def elsewhere(context): ...

@asset(partitions_def=HourlyPartitionsDefinition(start_date="2025-01-01-00:00", exclusions=[datetime(2025, 12, 25)]))
def one_hour(context): ...
"""
    draft = translate(text, "excluded.py")
    (tmp_path / "excluded.py").write_text(write(draft))
    excluded = {dag.spec.tasks[0].task_id: dag.spec.exclude_dates for dag in load_file(tmp_path / "excluded.py")}
    assert excluded.pop("holidays") == ("2025-12-25", "2025-12-26", "2026-01-01")
    assert excluded == dict.fromkeys(("by_cron", "at_six", "elsewhere", "one_hour"), ())
    said = [remark for remark in draft.remarks if remark.what.startswith("exclusions=")]
    assert ["longer" in remark.instead for remark in said] == [True, False, False, False, False]


def test_of_several_schedules_one_is_taken_whole_and_the_others_are_said(tmp_path: Path) -> None:
    text = """
from dagster import ScheduleDefinition, job, op, schedule

@op
def one(): ...

@job
def ops(): one()

early = ScheduleDefinition(job=ops, cron_schedule="0 6 * * *", execution_timezone="America/Sao_Paulo")

@schedule(job=ops, cron_schedule="*/15 * * * *")
def often(context): ...
"""
    draft = translate(text, "ops.py")
    (tmp_path / "ops.py").write_text(write(draft))
    [dag] = load_file(tmp_path / "ops.py")
    assert (dag.spec.schedule, dag.spec.timezone) == ("0 6 * * *", "America/Sao_Paulo")
    assert "another schedule of ops: */15 * * * *" in [remark.what for remark in draft.remarks]


def test_schedules_of_asset_jobs_that_are_not_taken_are_said() -> None:
    text = """
from dagster import AssetSelection, DailyPartitionsDefinition, ScheduleDefinition, asset, define_asset_job
from dagster import build_schedule_from_partitioned_job

@asset(partitions_def=DailyPartitionsDefinition(start_date="2024-01-01"))
def daily(context): ...

everything = define_asset_job("everything", selection=AssetSelection.all())
some = define_asset_job("some", selection=AssetSelection.assets(daily))
late = build_schedule_from_partitioned_job(some, hour_of_day=5, minute_of_hour=0)
twice = ScheduleDefinition(job=some, cron_schedule="0 */12 * * *")
"""
    assert {remark.what for remark in translate(text, "jobs.py").remarks} == {
        "selection=AssetSelection.assets(daily) of a job", "hour_of_day=5 of a schedule", "the schedule 0 */12 * * * of some",
    }  # fmt: skip


def test_an_asset_of_its_own_partition_before_waits_for_it(tmp_path: Path) -> None:
    text = """
from dagster import AssetIn, DailyPartitionsDefinition, TimeWindowPartitionMapping, asset

@asset(
    partitions_def=DailyPartitionsDefinition("2024-05-01"),
    ins={"before": AssetIn("balance", partition_mapping=TimeWindowPartitionMapping(start_offset=-1, end_offset=-1))},
)
def balance(before):
    return (before or 0) + 1
"""
    (tmp_path / "balance.py").write_text(write(translate(text, "balance.py")))
    [dag] = load_file(tmp_path / "balance.py")
    task = dag.spec.task("balance")
    assert task.depends_on_past and task.upstream == ()


def test_a_name_that_is_a_word_of_python_gets_another_one(tmp_path: Path) -> None:
    text = 'from dagster import asset\n\n@asset(name="class")\ndef classes():\n    return 1\n'
    (tmp_path / "school.py").write_text(write(translate(text, "school.py")))
    [dag] = load_file(tmp_path / "school.py")
    assert [task.task_id for task in dag.spec.tasks] == ["class"]


def test_assets_in_a_circle_are_refused_with_their_names(tmp_path: Path) -> None:
    text = "from dagster import asset\n\n@asset\ndef a(b): ...\n\n@asset\ndef b(a): ...\n"
    (tmp_path / "circle.py").write_text(text)
    [converted] = convert(tmp_path / "circle.py", translate)
    assert converted.error == "The assets a -> b -> a refer to each other in a circle"
