"""Previews beside real work: their runs stand apart until they are promoted. Without Spark: what is done with clones is given."""

from __future__ import annotations

import contextlib
import json
from datetime import timedelta

import pytest
from support.preview_scenarios import SPEC, FakeClones, a_preview, previewed
from support.scenarios import Killed, Mortal, accepted, never, refused

from backfill_manager.execution.messages import Failed, Outcome, Succeeded, TaskLaunch
from backfill_manager.manager.operations.previews import expired
from backfill_manager.manager.services.table_jobs import PreviewsExpired
from backfill_manager.manager.tick_context import PreviewJob
from backfill_manager.model import states as s
from backfill_manager.model.records import Response, TableAccess
from backfill_manager.schemas import request_kinds
from backfill_manager.testing import InMemoryManager, dag_spec, days


def standing(manager: InMemoryManager) -> list[tuple[str, str, str | None]]:
    return [(run.run_id, run.state, run.previous_run_id) for run in manager.runs("d") if run.run_type == "backfill"]


REAL = [
    ("backfill__2023-01-01T00:00:00Z", "success", None),
    ("backfill__2023-01-02T00:00:00Z", "success", "backfill__2023-01-01T00:00:00Z"),
]


def test_runs_of_a_preview_stand_apart() -> None:
    manager, _, preview_id = previewed()
    assert standing(manager) == REAL
    runs = [run for run in manager.runs("d") if run.run_type == "preview"]
    ids = [f"preview__{preview_id}__2023-01-0{n}T00:00:00Z" for n in (1, 2, 3)]
    assert [(run.run_id, run.previous_run_id) for run in runs] == list(zip(ids, [None, *ids], strict=False))
    of_previews = {launch.preview_id for launch in manager.launched if launch.run.run_type == "preview"}
    assert of_previews == {preview_id}
    assert {launch.preview_id for launch in manager.launched if launch.run.run_type == "backfill"} == {None}
    manager.backfill("d", days("2023-01-03", 1))
    manager.drain()
    assert standing(manager)[-1] == ("backfill__2023-01-03T00:00:00Z", "success", REAL[-1][0]), "as if there was none"


def test_a_date_that_failed_and_is_retried_gets_another_run() -> None:
    fails = [True]

    def script(launch: TaskLaunch) -> Outcome | None:
        return Failed("boom") if fails[0] and launch.run.run_type == "preview" else Succeeded()

    manager, _, preview_id = previewed(script)
    for _ in range(2):
        accepted(manager, request_kinds.BACKFILL_RETRY, backfill_id=preview_id)
    fails[0] = False
    accepted(manager, request_kinds.BACKFILL_RETRY, backfill_id=preview_id)
    first = [run.run_id for run in manager.runs("d") if run.run_id.startswith(f"preview__{preview_id}__2023-01-01")]
    assert [run_id.partition("Z")[2] for run_id in first] == ["", "__2", "__3", "__4"]
    assert standing(manager) == REAL


def test_promoted_runs_take_the_places_of_those_before() -> None:
    manager, clones, preview_id = previewed()
    answer = accepted(manager, request_kinds.BACKFILL_PROMOTE, backfill_id=preview_id)
    assert answer.message == f"preview {preview_id} is promoted: 1 table, 3 runs"
    check_promoted(manager, preview_id)
    assert clones.deleted == [preview_id]
    assert "is promoted: its clones are gone" in refused(
        manager, request_kinds.BACKFILL_PROMOTE, backfill_id=preview_id
    )
    manager.backfill("d", days("2023-01-02", 1), reprocess="completed")
    manager.drain()
    assert [run for run in standing(manager) if run[0] == "backfill__2023-01-02T00:00:00Z__2"], standing(manager)


def test_a_run_that_began_while_the_tables_were_promoted_keeps_its_place_and_is_named() -> None:
    manager, clones, preview_id = previewed()
    work, jobs = clones.work, list[PreviewJob]()
    clones.work = jobs.append  # type: ignore[method-assign,assignment]
    manager.ask(request_kinds.BACKFILL_PROMOTE, backfill_id=preview_id)
    manager.drain()
    manager.script = never
    manager.backfill("d", days("2023-01-02", 1), reprocess="completed")
    manager.drain()
    running = "backfill__2023-01-02T00:00:00Z__2"
    work(jobs[0])
    manager.drain()
    (answer,) = (one for one in manager.store.read(Response) if one.kind == request_kinds.BACKFILL_PROMOTE)
    assert answer.message == (
        f"preview {preview_id} is promoted: 1 table, 3 runs; {running}: active on a date of it, and not replaced there"
    )
    first, _, third = (f"preview__{preview_id}__2023-01-0{n}T00:00:00Z" for n in (1, 2, 3))
    current = [run for run in standing(manager) if run[1] != "overridden"]
    assert current == [(first, "success", None), (running, "running", first), (third, "success", running)]


def test_a_promoted_batch_takes_the_places_of_the_runs_of_all_its_dates() -> None:
    manager = InMemoryManager(dag_spec("d", "a", "b", batchable=True))
    FakeClones(manager)
    manager.backfill("d", days("2023-01-01", 4), batch=1)
    manager.drain()
    preview_id = a_preview(manager, batch=3)
    manager.drain()
    accepted(manager, request_kinds.BACKFILL_PROMOTE, backfill_id=preview_id)
    batch, left = f"preview__{preview_id}__2023-01-01T00:00:00Z", "backfill__2023-01-04T00:00:00Z"
    current = [run for run in standing(manager) if run[1] != "overridden"]
    assert current == [(batch, "success", None), (left, "success", batch)]
    assert [run.overridden_by for run in manager.runs("d") if run.state == "overridden"] == [batch] * 3


@pytest.mark.parametrize("batch", ["of the preview", "that is active"])
def test_nothing_is_promoted_while_a_run_is_active_on_any_date_of_a_batch(batch: str) -> None:
    manager = InMemoryManager(dag_spec("d", "a", batchable=True))
    clones = FakeClones(manager)
    manager.backfill("d", days("2023-01-01", 4))
    manager.drain()
    preview_id = a_preview(manager, batch=3 if batch == "of the preview" else 1)
    manager.drain()
    before, manager.script = standing(manager), never
    first, n = ("2023-01-02", 1) if batch == "of the preview" else ("2022-12-31", 3)
    manager.backfill("d", days(first, n), reprocess="completed", batch=n)
    manager.drain()
    (key,) = manager.running
    message = refused(manager, request_kinds.BACKFILL_PROMOTE, backfill_id=preview_id)
    assert message == f"Run {key[1]} of DAG d is running on a date of this preview; promote it when that has ended."
    assert clones.promoted == [] and len(standing(manager)) == len(before) + 1
    manager.finish(key, Succeeded())
    manager.drain()
    accepted(manager, request_kinds.BACKFILL_PROMOTE, backfill_id=preview_id)
    assert not [run for run in manager.runs("d") if run.run_type == "preview"]


def check_promoted(manager: InMemoryManager, preview_id: str) -> None:
    new = [f"preview__{preview_id}__2023-01-0{n}T00:00:00Z" for n in (1, 2, 3)]
    current = [run for run in standing(manager) if run[1] != "overridden"]
    assert current == list(zip(new, ["success"] * 3, [None, *new], strict=False))
    assert [run.overridden_by for run in manager.runs("d") if run.state == "overridden"] == new[:2]
    assert manager.row(preview_id).preview_outcome == "promoted"
    accesses = [(row.run_id, row.access, row.table_name, row.version) for row in manager.store.read(TableAccess)]
    known = (("write", "silver.t", 7), ("read", "bronze.t", 3), ("read", "silver.t", 7))
    assert sorted(accesses) == sorted((run_id, *one) for run_id in new for one in known)


@pytest.mark.parametrize("commits", range(8))
def test_killed_after_any_table_of_the_commit_that_promotes(commits: int) -> None:
    manager, clones, preview_id = previewed()
    manager.ask(request_kinds.BACKFILL_PROMOTE, backfill_id=preview_id)
    manager.tick()
    assert clones.promoted
    manager.leader = Mortal(manager.leader, commits)  # type: ignore[assignment]
    with contextlib.suppress(Killed):
        manager.drain()
    manager.crash()
    clones = FakeClones(manager)
    manager.drain()
    check_promoted(manager, preview_id)
    (answer,) = [row for row in manager.store.read(Response) if row.kind == request_kinds.BACKFILL_PROMOTE]
    assert answer.outcome == "accepted"


def test_what_can_not_be_promoted() -> None:
    def script(launch: TaskLaunch) -> Outcome | None:
        is_third = launch.run.logical_date is not None and launch.run.logical_date.day == 3
        return Failed("boom") if is_third and launch.run.run_type == "preview" else Succeeded()

    manager, clones, preview_id = previewed(script)
    assert "1 item did not succeed" in refused(manager, request_kinds.BACKFILL_PROMOTE, backfill_id=preview_id)
    real = manager.backfill("d", days("2023-06-01", 1))
    manager.drain()
    assert "is no preview" in refused(manager, request_kinds.BACKFILL_DISCARD, backfill_id=real)
    clones.refusal = "silver.t has moved on"
    message = refused(manager, request_kinds.BACKFILL_PROMOTE, backfill_id=preview_id, partial=True)
    assert message == "silver.t has moved on" and clones.deleted == []
    assert manager.row(preview_id).preview_outcome is None
    clones.refusal = ""
    manager.script = lambda _: None
    manager.backfill("d", days("2023-01-02", 1), reprocess="completed")
    manager.drain()
    meets = refused(manager, request_kinds.BACKFILL_PROMOTE, backfill_id=preview_id, partial=True)
    assert meets.startswith("Run backfill__2023-01-02T00:00:00Z__2 of DAG d is running")
    for key in list(manager.running):
        manager.finish(key, Succeeded())
    manager.script = lambda _: Succeeded()
    manager.drain()
    accepted(manager, request_kinds.BACKFILL_PROMOTE, backfill_id=preview_id, partial=True)
    current = [run for run, state, _ in standing(manager) if state == "success" and run.startswith("preview")]
    assert current == [f"preview__{preview_id}__2023-01-0{n}T00:00:00Z" for n in (1, 2)]


def test_a_preview_that_runs_is_not_promoted_or_discarded() -> None:
    manager = InMemoryManager(SPEC, script=lambda _: None)
    FakeClones(manager)
    preview_id = a_preview(manager)
    for kind in (request_kinds.BACKFILL_PROMOTE, request_kinds.BACKFILL_DISCARD):
        assert "when it has ended, or is cancelled" in refused(manager, kind, backfill_id=preview_id)
    accepted(manager, request_kinds.BACKFILL_DIFF, backfill_id=preview_id)


def test_discarded_or_expired_nothing_of_it_runs_again() -> None:
    manager, clones, preview_id = previewed(lambda launch: Failed("boom"))
    assert expired(manager.store, manager.clock.now()) == []
    manager.clock.advance(days=8)
    assert expired(manager.store, manager.clock.now()) == [preview_id]
    accepted(manager, request_kinds.BACKFILL_DISCARD, backfill_id=preview_id)
    assert clones.deleted == [preview_id] and manager.row(preview_id).preview_outcome == "discarded"
    assert expired(manager.store, manager.clock.now()) == []
    run_id = next(run.run_id for run in manager.runs("d") if run.run_type == "preview")
    for kind, payload in (
        (request_kinds.BACKFILL_RETRY, {"backfill_id": preview_id, "latest_version": False, "downstream": False}),
        (request_kinds.BACKFILL_DIFF, {"backfill_id": preview_id}),
        (request_kinds.RUN_MARK, {"dag_id": "d", "run_id": run_id, "state": "success"}),
    ):
        assert "is discarded: its clones are gone" in refused(manager, kind, **payload)
    other = a_preview(manager)
    manager.drain()
    manager.events.put(PreviewsExpired((other,)))
    manager.drain()
    assert clones.deleted == [preview_id, other] and manager.row(other).preview_outcome == "expired"


@pytest.mark.parametrize("how", ["clear", "mark and retry"])
def test_a_preview_that_is_being_promoted_is_not_run_meanwhile(how: str) -> None:
    manager, clones, preview_id = previewed()
    jobs: list[PreviewJob] = []
    do, clones.work = clones.work, jobs.append  # type: ignore[method-assign,assignment]
    manager.ask(request_kinds.BACKFILL_PROMOTE, backfill_id=preview_id, partial=False, rebase=False)
    manager.drain()
    launched, run = len(manager.launched), next(run for run in manager.runs("d") if run.run_type == "preview")
    if how == "clear":
        manager.ask("tasks.clear", ask={"dag": "d", "run_ids": [run.run_id]})
    else:
        manager.ask("run.mark", dag_id="d", run_id=run.run_id, state="failed")
        manager.ask("backfill.retry", backfill_id=preview_id)
    manager.drain()
    assert len(manager.launched) == launched
    do(jobs[0])
    manager.drain()
    assert not any(one.run_type == "preview" for one in manager.runs("d"))
    assert not manager.store.unanswered()


def test_a_preview_that_goes_on_since_it_was_found_old_does_not_expire() -> None:
    manager, clones, preview_id = previewed()
    found = expired(manager.store, manager.clock.now() + timedelta(days=99))
    assert found == [preview_id]
    manager.script = lambda _: None
    run = next(run for run in manager.runs("d") if run.run_type == "preview")
    manager.ask("run.mark", dag_id="d", run_id=run.run_id, state="failed")
    manager.ask("backfill.retry", backfill_id=preview_id)
    manager.drain()
    manager.events.put(PreviewsExpired(tuple(found)))
    manager.drain()
    assert any(key[1].startswith("preview__") for key in manager.running)
    assert (manager.row(preview_id).preview_outcome, list(clones.deleted)) == (None, [])


def test_a_preview_expires_as_a_whole_and_not_while_any_of_its_backfills_runs_or_has_ended_lately() -> None:
    manager = InMemoryManager(
        SPEC, dag_spec("reader", "c"), script=lambda it: None if it.task.task_id == "c" else Succeeded()
    )
    clones, week = FakeClones(manager), timedelta(days=7)
    preview_id = a_preview(manager, 1)
    tree = {"parents_json": json.dumps([preview_id]), "preview_id": preview_id}
    below = manager.backfill("reader", days("2023-01-01", 1), **tree)
    manager.drain()
    manager.clock.advance(days=8)
    assert (manager.row(preview_id).state, manager.row(below).state) == (s.SUCCESS, s.RUNNING)
    assert expired(manager.store, manager.clock.now() - week) == []
    manager.events.put(PreviewsExpired((preview_id,)))  # found before it was retried
    manager.drain()
    assert (manager.row(preview_id).preview_outcome, clones.deleted) == (None, [])
    (key,) = manager.running
    manager.finish(key, Succeeded())
    manager.drain()
    assert manager.row(below).state == s.SUCCESS and expired(manager.store, manager.clock.now() - week) == []
    manager.clock.advance(days=8)
    assert expired(manager.store, manager.clock.now() - week) == [preview_id]
    manager.events.put(PreviewsExpired((preview_id,)))
    manager.drain()
    assert clones.deleted == [preview_id]
    assert {manager.row(one).preview_outcome for one in (preview_id, below)} == {"expired"}
