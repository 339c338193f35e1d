"""A server of S3 on this machine: moto, in a process of its own.

moto looks whether an object is there and puts it in two steps; S3 does both in one. So conditional requests take turns here.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from backfill_manager.execution.spark.connectors import S3

BUCKET = "bucket"
TIMEOUT_S = 60  # of a request; the first one makes moto import its half of S3


@contextmanager
def s3_server() -> Iterator[str]:
    """The address of a server with an empty bucket."""
    command = [sys.executable, "-m", "support.s3_server"]
    environ = {**os.environ, "PYTHONPATH": os.path.dirname(os.path.dirname(__file__)), "PYTHONWARNINGS": "ignore"}
    with subprocess.Popen(
        command, env=environ, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as process:
        assert process.stdin is not None and process.stdout is not None
        try:
            address = f"http://127.0.0.1:{int(process.stdout.readline())}"
            httpx.put(f"{address}/{BUCKET}", timeout=TIMEOUT_S).raise_for_status()
            yield address
        finally:
            process.kill()


def s3_environ(address: str) -> dict[str, str]:
    """What both delta-rs and Hadoop's connector read. The keys are no secrets: moto takes any."""
    return {
        "AWS_ENDPOINT_URL": address,
        "AWS_ALLOW_HTTP": "true",
        "AWS_ACCESS_KEY_ID": "tests",
        "AWS_SECRET_ACCESS_KEY": "tests-secret-key",
        "AWS_REGION": "us-east-1",
        "AWS_EC2_METADATA_DISABLED": "true",
    }


@contextmanager
def s3_in_environ() -> Iterator[str]:
    """A server that the environment names to this process and those that it starts."""
    with s3_server() as address, pytest.MonkeyPatch.context() as patch:
        for name, value in s3_environ(address).items():
            patch.setenv(name, value)
        yield address


def upload(folder: Path, address: str, place: str) -> None:
    """All files of the folder, below `place` in the bucket."""
    for file in folder.rglob("*"):
        if file.is_file():
            to = f"{address}/{BUCKET}/{place}/{file.relative_to(folder)}"
            httpx.put(to, content=file.read_bytes(), timeout=TIMEOUT_S).raise_for_status()


def has_connector() -> bool:
    """Whether Hadoop's connector has been fetched."""
    return all(jar.path.exists() for jar in S3)


def in_turns(app: Callable[..., Any]) -> Callable[..., Any]:
    """A WSGI application that handles one conditional request at a time."""
    turn = threading.Lock()

    def handle(environ: Mapping[str, Any], start_response: Callable[..., Any]) -> Any:
        if "HTTP_IF_NONE_MATCH" not in environ and "HTTP_IF_MATCH" not in environ:
            return app(environ, start_response)
        with turn:
            return list(app(environ, start_response))

    return handle


def main() -> None:
    from moto.moto_server.werkzeug_app import MotoRequestHandler, create_backend_app
    from werkzeug.serving import make_server

    class Quiet(MotoRequestHandler):  # type: ignore[misc]
        protocol_version = "HTTP/1.1"  # connections stay open, as S3's do

        def log_request(self, *_: object) -> None:
            pass

    app = in_turns(create_backend_app("s3"))
    server = make_server("127.0.0.1", 0, app, threaded=True, request_handler=Quiet)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    print(server.server_port, flush=True)
    sys.stdin.read()  # to the end of the one who started it


if __name__ == "__main__":
    main()
