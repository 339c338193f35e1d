"""Modules of a bundle are imported by Python's own import system, before what is installed and after the standard library."""

from __future__ import annotations

import os
import py_compile
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.bundle_folder import BundleFolder
from support.own_process import OwnProcess

ENTER = """
import importlib, os, sys, threading
from backfill_manager.dags.importing.bundle_path import enter_bundle
bundle = enter_bundle(root)
result = None
"""


@pytest.fixture
def process(bundle: BundleFolder) -> Iterator[OwnProcess]:
    """It has the bundle's folder as `root`, and has not entered it."""
    with OwnProcess() as own:
        own.run("result = None", root=bundle.root)
        yield own


def installed(folder: Path, file: str, text: str) -> str:
    """As if a package had been installed; returns the program that puts it on `sys.path`."""
    path = folder / "site" / file
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return f"import sys\nsys.path.append({str(folder / 'site')!r})\nresult = None\n"


def test_a_module_is_found_by_import_and_by_import_module_under_its_plain_name(
    process: OwnProcess, bundle: BundleFolder
) -> None:
    bundle.write("helpers.py", "VALUE = 1")
    bundle.write("package/inner.py", "from . import other\nfrom .other import VALUE")
    bundle.write("package/other.py", "VALUE = 2")
    process.run(ENTER)
    program = """
        import helpers, package.inner
        by_name = importlib.import_module("helpers")
        relative = importlib.import_module(".inner", "package")
        result = by_name is helpers, helpers.__name__, relative is package.inner, package.inner.VALUE
    """
    assert process.run(program) == (True, "helpers", True, 2)


def test_a_module_that_is_imported_late_in_a_thread_is_found_wherever_the_process_is(
    process: OwnProcess, bundle: BundleFolder
) -> None:
    bundle.write("late.py", "VALUE = 3")
    program = """
        os.chdir("/")
        found = []
        thread = threading.Thread(target=lambda: found.append(importlib.import_module("late").VALUE))
        thread.start()
        thread.join()
        result = found
    """
    process.run(ENTER)
    assert process.run(program) == [3]


def test_a_module_comes_before_an_installed_one_that_was_loaded_before(
    process: OwnProcess, bundle: BundleFolder, tmp_path: Path
) -> None:
    process.run(installed(tmp_path, "shadowed/__init__.py", "from . import inner\nVALUE = 'installed'"))
    installed(tmp_path, "shadowed/inner.py", "VALUE = 'installed'")
    bundle.write("shadowed/inner.py", "VALUE = 'bundle'")  # a folder without __init__.py is a package as good as others
    process.run("import shadowed.inner as old\nresult = None" + ENTER)
    assert process.run("import shadowed.inner\nresult = shadowed.inner.VALUE, old.VALUE") == ("bundle", "installed")
    assert process.run("result = hasattr(shadowed, 'VALUE')") is False


def test_a_folder_without_python_hides_no_installed_package(
    process: OwnProcess, bundle: BundleFolder, tmp_path: Path
) -> None:
    process.run(installed(tmp_path, "tables.py", "VALUE = 'installed'"))
    bundle.write("tables/a.sql", "SELECT 1")
    bundle.write("only_queries/a.sql", "SELECT 1")
    process.run(ENTER)
    assert process.run("import tables\nresult = tables.VALUE") == "installed"
    with pytest.raises(ModuleNotFoundError, match="No module named 'only_queries'"):
        process.run("import only_queries")


@pytest.mark.parametrize("name", ["json", "wave", "backfill_manager", "pyspark", "py4j", "delta"])
def test_the_standard_library_spark_and_ours_come_before_a_bundles_file_of_that_name(
    process: OwnProcess, bundle: BundleFolder, name: str
) -> None:
    bundle.write_dag(f"{name}.py", "d", top="THEIRS = 1")
    bundle.write_dag("f.py", "e", top=f"import {name}\nassert not hasattr({name}, 'THEIRS')")
    process.run(ENTER)
    program = f"result = [dag.dag_id for dag in [*bundle.dags_of('f.py'), *bundle.dags_of('{name}.py')]]"
    assert process.run(program) == ["e", "d"]


def test_the_folder_is_on_the_path_behind_the_standard_library_and_before_what_is_installed(
    process: OwnProcess, bundle: BundleFolder
) -> None:
    process.run(ENTER)
    path, standard = process.run("result = sys.path, os.path.dirname(os.__file__)")
    at = path.index(str(bundle.root))
    assert path.index(standard) < at
    assert not [entry for entry in path[:at] if not entry.startswith((standard, sys.base_prefix))]
    assert not [entry for entry in path[:at] if "site-packages" in entry]


def test_each_file_has_the_dags_that_its_top_level_made(process: OwnProcess, bundle: BundleFolder) -> None:
    bundle.write_dag("a.py", "a")
    bundle.write_dag("b.py", "b", top="import a")
    bundle.write_dag("2024/my-dag.v2.py", "unusual", top="from a import _0 as a")
    bundle.write_dag("package/__init__.py", "of_package", top="from . import part")
    bundle.write_dag("package/part.py", "of_part")
    bundle.write_dag("twice.py", "hidden")
    bundle.write("twice/__init__.py", "")  # `import twice` finds this one
    process.run(ENTER)
    files = ["b.py", "a.py", "2024/my-dag.v2.py", "package/__init__.py", "package/part.py", "twice.py", "a.py"]
    assert process.run("result = [[dag.dag_id for dag in bundle.dags_of(file)] for file in files]", files=files) == [
        ["b"], ["a"], ["unusual"], ["of_package"], ["of_part"], ["hidden"], ["a"],
    ]  # fmt: skip
    assert process.run("result = bundle.imported_files()") == {*files, "twice/__init__.py"}


def test_no_byte_code_is_written_and_none_is_read(process: OwnProcess, bundle: BundleFolder) -> None:
    stale = Path(str(py_compile.compile(str(bundle.write("helpers.py", "VALUE = 'old'")), doraise=True)))
    file = bundle.write("helpers.py", "VALUE = 'new'")  # of the same length, and as old, as far as byte code knows
    written = int.from_bytes(stale.read_bytes()[8:12], "little")
    os.utime(file, (written, written))
    bundle.write("package/inner.py", "VALUE = 1")
    before = sorted(path.name for path in bundle.root.rglob("*.pyc"))
    process.run(ENTER)
    assert process.run("import helpers, package.inner\nresult = helpers.VALUE") == "new"
    assert sorted(path.name for path in bundle.root.rglob("*.pyc")) == before == [stale.name]


def test_pickles_name_its_modules_and_take_them_along_where_that_is_asked_for(
    process: OwnProcess, bundle: BundleFolder
) -> None:
    bundle.write("helpers.py", "import package.inner\ndef twice(x): return package.inner.FACTOR * x")
    bundle.write("package/inner.py", "FACTOR = 2")
    bundle.write("late.py", "class Late: value = 3")
    by_name = """
        import pickle
        from pyspark import cloudpickle
        import helpers
        result = pickle.dumps(helpers.twice), cloudpickle.dumps(helpers.twice)
    """
    process.run(ENTER)
    for pickled in process.run(by_name):
        assert b"helpers" in pickled and b"FACTOR" not in pickled
    by_value = """
        import helpers
        def work():
            from late import Late  # only now
            return cloudpickle.dumps(Late)
        result = cloudpickle.dumps(helpers.twice), work()
    """
    process.run(ENTER.replace("(root)", "(root, by_value=True)"))
    function, late = process.run(by_value)
    with OwnProcess() as worker:  # it does not have the bundle
        program = "import pickle\nresult = pickle.loads(function)(21), pickle.loads(late).value"
        assert worker.run(program, function=function, late=late) == (42, 3)


def test_another_bundle_takes_the_place_of_the_one_before(
    process: OwnProcess, bundle: BundleFolder, tmp_path: Path
) -> None:
    bundle.write("helpers.py", "VALUE = 'first'")
    bundle.write("first_only.py", "")
    (tmp_path / "second").mkdir()
    (tmp_path / "second" / "helpers.py").write_text("VALUE = 'second'")
    process.run(ENTER)
    assert process.run("import helpers, first_only\nresult = helpers.VALUE") == "first"
    process.run(ENTER, root=tmp_path / "second")
    assert process.run("import helpers\nresult = helpers.VALUE") == "second"
    with pytest.raises(ModuleNotFoundError, match="No module named 'first_only'"):
        process.run("import first_only")
    left = process.run(
        "bundle.leave()\nresult = sys.path, [str(one) for one in sys.path_hooks], 'helpers' in sys.modules"
    )
    assert not {str(bundle.root), str(tmp_path / "second")} & set(left[0])
    assert "_finder_at" not in "".join(left[1]) and left[2] is False
