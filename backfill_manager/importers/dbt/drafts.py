"""A dbt project as drafts: each model a SQL task, in the order of their `ref`s, with what its DAG reads and writes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

from backfill_manager.errors import InvalidInput
from backfill_manager.importers.dbt.model_config import BATCH_SIZES
from backfill_manager.importers.dbt.models import Model, Project, identifier_of, quoted_table
from backfill_manager.importers.draft import Code, Draft, DraftDag, Remark, in_order
from backfill_manager.importers.writer import call, keywords, quoted

_AT: Final = "schedule= and start_date= of the DAG are yours to set"


def drafts(project: Project, *, by_tag: bool = False) -> Iterator[tuple[str, Draft]]:
    """The name of each file, and its draft: one, or one for each first tag of a model."""
    if not project.models:
        raise InvalidInput("The project has no models in SQL.")
    groups: dict[str, list[Model]] = {}
    for model in project.models.values():
        groups.setdefault(identifier_of(model.tags[0] if by_tag and model.tags else project.name), []).append(model)
    for number, (name, models) in enumerate(groups.items()):
        _note_other_groups(models, project.models)
        yield f"{name}.py", _draft(name, models, project.remarks if number == 0 else [])


def _note_other_groups(models: Sequence[Model], every: Mapping[str, Model]) -> None:
    """What models need of another DAG's is read like a source."""
    inside = {model.name for model in models}
    for model in models:
        for other in (every[one] for one in model.depends_on if one in every and one not in inside):
            model.sources += [other.table] if other.table not in model.sources else []
            model.remark(f"needs {other.name}, of another DAG", f"Wait for it: waits_for=[{quoted(other.table)}]")


def _draft(name: str, models: Sequence[Model], remarks: Sequence[Remark]) -> Draft:
    schedule = _schedule(models)
    unknown = [] if "start_date" in schedule else [Remark(None, "no schedule is known", _AT)]
    dag = DraftDag(name, schedule, remarks=[*unknown, *remarks])
    inside = {model.name for model in models}
    written = {model.table for model in models}
    reads = sorted({table for model in models for table in model.sources} - written)
    if reads:
        dag.settings["reads"] = _list(reads)
    dag.settings["writes"] = _list(model.table for model in models)
    taken: dict[str, str] = {}
    by_name = {model.name: model for model in models}
    for model in map(by_name.__getitem__, in_order({one.name: one.depends_on for one in models}, "models")):
        variable = identifier_of(model.name)
        while variable in taken.values() or variable in ("sql", "dag"):
            variable += "_"
        taken[model.name] = variable
        dag.items += model.remarks
        dag.items.append(Code(f"{variable} = {_task(model)}"))
        before = [taken[one] for one in dict.fromkeys(model.depends_on) if one in inside and one in taken]
        if before:
            dag.items.append(Code(f"{before[0] if len(before) == 1 else '[' + ', '.join(before) + ']'} >> {variable}"))
    all_remarks = [*dag.remarks, *(remark for model in models for remark in model.remarks)]
    return Draft("dbt", [dag], remarks=all_remarks)


def _schedule(models: Sequence[Model]) -> dict[str, str]:
    """Of microbatches of one size: an interval is a batch."""
    sizes = {model.batch_size for model in models if model.batch_size}
    begins = [model.begin for model in models if model.begin]
    if len(sizes) != 1 or not begins:
        return {"schedule": "None"}
    return {"schedule": quoted(BATCH_SIZES[sizes.pop()]), "start_date": quoted(min(begins))}


def _task(model: Model) -> str:
    settings: dict[str, str] = {}
    if model.materialized == "incremental" and model.event_time:
        settings |= {"into": quoted(model.table), "time_column": quoted(model.event_time)}
    elif model.materialized == "incremental" and model.unique_key:
        settings |= {"into": quoted(model.table), "merge_on": _list(model.unique_key)}
    elif model.materialized == "incremental":
        settings |= {"into": quoted(model.table), "mode": '"overwrite"' if model.is_whole else '"append"'}
    elif model.materialized == "view":
        schema, _, _ = quoted_table(model.table).rpartition(".")
        made = f"CREATE SCHEMA IF NOT EXISTS {schema};\n" if schema else ""  # as dbt does; into= does so by itself
        view = f"{made}CREATE OR REPLACE VIEW {quoted_table(model.table)} AS\n{model.sql}"
        return call("sql", [quoted(model.name), quoted(view)])
    else:
        settings |= {"into": quoted(model.table), "mode": '"overwrite"'}
    if model.new_columns:
        settings["schema"] = '"merge"'
    if model.checks:
        settings["checks"] = f"[{', '.join(dict.fromkeys(model.checks))}]"
    return call("sql", [quoted(model.name), quoted(model.sql), *keywords(settings)])


def _list(texts: Iterable[str]) -> str:
    return "[" + ", ".join(map(quoted, texts)) + "]"
