"""What a clear touches: which DAGs, which runs, which tasks; and what is said when that is nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

import pytest

from backfill_manager.cli.render.errors import worded
from backfill_manager.clock import UTC
from backfill_manager.dags.definition import DagSpec
from backfill_manager.errors import InvalidInput, NotFound
from backfill_manager.model.records import DagRow, DagRun, TaskInstance
from backfill_manager.planning.runs import chosen_runs, clear_plan
from backfill_manager.planning.runs.clear_plan import ClearPlan, plan_clear
from backfill_manager.schemas.commands import ClearTasks
from backfill_manager.testing import MemoryStore, dag_spec

NEW_YEAR = datetime(2013, 1, 1, tzinfo=UTC)
DAY = timedelta(days=1)
CHAIN = {"clean": ["load"], "report": ["clean"]}  # load >> clean >> report
ALL_WELL = {"load": "success", "clean": "success", "report": "success"}
HALF_FAILED = {"load": "success", "clean": "failed", "report": "upstream_failed"}


class Scene:
    """DAGs and their runs in memory."""

    def __init__(self) -> None:
        self.store = MemoryStore()
        self.store.init()
        self.dags: dict[str, DagRow] = {}
        self.specs: dict[tuple[str, int], DagSpec] = {}
        self.seq = 0

    def dag(
        self,
        dag_id: str = "flights",
        *tasks: str,
        version: int = 1,
        gone: bool = False,
        zone: str = "UTC",
        callbacks: Sequence[str] = (),
    ) -> None:
        tasks = tasks or ("load", "clean", "report")
        upstream = {task: ups for task, ups in CHAIN.items() if task in tasks}
        self.specs[dag_id, version] = dag_spec(dag_id, *tasks, upstream=upstream, timezone=zone, callbacks=callbacks)
        self.dags[dag_id] = DagRow(dag_id, "tests", "dag.py", version, False, not gone, None, zone, NEW_YEAR)

    def run(
        self, day: int | None, tasks: Mapping[str, str], dag_id: str = "flights", kind: str = "backfill", **fields: Any
    ) -> str:
        self.seq += 1
        at = None if day is None else NEW_YEAR + (day - 1) * DAY
        run_id = fields.pop("run_id", f"{kind}__{day}")
        row = DagRun(
            dag_id=dag_id, run_id=run_id, run_type=kind, run_seq=self.seq, created_at=NEW_YEAR, logical_date=at,
            **{"state": "success", "dag_version": 1, **fields},
        )  # fmt: skip
        self.store.write([row])
        self.store.write([TaskInstance(dag_id, run_id, task, state, self.seq) for task, state in tasks.items()])
        return run_id

    def clear(self, dag: str = "flights", **submitted: Any) -> ClearPlan:
        return plan_clear(
            self.store, ClearTasks(dag_id=dag, **submitted), self.dags, lambda dag_id, n: self.specs[dag_id, n]
        )


@pytest.fixture
def scene() -> Scene:
    made = Scene()
    made.dag()
    return made


def touched(plan: ClearPlan) -> dict[str, str]:
    """Run -> its cleared tasks in order, those that are stopped first with a `!`."""
    return {
        one.run.run_id: " ".join([*(ti.task_id for ti in one.tasks), *(f"!{ti.task_id}" for ti in one.running)])
        for one in plan.runs
    }


def test_runs_of_every_kind_are_cleared_whatever_made_them(scene: Scene) -> None:
    scene.run(3, {"load": "success"}, kind="manual")
    scene.run(1, {"load": "failed"}, kind="scheduled")
    scene.run(2, {"load": "skipped"}, kind="backfill")

    assert touched(scene.clear()) == {"scheduled__1": "load", "backfill__2": "load", "manual__3": "load"}


def test_what_comes_after_and_is_not_cleared_is_told_to_stay_upstream_failed(scene: Scene) -> None:
    scene.dag()
    scene.run(1, HALF_FAILED, state="failed")
    for submitted in ({"tasks": "clean"}, {"tasks": "clean", "only_failed": True}):
        plan = scene.clear(**submitted)
        assert [one.stays for one in plan.runs] == [("report",)]
        assert plan.summary["stay_upstream_failed"] == 1
    assert scene.clear(tasks="clean", downstream=True).summary["stay_upstream_failed"] == 0
    assert scene.clear(only_failed=True).to_json_document()["runs"][0]["stays"] == []


def test_what_was_overridden_stays_as_it_was(scene: Scene) -> None:
    scene.run(1, ALL_WELL, run_id="old", state="overridden", overridden_by="new")
    scene.run(1, ALL_WELL, run_id="new")

    assert list(touched(scene.clear())) == ["new"]
    with pytest.raises(InvalidInput, match=r"Run old was overridden .* the current run is new: clear that one"):
        scene.clear(run_ids=("old",))


def test_a_task_run_by_hand_is_cleared_only_when_its_run_is_named(scene: Scene) -> None:
    scene.run(1, ALL_WELL)
    scene.run(1, {"load": "success"}, kind="external")

    assert list(touched(scene.clear())) == ["backfill__1"]
    assert list(touched(scene.clear(run_ids=("external__1",)))) == ["external__1"]


def test_dates_are_inclusive_and_in_the_zone_of_each_dag(scene: Scene) -> None:
    scene.dag("tokyo", zone="Asia/Tokyo")
    for day in (1, 2, 3, 4):
        scene.run(day, {"load": "success"})
        scene.run(day, {"load": "success"}, "tokyo", run_id=f"tokyo__{day}")  # 09:00 in Tokyo

    found = touched(scene.clear("flights|tokyo", is_regex=True, start_date="2013-01-02", end_date="2013-01-03"))

    assert list(found) == ["backfill__2", "backfill__3", "tokyo__2", "tokyo__3"], "all of the third, in either zone"
    assert list(touched(scene.clear(start_date="2013-01-02", end_date="2013-01-03T00:00"))) == [
        "backfill__2",
        "backfill__3",
    ]
    assert list(touched(scene.clear("tokyo", start_date="2013-01-02", end_date="2013-01-03T00:00"))) == ["tokyo__2"]
    assert list(touched(scene.clear(start_date="2013-01-02T00:00:00.000001", end_date="2013-01-03T09:00+09:00"))) == [
        "backfill__3"
    ]


def test_runs_without_a_date_are_chosen_only_where_no_dates_are_asked_for(scene: Scene) -> None:
    scene.run(1, ALL_WELL)
    scene.run(None, ALL_WELL, run_id="backfill__emea", partition_key="emea")

    assert list(touched(scene.clear())) == ["backfill__1", "backfill__emea"]
    assert list(touched(scene.clear(start_date="2012-01-01"))) == ["backfill__1"]
    assert list(touched(scene.clear(end_date="2014-01-01"))) == ["backfill__1"]


def test_tasks_are_chosen_by_expression_with_those_before_and_after_them(scene: Scene) -> None:
    scene.run(1, ALL_WELL)

    assert touched(scene.clear(tasks="^cl")) == {"backfill__1": "clean"}
    assert touched(scene.clear(tasks="clean", upstream=True)) == {"backfill__1": "clean load"}
    assert touched(scene.clear(tasks="clean", downstream=True)) == {"backfill__1": "clean report"}
    assert touched(scene.clear(tasks="report", upstream=True)) == {"backfill__1": "clean load report"}


def test_what_comes_after_a_task_is_read_from_the_version_that_the_run_has(scene: Scene) -> None:
    scene.run(1, ALL_WELL)
    scene.dag("flights", "load", "clean", version=2)
    scene.run(2, {"load": "success", "clean": "success"}, dag_version=2)

    found = scene.clear(tasks="clean", downstream=True, latest_version=True)

    assert touched(found) == {"backfill__1": "clean report", "backfill__2": "clean"}
    assert [one.to_version for one in found.runs] == [2, None]


def test_only_failed_brings_along_what_could_not_start_because_of_it(scene: Scene) -> None:
    scene.run(1, HALF_FAILED, state="failed")
    scene.run(2, ALL_WELL)
    scene.run(3, {"load": "cancelled", "clean": "removed", "report": "none"}, state="cancelled")

    assert touched(scene.clear(only_failed=True)) == {"backfill__1": "clean report", "backfill__3": "load"}
    assert touched(scene.clear(only_failed=True, tasks="clean|report")) == {"backfill__1": "clean report"}


def test_what_runs_is_listed_apart_as_it_must_be_stopped_first(scene: Scene) -> None:
    scene.run(1, {"load": "success", "clean": "running", "report": "none"}, state="running")
    scene.run(2, {"load": "up_for_retry", "clean": "none", "report": "none"}, state="running")
    scene.run(3, {"load": "queued", "clean": "none", "report": "none"}, state="queued")

    assert touched(scene.clear()) == {"backfill__1": "load !clean", "backfill__2": "!load", "backfill__3": "!load"}
    assert touched(scene.clear(only_running=True)) == {"backfill__1": "!clean", "backfill__3": "!load"}
    assert scene.clear().summary == {"runs": 3, "tasks": 4, "running": 3, "stay_upstream_failed": 0}


def test_a_task_that_never_started_in_a_live_run_is_left_alone(scene: Scene) -> None:
    scene.run(1, {"load": "none", "clean": "none", "report": "none"}, state="queued")

    with pytest.raises(InvalidInput, match="There is nothing to clear: no task that has started in the one run of DAG"):
        scene.clear()


def test_the_document_lists_every_run_with_its_tasks(scene: Scene) -> None:
    scene.run(1, {"load": "success", "clean": "running", "report": "none"}, state="running")

    document = scene.clear(latest_version=True).to_json_document()

    assert document == {
        "runs": [
            {
                "dag_id": "flights", "run_id": "backfill__1", "run_type": "backfill", "state": "running",
                "logical_date": "2013-01-01T00:00:00Z", "partition_key": None, "dag_version": 1, "to_version": None,
                "tasks": [{"task_id": "clean", "state": "running"}, {"task_id": "load", "state": "success"}],
                    "stays": [],
            }
        ],
        "summary": {"runs": 1, "tasks": 2, "running": 1, "stay_upstream_failed": 0},
        "batches_left_out": [],
    }  # fmt: skip


# -- callbacks --------------------------------------------------------------------------------------------------------

CALLED = {
    **HALF_FAILED,
    "load.on_success": "success", "clean.on_failure": "success", "clean.on_success": "skipped", "on_failure": "failed",
}  # fmt: skip


@pytest.fixture
def telling(scene: Scene) -> Scene:
    scene.dag(callbacks=["load.on_success", "clean.on_failure", "clean.on_success", "on_failure"])
    scene.run(1, CALLED, state="failed")
    return scene


def test_callbacks_are_cleared_with_what_they_tell_of_whatever_state_they_are_in(telling: Scene) -> None:
    of_clean = "clean clean.on_failure clean.on_success on_failure"
    assert touched(telling.clear(tasks="clean")) == {"backfill__1": of_clean}
    assert touched(telling.clear(only_failed=True)) == {"backfill__1": f"{of_clean} report"}
    assert touched(telling.clear(tasks="load")) == {"backfill__1": "load load.on_success on_failure"}
    assert len(touched(telling.clear())["backfill__1"].split()) == 7
    assert {"task_id": "clean.on_success", "state": "skipped"} in telling.clear().to_json_document()["runs"][0]["tasks"]


def test_a_callback_by_itself_is_chosen_by_its_whole_id_only(telling: Scene) -> None:
    assert touched(telling.clear(tasks="clean.on_failure")) == {"backfill__1": "clean.on_failure"}
    assert touched(telling.clear(tasks=r"^clean\.on_failure$", upstream=True)) == {"backfill__1": "clean.on_failure"}
    assert touched(telling.clear(tasks="on_failure")) == {"backfill__1": "on_failure"}
    with pytest.raises(InvalidInput, match=r"'on_f' matches no task of DAG 'flights'; there are load, clean, report$"):
        telling.clear(tasks="on_f")


def test_a_callback_under_way_is_stopped_first_and_one_that_has_not_begun_is_left_alone(telling: Scene) -> None:
    telling.run(2, {**CALLED, "on_failure": "running", "load.on_success": "none"}, state="running")
    assert touched(telling.clear(start_date="2013-01-02", tasks="load")) == {"backfill__2": "load !on_failure"}


# -- nothing to clear --------------------------------------------------------------------------------------------------


def test_what_never_ran_can_not_be_cleared_and_a_backfill_is_offered(scene: Scene) -> None:
    scene.run(1, ALL_WELL)

    with pytest.raises(InvalidInput) as error:
        scene.clear(start_date="2014-01-01", end_date="2014-01-31")

    assert worded(error.value) == (
        "DAG 'flights' has never run between 2014-01-01 and 2014-01-31, and what never ran can't be cleared; create a"
        " backfill with `bfm backfill create flights --from 2014-01-01 --to 2014-01-31`."
    )


def test_a_dag_that_never_ran_at_all_is_reported_likewise(scene: Scene) -> None:
    scene.dag("gone", gone=True)

    with pytest.raises(InvalidInput, match=r"DAG 'flights' has never run, ") as error:
        scene.clear()
    assert "`bfm backfill create flights --from T --to T`" in worded(error.value)
    with pytest.raises(InvalidInput, match=r"No DAG that matches 'fl' has ever run, "):
        scene.clear("fl", is_regex=True)
    with pytest.raises(InvalidInput, match=r"'gone' has never run, .*; nor can it run any more"):
        scene.clear("gone")


def test_a_date_that_a_batch_took_is_reported_with_the_run_that_stands_for_it(scene: Scene) -> None:
    scene.run(1, ALL_WELL, items=10, interval_start=NEW_YEAR, interval_end=NEW_YEAR + 10 * DAY)

    with pytest.raises(
        InvalidInput, match="are part of run backfill__1, which processes 10 intervals together from 2013-01-01"
    ):
        scene.clear(start_date="2013-01-05", end_date="2013-01-06")


def test_the_filter_that_leaves_nothing_is_named(scene: Scene) -> None:
    scene.run(1, ALL_WELL)
    scene.run(2, ALL_WELL)

    with pytest.raises(
        InvalidInput, match="no task that failed in any of the 2 runs of DAG 'flights' from 2013-01-01 on"
    ):
        scene.clear(only_failed=True, start_date="2013-01-01")
    with pytest.raises(InvalidInput, match="no task, of those that match 'load', that is running"):
        scene.clear(only_running=True, tasks="load")


def test_an_expression_that_matches_no_task_names_the_tasks(scene: Scene) -> None:
    scene.run(1, ALL_WELL)

    with pytest.raises(InvalidInput, match="'claen' matches no task of DAG 'flights'; there are load, clean, report"):
        scene.clear(tasks="claen")


def test_an_unknown_dag_offers_the_nearest(scene: Scene) -> None:
    with pytest.raises(NotFound, match="There is no DAG 'flihgts'; did you mean 'flights'"):
        scene.clear("flihgts")
    with pytest.raises(NotFound, match=r"no DAG that matches '\^x'; there are flights"):
        scene.clear("^x", is_regex=True)


def test_a_dag_that_is_gone_is_cleared_with_the_version_it_had(scene: Scene) -> None:
    scene.dag("gone", gone=True, version=1)
    scene.run(1, ALL_WELL, "gone")

    [cleared] = scene.clear("gone").runs

    assert cleared.to_version is None
    with pytest.raises(InvalidInput, match="latest_version: DAG 'gone' is gone"):
        scene.clear("gone", latest_version=True)


def test_a_run_that_is_not_there_or_not_in_the_dates_is_reported(scene: Scene) -> None:
    scene.run(1, ALL_WELL)

    with pytest.raises(
        NotFound, match="There is no run of DAG 'flights' with the id 'backfill__11'; did you mean 'backfill__1'"
    ):
        scene.clear(run_ids=("backfill__11",))
    with pytest.raises(InvalidInput, match="Run backfill__1 is outside of the selected dates from 2014-01-01 on"):
        scene.clear(run_ids=("backfill__1",), start_date="2014-01-01")


@pytest.mark.parametrize(
    ("submitted", "message"),
    [
        ({"start_date": "soon"}, "start_date: 'soon' is not a date"),
        ({"end_date": "2013-02-30"}, "end_date: '2013-02-30' is not a date"),
        ({"start_date": "2013-02-01", "end_date": "2013-01-01"}, "start_date 2013-02-01 is after end_date 2013-01-01"),
        ({"tasks": "cle(an"}, "is not a regular expression"),
        ({"dag": "fli(", "is_regex": True}, "is not a regular expression"),
        ({"only_failed": True, "only_running": True}, "exclude each other"),
    ],
)
def test_what_makes_no_sense_is_refused_in_one_line(scene: Scene, submitted: dict[str, Any], message: str) -> None:
    scene.run(1, ALL_WELL)

    with pytest.raises(InvalidInput) as error:
        scene.clear(**submitted)
    assert message in str(error.value)


def test_more_runs_than_one_clear_takes_are_refused(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chosen_runs, "MAX_RUNS", 2)
    for day in (1, 2):
        scene.run(day, ALL_WELL)
    assert len(scene.clear().runs) == 2

    scene.run(3, ALL_WELL)
    with pytest.raises(InvalidInput, match="More than 2 runs are chosen; take a shorter range"):
        scene.clear()


def test_tasks_of_many_runs_are_read_some_at_a_time(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clear_plan, "_RUNS_PER_READ", 3)
    for day in range(10, 0, -1):
        scene.run(day, {"load": "success"})

    assert list(touched(scene.clear())) == [f"backfill__{day}" for day in range(1, 11)]
