"""Plans a clear: the runs and task instances that it touches, one value that is shown before it is done.

Runs: those that `chosen_runs` reads. Tasks: by expression, with those upstream or downstream in the version that
the run has, and with their callbacks (a callback alone only by its whole id). Of those, finished ones are set back, live ones are
stopped first, and one that never started in a live run is left as it is: it will run anyhow.

Only `plan_clear` reads; what it reads is bounded by DAG, date and state.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from backfill_manager.clock import format_instant
from backfill_manager.dags.definition import DagSpec
from backfill_manager.dags.mapping import spec_with_tasks
from backfill_manager.dags.run_params import check_conf
from backfill_manager.errors import BackfillManagerError, InvalidInput, NotFound
from backfill_manager.humanise import name_list
from backfill_manager.model import states as s
from backfill_manager.model.records import DagRow, DagRun, RunKey, TaskInstance
from backfill_manager.model.stored_json import read_column
from backfill_manager.model.transitions import NOT_SELECTED
from backfill_manager.planning.runs.chosen_runs import (
    check_batches,
    described_dates,
    read_chosen_runs,
    read_cut_batches,
)
from backfill_manager.planning.runs.timeline import CURRENT_RUNS, includes
from backfill_manager.schemas import errors
from backfill_manager.schemas.commands import ClearTasks
from backfill_manager.schemas.regex import searcher
from backfill_manager.store.base import Condition, Store, matching

STOPPED_FIRST: Final = frozenset({s.SCHEDULED, s.UP_FOR_RETRY, *s.TASK_STARTED})
HAS_FAILED: Final = frozenset({s.FAILED, s.UPSTREAM_FAILED, s.CANCELLED})
_RUNS_PER_READ: Final = 500  # whose tasks are read together

SpecOf = Callable[[str, int], DagSpec]


@dataclass(frozen=True)
class ClearedRun:
    run: DagRun
    tasks: tuple[TaskInstance, ...]  # finished: set back to `none`
    running: tuple[TaskInstance, ...]  # live: stopped, then set back
    to_version: int | None = None  # of the DAG, when the run moves to another
    # downstream tasks that are not cleared and stay `upstream_failed`, and so the run failed
    stays: tuple[str, ...] = ()

    def to_json_document(self) -> dict[str, Any]:
        touched = sorted((*self.tasks, *self.running), key=lambda ti: ti.task_id)
        run = self.run
        return {
            "dag_id": run.dag_id, "run_id": run.run_id, "run_type": run.run_type, "state": run.state,
            "logical_date": format_instant(run.logical_date), "partition_key": run.partition_key,
            "dag_version": run.dag_version, "to_version": self.to_version,
            "tasks": [{"task_id": ti.task_id, "state": ti.state} for ti in touched], "stays": list(self.stays),
        }  # fmt: skip


@dataclass(frozen=True)
class ClearPlan:
    """Runs by DAG and logical date. `summary` counts runs, task instances, those that are stopped first, and those downstream
    that stay `upstream_failed`."""

    runs: tuple[ClearedRun, ...]
    batches_left_out: tuple[str, ...] = ()  # ids of runs that took some of the dates together with earlier ones

    @property
    def summary(self) -> dict[str, int]:
        running = sum(len(one.running) for one in self.runs)
        return {
            "runs": len(self.runs),
            "tasks": running + sum(len(one.tasks) for one in self.runs),
            "running": running,
            "stay_upstream_failed": sum(len(one.stays) for one in self.runs),
        }

    def to_json_document(self) -> dict[str, Any]:
        runs = [one.to_json_document() for one in self.runs]
        return {"runs": runs, "summary": self.summary, "batches_left_out": list(self.batches_left_out)}


def plan_clear(store: Store, command: ClearTasks, dags: Mapping[str, DagRow], spec_of: SpecOf) -> ClearPlan:
    """`dags` are all there are or ever were, `spec_of` gives the definition of a DAG's version.

    `NotFound` for a DAG or run that does not exist; `InvalidInput` for whatever leaves nothing to clear, with what to do
    instead.
    """
    command.check()
    chosen = chosen_dags(command, dags)
    runs = read_chosen_runs(store, command, chosen)
    _check_runs(store, command, chosen, runs)
    specs = {version: spec_of(*version) for version in sorted({_version_of(run) for run in runs})}
    tasks = {version: tasks_to_clear(command, spec) for version, spec in specs.items()}
    mapped = _with_mapped(store, runs, specs)
    tasks_of_mapped = {key: tasks_to_clear(command, spec) for key, spec in mapped.items()}
    if command.tasks is not None and not any((*tasks.values(), *tasks_of_mapped.values())):
        raise _no_task_matches(command, specs.values())
    with_callbacks = any(spec.callbacks for spec in specs.values())
    in_states = s.TASK_FINISHED | STOPPED_FIRST if with_callbacks else states_to_clear(command) | {s.UPSTREAM_FAILED}
    instances = _read_tasks(store, in_states, runs)
    of_runs = {run.key: (specs[_version_of(run)], tasks[_version_of(run)]) for run in runs}
    of_runs |= {key: (mapped[key], chosen_tasks) for key, chosen_tasks in tasks_of_mapped.items()}
    cleared = [
        cleared_run(command, run, dags[run.dag_id], *of_runs[run.key], instances.get(run.key, ())) for run in runs
    ]
    cut = tuple(run.run_id for run in read_cut_batches(store, command, chosen))
    plan = ClearPlan(tuple(one for one in cleared if one.tasks or one.running), cut)
    if not plan.runs:
        raise _no_task(command, len(runs))
    _check_params(plan.runs, spec_of)
    return plan


def preview_clear(store: Store, command: ClearTasks, dags: Mapping[str, DagRow], spec_of: SpecOf) -> ClearPlan:
    """The plan as it is shown before it is carried out; `Refused` where it would be refused now."""
    plan = plan_clear(store, command, dags, spec_of)
    of_dags = matching(dag_id=sorted({one.run.dag_id for one in plan.runs}), state=sorted(s.RUN_LIVE))
    check_dates([one.run for one in plan.runs], store.read(DagRun, [*of_dags, *CURRENT_RUNS]))
    return plan


def check_dates(runs: Iterable[DagRun], live: Iterable[DagRun]) -> None:
    """`Refused` if a finished run would run again beside a live one that processes dates of it, as one of both is a batch."""
    batches, of_dag = defaultdict[str, list[DagRun]](list), defaultdict[str, list[DagRun]](list)
    for run in live:
        of_dag[run.dag_id].append(run)
        if run.items > 1:
            batches[run.dag_id].append(run)
    for run in runs:
        if run.state in s.RUN_LIVE or run.run_type not in s.TIMELINE_RUN_TYPES:
            continue
        for other in (of_dag if run.items > 1 else batches)[run.dag_id]:
            if other.run_id != run.run_id and (includes(run, other) or includes(other, run)):
                raise errors.DATES_ARE_LIVE(cleared=run.run_id, run_id=other.run_id, state=other.state)


def _check_params(cleared: Iterable[ClearedRun], spec_of: SpecOf) -> None:
    """`InvalidInput` where the version that a run moves to does not take the parameters that it has."""
    moved = {
        (one.run.dag_id, one.to_version, one.run.conf_json): one.run for one in cleared if one.to_version is not None
    }
    for (dag_id, version, _), run in moved.items():
        try:
            check_conf(read_column(run, "conf_json"), spec_of(dag_id, version))
        except InvalidInput as error:
            raise errors.PARAMS_OF_OLDER_VERSION(
                version=version, dag_id=dag_id, run_id=run.run_id, problem=error, old=run.dag_version
            ) from None


def _with_mapped(
    store: Store, runs: Sequence[DagRun], specs: Mapping[tuple[str, int], DagSpec]
) -> dict[RunKey, DagSpec]:
    """The definitions of the runs in which tasks are mapped over the result of another."""
    found: dict[RunKey, DagSpec] = {}
    of_them = [run for run in runs if specs[_version_of(run)].mapped_over_results]
    names = sorted({task_id for run in of_them for task_id in specs[_version_of(run)].mapped_over_results})
    for at in range(0, len(of_them), _RUNS_PER_READ):
        part = of_them[at : at + _RUNS_PER_READ]
        dag_ids, run_ids = (sorted({run.key[n] for run in part}) for n in (0, 1))
        by_run: defaultdict[RunKey, dict[str, TaskInstance]] = defaultdict(dict)
        for ti in store.read(TaskInstance, matching(dag_id=dag_ids, run_id=run_ids, task_id=names)):
            by_run[ti.dag_id, ti.run_id][ti.task_id] = ti
        found |= {run.key: spec_with_tasks(specs[_version_of(run)], by_run[run.key]) for run in part}
    return found


def _version_of(run: DagRun) -> tuple[str, int]:
    return run.dag_id, run.dag_version


# -- pure: which DAGs, runs and tasks ---------------------------------------------------------------------------------


def chosen_dags(command: ClearTasks, dags: Mapping[str, DagRow]) -> list[DagRow]:
    """By id or expression, also inactive ones: their runs can be cleared as long as they keep their version."""
    if not command.is_regex:
        if command.dag_id not in dags:
            raise NotFound("DAG", command.dag_id, dags, hint="see_dags")
        chosen = [dags[command.dag_id]]
    else:
        is_named = searcher(command.dag_id)
        chosen = [dags[dag_id] for dag_id in sorted(dags) if is_named(dag_id)]
        if not chosen:
            there = name_list(sorted(dags)) or "none yet"
            raise NotFound("DAG that matches", command.dag_id, more=f"; there are {there}.")
    gone = [dag.dag_id for dag in chosen if not dag.is_active]
    if command.latest_version and gone:
        raise errors.LATEST_OF_GONE_DAG(dag_id=gone[0])
    return chosen


def tasks_to_clear(command: ClearTasks, spec: DagSpec) -> frozenset[str]:
    """Ids of the tasks that `command` selects in this version of the DAG, with upstream and downstream ones if it says so.
    Callbacks follow the task they watch; one alone is selected by its whole id only (`^clean\\.on_failure$`, too)."""
    if command.tasks is None:
        return frozenset(task.task_id for task in spec.work)
    is_named = searcher(command.tasks)
    matching = frozenset(task.task_id for task in spec.work if is_named(task.task_id))
    whole = command.tasks.removeprefix("^").removesuffix("$").replace("\\.", ".")
    chosen = matching | {whole} if spec.is_callback(whole) else matching
    if command.upstream:
        chosen |= spec.all_upstream(matching)
    if command.downstream:
        chosen |= spec.all_downstream(matching)
    return chosen


def cleared_run(
    command: ClearTasks, run: DagRun, dag: DagRow, spec: DagSpec, task_ids: frozenset[str],
    instances: Iterable[TaskInstance],
) -> ClearedRun:  # fmt: skip
    """What is touched of one run; maybe nothing. Whatever state a callback is in, it goes with its task."""
    there = [ti for ti in instances if not (ti.state == s.SKIPPED and ti.error == NOT_SELECTED)]
    in_states = states_to_clear(command)
    touched = {ti.task_id for ti in there if ti.task_id in task_ids and ti.state in in_states}
    touched |= spec.callbacks_of(touched)
    chosen = sorted((ti for ti in there if ti.task_id in touched), key=lambda ti: ti.task_id)
    finished = tuple(ti for ti in chosen if ti.state in s.TASK_FINISHED)
    live = tuple(ti for ti in chosen if ti.state in STOPPED_FIRST)
    # what comes after a task that is stopped is cleared with it
    after, with_live = (
        spec.all_downstream({ti.task_id for ti in tasks if ti.task_id in spec.by_id}) for tasks in (finished, live)
    )
    stays = {ti.task_id for ti in there if ti.state == s.UPSTREAM_FAILED} & (after - with_live) - touched
    moves = command.latest_version and dag.current_version != run.dag_version
    return ClearedRun(run, finished, live, dag.current_version if moves else None, tuple(sorted(stays)))


def states_to_clear(command: ClearTasks) -> frozenset[str]:
    """Without `none`: it never started. With `only_failed` also what could not start because of a failure, else the failed
    task would run again and its downstream tasks never."""
    if command.only_failed:
        return HAS_FAILED
    return s.TASK_STARTED if command.only_running else s.TASK_FINISHED | STOPPED_FIRST


def failed_and_after(spec: DagSpec, tasks: Iterable[TaskInstance]) -> frozenset[str]:
    """Of a finished run the tasks that failed, could not start because of it, or were cancelled (or were cleared, and
    have not begun), with every task that depends on them; not those that were left out, nor callbacks."""
    there = {ti.task_id: ti for ti in tasks if ti.task_id in spec.by_id and not spec.is_callback(ti.task_id)}
    failed = {task_id for task_id, ti in there.items() if ti.state in HAS_FAILED or ti.state not in s.TASK_FINISHED}
    after = spec.all_downstream(failed) & there.keys()
    return frozenset(failed | {task_id for task_id in after if there[task_id].error != NOT_SELECTED})


# -- reading ----------------------------------------------------------------------------------------------------------


def _read_tasks(
    store: Store, in_states: frozenset[str], runs: Sequence[DagRun]
) -> dict[tuple[Any, ...], list[TaskInstance]]:
    found = defaultdict[tuple[Any, ...], list[TaskInstance]](list)
    ordered = sorted(runs, key=lambda run: run.run_seq)
    for first in range(0, len(ordered), _RUNS_PER_READ):
        some = ordered[first : first + _RUNS_PER_READ]
        where = [
            Condition("run_seq", ">=", some[0].run_seq),
            Condition("run_seq", "<=", some[-1].run_seq),
            *matching(dag_id=[*{run.dag_id for run in some}], run_id=[*{run.run_id for run in some}]),
            *matching(state=sorted(in_states)),
        ]
        for ti in store.read(TaskInstance, where):
            found[ti.dag_id, ti.run_id].append(ti)
    return found


# -- why there is nothing ---------------------------------------------------------------------------------------------


def _check_runs(store: Store, command: ClearTasks, dags: Sequence[DagRow], runs: Sequence[DagRun]) -> None:
    for run_id in command.run_ids:
        if not any(run.run_id == run_id for run in runs):
            raise _no_such_run(store, command, dags, run_id)
    if not runs:
        check_batches(store, command, dags, "clear")
        dag = f"DAG {command.dag_id!r} has never run"
        none = f"No DAG that matches {command.dag_id!r} has ever run" if command.is_regex else dag
        first = next((dag.dag_id for dag in dags if dag.is_active), None)
        if first is None:
            raise errors.NEVER_RAN_AND_GONE(none=none, between=described_dates(command))
        ends = {"start": command.start_date or "T", "end": command.end_date or "T"}
        raise errors.NEVER_RAN(none=none, between=described_dates(command), dag_id=first, **ends)


def _no_such_run(store: Store, command: ClearTasks, dags: Sequence[DagRow], run_id: str) -> Exception:
    of_them = Condition("dag_id", "in", tuple(dag.dag_id for dag in dags))
    there = store.first(DagRun, [of_them, Condition("run_id", "=", run_id)])
    if there is None:
        known = [run.run_id for run in store.read(DagRun, [of_them], order_by=["-run_seq"], limit=500)]
        return NotFound(f"run of DAG {command.dag_id!r} with the id", run_id, known, hint="see_runs")
    if there.state == s.OVERRIDDEN and there.overridden_by is None:  # it has no run in its place (state_repair.py)
        return errors.CLEAR_LOST(run_id=run_id)
    if there.state == s.OVERRIDDEN:
        return errors.CLEAR_OVERRIDDEN(run_id=run_id, by=there.overridden_by)
    if there.reverted_at is not None:
        return errors.CLEAR_REVERTED(run_id=run_id)
    return errors.RUN_OUT_OF_RANGE(run_id=run_id, between=described_dates(command))


def _no_task_matches(command: ClearTasks, specs: Iterable[DagSpec]) -> BackfillManagerError:
    ids = dict.fromkeys(task.task_id for spec in specs for task in spec.in_order if not task.is_callback)
    whose = "" if command.is_regex else f" of DAG {command.dag_id!r}"
    return errors.NO_TASK_MATCHES(pattern=command.tasks, whose=whose, tasks=name_list(list(ids)))


def _no_task(command: ClearTasks, runs: int) -> BackfillManagerError:
    what = "that failed" if command.only_failed else "that is running" if command.only_running else "that has started"
    of = "" if command.tasks is None else f", of those that match {command.tasks!r},"
    those = "the one run" if runs == 1 else f"any of the {runs:,} runs"
    dags = f"any DAG that matches {command.dag_id!r}" if command.is_regex else f"DAG {command.dag_id!r}"
    return errors.NO_TASK_STARTED(of=of, what=what, runs=those, dags=dags, between=described_dates(command))
