"""A run gets the code of the version it was made with, whatever has become of the bundle since."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterator
from datetime import datetime, timezone
from pathlib import Path
from textwrap import dedent

import pytest
from support.bundle_folder import BundleFolder
from support.own_process import OwnProcess

from backfill_manager.dags.versions import Submission, changes_for
from backfill_manager.errors import InvalidDag, StateError
from backfill_manager.model.records import DagVersion

AT = datetime(2024, 1, 1, tzinfo=timezone.utc)
CALLS_A_HELPER = """
from backfill_manager import dag, task
import helpers
from package.inner import name

@dag
def flights():
    @task
    def at_top(ctx):
        return helpers.answer(), name()
    @task
    def inside(ctx):
        import helpers as h, package.inner
        from package import inner
        return h.answer(), package.inner.name(), inner.name()
    at_top() >> inside()
"""


def version_of(scan: Submission, number: int = 1) -> DagVersion:
    assert scan.failed == ()
    (version,) = (row for row in changes_for(scan, [], [], [], AT) if isinstance(row, DagVersion))
    made: DagVersion = version.evolve(version=number)
    return made


def write_version(bundle: BundleFolder, n: int) -> None:
    bundle.write("flights.py", CALLS_A_HELPER)
    bundle.write("helpers.py", f"def answer(): return {n}")
    bundle.write("package/inner.py", f"from . import other\ndef name(): return 'v{n}' + other.NAME")
    bundle.write("package/other.py", f"NAME = 'o{n}'")


LOAD = """
from backfill_manager.dags.importing.task_code import load_dag
dag = load_dag(version, snapshots)
result = None
"""


@pytest.fixture
def process() -> Iterator[OwnProcess]:
    """One try's, with the names `dag` and `result` after it has run `LOAD`."""
    with OwnProcess() as own:
        own.run("import pyspark\nresult = None", snapshots=None)
        yield own


def test_two_versions_with_helpers_of_the_same_name_run_side_by_side(process: OwnProcess, bundle: BundleFolder) -> None:
    write_version(bundle, 1)
    first = version_of(bundle.scan())
    write_version(bundle, 2)
    second = version_of(bundle.scan(), 2)
    with OwnProcess() as other:
        process.run(LOAD, version=first)
        other.run(LOAD, version=second, snapshots=None)
        for _ in range(2):
            for own, n in ((process, 1), (other, 2)):
                assert own.run("result = dag.functions['at_top'](None)") == (n, f"v{n}o{n}")
                assert own.run("result = dag.functions['inside'](None)") == (n, f"v{n}o{n}", f"v{n}o{n}")


def test_the_definition_is_the_stored_one(process: OwnProcess, bundle: BundleFolder) -> None:
    bundle.write_dag("f.py", "d")
    version = version_of(bundle.scan())
    stored = version.evolve(definition_json=version.definition_json.replace('"retries": 0', '"retries": 7'))
    process.run(LOAD, version=stored)
    assert process.run("result = dag.spec.task('s').retries") == 7


def test_its_functions_can_go_to_a_worker_that_has_neither_the_bundle_nor_ours(
    process: OwnProcess, bundle: BundleFolder, tmp_path: Path
) -> None:
    write_version(bundle, 1)
    process.run(LOAD, version=version_of(bundle.scan()))
    carried = process.run("from pyspark import cloudpickle\nresult = cloudpickle.dumps(dag.functions['at_top'])")
    (tmp_path / "function").write_bytes(carried)
    program = """
        import pickle, sys
        class Nowhere:
            def find_spec(self, name, path=None, target=None):
                if name.startswith("backfill_manager"):
                    raise ImportError(name)
        sys.meta_path.insert(0, Nowhere())
        print(pickle.load(open("function", "rb"))(None))
    """
    message = subprocess.run(
        [sys.executable, "-c", dedent(program)], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert (message.stdout, message.stderr) == ("(1, 'v1o1')\n", "")


def test_a_snapshot_that_is_gone_is_reported(process: OwnProcess, bundle: BundleFolder) -> None:
    bundle.write_dag("f.py", "d")
    version = version_of(bundle.scan())
    shutil.rmtree(version.snapshot)
    with pytest.raises(
        StateError, match=r"The code of DAG 'd' version 1 is gone: there is no f\.py under .*latest version"
    ):
        process.run(LOAD, version=version)


def test_a_file_that_makes_something_else_here_than_where_it_was_loaded_is_reported(
    process: OwnProcess, bundle: BundleFolder
) -> None:
    bundle.write(
        "f.py",
        """
        import os
        from backfill_manager import dag, task
        @dag("here" if "PYTEST_HERE" in os.environ else "there")
        def d():
            @task(task_id="a" if "PYTEST_HERE" in os.environ else "b")
            def work(ctx): ...
            work()
        """,
    )
    version = version_of(bundle.scan())
    process.run("import os\nos.environ['PYTEST_HERE'] = '1'")
    with pytest.raises(InvalidDag, match=r"DAG 'there' version 1: f\.py makes no such DAG now"):
        process.run(LOAD, version=version)
    with pytest.raises(InvalidDag, match=r"DAG 'here' version 1: f\.py makes it without b now"):
        process.run(LOAD, version=version.evolve(dag_id="here"))


def test_a_file_that_breaks_here_is_reported_with_its_line(process: OwnProcess, bundle: BundleFolder) -> None:
    bundle.write_dag("f.py", "d", top="import os\nif 'PYTEST_BREAKS' in os.environ: raise SystemExit(1)")
    version = version_of(bundle.scan())
    process.run("import os\nos.environ['PYTEST_BREAKS'] = '1'")
    with pytest.raises(InvalidDag, match=r"DAG 'd' version 1: f\.py, line 3: the file ended the process"):
        process.run(LOAD, version=version)


def test_a_state_that_was_moved_brings_its_snapshots_along(
    process: OwnProcess, bundle: BundleFolder, tmp_path: Path
) -> None:
    bundle.write_dag("f.py", "d")
    version = version_of(bundle.scan())
    moved = bundle.snapshots.rename(tmp_path / "elsewhere")
    process.run(LOAD, version=version, snapshots=moved)
    assert process.run("result = dag.dag_id") == "d"
    with pytest.raises(StateError, match="is gone"):
        process.run(LOAD, version=version, snapshots=None)


def test_a_missing_module_of_the_bundle_is_reported_by_the_name_that_was_written(bundle: BundleFolder) -> None:
    bundle.write("helpers/__init__.py", "")
    bundle.write_dag("f.py", "d", top="import helpers.missing")
    (failure,) = bundle.scan().failed
    assert failure.message == "ModuleNotFoundError: No module named 'helpers.missing' in the bundle"
    bundle.write_dag("f.py", "d", top="from helpers import missing")
    (failure,) = bundle.scan().failed
    assert failure.message.startswith("ImportError: cannot import name 'missing'")
