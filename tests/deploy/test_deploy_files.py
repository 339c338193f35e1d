"""The files in conf/deploy/ are held against the program: settings, commands, scripts, exit codes, ports, versions.

No cluster, daemon or cloud is needed. What a tool of the platform can tell without one is asked where the tool is installed.
"""

from __future__ import annotations

import configparser
import json
import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer.main
from support.deploy_files import (
    DATABRICKS,
    DEPLOY,
    DEPLOYMENTS,
    DOCKER,
    IMAGE,
    KUBERNETES,
    REPOSITORY,
    SYSTEMD,
    UNITS,
    compose,
    container,
    databricks_job,
    pod_environment,
    pods,
    read_yaml,
    text_of,
    unit,
    unit_environment,
)

from backfill_manager.api.openapi import PREFIX
from backfill_manager.cli.app import _app, run
from backfill_manager.cli.context import CliContext
from backfill_manager.errors import InvalidConfig, ServiceFailed, SparkGone
from backfill_manager.execution.spark.jars import MIN_JAVA
from backfill_manager.manager.manager import DRAIN_S
from backfill_manager.settings import Settings, load_settings

SCRIPTS = sorted(DEPLOY.rglob("*.sh"))
YAML = sorted([*DEPLOY.rglob("*.yaml"), *DEPLOY.rglob("*.yml")])


def names(paths: list[Path]) -> list[str]:
    return [str(path.relative_to(DEPLOY)) for path in paths]


# -- settings and variables -----------------------------------------------------------------------------------------------
@pytest.mark.parametrize("name", names(YAML))
def test_yaml_is_valid_and_no_key_stands_twice(name: str) -> None:
    from backfill_manager.yaml_reader import read_documents

    for document in read_documents(text_of(DEPLOY / name), strict=False):
        assert document.duplicates == []


@pytest.mark.parametrize("deployment", DEPLOYMENTS)
def test_the_configuration_is_right(deployment: str, capsys: pytest.CaptureFixture[str]) -> None:
    conf, environ = DEPLOYMENTS[deployment]
    environ = {**environ, "BFM_CONF": str(conf)}
    assert run(["config", "check"], CliContext(environ=environ)) == 0, capsys.readouterr().err
    capsys.readouterr()


def test_every_file_of_settings_is_checked() -> None:
    checked = {conf for conf, _ in DEPLOYMENTS.values()}
    not_settings = {KUBERNETES / "manager.yaml"}  # the Deployment
    assert {path for path in YAML if path.name == "manager.yaml"} - not_settings == checked


def known_variables() -> set[str]:
    """Those that are no settings, by the code that reads them."""
    sources = [*REPOSITORY.glob("backfill_manager/**/*.py"), *REPOSITORY.glob("jobs/*.py")]
    return {name for path in sources for name in re.findall(r"\"(BFM_[A-Z_]+)\"", text_of(path))}


def test_every_variable_is_one_that_something_reads() -> None:
    settings = {f"BFM_{name.upper()}" for name in Settings.model_fields}
    # With those of yarn/submit.sh.
    known = settings | known_variables() | {"BFM_VENV", "BFM_VENV_ARCHIVE", "BFM_PRINCIPAL", "BFM_KEYTAB"}
    files = [path for path in DEPLOY.rglob("*") if path.is_file() and path.suffix not in (".whl", ".pyc")]
    found = {(path.name, name) for path in files for name in re.findall(r"\bBFM_[A-Z_]+\b", text_of(path))}
    assert len(found) > 20
    assert {(file, name) for file, name in found if name.partition("__")[0] not in known} == set()


def test_secrets_are_in_no_file() -> None:
    for path in DEPLOY.rglob("*"):
        if path.is_file():
            assert not re.search(r"\b(bfm_[\w-]{40}|AKIA\w{16}|[0-9a-f]{64})\b", text_of(path)), path
    assert "secret.env" in text_of(REPOSITORY / ".gitignore") and "/conf/deploy/**/.env" in text_of(
        REPOSITORY / ".gitignore"
    )


# -- commands -----------------------------------------------------------------------------------------------------------
def commands() -> Iterator[tuple[str, list[str]]]:
    for path in UNITS:
        program, *words = shlex.split(unit(path)["Service"]["ExecStart"])
        assert program.endswith("/bin/bfm")
        yield path.name, words
    for service in ("manager", "serve"):
        yield f"compose {service}", compose()["services"][service]["command"]
    for component in ("manager", "serve"):
        yield f"kubernetes {component}", container(component)["args"]
    dockerfile = text_of(DOCKER / "Dockerfile")
    yield "Dockerfile", json.loads(re.findall(r"^CMD (.*)$", dockerfile, re.MULTILINE)[0])
    check = json.loads(re.findall(r"HEALTHCHECK .* CMD (.*)$", dockerfile, re.MULTILINE)[0])
    assert check[0] == "bfm"
    yield "HEALTHCHECK", check[1:]
    for path in DEPLOY.rglob("*"):
        if path.is_file() and path.suffix not in (".py", ".service"):
            for line in re.findall(
                r"`bfm ([^`]+)`|backfill-manager:[\d.]+ ((?!\.$)[a-z].*)$", text_of(path), re.MULTILINE
            ):
                yield path.name, shlex.split(line[0] or line[1])
    task = databricks_job()["tasks"][0]["spark_python_task"]
    yield "databricks", ["manager", "start", *task["parameters"]]


def parse(words: list[str]) -> list[str]:
    """The path of the command, by the real command line, which carries nothing out. Raises for what it does not know."""
    context: Any = typer.main.get_command(_app(words)).make_context("bfm", list(words), obj=CliContext(environ={}))
    path: list[str] = []
    while hasattr(context.command, "resolve_command"):
        rest = [*context._protected_args, *context.args]
        name, command, rest = context.command.resolve_command(context, rest)
        path.append(name)
        context = command.make_context(name, rest, parent=context)
    return path


@pytest.mark.parametrize(
    ("place", "words"), [pytest.param(*found, id=f"{found[0]}: {' '.join(found[1])}") for found in commands()]
)
def test_every_command_is_one_of_the_command_line(place: str, words: list[str]) -> None:
    path = parse(words)
    if place not in ("HEALTHCHECK",) and "config" not in path:
        assert path in (["manager", "start"], ["serve"])


@pytest.mark.parametrize("words", [["manager", "start", "--with-iu"], ["serv"], ["serve", "--port", "many"]])
def test_a_wrong_command_would_be_found(words: list[str]) -> None:
    with pytest.raises(Exception, match=r"No such (option|command)|not a valid|a valid integer"):
        parse(words)


# -- scripts ------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("name", names(SCRIPTS))
def test_scripts_are_right(name: str) -> None:
    assert os.access(DEPLOY / name, os.X_OK)
    subprocess.run(["bash", "-n", str(DEPLOY / name)], check=True)
    if shellcheck := shutil.which("shellcheck"):
        done = subprocess.run([shellcheck, str(DEPLOY / name)], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout


def test_the_dag_of_the_try_can_be_read(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    conf = tmp_path / "manager.yaml"
    conf.write_text(
        json.dumps({"bundles": [{"name": "main", "path": str(DEPLOY / "dags")}], "state": str(tmp_path / "state")})
    )
    words = ["--conf", str(conf), "bundles", "parse", "main", "--dry-run"]
    assert run(words, CliContext(environ={})) == 0, capsys.readouterr().err
    assert "hello" in capsys.readouterr().out


# -- times, exit codes, ports, versions -----------------------------------------------------------------------------------
def test_supervisors_wait_longer_than_a_manager_drains() -> None:
    grace = {
        "systemd": float(unit(SYSTEMD / "backfill-manager.service")["Service"]["TimeoutStopSec"]),
        "docker": float(compose()["services"]["manager"]["stop_grace_period"].removesuffix("s")),
        "kubernetes": pods()["manager"]["spec"]["terminationGracePeriodSeconds"],
    }
    assert {name for name, seconds in grace.items() if seconds < DRAIN_S + 15} == set()


@pytest.mark.parametrize("path", UNITS, ids=lambda path: path.name)
def test_units_restart_by_exit_codes_and_are_hardened(path: Path) -> None:
    service = unit(path)["Service"]
    assert service["Restart"] == "on-failure"
    assert int(service["RestartPreventExitStatus"]) == InvalidConfig.exit_code
    assert InvalidConfig.exit_code not in (SparkGone.exit_code, ServiceFailed.exit_code)
    for key in (
        "NoNewPrivileges",
        "ProtectHome",
        "PrivateTmp",
        "PrivateDevices",
        "RestrictNamespaces",
        "LockPersonality",
    ):
        assert service[key] == "yes", key
    assert service["ProtectSystem"] == "strict" and service["CapabilityBoundingSet"] == ""
    assert service["EnvironmentFile"].startswith("-/etc/backfill-manager/")
    conf = load_settings(str(SYSTEMD / "manager.yaml"), environ={})
    assert conf.state.startswith(f"/var/lib/{service['StateDirectory']}/")
    assert unit_environment(path)["BFM_CACHE"] == f"/var/cache/{service['CacheDirectory']}"
    assert f"u {service['User']} " in text_of(SYSTEMD / "sysusers.conf")


def test_a_stopped_manager_keeps_its_jvm_until_it_has_drained() -> None:
    service = unit(SYSTEMD / "backfill-manager.service")["Service"]
    assert (service["KillMode"], service["KillSignal"]) == ("mixed", "SIGTERM")
    assert (service["OOMPolicy"], service["Delegate"]) == ("continue", "memory")
    assert "MemoryDenyWriteExecute" not in service and "ProtectControlGroups" not in service


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd is not installed")
def test_systemd_takes_the_units(tmp_path: Path) -> None:
    for path in UNITS:
        program = shlex.split(unit(path)["Service"]["ExecStart"])[0]
        (tmp_path / path.name).write_text(text_of(path).replace(program, "/bin/true"))
    units = [str(tmp_path / path.name) for path in UNITS]
    folder = tmp_path / "backfill-manager.service.d"
    folder.mkdir()
    shutil.copy(SYSTEMD / "spark-master.conf", folder)
    done = subprocess.run(["systemd-analyze", "verify", *units], capture_output=True, text=True, check=False)
    ours = [line for line in done.stderr.splitlines() if "backfill-manager" in line]
    assert (done.returncode, ours) == (0, [])
    done = subprocess.run(
        ["systemd-analyze", "security", "--offline=true", "--threshold=25", "--no-pager", *units],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    if "Unknown" not in done.stderr and "unrecognized" not in done.stderr:  # before systemd 250 there is no --offline
        assert done.returncode == 0, done.stdout[-2000:]


def test_ports_and_paths_of_health_are_those_of_the_api() -> None:
    port = Settings().api.port
    health = f"{PREFIX}/health"
    from backfill_manager.api.routes.monitoring import router

    assert "/health" in {route.path for route in router.routes}  # type: ignore[attr-defined]
    for component in ("manager", "serve"):
        found = container(component)
        ports = {entry["name"]: entry["containerPort"] for entry in found["ports"]}
        assert ports["http"] == port
        for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
            assert found[probe]["httpGet"] == {"path": health, "port": "http"}
    serve = compose()["services"]["serve"]
    assert serve["ports"] == [f"127.0.0.1:{port}:{port}"]
    assert f"http://127.0.0.1:{port}{health}" in serve["healthcheck"]["test"][-1]
    assert f"\nEXPOSE {port}\n" in text_of(DOCKER / "Dockerfile")
    for conf, environ in (DEPLOYMENTS["kubernetes manager"], DEPLOYMENTS["systemd"]):
        assert load_settings(str(conf), environ=environ).api.port == port


def test_versions_agree() -> None:
    setup = configparser.ConfigParser()
    setup.read(REPOSITORY / "setup.cfg", encoding="utf-8")
    dockerfile = text_of(DOCKER / "Dockerfile")
    [python] = re.findall(r"^ARG PYTHON=(.*)$", dockerfile, re.MULTILINE)
    assert f"Programming Language :: Python :: {python}" in setup["metadata"]["classifiers"]
    [of_image] = re.findall(r"openjdk-(\d+)-jre-headless", dockerfile)
    assert int(of_image) >= MIN_JAVA
    assert set(re.findall(r"backfill-manager:[\d.]+", dockerfile + text_of(DOCKER / "compose.yaml"))) == {IMAGE}
    [image] = read_yaml(KUBERNETES / "kustomization.yaml")["images"]
    assert (image["name"], str(image["newTag"])) == tuple(IMAGE.split(":"))
    conf = json.loads(pod_environment("manager")["BFM_SPARK__CONF"])
    assert conf["spark.kubernetes.container.image"] == f"{image['newName']}:{image['newTag']}"
    assert {container(component)["image"] for component in ("manager", "serve")} == {image["name"]}
    spark = re.findall(r"pyspark==(\d+\.\d+)", setup["options"]["install_requires"])[0]
    runtime = read_yaml(DATABRICKS / "databricks.yml")["variables"]["runtime"]
    assert runtime["description"].endswith(f"Spark {spark}") and runtime["default"].endswith("-scala2.13")
    pins = dict(re.findall(r"^([\w-]+)==([\w.]+)", text_of(REPOSITORY / "conf" / "constraints.txt"), re.MULTILINE))
    for library in databricks_job()["tasks"][0]["libraries"]:
        if "pypi" in library:
            name, _, version = library["pypi"]["package"].partition("==")
            assert pins[name] == version


def test_secrets_of_tasks_reach_the_manager_from_the_file_that_is_made_of_the_example() -> None:
    assert compose()["services"]["manager"]["env_file"] == ".env"
    assert {"secretRef": {"name": "backfill-manager"}} in container("manager")["envFrom"]
    assert unit(SYSTEMD / "backfill-manager.service")["Service"]["EnvironmentFile"].endswith("/secrets.env")
    examples = (DOCKER / "example.env", KUBERNETES / "secret.env.example", SYSTEMD / "secrets.env.example")
    assert all("BFM_SECRET_..." in text_of(example) for example in examples)
