"""Which version a retry runs, and what becomes of the backfills downstream (issue 14, number 10)."""

from __future__ import annotations

import json

import pytest
from support.scenarios import accepted, dies_after, nothing_hangs, refused

from backfill_manager.errors import InvalidInput
from backfill_manager.execution.messages import Failed, Outcome, Succeeded, TaskLaunch
from backfill_manager.model import states as s
from backfill_manager.model.records import AUTO_BATCH, BackfillItem, DagRun
from backfill_manager.store.base import matching
from backfill_manager.testing import InMemoryManager, dag_spec, days

JANUARY = days("2013-01-01", 3)


def first_version_fails(launch: TaskLaunch) -> Outcome:
    return Failed("boom") if launch.version.version == 1 else Succeeded()


def failed_and_fixed(*dag_ids: str) -> tuple[InMemoryManager, list[str]]:
    """Backfills, each downstream of the one before, which failed; then the code of all was fixed."""
    manager = InMemoryManager(*(dag_spec(dag_id, "a") for dag_id in dag_ids), script=first_version_fails)
    backfills: list[str] = []
    for dag_id in dag_ids:
        backfills.append(manager.backfill(dag_id, JANUARY, parents_json=json.dumps(backfills[-1:])))
    nothing_hangs(manager)
    for dag_id in dag_ids:
        manager.add_dag(dag_spec(dag_id, "a", "fixed"))
    manager.drain()
    return manager, backfills


def test_a_retry_says_which_version_it_runs_and_that_there_is_a_newer_one() -> None:
    manager, (backfill,) = failed_and_fixed("d")
    answer = accepted(manager, "backfill.retry", backfill_id=backfill)
    assert answer.message == (
        f"backfill {backfill} runs 3 failed items again with version 1 of d, which is not the current one: that is 2"
    )
    nothing_hangs(manager)
    assert manager.row(backfill).state == s.FAILED


def test_with_the_latest_version_it_runs_that_and_keeps_what_has_succeeded() -> None:
    manager, (backfill,) = failed_and_fixed("d")
    answer = accepted(manager, "backfill.retry", backfill_id=backfill, latest_version=True)
    assert answer.message == f"backfill {backfill} runs 3 failed items again with version 2 of d"
    nothing_hangs(manager)
    assert (manager.row(backfill).state, manager.row(backfill).dag_version) == (s.SUCCESS, 2)
    runs = [run for run in manager.store.read(DagRun) if run.state == s.SUCCESS]
    assert [run.dag_version for run in runs] == [2, 2, 2]
    manager.crash()
    assert manager.row(backfill).dag_version == 2


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({"tasks": "^gone$"}, "gone"),
        ({"overrides_json": '{"gone.retries": 3}'}, "gone"),
        ({"batch": 2}, "batchable"),
        ({"reprocess": "failed_tasks"}, "keep their version"),
    ],
)
def test_a_version_that_does_not_go_with_its_settings_is_refused_and_nothing_changes(
    settings: dict[str, object], why: str
) -> None:
    manager = InMemoryManager(dag_spec("d", "gone", batchable=True), script=first_version_fails)
    backfill = manager.backfill("d", JANUARY, **settings)
    nothing_hangs(manager)
    manager.add_dag(dag_spec("d", "other"))
    assert why in refused(manager, "backfill.retry", backfill_id=backfill, latest_version=True)
    assert (manager.row(backfill).state, manager.row(backfill).dag_version) == (s.FAILED, 1)


def test_batches_that_size_themselves_become_single_items_with_a_version_that_is_not_batchable() -> None:
    manager = InMemoryManager(dag_spec("d", "a", batchable=True), script=first_version_fails)
    backfill = manager.backfill("d", JANUARY, batch=AUTO_BATCH)
    nothing_hangs(manager)
    manager.add_dag(dag_spec("d", "a"))
    accepted(manager, "backfill.retry", backfill_id=backfill, latest_version=True)
    nothing_hangs(manager)
    assert manager.states(backfill) == {s.SUCCESS: 3}
    assert [(run.dag_version, run.items) for run in manager.runs("d") if run.state == s.SUCCESS] == [(2, 1)] * 3


def test_a_retry_of_a_parent_names_the_backfills_below_that_failed() -> None:
    manager, (first, second, third) = failed_and_fixed("raw", "clean", "report")
    answer = accepted(manager, "backfill.retry", backfill_id=first, latest_version=True)
    assert answer.message.endswith(
        f"; downstream of it failed too, and not retried: {second} of clean, {third} of report"
    )
    nothing_hangs(manager)
    assert [manager.row(one).state for one in (first, second, third)] == [s.SUCCESS, s.FAILED, s.FAILED]


def test_with_downstream_all_of_the_cascade_runs_again_in_its_order() -> None:
    manager, backfills = failed_and_fixed("raw", "clean", "report")
    answer = accepted(manager, "backfill.retry", backfill_id=backfills[0], latest_version=True, downstream=True)
    assert [text.split(" runs ")[0] for text in answer.message.split("; ")] == [f"backfill {one}" for one in backfills]
    nothing_hangs(manager)
    assert [manager.row(one).state for one in backfills] == [s.SUCCESS] * 3
    done = [run for run in manager.store.read(DagRun) if run.state == s.SUCCESS]
    assert {run.dag_version for run in done} == {2} and len(done) == 9


def test_one_below_that_was_cancelled_is_named_as_it_is_not_retried() -> None:
    def raw_fails(launch: TaskLaunch) -> Outcome | None:
        return Failed("boom") if launch.ti.dag_id == "raw" else None

    manager = InMemoryManager(dag_spec("raw", "a"), dag_spec("clean", "a"), script=raw_fails)
    first = manager.backfill("raw", JANUARY[:1])
    second = manager.backfill("clean", JANUARY, parents_json=json.dumps([first]))
    manager.drain()
    accepted(manager, "backfill.cancel", backfill_id=second, let_running_finish=False)
    manager.drain()
    assert (manager.row(first).state, manager.row(second).state) == (s.FAILED, s.CANCELLED)
    answer = accepted(manager, "backfill.retry", backfill_id=first, downstream=True)
    assert answer.message.endswith(f"; downstream of it, cancelled, and so not retried: {second} of clean")


def test_one_below_that_is_still_active_is_named_as_its_failed_items_are_not_retried() -> None:
    def first_day_fails(launch: TaskLaunch) -> Outcome | None:
        if launch.run.run_id.startswith("backfill__2013-01-01"):
            return Failed("boom")
        return Succeeded() if launch.ti.dag_id == "raw" else None

    manager = InMemoryManager(dag_spec("raw", "a"), dag_spec("clean", "a"), script=first_day_fails)
    first = manager.backfill("raw", JANUARY)
    second = manager.backfill("clean", JANUARY, parents_json=json.dumps([first]))
    manager.drain()
    assert (manager.row(first).state, manager.row(second).state) == (s.FAILED, s.RUNNING)
    answer = accepted(manager, "backfill.retry", backfill_id=first, downstream=True)
    assert answer.message.endswith(
        f"; downstream of it, still active, and so its failed items not retried: {second} of clean"
    )


@pytest.mark.parametrize("tables", range(8))
def test_a_crash_in_the_middle_of_it_leaves_all_of_it_done_once(tables: int) -> None:
    manager, backfills = failed_and_fixed("raw", "clean")
    manager.ask("backfill.retry", backfill_id=backfills[0], latest_version=True, downstream=True)
    dies_after(manager, tables)
    nothing_hangs(manager)
    assert [manager.row(one).state for one in backfills] == [s.SUCCESS] * 2
    assert len([run for run in manager.store.read(DagRun) if run.state == s.SUCCESS]) == 6


def days_that_fail(*failing: int) -> tuple[InMemoryManager, str]:
    """A backfill of ten days, of which those with these numbers have failed; from then on every task succeeds."""

    def script(launch: TaskLaunch) -> Outcome:
        assert launch.run.logical_date is not None
        return Failed("boom") if launch.run.logical_date.day in failing else Succeeded()

    manager = InMemoryManager(dag_spec("d", "a"), script=script)
    backfill = manager.backfill("d", days("2013-01-01", 10))
    nothing_hangs(manager)
    manager.script = lambda _: Succeeded()
    return manager, backfill


def test_a_retry_says_how_many_cancelled_items_it_leaves() -> None:
    manager = InMemoryManager(dag_spec("d", "a"), script=lambda _: Failed("boom"))
    backfill = manager.backfill("d", days("2013-01-01", 5), max_active_runs=1, stop_on_failure=2)
    nothing_hangs(manager)
    accepted(manager, "backfill.cancel", backfill_id=backfill, let_running_finish=False)
    nothing_hangs(manager)
    assert manager.states(backfill) == {s.FAILED: 2, s.CANCELLED: 3}
    manager.script = lambda _: Succeeded()
    answer = accepted(manager, "backfill.retry", backfill_id=backfill, items=["1"])
    assert answer.message == (
        f"backfill {backfill} runs 1 failed item again with version 1 of d and leaves 1 failed item and 3 cancelled items as "
        "they are"
    )
    nothing_hangs(manager)
    accepted(manager, "backfill.retry", backfill_id=backfill)
    nothing_hangs(manager)
    why = refused(manager, "backfill.retry", backfill_id=backfill)
    assert why.endswith("has no failed item to retry; it has 3 cancelled items, which a retry leaves as they are.")


def failed_items(manager: InMemoryManager, backfill: str) -> list[int]:
    failed = matching(backfill_id=backfill, state=s.FAILED)
    return [item.ordinal for item in manager.store.read(BackfillItem, failed, order_by=["ordinal"])]


def test_only_the_chosen_items_that_failed_run_again() -> None:
    manager, backfill = days_that_fail(2, 3, 5, 9)
    answer = accepted(manager, "backfill.retry", backfill_id=backfill, items=["3-6", "9"])
    assert answer.message == (
        f"backfill {backfill} runs 3 failed items again with version 1 of d and leaves 1 failed item as it is"
    )
    nothing_hangs(manager)
    assert failed_items(manager, backfill) == [2]
    assert (manager.row(backfill).state, manager.states(backfill)) == (s.FAILED, {s.SUCCESS: 9, s.FAILED: 1})
    assert len(manager.store.read(DagRun)) == 13  # ten, and one more for each of the three


def test_failures_that_are_left_do_not_count_for_stop_on_failure_of_a_retry() -> None:
    manager, backfill = days_that_fail(2, 3, 5, 9)
    manager.ask("backfill.retry", backfill_id=backfill, items=["9"])
    manager.state.put(manager.row(backfill).evolve(stop_on_failure=1))
    nothing_hangs(manager)
    assert manager.states(backfill) == {s.SUCCESS: 7, s.FAILED: 3}


@pytest.mark.parametrize(
    ("items", "why"),
    [
        (["1", "4"], "None of the 2 chosen items of backfill {id} has failed; it has 4 failed items."),
        (["11"], "items 11: backfill {id} has 10 items, numbered from 1"),
        (["8-11"], "items 8-11: backfill {id} has 10 items"),
    ],
)
def test_chosen_items_that_have_not_failed_or_are_none_are_refused(items: list[str], why: str) -> None:
    manager, backfill = days_that_fail(2, 3, 5, 9)
    assert why.format(id=backfill) in refused(manager, "backfill.retry", backfill_id=backfill, items=items)
    assert manager.row(backfill).state == s.FAILED


@pytest.mark.parametrize(
    ("items", "why"),
    [
        (["0-3"], "items must not be below 1"),
        (["5-3"], "items must begin with the lower number, 3-5, not '5-3'"),
        (["five"], "items must be a number such as 5, or a range such as 5-20, not 'five'"),
        (
            [str(2 * n + 1) for n in range(2001)],
            "items must be at most 2,000 ranges, not 2,001; choose fewer, longer ones",
        ),
    ],
)
def test_what_is_no_number_of_an_item_or_too_many_of_them_is_not_submitted(items: list[str], why: str) -> None:
    manager, backfill = days_that_fail(2)
    with pytest.raises(InvalidInput) as error:
        manager.ask("backfill.retry", backfill_id=backfill, items=items)
    assert why in str(error.value)


@pytest.mark.parametrize("tables", range(6))
def test_a_kill_in_the_middle_of_a_retry_of_chosen_items_retries_no_others(tables: int) -> None:
    manager, backfill = days_that_fail(2, 3, 5, 9)
    manager.ask("backfill.retry", backfill_id=backfill, items=["3-6"])
    dies_after(manager, tables)
    nothing_hangs(manager)
    assert failed_items(manager, backfill) == [2, 9]
    assert manager.row(backfill).state == s.FAILED


def test_a_chosen_item_that_depends_on_its_past_does_not_run_over_a_gap() -> None:
    manager, reader = reader_of_days_that_depend_on_the_past()
    assert refused(manager, "backfill.retry", backfill_id=reader, items=["3"]) == (
        f"Item 3 of backfill {reader} has tasks that depend on the past, and item 2 before it failed without a run; choose that "
        "one, too."
    )
    assert failed_items(manager, reader) == [2, 3, 4]
    accepted(manager, "backfill.retry", backfill_id=manager.row(reader).parents_json[2:-2])
    accepted(manager, "backfill.retry", backfill_id=reader, items=["2-3"])
    nothing_hangs(manager)
    assert failed_items(manager, reader) == [4]
    assert [f"{run.logical_date:%d}" for run in manager.runs("clean")] == ["01", "02", "03"]


def test_a_date_that_another_backfill_has_run_since_is_no_gap() -> None:
    manager, reader = reader_of_days_that_depend_on_the_past()
    manager.backfill("clean", days("2024-01-02", 1))
    nothing_hangs(manager)
    accepted(manager, "backfill.retry", backfill_id=reader, items=["3"])
    nothing_hangs(manager)
    assert failed_items(manager, reader) == [2, 4]


def reader_of_days_that_depend_on_the_past() -> tuple[InMemoryManager, str]:
    """Of four days; its second item failed without a run, as the parent's did, and so did those behind it. The next try of the
    parent succeeds."""
    specs = dag_spec("raw", "a"), dag_spec("clean", "a", each={"a": {"depends_on_past": True}})
    manager = InMemoryManager(
        *specs, script=lambda launch: Failed("boom") if "01-02" in launch.run.run_id else Succeeded()
    )
    parent = manager.backfill("raw", days("2024-01-01", 4))
    reader = manager.backfill("clean", days("2024-01-01", 4), parents_json=json.dumps([parent]))
    nothing_hangs(manager)
    manager.script = lambda _: Succeeded()
    return manager, reader
