"""A DAG may name a pool that does not exist yet: no import error, but said in the log and in answer to `bundle.parse`."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from backfill_manager.dags.bundles.files import BundleContent
from backfill_manager.dags.importing.loader import ParsedFile
from backfill_manager.dags.versions import Submission
from backfill_manager.manager.bundle_watcher import ParseResult
from backfill_manager.manager.tick_context import ParseRequest
from backfill_manager.model.records import Pool, Request, Response
from backfill_manager.testing import InMemoryManager, dag_spec

SPEC = dag_spec("d", "a", "b", each={"a": {"pool": "slow"}})
FOUND = Submission(
    "mine", "/bundles/mine", "standard", BundleContent({"d.py": "h"}, ("d.py",)), snapshot="/snapshots/h",
    parsed=(ParsedFile("d.py", ("d",), (SPEC.to_json(),)),),
)  # fmt: skip
WARNING = 'event="unknown pool" dag=d pool=slow tasks=a'


def test_a_dag_that_names_no_pool_that_exists_is_logged_when_it_changes(capfd: pytest.CaptureFixture[str]) -> None:
    manager = InMemoryManager()
    manager.events.put(ParseResult(FOUND))
    manager.drain()
    assert WARNING in capfd.readouterr().err
    assert manager.state.catalog.dags["d"].is_active and not manager.state.catalog.problems
    manager.events.put(ParseResult(FOUND))
    manager.drain()
    assert "unknown pool" not in capfd.readouterr().err, "it is parsed all the time"


@pytest.mark.parametrize("there", [False, True])
def test_who_has_a_bundle_parsed_is_told_of_pools_that_do_not_exist(there: bool) -> None:
    manager = InMemoryManager()
    manager.events.put(ParseResult(FOUND))
    manager.drain()
    if there:
        manager.state.put(Pool(name="slow", slots=1, weight=1, min_share=0))
    manager.ask("bundle.parse", bundle="mine", subpath="", dry_run=False, deactivate_removed=False)
    manager.drain()
    (request,) = manager.store.read(Request)
    parse = ParseRequest(request.request_id, "mine", "", dry_run=False, deactivate_removed=False)
    manager.events.put(ParseResult(replace(FOUND, on_request=True), parse))
    manager.drain()
    (answer,) = manager.store.read(Response)
    said = "; tasks name pools that do not exist: 'slow'"
    assert answer.message == f"bundle mine: nothing has changed (1 DAG in 1 file){'' if there else said}"
    document = json.loads(answer.payload_json or "")
    assert document["unknown_pools"] == ([] if there else [{"dag_id": "d", "pool": "slow", "tasks": ["a"]}])
