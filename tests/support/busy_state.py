"""A state in memory that contains everything that pages show, made by the real decisions of a manager."""

from __future__ import annotations

import json
from datetime import datetime, timedelta

from backfill_manager.clock import UTC
from backfill_manager.execution.messages import Failed, Outcome, Skipped, Succeeded, TaskLaunch
from backfill_manager.model.records import (
    Backfill,
    CheckResult,
    DagRun,
    ImportProblem,
    Notification,
    Record,
    TableAccess,
    TaskLog,
)
from backfill_manager.model.transitions import Changes
from backfill_manager.schemas.resources import SparkStage, SparkStages
from backfill_manager.testing import FakeClock, InMemoryManager, MemoryStore, dag_spec, days

NOON = datetime(2024, 1, 31, 12, 0, tzinfo=UTC)
SHOP = ("extract", "clean", "enrich", "join_customers", "aggregate", "check_quality", "publish")
SHOP_UPSTREAM = {
    "clean": ["extract"],
    "enrich": ["clean"],
    "join_customers": ["clean"],
    "aggregate": ["enrich", "join_customers"],
    "check_quality": ["aggregate", "extract"],
    "publish": ["check_quality"],
}
SHOP_SPEC = dag_spec(
    "shop", *SHOP, upstream=SHOP_UPSTREAM, schedule="0 5 * * *", tags=("sales", "gold"), owner="ada",
    description="Orders of a day, from the raw files to what the shop's people look at", params={"full": False},
    start_date=datetime(2024, 1, 1, tzinfo=UTC), timezone="Europe/Berlin", each={"clean": {"retries": 1, "retry_delay": 1.0}},
)  # fmt: skip
RESULT = json.dumps(
    {"rows": 1234, "by_country": {"DE": 700, "AT": 534}, "files": [f"part-{n}" for n in range(250)], "note": "<b>"}
)
FIGURES = {
    "failed_tasks": 0, "input_rows": 0, "input_bytes": 0, "output_rows": 0, "output_bytes": 0, "shuffle_read_bytes": 0,
    "shuffle_write_bytes": 0, "spilled_bytes": 0,
}  # fmt: skip
STAGES = SparkStages(
    jobs=2, stages=3, tasks=81, failed_tasks=1, task_s=96.5, input_rows=336_776, input_bytes=41_200_000, output_rows=1234,
    output_bytes=56_789, shuffle_read_bytes=10_695_924, shuffle_write_bytes=10_695_924, spilled_bytes=8_200_000,
    longest=(
        SparkStage(**{**FIGURES, "failed_tasks": 1, "input_rows": 336_776, "input_bytes": 41_200_000,
                      "shuffle_write_bytes": 10_695_924}, stage_id=41, attempt=0, status="complete", duration_s=38.2, tasks=64,
                   task_s=71.2, skew=9.4, name="save at <NativeMethodAccessorImpl>.java:0"),
        SparkStage(**{**FIGURES, "output_rows": 1234, "output_bytes": 56_789, "shuffle_read_bytes": 10_695_924,
                      "spilled_bytes": 8_200_000}, stage_id=42, attempt=0, status="complete", duration_s=12.0, tasks=16,
                   task_s=25.1, skew=1.2, name="save at NativeMethodAccessorImpl.java:0"),
        SparkStage(**FIGURES, stage_id=40, attempt=0, status="failed", duration_s=None, tasks=1, task_s=0.2, skew=None,
                   name="collect at /bundles/examples/a_folder_with_a_long_name/shop.py:112"),
    ),
)  # fmt: skip
NOTE = "Late data: 3 orders came <after> the interval's end.\nAnn agrees"
LONG = "a_task_with_a_name_that_is_much_longer_than_any_box_can_hold"


class Script:
    """Outcomes of a history that is the same every time; a task takes some minutes of the fake clock."""

    def __init__(self) -> None:
        self.clock = FakeClock(NOON - timedelta(days=25))
        self.hold = False  # leave what starts now running
        self.manager: InMemoryManager | None = None

    def __call__(self, launch: TaskLaunch) -> Outcome | None:
        if self.hold:
            return None
        day = launch.run.logical_date.day if launch.run.logical_date else 0
        self.clock.advance(seconds=20 + 7 * (day % 5) + 3 * len(launch.ti.task_id))
        if launch.ti.task_id == "clean" and day % 9 == 4 and launch.ti.try_number == 1:
            return Failed("ValueError: 3 rows without an order number")
        if launch.ti.task_id == "aggregate" and day in (12, 19):
            return Failed("AnalysisException: [TABLE_OR_VIEW_NOT_FOUND] customers", retryable=False)
        if launch.ti.task_id == "join_customers" and day == 15:
            return Skipped("no customers on that day")
        if launch.ti.task_id == "clean" and self.manager is not None:
            self.manager.finish(launch.key, Succeeded(), spark_stages=STAGES)
            return None
        return Succeeded(RESULT if launch.ti.task_id == "publish" else None)


def busy_ground() -> InMemoryManager:
    script = Script()
    manager = InMemoryManager(
        SHOP_SPEC,
        dag_spec("regions", "load", "report", upstream={"report": ["load"]}, schedule=None, tags=("sales",)),
        dag_spec("quiet", "only", schedule="@monthly"),
        dag_spec("wide", "start", *(f"part_{n}" for n in range(8)), LONG, "end", schedule="*/15 * * * *",
                 upstream={**{f"part_{n}": ["start"] for n in range(8)}, LONG: ["part_0"],
                           "end": [*(f"part_{n}" for n in range(8)), LONG]}),
        script=script, clock=script.clock,
    )  # fmt: skip
    script.manager = manager
    manager.backfill("shop", days("2024-01-05", 18), max_active_runs=2)
    manager.drain()
    manager.backfill("shop", days("2024-01-10", 3), reprocess="completed")
    manager.drain()
    manager.backfill("regions", keys=["north", "south/west", "50% off"])
    manager.drain()
    manager.add_dag(dag_spec("shop", *SHOP, upstream=SHOP_UPSTREAM, schedule="0 6 * * *", tags=("sales", "gold"),
                            timezone="Europe/Berlin", each={"clean": {"retries": 2}}))  # fmt: skip
    for dag in list(manager.state.catalog.dags.values()):  # as a scan of the bundle would have written them
        manager.state.put(dag.evolve(tags_json=json.dumps(manager.state.current_spec(dag.dag_id).tags)))
    manager.ask("dag.unpause", dag_id="shop")
    manager.ask("dag.trigger", dag_id="quiet", logical_date=None, conf={"why": "<b>to see</b>"})
    manager.ask("run.cancel", dag_id="shop", run_id="scheduled__1999-01-01T00:00:00Z")
    manager.drain()
    script.clock.advance(seconds=(NOON - script.clock.now()).total_seconds())
    script.hold = True
    manager.backfill(
        "wide", [(NOON - timedelta(minutes=15 * n), NOON - timedelta(minutes=15 * (n - 1))) for n in (3, 2, 1)]
    )
    for _ in range(4):
        manager.tick()
    script.clock.advance(seconds=95)
    _finish_some(manager, {"start"})
    for _ in range(3):
        manager.tick()
    put(
        manager,
        import_problem(),
        *log_lines(manager),
        *table_accesses(manager),
        *check_results(manager),
        *notes(manager),
        *notifications(manager),
    )
    manager.ask("dag.pause", dag_id="quiet")  # waits: nobody ticks any more
    return manager


def _finish_some(manager: InMemoryManager, task_ids: set[str]) -> None:
    for key in [key for key in manager.running if key[2] in task_ids]:
        manager.finish(key, Succeeded())


def put(manager: InMemoryManager, *rows: Record) -> None:
    changes = Changes()
    for row in rows:
        changes.put(row)
    manager.leader.commit(changes)


def import_problem() -> ImportProblem:
    return ImportProblem(
        bundle="examples", file="broken.py", line=3, message="SyntaxError: '(' was never closed <here>",
        traceback='  File "broken.py", line 3\n    def f(:\n', is_current=True, first_seen_at=NOON, last_seen_at=NOON,
    )  # fmt: skip


def table_accesses(manager: InMemoryManager) -> list[TableAccess]:
    """Of the two newest runs of `shop`: `extract` -> bronze.orders -> `clean` -> a table that is named by its path; and one that
    is gone, by interval."""
    runs = [run for run in manager.store.read(DagRun, order_by=["-run_seq"]) if run.dag_id == "shop"][:2]
    steps = (
        ("extract", "write", "bronze.orders", "s3a://lake/bronze/orders"), ("clean", "read", "bronze.orders", "s3a://lake/bronze/orders"),
        ("clean", "write", None, "s3a://lake/silver/orders <clean>"),
        ("aggregate", "write", "gold.orders", "file:/nowhere/gold/orders"),
    )  # fmt: skip
    return [
        TableAccess(
            "shop", run.run_id, task, 1, n, access, run.run_seq, NOON, True, run.dag_version, table_path=path,
            table_name=name, version=10 * n + k, rows_written=1234 if access == "write" else None,
            bytes_written=56_789 if access == "write" else None, interval_start=run.interval_start,
            interval_end=run.interval_end, partition_key=run.partition_key,
            interval_column="ordered_at" if name == "gold.orders" else None,
        )
        for k, run in enumerate(runs) for n, (task, access, name, path) in enumerate(steps, start=1)
    ]  # fmt: skip


def notifications(manager: InMemoryManager) -> list[Notification]:
    """Sent, waiting after a failed attempt, and about a backfill."""
    (backfill, *_) = sorted(manager.state.backfills)
    error, at = "Failed to send JSON notification to ops: status 503 <b>", NOON - timedelta(hours=1)
    run = "backfill__2024-01-12T00:00:00Z"
    return [
        Notification(
            "done/shop/1", "ops", "done", "sent", "shop", f"shop: run {run} has succeeded", "", manager.leader.next_seq(1), at,
            run_id=run, ended_at=at,
        ),
        Notification(
            "failed/shop/2", "ops", "failed", "waiting", "shop", f"shop: run {run} has failed", "failed: aggregate",
            manager.leader.next_seq(1), at, run_id=run, failures=3, error=error,
        ),
        Notification(
            "late/wide/3", "sales-team", "late", "waiting", "wide", "wide: a backfill is late with password=hunter22", "",
            manager.leader.next_seq(1), NOON, backfill_id=backfill,
        ),
    ]  # fmt: skip


def check_results(manager: InMemoryManager) -> list[CheckResult]:
    """Of the last try of every `clean`."""
    found = (
        ("rows > 0", None, "passed", None, "1,234 rows"),
        ("no nulls in order_id", "orders have <ids>", "warned", 3, "3 of 1,234 rows"),
        ("rows within 20 % of the 7 before", None, "failed", None, "1,234 rows, -31.2 % against 1,793.6"),
        ("amount >= 0", None, "skipped", None, "an earlier try of the run has checked and committed these rows"),
    )  # fmt: skip
    return [
        CheckResult(
            ti.dag_id, ti.run_id, ti.task_id, max(ti.launch, 1), n, max(ti.try_number, 1), "silver.orders", condition, outcome,
            ti.run_seq, NOON, 1, name, None if outcome == "skipped" else 1234, failing, message=message,
        )
        for ti in manager.tasks("shop", "clean")
        for n, (condition, name, outcome, failing, message) in enumerate(found, start=1)
    ]  # fmt: skip


def notes(manager: InMemoryManager) -> list[Record]:
    """On a run of `shop`, on one that was overridden, and on its last backfill."""
    runs = [
        run for run in manager.runs("shop") if run.run_id in (f"backfill__2024-01-{day}T00:00:00Z" for day in (12, 13))
    ]
    backfill = next(row for row in manager.store.read(Backfill, order_by=["-run_seq"]) if row.dag_id == "shop")
    return [row.evolve(note=NOTE, note_by="ada", note_at=NOON - timedelta(hours=2)) for row in (*runs, backfill)]


def log_lines(manager: InMemoryManager) -> list[TaskLog]:
    """Of the last try of every `clean`."""
    return [
        TaskLog(
            dag_id=ti.dag_id, run_id=ti.run_id, task_id=ti.task_id, launch=launch, try_number=launch, line=n, level=level,
            at=NOON + timedelta(seconds=n), message=message, run_seq=ti.run_seq,
        )
        for ti in manager.tasks("shop", "clean")
        for launch in range(1, ti.launch + 1)
        for n, (level, message) in enumerate(
            (("INFO", "336,776 rows read"), ("WARNING", "3 rows <without> an order number"), ("INFO", "written")), 1
        )
    ]  # fmt: skip


def empty_store() -> MemoryStore:
    store = MemoryStore()
    store.init()
    return store
