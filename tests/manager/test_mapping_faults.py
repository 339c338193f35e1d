"""What goes wrong when tasks are mapped again: beside clears, marks, settings, crashes and callbacks."""

from __future__ import annotations

import contextlib
import inspect
import json
import sys
from typing import Any

import pytest
from support.scenarios import Killed, Mortal, accepted, clear, nothing_hangs

from backfill_manager.dags.definition import DagSpec
from backfill_manager.execution.messages import Failed, Outcome, Succeeded, TaskLaunch
from backfill_manager.model import states as s
from backfill_manager.schemas import request_kinds
from backfill_manager.testing import InMemoryManager, dag_spec, days


def spec_over(callbacks=(), **each: Any) -> DagSpec:
    of_load = {"over_result_of": "find", **each.pop("load", {})}
    return dag_spec(
        "d",
        "find",
        "load",
        "sum",
        upstream={"load": ["find"], "sum": ["load"]},
        each={"load": of_load, **each},
        callbacks=callbacks,
    )


class Script:
    def __init__(self, values, *failing, hold=()):
        self.values, self.failing, self.hold, self.ids, self.launched = values, set(failing), set(hold), [], []

    def __call__(self, launch):
        t = launch.ti.task_id
        self.ids.append(t)
        self.launched.append(launch)
        if t in self.hold:
            return None
        if t in self.failing:
            return Failed("boom")
        return Succeeded(json.dumps(self.values if t == "find" else f"{launch.task.mapped_value}!"))


def states(g):
    return {ti.task_id: ti.state for ti in g.tasks("d")}


def begun(script, spec=None, n=1, **o):
    g = InMemoryManager(spec or spec_over(), script=script)
    g.backfill("d", days("2024-01-01", n), **o)
    g.drain()
    return g


def running(g, task):
    return next(k for k in g.running if k[2] == task)


def test_running_mapped_task_not_in_new_result():
    sc = Script(["a", "b"], hold=["load.a"])
    g = begun(sc)
    sc.values = ["b"]
    accepted(g, request_kinds.TASKS_CLEAR, **clear("d", tasks="^(find|load)$"))
    g.drain()
    for k in list(g.running):
        g.finish(k, Succeeded('"x"'))
    nothing_hangs(g)


def test_clear_load_latest_version_while_running():
    sc = Script(["a", "b"], hold=["load.a"])
    g = begun(sc)
    g.add_dag(spec_over(sum={"retries": 3}))
    g.ask(request_kinds.TASKS_CLEAR, **clear("d", tasks="^load$", latest_version=True))
    g.drain()


def test_update_while_load_is_cleared_and_find_fails():
    sc = Script(["a", "b"], "load.b")
    g = begun(sc)
    sc.hold = {"find"}
    accepted(g, request_kinds.TASKS_CLEAR, **clear("d", tasks="^find$", downstream=True))
    g.drain()
    bid = g.runs("d")[0].backfill_id
    accepted(g, request_kinds.BACKFILL_SET, backfill_id=bid, changes={"priority": 5})
    g.finish(running(g, "find"), Failed("boom"))
    g.drain()
    nothing_hangs(g)


def test_update_while_mapped_runs():
    sc = Script(["a", "b"], hold=["load.a"])
    g = begun(sc)
    sc.hold = {"find"}
    accepted(g, request_kinds.TASKS_CLEAR, **clear("d", tasks="^(find|load)$"))
    g.drain()
    bid = g.runs("d")[0].backfill_id
    accepted(g, request_kinds.BACKFILL_SET, backfill_id=bid, changes={"priority": 5})
    g.finish(running(g, "load.a"), Succeeded('"x"'))
    g.drain()


@pytest.mark.parametrize("tables", range(0, 8))
def test_killed_in_clear_and_find_fails(tables):
    sc = Script(["a", "b"])
    g = begun(sc)
    sc.failing = {"find"}
    g.leader = Mortal(g.leader, tables)
    with contextlib.suppress(Killed):
        g.ask(request_kinds.TASKS_CLEAR, **clear("d", tasks="^find$", downstream=True))
        g.drain()
    g.crash()
    g.clock.advance(minutes=5)
    g.drain()
    g.clock.advance(minutes=5)
    nothing_hangs(g)


def test_crash_while_mapped_runs_and_find_fails():
    sc = Script(["a", "b"], hold=["load.a"])
    g = begun(sc)
    sc.hold.add("find")
    accepted(g, request_kinds.TASKS_CLEAR, **clear("d", tasks="^(find|load)$"))
    g.drain()
    sc.hold = set()
    sc.failing = {"find"}
    g.crash()
    g.clock.advance(minutes=5)
    g.drain()
    g.clock.advance(minutes=5)
    nothing_hangs(g)


def test_a_bad_result_when_it_is_mapped_again_fails_the_run():
    sc = Script(["a", "b"])
    g = begun(sc)
    sc.values = "bad"
    accepted(g, request_kinds.TASKS_CLEAR, **clear("d", tasks="^(find|load|sum)$"))
    g.drain()
    assert states(g)["sum"] == s.UPSTREAM_FAILED and g.runs("d")[0].state == s.FAILED


def test_on_failure_of_the_mapping_is_called():
    sc = Script(["a", "b"])
    g = begun(sc, spec_over(callbacks=("load.on_failure",)))
    sc.values = "bad"
    accepted(g, request_kinds.TASKS_CLEAR, **clear("d", tasks="^find$", downstream=True))
    g.drain()
    assert "load.on_failure" in sc.ids


@pytest.mark.parametrize("rule", ["always", "one_success"])
def test_rule_starts_before_find(rule):
    spec = dag_spec(
        "d",
        "find",
        "other",
        "load",
        upstream={"load": ["find", "other"]},
        each={"load": {"over_result_of": "find", "trigger_rule": rule}},
    )
    sc = Script(["a"], hold=["find"])
    g = begun(sc, spec)
    assert states(g)["load"] == s.NONE


def test_depends_on_past_of_removed():
    vals = {1: ["de", "fr"], 2: ["de", "fr"]}
    fail2 = {"find"}

    def script(launch):
        d = launch.run.logical_date.day
        if d == 2 and launch.ti.task_id in fail2:
            return Failed("x")
        return Succeeded(json.dumps(vals[d])) if launch.ti.task_id == "find" else Succeeded("1")

    g = InMemoryManager(spec_over(load={"depends_on_past": True}), script=script)
    g.backfill("d", days("2024-01-01", 2))
    g.drain()
    first = g.runs("d")[0].run_id
    vals[1] = ["fr"]
    accepted(g, request_kinds.TASKS_CLEAR, **clear("d", tasks="^find$", downstream=True, run_ids=[first]))
    g.drain()
    fail2.clear()
    second = g.runs("d")[1].run_id
    accepted(g, request_kinds.TASKS_CLEAR, **clear("d", tasks="^find$", downstream=True, run_ids=[second]))
    g.drain()
    assert all(r.state == s.SUCCESS for r in g.runs("d"))


def test_wait_for_downstream():
    sc = Script(["a"], hold=["load.a"])
    begun(sc, spec_over(find={"wait_for_downstream": True}), n=2, max_active_runs=2)
    assert sc.ids.count("find") == 1


def test_the_error_of_a_large_result_is_short():
    g = begun(Script("x" * 1_000_000))
    n = len(g.tasks("d", "load")[0].error)
    assert n < 3000, n


def test_ids_of_mapped_callbacks_are_checked():
    g = begun(
        Script(["k" * 100]),
        dag_spec(
            "d",
            "find",
            "l" * 95,
            upstream={"l" * 95: ["find"]},
            each={"l" * 95: {"over_result_of": "find"}},
            callbacks=("l" * 95 + ".on_success",),
        ),
    )
    assert max(len(ti.task_id) for ti in g.tasks("d")) <= 200


def test_clear_load_alone_latest_version():
    sc = Script(["a", "b"])
    g = begun(sc)
    sc.ids.clear()
    g.add_dag(spec_over(sum={"retries": 3}))
    accepted(g, request_kinds.TASKS_CLEAR, **clear("d", tasks="^load$", latest_version=True))
    g.drain()
    assert sc.ids == []


def test_sum_does_not_start_before_find():
    sc = Script(["a", "b"])
    g = begun(sc)
    sc.ids.clear()
    sc.hold = {"find"}
    accepted(g, request_kinds.TASKS_CLEAR, **clear("d", tasks="^(find|load|sum)$"))
    g.drain()
    assert sc.ids == ["find"], sc.ids
    sc.hold = set()
    g.finish(running(g, "find"), Succeeded('["b"]'))
    g.drain()
    assert states(g) == {
        "find": "success",
        "load": "success",
        "load.a": "removed",
        "load.b": "success",
        "sum": "success",
    }
    nothing_hangs(g)


def test_an_id_that_another_task_has_fails_it():
    spec = dag_spec(
        "d", "find", "load", "load.b", upstream={"load": ["find"]}, each={"load": {"over_result_of": "find"}}
    )
    g = begun(Script(["b"]), spec)
    nothing_hangs(g)


def test_cancel_backfill_midway_and_mark_run():
    for st in ("success", "failed"):
        sc = Script(["a", "b"], hold=["load.a"])
        g = begun(sc)
        run_id = g.runs("d")[0].run_id
        g.ask(request_kinds.RUN_MARK, dag_id="d", run_id=run_id, state=st)
        g.drain()
        nothing_hangs(g)
        sc.hold = set()
        accepted(g, request_kinds.TASKS_CLEAR, **clear("d", tasks="^find$", downstream=True))
        g.drain()
        assert g.runs("d")[0].state == "success"


def test_mark_success_of_run_whose_load_failed_then_clear_sum():
    sc = Script("bad")
    g = begun(sc)
    run_id = g.runs("d")[0].run_id
    accepted(g, request_kinds.TASK_MARK, dag_id="d", run_id=run_id, state="success", task_id="load")
    g.drain()
    nothing_hangs(g)


def test_orphan_failed_after_find_fails_again_and_retry():
    sc = Script(["a", "b"], "load.a")
    g = begun(sc)
    sc.failing = {"find"}
    accepted(g, request_kinds.TASKS_CLEAR, **clear("d", tasks="^find$", downstream=True))
    g.drain()
    sc.failing = set()
    g.crash()
    g.backfill("d", days("2024-01-01", 1), reprocess="failed_tasks")
    g.drain()
    assert set(states(g).values()) == {"success"}


@pytest.mark.parametrize("how", ["clear", "mark", "cancel", "skip"])
def test_clear_find_and_downstream_again(how):
    from backfill_manager.execution.messages import Skipped

    sc = Script(["a", "b"])
    g = begun(sc)
    run_id = g.runs("d")[0].run_id
    sc.hold = {"find"}
    accepted(g, request_kinds.TASKS_CLEAR, **clear("d", tasks="^find$", downstream=True))
    g.drain()
    sc.hold = set()
    if how == "clear":
        g.finish(running(g, "find"), Failed("boom"))
    if how == "skip":
        g.finish(running(g, "find"), Skipped("none"))
    if how == "mark":
        g.ask(request_kinds.RUN_MARK, dag_id="d", run_id=run_id, state="success")
    if how == "cancel":
        g.ask(request_kinds.RUN_CANCEL, dag_id="d", run_id=run_id)
    g.drain()
    sc.ids.clear()
    accepted(g, request_kinds.TASKS_CLEAR, **clear("d", tasks="^find$", downstream=True))
    g.drain()
    assert sc.ids == ["find", "load.a", "load.b", "sum"], sc.ids
    assert g.runs("d")[0].state == "success"
    nothing_hangs(g)


def test_cost_read_from_tables():
    from backfill_manager.planning.backfills.past_costs import read_past

    g = InMemoryManager(spec_over(), script=lambda _: None)
    g.backfill("d", days("2024-01-01", 1))
    g.drain()
    for result, s_ in (('["a", "b"]', 1), (None, 600), (None, 1)):
        g.clock.advance(seconds=s_)
        for k in list(g.running):
            g.finish(k, Succeeded(result))
        g.drain()
    (one,) = read_past(g.store, spec_over())
    assert one.seconds >= 600 if hasattr(one, "seconds") else one, one


def test_results_are_read_once_for_each_tick(monkeypatch):
    read = []
    monkeypatch.setattr(json, "loads", lambda t, _l=json.loads: (read.append(t), _l(t))[1])
    values = {f"k{n}": n for n in range(50)}
    g = InMemoryManager(
        dag_spec(
            "d",
            "find",
            "load",
            upstream={"load": ["find"]},
            each={"load": {"over_result_of": "find"}},
            max_active_tasks=100,
        ),
        script=Script(values, hold={f"load.k{n}" for n in range(50)}),
        slots=50,
    )
    g.backfill("d", days("2024-01-01", 1))
    g.drain()
    assert len(g.running) == 50
    assert read.count(json.dumps(values)) < 20, read.count(json.dumps(values))


JANUARY = {"kind": "schedule", "start_date": "2013-01-01T00:00:00Z", "end_date": "2013-02-01T00:00:00Z"}


@pytest.mark.parametrize(
    ("was", "given", "expected"),
    [
        (JANUARY, {"kind": "missing"}, {**JANUARY, "kind": "missing", "reprocess": "none"}),
        (JANUARY, {"kind": "schedule"}, {**JANUARY, "reprocess": "completed"}),
        (
            {**JANUARY, "kind": "missing", "by": "data"},
            {"kind": "outdated"},
            {**JANUARY, "kind": "outdated", "by": "runs"},
        ),
        ({"kind": "dates", "dates": ["2013-01-01"]}, {"kind": "dates"}, {"kind": "dates", "dates": ("2013-01-01",)}),
        (
            {"kind": "dates", "dates": ["2013-01-01"]},
            {"end_date": "2013-02-01"},
            {"kind": None, "dates": (), "end_date": "2013-02-01"},
        ),
        (JANUARY, {"dates": ["2013-01-01"]}, {"kind": None, "start_date": None, "end_date": None}),
    ],
)
def test_a_copy_keeps_the_range(monkeypatch, was, given, expected):
    from types import SimpleNamespace

    from backfill_manager.requests import backfill_copy as m
    from backfill_manager.schemas.backfill_options import BackfillInput

    monkeypatch.setattr(m, "find_uncounted", lambda _, i: {"dag_id": "d", "backfill_id": i})
    monkeypatch.setattr(m, "options_to_copy", lambda *_: {"reprocess": "completed", **was})
    monkeypatch.setattr(m, "settings_now", lambda *_: SimpleNamespace(values={}))
    made = m.with_copied(None, BackfillInput.parse({"dag_id": "d", "copy_of": "x", **given}))
    assert {name: getattr(made, name) for name in expected} == expected


WAS_PLAIN = {"upstream": {"load": ["find"], "report": ["load"]}}
PLAIN_RESULTS = ["42", '"x"', "[1]", '{"rows": 5}', '{"rows": {"a": 1}}']


@pytest.mark.parametrize("result", PLAIN_RESULTS)
def test_what_a_plain_task_returned_is_no_mapping_in_a_version_in_which_it_is_mapped(result: str) -> None:
    def script(launch: TaskLaunch) -> Outcome:
        if launch.ti.task_id == "report" and launch.run.dag_version == 1:
            return Failed("boom")
        return Succeeded(result if launch.ti.task_id == "load" else '["a"]')

    g = InMemoryManager(dag_spec("d", "find", "load", "report", **WAS_PLAIN), script=script)
    g.backfill("d", days("2024-01-01", 1))
    g.drain()
    g.add_dag(dag_spec("d", "find", "load", "report", **WAS_PLAIN, each={"load": {"over_result_of": "find"}}))
    g.commit()
    accepted(g, "tasks.clear", **clear("d", only_failed=True, latest_version=True))
    assert [run.state for run in g.runs("d")] == [s.SUCCESS]
    g.crash()
    g.drain()


@pytest.mark.parametrize("result", ["42", "true"])
def test_a_past_in_which_a_task_was_plain_is_no_mapping(result: str) -> None:
    def script(launch: TaskLaunch) -> Outcome:
        return Succeeded(result if launch.ti.task_id == "load" and launch.run.dag_version == 1 else '["a"]')

    each: dict[str, Any] = {"find": {"depends_on_past": True, "wait_for_downstream": True}}
    g = InMemoryManager(dag_spec("d", "find", "load", "report", **WAS_PLAIN, each=each), script=script)
    g.backfill("d", days("2024-01-01", 1))
    g.drain()
    each["load"] = {"over_result_of": "find"}
    g.add_dag(dag_spec("d", "find", "load", "report", **WAS_PLAIN, each=each))
    g.commit()
    backfill = g.backfill("d", days("2024-01-02", 1), ignore_first_depends_on_past=False)
    g.drain()
    assert g.states(backfill) == {s.SUCCESS: 1}


def test_many_tasks_that_are_mapped_at_once_are_no_deep_recursion() -> None:
    names = [f"load_{n}" for n in range(120)]
    spec = dag_spec(
        "d", "find", *names, upstream={name: ["find"] for name in names},
        each={name: {"over_result_of": "find"} for name in names},
    )  # fmt: skip
    g = InMemoryManager(spec, script=lambda _: Succeeded('["a"]'), slots=500)
    backfill = g.backfill("d", days("2024-01-01", 1))
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(len(inspect.stack()) + 100)
    try:
        g.drain()
    finally:
        sys.setrecursionlimit(limit)
    assert g.states(backfill) == {s.SUCCESS: 1}
