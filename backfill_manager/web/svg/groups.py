"""Groups of tasks in a graph: mapped tasks of one `over=`, and tasks whose ids begin alike (`etl.load`, `etl.check`). A collapsed
group is one box, with how many of its tasks are in which state."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from graphlib import CycleError, TopologicalSorter
from typing import Final, NamedTuple

from backfill_manager.dags.definition import TaskSpec
from backfill_manager.queries.tasks import worst_first

MAX_OPEN_TASKS: Final = 5  # a larger group is collapsed at first
MANY_TASKS: Final = 60  # in a DAG of more, every group is


class Group(NamedTuple):
    name: str
    task_ids: tuple[str, ...]
    is_collapsed: bool

    def counts(self, states: Mapping[str, str]) -> dict[str, int]:
        """How many of its tasks are in each state, the worst first."""
        return worst_first(Counter(states[one] for one in self.task_ids if one in states))


def groups_of(
    tasks: Mapping[str, TaskSpec], opened: Collection[str] = (), closed: Collection[str] = ()
) -> dict[str, Group]:
    """The groups of two and more, in the order of their first tasks. `opened` and `closed` are chosen by hand."""
    found: dict[str, list[str]] = {}
    in_runs = {task.mapped_from for task in tasks.values()} & tasks.keys()  # what is mapped in a run is there, too
    for task in tasks.values():
        if task.task_id in in_runs:
            found.setdefault(task.task_id, []).append(task.task_id)
        elif task.is_callback and task.mapped_from not in in_runs:
            continue
        elif (name := task.mapped_from or task.task_id.partition(".")[0]) != task.task_id:
            found.setdefault(name, []).append(task.task_id)

    def is_collapsed(name: str, size: int) -> bool:
        return name in closed or (name not in opened and (size > MAX_OPEN_TASKS or len(tasks) > MANY_TASKS))

    return {
        name: Group(name, tuple(ids), is_collapsed(name, len(ids)))
        for name, ids in found.items()
        if len(ids) > 1 and (name not in tasks or name in in_runs)
    }


def collapsed(upstream: Mapping[str, Sequence[str]], groups: Collection[Group]) -> dict[str, tuple[str, ...]]:
    """The dependencies of boxes: of each task, and of each collapsed group by its name. A group that waits for itself over others
    can't be one box, and stays open."""
    boxes = {task_id: group.name for group in groups if group.is_collapsed for task_id in group.task_ids}
    merged = _merged(upstream, boxes)
    if _has_cycle(merged):
        boxes = {}
        for group in groups:
            more = boxes | (dict.fromkeys(group.task_ids, group.name) if group.is_collapsed else {})
            if not _has_cycle(_merged(upstream, more)):
                boxes = more
        merged = _merged(upstream, boxes)
    return merged


def _merged(upstream: Mapping[str, Sequence[str]], boxes: Mapping[str, str]) -> dict[str, tuple[str, ...]]:
    found: dict[str, dict[str, None]] = {}
    for task_id, ups in upstream.items():
        box = boxes.get(task_id, task_id)
        found.setdefault(box, {}).update({boxes.get(up, up): None for up in ups if boxes.get(up, up) != box})
    return {box: tuple(ups) for box, ups in found.items()}


def _has_cycle(upstream: Mapping[str, Sequence[str]]) -> bool:
    try:
        TopologicalSorter(upstream).prepare()
    except CycleError:
        return True
    return False
