"""Plans the backfills downstream of a backfill: one of every DAG that reads what it writes, and so on.

A DAG is downstream of another if it reads a table that the other writes; names are the same whatever their case. What it reads
is what it declares (`reads`), else what its SQL tasks read. Each DAG of the tree is planned once, after all that it waits for:
the intervals of its own schedule that overlap at least one item that will run of a DAG that it reads from. They are reprocessed
whether they have succeeded or not, as their input changes; one that has not ended (this week, of days that have) is skipped like
any other: its own schedule runs it. So is one outside of the DAG's own `start_date` and `end_date`, as nobody has asked for it.
A DAG that reads its own output is not downstream of itself; DAGs that read from each other in a circle are refused.
"""

from __future__ import annotations

import dataclasses
import graphlib
import re
from collections.abc import Callable, Collection, Iterable, Mapping
from datetime import datetime, timedelta

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from backfill_manager.clock import from_micros
from backfill_manager.dags.definition import DagSpec, has_macros
from backfill_manager.dags.schedule.timetable import ONCE, timetable_of
from backfill_manager.humanise import name_list
from backfill_manager.model import states
from backfill_manager.planning.backfills.backfill_plan import BackfillPlan
from backfill_manager.planning.backfills.backfill_range import MAX_ITEMS
from backfill_manager.planning.data.interval_overlap import Spans, micros_of
from backfill_manager.schemas import errors
from backfill_manager.schemas.backfill_options import CreateBackfill
from backfill_manager.store.data_tables.places import Numbers
from backfill_manager.store.sql_guard import tables_read
from backfill_manager.value_rules import name_or_path

Dags = Mapping[str, tuple[DagSpec, int]]  # by dag_id: the current definition of an active DAG, and its version
PlanOne = Callable[[CreateBackfill, DagSpec, int], BackfillPlan]


def with_downstream(root: BackfillPlan, others: Dags, plan_one: PlanOne) -> BackfillPlan:
    """The plan with its `downstream`, each after those it waits for, and what had to be left out of it with the reason."""
    planned = {root.dag.dag_id: root}
    left_out: dict[str, str] = {}
    below = tree(root.dag, [spec for spec, _ in others.values()])
    for dag_id, writers in below.items():
        dag, dag_version = others[dag_id]
        parents = tuple(writer for writer in writers if writer in planned)
        changed = _changed([planned[parent] for parent in parents])
        command = _command_for(root.command, dag, changed)
        if isinstance(command, CreateBackfill):
            plan = _within_dates(_only_meeting(plan_one(command, dag, dag_version), changed))
            if plan.items.num_rows:
                planned[dag_id] = dataclasses.replace(plan, parents=parents)
                continue
            command = "none of its intervals overlaps one that would run"
        left_out[dag_id] = command
    del planned[root.dag.dag_id]
    why_none = None if below else _why_none(root.dag)
    return dataclasses.replace(root, downstream=tuple(planned.values()), left_out=left_out, no_downstream=why_none)


def _why_none(dag: DagSpec) -> str:
    """Not by what runs have written: one may write another table than the one before."""
    if dag.output_tables:
        return f"no active DAG declares that it reads {name_list(dag.output_tables)} (reads=[...]) or reads it in a SQL task"
    return f"DAG {dag.dag_id!r} does not declare which tables it writes (writes=[...])"


def tree(root: DagSpec, dags: Iterable[DagSpec]) -> dict[str, tuple[str, ...]]:
    """Every DAG below `root` -> the DAGs of the tree that write what it reads; each after those it waits for.
    `InvalidInput` for a circle."""
    specs = {dag.dag_id: dag for dag in sorted(dags, key=lambda dag: dag.dag_id)} | {root.dag_id: root}
    readers = _Readers(specs.values())
    waits_for: dict[str, set[str]] = {root.dag_id: set()}
    todo = [root.dag_id]
    while todo:
        writer = todo.pop(0)
        for reader in sorted(readers.of(set(map(_compared_name, specs[writer].output_tables))) - {writer}):
            if reader not in waits_for:
                todo.append(reader)
            waits_for.setdefault(reader, set()).add(writer)
    try:
        order = list(graphlib.TopologicalSorter(waits_for).static_order())
    except graphlib.CycleError as error:
        raise errors.DOWNSTREAM_CIRCLE(dag_id=root.dag_id, circle=" >> ".join(error.args[1])) from None
    place = {dag_id: n for n, dag_id in enumerate(order)}
    return {
        dag_id: tuple(sorted(waits_for[dag_id], key=place.__getitem__)) for dag_id in order if dag_id != root.dag_id
    }


class _Readers:
    """Which DAGs read which tables, in casefolded names: those that they declare, else those that their SQL tasks name. A name
    that a macro or a parameter makes is not known before a run. Only texts with a word of a table's name are parsed."""

    def __init__(self, dags: Iterable[DagSpec]) -> None:
        self._declared, self._texts = list[tuple[str, set[str]]](), list[tuple[str, str, set[str]]]()
        for dag in dags:
            self._declared.append((dag.dag_id, {_compared_name(read.table) for read in dag.reads}))
            if not dag.reads:
                texts = {task.sql for task in dag.tasks if task.sql}
                self._texts += [(dag.dag_id, text, set(_words(text))) for text in texts]

    def of(self, tables: Collection[str]) -> set[str]:
        """The ids of the DAGs that read one of them."""
        words = {word for table in tables for word in _words(table)[-1:]}
        found = {dag_id for dag_id, declared in self._declared if not declared.isdisjoint(tables)}
        return found | {
            dag_id for dag_id, text, of_text in self._texts
            if not of_text.isdisjoint(words) and not tables_read(_without_macros(text)).isdisjoint(tables)
        }  # fmt: skip


def _compared_name(table: str) -> str:
    """The name of a declared table as `tables_read` has it."""
    return name_or_path(table).replace("`", "").casefold()


def _words(text: str) -> list[str]:
    return re.findall(r"\w+", text.casefold())


def _without_macros(text: str) -> str:
    if not has_macros(text):
        return text
    from backfill_manager.dags.sql_macros import MacroError, check_macros  # more than most plans need

    try:
        return check_macros(text)
    except MacroError:  # its run says why
        return ""


@dataclasses.dataclass(frozen=True)
class _Changed:
    """The intervals that will be written anew, with both ends included, in epoch micros; an interval without a length is
    the instant that it is."""

    first: Numbers
    last: Numbers

    @property
    def start(self) -> datetime:
        return from_micros(int(self.first.min()))

    @property
    def end(self) -> datetime:
        """The first instant after all of them."""
        return from_micros(int(self.last.max())) + timedelta(microseconds=1)


def _changed(plans: Iterable[BackfillPlan]) -> _Changed:
    firsts, lasts = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
    for plan in plans:
        will_run = pc.and_(pc.equal(plan.items["state"], states.PENDING), pc.is_valid(plan.items["interval_start"]))
        starts, ends = _intervals(plan.items.filter(will_run))
        firsts.append(starts)
        lasts.append(np.maximum(ends - 1, starts))
    return _Changed(np.concatenate(firsts), np.concatenate(lasts))


def _intervals(items: pa.Table) -> tuple[Numbers, Numbers]:
    return micros_of(items["interval_start"]), micros_of(items["interval_end"])


def _command_for(root: CreateBackfill, dag: DagSpec, changed: _Changed) -> CreateBackfill | str:
    """What is asked of a DAG below, over the range of what it reads; or why it is left out."""
    if dag.schedule is None or dag.schedule == ONCE:
        has = "it has no schedule" if dag.schedule is None else f"it has the schedule {ONCE!r}"
        return f"{has}, so nothing tells which of its runs read what changes"
    if not len(changed.first):
        by_key = " by interval, only by partition" if root.kind == "partitions" else ""
        return f"nothing that it reads would be written{by_key}"
    timetable = timetable_of(dag, changed.start)
    first = timetable.last_at_or_before(changed.start) or changed.start
    last = timetable.last_before(changed.end)
    if last is None:
        return "none of its intervals overlaps one that would run"
    about = timetable.estimate_count(first, last)
    if about > MAX_ITEMS:
        raise errors.TOO_MANY_DOWNSTREAM(dag_id=dag.dag_id, count=f"{about:,}", max=f"{MAX_ITEMS:,}")
    # in the order of what it waits for, unless its own tasks need the older dates first
    backwards = root.run_backwards and not any(task.depends_on_past for task in dag.tasks)
    return CreateBackfill(
        dag_id=dag.dag_id, start_date=first, end_date=last, run_backwards=backwards, reprocess="completed",
        max_active_runs=root.max_active_runs, pool=root.pool, priority=root.priority, window=root.window,
        is_polite=root.is_polite, notify=root.notify, allow_future=root.allow_future, batch_target=root.batch_target,
        ignore_first_depends_on_past=root.ignore_first_depends_on_past,
    )  # fmt: skip


def _only_meeting(plan: BackfillPlan, changed: _Changed) -> BackfillPlan:
    """The items that overlap what changes, numbered anew."""
    meets = Spans(changed.first, changed.last).meeting(*_intervals(plan.items)) > 0
    items = plan.items.filter(pa.array(meets))
    ordinals = pa.array(np.arange(1, items.num_rows + 1))
    return dataclasses.replace(plan, items=items.set_column(0, items.schema.field("ordinal"), ordinals))


def _within_dates(plan: BackfillPlan) -> BackfillPlan:
    """With the items outside of the dates of its DAG skipped."""
    items = plan.items
    for reason, is_outside, end in (
        ("before start_date", pc.less, plan.dag.start_date),
        ("after end_date", pc.greater, plan.dag.end_date),
    ):
        if end is not None:
            dates = items["logical_date"]
            outside = pc.and_(is_outside(dates, pa.scalar(end, dates.type)), pc.equal(items["state"], states.PENDING))
            for name, value in (("reason", reason), ("state", states.SKIPPED)):
                column = pc.if_else(outside, value, items[name])
                items = items.set_column(items.schema.get_field_index(name), name, column)
    return dataclasses.replace(plan, items=items)
