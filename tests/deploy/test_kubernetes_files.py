"""The manifests of Kubernetes: names that are used exist, selectors meet pods, rights are least."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml
from support.deploy_files import (
    IMAGE,
    KUBERNETES,
    container,
    kinds,
    kubernetes,
    pod_environment,
    pods,
    read_yaml,
)

from backfill_manager.api.sessions import FOLDER as ENDED_SESSIONS
from backfill_manager.dags.bundles.environment import FOLDER as ENVIRONMENTS


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
