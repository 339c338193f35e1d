"""What queries return has the fields that the schema declares, and can be read by its models."""

from __future__ import annotations

import importlib
import pkgutil

import pytest
from support.sample_state import FilledState

from backfill_manager.queries import backfill_items, backfills, managers, named_run, pools, requests, runs, tasks
from backfill_manager.schemas import resources


def test_documents_of_a_backfill_and_what_it_runs_fit_the_schema(state: FilledState) -> None:
    state.backfill("b1", {"success": 1, "failed": 1})
    run = named_run.find_run(state.store, "latest")
    shown = [
        (resources.Backfill, backfills.list_backfills(state.store).items),
        (resources.BackfillDetails, [backfills.find_backfill(state.store, "b1")]),
        (resources.Item, backfill_items.list_items(state.store, "b1").items),
        (resources.Run, runs.list_runs(state.store).items),
        (resources.RunDetails, [runs.run_details(run)]),
        (resources.TimelineRun, runs.timeline(state.store, run.dag_id)),
        (resources.TaskInstance, tasks.list_task_instances(state.store, run)),
        (resources.Try, tasks.list_tries(state.store, run)),
        (resources.LogLine, tasks.list_log_lines(state.store, run, "clean")),
        (resources.Pool, pools.list_pools(state.store)),
        (resources.ManagerStatus, [managers.manager_status(state.store, state.clock.now())]),
    ]
    for model, documents in shown:
        for document in documents:
            assert set(model.model_fields) <= set(document), model
            model.model_validate(document)


@pytest.mark.parametrize("backfill_id", ["b1", "b2"])
def test_a_submitted_backfill_has_the_same_fields_as_one_that_exists(state: FilledState, backfill_id: str) -> None:
    state.backfill("b1", {"pending": 1})
    state.requested("b2")
    document = backfills.find_backfill(state.store, backfill_id)
    assert set(document) == set(resources.BackfillDetails.model_fields)
    resources.BackfillDetails.model_validate(document)
    assert requests.list_requests(state.store).items[-1]["kind"] == "backfill.create"


def test_every_resource_can_be_imported_from_the_package() -> None:
    models = set()
    for module in pkgutil.iter_modules(resources.__path__, f"{resources.__name__}."):
        for name, value in vars(importlib.import_module(module.name)).items():
            if isinstance(value, type) and issubclass(value, resources.Resource):
                models.add(name)
    assert set(resources.__all__) == {name for name in models if name.isidentifier() and not name.startswith("_")}
