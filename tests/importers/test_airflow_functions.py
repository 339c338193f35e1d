"""Drafts of Airflow's DAG files: task functions, their context, and what one task gives to another."""

from __future__ import annotations

import pytest
from support.airflow_files import IMPORTS, file_of
from support.drafted import DraftOf

from backfill_manager.execution.tasks.spark_executor_runtime import TaskSkipped


def test_a_function_takes_its_context_from_ctx(drafted: DraftOf) -> None:
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


def test_what_ctx_has_otherwise_is_said(drafted: DraftOf) -> None:
    """A result of another DAG or run, and what only pendulum's instants can."""
    made = drafted(
        f"""{IMPORTS}
def load(logical_date, ti, prev_ds_nodash=None, **kwargs):
    ti.xcom_pull("a", "other_dag")
    ti.xcom_pull(task_ids="a", include_prior_dates=True)
    kwargs["data_interval_end"].in_timezone("Europe/Berlin")
    ti.execution_date.isoformat()
    start = kwargs["data_interval_start"]
    start.start_of("month")
    (start - timedelta(days=1)).to_date_string()
    (kwargs["data_interval_end"] - start).total_seconds()
    return logical_date.add(days=1), logical_date.year

with DAG("example", schedule="@daily", catchup=False):
    PythonOperator(task_id="load", python_callable=load)
    BashOperator(task_id="show", bash_command="echo {{{{ ti.xcom_pull(task_ids='a', dag_id='other_dag') }}}}")
"""
    )
    assert set(made.remarks) == {
        "xcom_pull with dag_id", "xcom_pull with include_prior_dates", "`.in_timezone` of pendulum", "`.add` of pendulum",
        "`.start_of` of pendulum", "`.to_date_string` of pendulum",
        "`prev_ds_nodash` of the context", "`{{ ti.xcom_pull(task_ids='a', dag_id='other_dag') }}` in a template",
    }  # fmt: skip


def test_what_a_function_pushes_by_key_is_its_result(drafted: DraftOf) -> None:
    made = drafted(
        f"""{IMPORTS}
def extract(**kwargs):
    ti = kwargs["ti"]
    ti.xcom_push(key="day", value=kwargs["ds"])
    if kwargs["params"]["short"]:
        return
    for name in ("a", "b"):
        kwargs["ti"].xcom_push("last", f"{{name}}-{{kwargs['ds_nodash']}}")
    ti.xcom_push(
        key="sum",
        value=1
        + 2,
    )

def returns(ti):
    ti.xcom_push(key="a", value=1)
    return 2

def by_name(ti, key="k"):
    ti.xcom_push(key=key, value=1)

def show(ti):
    return ti.xcom_pull(task_ids="extract", key="day")

with DAG("example", schedule="@daily", catchup=False, params={{"short": False}}):
    extract_ = PythonOperator(task_id="extract", python_callable=extract)
    extract_ >> PythonOperator(task_id="show", python_callable=show)
    PythonOperator(task_id="returns", python_callable=returns)
    PythonOperator(task_id="by_name", python_callable=by_name)
"""
    )
    pushed = made.run("extract", params={"short": False})
    assert pushed == {"day": "2024-05-01", "last": "b-20240501", "sum": 3}
    assert made.run("extract", params={"short": True}) == {"day": "2024-05-01"}
    assert made.run("show", results={"extract": pushed}) == "2024-05-01"
    for task_id in ("returns", "by_name"):
        with pytest.raises(NotImplementedError, match="xcom_push"):
            made.run(task_id)
    assert sorted(made.remarks) == ["xcom_pull of key 'day'", "xcom_push", "xcom_push"]


def test_a_template_that_an_f_string_makes_is_filled_in(drafted: DraftOf) -> None:
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


def test_a_function_without_a_name_takes_its_context_from_ctx(drafted: DraftOf) -> None:
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


def test_taskflow_passes_results(drafted: DraftOf) -> None:
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


def test_a_task_group_may_be_given_a_part_of_a_result(drafted: DraftOf) -> None:
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


def test_whatever_takes_a_result_of_a_task_comes_after_it(drafted: DraftOf) -> None:
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


def test_a_task_that_is_mapped_over_what_another_returns_is_a_mapped_task(drafted: DraftOf) -> None:
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


def test_what_is_mapped_over_mappings_gets_them_as_arguments(drafted: DraftOf) -> None:
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
def test_what_is_mapped_otherwise_is_one_task_with_a_loop(drafted: DraftOf, mapped: str) -> None:
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


def test_one_of_a_dict_of_tasks_gives_its_result(drafted: DraftOf) -> None:
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


def test_a_part_of_a_result_keeps_its_name(drafted: DraftOf) -> None:
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
