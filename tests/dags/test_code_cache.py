"""A run gets the code of the version it was made with, whatever has become of the bundle since."""

from __future__ import annotations

import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timezone
from pathlib import Path
from textwrap import dedent

import pytest
from backfill_manager.dags.importing.code_cache import CodeCache
from support.bundle_folder import BundleFolder

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


def test_two_versions_with_helpers_of_the_same_name_run_side_by_side(bundle: BundleFolder) -> None:
    write_version(bundle, 1)
    first = version_of(bundle.scan())
    write_version(bundle, 2)
    second = version_of(bundle.scan(), 2)
    cache = CodeCache()
    one, two = cache.dag(first), cache.dag(second)
    for _ in range(2):
        assert one.functions["at_top"](None) == (1, "v1o1")
        assert two.functions["at_top"](None) == (2, "v2o2")
        assert one.functions["inside"](None) == (1, "v1o1", "v1o1")
        assert two.functions["inside"](None) == (2, "v2o2", "v2o2")
    assert "helpers" not in sys.modules


def test_an_import_inside_a_task_finds_its_version_in_any_thread(bundle: BundleFolder) -> None:
    write_version(bundle, 1)
    versions = [version_of(bundle.scan())]
    write_version(bundle, 2)
    versions.append(version_of(bundle.scan(), 2))
    cache = CodeCache()
    with ThreadPoolExecutor(8) as threads:
        message = list(threads.map(lambda n: cache.dag(versions[n % 2]).functions["inside"](None), range(64)))
    assert message == [(n % 2 + 1, f"v{n % 2 + 1}o{n % 2 + 1}") * 1 + (f"v{n % 2 + 1}o{n % 2 + 1}",) for n in range(64)]


def test_a_version_is_loaded_once(bundle: BundleFolder, tmp_path: Path) -> None:
    count = tmp_path / "count"
    bundle.write_dag("f.py", "d", top=f"with open({str(count)!r}, 'a') as file: file.write('.')")
    version = version_of(bundle.scan())
    count.write_text("")
    cache = CodeCache()
    with ThreadPoolExecutor(8) as threads:
        dags = list(threads.map(lambda _: cache.dag(version), range(32)))
    assert all(dag is dags[0] for dag in dags)
    assert count.read_text() == "."


def test_of_unused_snapshots_the_last_ones_stay_loaded(bundle: BundleFolder) -> None:
    cache, versions = CodeCache(kept=2), []
    for n in range(1, 5):
        write_version(bundle, n)
        versions.append(version_of(bundle.scan(), n))
    before = set(sys.modules)
    with cache.using(versions[0]):
        first = cache.dag(versions[0])
        for version in versions[1:]:
            with cache.using(version):
                cache.dag(version)
        assert first.functions["inside"](None) == (1, "v1o1", "v1o1")  # it imports while others have been given up
    loaded = {name.partition(".")[0] for name in set(sys.modules) - before}
    assert len(loaded) == 2
    for n, version in enumerate(versions, 1):
        with cache.using(version):  # those that were given up are loaded again
            assert cache.dag(version).functions["inside"](None) == (n, f"v{n}o{n}", f"v{n}o{n}")


def test_the_definition_is_the_stored_one(bundle: BundleFolder) -> None:
    bundle.write_dag("f.py", "d")
    version = version_of(bundle.scan())
    stored = version.evolve(definition_json=version.definition_json.replace('"retries": 0', '"retries": 7'))
    assert CodeCache().dag(stored).spec.task("s").retries == 7


def test_its_modules_lie_in_the_snapshot_and_can_go_to_a_worker_by_value(bundle: BundleFolder, tmp_path: Path) -> None:
    """As `@task.executor` sends them: into a process that has neither the bundle nor backfill_manager."""
    from pyspark import cloudpickle

    write_version(bundle, 1)
    dag = CodeCache().dag(version_of(bundle.scan()))
    assert [Path(str(module.__file__)).is_relative_to(bundle.snapshots) for module in dag.modules[:2]] == [True, True]
    cloudpickle.register_pickle_by_value(dag.modules[0])
    try:
        carried = cloudpickle.dumps(dag.functions["at_top"])
    finally:
        cloudpickle.unregister_pickle_by_value(dag.modules[0])
    (tmp_path / "function").write_bytes(carried)
    program = """
        import pickle, sys
        class Nowhere:
            def find_spec(self, name, path=None, target=None):
                if name.startswith(("backfill_manager", "bfm_bundle")):
                    raise ImportError(name)
        sys.meta_path.insert(0, Nowhere())
        print(pickle.load(open("function", "rb"))(None))
    """
    message = subprocess.run(
        [sys.executable, "-c", dedent(program)], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert (message.stdout, message.stderr) == ("(1, 'v1o1')\n", "")


def test_a_snapshot_that_is_gone_is_reported(bundle: BundleFolder) -> None:
    bundle.write_dag("f.py", "d")
    version = version_of(bundle.scan())
    shutil.rmtree(version.snapshot)
    with pytest.raises(
        StateError, match=r"The code of DAG 'd' version 1 is gone: there is no f\.py under .*latest version"
    ):
        CodeCache().dag(version)


def test_a_file_that_makes_something_else_here_than_where_it_was_loaded_is_reported(bundle: BundleFolder) -> None:
    bundle.write(
        "f.py",
        """
        import sys
        from backfill_manager import dag, task
        @dag("here" if "pytest" in sys.modules else "there")
        def d():
            @task(task_id="a" if "pytest" in sys.modules else "b")
            def work(ctx): ...
            work()
        """,
    )
    version = version_of(bundle.scan())
    with pytest.raises(InvalidDag, match=r"DAG 'there' version 1: f\.py makes no such DAG now"):
        CodeCache().dag(version)
    with pytest.raises(InvalidDag, match=r"DAG 'here' version 1: f\.py makes it without b now"):
        CodeCache().dag(version.evolve(dag_id="here"))


def test_a_file_that_breaks_here_is_reported_with_its_line_and_may_be_tried_again(
    bundle: BundleFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    bundle.write_dag("f.py", "d", top="import os\nif 'PYTEST_BREAKS' in os.environ: raise SystemExit(1)")
    version = version_of(bundle.scan())
    cache = CodeCache()
    monkeypatch.setenv("PYTEST_BREAKS", "1")
    with pytest.raises(InvalidDag, match=r"DAG 'd' version 1: f\.py, line 3: the file ended the process"):
        cache.dag(version)
    monkeypatch.delenv("PYTEST_BREAKS")
    assert cache.dag(version).dag_id == "d"


def test_a_state_that_was_moved_brings_its_snapshots_along(bundle: BundleFolder, tmp_path: Path) -> None:
    bundle.write_dag("f.py", "d")
    version = version_of(bundle.scan())
    moved = bundle.snapshots.rename(tmp_path / "elsewhere")
    assert CodeCache(moved).dag(version).dag_id == "d"
    with pytest.raises(StateError, match="is gone"):
        CodeCache().dag(version)


def test_a_dag_file_that_another_imported_first_still_gives_its_dags(bundle: BundleFolder) -> None:
    bundle.write_dag("a.py", "a")
    bundle.write_dag("b.py", "b", top="import a")
    rows = changes_for(bundle.scan(), [], [], [], AT)
    versions = {row.dag_id: row for row in rows if isinstance(row, DagVersion)}
    cache = CodeCache()
    assert [cache.dag(versions[name]).dag_id for name in ("b", "a")] == ["b", "a"]


def test_the_standard_library_comes_before_a_bundles_file_of_that_name(bundle: BundleFolder) -> None:
    bundle.write("json.py", "raise SystemExit")
    bundle.write_dag("f.py", "d", top="import json\nassert json.dumps(1) == '1'")
    assert CodeCache().dag(version_of(bundle.scan())).dag_id == "d"


def test_a_missing_module_of_the_bundle_is_reported_by_the_name_that_was_written(bundle: BundleFolder) -> None:
    bundle.write("helpers/__init__.py", "")
    bundle.write_dag("f.py", "d", top="import helpers.missing")
    (failure,) = bundle.scan().failed
    assert failure.message == "ModuleNotFoundError: No module named 'helpers.missing' in the bundle"
    bundle.write_dag("f.py", "d", top="from helpers import missing")
    (failure,) = bundle.scan().failed
    assert failure.message.startswith("ImportError: cannot import name 'missing'")
