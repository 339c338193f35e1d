"""Task instances of a run, their tries, and what they logged."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Final

from pydantic import ValidationError

from backfill_manager.dags.definition import DagSpec
from backfill_manager.errors import NotFound
from backfill_manager.masking import mask_code, mask_text, mask_values, secrets_in
from backfill_manager.model import states
from backfill_manager.model.records import CheckResult, DagRun, TaskInstance, TaskLog, TaskTry
from backfill_manager.model.stored_json import shown_column
from backfill_manager.queries.documents import document, rounded, seconds_between
from backfill_manager.queries.paging import Order, Page, Place, Slice
from backfill_manager.queries.runs import NOT_LISTED, within
from backfill_manager.schemas import resources
from backfill_manager.store.base import Condition, Store, matching

WORST_FIRST: Final = (
    states.FAILED, states.UPSTREAM_FAILED, states.CANCELLED, states.UP_FOR_RETRY, states.RUNNING, states.QUEUED, states.SCHEDULED,
    states.NONE, states.SKIPPED, states.SUCCESS,
)  # fmt: skip
MAX_RESULT_LENGTH: Final = 65_536  # in lists
NO_RESULTS: Final = ("result_json", "result_shown_json")
OF_NEWEST_RUNS: Final = Order("run_seq", "task_id", descending=True)
_LISTED: Final = (
    "dag_id", "run_id", "task_id", "state", "try_number", "pool", "started_at", "ended_at", "duration_s", "error",
)  # fmt: skip


def _of(run: DagRun, task_id: str | None = None) -> list[Condition]:
    """`run_seq` first: it lets the engine skip every file of other runs."""
    return matching(run_seq=run.run_seq, dag_id=run.dag_id, run_id=run.run_id, task_id=task_id)


def worst_first(counts: Mapping[str, int]) -> dict[str, int]:
    """How many tasks are in each state, those that a person looks for first."""
    return {
        state: counts[state] for state in (*WORST_FIRST, *sorted(set(counts) - set(WORST_FIRST))) if counts.get(state)
    }


def mapped_tasks(store: Store, run: DagRun, spec: DagSpec, task_id: str) -> list[dict[str, Any]]:
    """The tasks of this run that are mapped from `task_id`, the worst states first, else by their ids."""
    ids = set(spec.mapped.get(task_id, {}).values())
    found = [one for one in list_task_instances(store, run) if one["task_id"] in ids] if ids else []
    place = {state: at for at, state in enumerate(WORST_FIRST)}
    return sorted(found, key=lambda one: (place.get(one["state"], len(place)), one["task_id"]))


def list_task_instances(store: Store, run: DagRun, task_id: str | None = None) -> list[dict[str, Any]]:
    """In the order in which they started; those that have not, last. Of several tasks (no `task_id`) large results are left
    out."""
    rows = store.read(TaskInstance, _of(run, task_id), order_by=("started_at", "task_id"))
    return [task_view(row, run) if task_id is not None else listed_task(row, run) for row in rows]


def list_all_task_instances(
    store: Store, *, dag_id: str | None = None, task_id: str | None = None, in_states: Sequence[str] = (),
    since: datetime | None = None, until: datetime | None = None, order: Order = OF_NEWEST_RUNS, limit: int | None = None,
    after: Place | None = None,
) -> Page:  # fmt: skip
    """Those of all runs, without results. `since`, `until`: when they started.

    The engine keeps only the first `limit` in mind while it reads, without results, so a page of a million costs tens of
    milliseconds in any order."""
    where = [
        *matching(dag_id=dag_id, task_id=task_id, state=tuple(in_states)),
        *within("started_at", since, until),
    ]
    return Slice(order, limit, after).page(store, TaskInstance, where, _without_result, NO_RESULTS)


def _without_result(row: TaskInstance) -> dict[str, Any]:
    return document(
        _LISTED, row, duration_s=rounded(row.duration_s), error=row.error and mask_text(row.error),
    )  # fmt: skip


def listed_task(row: TaskInstance, run: DagRun) -> dict[str, Any]:
    """As `task_view`, but for a large result: it is None, and `result_chars` says how large it is."""
    chars = len(row.result_json or "")
    shown = task_view(row.evolve(result_json=None) if chars > MAX_RESULT_LENGTH else row, run)
    return {**shown, "result_chars": None if row.result_json is None else chars}


def find_task_instance(store: Store, run: DagRun, task_id: str) -> TaskInstance:
    rows = store.read(TaskInstance, _of(run))
    for row in rows:
        if row.task_id == task_id:
            return row
    known = [row.task_id for row in rows]
    more = f"; it has {', '.join(known)}." if known else ""
    raise NotFound(f"task of run {run.run_id} of DAG {run.dag_id!r} with the id", task_id, known, more=more)


def task_ids_of(store: Store, run: DagRun) -> set[str]:
    """Of the tasks that the run has. One that another tool runs, or of an older version, may lack some of its definition."""
    return set(store.read_arrow(TaskInstance.TABLE, ["task_id"], _of(run))["task_id"].to_pylist())


def list_tries(store: Store, run: DagRun, task_id: str | None = None) -> list[dict[str, Any]]:
    """Of several tasks (no `task_id`) single Spark stages are left out."""
    fields = resources.Try.model_fields
    return [
        document(
            fields,
            row,
            duration_s=rounded(row.duration_s),
            spark_jobs=shown_column(row, "spark_jobs_json") or [],
            spark_stages=_stages(row, with_longest=task_id is not None),
            error=row.error and mask_text(row.error),
        )
        for row in store.read(TaskTry, _of(run, task_id), order_by=("task_id", "launch"))
    ]


def _stages(row: TaskTry, *, with_longest: bool) -> dict[str, Any] | None:
    if row.spark_stages_json is None:
        return None
    try:
        found = resources.SparkStages.model_validate_json(row.spark_stages_json).model_dump()
    except ValidationError:  # not as a manager writes them
        return None
    return {**found, "longest": found["longest"] if with_longest else []}


def list_check_results(store: Store, run: DagRun, task_id: str | None = None) -> list[dict[str, Any]]:
    """What the checks of a run, or of one of its tasks, have found; in the order of the tries. Secrets in conditions and messages
    are masked: they are stored so, but maybe by an older release."""
    fields, secrets = resources.CheckResult.model_fields, secrets_in(shown_column(run, "conf_json"))
    rows = store.read(CheckResult, _of(run, task_id), order_by=("task_id", "launch", "number"))
    return [
        document(
            fields, row, table=row.table_name, condition=mask_code(row.condition, secrets),
            name=row.name and mask_text(row.name, secrets), message=row.message and mask_text(row.message, secrets),
        )
        for row in rows
    ]  # fmt: skip


def list_log_lines(
    store: Store, run: DagRun, task_id: str, *, try_number: int | None = None, after: tuple[int, int] = (0, -1),
    limit: int | None = None,
) -> list[dict[str, Any]]:  # fmt: skip
    """What a task logged, oldest first; `after` = (launch, line) of the last line that was seen already."""
    where = [*_of(run, task_id), *matching(try_number=try_number)]
    launch, line = after
    same, later = [Condition("launch", "=", launch), Condition("line", ">", line)], [Condition("launch", ">", launch)]
    rows: list[TaskLog] = []
    for part in (same, later) if launch else (later,):
        left = None if limit is None else limit - len(rows)
        rows += store.read(TaskLog, [*where, *part], order_by=("launch", "line"), limit=left)
    return log_views(rows, run)


def task_view(row: TaskInstance, run: DagRun) -> dict[str, Any]:
    """Of its result the secrets are masked, those of the run's parameters and of the task's environment too."""
    result = None
    if row.result_json is not None:
        column = "result_shown_json" if row.result_shown_json else "result_json"
        result = mask_values(
            shown_column(row, column),
            more=secrets_in(shown_column(run, "conf_json")),
        )
    return document(
        resources.TaskInstance.model_fields, row, duration_s=rounded(row.duration_s), result=result,
        error=row.error and mask_text(row.error),
        result_chars=None if row.result_json is None else len(row.result_json),
    )  # fmt: skip


def log_views(rows: Sequence[TaskLog], run: DagRun) -> list[dict[str, Any]]:
    """Lines are stored masked, but maybe by an older release, whose rules were others."""
    fields, secrets = resources.LogLine.model_fields, secrets_in(shown_column(run, "conf_json"))
    return [document(fields, row, message=mask_text(row.message, secrets)) for row in rows]


def log_tail(
    store: Store, run: DagRun, task_id: str, *, try_number: int | None = None, limit: int = 1000
) -> tuple[list[dict[str, Any]], bool]:
    """The last `limit` lines, oldest first, and whether there are earlier ones."""
    where = [*_of(run, task_id), *matching(try_number=try_number)]
    rows = store.read(TaskLog, where, order_by=("-launch", "-line"), limit=limit + 1)
    return log_views(rows[:limit][::-1], run), len(rows) > limit


def running_tasks(store: Store, backfill: Mapping[str, Any], now: datetime) -> list[dict[str, Any]]:
    """Task instances of the backfill that run now, longest first, with `for_s` seconds."""
    if not backfill["running"]:
        return []
    of_it = matching(backfill_id=backfill["backfill_id"], state=states.RUNNING)
    runs = store.read(DagRun, of_it, without=NOT_LISTED)
    if not runs:
        return []
    of_id = {run.run_id: run for run in runs}
    where = [
        Condition("run_seq", ">=", min(run.run_seq for run in runs)),
        *matching(dag_id=backfill["dag_id"], run_id=tuple(of_id), state=states.RUNNING),
    ]
    return [
        {**listed_task(row, of_id[row.run_id]), "for_s": seconds_between(row.started_at, now)}
        for row in store.read(TaskInstance, where, order_by=("started_at",))
    ]
