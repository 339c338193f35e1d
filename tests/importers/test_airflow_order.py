"""Drafts of Airflow's DAG files: order, branches, loops and groups of tasks."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone

import pytest
from support.airflow_files import IMPORTS, file_of
from support.drafted import DraftOf

from backfill_manager.execution.messages import Skipped, Succeeded
from backfill_manager.execution.tasks.spark_executor_runtime import TaskSkipped
from backfill_manager.testing import InMemoryManager, days


def test_orders(drafted: DraftOf) -> None:
    tasks = "\n".join(f'{name} = EmptyOperator(task_id="{name}")' for name in "abcdefghijkl")
    made = drafted(
        file_of(
            f"""{tasks}
a >> [b, c] >> d
e << d
f.set_upstream(e)
e.set_downstream([g])
chain(f, [h, i], [j, k], l)
cross_downstream([a, b], [h, i])"""
        )
    )
    assert {task: set(upstream) for task, upstream in made.order.items()} == {
        "a": set(), "b": {"a"}, "c": {"a"}, "d": {"b", "c"}, "e": {"d"}, "f": {"e"}, "g": {"e"}, "h": {"f", "a", "b"},
        "i": {"f", "a", "b"}, "j": {"h"}, "k": {"i"}, "l": {"j", "k"},
    }  # fmt: skip
    assert made.remarks == []


def test_tasks_of_a_loop_keep_their_own_values(drafted: DraftOf) -> None:
    made = drafted(
        file_of(
            """
def double(n):
    return 2 * n

start = EmptyOperator(task_id="start")
last = start
for number in [1, 2, 3]:
    made = PythonOperator(task_id=f"double_{number}", python_callable=double, op_args=[number])
    last >> made
    last = made
flows = [PythonOperator(task_id="name_" + name, python_callable=lambda: name) for name in ("x", "y") if name]
last >> flows
"""
        )
    )
    assert made.order == {
        "start": (), "double_1": ("start",), "double_2": ("double_1",), "double_3": ("double_2",),
        "name_x": ("double_3",), "name_y": ("double_3",),
    }  # fmt: skip
    assert [made.run(f"double_{number}") for number in (1, 2, 3)] == [2, 4, 6]
    assert [made.run(f"name_{name}") for name in "xy"] == ["x", "y"]


def test_a_branch_skips_what_it_has_not_chosen(drafted: DraftOf) -> None:
    made = drafted(
        f"""{IMPORTS}
def choose(**context):
    return "small" if context["params"]["small"] else ["large", "write"]

with DAG("example", schedule="@daily", catchup=False, params={{"small": True}}):
    branch = BranchPythonOperator(task_id="branch", python_callable=choose)
    small, large = EmptyOperator(task_id="small"), EmptyOperator(task_id="large")
    write = SparkSqlOperator(task_id="write", sql="INSERT INTO t SELECT 1")
    join = EmptyOperator(task_id="join", trigger_rule="none_failed_min_one_success")
    branch >> [small, large, write, join]
    [small, large, write] >> join
"""
    )
    assert made.run("branch", params={"small": True}) == ["small"]
    chosen = made.run("branch", params={"small": False})
    assert chosen == ["large", "write"]
    for task_id in ("large", "write.chosen", "join"):
        made.run(task_id, results={"branch": chosen})
    with pytest.raises(TaskSkipped, match="not chosen"):
        made.run("small", results={"branch": chosen})

    def script(launch: object) -> object:
        task_id = launch.ti.task_id  # type: ignore[attr-defined]
        if task_id in ("write", "join"):
            return Succeeded()
        try:
            made.run(task_id, params={"small": True}, results={"branch": ["small"]})
        except TaskSkipped as skipped:
            return Skipped(str(skipped))
        return Succeeded()

    manager = InMemoryManager(made.dag.spec, script=script)  # type: ignore[arg-type]
    manager.backfill("example", days("2024-05-01", 1))
    manager.drain()
    states = {ti.task_id: ti.state for ti in manager.tasks("example")}
    assert {task: state for task, state in states.items() if state != "success"} == {
        "large": "skipped", "write.chosen": "skipped", "write": "skipped"
    }  # fmt: skip


def test_a_branch_may_choose_a_task_group(drafted: DraftOf) -> None:
    made = drafted(
        file_of(
            """
branch = BranchPythonOperator(task_id="branch", python_callable=lambda: "group")
with TaskGroup("group") as group:
    inner = EmptyOperator(task_id="inner")
other = EmptyOperator(task_id="other")
branch >> [group, other]
"""
        )
    )
    made.run("group.inner", results={"branch": made.run("branch")})
    made.run("group.inner", results={"branch": ["group.inner"]})
    with pytest.raises(TaskSkipped, match="not chosen"):
        made.run("other", results={"branch": ["group"]})
    with pytest.raises(TaskSkipped, match="not chosen"):
        made.run("group.inner", results={"branch": ["other"]})


def test_short_circuit_and_latest_only(drafted: DraftOf) -> None:
    made = drafted(
        file_of(
            """
check = ShortCircuitOperator(task_id="check", python_callable=lambda: False)
latest = LatestOnlyOperator(task_id="latest")

@task.short_circuit
def flow(n):
    return n > 1

flow(2)
check >> latest
""",
            'schedule="@daily", catchup=False',
        )
    )
    made.run("flow")
    with pytest.raises(TaskSkipped, match="condition"):
        made.run("check")
    with pytest.raises(TaskSkipped, match="latest"):
        made.run("latest", logical_date=datetime(2024, 5, 1, tzinfo=timezone.utc))
    made.run("latest", logical_date=datetime.now(timezone.utc) - timedelta(days=1))
    made.run("latest", logical_date=datetime(2024, 5, 1, tzinfo=timezone.utc), run_type="manual")


def test_the_result_of_a_short_circuit_is_its_condition(drafted: DraftOf) -> None:
    made = drafted(
        file_of(
            """
def read(ti):
    return ti.xcom_pull(task_ids="rows")

@task.short_circuit
def at_least(n):
    return n > 1 and n

@task
def twice(n):
    return 2 * n

rows = ShortCircuitOperator(task_id="rows", python_callable=lambda: 7)
rows >> PythonOperator(task_id="read", python_callable=read)
twice(at_least(2))
"""
        )
    )
    assert made.run("read", results={"rows": made.run("rows")}) == 7
    assert made.run("twice", results={"at_least": made.run("at_least")}) == 4


def test_a_chain_of_tasks_whose_number_is_not_known(drafted: DraftOf) -> None:
    made = drafted(
        file_of(
            """
first, last = EmptyOperator(task_id="first"), EmptyOperator(task_id="last")
parts = [EmptyOperator(task_id=f"p{n}") for n in range(3)]
chain(first, *parts, [EmptyOperator(task_id="q1"), EmptyOperator(task_id="q2")], last)
"""
        )
    )
    assert made.order == {
        "first": (), "last": ("q1", "q2"), "p0": ("first",), "p1": ("p0",), "p2": ("p1",), "q1": ("p2",), "q2": ("p2",),
    }  # fmt: skip
    assert made.remarks == []


def test_ids_of_task_groups_that_are_known_when_the_file_runs(drafted: DraftOf) -> None:
    made = drafted(
        file_of(
            """
@task
def copy(x):
    return x

for table in ("orders", "items"):
    with TaskGroup(group_id=f"load_{table}"):
        BashOperator(task_id="read", bash_command="true") >> copy(1)
with TaskGroup("a"):
    with TaskGroup("b", prefix_group_id=False):
        EmptyOperator(task_id="x")
        with TaskGroup("c"):
            EmptyOperator(task_id="y")
"""
        )
    )
    assert made.order == {
        "load_orders.read": (), "load_orders.copy": ("load_orders.read",), "load_items.read": (),
        "load_items.copy": ("load_items.read",), "x": (), "c.y": (),
    }  # fmt: skip


def test_setups_and_teardowns_are_plain_tasks(drafted: DraftOf) -> None:
    """The order that a `with` of a teardown makes is said, not made."""
    text = file_of(
        """
@setup
def start():
    return "id"

@task
@teardown
def stop(cluster):
    print(cluster)

create = BashOperator(task_id="create", bash_command="true").as_setup()
remove = BashOperator(task_id="remove", bash_command="true").as_teardown(setups=create)
create >> EmptyOperator(task_id="use") >> remove
with stop(start()):
    EmptyOperator(task_id="work")
"""
    )
    made = drafted(f"from airflow.decorators import setup, teardown\n{text}")
    assert {one: set(up) for one, up in made.order.items()} == {
        "create": set(), "remove": {"create", "use"}, "use": {"create"}, "start": set(), "stop": {"start"}, "work": set()
    }  # fmt: skip
    assert [made.dag.spec.task(one).trigger_rule for one in ("remove", "stop")] == ["all_done"] * 2
    assert made.remarks == [
        "setup task start", "teardown task stop", ".as_setup()", ".as_teardown()", "with stop(start())"
    ]  # fmt: skip


def test_what_a_short_circuit_skips_whatever_its_rule_is_said(drafted: DraftOf) -> None:
    made = drafted(
        file_of(
            """
gate = ShortCircuitOperator(task_id="gate", python_callable=lambda: False)
polite = ShortCircuitOperator(task_id="polite", python_callable=lambda: False, ignore_downstream_trigger_rules=False)
a, b = EmptyOperator(task_id="a"), EmptyOperator(task_id="b")
join = EmptyOperator(task_id="join", trigger_rule="none_failed_min_one_success")
clean = EmptyOperator(task_id="clean", trigger_rule="all_done")
other = EmptyOperator(task_id="other", trigger_rule="all_done")
gate >> [a, b] >> join >> clean
polite >> other
"""
        )
    )
    assert made.remarks == ['"clean" comes after the short circuit "gate", with the rule "all_done"']


def test_a_function_that_returns_a_task_group(drafted: DraftOf) -> None:
    made = drafted(
        f"""{IMPORTS}
def build(name, steps=()):
    with TaskGroup(group_id=name) as made:
        first, last = EmptyOperator(task_id="first"), EmptyOperator(task_id="last")
        first >> last
    return made

with DAG("one", schedule=None, start_date=datetime(2024, 5, 1)):
    a, b = EmptyOperator(task_id="a"), EmptyOperator(task_id="b")
    again = build("z")
    a >> build("x") >> build("y") >> again >> b
"""
    )
    assert "a" in made.order["x.first"] and "x.last" in made.order["y.first"] and "z.last" in made.order["b"]
    assert made.order["x.last"][-1:] == ("a",) and made.order["x.last"][0] == "x.first"


def test_task_groups(drafted: DraftOf) -> None:
    made = drafted(
        file_of(
            """
start, end = EmptyOperator(task_id="start"), EmptyOperator(task_id="end")
with TaskGroup("one") as one:
    a = EmptyOperator(task_id="a")
    with TaskGroup(group_id="inner") as inner:
        EmptyOperator(task_id="b")
    c = EmptyOperator(task_id="c")
    a >> inner >> c
with TaskGroup("two", prefix_group_id=False) as two:
    EmptyOperator(task_id="x")
    EmptyOperator(task_id="y")

@task_group
def three(value):
    @task
    def first(n):
        return n + 1

    @task
    def second(n):
        return n * 2

    return second(first(value))

start >> one >> two >> three(20) >> end
three(5)
"""
        )
    )
    assert {task: set(upstream) for task, upstream in made.order.items()} == {
        "start": set(), "one.a": {"start"}, "one.inner.b": {"one.a"}, "one.c": {"one.inner.b"}, "x": {"one.c"}, "y": {"one.c"},
        "three.first": set(), "three.second": {"three.first", "x", "y"}, "end": {"three.second"},
        "three__1.first": set(), "three__1.second": {"three__1.first"},
    }  # fmt: skip
    assert made.run("three__1.first") == 6
    assert (made.run("three.first"), made.run("three.second", results={"three.first": 21})) == (21, 42)


def test_dags_made_in_a_loop_and_by_a_function(drafted: DraftOf) -> None:
    made = drafted(
        f"""{IMPORTS}
for region in ["eu", "us"]:
    with DAG(f"copy_{{region}}", schedule=None) as dag:
        PythonOperator(task_id="copy", python_callable=lambda: region)

def create(name):
    with DAG(name, schedule=None) as made:
        EmptyOperator(task_id="a") >> EmptyOperator(task_id="b")
    return made

x = create("x")
"""
    )
    assert [dag.dag_id for dag in made.dags] == ["copy_eu", "copy_us", "x"]


def test_the_order_to_a_task_group_with_a_loop_and_what_it_is_in_airflow_is_said(drafted: DraftOf) -> None:
    text = """
start = EmptyOperator(task_id="start")
with TaskGroup("ordered") as ordered:
    parts = []
    for region in ["eu", "us"]:
        part = EmptyOperator(task_id=region)
        parts.append(part)
    join = EmptyOperator(task_id="join", trigger_rule="none_failed_min_one_success")
    parts >> join
with TaskGroup("beside") as beside:
    for region in ["eu", "us"]:
        EmptyOperator(task_id=region)
start >> ordered >> beside
"""
    made = drafted(file_of(text))
    assert [what for what in made.remarks if "task group" in what] == [
        "the task group ordered, with a loop and an order of its tasks"
    ]
