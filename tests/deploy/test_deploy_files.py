"""The files in conf/deploy/ are held against the program: settings, commands, exit codes, ports, versions, names in Spark.

No cluster, daemon or cloud is needed. What a tool of the platform can tell without one is asked where the tool is installed.
"""

from __future__ import annotations

import configparser
import json
import os
import re
import shlex
import shutil
import socket
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pyspark
import pytest
import typer.main
import yaml

import backfill_manager
from backfill_manager.api.openapi import PREFIX
from backfill_manager.api.sessions import FOLDER as ENDED_SESSIONS
from backfill_manager.cli.app import _app, run
from backfill_manager.cli.context import CliContext
from backfill_manager.dags.bundles.environment import FOLDER as ENVIRONMENTS
from backfill_manager.errors import InvalidConfig, ServiceFailed, SparkGone
from backfill_manager.execution.spark.jars import MIN_JAVA, java
from backfill_manager.execution.spark.provided_session import SCHEDULER, SUBQUERY_THREADS, TIME_ZONE, problem_of
from backfill_manager.execution.spark.session import BASE_CONF
from backfill_manager.manager.manager import DRAIN_S
from backfill_manager.settings import Settings, load_settings

REPOSITORY = Path(__file__).parents[2]
DEPLOY = REPOSITORY / "conf" / "deploy"
SYSTEMD, DOCKER, KUBERNETES = DEPLOY / "systemd", DEPLOY / "docker", DEPLOY / "kubernetes"
DATABRICKS, YARN = DEPLOY / "databricks", DEPLOY / "yarn"
SPARK = Path(pyspark.__file__).parent
IMAGE = f"backfill-manager:{backfill_manager.__version__}"
SCRIPTS = sorted(DEPLOY.rglob("*.sh"))
UNITS = sorted(SYSTEMD.glob("*.service"))
YAML = sorted([*DEPLOY.rglob("*.yaml"), *DEPLOY.rglob("*.yml")])


def names(paths: list[Path]) -> list[str]:
    return [str(path.relative_to(DEPLOY)) for path in paths]


def text_of(path: Path) -> str:
    return path.read_text(encoding="utf-8")


def read_yaml(path: Path) -> Any:
    return yaml.safe_load(text_of(path))


def env_file(path: Path) -> dict[str, str]:
    """Variables of an example, those in comments too, with values in place of what people are to fill in."""
    filled = text_of(path).replace("<64 hex digits>", "0" * 64).replace("<32 characters or more>", "x" * 32)
    found = re.findall(r"^#?([A-Z][A-Z0-9_]*)=(.*)$", filled, re.MULTILINE)
    return {name: value.strip("'") or "x" * 32 for name, value in found}


# -- the platforms' files as plain values -------------------------------------------------------------------------------
def unit(path: Path) -> configparser.RawConfigParser:
    parsed = configparser.RawConfigParser(strict=False, interpolation=None, delimiters="=")
    parsed.optionxform = str  # type: ignore[assignment,method-assign]
    parsed.read(path, encoding="utf-8")
    return parsed


def unit_environment(path: Path) -> dict[str, str]:
    lines = re.findall(r"^Environment=(.*)$", text_of(path), re.MULTILINE)
    return dict(word.split("=", 1) for line in lines for word in shlex.split(line))


@cache
def compose() -> dict[str, Any]:
    found: dict[str, Any] = read_yaml(DOCKER / "compose.yaml")
    return found


def compose_environment() -> dict[str, str]:
    filled = env_file(DOCKER / "example.env")
    given = compose()["services"]["manager"]["environment"]
    return {name: re.sub(r"\$\{(\w+).*\}", lambda found: filled[found[1]], value) for name, value in given.items()}


@cache
def kubernetes() -> list[dict[str, Any]]:
    """All objects that the kustomization names."""
    files = read_yaml(KUBERNETES / "kustomization.yaml")["resources"]
    return [found for file in files for found in yaml.safe_load_all(text_of(KUBERNETES / file))]


def kinds(kind: str) -> dict[str, dict[str, Any]]:
    return {found["metadata"]["name"]: found for found in kubernetes() if found["kind"] == kind}


def pods() -> dict[str, dict[str, Any]]:
    """Templates of pods, by their component."""
    templates = [found["spec"]["template"] for found in kinds("Deployment").values()]
    templates.append(read_yaml(KUBERNETES / "config" / "executor.yaml"))
    return {template["metadata"]["labels"]["app.kubernetes.io/component"]: template for template in templates}


def container(component: str) -> dict[str, Any]:
    [only] = pods()[component]["spec"]["containers"]
    return dict(only)


def pod_environment(component: str) -> dict[str, str]:
    of_pod = {"POD_NAME": "backfill-manager-1", "POD_NAMESPACE": "backfill-manager", "POD_IP": "10.0.0.1"}
    plain = {variable["name"]: variable["value"] for variable in container(component)["env"] if "value" in variable}
    filled = {name: re.sub(r"\$\((\w+)\)", lambda found: of_pod[found[1]], value) for name, value in plain.items()}
    secrets = [env_file(KUBERNETES / f"{name}.env.example") for name in ("secret", "storage")]
    return filled | secrets[0] | secrets[1]


def databricks_job() -> dict[str, Any]:
    return dict(read_yaml(DATABRICKS / "resources" / "manager.yml")["resources"]["jobs"]["manager"])


def databricks_cluster() -> dict[str, Any]:
    [cluster] = databricks_job()["job_clusters"]
    return dict(cluster["new_cluster"])


DEPLOYMENTS: dict[str, tuple[Path, dict[str, str]]] = {
    "systemd": (SYSTEMD / "manager.yaml", env_file(SYSTEMD / "secrets.env.example")),
    "systemd with a master": (SYSTEMD / "manager.yaml", unit_environment(SYSTEMD / "spark-master.conf")),
    "systemd serve": (SYSTEMD / "manager.yaml", unit_environment(SYSTEMD / "backfill-manager-serve.service")),
    "docker": (DOCKER / "manager.yaml", compose_environment()),
    "kubernetes manager": (KUBERNETES / "config" / "manager.yaml", pod_environment("manager")),
    "kubernetes serve": (KUBERNETES / "config" / "manager.yaml", pod_environment("serve")),
    "databricks": (DATABRICKS / "manager.yaml", {**databricks_cluster()["spark_env_vars"], "BFM_STATE": "main.state"}),
    "yarn": (YARN / "manager.yaml", {}),
}


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


# -- the image ------------------------------------------------------------------------------------------------------------
def test_the_image_has_the_folders_that_are_written_and_no_root() -> None:
    dockerfile = text_of(DOCKER / "Dockerfile")
    for folder in (ENVIRONMENTS, ENDED_SESSIONS):
        assert f"/var/cache/backfill_manager/{folder}" in dockerfile
    assert re.search(r"^USER 10001:10001$", dockerfile, re.MULTILINE)
    copied = [
        word for line in re.findall(r"^COPY (?!--from)(.*)$", dockerfile, re.MULTILINE) for word in line.split()[:-1]
    ]
    ignored = text_of(DOCKER / "Dockerfile.dockerignore").splitlines()
    for word in copied:
        if not word.startswith("--"):
            assert (REPOSITORY / word).exists(), word
            assert f"!{word}" in ignored
    for service in ("manager", "serve"):
        found = compose()["services"][service]
        assert found["read_only"] and found["cap_drop"] == ["ALL"]
        assert "/tmp:exec,mode=1777" in found["tmpfs"]  # snappy's library is mapped from there
        for volume in found["volumes"]:
            name = volume.partition(":")[0]
            assert (DOCKER / name).exists() if name.startswith(".") else name in compose()["volumes"]


def test_the_image_has_the_extra_of_every_setting_that_needs_one() -> None:
    needed = re.findall(
        r"Needs the extra\s+`(\w+)`", text_of(REPOSITORY / "backfill_manager" / "settings" / "model.py")
    )
    [extras] = re.findall(r"\{wheel\}\[(.*)\]", text_of(DOCKER / "Dockerfile"))
    assert sorted(extras.split(",")) == sorted(needed) != []


def test_secrets_of_tasks_reach_the_manager_from_the_file_that_is_made_of_the_example() -> None:
    assert compose()["services"]["manager"]["env_file"] == ".env"
    assert {"secretRef": {"name": "backfill-manager"}} in container("manager")["envFrom"]
    assert unit(SYSTEMD / "backfill-manager.service")["Service"]["EnvironmentFile"].endswith("/secrets.env")
    examples = (DOCKER / "example.env", KUBERNETES / "secret.env.example", SYSTEMD / "secrets.env.example")
    assert all("BFM_SECRET_..." in text_of(example) for example in examples)


def test_the_object_store_is_no_release_that_loses_conditional_puts() -> None:
    tags = {compose()["services"][name]["image"].partition(":")[2] for name in ("store", "bucket")}
    [tag] = tags
    assert tuple(map(int, tag.split("."))) > (4, 16)  # seaweedfs/seaweedfs#8800


def executor(environ: dict[str, str], *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(DOCKER / "entrypoint.sh"), *arguments], env={"PATH": os.environ["PATH"], **environ}, capture_output=True, text=True,
        check=False, timeout=300,
    )  # fmt: skip


def test_the_entrypoint_is_bfm(tmp_path: Path) -> None:
    (tmp_path / "bfm").symlink_to(Path(sys.executable).with_name("bfm"))
    done = executor({"PATH": f"{tmp_path}:{os.environ['PATH']}"}, "--version")
    assert done.stdout == f"backfill_manager {backfill_manager.__version__}\n"


def test_sparks_executor_takes_what_the_entrypoint_gives_it(tmp_path: Path) -> None:
    """Spark's own class, with the variables of an executor's pod, and a driver that is not there."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    environ = {
        "SPARK_HOME": str(SPARK), "SPARK_DRIVER_URL": f"spark://CoarseGrainedScheduler@127.0.0.1:{port}",
        "SPARK_EXECUTOR_ID": "1", "SPARK_EXECUTOR_CORES": "1", "SPARK_EXECUTOR_MEMORY": "256m",
        "SPARK_APPLICATION_ID": "spark-1", "SPARK_EXECUTOR_POD_IP": "127.0.0.1", "SPARK_EXECUTOR_POD_NAME": "executor-1",
        "SPARK_RESOURCE_PROFILE_ID": "0", "SPARK_CONF_DIR": str(tmp_path),
        "SPARK_JAVA_OPT_0": "-Dspark.rpc.askTimeout=1s", "SPARK_JAVA_OPT_1": "-Dspark.port.maxRetries=0",
        "SPARK_LOCAL_IP": "127.0.0.1", "SPARK_USER": "bfm",
    }  # fmt: skip
    done = executor(environ, "executor")
    said = done.stdout + done.stderr
    assert done.returncode != 0
    assert "Unrecognized options" not in said and "Usage:" not in said and "ClassNotFound" not in said, said[-2000:]
    assert f"127.0.0.1:{port}" in said, said[-2000:]


# -- Kubernetes -----------------------------------------------------------------------------------------------------------
def test_kubernetes_names_that_are_used_exist() -> None:
    kustomization = read_yaml(KUBERNETES / "kustomization.yaml")
    config_maps = {made["name"]: made["files"] for made in kustomization["configMapGenerator"]}
    secrets = {made["name"] for made in kustomization["secretGenerator"]}
    for component, pod in pods().items():
        spec, [only] = pod["spec"], pod["spec"]["containers"]
        assert spec["serviceAccountName"] in kinds("ServiceAccount")
        assert {source["secretRef"]["name"] for source in only["envFrom"]} <= secrets
        volumes = {volume["name"]: volume for volume in spec["volumes"]}
        assert {mount["name"] for mount in only["volumeMounts"]} == set(volumes), component
        for volume in volumes.values():
            if "configMap" in volume:
                assert volume["configMap"]["name"] in config_maps
            if "persistentVolumeClaim" in volume:
                assert volume["persistentVolumeClaim"]["claimName"] in kinds("PersistentVolumeClaim")
    for name in ("secret", "storage"):
        assert (KUBERNETES / f"{name}.env.example").exists()
    files = dict(entry.split("=") for made in config_maps.values() for entry in made)
    assert all((KUBERNETES / path).exists() for path in files.values())
    conf = json.loads(pod_environment("manager")["BFM_SPARK__CONF"])
    [config] = [mount for mount in container("manager")["volumeMounts"] if mount["name"] == "config"]
    for path in (pod_environment("manager")["BFM_CONF"], conf["spark.kubernetes.executor.podTemplateFile"]):
        folder, _, file = path.rpartition("/")
        assert folder == config["mountPath"] and file in files
    assert conf["spark.kubernetes.executor.podTemplateContainerName"] == container("executor")["name"]
    [binding] = kinds("RoleBinding").values()
    assert binding["roleRef"]["name"] in kinds("Role")
    assert [subject["name"] for subject in binding["subjects"]] == [pods()["manager"]["spec"]["serviceAccountName"]]


def selects(selector: dict[str, str]) -> list[str]:
    return [name for name, pod in pods().items() if selector.items() <= pod["metadata"]["labels"].items()]


def test_kubernetes_selectors_and_ports_meet_pods() -> None:
    for name, deployment in kinds("Deployment").items():
        labels = deployment["spec"]["template"]["metadata"]["labels"]
        assert deployment["spec"]["selector"]["matchLabels"].items() <= labels.items(), name
    for name, service in kinds("Service").items():
        [component] = selects(service["spec"]["selector"])
        ports = {port["name"] for port in container(component)["ports"]}
        assert {port["targetPort"] for port in service["spec"]["ports"]} <= ports, name
    for budget in kinds("PodDisruptionBudget").values():
        [component] = selects(budget["spec"]["selector"]["matchLabels"])
        assert kinds("Deployment")[budget["metadata"]["name"]]["spec"]["replicas"] > budget["spec"]["minAvailable"], (
            component
        )
    guarded = set()
    for policy in kinds("NetworkPolicy").values():
        chosen = selects(policy["spec"]["podSelector"]["matchLabels"])
        assert chosen and policy["spec"]["policyTypes"] == ["Ingress"]
        guarded |= set(chosen)
        for rule in policy["spec"].get("ingress", []):
            peers = [peer["podSelector"]["matchLabels"] for peer in rule["from"] if "podSelector" in peer]
            assert all(selects(peer) for peer in peers)
            for port in rule["ports"]:
                if isinstance(port["port"], str):
                    assert port["port"] in {known["name"] for known in container(chosen[0])["ports"]}
    assert guarded == set(pods())
    conf = json.loads(pod_environment("manager")["BFM_SPARK__CONF"])
    ports = {port["name"]: str(port["containerPort"]) for port in container("manager")["ports"]}
    assert conf["spark.driver.port"] == ports["driver"] and conf["spark.driver.blockManager.port"] == ports["blocks"]
    executors = kinds("NetworkPolicy")["backfill-manager-executors"]["spec"]["ingress"][0]["ports"]
    assert [str(port["port"]) for port in executors] == [conf["spark.blockManager.port"]]


@pytest.mark.parametrize("component", ["manager", "serve", "executor"])
def test_pods_run_as_the_namespace_demands(component: str) -> None:
    assert (
        kinds("Namespace")["backfill-manager"]["metadata"]["labels"]["pod-security.kubernetes.io/enforce"]
        == "restricted"
    )
    pod = pods()[component]["spec"]
    assert pod["securityContext"]["runAsNonRoot"] and pod["securityContext"]["runAsUser"] == 10001
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert container(component)["securityContext"] == {
        "allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True, "capabilities": {"drop": ["ALL"]}
    }  # fmt: skip
    assert pod["automountServiceAccountToken"] is (component == "manager"), "only the manager talks to Kubernetes"
    written = {mount["mountPath"] for mount in container(component)["volumeMounts"] if not mount.get("readOnly")}
    assert {"/tmp", "/work"} <= written
    if component != "executor":
        assert f"/var/cache/backfill_manager/{ENDED_SESSIONS}" in written
    if component == "manager":
        assert f"/var/cache/backfill_manager/{ENVIRONMENTS}" in written


def test_the_role_is_what_spark_needs_in_client_mode() -> None:
    [role] = kinds("Role").values()
    granted = {resource: set(rule["verbs"]) for rule in role["rules"] for resource in rule["resources"]}
    assert set(granted) == {"pods", "configmaps"}
    assert all("*" not in verbs for verbs in granted.values())
    conf = json.loads(pod_environment("manager")["BFM_SPARK__CONF"])
    for name in ("service.deleteOnTermination", "ownPersistentVolumeClaim", "reusePersistentVolumeClaim"):
        assert conf[f"spark.kubernetes.driver.{name}"] == "false", "there is no right for it"


@pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl is not installed")
def test_kustomize_renders_all_of_it(tmp_path: Path) -> None:
    folder = tmp_path / "kubernetes"
    shutil.copytree(KUBERNETES, folder)
    for name in ("secret", "storage"):
        shutil.copy(folder / f"{name}.env.example", folder / f"{name}.env")
    done = subprocess.run(["kubectl", "kustomize", str(folder)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    rendered = list(yaml.safe_load_all(done.stdout))
    assert len(rendered) == len(kubernetes()) + 3  # a ConfigMap and two Secrets
    made = {found["metadata"]["name"] for found in rendered if found["kind"] in ("Secret", "ConfigMap")}
    for found in rendered:
        if found["kind"] == "Deployment":
            [only] = found["spec"]["template"]["spec"]["containers"]
            assert {source["secretRef"]["name"] for source in only["envFrom"]} <= made
            assert only["image"] == f"registry.example.com/{IMAGE}"


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
