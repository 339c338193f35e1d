"""Bundles with packages of their own: real environments, installed by pip from wheels that are made here."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from support.bundle_folder import BundleFolder
from support.tiny_wheel import make_wheel

from backfill_manager.dags.bundles.environment import (
    COMPLETE,
    check_environments,
    environments_folder,
    interpreter_of,
    read_requirements,
)
from backfill_manager.dags.bundles.environment import interpreter_of_version as located
from backfill_manager.dags.catalog import DagCatalog
from backfill_manager.dags.importing.loader import DagLoader
from backfill_manager.dags.parsers.bundle_state import BundleState
from backfill_manager.dags.parsers.local_parse import parse_bundle
from backfill_manager.dags.parsers.registry import parser_for
from backfill_manager.dags.versions import Submission
from backfill_manager.errors import InvalidConfig, InvalidInput, StateError
from backfill_manager.model.records import DagVersion
from backfill_manager.processes import interpreter
from backfill_manager.settings import BundleSettings, RawSettings, Settings
from backfill_manager.testing import FakeClock

DAG = """\
import tiny
from backfill_manager import dag, task

@dag({name!r}, description=f"tiny {{tiny.VERSION}}")
def made():
    @task
    def t(ctx): ...
    t()
"""
UV = shutil.which("uv")
MINOR = f"{sys.version_info.major}.{sys.version_info.minor}"


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheels")
    for version in ("1.0", "2.0"):
        make_wheel(folder, "tiny", version, {"tiny.py": f"VERSION = {version!r}\n"})
    make_wheel(folder, "of-another-spark", "1.0", {"of_another_spark.py": ""}, requires=("pyspark==3.5.0",))
    return folder


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One for the module: an environment is made once for all tests that need it."""
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(autouse=True)
def _installs_from(wheels: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By pip, from the folder of wheels alone."""
    monkeypatch.setenv("PATH", "/usr/bin:/bin")  # without uv
    monkeypatch.setenv("BFM_CACHE", str(cache))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(wheels))


@pytest.fixture(scope="module")
def loader() -> Iterator[DagLoader]:
    with DagLoader(workers=1) as loader:
        yield loader


@pytest.fixture
def bundle(tmp_path: Path, loader: DagLoader) -> BundleFolder:
    folder = BundleFolder(tmp_path / "bundle", tmp_path / "snapshots", loader)
    folder.write("made.py", DAG.format(name="d"))
    return folder


def descriptions(submission: Submission) -> list[str]:
    assert submission.failed == ()
    return [spec.description for parsed in submission.parsed for spec in parsed.dags]


def environments() -> list[Path]:
    folder = environments_folder()
    return sorted(place for place in folder.iterdir() if place.is_dir()) if folder.is_dir() else []


def plain_environment(place: Path, *wheels: Path) -> str:
    """An environment of nobody's, with these wheels."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(place)], check=True)
    site = place / "lib" / f"python{MINOR}" / "site-packages"
    for wheel in wheels:
        shutil.unpack_archive(wheel, site, "zip")
    return str(place / "bin" / "python")


# -- which packages a bundle gets ---------------------------------------------------------------------------------------


def test_two_bundles_with_two_versions_of_a_package_are_parsed_side_by_side(tmp_path: Path, loader: DagLoader) -> None:
    def scan(version: str) -> Submission:
        folder = BundleFolder(tmp_path / version, tmp_path / "snapshots", loader)
        folder.write("made.py", DAG.format(name=f"d{version[0]}"))
        folder.write("requirements.txt", f"tiny=={version}\n")
        return folder.scan(requirements="requirements.txt")

    with ThreadPoolExecutor(2) as threads:
        one, two = threads.map(scan, ("1.0", "2.0"))
    assert (descriptions(one), descriptions(two)) == (["tiny 1.0"], ["tiny 2.0"])
    assert one.python != two.python
    assert {one.python, two.python} <= {str(place / "bin/python") for place in environments()}


def test_the_requirements_of_the_settings_are_readable_for_their_owner_only(bundle: BundleFolder) -> None:
    before = os.umask(0o022)
    try:
        bundle.scan(requirements=["--extra-index-url http://ada:hunter2@127.0.0.1:9/simple", "tiny==1.0"])
    finally:
        os.umask(before)
    kept = [file for place in environments() for file in place.glob("*.txt") if "hunter2" in file.read_text()]
    assert [file.stat().st_mode & 0o777 for file in kept] == [0o600]


def test_an_environment_has_the_managers_own_spark_and_its_own_packages_first(bundle: BundleFolder) -> None:
    import pyspark

    bundle.write("made.py", "import backfill_manager, pyspark, sys\nfrom backfill_manager import dag, sql\n"
        "@dag('d', description=f'{pyspark.__file__} {sys.prefix}')\ndef d():\n    sql('s', 'SELECT 1')\n")  # fmt: skip
    submission = bundle.scan(requirements=["tiny==1.0"])
    assert submission.python is not None
    assert descriptions(submission) == [f"{pyspark.__file__} {Path(submission.python).parents[1]}"]


def test_requirements_are_installed_once_and_others_make_another_environment(bundle: BundleFolder) -> None:
    bundle.write("requirements.txt", "-r more.txt\n")
    bundle.write("more.txt", "tiny==1.0  # first\n")
    first = bundle.scan(requirements="requirements.txt")
    made = Path(str(first.python)).parents[1]
    written = (made / "pyvenv.cfg").stat().st_mtime_ns, environments()
    os.utime(made / COMPLETE, (0, 0))
    assert bundle.scan(requirements="requirements.txt").python == first.python
    assert written == ((made / "pyvenv.cfg").stat().st_mtime_ns, environments())
    assert (made / COMPLETE).stat().st_mtime > 0  # in use
    bundle.write("more.txt", "tiny==2.0\n")
    second = bundle.scan(requirements="requirements.txt")
    assert (descriptions(first), descriptions(second)) == (["tiny 1.0"], ["tiny 2.0"])
    assert second.python != first.python and (made / COMPLETE).exists()


def test_another_content_of_a_package_in_the_bundle_is_another_requirement(bundle: BundleFolder) -> None:
    bundle.write("requirements.txt", "tiny==1.0\n./packages/ours  # of this repository\n")
    bundle.write("packages/ours/setup.py", "from setuptools import setup\nsetup(name='ours', py_modules=['ours'])\n")
    read = []
    for text in ("first", "second", "second"):
        bundle.write("packages/ours/ours.py", f"VERSION = {text!r}\n")
        bundle.write("other.py", f"VERSION = {len(read)}\n")
        read.append(read_requirements("requirements.txt", bundle.root))
    assert read[0] != read[1] == read[2]


def test_another_environment_makes_a_new_version_and_the_old_one_keeps_its_own(
    bundle: BundleFolder, loader: DagLoader
) -> None:
    bundle.write("requirements.txt", "tiny==1.0\n")
    bundle.write("sql.py", "from backfill_manager import dag, sql\n@dag('s')\ndef s():\n    sql('s', 'SELECT 1')\n")
    catalog, clock = DagCatalog(), FakeClock()
    state = BundleState(bundle.settings(requirements="requirements.txt"), snapshots=bundle.snapshots)
    parser = parser_for(state, loader, catalog, clock)

    def scan() -> tuple[str, str | None]:
        for submission in parser.scan_results():
            catalog.submit(submission, clock.now())
        spec, version = catalog.read("d")
        return spec.description, version.python

    description, first = scan()
    assert (description, first is not None) == ("tiny 1.0", True)
    bundle.write("requirements.txt", "tiny==2.0\n")
    clock.advance(seconds=30)
    description, second = scan()
    assert (description, second not in (None, first)) == ("tiny 2.0", True)
    assert [version.python for version in catalog.versions.values() if version.dag_id == "d"] == [first, second]
    assert catalog.read("s")[1].python is None  # it has no function to run there


@pytest.mark.skipif(UV is None, reason="there is no uv on PATH")
def test_uv_makes_the_environment_where_it_is_there(
    bundle: BundleFolder, wheels: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", f"{Path(str(UV)).parent}:/usr/bin:/bin")
    monkeypatch.setenv("BFM_CACHE", str(tmp_path / "cache"))
    bundle.write("requirements.txt", f"--no-index\n--find-links {wheels}\ntiny==2.0\n")
    submission = bundle.scan(requirements="requirements.txt")
    assert descriptions(submission) == ["tiny 2.0"]
    assert "uv = " in (Path(str(submission.python)).parents[1] / "pyvenv.cfg").read_text()
    bundle.write("requirements.txt", f"--no-index\n--find-links {wheels}\npyspark==3.5.0\n")
    (failed,) = bundle.scan(requirements="requirements.txt").failed
    assert failed.message.startswith(
        "bundle 'b': the packages of requirements.txt can't be installed: No solution found when resolving dependencies: "
        "Because you require pyspark==3.5.0 and pyspark=="
    )


def test_python_names_an_interpreter_that_has_everything(bundle: BundleFolder) -> None:
    made = str(interpreter_of(bundle.settings(requirements=["tiny==2.0"]), bundle.root))
    submission = bundle.scan(python=made)
    assert (descriptions(submission), submission.python) == (["tiny 2.0"], made)


# -- what goes wrong ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("requirement", "why"),
    [
        ("tiny==3", "Could not find a version that satisfies the requirement tiny==3 (from versions: 1.0, 2.0)"),
        ("tiny one", "Invalid requirement: 'tiny one'"),
        (
            "of-another-spark",
            "Cannot install -r requirements.txt (line 1) because these package versions have conflicting dependencies: "
            "of-another-spark 1.0 depends on pyspark==3.5.0; The user requested (constraint) pyspark==",
        ),
        (
            "pyspark==3.5.0",
            "Cannot install pyspark==3.5.0 because these package versions have conflicting dependencies: The user requested "
            "pyspark==3.5.0; The user requested (constraint) pyspark==",
        ),
    ],
)
def test_requirements_that_cannot_be_installed_are_one_error_of_the_bundle(
    bundle: BundleFolder, loader: DagLoader, requirement: str, why: str
) -> None:
    bundle.write("other.py", DAG.format(name="other"))
    bundle.write("requirements.txt", f"{requirement}\n")
    before = environments()
    submission = bundle.scan(requirements="requirements.txt")
    (failed,) = submission.failed
    assert (failed.file, submission.readable) == (".", False)
    assert failed.message.startswith(f"bundle 'b': the packages of requirements.txt can't be installed: {why}")
    assert "\n" not in failed.message
    assert environments() == before


def test_a_bundle_whose_requirements_are_put_right_is_read_at_the_next_fetch(
    bundle: BundleFolder, loader: DagLoader
) -> None:
    bundle.write("requirements.txt", "tiny==3\n")
    catalog, clock = DagCatalog(), FakeClock()
    parser = parser_for(
        BundleState(bundle.settings(requirements="requirements.txt"), snapshots=bundle.snapshots),
        loader,
        catalog,
        clock,
    )
    for submission in parser.scan_results():
        catalog.submit(submission, clock.now())
    assert ([problem.file for problem in catalog.problems.values() if problem.is_current], catalog.dags) == (["."], {})
    due = parser.due_in()
    assert due is not None and 0 < due <= 30
    bundle.write("requirements.txt", "tiny==1.0\n")
    clock.advance(seconds=30)
    for submission in parser.scan_results():
        catalog.submit(submission, clock.now())
    assert [problem for problem in catalog.problems.values() if problem.is_current] == []
    assert list(catalog.dags) == ["d"]


def test_requirements_that_are_not_there_are_one_error_of_the_bundle(bundle: BundleFolder) -> None:
    (failed,) = bundle.scan(requirements="of/requirements.txt").failed
    why = "its requirements of/requirements.txt can't be read: No such file or directory"
    assert (failed.file, failed.message) == (".", f"bundle 'b': {why}")


def test_an_interpreter_that_does_not_fit_is_one_error_of_the_bundle(bundle: BundleFolder, tmp_path: Path) -> None:
    files = {"pyspark/__init__.py": "", "pyspark/version.py": "__version__ = '3.5.0'\n"}
    python = plain_environment(tmp_path / "venv", make_wheel(tmp_path, "pyspark", "3.5.0", files))
    (failed,) = bundle.scan(python=python).failed
    from pyspark import __version__ as spark

    assert failed.message.startswith(
        f"bundle 'b': its interpreter {python} does not fit: PySpark 3.5.0, backfill_manager is not there, "
        f"delta-spark is not there; it must have Python {MINOR}, PySpark {spark}, "
    )
    assert (failed.file, "\n" in failed.message) == (".", False)


def test_another_version_of_python_does_not_fit(bundle: BundleFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    python = interpreter_of(bundle.settings(requirements=["tiny==1.0"]), bundle.root)
    interpreter._fitting.clear()
    own = interpreter._own_versions()
    monkeypatch.setattr(interpreter, "_own_versions", lambda: {**own, "python": "3.9"})
    (failed,) = bundle.scan(python=python).failed
    assert f"does not fit: Python {MINOR}; it must have Python 3.9" in failed.message


@pytest.mark.parametrize(
    ("python", "why"),
    [
        ("/nowhere/bin/python", "its interpreter /nowhere/bin/python does not exist"),
        ("/tmp", "python /tmp is a folder; name the interpreter in it, such as /tmp/bin/python"),
        ("/bin/false", "its interpreter /bin/false can't import what parsing and tasks need: exit code 1"),
        ("/bin/echo", "its interpreter /bin/echo can't import what parsing and tasks need: exit code 0"),
        ("/etc/hostname", "its interpreter /etc/hostname can't be started: "),
    ],
)
def test_what_is_no_interpreter_is_one_error_of_the_bundle(bundle: BundleFolder, python: str, why: str) -> None:
    (failed,) = bundle.scan(python=python).failed
    assert failed.file == "." and failed.message.startswith(f"bundle 'b': {why}")


def test_half_an_environment_that_a_kill_has_left_is_made_again(bundle: BundleFolder, tmp_path: Path) -> None:
    settings = bundle.settings(requirements=["tiny==1.0", "# of the process that is killed"])
    program = (
        "import sys; from pathlib import Path; from backfill_manager.settings import BundleSettings\n"
        "from backfill_manager.dags.bundles.environment import interpreter_of\n"
        "interpreter_of(BundleSettings.model_validate_json(sys.argv[1]), Path(sys.argv[2]))"
    )
    before = set(environments())
    command = [sys.executable, "-c", program, settings.model_dump_json(exclude_unset=True), str(bundle.root)]
    maker = subprocess.Popen(command, stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 60
    while not (new := set(environments()) - before) and maker.poll() is None and time.monotonic() < deadline:
        os.sched_yield()
    maker.send_signal(signal.SIGKILL)
    maker.wait()
    (half,) = new
    assert not (half / COMPLETE).exists()
    assert interpreter_of(settings, bundle.root) == str(half / "bin/python")
    assert (half / COMPLETE).exists() and descriptions(bundle.scan(requirements=settings.requirements)) == ["tiny 1.0"]


def test_an_environment_that_two_want_at_once_is_made_by_one(bundle: BundleFolder) -> None:
    settings = bundle.settings(requirements=["tiny==2.0", "# of two at once"])
    before = environments()
    with ThreadPoolExecutor(2) as threads:
        one, two = threads.map(lambda _: interpreter_of(settings, bundle.root), range(2))
    assert (one, len(environments())) == (two, len(before) + 1)


def test_the_interpreter_of_a_version_that_is_gone_is_an_error_that_tells_the_cure(
    bundle: BundleFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    python = str(interpreter_of(bundle.settings(requirements=["tiny==1.0"]), bundle.root))
    assert located(of_version(python)) == python
    elsewhere = f"/of/another/user/environments/{Path(python).parts[-3]}/bin/python"
    assert located(of_version(elsewhere)) == python
    assert located(of_version(None)) is None
    (Path(python).parents[1] / COMPLETE).rename(tmp_path / "complete")  # as if it were being made
    with pytest.raises(StateError, match="is gone"):
        located(of_version(python))
    (tmp_path / "complete").rename(Path(python).parents[1] / COMPLETE)
    monkeypatch.setenv("BFM_CACHE", str(tmp_path / "empty"))
    with pytest.raises(StateError) as error:
        located(of_version(elsewhere))
    assert str(error.value) == (
        f"The interpreter of DAG 'd' version 3 is gone: there is no {elsewhere}. It is made again when the bundle is parsed "
        "with the same requirements (`bfm bundles parse`); or clear the run with the latest version."
    )
    with pytest.raises(StateError, match=r"there is no /nowhere/python\. Install it there again; or clear the run"):
        located(of_version("/nowhere/python"))


def of_version(python: str | None) -> DagVersion:
    return DagVersion(
        dag_id="d", version=3, content_hash="", definition_json="{}", bundle="b", file="made.py", snapshot="/s",
        created_at=FakeClock().now(), commit_id=None, reader_json=None, python=python,
    )  # fmt: skip


# -- settings -------------------------------------------------------------------------------------------------------------


def test_config_check_finds_an_interpreter_and_requirements_that_are_not_there(bundle: BundleFolder) -> None:
    settings = Settings(
        bundles=[
            BundleSettings(name="a", path=str(bundle.root), python="/nowhere/python"),
            BundleSettings(name="b", path=str(bundle.root), requirements="requirements.txt"),
            BundleSettings(name="c", path=str(bundle.root), requirements=["tiny"]),
        ]
    )
    raw = RawSettings(places={(): "f, line 1", ("bundles", 0, "python"): "f, line 3", ("bundles", 1): "f, line 4"})
    with pytest.raises(InvalidConfig) as error:
        check_environments(settings, raw)
    assert str(error.value).splitlines() == [
        "f, line 3: bundles[0].python: its interpreter /nowhere/python does not exist",
        "f, line 4: bundles[1].requirements: its requirements requirements.txt can't be read: No such file or directory",
    ]


@pytest.mark.parametrize("key", ["python: /usr/bin/python3", "requirements: requirements.txt"])
def test_a_bundle_does_not_choose_its_packages_itself(bundle: BundleFolder, key: str) -> None:
    bundle.write("manifest.yaml", f"version: v1beta\n{key}\n")
    (failed,) = bundle.scan().failed
    name = key.partition(":")[0]
    assert failed.message == f"manifest.yaml, line 2: {name} is set in the configuration file, not by the bundle itself"


def test_a_file_that_imports_what_is_not_installed_is_an_error_of_the_file(bundle: BundleFolder) -> None:
    submission = parse_bundle(bundle.settings(), snapshots=bundle.snapshots)
    (failed,) = submission.failed
    assert (failed.file, failed.message) == ("made.py", "ModuleNotFoundError: No module named 'tiny'")
    with pytest.raises(InvalidInput, match="can't be installed"):
        interpreter_of(bundle.settings(requirements=["nothing-of-this-name"]), bundle.root)
