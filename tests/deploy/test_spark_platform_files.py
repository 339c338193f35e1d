"""Settings of Spark on each platform, and the files of YARN and Databricks."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
import zipfile
from functools import cache
from pathlib import Path

import pytest
from support.deploy_files import (
    DATABRICKS,
    DEPLOYMENTS,
    REPOSITORY,
    SPARK,
    SYSTEMD,
    YARN,
    databricks_cluster,
    databricks_job,
    pod_environment,
    read_yaml,
    text_of,
    unit_environment,
)

import backfill_manager
from backfill_manager.execution.spark.jars import java
from backfill_manager.execution.spark.provided_session import SCHEDULER, SUBQUERY_THREADS, TIME_ZONE, problem_of
from backfill_manager.execution.spark.session import BASE_CONF
from backfill_manager.settings import load_settings


# -- Spark's settings -----------------------------------------------------------------------------------------------------
@cache
def names_in_spark() -> frozenset[str]:
    """Every text in Spark's classes that looks like a setting; some are prefixes, and some are written without `spark.`."""
    found: set[bytes] = set()
    for part in ("core", "kubernetes", "yarn", "sql", "catalyst", "common-utils", "sql-api"):
        for jar in (SPARK / "jars").glob(f"spark-{part}_*.jar"):
            with zipfile.ZipFile(jar) as archive:
                for entry in archive.namelist():
                    if entry.endswith(".class") and re.search(r"[Cc]onf|package\$", entry):
                        found |= set(re.findall(rb"spark\.[\w.]+", archive.read(entry)))
    return frozenset(name.decode() for name in found)


def spark_settings() -> dict[str, dict[str, str]]:
    lines = [
        line.split(None, 1) for line in text_of(YARN / "spark-defaults.conf").splitlines() if line[:1] not in ("#", "")
    ]
    of_script = dict.fromkeys(re.findall(r"--conf \"?(spark\.[\w.]+?)[=\"]", text_of(YARN / "submit.sh")), "")
    return {
        "systemd": json.loads(unit_environment(SYSTEMD / "spark-master.conf")["BFM_SPARK__CONF"]),
        "kubernetes": json.loads(pod_environment("manager")["BFM_SPARK__CONF"]),
        "databricks": databricks_cluster()["spark_conf"],
        "yarn": {key: value.strip() for key, value in lines},
        "yarn script": of_script,
    }


@pytest.mark.parametrize("platform", ["systemd", "kubernetes", "databricks", "yarn", "yarn script"])
def test_settings_of_spark_are_names_that_spark_has(platform: str) -> None:
    settings = set(spark_settings()[platform])
    assert settings
    prefixes = {"spark.yarn.appMasterEnv.", "spark.sql.catalog."}
    not_sparks = {"spark.databricks.delta.snapshotPartitions", "spark.databricks.delta.allFilesInCrc.thresholdNumFiles"}
    unknown = {key for key in settings - not_sparks if not any(key.startswith(prefix) for prefix in prefixes)}
    assert unknown - names_in_spark() == set()


def test_a_setting_that_spark_does_not_have_would_be_found() -> None:
    assert "spark.yarn.maxAppAttempt" not in names_in_spark()


def test_yarn_has_what_the_manager_sets_itself_elsewhere() -> None:
    settings = spark_settings()["yarn"]
    assert {key: settings.get(key) for key in BASE_CONF} == dict(BASE_CONF)


def test_a_databricks_cluster_has_what_a_session_that_is_there_needs() -> None:
    conf = spark_settings()["databricks"]
    assert problem_of(conf[TIME_ZONE]) is None and conf[SCHEDULER] == "FAIR"
    assert conf[SUBQUERY_THREADS] == BASE_CONF[SUBQUERY_THREADS]
    assert databricks_cluster()["data_security_mode"] == "SINGLE_USER"


# -- YARN -----------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("mode", ["client", "cluster"])
def test_spark_submit_takes_the_options_of_the_yarn_script(mode: str, tmp_path: Path) -> None:
    """The script with a program in the place of spark-submit that writes its arguments down; Spark's launcher parses these."""
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "spark-submit").write_text('#!/bin/sh\nprintf "%s\\n" "$@"\n')
    (tmp_path / "bin" / "python").write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} "$@"\n')
    for program in (tmp_path / "bin").iterdir():
        program.chmod(0o755)
    environ = {
        "PATH": os.environ["PATH"], "HOME": os.environ["HOME"], "HADOOP_CONF_DIR": str(tmp_path), "BFM_VENV": str(tmp_path),
        "BFM_WAREHOUSE": "/w", "BFM_KEYTAB": "/k", "BFM_PRINCIPAL": "bfm@EXAMPLE.COM", "AWS_REGION": "eu-west-1",
        "AWS_SECRET_ACCESS_KEY": "not to be seen", **{n: v for n, v in os.environ.items() if n in ("BFM_CACHE", "JAVA_HOME")},
    }  # fmt: skip
    done = subprocess.run(
        [str(YARN / "submit.sh"), mode, "--until-idle"], env=environ, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "not to be seen" not in done.stdout
    arguments = done.stdout.splitlines()
    *options, application, own = arguments
    assert (Path(application).resolve(), own) == (REPOSITORY / "jobs" / "manager.py", "--until-idle")
    given = dict(zip(options[::2], options[1::2], strict=True))
    assert (given["--master"], given["--deploy-mode"], given["--keytab"]) == ("yarn", mode, "/k")
    assert Path(given["--properties-file"]).exists() and all(Path(jar).exists() for jar in given["--jars"].split(","))
    in_cluster = {value for value in options if value.startswith("spark.yarn.appMasterEnv.")}
    if mode == "cluster":
        assert "spark.yarn.appMasterEnv.BFM_CONF=manager.yaml" in in_cluster
        assert (
            given["--files"].endswith("#manager.yaml") and "spark.yarn.appMasterEnv.AWS_REGION=eu-west-1" in in_cluster
        )
    else:
        assert not in_cluster and "--files" not in given
    launcher = [
        java(),
        "-cp",
        f"{SPARK}/jars/*",
        "org.apache.spark.launcher.Main",
        "org.apache.spark.deploy.SparkSubmit",
    ]
    parsed = subprocess.run(
        [*launcher, *arguments], env={**os.environ, "SPARK_HOME": str(SPARK), "SPARK_SCALA_VERSION": "2.13"},
        capture_output=True, text=True, check=False, timeout=300,
    )  # fmt: skip
    assert parsed.returncode == 0 and "Unrecognized option" not in parsed.stderr, parsed.stderr
    assert "org.apache.spark.deploy.SparkSubmit" in parsed.stdout


def test_the_yarn_script_says_what_it_lacks() -> None:
    done = subprocess.run([str(YARN / "submit.sh")], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (2, "") and "client|cluster" in done.stderr


# -- Databricks -----------------------------------------------------------------------------------------------------------
def test_the_databricks_bundle_names_what_exists() -> None:
    bundle = read_yaml(DATABRICKS / "databricks.yml")
    resources = read_yaml(DATABRICKS / "resources" / "manager.yml")["resources"]
    [task] = databricks_job()["tasks"]
    written = text_of(DATABRICKS / "resources" / "manager.yml")
    assert set(re.findall(r"\$\{var\.(\w+)\}", written)) == set(bundle["variables"])
    for kind, name in re.findall(r"\$\{resources\.(\w+)\.(\w+)\.\w+\}", written):
        assert name in resources[kind]
    assert task["job_cluster_key"] in {cluster["job_cluster_key"] for cluster in databricks_job()["job_clusters"]}
    program = (DATABRICKS / "resources" / task["spark_python_task"]["python_file"]).resolve()
    assert program == REPOSITORY / "jobs" / "manager.py"
    sent = [(DATABRICKS / path).resolve() for path in bundle["sync"]["paths"]]
    assert all(path.is_dir() for path in sent) and Path(os.path.commonpath(sent)) == REPOSITORY
    conf, environ = DEPLOYMENTS["databricks"]
    assert environ["BFM_CONF"] == f"${{workspace.file_path}}/{conf.relative_to(REPOSITORY)}"
    [bundle_of_dags] = load_settings(str(conf), environ={}).bundles
    assert Path(str(bundle_of_dags.path)) in sent
    [volume] = resources["volumes"].values()
    assert environ["BFM_SNAPSHOTS"] == f"/Volumes/{volume['catalog_name']}/${{var.schema}}/{volume['name']}"
    scopes = {scope["name"] for scope in resources["secret_scopes"].values()}
    assert set(re.findall(r"\{\{secrets/([^/]+)/", written)) <= scopes
    parameters = {parameter["name"] for parameter in databricks_job()["parameters"]}
    assert set(re.findall(r"\{\{job\.parameters\.(\w+)\}\}", written)) <= parameters
    [target] = load_settings(str(conf), environ=environ).notifications
    assert target.url_env in environ


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel for Databricks, whose files are those of every wheel of the package."""
    folder = tmp_path_factory.mktemp("dist")
    environ = {**os.environ, "PYTHON": sys.executable, "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
    done = subprocess.run(
        [str(DATABRICKS / "build.sh"), str(folder)], env=environ, capture_output=True, text=True, check=False
    )
    if "No matching distribution found for setuptools" in done.stderr:
        pytest.skip("there is no network to fetch setuptools by")
    assert done.returncode == 0, done.stderr
    [made] = folder.iterdir()
    return made


def test_the_wheel_for_databricks_brings_no_spark_and_all_files(wheel: Path) -> None:
    [library] = [library["whl"] for library in databricks_job()["tasks"][0]["libraries"] if "whl" in library]
    assert library == "../dist/*.whl" and "dist=${1:-$here/dist}" in text_of(DATABRICKS / "build.sh")
    assert wheel.name == f"backfill_manager-{backfill_manager.__version__}+databricks-py3-none-any.whl"
    with zipfile.ZipFile(wheel) as archive:
        inside = set(archive.namelist())
        [metadata] = [name for name in inside if name.endswith(".dist-info/METADATA")]
        needed = re.findall(r"^Requires-Dist: ([\w-]+)(?!.*extra ==)", archive.read(metadata).decode(), re.MULTILINE)
    assert "deltalake" in needed and not {"pyspark", "delta-spark"} & set(needed)
    tracked = subprocess.run(
        ["git", "ls-files", "backfill_manager"], cwd=REPOSITORY, capture_output=True, text=True, check=True
    ).stdout.splitlines()
    assert len(tracked) > 300
    assert {name for name in tracked if (REPOSITORY / name).exists()} - inside == set()


@pytest.mark.parametrize("started", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_the_wheel_alone_makes_a_project(started: bool, wheel: Path, tmp_path: Path) -> None:
    """`pip install`, `bfm init`, `bfm manager start` in an empty folder, with nothing of the repository beside."""
    installed, project = tmp_path / "installed", tmp_path / "project"
    project.mkdir()
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(installed)
    environ = {name: value for name, value in os.environ.items() if name == "BFM_CACHE" or not name.startswith("BFM_")}
    environ["PYTHONPATH"] = str(installed)

    def bfm(*words: str) -> str:
        code = f"import sys, backfill_manager as b; assert b.__file__.startswith({str(installed)!r}), b.__file__\n"
        code += "from backfill_manager.cli import main; sys.exit(main(sys.argv[1:]))"
        command = [sys.executable, "-c", code, *words]
        done = subprocess.run(command, cwd=project, env=environ, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout

    bfm("init")
    bfm("config", "check")
    assert "sales" in bfm("bundles", "parse", "main", "--dry-run")
    if started:
        bfm("manager", "start", "--until-idle")
        [made] = json.loads(bfm("runs", "list", "--output", "json"))
        assert (made["dag_id"], made["state"]) == ("sales", "success")
