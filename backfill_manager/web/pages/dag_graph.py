"""*Graph* of a DAG: its tasks and groups of tasks, with the states of a run. The address holds the run and which
groups are open."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Final

from fastapi import Query
from starlette.responses import Response

from backfill_manager.dags.definition import TaskSpec
from backfill_manager.queries import dags as queries
from backfill_manager.queries.named_run import find_run
from backfill_manager.queries.runs import list_runs
from backfill_manager.queries.tasks import list_task_instances
from backfill_manager.web.filters import state_label
from backfill_manager.web.links import PathId, to
from backfill_manager.web.page import ViewerContext, page_router
from backfill_manager.web.pages.dag import dag_page
from backfill_manager.web.svg.graph import layered
from backfill_manager.web.svg.groups import Group, collapsed, groups_of

router: Final = page_router()
NO_RUN: Final = "none"
MAX_RUNS: Final = 50  # to choose from; the newest
Names = Annotated[list[str] | None, Query(max_length=500)]


@router.get("/dags/{dag_id}/graph")
def graph_tab(
    context: ViewerContext, dag_id: PathId, run: str = "", open: Names = None, closed: Names = None
) -> Response:
    """Of the current version, with the states of the latest run; with `run` of that run's version, or without states."""
    row, current = queries.known_dag(context.store, dag_id)
    runs = list_runs(context.store, dag_id=dag_id, limit=MAX_RUNS).items
    chosen = run or (runs[0]["run_id"] if runs else NO_RUN)
    dag_run = None if chosen == NO_RUN else find_run(context.store, chosen, dag_id=dag_id)
    instances = {ti["task_id"]: ti for ti in list_task_instances(context.store, dag_run)} if dag_run else {}
    is_of_run = dag_run is not None and (run != "" or dag_run.dag_version == row.current_version)
    spec = queries.spec_of_run(context.store, dag_run) if dag_run and is_of_run else current
    specs = {task.task_id: task for task in spec.in_order} if spec else {}
    if run == "":  # the latest run may be of an earlier version
        instances = {task_id: ti for task_id, ti in instances.items() if task_id in specs}
    states = {task_id: str(ti["state"]) for task_id, ti in instances.items()}
    address = _Address(dag_id, run, tuple(open or ()), tuple(closed or ()))
    shown, groups = _boxes(specs, states, address)
    counts = {name: group.counts(states) for name, group in groups.items()}
    texts = {name: _text(name, groups, counts, specs, states) for name in shown}
    return dag_page(
        context, dag_id, "graph", drawn=layered(shown, texts), texts=texts, groups=groups, counts=counts, instances=instances,
        states=states, run_id=dag_run.run_id if dag_run else None, specs=specs, is_known=spec is not None, chosen_run=run,
        waits_for={task_id: _short(task.upstream, spec.mapped) for task_id, task in specs.items()} if spec else {},
        toggles={name: address.toggled([name], is_open=group.is_collapsed) for name, group in groups.items()},
        all_open=address.toggled(list(groups), is_open=True), all_closed=address.toggled(list(groups), is_open=False),
        opened=address.opened, shut=address.shut, no_run=address.with_(run=NO_RUN), runs=runs,
        version=dag_run.dag_version if dag_run and run else row.current_version,
        run_version=dag_run.dag_version if dag_run else None,
    )  # fmt: skip


@dataclass(frozen=True)
class _Address:
    """Of this page: the run, and the groups that are opened and shut by hand."""

    dag_id: str
    run: str
    opened: tuple[str, ...]
    shut: tuple[str, ...]

    def with_(self, **changed: Any) -> str:
        return to(
            "dags", self.dag_id, "graph", **{"run": self.run, "open": self.opened, "closed": self.shut, **changed}
        )

    def toggled(self, names: Sequence[str], *, is_open: bool) -> str:
        """With these groups opened, or shut, besides the others."""
        opened = [name for name in self.opened if name not in names]
        shut = [name for name in self.shut if name not in names]
        (opened if is_open else shut).extend(names)
        return self.with_(open=opened, closed=shut)


def _boxes(
    specs: Mapping[str, TaskSpec], states: Mapping[str, str], address: _Address
) -> tuple[dict[str, tuple[str, ...]], dict[str, Group]]:  # fmt: skip
    """The boxes that are drawn, each with those before it, and the groups."""
    groups = groups_of(specs, address.opened, address.shut)
    upstream: dict[str, Sequence[str]] = {task.task_id: task.upstream for task in specs.values()}
    shown = collapsed(upstream | {task_id: () for task_id in states if task_id not in specs}, groups.values())
    # Else it can't be a box; what is mapped in a run is a task of that name as well.
    return shown, {
        name: group
        for name, group in groups.items()
        if not (group.is_collapsed and any(one in shown for one in group.task_ids if one != name))
    }


def _short(upstream: Sequence[str], mapped: Mapping[str, Mapping[str, str]]) -> list[str]:
    """What a task waits for; all that are mapped from one task are one name: `load.* (1,000)`."""
    names = {
        task_id: f"{mapped_from}.* ({len(ids):,})"
        for mapped_from, ids in mapped.items() if 1 < len(ids) <= len(upstream) and set(ids.values()) <= set(upstream)
        for task_id in ids.values()
    }  # fmt: skip
    return list(dict.fromkeys(names.get(task_id, task_id) for task_id in upstream))


def _text(
    name: str,
    groups: dict[str, Group],
    counts: dict[str, dict[str, int]],
    specs: dict[str, Any],
    states: dict[str, str],
) -> str:
    """What is written below the name of a box: a state, how many of a group are in which, or the kind."""
    if name in groups and groups[name].is_collapsed:
        of_states = ", ".join(f"{n} {state_label(state)}" for state, n in counts[name].items())
        return of_states or f"{len(groups[name].task_ids)} tasks"
    return state_label(states[name]) if name in states else specs[name].kind
