"""Drafts of Airflow's DAG files as a whole. Nothing of a file is executed."""

from __future__ import annotations

import importlib.metadata
import os
import subprocess
import sys
from pathlib import Path

import pytest
from support.airflow_files import IMPORTS
from support.drafted import DraftOf

from backfill_manager.importers.airflow.translate import translate
from backfill_manager.importers.writer import write
from backfill_manager.testing import load_file


def test_a_dag_that_a_function_makes_has_what_it_is_given(drafted: DraftOf) -> None:
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


def test_nothing_of_a_file_is_executed() -> None:
    draft = translate(f"{IMPORTS}\nraise SystemExit('executed')\n", "example.py")
    assert [remark.what for remark in draft.remarks] == ["no DAG was found"]


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
