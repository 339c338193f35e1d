"""Drafts of Airflow's DAG files: commands, SQL and sensors, and the templates in them."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from support.airflow_files import file_of
from support.drafted import DraftOf

from backfill_manager.execution.tasks.spark_executor_runtime import TaskSkipped
from backfill_manager.importers.airflow.templates import as_sql


def test_a_command_skips_with_the_exit_codes_that_it_names(drafted: DraftOf) -> None:
    made = drafted(
        file_of(
            """
one = BashOperator(task_id="one", bash_command="exit 3", skip_on_exit_code=3)
some = BashOperator(task_id="some", bash_command="exit 4", skip_on_exit_code=[3, 4])
usual = BashOperator(task_id="usual", bash_command="echo 7; exit 99")
named = BashOperator(task_id="named", bash_command="exit $((9 * 11))", skip_on_exit_code=99)
none = BashOperator(task_id="none", bash_command="exit 99", skip_on_exit_code=None)
other = BashOperator(task_id="other", bash_command="exit 5", skip_on_exit_code=[3, 4])
take = PythonOperator(task_id="take", python_callable=print, op_args=[some.output, usual.output])
"""
        )
    )
    for task_id, code in (("one", 3), ("some", 4), ("usual", 99), ("named", 99)):
        with pytest.raises(TaskSkipped, match=f"exit code {code}"):
            made.run(task_id)
    for task_id in ("none", "other"):
        with pytest.raises(subprocess.CalledProcessError):
            made.run(task_id)


def test_a_value_is_quoted_by_where_it_stands_in_a_command(drafted: DraftOf) -> None:
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


def test_bash_commands_run(drafted: DraftOf, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
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


def test_sql_operators_become_spark_sql(drafted: DraftOf) -> None:
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
    refused = "`a template of Airflow: write it as its TODO says, and remove this line`;\n"  # no SQL, so it is not tried again
    assert spec.task("odd").sql == refused + "{% raw %}SELECT * FROM t_{{ ds_nodash }}{% endraw %}"
    assert made.remarks == [
        "SQLExecuteQueryOperator becomes Spark SQL", "PostgresOperator becomes Spark SQL", "`{{ ds_nodash }}` in a template"
    ]  # fmt: skip


def test_a_template_in_a_typed_literal_of_sql_is_a_cast() -> None:
    """Spark takes nothing but a literal after DATE."""
    assert as_sql("WHERE d >= DATE '{{ ds }}' AND at < timestamp '{{ params.until }}' AND e > DATE '2024-05-01'") == (
        "WHERE d >= DATE(date_format(:logical_date, 'yyyy-MM-dd')) AND at < timestamp(:until) "
        "AND e > DATE '2024-05-01'", [],
    )  # fmt: skip


def test_sensors_wait_or_are_named(drafted: DraftOf) -> None:
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


def test_spark_submit_is_a_command(drafted: DraftOf, monkeypatch: pytest.MonkeyPatch) -> None:
    made = drafted(
        file_of(
            """
SparkSubmitOperator(
    task_id="job", application="/jobs/clean.py", application_args=["--day", "{{ ds }}", 3, "{{ params.n }}"], name="clean",
    conf={"spark.a": "1"}, executor_memory="2g",
)
"""
        )
    )
    ran: list[list[str]] = []
    monkeypatch.setattr("subprocess.run", lambda words, check: ran.append(words))
    made.run("job", params={"n": 100})
    assert ran == [
        ["spark-submit", "--conf", "spark.a=1", "--name", "clean", "--executor-memory", "2g", "/jobs/clean.py", "--day",
         "2024-05-01", "3", "100"]
    ]  # fmt: skip


def test_what_has_no_equal_is_remarked_where_it_stands(drafted: DraftOf) -> None:
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


def test_a_template_in_what_a_bash_function_returns_is_said(drafted: DraftOf) -> None:
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
