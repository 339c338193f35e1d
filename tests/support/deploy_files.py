"""The files in conf/deploy/ as plain values: of each platform its settings, variables and objects."""

from __future__ import annotations

import configparser
import re
import shlex
from functools import cache
from pathlib import Path
from typing import Any

import pyspark
import yaml

import backfill_manager

REPOSITORY = Path(__file__).parents[2]
DEPLOY = REPOSITORY / "conf" / "deploy"
SYSTEMD = DEPLOY / "systemd"
DOCKER = DEPLOY / "docker"
KUBERNETES = DEPLOY / "kubernetes"
DATABRICKS = DEPLOY / "databricks"
YARN = DEPLOY / "yarn"
SPARK = Path(pyspark.__file__).parent
IMAGE = f"backfill-manager:{backfill_manager.__version__}"
UNITS = sorted(SYSTEMD.glob("*.service"))


def text_of(path: Path) -> str:
    return path.read_text(encoding="utf-8")


def read_yaml(path: Path) -> Any:
    return yaml.safe_load(text_of(path))


def env_file(path: Path) -> dict[str, str]:
    """Variables of an example, those in comments too, with values in place of what people are to fill in."""
    filled = text_of(path).replace("<64 hex digits>", "0" * 64).replace("<32 characters or more>", "x" * 32)
    found = re.findall(r"^#?([A-Z][A-Z0-9_]*)=(.*)$", filled, re.MULTILINE)
    return {name: value.strip("'") or "x" * 32 for name, value in found}


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
