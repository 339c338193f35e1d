"""spark-submit.sh and tests/run on machines that lack something, and what they pass to Spark. Nothing is installed or started."""

from __future__ import annotations

import importlib.metadata
import os
import shutil
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

from backfill_manager.errors import InvalidInput
from backfill_manager.settings import Settings

REPOSITORY = Path(__file__).parents[1]
TIMEOUT_S = 180
SUBMIT, RUN_TESTS = REPOSITORY / "spark-submit.sh", REPOSITORY / "tests" / "run"


def run(*command: str | Path, **environ: str) -> subprocess.CompletedProcess[str]:
    clean = {name: value for name, value in os.environ.items() if name not in {"JAVA_HOME", "PYTHON"}}
    return subprocess.run(
        [str(word) for word in command], env={**clean, **environ}, capture_output=True, text=True, timeout=TIMEOUT_S, check=False
    )  # fmt: skip


def program(folder: Path, name: str, text: str) -> Path:
    folder.mkdir(exist_ok=True, parents=True)
    path = folder / name
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


# -- the machine ------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("script", [SUBMIT, RUN_TESTS])
@pytest.mark.parametrize(
    ("says", "found"), [('openjdk version "11.0.2"', "Java 11"), ('java version "1.8.0_392"', "Java 8")]
)
def test_an_old_java_is_refused_with_what_to_install(script: Path, says: str, found: str, tmp_path: Path) -> None:
    program(tmp_path, "java", f"echo '{says} 2019-01-15' >&2")
    done = run(script, PATH=f"{tmp_path}:{os.environ['PATH']}")
    assert done.returncode == 2
    assert f"Java 17 or newer is needed; found: {found}." in done.stderr
    for system in ("Debian", "Fedora", "macOS"):
        assert system in done.stderr


def test_no_java_at_all_is_reported(tmp_path: Path) -> None:
    done = run(SUBMIT, "demo", JAVA_HOME=str(tmp_path))
    assert done.returncode == 2
    assert f"found: none (JAVA_HOME={tmp_path})" in done.stderr


def in_a_copy(tmp_path: Path, command: str, **environ: str) -> subprocess.CompletedProcess[str]:
    """Run a line of bash that has sourced conf/bootstrap.sh, in a folder that holds the pins and nothing else."""
    folder = tmp_path / "a copy"
    if not folder.exists():
        (folder / "conf").mkdir(parents=True)
        for name in ("setup.cfg", "pyproject.toml", "conf/constraints.txt", "conf/bootstrap.sh"):
            shutil.copy(REPOSITORY / name, folder / name)
    line = f'set -euo pipefail; cd "{folder}"; . conf/bootstrap.sh; {command}'
    return run("bash", "-c", line, **environ)


@pytest.mark.parametrize("codes", [(0, 0, 0), (1, 0, 0), (0, 2, 0), (0, 0, 3), (3, 2, 1)])
def test_all_parts_of_the_suite_must_pass_and_are_shown(tmp_path: Path, codes: tuple[int, int, int]) -> None:
    in_a_copy(tmp_path, "mkdir -p .venv tests && stamp_text >.venv/.installed-test")
    copy = tmp_path / "a copy"
    shutil.copy(RUN_TESTS, copy / "tests" / "run")
    parts = f"""case "$*" in
        "-m pytest -o"*" -m spark") echo with Spark; exit {codes[0]};;
        "-m pytest -o"*" -m processes and not spark") echo processes; exit {codes[1]};;
        "-m pytest -o"*" -m not processes and not spark") echo others; exit {codes[2]};;
        "-m pytest"*) echo "alone: $*";;
    esac"""
    program(copy / ".venv" / "bin", "python", parts)
    done = run(copy / "tests" / "run")
    shown = {"spark": "with Spark\n", "processes": "processes\n", "others": "others\n"}
    broken_off = {name: code for name, code in zip(shown, codes, strict=True) if code}
    last_lines = (
        f"BROKEN OFF: part {name} ended with exit code {broken_off[name]}; its last lines:\n{shown[name]}"
        for name in ("processes", "others", "spark")
        if name in broken_off
    )
    *first, rest = done.stdout.split("\n", len(shown))  # whichever ends first is shown first
    assert (done.returncode, rest) == (int(any(codes)), "".join(last_lines))
    assert sorted(f"{line}\n" for line in first) == sorted(shown.values())
    chosen = run(copy / "tests" / "run", "-k", "one story")
    assert (chosen.returncode, chosen.stdout) == (0, "alone: -m pytest -k one story\n")


@pytest.mark.parametrize(
    ("arguments", "form"), [((), " --budget 2"), (("--budget", "8"), " --budget 8"), (("--all",), "")]
)
def test_each_form_of_the_suite_has_the_same_parts(tmp_path: Path, arguments: tuple[str, ...], form: str) -> None:
    in_a_copy(tmp_path, "mkdir -p .venv tests && stamp_text >.venv/.installed-test")
    copy = tmp_path / "a copy"
    shutil.copy(RUN_TESTS, copy / "tests" / "run")
    parts = f"""case "$*" in
        "-m pytest -o "*"/cache-spark{form} --durations=25 --durations-min=10 -m spark") echo with Spark;;
        "-m pytest -o "*"/cache-processes{form} --durations=25 --durations-min=10 -m processes and not spark") echo processes;;
        "-m pytest -o "*"/cache-others{form} --durations=25 --durations-min=10 -m not processes and not spark") echo others;;
        "-m pytest"*) echo "alone: $*";;
    esac"""
    program(copy / ".venv" / "bin", "python", parts)
    done = run(copy / "tests" / "run", *arguments)
    assert (done.returncode, sorted(done.stdout.splitlines())) == (0, ["others", "processes", "with Spark"])


@pytest.mark.parametrize(
    "arguments", [("--budget", "8", "tests/store"), ("--all", "tests/store"), ("--slow", "tests/e2e")]
)
def test_what_chooses_tests_is_one_process(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    in_a_copy(tmp_path, "mkdir -p .venv tests && stamp_text >.venv/.installed-test")
    copy = tmp_path / "a copy"
    shutil.copy(RUN_TESTS, copy / "tests" / "run")
    program(copy / ".venv" / "bin", "python", """case "$*" in "-m pytest"*) echo "alone: $*";; esac""")
    alone = run(copy / "tests" / "run", *arguments)
    assert (alone.returncode, alone.stdout) == (0, f"alone: -m pytest {' '.join(arguments)}\n")


@pytest.mark.parametrize(
    ("failed", "passes_alone", "is_green"), [(1, True, True), (3, True, True), (4, True, False), (1, False, False)]
)
def test_a_few_failed_tests_run_again_alone(tmp_path: Path, failed: int, passes_alone: bool, is_green: bool) -> None:
    in_a_copy(tmp_path, "mkdir -p .venv tests && stamp_text >.venv/.installed-test")
    copy = tmp_path / "a copy"
    shutil.copy(RUN_TESTS, copy / "tests" / "run")
    lines = "\n".join(f'  "tests/test_a.py::test_{number}": true,' for number in range(failed))
    parts = f"""case "$*" in
        "-m pytest -o"*"/cache-processes --budget 2 --last-failed --last-failed-no-failures none")
            echo again; exit {int(not passes_alone)};;
        "-m pytest -o"*" -m processes and not spark")
            cache=${{4#cache_dir=}}/v/cache; mkdir -p "$cache"; echo '{{\n{lines}\n}}' >"$cache/lastfailed"; echo failed; exit 1;;
    esac"""
    program(copy / ".venv" / "bin", "python", parts)
    done = run(copy / "tests" / "run")
    unsteady = f"UNSTEADY: {failed} failed above, in part processes beside the others, and passed alone; they are to be mended\n"
    names = "".join(f"    tests/test_a.py::test_{number}\n" for number in range(failed))
    in_the_end = unsteady if is_green else f"FAILED: {failed} in part processes:\n{names}"
    output = "failed\n" + "again\n" * (failed <= 3) + in_the_end
    assert (done.returncode, done.stdout) == (int(not is_green), output)


def test_a_run_of_the_suite_that_is_broken_off_shows_how_far_each_part_came(tmp_path: Path) -> None:
    in_a_copy(tmp_path, "mkdir -p .venv tests && stamp_text >.venv/.installed-test")
    copy = tmp_path / "a copy"
    shutil.copy(RUN_TESTS, copy / "tests" / "run")
    parts = """case "$*" in
        "-m pytest -o"*" -m spark") until [ -e half ] && [ -e ended ]; do sleep 0.01; done; kill "$PPID";;
        "-m pytest -o"*" -m processes and not spark") echo came to a half; touch half; exec sleep 600;;
        "-m pytest"*) echo others; touch ended;;
    esac"""
    program(copy / ".venv" / "bin", "python", parts)
    done = run(copy / "tests" / "run")
    assert (done.returncode, done.stdout) == (143, "came to a half\nothers\n")


def test_an_old_python_is_refused_with_what_to_install(tmp_path: Path) -> None:
    old = program(tmp_path, "python3.6", '[ "$1" = --version ] || exit 1; echo Python 3.6.15')
    done = in_a_copy(tmp_path, "install_extra demo", PYTHON=str(old))
    assert done.returncode == 2
    assert f"Python 3.10 or newer is needed; found: Python 3.6.15 (PYTHON={old})." in done.stderr
    for system in ("Debian", "Fedora", "macOS"):
        assert system in done.stderr


PIP = """
case "$*" in
    *--version*) exit 0 ;;
    *install*) echo "$@" >>"$(dirname "$0")/pip-calls"; [ ! -e "$(dirname "$0")/no-network" ] ;;
esac
"""


def calls_of_pip(tmp_path: Path) -> list[str]:
    calls = tmp_path / "a copy" / ".venv" / "bin" / "pip-calls"
    return calls.read_text().splitlines() if calls.exists() else []


@pytest.fixture
def venv(tmp_path: Path) -> Path:
    """A `.venv` whose Python notes what pip is asked for, and installs nothing."""
    in_a_copy(tmp_path, "true")
    return program(tmp_path / "a copy" / ".venv" / "bin", "python", PIP).parent


def test_a_second_start_runs_no_pip(tmp_path: Path, venv: Path) -> None:
    first, second = (in_a_copy(tmp_path, "install_extra demo") for _ in range(2))
    assert (first.returncode, second.returncode) == (0, 0)
    assert "Installing" in first.stderr and second.stderr == ""
    assert len(calls_of_pip(tmp_path)) == 1
    assert "-c conf/constraints.txt -e .[demo]" in calls_of_pip(tmp_path)[0]


def test_who_has_the_test_extra_has_the_demo_extra_too_but_not_the_reverse(tmp_path: Path, venv: Path) -> None:
    for extra in ("demo", "test", "demo", "test"):
        assert in_a_copy(tmp_path, f"install_extra {extra}").returncode == 0
    assert [call.split()[-1] for call in calls_of_pip(tmp_path)] == [".[demo]", ".[test]"]


def test_a_changed_pin_installs_again(tmp_path: Path, venv: Path) -> None:
    in_a_copy(tmp_path, "install_extra demo")
    with (tmp_path / "a copy" / "setup.cfg").open("a") as pins:
        pins.write("\n# another pin\n")
    in_a_copy(tmp_path, "install_extra demo")
    assert len(calls_of_pip(tmp_path)) == 2


def test_what_is_pinned_can_be_installed_on_every_python_that_it_is_pinned_for() -> None:
    """By what is installed here: a release that has left an older Python behind needs a marker, and another pin for that one."""
    installed = {canonicalize_name(one.metadata["Name"]): one for one in importlib.metadata.distributions()}
    compared, wrong = 0, list[str]()
    for line in (REPOSITORY / "conf" / "constraints.txt").read_text().splitlines():
        pin = None if line.startswith("#") or not line.strip() else Requirement(line)
        found = None if pin is None else installed.get(canonicalize_name(pin.name))
        if pin is None or found is None or not pin.specifier.contains(found.version):
            continue
        compared += 1
        allowed = SpecifierSet(found.metadata.get("Requires-Python", ""))
        wrong += [
            f"{pin} on Python {python}: needs {allowed}" for python in ("3.10", "3.11", "3.12", "3.13")
            if (pin.marker is None or pin.marker.evaluate({"python_version": python})) and not allowed.contains(f"{python}.9")
        ]  # fmt: skip
    assert wrong == []
    assert compared > 100


def test_an_install_that_failed_is_reported_and_tried_again(tmp_path: Path, venv: Path) -> None:
    (venv / "no-network").touch()
    failed = in_a_copy(tmp_path, "install_extra demo")
    assert failed.returncode == 2
    assert "pip could not install" in failed.stderr
    (venv / "no-network").unlink()
    assert in_a_copy(tmp_path, "install_extra demo").returncode == 0
    assert len(calls_of_pip(tmp_path)) == 2


# -- arguments --------------------------------------------------------------------------------------------------------
def test_help_needs_nothing_and_names_both_ways() -> None:
    done = run(SUBMIT, "--help", JAVA_HOME="/nonexistent")
    assert done.returncode == 0
    assert "demo [--year]" in done.stdout and "-- OPTIONS" in done.stdout


def test_an_unknown_argument_is_refused_before_anything_is_installed() -> None:
    done = run(SUBMIT, "dmeo", JAVA_HOME="/nonexistent")
    assert done.returncode == 2
    assert done.stderr.startswith("spark-submit.sh does not know dmeo.")


def test_scripts_can_be_started_as_they_are() -> None:
    for script in (SUBMIT, RUN_TESTS, REPOSITORY / ".ci" / "run"):
        assert os.access(script, os.X_OK), script


def submit(*words: str, cwd: Path, **environ: str) -> subprocess.CompletedProcess[str]:
    """jobs/submit.py as spark-submit.sh starts it, from another folder."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith("BFM_")}
    return subprocess.run(
        [sys.executable, str(REPOSITORY / "jobs" / "submit.py"), *words],
        cwd=cwd, env={**clean, **environ}, capture_output=True, text=True, timeout=TIMEOUT_S, check=False,
    )  # fmt: skip


def test_a_wrong_setting_is_one_line_before_spark_starts(tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text("lease: {seconds: soon}\n")
    done = submit("demo", cwd=tmp_path, BFM_CONF="mine.yaml")  # as seen from where the person is
    assert done.returncode == 2
    assert done.stdout == ""
    assert f"{tmp_path}/mine.yaml, line 1: lease.seconds" in done.stderr


def test_an_unknown_argument_of_the_demo_is_refused(tmp_path: Path) -> None:
    done = submit("demo", "--decade", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert "demo does not know --decade" in done.stderr


def test_the_demo_does_not_put_its_state_into_a_catalog(tmp_path: Path) -> None:
    done = submit("demo", cwd=tmp_path, BFM_STATE="main.jobs", BFM_WAREHOUSE=str(tmp_path))
    assert done.returncode == 2
    assert "unset BFM_STATE" in done.stderr


# -- what Spark is given ----------------------------------------------------------------------------------------------
EXTENSION = {"spark.sql.extensions": "a.Extension"}


@pytest.fixture
def jobs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(REPOSITORY / "jobs")


def values(arguments: list[str], name: str) -> list[str]:
    return [value for option, value in pairwise(arguments) if option == name]


@pytest.mark.usefixtures("jobs")
def test_delta_the_fair_scheduler_and_loopback_are_given_at_submit_time() -> None:
    from spark_driver import spark_arguments

    arguments = spark_arguments(Settings(), [])
    assert values(arguments, "--master") == ["local[*]"]
    assert [Path(jar).name[:11] for jar in values(arguments, "--jars")[0].split(",")] == ["delta-spark", "delta-stora"]
    assert {
        "spark.sql.extensions=io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog=org.apache.spark.sql.delta.catalog.DeltaCatalog",
        "spark.scheduler.mode=FAIR",
        "spark.driver.host=127.0.0.1",
    } <= set(values(arguments, "--conf"))


@pytest.mark.usefixtures("jobs")
@pytest.mark.parametrize("options", [["--master", "spark://there:7077"], ["--master=spark://there:7077"]])
def test_a_cluster_is_not_given_the_loopback_address(options: list[str]) -> None:
    from spark_driver import spark_arguments

    arguments = spark_arguments(Settings(), options)
    assert arguments[-len(options) :] == options  # last, so that it wins
    assert "spark.driver.host=127.0.0.1" not in values(arguments, "--conf")


@pytest.mark.usefixtures("jobs")
@pytest.mark.parametrize(
    "options",
    [
        ["--jars", "a.jar,b.jar"],
        ["--jars=a.jar", "--jars", "b.jar"],
        ["--conf", "spark.jars=a.jar", "--jars=b.jar"],
        ["--conf=spark.jars=a.jar,b.jar"],
    ],
)
def test_additional_jars_are_passed_beside_deltas(options: list[str]) -> None:
    from spark_driver import spark_arguments

    arguments = spark_arguments(Settings(), [*options, "--verbose"])
    (jars,) = values(arguments, "--jars")
    assert jars.split(",")[2:] == ["a.jar", "b.jar"]
    assert arguments[-1] == "--verbose" and "--jars=a.jar" not in arguments


@pytest.mark.usefixtures("jobs")
def test_jars_of_manager_yaml_are_passed_beside_deltas_and_those_of_the_options() -> None:
    from spark_driver import spark_arguments

    from backfill_manager.execution.spark.session import jars_beside_deltas
    from backfill_manager.settings import SparkSettings

    conf = {"spark.jars": "a.jar,b.jar", "spark.driver.memory": "5g"}
    arguments = spark_arguments(Settings(spark=SparkSettings(conf=conf)), ["--jars", "c.jar", "--conf", "spark.x=1"])
    (jars,) = values(arguments, "--jars")
    assert jars.split(",")[2:] == ["a.jar", "b.jar", "c.jar"]
    assert arguments[-2:] == ["--conf", "spark.x=1"]
    assert not [one for one in values(arguments, "--conf") if one.startswith("spark.jars=")]
    assert jars_beside_deltas(conf) == (["a.jar", "b.jar"], {"spark.driver.memory": "5g"})


@pytest.mark.usefixtures("jobs")
@pytest.mark.parametrize(("conf", "options"), [(EXTENSION, []), ({}, ["--conf", "spark.sql.extensions=a.Extension"])])
def test_extensions_of_sparks_sql_are_passed_beside_deltas(conf: dict[str, str], options: list[str]) -> None:
    from spark_driver import spark_arguments

    from backfill_manager.settings import SparkSettings

    arguments = spark_arguments(Settings(spark=SparkSettings(conf=conf)), options)
    given = [one for one in values(arguments, "--conf") if one.startswith("spark.sql.extensions=")]
    assert given[-1] == "spark.sql.extensions=io.delta.sql.DeltaSparkSessionExtension,a.Extension"


@pytest.mark.usefixtures("jobs")
@pytest.mark.parametrize("options", [[], ["--properties-file", "own.conf"]])
def test_what_a_site_has_in_sparks_conf_folder_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: list[str]
) -> None:
    from spark_driver import spark_arguments, spark_environment

    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path))
    file = tmp_path / (options[-1] if options else "spark-defaults.conf")
    file.write_text("spark.jars a.jar\nspark.sql.extensions a.Extension\n")
    arguments = spark_arguments(Settings(), options)
    assert values(arguments, "--jars")[0].split(",")[2:] == ["a.jar"]
    assert "spark.sql.extensions=io.delta.sql.DeltaSparkSessionExtension,a.Extension" in values(arguments, "--conf")
    assert "log4j2.configurationFile" in spark_environment(os.environ, "local")["SPARK_SUBMIT_OPTS"]
    (tmp_path / "log4j2.properties").touch()
    assert "log4j2.configurationFile" not in spark_environment(os.environ, "local")["SPARK_SUBMIT_OPTS"]


@pytest.mark.usefixtures("jobs")
def test_spark_settings_of_manager_yaml_come_after_the_defaults() -> None:
    from spark_driver import spark_arguments

    from backfill_manager.settings import SparkSettings

    settings = Settings(spark=SparkSettings(master="local[3]", conf={"spark.driver.memory": "5g"}))
    arguments = spark_arguments(settings, [])
    assert values(arguments, "--master") == ["local[3]"]
    assert [one for one in values(arguments, "--conf") if "driver.memory" in one] == ["spark.driver.memory=5g"]


@pytest.mark.usefixtures("jobs")
@pytest.mark.parametrize(
    "options", [["--conf", "spark.master=spark://there:7077"], ["--conf=spark.master=spark://there:7077"], []]
)
def test_a_master_among_sparks_properties_is_the_one_that_is_taken(options: list[str]) -> None:
    from spark_driver import spark_arguments

    from backfill_manager.settings import SparkSettings

    configured = {} if options else {"spark.master": "spark://there:7077"}
    arguments = spark_arguments(Settings(spark=SparkSettings(conf=configured)), options)
    assert values(arguments, "--master") == ["spark://there:7077"]
    assert "spark.driver.host=127.0.0.1" not in values(arguments, "--conf")


@pytest.mark.usefixtures("jobs")
def test_relative_paths_begin_where_the_person_is_and_uris_and_catalogs_stay() -> None:
    from submit import absolute_paths

    environ = {"BFM_STATE": "s3://bucket/state", "BFM_WAREHOUSE": "../wh", "BFM_CONF": "/etc/manager.yaml", "HOME": "x"}
    assert absolute_paths(environ, "/home/me") == {"BFM_WAREHOUSE": "/home/wh", "BFM_CONF": "/etc/manager.yaml"}
    assert absolute_paths({"BFM_STATE": "main.jobs"}, "/home/me") == {}
    others = {"BFM_SNAPSHOTS": "./snapshots", "BFM_SECRETS__FILES": "secrets"}
    assert absolute_paths(others, "/me") == {"BFM_SNAPSHOTS": "/me/snapshots", "BFM_SECRETS__FILES": "/me/secrets"}


@pytest.mark.usefixtures("jobs")
def test_state_and_configuration_of_the_options_are_those_of_spark_too(tmp_path: Path) -> None:
    from submit import places_typed

    options = ["--until-idle", "--state", "s3://b/s", "--timezone", "utc", "--conf=../my.yaml"]
    typed = {"BFM_STATE": "s3://b/s", "BFM_CONF": "../my.yaml"}
    assert places_typed(options) == (typed, ["--until-idle", "--timezone", "utc"])

    (tmp_path / "my.yaml").write_text("nonsense: 1\n")
    environ = {name: value for name, value in os.environ.items() if not name.startswith("BFM_")}
    program = [sys.executable, str(REPOSITORY / "jobs" / "submit.py"), "start", "--conf", "my.yaml"]
    refused = subprocess.run(program, cwd=tmp_path, env=environ, capture_output=True, text=True, check=False)
    assert (refused.returncode, refused.stdout) == (2, "")
    assert refused.stderr.startswith(f"{tmp_path / 'my.yaml'}") and "nonsense" in refused.stderr

    with pytest.raises(InvalidInput, match="must not be empty"):
        places_typed(["--state", ""])
