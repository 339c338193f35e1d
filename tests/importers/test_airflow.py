"""DAG files of Airflow as drafts: what becomes of each part, and that every draft is read by our own loader."""

from __future__ import annotations

import importlib.metadata
import os
import subprocess
import sys
from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest
from support.airflow_files import IMPORTS, file_of
from support.drafted import Drafted

from backfill_manager.execution.messages import Skipped, Succeeded
from backfill_manager.execution.tasks.spark_executor_runtime import TaskSkipped
from backfill_manager.importers.airflow.templates import as_sql
from backfill_manager.importers.airflow.translate import translate
from backfill_manager.importers.files import convert
from backfill_manager.importers.writer import write
from backfill_manager.testing import InMemoryManager, days, load_file

Draft = Callable[[str], Drafted]


def test_settings_of_a_dag(drafted: Draft) -> None:
    made = drafted(
        f"""{IMPORTS}
default_args = {{
    "owner": "sales",
    "retries": 2,
    "retry_delay": timedelta(minutes=5),
    "retry_exponential_backoff": True,
    "execution_timeout": timedelta(hours=1),
    "depends_on_past": True,
    "priority_weight": 3,
    "start_date": datetime(2024, 5, 1, tzinfo=pendulum.timezone("Europe/Berlin")),
}}
dag = DAG(
    dag_id="orders.daily",
    schedule_interval="0 6 * * *",
    end_date=datetime(2025, 1, 1),
    default_args=default_args,
    catchup=True,
    max_active_runs=2,
    tags=["sales"],
    description="Orders of a day",
    params={{"full": False, "region": Param("eu", type="string", enum=["eu", "us"], description="where")}},
)
EmptyOperator(task_id="a", dag=dag, retries=0, pool_slots=2, wait_for_downstream=True, trigger_rule=TriggerRule.ALL_DONE)
"""
    )
    spec = made.dag.spec
    assert (spec.dag_id, spec.schedule, spec.timezone) == ("orders.daily", "0 6 * * *", "Europe/Berlin")
    assert (spec.owner, spec.tags, spec.description) == ("sales", ("sales",), "Orders of a day")
    assert (spec.catchup, spec.max_active_runs) == (True, 2)
    assert spec.start_date == datetime(2024, 4, 30, 22, tzinfo=timezone.utc)
    assert spec.params == {"full": False, "region": "eu"} and spec.declared_params["region"].choices == ("eu", "us")
    task = spec.task("a")
    assert (task.retries, task.retry_delay, task.retry_backoff, task.timeout, task.priority) == (0, 300, 2, 3600, 3)
    assert (task.weight, task.wait_for_downstream, task.depends_on_past, task.trigger_rule) == (
        2,
        True,
        True,
        "all_done",
    )
    assert made.remarks == [] and "default_args = {" not in made.text


@pytest.mark.parametrize(
    ("schedule", "expected", "remark"),
    [
        ('schedule="@daily"', "@daily", None),
        ("schedule=timedelta(hours=6)", {"seconds": 21600}, None),
        ("schedule=None", None, None),
        ('timetable=CronDataIntervalTimetable("0 5 * * *", timezone="Europe/Berlin")', "0 5 * * *", None),
        ('schedule=CronTriggerTimetable("0 5 * * *", timezone="UTC")', "0 5 * * *", "CronTriggerTimetable"),
        ('schedule="@continuous"', None, "schedule='@continuous'"),
        ("schedule=[Dataset('s3://x')]", None, "schedule=[Dataset(\"s3://x\")]"),
        ("schedule=MultipleCronTriggerTimetable('0 5 * * *')", None, "schedule=MultipleCronTriggerTimetable(\"0 5 * * *\")"),
    ],
)  # fmt: skip
def test_schedules(drafted: Draft, schedule: str, expected: object, remark: str | None) -> None:
    text = file_of('EmptyOperator(task_id="a")', f"{schedule}, catchup=False")
    more = "from airflow.timetables.interval import CronDataIntervalTimetable\nfrom airflow.datasets import Dataset\n"
    more += "from airflow.timetables.trigger import CronTriggerTimetable, MultipleCronTriggerTimetable\n"
    made = drafted(more + text)
    assert made.dag.spec.schedule == expected
    assert made.remarks == ([remark] if remark else [])


def test_a_setting_of_a_dag_that_is_lost_is_said(drafted: Draft) -> None:
    """What the file changes after it has assigned it, zones of other files, and settings without an equal."""
    made = drafted(
        f"""{IMPORTS}
from datetime import timezone

ARGS = {{"retries": 1}}
ARGS["retries"] = 5
MORE = {{"retries": 1}}
MORE.update(pool="etl")
JST = timezone(timedelta(hours=9))
with DAG("one", schedule=None, start_date=datetime(2024, 5, 1, tzinfo=JST), default_args=ARGS, max_consecutive_failed_dag_runs=3):
    EmptyOperator(task_id="a")
with DAG("two", schedule=None, start_date=pendulum.parse("2024-05-01", tz="Europe/Berlin"), default_args=MORE):
    EmptyOperator(task_id="a")
"""
    )
    assert made.remarks == ["`ARGS`", "the time zone JST", "max_consecutive_failed_dag_runs of the DAG", "`MORE`"]
    one, two = (dag.spec for dag in made.dags)
    assert (one.task("a").retries, two.task("a").retries) == (0, 0)
    assert two.start_date == datetime(2024, 4, 30, 22, tzinfo=timezone.utc)


def test_params_of_default_args_are_the_dags(drafted: Draft) -> None:
    settings = 'schedule=None, params={"a": 1, "b": 1}, default_args={"params": {"b": 2, "c": 2}}'
    assert drafted(file_of('EmptyOperator(task_id="a")', settings)).dag.spec.params == {"a": 1, "b": 2, "c": 2}


def test_orders(drafted: Draft) -> None:
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


def test_a_function_takes_its_context_from_ctx(drafted: Draft) -> None:
    made = drafted(
        f"""{IMPORTS}
from airflow.exceptions import AirflowSkipException

def load(ds, region, ti=None, **kwargs):
    '''Loads a day.'''
    # a comment that stays
    if kwargs["params"]["skip"]:
        raise AirflowSkipException("nothing to do")
    rows = ti.xcom_pull(task_ids="extract")
    return [ds, region, rows, kwargs["data_interval_end"].isoformat(), f"{{kwargs['ds_nodash']}}"]

with DAG("example", schedule="@daily", catchup=False, params={{"skip": False}}):
    extract = PythonOperator(task_id="extract", python_callable=lambda: 5)
    extract >> PythonOperator(task_id="load", python_callable=load, op_kwargs={{"region": "{{{{ params.skip }}}}"}})
"""
    )
    assert made.order == {"extract": (), "load": ("extract",)}
    found = made.run("load", params={"skip": False}, results={"extract": 5})
    assert found == ["2024-05-01", False, 5, "2024-05-02T00:00:00+00:00", "20240501"]
    with pytest.raises(TaskSkipped, match="nothing to do"):
        made.run("load", params={"skip": True})
    assert "# a comment that stays" in made.text and made.remarks == []


def test_what_ctx_has_otherwise_is_said(drafted: Draft) -> None:
    """A result of another DAG or run, and what only pendulum's instants can."""
    made = drafted(
        f"""{IMPORTS}
def load(logical_date, ti, prev_ds_nodash=None, **kwargs):
    ti.xcom_pull("a", "other_dag")
    ti.xcom_pull(task_ids="a", include_prior_dates=True)
    kwargs["data_interval_end"].in_timezone("Europe/Berlin")
    ti.execution_date.isoformat()
    return logical_date.add(days=1), logical_date.year

with DAG("example", schedule="@daily", catchup=False):
    PythonOperator(task_id="load", python_callable=load)
    BashOperator(task_id="show", bash_command="echo {{{{ ti.xcom_pull(task_ids='a', dag_id='other_dag') }}}}")
"""
    )
    assert set(made.remarks) == {
        "xcom_pull with dag_id", "xcom_pull with include_prior_dates", "`.in_timezone` of pendulum", "`.add` of pendulum",
        "`prev_ds_nodash` of the context", "`{{ ti.xcom_pull(task_ids='a', dag_id='other_dag') }}` in a template",
    }  # fmt: skip


def test_a_template_that_an_f_string_makes_is_filled_in(drafted: Draft) -> None:
    made = drafted(
        file_of(
            """
def report(**given):
    return given["text"], given["path"]

for name in ("a", "b"):
    PythonOperator(
        task_id=f"tell_{name}",
        python_callable=report,
        op_kwargs={"text": f"{name} of {{{{ ds }}}}: {{{{ params.x }}}}", "path": f"/{name}/{{{{ ds_nodash }}}}"},
    )
    BashOperator(task_id=f"show_{name}", bash_command=f"test {name}-{{{{ ds }}}} = {name}-2024-05-01")
    BashOperator(task_id=f"safe_{name}", bash_command=f"test {name}{{{{ params.x }}}} = '{name};exit 1'")
BashOperator(task_id="odd", bash_command=f"echo {{{{ ti.xcom_pull('{name}') }}}}")

@task_group(default_args={"retries": 2})
def group():
    EmptyOperator(task_id="in_group")

group()
"""
        )
    )
    assert made.run("tell_b", params={"x": 5}) == ("b of 2024-05-01: 5", "/b/20240501")
    made.run("show_a")
    made.run("safe_a", params={"x": ";exit 1"})
    assert set(made.remarks) >= {"a template that an f-string completes", "default_args of a task group"}


def test_a_function_without_a_name_takes_its_context_from_ctx(drafted: Draft) -> None:
    made = drafted(
        file_of(
            """
PythonOperator(task_id="named", python_callable=lambda ds, n: (ds, n), op_kwargs={"n": 2})
PythonOperator(task_id="all", python_callable=lambda **context: context["logical_date"].day)
PythonOperator(task_id="pull", python_callable=lambda ti: ti.xcom_pull("a"))
"""
        )
    )
    assert (made.run("named"), made.run("all")) == (("2024-05-01", 2), 1)
    assert made.remarks == ["`context`, the whole context", "`ti` of the context"]


def test_a_file_may_begin_with_a_byte_order_mark(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_bytes(b"\xef\xbb\xbf" + file_of('EmptyOperator(task_id="a")').encode())
    [converted] = convert(tmp_path, translate)
    assert converted.error is None and converted.has_dags


def test_taskflow_passes_results(drafted: Draft) -> None:
    made = drafted(
        f"""{IMPORTS}
@dag(schedule="@daily", start_date=datetime(2024, 5, 1), catchup=False)
def shop(region: str = "eu"):
    "The shop."

    @task(retries=3)
    def extract(day, logical_date=None):
        return {{"day": day, "at": logical_date.isoformat()}}

    @task
    def add(x, y=1):
        return x + y

    @task(multiple_outputs=True)
    def total(data, numbers):
        "Sums up."
        return {{"sum": sum(numbers), "day": data["day"]}}

    data = extract(region)
    one, two = add(1), add(2, y=5)
    three = add.override(task_id="third", retries=1)(3)
    print_it = BashOperator(task_id="show", bash_command="true")
    total(data, [one, two, three]) >> print_it

shop()
"""
    )
    spec = made.dag.spec
    assert (spec.description, spec.params) == ("The shop.", {"region": "eu"})
    assert made.order == {
        "extract": (), "add": (), "add__1": (), "third": (), "total": ("extract", "add", "add__1", "third"), "show": ("total",)
    }  # fmt: skip
    assert (spec.task("extract").retries, spec.task("third").retries) == (3, 1)
    assert made.run("extract", params={"region": "us"}) == {"day": "us", "at": "2024-05-01T00:00:00+00:00"}
    assert (made.run("add"), made.run("add__1"), made.run("third")) == (2, 7, 4)
    results = {"extract": {"day": "us"}, "add": 2, "add__1": 7, "third": 4}
    assert made.run("total", results=results) == {"sum": 13, "day": "us"}
    assert made.remarks == []


def test_tasks_of_a_loop_keep_their_own_values(drafted: Draft) -> None:
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


def test_a_branch_skips_what_it_has_not_chosen(drafted: Draft) -> None:
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


def test_a_branch_may_choose_a_task_group(drafted: Draft) -> None:
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


def test_a_command_skips_with_the_exit_codes_that_it_names(drafted: Draft) -> None:
    made = drafted(
        file_of(
            """
one = BashOperator(task_id="one", bash_command="exit 3", skip_on_exit_code=3)
some = BashOperator(task_id="some", bash_command="exit 4", skip_on_exit_code=[3, 4])
usual = BashOperator(task_id="usual", bash_command="echo 7; exit 99")
none = BashOperator(task_id="none", bash_command="exit 99", skip_on_exit_code=None)
other = BashOperator(task_id="other", bash_command="exit 5", skip_on_exit_code=[3, 4])
take = PythonOperator(task_id="take", python_callable=print, op_args=[some.output, usual.output])
"""
        )
    )
    for task_id, code in (("one", 3), ("some", 4), ("usual", 99)):
        with pytest.raises(TaskSkipped, match=f"exit code {code}"):
            made.run(task_id)
    for task_id in ("none", "other"):
        with pytest.raises(subprocess.CalledProcessError):
            made.run(task_id)


def test_short_circuit_and_latest_only(drafted: Draft) -> None:
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


def test_a_task_group_may_be_given_a_part_of_a_result(drafted: Draft) -> None:
    made = drafted(
        file_of(
            """
@task
def extract():
    return {"a": {"b": 5}}

@task_group
def outer(part, whole):
    @task
    def double(part, whole):
        return 2 * part, whole

    @task_group
    def inner(same):
        @task
        def triple(same):
            return 3 * same

        triple(same)

    double(part, whole)
    inner(part)

data = extract()
outer(data["a"]["b"], data)
"""
        )
    )
    assert made.order == {"extract": (), "outer.double": ("extract",), "outer.inner.triple": ("extract",)}
    results = {"extract": {"a": {"b": 5}}}
    assert made.run("outer.double", results=results) == (10, {"a": {"b": 5}})
    assert made.run("outer.inner.triple", results=results) == 15


def test_whatever_takes_a_result_of_a_task_comes_after_it(drafted: Draft) -> None:
    """Also operators without an equal, arguments that nothing here reads, and operators that are mapped."""
    made = drafted(
        file_of(
            """
@task
def files():
    return ["a", "b"]

@task
def render(x):
    return {"subject": x}

@task
def name(x):
    return x

found, mail = files(), render("x")
loads = BashOperator.partial(task_id="loads", retries=2).expand(bash_command=found)
EmailOperator(task_id="mail", subject=mail["subject"], html_content=name("y"))
SQLExecuteQueryOperator(task_id="sql", sql="SELECT 1", parameters=found.output)
EmptyOperator(task_id="done") << loads
"""
        )
        + "\nfrom airflow.operators.email import EmailOperator\n"
    )
    assert {one: set(up) for one, up in made.order.items() if up} == {
        "loads": {"files"}, "mail": {"render", "name"}, "sql": {"files"}, "done": {"loads"},
    }  # fmt: skip
    assert "BashOperator.expand has no equal" in made.remarks


def test_a_task_that_is_mapped_over_what_another_returns_is_a_mapped_task(drafted: Draft) -> None:
    made = drafted(
        file_of(
            """
@task(retries=1)
def find():
    return ["/in/a.csv", "/in/b.csv"]

@task
def place():
    return "out"

@task(max_active_tis_per_dag=2)
def load(path, to, factor):
    return len(path) * factor, to

@task
def check(loaded):
    return loaded[0]

@task
def report(loaded, checked):
    return [loaded, checked]

with TaskGroup("files"):
    loaded = load.partial(to=place(), factor=2).expand(path=find())
checked = check.expand(loaded=loaded)
report(loaded, checked) >> EmptyOperator(task_id="done")
"""
        )
    )
    spec = made.dag.spec
    assert made.remarks == [] and made.order == {
        "files.find": (), "files.place": (), "files.load_values": ("files.find",),
        "files.load": ("files.load_values", "files.place"), "check": ("files.load",), "report": ("files.load", "check"),
        "done": ("report",),
    }  # fmt: skip
    assert (spec.task("files.load").over_result_of, spec.task("files.load").max_active_tis) == ("files.load_values", 2)
    assert spec.task("check").over_result_of == "files.load"
    values = made.run("files.load_values", results={"files.find": ["/in/a.csv", "/in/b.csv"]})
    assert values == {"0": "/in/a.csv", "1": "/in/b.csv"}
    assert made.run("files.load", mapped_value="/in/a.csv", results={"files.place": "out"}) == (18, "out")
    assert made.run("check", mapped_value=[18, "out"]) == 18
    assert made.run("report", results={"files.load": {"0": [18, "out"]}, "check": {"0": 18}}) == [[[18, "out"]], [18]]


def test_what_is_mapped_over_mappings_gets_them_as_arguments(drafted: Draft) -> None:
    made = drafted(
        file_of(
            """
@task
def find():
    return [{"a": 1, "b": 2}]

@task
def add(a, b, **kwargs):
    return a + b, kwargs["ds"]

@task
def add_values(a):
    return a

add_values.expand(**{"a": find()})
add.expand_kwargs(find())
"""
        )
    )
    assert made.dag.spec.task("add").over_result_of == "add_values_", "the other id is a task's"
    assert made.dag.spec.task("add_values").over_result_of == "add_values_values"
    assert made.run("add", mapped_value={"a": 1, "b": 2}) == (3, "2024-05-01")


@pytest.mark.parametrize(
    "mapped",
    [
        "add.expand(x=find(), y=[1, 2])",
        "add.partial(y=1).expand(x=find()['a'])",
        "add.partial(y=1).expand(x=[find(), 2])",
        "[add.partial(y=n).expand(x=find()) for n in (1, 2)]",
        "EmptyOperator(task_id='done', doc='{{ ti.xcom_pull(\"add\") }}') << add.partial(y=1).expand(x=find())",
    ],
)
def test_what_is_mapped_otherwise_is_one_task_with_a_loop(drafted: Draft, mapped: str) -> None:
    body = f"""
@task
def find():
    return [1, 2]

@task
def add(x, y):
    return x + y

{mapped}
"""
    made = drafted(file_of(body))
    assert "the mapped task add" in made.remarks
    assert not any(task.over_result_of for task in made.dag.spec.tasks)


def test_a_chain_of_tasks_whose_number_is_not_known(drafted: Draft) -> None:
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


def test_ids_of_task_groups_that_are_known_when_the_file_runs(drafted: Draft) -> None:
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


def test_setups_and_teardowns_are_plain_tasks(drafted: Draft) -> None:
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


def test_what_a_short_circuit_skips_whatever_its_rule_is_said(drafted: Draft) -> None:
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


def test_a_retry_waits_as_long_as_in_airflow(drafted: Draft) -> None:
    text = file_of(
        'EmptyOperator(task_id="a", retries=2)\nEmptyOperator(task_id="b", retries=2, retry_delay=timedelta(seconds=7))'
    )
    spec = drafted(text).dag.spec
    assert [spec.task(one).retry_delay for one in "ab"] == [300, 7]
    args = 'schedule=None, start_date=datetime(2024, 5, 1), default_args={"retries": 1}'
    spec = drafted(file_of('EmptyOperator(task_id="a")', args)).dag.spec
    assert spec.task("a").retry_delay == 300


def test_a_dag_that_a_function_makes_has_what_it_is_given(drafted: Draft) -> None:
    made = drafted(
        f"""{IMPORTS}
CONF = {{"sales": {{"cron": "@daily"}}, "crm": {{"cron": "0 3 * * *"}}}}

def make(name, conf):
    @dag(dag_id=name, schedule=conf["cron"], start_date=datetime(2024, 5, 1), catchup=False)
    def load():
        EmptyOperator(task_id="a")
    return load()

for name, conf in CONF.items():
    globals()[name] = make(name, conf)
"""
    )
    assert [(one.dag_id, one.spec.schedule) for one in made.dags] == [("sales", "@daily"), ("crm", "0 3 * * *")]
    assert made.remarks == []


def test_a_value_is_quoted_by_where_it_stands_in_a_command(drafted: Draft) -> None:
    commands = {
        "outside": "echo 'a b' {{ ds }} {{ params.x }}",
        "alone": "echo '{{ params.x }}'",
        "between": "echo 'a'{{ params.x }}'b'",
        "within": 'echo "it is {{ ds }} {{ params.x }}"',
    }
    body = "\n".join(f"BashOperator(task_id={name!r}, bash_command={command!r})" for name, command in commands.items())
    made = drafted(file_of(body, 'schedule=None, start_date=datetime(2024, 5, 1), params={"x": "c d"}'))
    assert made.remarks == ['`ctx.params["x"]` is quoted for the shell, within other quotes']
    assert made.text.index("TODO") < made.text.index("def within") and made.text.index("TODO") > made.text.index(
        "def between"
    )
    assert "echo 'a'{shlex.quote" in made.text and "}'b'" in made.text


def test_settings_from_a_dict_are_taken_or_named(drafted: Draft) -> None:
    made = drafted(
        f"""{IMPORTS}
COMMON = {{"retries": 4, "trigger_rule": "all_done"}}

def make(task_id, **more):
    return EmptyOperator(task_id=task_id, **more)

with DAG("one", **{{"schedule": None, "start_date": datetime(2024, 5, 1)}}):
    @task(**COMMON)
    def a():
        pass
    a() >> EmptyOperator(task_id="b", **dict(retries=2)) >> make("c", retries=7)
"""
    )
    tasks = [made.dag.spec.task(one) for one in "abc"]
    assert [(one.retries, one.trigger_rule) for one in tasks] == [
        (4, "all_done"),
        (2, "all_success"),
        (0, "all_success"),
    ]
    assert made.remarks == ["`more`"]


def test_a_function_that_returns_a_task_group(drafted: Draft) -> None:
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


def test_one_of_a_dict_of_tasks_gives_its_result(drafted: Draft) -> None:
    made = drafted(
        file_of(
            """
@task
def number(n):
    return n

@task
def total(a, b):
    return a + b

made = {}
for n in (1, 2):
    made[n] = number(n)
total(made[1], made[2])
"""
        )
    )
    assert made.order == {"number__1": (), "number__2": (), "total": ("number__1", "number__2")}
    assert made.run("total", results={"number__1": 3, "number__2": 4}) == 7


def test_task_groups(drafted: Draft) -> None:
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


def test_bash_commands_run(drafted: Draft, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    made = drafted(
        file_of(
            f"""
show = BashOperator(
    task_id="show", bash_command="echo {{{{ ds }}}} '{{{{ params.name }}}}' $MORE; pwd", env={{"MORE": "{{{{ run_id }}}}"}},
    cwd="{tmp_path}",
)
skip = BashOperator(task_id="skip", bash_command="exit 99")
count = BashOperator(task_id="count", bash_command="echo one; echo 2")
wrong = BashOperator(task_id="wrong", bash_command="exit 3")

@task.bash
def command(n):
    return f"echo {{n}}"

command(count.output)
""",
            'schedule=None, params={"name": "x; echo stolen"}',
        )
    )
    made.run("show", params={"name": "x; echo stolen"})
    assert capfd.readouterr().out.splitlines() == ["2024-05-01 x; echo stolen scheduled__1", str(tmp_path)]
    with pytest.raises(TaskSkipped, match="99"):
        made.run("skip")
    with pytest.raises(Exception, match="exit status 3"):
        made.run("wrong")
    assert made.run("count") == "2"
    capfd.readouterr()
    made.run("command", results={"count": "2"})
    assert capfd.readouterr().out == "2\n" and made.order["command"] == ("count",)


def test_sql_operators_become_spark_sql(drafted: Draft) -> None:
    made = drafted(
        file_of(
            '''
SQLExecuteQueryOperator(
    task_id="totals", conn_id="pg", retries=1,
    sql="""
    INSERT INTO {{ params.target }}
    SELECT * FROM orders WHERE day = '{{ ds }}' AND path = 's3://in/{{ ds_nodash }}/x' -- of {{ ds }}
    AND at < '{{ data_interval_end }}' AND n > {{ params.n }}""",
)
PostgresOperator(task_id="two", sql=["DELETE FROM a;", "DELETE FROM b"])
SparkSqlOperator(task_id="odd", sql="SELECT * FROM t_{{ ds_nodash }}")
''',
            'schedule="@daily", catchup=False, params={"target": "t", "n": 1}',
        )
    )
    spec = made.dag.spec
    assert {task.kind for task in spec.tasks} == {"sql"}
    statement = " ".join((spec.task("totals").sql or "").split())
    assert statement == (
        "INSERT INTO IDENTIFIER(:target) SELECT * FROM orders WHERE day = date_format(:logical_date, 'yyyy-MM-dd') AND path = "
        "concat('s3://in/', date_format(:logical_date, 'yyyyMMdd'), '/x') -- of ds AND at < :interval_end AND n > :n"
    )
    assert spec.task("two").sql == "DELETE FROM a;\nDELETE FROM b" and spec.task("totals").retries == 1
    assert spec.task("odd").sql == "{% raw %}SELECT * FROM t_{{ ds_nodash }}{% endraw %}", (
        "Spark refuses it, as the remark says"
    )
    assert made.remarks == [
        "SQLExecuteQueryOperator becomes Spark SQL", "PostgresOperator becomes Spark SQL", "`{{ ds_nodash }}` in a template"
    ]  # fmt: skip


def test_a_template_in_a_typed_literal_of_sql_is_a_cast() -> None:
    """Spark takes nothing but a literal after DATE."""
    assert as_sql("WHERE d >= DATE '{{ ds }}' AND at < timestamp '{{ params.until }}' AND e > DATE '2024-05-01'") == (
        "WHERE d >= DATE(date_format(:logical_date, 'yyyy-MM-dd')) AND at < timestamp(:until) "
        "AND e > DATE '2024-05-01'", [],
    )  # fmt: skip


def test_sensors_wait_or_are_named(drafted: Draft) -> None:
    made = drafted(
        file_of(
            """
a = FileSensor(task_id="a", filepath="/in/{{ ds }}/_SUCCESS", timeout=60, soft_fail=True)
b = SqlSensor(task_id="b", conn_id="pg", sql="SELECT count(*) > 0 FROM t WHERE day = '{{ ds }}'")
c = ExternalTaskSensor(task_id="c", external_dag_id="other", external_task_id="load")
""",
            'schedule="@daily", catchup=False',
        )
    )
    a, b, c = (made.dag.spec.task(name) for name in "abc")
    [wait] = a.waits_for
    assert (wait.file, a.wait_limit, a.after_wait_limit) == ("/in/{interval_start:%Y-%m-%d}/_SUCCESS", 60, "skip")  # type: ignore[union-attr]
    assert b.waits_for[0].condition.endswith("date_format(:logical_date, 'yyyy-MM-dd')")  # type: ignore[union-attr]
    assert c.waits_for == () and "ExternalTaskSensor has no equal" in made.remarks
    with pytest.raises(NotImplementedError, match="ExternalTaskSensor"):
        made.run("c")


def test_a_part_of_a_result_keeps_its_name(drafted: Draft) -> None:
    made = drafted(
        file_of(
            """
create = PythonOperator(task_id="create", python_callable=lambda: {"id": 5})
id_ = create.output["id"]
settings = {"id": id_, "n": 1}
PythonOperator(task_id="use", python_callable=lambda x, y: [x, y], op_args=[id_], op_kwargs={"y": settings})
"""
        )
    )
    assert made.order == {"create": (), "use": ("create",)}
    assert made.run("use", results={"create": {"id": 5}}) == [5, {"id": 5, "n": 1}]


def test_spark_submit_is_a_command(drafted: Draft, monkeypatch: pytest.MonkeyPatch) -> None:
    made = drafted(
        file_of(
            """
SparkSubmitOperator(
    task_id="job", application="/jobs/clean.py", application_args=["--day", "{{ ds }}", 3], conf={"spark.a": "1"}, name="clean",
    executor_memory="2g",
)
"""
        )
    )
    ran: list[list[str]] = []
    monkeypatch.setattr("subprocess.run", lambda words, check: ran.append(words))
    made.run("job")
    assert ran == [
        ["spark-submit", "--conf", "spark.a=1", "--name", "clean", "--executor-memory", "2g", "/jobs/clean.py", "--day",
         "2024-05-01", "3"]
    ]  # fmt: skip


def test_what_has_no_equal_is_remarked_where_it_stands(drafted: Draft) -> None:
    text = file_of(
        """
from airflow.providers.http.operators.http import HttpOperator
from airflow.models import Variable

def use():
    return Variable.get("x")

call = HttpOperator(task_id="call", endpoint="/x", on_failure_callback=print, sla=timedelta(hours=1), email="a@b", queue="q")
PythonOperator(task_id="use", python_callable=use)

@task
def add(x):
    return x + 1

add.expand(x=[1, 2])
"""
    )
    made = drafted(text)
    lines = text.splitlines()
    where = {remark.what: lines[remark.line - 1] for remark in made.draft.remarks if remark.line}
    assert (
        "HttpOperator(" in where["HttpOperator has no equal"]
        and "Variable.get" in where["airflow.models.Variable is used"]
    )
    assert {"on_failure_callback=print", 'email="a@b"', 'queue="q"', "the mapped task add"} < where.keys()
    for remark in made.draft.remarks:
        assert remark.todo("Airflow") in made.text
    with pytest.raises(NotImplementedError, match="HttpOperator of Airflow"):
        made.run("call")
    assert made.run("add") == [2, 3]


def test_nothing_of_a_file_is_executed() -> None:
    draft = translate(f"{IMPORTS}\nraise SystemExit('executed')\n", "example.py")
    assert [remark.what for remark in draft.remarks] == ["no DAG was found"]


def test_names_that_ours_need_are_changed(drafted: Draft) -> None:
    made = drafted(
        f"""{IMPORTS}
sql = "SELECT 1"
dag = DAG("example", schedule=None)
file = BashOperator(task_id="file", bash_command="true", dag=dag)
for sql_of in [sql]:
    SparkSqlOperator(task_id="sql", sql=sql, dag=dag) >> file
"""
    )
    assert made.order == {"file": ("sql",), "sql": ()}


def test_dags_made_in_a_loop_and_by_a_function(drafted: Draft) -> None:
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


def shipped_examples() -> list[Path]:
    """Airflow's own examples: of the folder that BFM_AIRFLOW_EXAMPLES names, and of installed packages."""
    found: list[Path] = []
    if folder := os.environ.get("BFM_AIRFLOW_EXAMPLES"):
        found += sorted(Path(folder).rglob("example_dags/*.py"))
    for package in ("apache-airflow", "apache-airflow-core", "apache-airflow-providers-standard"):
        try:
            files = importlib.metadata.files(package) or []
        except importlib.metadata.PackageNotFoundError:
            continue
        found += [Path(str(one.locate())) for one in files if one.match("example_dags/*.py")]
    return [path for path in found if path.name != "__init__.py"]


@pytest.mark.skipif(not shipped_examples(), reason="needs Airflow's examples: BFM_AIRFLOW_EXAMPLES=FOLDER")
def test_every_example_of_airflow_becomes_a_draft_that_loads(tmp_path: Path) -> None:
    for number, path in enumerate(shipped_examples()):
        draft = translate(path.read_text(encoding="utf-8"), path.name)
        target = tmp_path / str(number) / path.name
        target.parent.mkdir()
        target.write_text(write(draft))
        loaded = load_file(target)
        assert bool(loaded) == bool(draft.dags) or "is not installed here" in str(draft.remarks), path


def test_the_order_to_a_task_group_with_a_loop_and_what_it_is_in_airflow_is_said(drafted: Draft) -> None:
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


def test_a_template_in_what_a_bash_function_returns_is_said(drafted: Draft) -> None:
    text = """
@task.bash
def rendered():
    return "echo {{ ds }}"

@task.bash
def plain():
    return "echo done"

rendered() >> plain()
"""
    assert drafted(file_of(text)).remarks == ["a template in what rendered returns"]


def test_a_file_has_the_same_draft_in_every_process() -> None:
    """Of a statement with several names of Airflow the remark is about the same one, however Python orders its sets."""
    code = """
from backfill_manager.importers.airflow.translate import translate
from backfill_manager.importers.writer import write
text = '''
from airflow import DAG
from airflow.hooks.base import BaseHook
from airflow.models import Variable
from airflow.utils.email import send_email
place = Variable.get("a") + BaseHook.get_connection("b").host + send_email("c")
with DAG("example", schedule=None): ...
'''
print(write(translate(text, "example.py")))
"""
    drafts = {
        subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, "PYTHONHASHSEED": str(seed)}, capture_output=True, text=True, check=True,
        ).stdout
        for seed in range(4)
    }  # fmt: skip
    [draft] = drafts
    assert "airflow.hooks.base.BaseHook is used" in draft
