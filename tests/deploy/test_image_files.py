"""The image for containers, its entrypoint, and the services of compose."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
from pathlib import Path

from support.deploy_files import (
    DOCKER,
    REPOSITORY,
    SPARK,
    compose,
    text_of,
)

import backfill_manager
from backfill_manager.api.sessions import FOLDER as ENDED_SESSIONS
from backfill_manager.dags.bundles.environment import FOLDER as ENVIRONMENTS


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
