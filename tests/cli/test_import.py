"""`bfm import`: what is printed, what is written, and that nothing that is there is changed."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.bfm import Bfm

DAG = """
from airflow import DAG
from airflow.operators.bash import BashOperator
from airflow.providers.http.operators.http import HttpOperator

with DAG("sales", schedule="@daily", start_date=None, catchup=False):
    BashOperator(task_id="a", bash_command="true") >> HttpOperator(task_id="b")
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    files = {"sales.py": DAG, "team/more.py": DAG.replace("sales", "more"), "lib.py": "x = 1\n", ".hidden/no.py": "x ="}
    for name, text in files.items():
        path = tmp_path / "airflow" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return tmp_path / "airflow"


def test_a_file_is_printed_with_its_remarks_beside(bfm: Bfm, folder: Path) -> None:
    done = bfm("import", "airflow", str(folder / "sales.py"))
    assert done.code == 0 and done.out.startswith("import subprocess\n\nfrom backfill_manager import dag, task\n")
    assert "# TODO (from Airflow, line 7): HttpOperator has no equal" in done.out
    assert done.err.startswith("line 7: HttpOperator has no equal: ")


def test_a_folder_is_written_where_it_is_asked_for(bfm: Bfm, folder: Path, tmp_path: Path) -> None:
    dry = bfm("import", "airflow", "airflow")
    assert dry.code == 0 and "2 of 3 files have DAGs" in dry.err and not (tmp_path / "dags").exists()
    done = bfm("import", "airflow", "airflow", "--to", "dags")
    assert done.code == 0 and "Written: dags/sales.py, dags/team/more.py." in done.out
    assert sorted(str(path.relative_to(tmp_path)) for path in (tmp_path / "dags").rglob("*.py")) == [
        "dags/sales.py",
        "dags/team/more.py",
    ]
    assert "HttpOperator has no equal" in done.out


def test_statements_of_sql_files_of_the_folder_are_in_the_draft(bfm: Bfm, folder: Path, tmp_path: Path) -> None:
    names = ("beside.sql", "below.sql", "../outside.sql", "link.sql", "twice.sql", "none.sql", "*.sql", "/etc/x.sql")
    operators = "\n".join(f"    SparkSqlOperator(task_id='t{n}', sql='{name}')" for n, name in enumerate(names))
    (folder / "statements.py").write_text(f"""
from airflow import DAG
from airflow.providers.apache.spark.operators.spark_sql import SparkSqlOperator

with DAG("statements", schedule="@daily", catchup=False, template_searchpath="/opt/airflow/sql"):
{operators}
""")
    (tmp_path / "outside.sql").write_text("SELECT 'outside'")
    (folder / "beside.sql").write_text("DELETE FROM t WHERE day = '{{ ds }}';\nINSERT INTO t SELECT 'beside';\n")
    (folder / "sql").mkdir()
    (folder / "sql" / "below.sql").write_text("SELECT 'below'")
    for name in ("sql/twice.sql", "team/twice.sql"):
        (folder / name).write_text("SELECT 'twice'")
    (folder / "link.sql").symlink_to(tmp_path / "outside.sql")
    done = bfm("import", "airflow", str(folder / "statements.py"))
    assert (
        "DELETE FROM t WHERE day = date_format(:logical_date, 'yyyy-MM-dd');\nINSERT INTO t SELECT 'beside'" in done.out
    )
    assert "SELECT 'below'" in done.out and "SELECT 'outside'" not in done.out and "SELECT 'twice'" not in done.out
    assert done.out.count("raise NotImplementedError") == len(names) - 2
    assert 'the file "beside.sql": Its statements are in the draft' in done.err


@pytest.mark.parametrize("options", [(), ("--to", "dags"), ("--output", "json")])
@pytest.mark.parametrize(("tool", "nothing"), [("airflow", "no DAG"), ("dagster", "no asset and no job")])
def test_where_nothing_is_to_be_imported_the_input_is_wrong(
    bfm: Bfm, tmp_path: Path, tool: str, nothing: str, options: tuple[str, ...]
) -> None:
    (tmp_path / "other").mkdir()
    for name in ("a.py", "b.py"):
        (tmp_path / "other" / name).write_text("X = 1\n")
    for place, named in (("other/a.py", "other/a.py"), ("other", "other (2 Python files)")):
        done = bfm("import", tool, place, *options)
        error = f"{named}: {nothing} was found, so there is nothing to import."
        assert (done.code, done.out, done.error) == (2, "", error)
    assert not (tmp_path / "dags").exists()


def test_of_a_file_without_a_dag_the_remarks_stay(bfm: Bfm, tmp_path: Path) -> None:
    (tmp_path / "lib.py").write_text("from airflow.models import Variable\n\nREGION = Variable.get('region')\n")
    done = bfm("import", "airflow", "lib.py")
    assert (done.code, done.out) == (2, "")
    remark, error = done.err.splitlines()
    assert remark.startswith("line 3: airflow.models.Variable is used: ")
    assert error == "lib.py: no DAG was found, so there is nothing to import."


def test_nothing_that_is_there_is_written_over(bfm: Bfm, folder: Path, tmp_path: Path) -> None:
    (tmp_path / "dags").mkdir()
    (tmp_path / "dags" / "sales.py").write_text("mine")
    refused = bfm("import", "airflow", "airflow", "--to", "dags")
    assert (refused.code, refused.error) == (2, "dags/sales.py: there already. --force writes over what is there.")
    assert [path.name for path in (tmp_path / "dags").rglob("*.py")] == ["sales.py"]
    assert bfm("import", "airflow", "airflow", "--to", "dags", "--force").code == 0
    assert (tmp_path / "dags" / "sales.py").read_text() != "mine"


def test_a_file_that_is_no_python_is_named_and_the_others_are_done(bfm: Bfm, folder: Path) -> None:
    (folder / "wrong.py").write_text("def (:\n")
    done = bfm("import", "airflow", "airflow", "--output", "json")
    files = {one["file"]: one for one in done.document["files"]}
    assert done.code == 1 and files["wrong.py"]["error"].startswith("line 1: invalid syntax")
    assert files["sales.py"]["dags"] == ["sales"] and "@dag(" in files["sales.py"]["draft"]
    assert {key: done.document["remarks"][0][key] for key in ("file", "line")} == {"file": "sales.py", "line": 7}


def test_dbt_and_dagster(bfm: Bfm, tmp_path: Path) -> None:
    (tmp_path / "dbt_project.yml").write_text("name: shop\n")
    (tmp_path / "models").mkdir()
    (tmp_path / "models" / "a.sql").write_text("SELECT 1 AS a")
    done = bfm("import", "dbt", ".", "--to", "dags")
    assert done.code == 0 and "Written: dags/shop.py." in done.out
    (tmp_path / "assets.py").write_text("from dagster import asset\n\n@asset\ndef a():\n    return 1\n")
    printed = bfm("import", "dagster", "assets.py")
    assert printed.code == 0 and "@dag(schedule=None)\ndef assets():" in printed.out


@pytest.mark.parametrize(
    ("args", "error"),
    [
        (("import", "airflow", "gone"), "gone does not exist."),
        (("import", "dbt", "."), ". is no dbt project: it has no dbt_project.yml."),
        (("--server", "http://x", "import", "airflow", "."),
         "--server does not go with this command, which is about files of this machine: leave it out."),
    ],
)  # fmt: skip
def test_what_is_wrong_is_said_in_a_line(bfm: Bfm, args: tuple[str, ...], error: str) -> None:
    refused = bfm(*args)
    assert (refused.code, refused.error) == (2, error)
