"""Rarer statements of DAG files of Airflow: what becomes of them, or the remark that says what does not."""

from __future__ import annotations

import pytest
from support.airflow_files import IMPORTS, file_of
from support.drafted import Drafted, DraftOf

from backfill_manager.execution.tasks.spark_executor_runtime import TaskSkipped
from backfill_manager.importers.airflow.translate import translate


def order(made: Drafted) -> dict[str, set[str]]:
    return {task: set(upstream) for task, upstream in made.order.items()}


def test_statements_beside_dags(drafted: DraftOf) -> None:
    made = drafted(
        f"""{IMPORTS}
from typing import TYPE_CHECKING
try:
    import json
except ImportError:
    pass
if TYPE_CHECKING:
    from airflow.models import TaskInstance

dag = DAG("one", schedule=None)
dag.doc_md = "What it does."
with dag:
    a = EmptyOperator(task_id="a")
    with dag:
        EmptyOperator(task_id="b") >> a

@dag_decorator(schedule=None)
def two():
    "Also this."
    PythonOperator(task_id="dump", python_callable=lambda: json.dumps([1]))

made = two()
if __name__ == "__main__":
    dag.test()
made.test()
""".replace("@dag_decorator", "@dag_").replace("import dag, task", "import dag as dag_, task")
    )
    assert [(one.dag_id, one.spec.description) for one in made.dags] == [
        ("two", "Also this."),
        ("one", "What it does."),
    ]
    assert made.remarks == [] and made.dags[1].spec.task("a").upstream == ("b",)
    assert made.run("dump") == "[1]"


def test_blocks_within_a_dag(drafted: DraftOf) -> None:
    made = drafted(
        f"""import contextlib
{
            file_of('''
"A text without a meaning."
number = 0
while number < 2:
    EmptyOperator(task_id=f"n_{number}")
    number += 1
try:
    EmptyOperator(task_id="tried")
except ValueError as error:
    print(error)
else:
    EmptyOperator(task_id="else")
finally:
    EmptyOperator(task_id="finally")
with contextlib.suppress(ValueError):
    EmptyOperator(task_id="with")
    raise ValueError
first, last = EmptyOperator(task_id="first"), EmptyOperator(task_id="last")
for one in [first]:
    one >> Label("by hand") >> last
''').replace("import DAG", "import DAG; from airflow.utils.edgemodifier import Label")
        }"""
    )
    assert order(made) == {
        "n_0": set(), "n_1": set(), "tried": set(), "else": set(), "finally": set(), "with": set(), "first": set(),
        "last": {"first"},
    }  # fmt: skip
    assert made.remarks == []


def test_chains_of_lists_and_of_groups(drafted: DraftOf) -> None:
    made = drafted(
        file_of(
            """
parts = [EmptyOperator(task_id=f"p{n}") for n in range(3)]
others = [EmptyOperator(task_id=f"o{n}") for n in range(3)]
chain(*parts)
chain(parts, others)
group = [EmptyOperator(task_id="x")]
cross_downstream(*[parts, group])
"""
        )
    )
    assert order(made) == {
        "p0": set(), "p1": {"p0"}, "p2": {"p1"}, "o0": {"p0"}, "o1": {"p1"}, "o2": {"p2"}, "x": set()
    }  # fmt: skip
    assert made.remarks == ["cross_downstream with *"]


def test_what_a_file_makes_of_airflows_classes_is_kept_as_a_comment(drafted: DraftOf) -> None:
    made = drafted(
        f"""{IMPORTS}
from airflow.models import BaseOperator, Variable
from airflow.sdk import asset

class Own(BaseOperator):
    def execute(self, context):
        return 1

class Reader:
    def read(self):
        return Variable.get("x")

def helper():
    return Variable.get("y")

@asset(schedule="@daily")
def raw():
    pass

PLACE = Variable.get("place")
defaults = {{"trigger_rule": TriggerRule.ALL_DONE, "retries": 1}}
with DAG("example", schedule=None, default_args=defaults):
    Own(task_id="own")
    PythonOperator(task_id="read", python_callable=helper)
"""
    )
    assert made.remarks == [
        "the class Own of Airflow", "airflow.models.Variable is used in Reader", "airflow.models.Variable is used",
        "raw, decorated by @asset", "airflow.models.Variable is used", "Own has no equal",
    ]  # fmt: skip
    assert "# class Own(BaseOperator):" in made.text and "PLACE = None" in made.text and "defaults" not in made.text
    task = made.dag.spec.task("own")
    assert (task.trigger_rule, task.retries) == ("all_done", 1)


def test_functions_of_tasks_may_be_of_any_kind(drafted: DraftOf) -> None:
    made = drafted(
        f"""import functools
{IMPORTS}
def loud(function):
    @functools.wraps(function)
    def call(*args, **kwargs):
        return function(*args, **kwargs).upper()
    return call

@task
async def later(name):
    return f"hello {{name}}"

@task
def several():
    yield 1
    yield 2

@task.virtualenv(requirements=["x"])
@loud
def shout(*words):
    return " ".join(words)

@task.short_circuit
def gate(yes, *, ds=None):
    return yes and ds

@task
@task.skip_if(lambda context: True)
def skipped():
    return 1

with DAG("example", schedule=None):
    later("x")
    several()
    shout("a", "b")
    gate(False)
    skipped()
"""
    )
    assert (made.run("later"), made.run("several"), made.run("shout")) == ("hello x", [1, 2], "A B")
    with pytest.raises(TaskSkipped, match="condition"):
        made.run("gate")
    assert made.remarks == ["@task.skip_if", "@task.virtualenv"]


def test_results_are_passed_in_whatever_way(drafted: DraftOf) -> None:
    made = drafted(
        f"""from airflow.models.xcom_arg import XComArg
{
            file_of('''
@task
def numbers(n=2):
    return {"all": [n, n]}

@task
def add(values, by=0):
    return sum(values) + by

one = numbers()
PythonOperator(task_id="first", python_callable=sum, op_args=[XComArg(one, key="all")])
add.override(task_id="second")([1], by=XComArg(add([1])))
many = [numbers.override(task_id=f"n_{n}")(n) for n in (1, 2)]
add.override(task_id="third")(many)
part = one["all"]
part.append(3)
add.override(task_id="fourth")(one.map(len))
''')
        }"""
    )
    assert order(made) == {
        "numbers": set(), "first": {"numbers"}, "add": set(), "second": {"add"}, "n_1": set(), "n_2": set(),
        "third": {"n_1", "n_2"}, "fourth": {"numbers"},
    }  # fmt: skip
    assert made.run("first", results={"numbers": {"all": [1, 2]}}) == 3 and made.run("second", results={"add": 1}) == 2
    assert made.run("third", results={"n_1": 1, "n_2": 2}) == 3
    assert made.remarks == ["a result that the DAG's body uses", ".map() of a result"]


def test_functions_read_the_context_in_whatever_way(drafted: DraftOf) -> None:
    made = drafted(
        f"""from airflow.exceptions import AirflowException, AirflowFailException, AirflowSkipException
from airflow.operators.python import get_current_context
from airflow.providers.postgres.hooks.postgres import PostgresHook
{IMPORTS}
def one(ti, dag_run, params, **kwargs):
    task_instance = kwargs["task_instance"]
    run = kwargs["dag_run"]
    ti.log.info("begun")
    if dag_run.conf.get("stop") or run.conf.get("stop"):
        raise AirflowSkipException
    if params["a"] == 2:
        raise AirflowException("wrong")
    values = ti.xcom_pull(task_ids=["x", "y"], key="k")
    return values, task_instance.task_id, ti.try_number, ti.execution_date.day, params["a"]

def two(**context):
    PostgresHook("c")
    context["ti"].xcom_push(key="k", value=1)
    return context["dag"], context["ti"].hostname, context["ti"].xcom_pull(key="k"), helper(context["ti"])

def helper(ti):
    raise AirflowFailException("no")

@task
def three():
    context = get_current_context()
    ti = context["ti"]
    return context["run_id"], ti.xcom_pull("x")

with DAG("example", schedule="@daily", catchup=False, params={{"a": 1}}):
    PythonOperator(task_id="one", python_callable=one)
    PythonOperator(task_id="two", python_callable=two)
    PythonOperator(task_id="four", python_callable=helper)
    three()
"""
    )
    results = {"x": {"k": 1}, "y": {"k": 2}}
    assert made.run("one", params={"a": 1}, results=results) == ([1, 2], "one", 1, 1, 1)
    assert made.run("three", results={"x": 3}) == ("scheduled__1", 3)
    with pytest.raises(TaskSkipped):
        made.run("one", params={"a": 1, "stop": True})
    with pytest.raises(RuntimeError, match="wrong"):
        made.run("one", params={"a": 2})
    assert set(made.remarks) == {
        "dag_run.conf", "xcom_pull of key 'k'", "airflow.providers.postgres.hooks.postgres.PostgresHook is used", "xcom_push",
        "`dag` of the context", "`ti.hostname`", "xcom_pull without task_ids", "`context`, the whole context",
        "AirflowFailException",
    }  # fmt: skip


def test_settings_that_have_no_equal_are_said(drafted: DraftOf) -> None:
    made = drafted(
        f"""{IMPORTS}
from airflow.models import Variable
COMMON = {{"retries": 2, "pool": "etl"}}
RULE = "all_done"
moved = pendulum.now()
defaults = {{**COMMON, "retry_delay": timedelta(**{{"minutes": 1}})}}
with DAG(
    "example", schedule="@daily", start_date=pendulum.today(), max_active_runs=Variable.get("n"), tags=None,
    default_args=defaults, on_failure_callback=print, dagrun_timeout=timedelta(hours=1), sla_miss_callback=None,
):
    EmptyOperator(task_id="a", trigger_rule=RULE, retries=None)
    EmptyOperator(task_id="b", trigger_rule="all_skipped", retries=Variable.get("n"))
    EmptyOperator(task_id="c", trigger_rule=print("x"), on_execute_callback=print)
with DAG("other", start_date=datetime(2024, 5, 1, tzinfo=pendulum.UTC)):
    EmptyOperator(task_id="a")
with DAG("third", schedule=None, start_date=pendulum.parse("2024-05-01T00:00:00Z")):
    EmptyOperator(task_id="a")
"""
    )
    assert made.remarks == [
        'the pool "etl"', "catchup is not set", "start_date=pendulum.today()", 'max_active_runs=Variable.get("n")',
        "on_failure_callback of the DAG", "dagrun_timeout of the DAG", "the trigger rule all_skipped",
        'retries=Variable.get("n")', 'trigger_rule=print("x")', "on_execute_callback=print", "no schedule",
    ]  # fmt: skip
    first = made.dags[0].spec
    assert (first.task("a").trigger_rule, first.task("a").retries, first.task("a").pool) == ("all_done", 2, "etl")
    assert [one.spec.timezone for one in made.dags] == ["UTC"] * 3


def test_params_of_all_kinds(drafted: DraftOf) -> None:
    params = """{
    "plain": "a", "from_function": print(), "none": Param(type="integer"), "moving": Param(pendulum.now(), type="string"),
    "many": Param(1, type=["integer", "string"]), "of": Param("a", enum=CHOICES), "limited": Param(5, minimum=1, title="T"),
    "null": Param(None, type=["null", "string"]), "described": Param(1, description="What it is."),
}"""
    text = file_of('EmptyOperator(task_id="a")', f"schedule=None, params={params}")
    made = drafted(f"CHOICES = ['a', 'b']\n{text}")
    spec = made.dag.spec
    assert made.remarks == [
        "the param from_function = print()", "the param none has no default", "the default of the param moving",
        "the param moving has no default", "type= of the param many", "minimum= of the param limited",
    ]  # fmt: skip
    assert (
        spec.declared_params["of"].choices == ("a", "b")
        and spec.declared_params["described"].description == "What it is."
    )
    assert spec.params["null"] is None and spec.declared_params["null"].is_nullable


def test_modules_that_are_not_installed_are_said_once() -> None:
    text = """
import not_there.at_all
from not_there.either import thing
from airflow import DAG
from airflow.operators.empty import EmptyOperator

with DAG("example", schedule=None):
    EmptyOperator(task_id="a", executor_config=print)
    print(not_there, thing)
"""
    draft = translate(text, "example.py")
    assert [one.what for one in draft.remarks] == [
        "the module not_there is not installed here",
        "executor_config=print",
    ]


def test_ids_and_docs_of_dags(drafted: DraftOf) -> None:
    made = drafted(
        f"""'''What the file does.'''
from airflow.utils.helpers import is_configured
{IMPORTS}
if is_configured():
    with DAG("an id with ü", schedule=None, doc_md="What it does."):
        EmptyOperator(task_id="a")

dag = DAG("other", schedule=None)
dag.doc_md = __doc__
EmptyOperator(task_id="a", dag=dag)

def create(name):
    "Makes a DAG."
    made = DAG(name, schedule=None)
    with made:
        EmptyOperator(task_id="a")
    return made

create("third")
"""
    )
    assert {one.dag_id: one.spec.description for one in made.dags} == {
        "third": "", "an_id_with_": "What it does.", "other": "What the file does."
    }  # fmt: skip
    assert made.remarks == ["if is_configured()", "the DAG id 'an id with ü'"]


def test_a_sql_task_of_a_loop_after_a_branch_is_said(drafted: DraftOf) -> None:
    text = """
branch = BranchPythonOperator(task_id="branch", python_callable=lambda: "a")
for name in ("a", "b"):
    branch >> SparkSqlOperator(task_id=name, sql="SELECT 1")
"""
    assert drafted(file_of(text)).remarks == ['the SQL task name comes after the branch "branch"']


def test_what_a_file_does_with_airflow_while_it_is_read_is_said(drafted: DraftOf) -> None:
    made = drafted(
        f"""from airflow.utils.session import create_session
{IMPORTS}
with DAG("example", schedule=None):
    with create_session() as session:
        EmptyOperator(task_id="a")
    by_rule = {{rule: EmptyOperator(task_id="c", trigger_rule=rule) for rule in [TriggerRule.ALL_DONE]}}
"""
    )
    assert made.remarks == ["create_session()"] and made.dag.spec.task("c").trigger_rule == "all_done"
