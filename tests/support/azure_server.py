"""A server of Azure's blob storage on this machine: azurite, where it is installed.

`tests/run` installs it where npm is at hand; the tests themselves download nothing.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from email.utils import formatdate
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest

from backfill_manager.execution.spark.connectors import AZURE
from backfill_manager.user_cache import cache_folder
from support.manager_process import wait_for

START_S = 60.0
CONTAINER = "box"
ACCOUNT = "devstoreaccount1"
# azurite's own, the same everywhere: https://learn.microsoft.com/azure/storage/common/storage-connect-azurite
KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
HOST = f"{ACCOUNT}.dfs.core.windows.net"  # for Hadoop's connector
WHERE_TO_GET_IT = "azurite is not installed: tests/run installs it where npm is, or `npm install -g azurite`"


def find_azurite() -> str | None:
    """The command `azurite-blob`: of tests/run's installation, else of the path."""
    installed = cache_folder() / "azurite" / "node_modules" / ".bin"
    return shutil.which("azurite-blob", path=str(installed)) or shutil.which("azurite-blob")


@contextmanager
def azure_server(folder: Path) -> Iterator[str]:
    """The address of a server with an empty container, which keeps its files in `folder`."""
    command = find_azurite()
    assert command is not None
    log = folder / "azurite.out"
    with log.open("wb") as out, subprocess.Popen(
        [command, "--blobPort", "0", "--location", str(folder), "--skipApiVersionCheck", "--disableTelemetry"],
        stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT,
    ) as process:  # fmt: skip
        try:
            says = "successfully listens on "
            address: str = wait_for(lambda: re.search(says + r"(\S+)\n", log.read_text()), START_S)[1]
            _make_container(address)
            yield address
        finally:
            process.kill()


def azure_environ(address: str) -> dict[str, str]:
    """What delta-rs reads."""
    return {"AZURE_STORAGE_USE_EMULATOR": "true", "AZURITE_BLOB_STORAGE_URL": address}


def spark_conf(address: str) -> dict[str, str]:
    """What Hadoop's connector needs for azurite, which has Azure's Blob interface and not that of Data Lake Storage (the
    connector speaks both)."""
    return {
        "spark.hadoop.fs.azure.abfs.endpoint": urlsplit(address).netloc,
        "spark.hadoop.fs.azure.always.use.https": "false",
        "spark.hadoop.fs.azure.networking.library": "JDK_HTTP_URL_CONNECTION",  # the other one wants TLS
        "spark.hadoop.fs.azure.account.hns.enabled": "false",
        "spark.hadoop.fs.azure.fns.account.service.type": "BLOB",
        "spark.hadoop.fs.azure.ingress.service.type": "BLOB",
        f"spark.hadoop.fs.azure.account.key.{HOST}": KEY,
    }


def has_connector() -> bool:
    """Whether Hadoop's connector has been fetched."""
    return all(jar.path.exists() for jar in AZURE)


@contextmanager
def azure_in_environ(folder: Path) -> Iterator[str]:
    """A server that the environment names to this process and those that it starts."""
    with azure_server(folder) as address, pytest.MonkeyPatch.context() as patch:
        for name, value in azure_environ(address).items():
            patch.setenv(name, value)
        yield address


def _make_container(address: str) -> None:
    """`PUT /account/container`, signed with the shared key: no client of Azure is among the tests' packages."""
    sent = {"x-ms-date": formatdate(usegmt=True), "x-ms-version": "2023-11-03"}
    headers = "".join(f"{name}:{value}\n" for name, value in sorted(sent.items()))
    text = "PUT" + "\n" * 12 + f"{headers}/{ACCOUNT}/{ACCOUNT}/{CONTAINER}\nrestype:container"
    digest = hmac.new(base64.b64decode(KEY), text.encode(), hashlib.sha256).digest()
    sent["Authorization"] = f"SharedKey {ACCOUNT}:{base64.b64encode(digest).decode()}"
    httpx.put(f"{address}/{ACCOUNT}/{CONTAINER}?restype=container", headers=sent).raise_for_status()
