"""DAGs: the current definition, when each runs next, and which files could not be imported."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from datetime import datetime, timedelta
from functools import cache
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

from backfill_manager.dags.definition import DagSpec
from backfill_manager.dags.mapping import spec_with_tasks
from backfill_manager.dags.schedule.timetable import timetable_of
from backfill_manager.dags.stored_definition import UnreadableSpec, definition_of, definition_or_why
from backfill_manager.dags.versions import refuse_inactive, why_inactive
from backfill_manager.errors import NotFound, shorten
from backfill_manager.masking import mask_text, mask_values
from backfill_manager.model import states
from backfill_manager.model.records import DagRow, DagRun, DagVersion, ImportProblem, Pool, TaskInstance
from backfill_manager.model.stored_json import shown_column
from backfill_manager.planning.data.wait_conditions import wait_checks_of
from backfill_manager.planning.runs.recent_runs import recent_timelines
from backfill_manager.planning.runs.timeline import TimelineWindow
from backfill_manager.queries.documents import document
from backfill_manager.schemas import resources
from backfill_manager.schemas.waits import label
from backfill_manager.store.base import Condition, Store, matching

if TYPE_CHECKING:
    from backfill_manager.planning.runs.next_run import Upcoming

MAX_LISTED_LENGTH: Final = 1000  # characters of a description in a list
_DETAILS: Final = (
    "description", "start_date", "end_date", "exclude_dates", "catchup", "max_active_runs", "max_active_tasks", "batchable",
    "expected_by_s", "notify",
)  # fmt: skip
_TASK_FIELDS: Final = (
    "task_id", "kind", "upstream", "downstream", "mapped_from", "mapped_value", "over_result_of",
    "calls_back", "watches", "trigger_rule",
    "retries", "retry_delay_s", "timeout_s", "depends_on_past", "wait_for_downstream", "waits_for",
    "pool", "priority", "weight", "max_active_tis",
)  # fmt: skip
NO_DAGS: Final = "; there are no DAGs yet: a manager loads them from its bundles, in its first seconds."


def list_dags(store: Store, now: datetime, *, active: bool | None = True) -> list[dict[str, Any]]:
    """By id. `active`: those that a file defines now (True), those that none does any more (False), or both (None)."""
    where = [] if active is None else [Condition("is_active", "=", active)]
    rows = store.read(DagRow, where, order_by=("dag_id",))
    specs = _current_specs(store, rows)
    reached = schedules_reached(store, [row for row in rows if row.dag_id in specs], now)
    problems = _import_problems(store) if any(not row.is_active for row in rows) else {}
    return [
        _view(row, specs[row.dag_id], reached[row.dag_id], now, problems.get((row.bundle, row.file)))
        for row in rows
        if row.dag_id in specs
    ]


def schedules_reached(store: Store, dags: Sequence[DagRow], now: datetime) -> dict[str, TimelineWindow]:
    """For each DAG the newest end of its timeline: how far its schedule has come, and which dates have a run already."""
    counts = {row.dag_id: 1 for row in dags if row.schedule is not None}
    found = recent_timelines(counts, store, now) if counts else {}
    return {row.dag_id: found.get(row.dag_id, TimelineWindow()) for row in dags}


def current_dag(store: Store, dag_id: str) -> tuple[DagRow, DagSpec]:
    """For commands on a DAG: its row and the definition of its current version. `NotFound` with the nearest
    names; `Refused` for one that is not active."""
    row, spec = known_dag(store, dag_id)
    refuse_inactive(row, _import_problem(store, row))
    return row, spec


def known_dag(store: Store, dag_id: str) -> tuple[DagRow, DagSpec]:
    """For reading: the same of a DAG that is, or ever was, there."""
    row = dag_row(store, dag_id)
    return row, spec_reader(store)(dag_id, row.current_version)


def dag_row(store: Store, dag_id: str) -> DagRow:
    """Of a DAG that is, or ever was, there; `NotFound` with the nearest names."""
    row = store.first(DagRow, matching(dag_id=dag_id))
    if row is None:
        raise unknown_dag(store, dag_id, [one.dag_id for one in store.read(DagRow)])
    return row


def unknown_dag(store: Store, dag_id: str, known: Collection[str]) -> NotFound:
    """`known`: the ids of all DAGs. Where files can't be read, the DAG may be in one of them."""
    if count_import_errors(store):
        return NotFound("DAG", dag_id, known, hint="see_import_errors")
    return NotFound("DAG", dag_id, known, hint="see_dags" if known else "see_manager", more="" if known else NO_DAGS)


def show_dag(store: Store, dag_id: str, now: datetime) -> dict[str, Any]:
    """A DAG that is, or ever was, there; `NotFound` with the nearest names."""
    row, spec = known_dag(store, dag_id)
    counts = store.count("dag_run", ("state",), matching(dag_id=dag_id))
    pools = {pool.name for pool in store.read(Pool)}
    return {
        **_view(row, spec, schedules_reached(store, [row], now)[dag_id], now, _import_problem(store, row)),
        **document(
            _DETAILS,
            spec,
            description=mask_text(spec.description or "") or None,
            expected_by_s=spec.expected_by,
            notify=list(spec.notify),
        ),
        **params_of(spec),
        "tasks": list_tasks(spec),
        "runs": {state: number for (state,), number in sorted(counts.items())},
        "unknown_pools": spec.unknown_pools(pools),
    }


def params_of(spec: DagSpec) -> dict[str, Any]:
    """The defaults of its run parameters, and what is declared of them."""
    declared = {
        name: document(resources.DeclaredParam.model_fields, one, choices=mask_values(list(one.choices), name))
        for name, one in spec.declared_params.items()
    }
    return {"params": mask_values(spec.params), "declared_params": declared}


def list_tasks(spec: DagSpec) -> list[dict[str, Any]]:
    """Each after those it waits for; callbacks, which have `calls_back`, come last. One that `watches` no task tells of
    the whole run."""
    return [
        document(
            _TASK_FIELDS, task, upstream=list(task.upstream), downstream=list(spec.downstream(task.task_id)),
            trigger_rule=None if task.is_callback else task.trigger_rule, retry_delay_s=task.retry_delay,
            timeout_s=task.timeout, waits_for=[label(wait) for wait in task.waits_for],
            mapped_value=mask_values(task.mapped_value),
        )
        for task in spec.in_order
    ]  # fmt: skip


def next_intervals_of(
    store: Store, dag_id: str, now: datetime, n: int, *, after: datetime | None = None
) -> list[dict[str, Any]]:
    """`next_intervals` of a DAG by its id: none of one that is not active."""
    row, spec = known_dag(store, dag_id)
    if not row.is_active:
        return []
    return next_intervals(spec, schedules_reached(store, [row], now)[dag_id], now, n, after=after)


def next_intervals(
    spec: DagSpec, reached: TimelineWindow, now: datetime, n: int, *, after: datetime | None = None
) -> list[dict[str, Any]]:
    """The next `n` intervals that the scheduler makes runs of; `reached` is the newest end of the timeline. The first may
    be due already. `after`: the end of one of them, to go on behind it."""
    latest = reached.last_scheduled
    if after is not None:
        latest, now = _made(spec, after - timedelta(microseconds=1), after, now), max(now, after)
    fields = resources.Interval.model_fields
    return [
        document(
            fields, one, logical_date=one.start, interval_start=one.start, interval_end=one.end,
            waits_for=waits_of(spec, one.start, one.end),
        )
        for one in islice(_upcoming(spec, latest, now, reached.stands_for_schedule), n)
    ]  # fmt: skip


def waits_of(spec: DagSpec, start: datetime, end: datetime) -> list[str]:
    """What the tasks of a run will wait for, whether or not it is there by now."""
    waits = dict.fromkeys(wait for task in spec.work for wait in task.waits_for)
    names: dict[str, None] = {}
    for wait in waits:
        looks = () if isinstance(wait, str) else wait_checks_of(wait, spec, start, end, None)
        names |= dict.fromkeys([wait] if isinstance(wait, str) else [look.label for look in looks])
    return list(names)


def list_import_errors(store: Store) -> list[dict[str, Any]]:
    return [document(resources.ImportProblem.model_fields, row) for row in _import_problems(store).values()]


def _import_problems(store: Store) -> dict[tuple[str, str], ImportProblem]:
    """Those of now, by bundle and file."""
    rows = store.read(ImportProblem, [Condition("is_current", "=", True)], order_by=("bundle", "file"))
    return {(row.bundle, row.file): row for row in rows}


def _import_problem(store: Store, row: DagRow) -> ImportProblem | None:
    """Why the file of a DAG that is not active can't be read, if that is so."""
    return None if row.is_active else store.first(ImportProblem, matching(bundle=row.bundle, file=row.file))


def count_import_errors(store: Store) -> int:
    return store.count("import_error", (), [Condition("is_current", "=", True)]).get((), 0)


def all_dags(store: Store) -> dict[str, DagRow]:
    """Every DAG that is or ever was there, by id."""
    return {row.dag_id: row for row in store.read(DagRow, order_by=("dag_id",))}


def current_dags(store: Store) -> dict[str, tuple[DagSpec, int]]:
    """The current definition of every DAG that is there, and its version, by id; not of one that can't be read."""
    rows = store.read(DagRow, [Condition("is_active", "=", True)], order_by=("dag_id",))
    specs = _current_specs(store, rows)
    readable = {dag_id: spec for dag_id, spec in specs.items() if not isinstance(spec, UnreadableSpec)}
    return {row.dag_id: (readable[row.dag_id], row.current_version) for row in rows if row.dag_id in readable}


def spec_reader(store: Store) -> Callable[[str, int], DagSpec]:
    """Gives the definition of a DAG's version; each is read once. `NotFound` for a version that is not there."""

    @cache
    def spec_of(dag_id: str, version: int) -> DagSpec:
        row = store.first(DagVersion, matching(dag_id=dag_id, version=version))
        if row is None:
            raise NotFound("DAG version", f"{dag_id} v{version}", hint="check_state")
        return definition_of(row)

    return spec_of


def spec_of_run(store: Store, run: DagRun) -> DagSpec | None:
    """The definition of the version that the run has, whatever is current, with the tasks that are mapped in this run, their
    values without secrets; None when that version is gone, or can't be read."""
    row = store.first(DagVersion, matching(dag_id=run.dag_id, version=run.dag_version))
    spec = None if row is None else definition_or_why(row)
    if spec is None or isinstance(spec, UnreadableSpec):
        return None
    if not spec.mapped_over_results:
        return spec
    where = matching(dag_id=run.dag_id, run_id=run.run_id, task_id=spec.mapped_over_results)
    return spec_with_tasks(spec, {ti.task_id: ti for ti in store.read(TaskInstance, where)}, shown=True)


def _current_specs(store: Store, rows: list[DagRow]) -> dict[str, DagSpec]:
    if not rows:
        return {}
    current = {row.dag_id: row.current_version for row in rows}
    where = matching(dag_id=tuple(current), version=tuple(set(current.values())))
    return {
        version.dag_id: definition_or_why(version)
        for version in store.read(DagVersion, where)
        if version.version == current[version.dag_id]
    }


def _upcoming(
    spec: DagSpec, latest: DagRun | None, now: datetime, taken: Callable[[datetime], bool]
) -> Iterator[Upcoming]:
    """One after the other, each as if the run before it had been made in time."""
    from backfill_manager.planning.runs.next_run import upcoming

    following = upcoming(spec, latest, now, taken)
    while following is not None:
        yield following
        made = _made(spec, following.start, following.end, now)
        following = upcoming(spec, made, max(now, following.due_at), taken)


def _made(spec: DagSpec, start: datetime, end: datetime, now: datetime) -> DagRun:
    return DagRun(
        dag_id=spec.dag_id, run_id="", run_type=states.SCHEDULED_RUN, state=states.SUCCESS, dag_version=0, run_seq=0,
        created_at=now, logical_date=start, interval_start=start, interval_end=end,
    )  # fmt: skip


def _view(
    row: DagRow, spec: DagSpec, reached: TimelineWindow, now: datetime, problem: ImportProblem | None
) -> dict[str, Any]:
    upcoming = next_intervals(spec, reached, now, 1) if row.is_active else []
    return document(
        resources.Dag.model_fields, row,
        description=shorten(mask_text(spec.description), MAX_LISTED_LENGTH),
        schedule=spec.schedule, schedule_in_words=timetable_of(spec).describe(), timezone=spec.timezone,
        owner=spec.owner and mask_text(spec.owner),
        version=row.current_version, tags=[mask_text(tag) for tag in shown_column(row, "tags_json") or []],
        next_logical_date=upcoming[0]["logical_date"] if upcoming else None,
        next_due_at=upcoming[0]["due_at"] if upcoming else None,
        inactive_since=None if row.is_active else row.updated_at,
        inactive_reason=None if row.is_active else why_inactive(row, problem),
    )  # fmt: skip
