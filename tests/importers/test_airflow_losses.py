"""What a DAG file of Airflow says is in its draft, or a remark says that it is not: nothing is lost in silence."""

from __future__ import annotations

from datetime import datetime, timezone

import pytest
from support.airflow_files import IMPORTS, file_of
from support.drafted import DraftOf

from backfill_manager.execution.tasks.spark_executor_runtime import TaskSkipped


def test_dates_are_instants_of_their_own_time_zones(drafted: DraftOf) -> None:
    """The timetable's zone is the DAG's, else that of start_date; a date without one is of UTC."""
    more = "from zoneinfo import ZoneInfo\nfrom airflow.timetables.interval import CronDataIntervalTimetable as Cron\n"
    made = drafted(
        f"""{more}{IMPORTS}
ZONE = "Asia/Tokyo"
TOKYO = pendulum.timezone(ZONE)
with DAG("a", schedule=Cron("0 5 * * *", "Europe/Berlin"), start_date=datetime(2024, 1, 1), catchup=False):
    EmptyOperator(task_id="a")
FEBRUARY = datetime(2024, 2, 1)
FEBRUARY_OF_TOKYO = datetime(2024, 2, 1, tzinfo=ZoneInfo("Asia/Tokyo"))
with DAG("b", schedule="@daily", start_date=pendulum.datetime(2024, 1, 1, tz=TOKYO), end_date=FEBRUARY, catchup=False):
    EmptyOperator(task_id="a")
with DAG("c", schedule="@daily", start_date=datetime(2024, 1, 1), end_date=FEBRUARY_OF_TOKYO, catchup=False):
    EmptyOperator(task_id="a")
with DAG("d", schedule="@daily", start_date=pendulum.parse("2024-01-01T00:00:00+02:00"), catchup=False):
    EmptyOperator(task_id="a")
with DAG("e", schedule="@daily", start_date=pendulum.datetime(2024, 1, 1, tz="Mars/Base"), catchup=False):
    EmptyOperator(task_id="a")
"""
    )
    utc = timezone.utc
    assert [(dag.spec.timezone, dag.spec.start_date, dag.spec.end_date) for dag in made.dags] == [
        ("Europe/Berlin", datetime(2024, 1, 1, tzinfo=utc), None),
        ("Asia/Tokyo", datetime(2023, 12, 31, 15, tzinfo=utc), datetime(2024, 2, 1, tzinfo=utc)),
        ("UTC", datetime(2024, 1, 1, tzinfo=utc), datetime(2024, 1, 31, 15, tzinfo=utc)),
        ("UTC", datetime(2023, 12, 31, 22, tzinfo=utc), None),
        ("UTC", datetime(2024, 1, 1, tzinfo=utc), None),
    ]
    assert made.remarks == ["the time zone +02:00", 'the time zone "Mars/Base"']


def test_settings_of_dicts_that_are_merged_are_taken(drafted: DraftOf) -> None:
    made = drafted(
        f"""{IMPORTS}
BASE = {{"retries": 1, "pool_slots": 2}}
MERGED = BASE | {{"retries": 2}}
CALLED = dict(BASE, retries=3)
STARRED = dict(retries=4, **{{"priority_weight": 5}})
UNKNOWN = {{str(1): 1}}
with DAG("a", schedule=None, default_args=MERGED):
    EmptyOperator(task_id="a")
with DAG("b", schedule=None, default_args=CALLED):
    EmptyOperator(task_id="a")
with DAG("c", schedule=None, default_args=STARRED):
    EmptyOperator(task_id="a")
    EmptyOperator(task_id="b", **UNKNOWN)
"""
    )
    tasks = [one.spec.task("a") for one in made.dags]
    assert [(one.retries, one.weight, one.priority) for one in tasks] == [(2, 2, 0), (3, 2, 0), (4, 1, 5)]
    assert made.remarks == ["`{str(1): 1}`"]


def test_a_schedule_of_airflow_3_has_another_logical_date(drafted: DraftOf) -> None:
    text = """
from airflow.sdk import DAG
from airflow.providers.standard.operators.empty import EmptyOperator
with DAG("daily", schedule="@daily"):
    EmptyOperator(task_id="a")
with DAG("by_hand", schedule=None):
    EmptyOperator(task_id="a")
"""
    assert drafted(text).remarks == ['schedule="@daily" of Airflow 3']


def test_a_schedule_of_the_environment_stays(drafted: DraftOf, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SCHEDULE", "@weekly")
    text = file_of('EmptyOperator(task_id="a")', 'schedule=os.getenv("SCHEDULE"), catchup=False')
    made = drafted(f"import os\n{text}")
    assert (made.dag.spec.schedule, made.remarks) == ("@weekly", [])


def test_retries_wait_no_shorter_than_in_airflow(drafted: DraftOf) -> None:
    """Our default is at most an hour; Airflow's is a day, for delays that grow."""
    made = drafted(
        file_of(
            """
EmptyOperator(task_id="plain", retries=1, retry_delay=timedelta(minutes=5))
EmptyOperator(task_id="long", retries=1, retry_delay=timedelta(hours=2))
EmptyOperator(task_id="days", retries=1, retry_delay=timedelta(days=3))
EmptyOperator(task_id="grows", retries=9, retry_exponential_backoff=True)
EmptyOperator(task_id="limited", retries=9, retry_exponential_backoff=True, max_retry_delay=timedelta(minutes=10))
"""
        )
    )
    assert {task.task_id: task.max_retry_delay for task in made.dag.spec.tasks} == {
        "plain": 3600, "long": 86400, "days": 259200, "grows": 86400, "limited": 600
    }  # fmt: skip


def test_dates_of_a_task_are_said(drafted: DraftOf) -> None:
    text = file_of('EmptyOperator(task_id="a", start_date=datetime(2025, 1, 1), end_date=None)')
    assert drafted(text).remarks == ["start_date of a task"]


def test_a_param_that_may_be_null_beside_its_default_is_said(drafted: DraftOf) -> None:
    params = '{"a": Param(1, type=["null", "integer"]), "b": Param(None, type=["null", "string"])}'
    made = drafted(file_of('EmptyOperator(task_id="a")', f"schedule=None, params={params}"))
    assert made.remarks == ["the param a may be null"] and made.dag.spec.params == {"a": 1, "b": None}


def test_all_settings_of_a_spark_submit_are_in_its_command(drafted: DraftOf, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also those that a variable holds, with the templates in it."""
    made = drafted(
        f"""{IMPORTS}
CONF = {{"spark.a": "1", "spark.day": "{{{{ ds }}}}"}}
ARGS = ["--day", "{{{{ ds }}}}"]
MORE = dict(x=1)
with DAG("example", schedule=None):
    SparkSubmitOperator(
        task_id="a", application="/jobs/a.py", conf=CONF, application_args=ARGS, env_vars={{"X": "1"}}, proxy_user="me",
        spark_binary="spark3-submit",
    )
    SparkSubmitOperator(task_id="b", application="/jobs/b.py", conf={{**MORE, "spark.b": "2"}})
"""
    )
    ran: list[tuple[list[str], str | None]] = []
    monkeypatch.setattr("subprocess.run", lambda words, check, env={}: ran.append((words, env.get("X"))))
    made.run("a")
    made.run("b")
    assert ran == [
        (["spark3-submit", "--conf", "spark.a=1", "--conf", "spark.day=2024-05-01", "--proxy-user", "me", "/jobs/a.py", "--day",
          "2024-05-01"], "1"),
        (["spark-submit", "--conf", "x=1", "--conf", "spark.b=2", "/jobs/b.py"], None),
    ]  # fmt: skip


def test_templates_that_a_variable_holds_are_rendered(drafted: DraftOf, capfd: pytest.CaptureFixture[str]) -> None:
    made = drafted(
        f"""{IMPORTS}
DAY = "{{{{ ds }}}}"
COMMAND = f"echo {{DAY}}"
VALUES = {{"day": DAY, "n": 3}}

def give(**values):
    return values["day"], values.get("n")

with DAG("example", schedule=None):
    PythonOperator(task_id="dict", python_callable=give, op_kwargs=VALUES)
    PythonOperator(task_id="call", python_callable=give, op_kwargs=dict(day="on " + DAY))
    BashOperator(task_id="one", bash_command=COMMAND)
    BashOperator(task_id="two", bash_command=f"echo {{DAY}} $X", env={{"X": DAY}})
    BashOperator(task_id="three", bash_command="echo %s" % DAY)
"""
    )
    assert made.run("dict") == ("2024-05-01", 3) and made.run("call") == ("on 2024-05-01", None)
    for task_id in ("one", "two", "three"):
        made.run(task_id)
    assert capfd.readouterr().out.split() == ["2024-05-01"] * 4


def test_a_task_with_a_template_without_an_equal_fails_until_it_is_written(drafted: DraftOf) -> None:
    """With the template as a text it would succeed, and read or write something else."""
    made = drafted(
        file_of(
            """
def load(day, prev_ds=None, **kwargs):
    return prev_ds, day

def unused(prev_ds=None):
    return 1

BashOperator(task_id="shell", bash_command="rm -rf /data/{{ prev_ds }}")
PythonOperator(task_id="argument", python_callable=load, op_kwargs={"day": "{{ ds[:7] }}", "prev_ds": 1})
PythonOperator(task_id="context", python_callable=lambda: 1)
SparkSqlOperator(task_id="statement", sql="INSERT INTO t SELECT '{{ ds[:7] }}'")
PythonOperator(task_id="unused", python_callable=unused)
BashOperator(task_id="fine", bash_command='true "{{ params.x }}"', params={"x": 1})
"""
        )
    )
    for task_id in ("shell", "argument"):
        with pytest.raises(NotImplementedError, match="a template of Airflow: write it as its TODO says"):
            made.run(task_id)
    assert (made.dag.spec.task("statement").sql or "").startswith("`a template of Airflow: ")
    assert (made.run("context"), made.run("unused"), made.run("fine", params={"x": 1})) == (1, 1, None)
    assert made.remarks.count("`{{ prev_ds }}` in a template") == 1


def test_a_function_with_a_value_of_the_context_without_an_equal_fails_until_it_is_written(drafted: DraftOf) -> None:
    """None would be a value: many take all data if there was no run before."""
    made = drafted(
        file_of(
            """
def load(prev_data_interval_end_success=None):
    return prev_data_interval_end_success or "everything"

PythonOperator(task_id="load", python_callable=load)
"""
        )
    )
    with pytest.raises(NotImplementedError, match="prev_data_interval_end_success of Airflow: write it with ctx"):
        made.run("load")


def test_arguments_of_dicts_that_are_merged_are_no_context(drafted: DraftOf) -> None:
    made = drafted(
        file_of(
            """
COMMON = {"ds": "{{ ds_nodash }}", "prev_ds": "{{ yesterday_ds }}"}

def load(name, ds, prev_ds, run_id):
    return name, ds, prev_ds, run_id

PythonOperator(task_id="a", python_callable=load, op_kwargs={**COMMON, "name": "a"})
PythonOperator(task_id="b", python_callable=load, op_kwargs=dict(name="b", **COMMON))
"""
        )
    )
    assert made.run("a") == ("a", "20240501", "2024-04-30", "scheduled__1") and made.run("b")[0] == "b"
    assert made.remarks == []


def test_a_dag_that_runs_once_has_nothing_to_make_up_for(drafted: DraftOf) -> None:
    assert drafted(file_of('EmptyOperator(task_id="a")', 'schedule="@once"')).remarks == []


def test_of_a_dict_with_something_of_airflow_the_rest_stays(
    drafted: DraftOf, capfd: pytest.CaptureFixture[str]
) -> None:
    made = drafted(
        file_of(
            """
from airflow.models import Variable

BashOperator(
    task_id="a", bash_command="echo $DAY $REGION", env={"DAY": "{{ ds }}", "REGION": Variable.get("region")}, append_env=True
)
"""
        )
    )
    assert made.remarks == ['`Variable.get("region")`']
    assert '{"DAY": f"{ctx.logical_date:%Y-%m-%d}", "REGION": None}' in made.text


def test_the_owner_of_a_dag_may_be_a_variable(drafted: DraftOf) -> None:
    made = drafted(
        f"""{IMPORTS}
from os import name as TEAM

for tenant in ["acme", "globex"]:
    with DAG(f"copy_{{tenant}}", schedule=None, default_args={{"owner": tenant}}):
        EmptyOperator(task_id="a")
with DAG("other", schedule=None, default_args={{"owner": TEAM}}):
    EmptyOperator(task_id="a")
"""
    )
    assert [one.spec.owner for one in made.dags] == ["acme", "globex", ""] and made.remarks == ["owner=TEAM"]


def test_values_are_quoted_in_commands_that_are_put_together(
    drafted: DraftOf, capfd: pytest.CaptureFixture[str]
) -> None:
    body = """
TAIL = "{{ params.x }}"
BashOperator(task_id="a", bash_command="echo " + "{{ params.x }} " + TAIL)
"""
    drafted(file_of(body)).run("a", params={"x": "1; exit 3"})
    assert capfd.readouterr().out == "1; exit 3 1; exit 3\n"


def test_dags_of_a_loop_keep_the_ids_of_their_tasks(drafted: DraftOf) -> None:
    made = drafted(
        f"""{IMPORTS}
def give(*values):
    return values

for name in ("one", "two"):
    @dag(dag_id=name, schedule=None)
    def generated():
        @task
        def first():
            return name
        @task
        def second(x):
            return [x, name]
        second(first())
        PythonOperator(task_id="third", python_callable=give, op_args=[name, *["a", "{{{{ ds }}}}"]])
    generated()
"""
    )
    assert made.remarks == [] and [one.dag_id for one in made.dags] == ["one", "two"]
    assert made.order == {"first": (), "second": ("first",), "third": ()}
    assert (made.run("second", results={"first": 1}), made.run("third")) == ([1, "one"], ("one", "a", "2024-05-01"))


def test_an_instant_in_a_text_is_written_as_in_airflow(drafted: DraftOf, capfd: pytest.CaptureFixture[str]) -> None:
    """Without a space, which would make two arguments of it."""
    command = "echo {{ data_interval_start }} {{ ts }} {{ macros.ds_add(ds, 1) }}"
    drafted(file_of(f'BashOperator(task_id="a", bash_command="{command}")')).run("a")
    assert capfd.readouterr().out == "2024-05-01T00:00:00+00:00 2024-05-01T00:00:00+00:00 2024-05-02\n"
    command = "echo {{ ts_nodash }} {{ (logical_date - macros.timedelta(days=1)).in_timezone('America/New_York') }}"
    drafted(file_of(f'BashOperator(task_id="a", bash_command="{command}")')).run("a")
    assert capfd.readouterr().out == "20240501T000000 2024-04-29T20:00:00-04:00\n"


def test_params_of_tasks_and_keys_of_conf_are_params_of_the_dag(drafted: DraftOf) -> None:
    made = drafted(
        file_of(
            """
SparkSqlOperator(task_id="a", sql="SELECT {{ params.n }}, '{{ dag_run.conf.day }}'", params={"n": 3})
SparkSqlOperator(task_id="b", sql="SELECT {{ params.n }}", params={"n": 4})
BashOperator(task_id="c", bash_command="echo {{ dag_run.conf.get('x', 'y') }} {{ params.known }}")

@task(params={"flow": 1})
def d(params=None):
    return params["flow"]

d()
""",
            'schedule=None, params={"known": 1}',
        )
    )
    assert made.dag.spec.params == {"known": 1, "n": 3, "day": None, "x": "y", "flow": 1}
    assert made.dag.spec.task("a").sql == "SELECT :n, :day"
    assert made.remarks == ["the param day of a template", "the param n of a task", "the param x of a template"]


def test_values_of_the_call_of_a_dag_are_its_params(drafted: DraftOf) -> None:
    made = drafted(
        f"""{IMPORTS}
@dag(schedule=None)
def shop(region="eu", size=1, full=False):
    EmptyOperator(task_id="a")

shop("us", full=True)
"""
    )
    assert made.dag.spec.params == {"region": "us", "size": 1, "full": True}


def test_params_in_a_function_that_makes_tasks(drafted: DraftOf) -> None:
    made = drafted(
        f"""{IMPORTS}
def make(name):
    first = SparkSqlOperator(task_id=f"a_{{name}}", sql="SELECT {{{{ params.known }}}}")
    first >> SparkSqlOperator(task_id=f"b_{{name}}", sql="SELECT {{{{ params.own }}}}", params={{"own": 1}})

with DAG("example", schedule=None, params={{"known": 1}}):
    make("x")
"""
    )
    assert made.dag.spec.task("a_x").sql == "SELECT :known"
    assert made.remarks == ["params= of a task", "SparkSqlOperator has no equal"]


def test_params_of_a_decorator_and_of_its_function_are_both_the_dags(drafted: DraftOf) -> None:
    made = drafted(
        f"""{IMPORTS}
@dag(schedule=None, params={{"a": 1, "b": 1}})
def shop(b=2):
    EmptyOperator(task_id="a")

shop()
"""
    )
    assert made.dag.spec.params == {"a": 1, "b": 2}


def test_a_statement_that_is_refused_here_is_a_task_to_be_written(drafted: DraftOf) -> None:
    made = drafted(
        file_of(
            """
PostgresOperator(task_id="a", sql="SELECT :day", parameters={"day": "{{ ds }}"})
PostgresOperator(task_id="b", sql="SELECT src:customer.name FROM t")
PostgresOperator(task_id="c", sql="SELECT 'open")
"""
        )
    )
    assert made.dag.spec.task("b").sql == "SELECT src:customer.name FROM t"
    for task_id in ("a", "c"):
        with pytest.raises(NotImplementedError, match="PostgresOperator"):
            made.run(task_id)


def test_statements_of_f_strings_keep_their_values(drafted: DraftOf) -> None:
    made = drafted(
        f"""{IMPORTS}
WHERE = "d = '{{{{ ds }}}}'"
FILE = "totals"

@dag(schedule=None)
def example(size=1):
    for table in ("a", "b"):
        statement = f"DELETE FROM {{table}} WHERE {{WHERE}} AND n = '{{table!r:>5}}'"
        first = SparkSqlOperator(task_id=f"delete_{{table}}", sql=statement)
        first >> SparkSqlOperator(task_id=f"many_{{table}}", sql=["SELECT 1", f\'\'\'SELECT "{{table}}",\n2\'\'\'])
    SparkSqlOperator(task_id="size", sql=f"SELECT {{size}}")
    SparkSqlOperator(task_id="file", sql=f"{{FILE}}.sql")
    SparkSqlOperator(task_id="completed", sql=f"SELECT {{{{{{{{ params['{{FILE}}'] }}}}}}}}")

example()
"""
    )
    spec = made.dag.spec
    assert (
        spec.task("delete_b").sql == "DELETE FROM b WHERE d = date_format(:logical_date, 'yyyy-MM-dd') AND n = '  'b''"
    )
    assert spec.task("many_a").sql == 'SELECT 1;\nSELECT "a",\n2'
    for task_id in ("size", "file", "completed"):
        with pytest.raises(NotImplementedError):
            made.run(task_id)


def test_what_a_sql_operator_does_beside_its_statement_is_said(drafted: DraftOf) -> None:
    more = "from airflow.providers.google.cloud.operators.bigquery import BigQueryInsertJobOperator\n"
    body = """
SparkSqlOperator(task_id="a", sql="SELECT 1", conf="spark.x=1", master="yarn", conn_id="c")
JOB = {"query": {"query": "SELECT 1", "useLegacySql": False, "destinationTable": {"tableId": "t"}}}
BigQueryInsertJobOperator(task_id="b", configuration=JOB)
"""
    assert drafted(more + file_of(body)).remarks == [
        "conf= of SparkSqlOperator", "master= of SparkSqlOperator", '"destinationTable" of the configuration',
        "BigQueryInsertJobOperator becomes Spark SQL",
    ]  # fmt: skip


def test_a_date_in_a_path_that_is_of_another_time_zone_is_said(drafted: DraftOf) -> None:
    body = 'FileSensor(task_id="a", filepath="/in/{{ ds }}")\nFileSensor(task_id="b", filepath="/in/x")'
    settings = 'schedule="@daily", start_date=pendulum.datetime(2024, 5, 1, tz="Asia/Tokyo"), catchup=False'
    assert drafted(file_of(body, settings)).remarks == ["a date in the path"]
    assert drafted(file_of(body)).remarks == []


def test_tasks_of_comprehensions_are_made_in_loops(drafted: DraftOf) -> None:
    made = drafted(
        file_of(
            """
by_name = {name: EmptyOperator(task_id=f"d_{name}") for name in ("a", "b")}
by_name["a"] >> by_name["b"]
[EmptyOperator(task_id=f"n_{x}{y}") for x in "ab" for y in "abc" if x != y if y != "c"] >> by_name["a"]
"""
        )
    )
    assert made.remarks == [] and {task: set(up) for task, up in made.order.items()} == {
        "d_a": {"n_ab", "n_ba"}, "d_b": {"d_a"}, "n_ab": set(), "n_ba": set()
    }  # fmt: skip


def test_a_branch_to_tasks_that_are_unpacked_skips_the_others(drafted: DraftOf) -> None:
    made = drafted(
        file_of(
            """
branch = BranchPythonOperator(task_id="branch", python_callable=lambda: "a")
a, b = (EmptyOperator(task_id=name) for name in "ab")
branch >> [a, b]
"""
        )
    )
    made.run("a", results={"branch": ["a"]})
    with pytest.raises(TaskSkipped, match="not chosen"):
        made.run("b", results={"branch": ["a"]})
    assert made.order == {"branch": (), "a": ("branch",), "b": ("branch",)} and made.remarks == []


def test_a_branch_whose_choice_is_not_known_is_said(drafted: DraftOf) -> None:
    text = """
branch = BranchPythonOperator(task_id="branch", python_callable=lambda: "a")
globals()["after"](branch)
"""
    assert drafted(file_of(text).replace("globals()", "{'after': print}")).remarks == [
        'what comes after the branch "branch" is not known'
    ]


def test_a_task_group_may_be_a_variable_before_it_has_tasks(drafted: DraftOf) -> None:
    made = drafted(
        file_of(
            """
end = EmptyOperator(task_id="end")
late = TaskGroup("late")
one = EmptyOperator(task_id="one", task_group=late)
with late:
    EmptyOperator(task_id="two") >> one
late >> end
"""
        )
    )
    assert made.order == {"end": ("late.one",), "late.one": ("late.two",), "late.two": ()} and made.remarks == []


def test_an_order_to_a_task_group_is_one_to_what_its_function_returns(drafted: DraftOf) -> None:
    """As Airflow 2.10 and 3 do it: without a return it is one to its first and last tasks."""
    made = drafted(
        file_of(
            """
start, end = EmptyOperator(task_id="start"), EmptyOperator(task_id="end")

@task
def number(n=1):
    return n

@task_group
def returns():
    return number.override(task_id="two")(number.override(task_id="one")())

@task_group
def does_not():
    number.override(task_id="four")(number.override(task_id="three")())

start >> returns() >> does_not() >> end
"""
        )
    )
    assert {task: set(up) for task, up in made.order.items()} == {
        "start": set(), "returns.one": set(), "returns.two": {"returns.one", "start"}, "does_not.three": {"returns.two"},
        "does_not.four": {"does_not.three"}, "end": {"does_not.four"},
    }  # fmt: skip


def test_a_dag_and_a_task_group_may_be_opened_together(drafted: DraftOf) -> None:
    made = drafted(
        f"""{IMPORTS}
with DAG("example", schedule=None) as dag, TaskGroup("group") as group:
    EmptyOperator(task_id="a") >> EmptyOperator(task_id="b")
    if dag.params:
        EmptyOperator(task_id="c")
"""
    )
    assert made.order == {"group.a": (), "group.b": ("group.a",)} and made.remarks == ["`dag.params`"]


def test_functions_become_tasks_without_a_decorator(drafted: DraftOf) -> None:
    made = drafted(
        f"""{IMPORTS}
def fetch(url, **kwargs):
    return url, kwargs["ds"]

def clean(page):
    return page

with DAG("example", schedule=None):
    page = task(fetch, task_id="fetch_it", retries=2)("http://a")
    more = task(clean, task_id="more").expand(page=[1, 2])
    more << task(task_id="clean_it")(clean)(page)
"""
    )
    assert made.order == {"fetch_it": (), "clean_it": ("fetch_it",), "more": ("clean_it",)}
    assert made.run("fetch_it") == ("http://a", "2024-05-01") and made.run("more") == [1, 2]


def test_a_function_of_another_file_that_makes_a_task_is_a_task_to_be_written(drafted: DraftOf) -> None:
    """And what only the arguments of such tasks need does not hinder the draft from being loaded."""
    made = drafted(
        f"""{IMPORTS}
from kubernetes.client import models as k8s
from our_company.bigquery import query_task

RESOURCES = k8s.V1ResourceRequirements(limits={{"cpu": 1}})
with DAG("example", schedule=None) as dag:
    first = query_task(task_id="first", table="x", retries=3, dag=dag)
    first >> EmptyOperator(task_id="last", executor_config=RESOURCES)
"""
    )
    assert made.order == {"first": (), "last": ("first",)} and made.dag.spec.task("first").retries == 3
    assert made.remarks == ["query_task has no equal", "executor_config=RESOURCES"]
    assert "# RESOURCES = k8s" in made.text
    with pytest.raises(NotImplementedError, match="query_task"):
        made.run("first")


def test_settings_of_a_mapped_operator_stay(drafted: DraftOf) -> None:
    body = """
BashOperator.partial(
    task_id="a", retries=2, execution_timeout=timedelta(minutes=1), priority_weight=3, queue="q", max_active_tis_per_dag=4,
).expand(bash_command=["true"])
"""
    made = drafted(file_of(body))
    task = made.dag.spec.task("a")
    assert (task.retries, task.timeout, task.priority, task.max_active_tis) == (2, 60, 3, 4)
    assert made.remarks == ["BashOperator.expand has no equal", 'queue="q"']


def test_a_function_of_another_file_that_is_given_the_dag_makes_a_task(drafted: DraftOf) -> None:
    made = drafted(
        f"""{IMPORTS}
from our_company.tasks import load, check

dag = DAG("example", schedule=None)
orders = load(dag, "orders")
items = load(dag, "items", after=orders.task_id)
orders >> items >> check(dag=dag, task_id="check_it")
"""
    )
    assert made.order == {"orders": (), "items": ("orders",), "check_it": ("items",)}
    assert made.remarks == ["load has no equal", "load has no equal", "check has no equal"]


def test_functions_return_groups_and_branches_as_they_are(drafted: DraftOf) -> None:
    made = drafted(
        f"""{IMPORTS}
def models(count):
    with TaskGroup("models") as group:
        for number in range(count):
            EmptyOperator(task_id=f"train_{{number}}")
        return group

def branch():
    chosen = BranchPythonOperator(task_id="branch", python_callable=lambda: "yes")
    chosen >> [EmptyOperator(task_id="yes"), EmptyOperator(task_id="no")]
    return chosen

with DAG("example", schedule=None):
    models(2) >> EmptyOperator(task_id="best") >> branch()
"""
    )
    assert {task: set(up) for task, up in made.order.items()} == {
        "models.train_0": set(), "models.train_1": set(), "best": {"models.train_0", "models.train_1"}, "branch": {"best"},
        "yes": {"branch"}, "no": {"branch"},
    }  # fmt: skip
    with pytest.raises(TaskSkipped):
        made.run("no", results={"branch": ["yes"]})


def test_groups_of_a_dict_are_put_in_order(drafted: DraftOf) -> None:
    made = drafted(
        file_of(
            """
groups = {}
for layer in ("bronze", "silver", "gold"):
    with TaskGroup(layer) as groups[layer]:
        EmptyOperator(task_id="x")
        EmptyOperator(task_id="y")
groups["bronze"] >> groups["silver"] >> groups["gold"]
"""
        )
    )
    assert made.remarks == [] and {task: set(up) for task, up in made.order.items()} == {
        "bronze.x": set(), "bronze.y": set(), "silver.x": {"bronze.x", "bronze.y"}, "silver.y": {"bronze.x", "bronze.y"},
        "gold.x": {"silver.x", "silver.y"}, "gold.y": {"silver.x", "silver.y"},
    }  # fmt: skip


def test_what_is_set_of_a_task_afterwards_is_said(drafted: DraftOf) -> None:
    text = """
a = EmptyOperator(task_id="a")
a.retries = 3
a.doc_md = "What it does."
a.trigger_rule = "all_done"
"""
    assert drafted(file_of(text)).remarks == ["a.retries", "a.trigger_rule"]


def test_a_list_of_tasks_makes_them_once(drafted: DraftOf) -> None:
    made = drafted(
        file_of(
            """
start, end = EmptyOperator(task_id="start"), EmptyOperator(task_id="end")
tasks = [EmptyOperator(task_id="a"), EmptyOperator(task_id="b")]
start >> tasks
tasks >> end
with TaskGroup("one") as one:
    EmptyOperator(task_id="x")
    EmptyOperator(task_id="y")
with TaskGroup("two") as two:
    EmptyOperator(task_id="x") >> EmptyOperator(task_id="y")
with TaskGroup("none") as none:
    pass
groups = [one, two, none, EmptyOperator(task_id="c")]
end >> groups
groups >> EmptyOperator(task_id="d")
more = [EmptyOperator(task_id="m1")]
more.append(EmptyOperator(task_id="m2"))
more += [EmptyOperator(task_id="m3")]
more >> start
"""
        )
    )
    assert made.remarks == [] and {task: set(up) for task, up in made.order.items()} == {
        "start": {"m1", "m2", "m3"}, "a": {"start"}, "b": {"start"}, "end": {"a", "b"}, "one.x": {"end"}, "one.y": {"end"},
        "two.x": {"end"}, "two.y": {"two.x"}, "c": {"end"}, "d": {"one.x", "one.y", "two.y", "c"}, "m1": set(), "m2": set(),
        "m3": set(),
    }  # fmt: skip
