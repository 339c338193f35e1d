"""A DAG may name a pool that does not exist yet: no import error, but said in the log, in answer to `bundle.parse`, and when a
backfill of it is created; and the answer says why nothing is downstream of it."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from support.planned_items import TWO_DAYS

from backfill_manager.dags.bundles.files import BundleContent
from backfill_manager.dags.importing.loader import ParsedFile
from backfill_manager.dags.versions import Submission
from backfill_manager.manager.services.bundle_watcher import ParseResult
from backfill_manager.manager.services.planner import PlanResult
from backfill_manager.manager.tick_context import ParseRequest, PlanRequest
from backfill_manager.model.records import Pool, Request, Response
from backfill_manager.planning.backfills.backfill_plan import BackfillPlan
from backfill_manager.planning.backfills.dry_run import with_dry_run
from backfill_manager.schemas.backfill_options import CreateBackfill
from backfill_manager.store.base import Store, matching
from backfill_manager.store.memory import MemoryStore
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


def test_the_log_proposes_the_pool_that_is_nearest(capfd: pytest.CaptureFixture[str]) -> None:
    manager = InMemoryManager()
    definition = dag_spec("d", "a", each={"a": {"pool": "backfil"}}).to_json()
    manager.events.put(ParseResult(replace(FOUND, parsed=(ParsedFile("d.py", ("d",), (definition,)),))))
    manager.drain()
    assert "pool=backfil tasks=a hint=\"did you mean 'backfill'?\"" in capfd.readouterr().err


def test_so_is_one_that_notifies_a_target_that_is_not_configured(capfd: pytest.CaptureFixture[str]) -> None:
    manager = InMemoryManager()
    definition = dag_spec("d", "a", notify=("oncall",)).to_json()
    found = replace(FOUND, parsed=(ParsedFile("d.py", ("d",), (definition,)),))
    for is_known in (False, True):
        manager.events.put(ParseResult(found))
        manager.drain()
        warning = 'event="no such notification target" dag=d targets=oncall'
        assert (warning in capfd.readouterr().err) is not is_known, "it is said when the DAG changes"


@pytest.mark.parametrize("there", [False, True])
def test_who_has_a_bundle_parsed_is_warned_of_pools_that_do_not_exist(there: bool) -> None:
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


@pytest.mark.parametrize("there", [False, True])
def test_who_creates_a_backfill_is_warned_of_pools_that_do_not_exist(there: bool) -> None:
    manager = InMemoryManager(SPEC)
    if there:
        manager.state.put(Pool(name="slow", slots=1, weight=1, min_share=0))
    for tasks in (None, "b"):
        command = CreateBackfill(dag_id="d", batch=1, tasks=tasks)
        request = PlanRequest(manager.clock.new_id(), "backfill.create", manager.clock.new_id(), command, "ana")
        manager.events.put(PlanResult(request, BackfillPlan(command, SPEC, 1, TWO_DAYS)))
        manager.drain()
        (answer,) = manager.store.read(Response, matching(request_id=request.request_id))
        said = "" if there or tasks else "; tasks name pools that do not exist: 'slow'"
        assert answer.message == f"backfill {request.backfill_id}: 2 items to run, 0 skipped{said}"


def test_who_creates_a_backfill_with_all_downstream_learns_why_nothing_is() -> None:
    manager = InMemoryManager(SPEC)
    manager.state.put(Pool(name="slow", slots=1, weight=1, min_share=0))
    command = CreateBackfill(dag_id="d", batch=1, downstream=True)
    plan = BackfillPlan(command, SPEC, 1, TWO_DAYS)
    for found, said in (
        (replace(plan, no_downstream="no DAG reads a"), "nothing is downstream: no DAG reads a"),
        (replace(plan, left_out={"e": "it has no schedule"}), "not downstream: e (it has no schedule)"),
    ):
        request = PlanRequest(manager.clock.new_id(), "backfill.create", manager.clock.new_id(), command, "ana")
        manager.events.put(PlanResult(request, found))
        manager.drain()
        (answer,) = manager.store.read(Response, matching(request_id=request.request_id))
        assert answer.message == f"backfill {request.backfill_id}: 2 items to run, 0 skipped; {said}"


def test_a_dry_run_names_the_pools_that_do_not_exist_and_their_tasks() -> None:
    def made(store: Store, tasks: str | None = None) -> dict[str, Any]:
        command = CreateBackfill(dag_id="d", batch=1, tasks=tasks)
        below = BackfillPlan(CreateBackfill(dag_id="below", batch=1), replace(SPEC, dag_id="below"), 1, TWO_DAYS)
        plan = BackfillPlan(command, SPEC, 1, TWO_DAYS, downstream=(below,))
        document = with_dry_run(
            plan, store, TWO_DAYS["interval_end"][1].as_py(), check_waits=lambda _: {}, files_of=lambda *_: None
        )
        return document.to_json_document()

    store = InMemoryManager(SPEC).store
    document = made(store)
    assert document["summary"]["unknown_pools"] == {"slow": ["a"]}
    assert document["downstream"][0]["summary"]["unknown_pools"] == {"slow": ["a"]}
    assert "unknown_pools" not in made(store, "b")["summary"]
    without_pools = MemoryStore()
    without_pools.init()
    assert "unknown_pools" not in made(without_pools)["summary"], "no manager has made them yet"


def test_more_slots_than_spark_has_threads_for_subqueries_are_warned_of(capfd: pytest.CaptureFixture[str]) -> None:
    """Whoever sets them is answered so, and the log says it; not who lowers them, or is below."""
    manager = InMemoryManager(SPEC)
    others = sum(pool.slots for pool in manager.state.pools.values()) - manager.state.pools["backfill"].slots
    for slots in (128 - others, 129 - others, 300, 200):
        manager.ask("pool.set", name="backfill", slots=slots, weight=1, min_share=0)
        manager.drain()
    answers = [row.message for row in manager.store.read(Response, order_by=["answered_at"]) if row.kind == "pool.set"]
    warned = {
        message.partition(";")[0]: "may wait for each other for ever" in message for message in answers if message
    }
    has = "pool backfill has {} slots".format
    assert warned == {has(128 - others): False, has(129 - others): True, has(300): True, has(200): False}
    logged = [line for line in capfd.readouterr().err.splitlines() if "threads for subqueries" in line]
    assert len(logged) == 3 and "the pools have 129 slots in all" in logged[0]
