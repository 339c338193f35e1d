"""Jars are fetched as pip fetches packages: through the proxies of the environment. A real Ivy, a real proxy, no network."""

from __future__ import annotations

import base64
import hashlib
import socket
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from backfill_manager.errors import InvalidInput, WrongJava
from backfill_manager.execution.spark.jars import Jar, jar_paths, java

CONTENT = b"what a jar holds"
JAR = Jar("org.example", "thing", "1.0", hashlib.sha256(CONTENT).hexdigest())
POM = b"""<project><modelVersion>4.0.0</modelVersion><groupId>org.example</groupId><artifactId>thing</artifactId>
<version>1.0</version></project>"""
CONTENTS = {"thing-1.0.jar": CONTENT, "thing-1.0.pom": POM}
PASSWORD = 'p"a\\s s@1'
ALLOWED = "Basic " + base64.b64encode(f"ada:{PASSWORD}".encode()).decode()


class Proxy(ThreadingHTTPServer):
    """Hands out the jar under any host's address to those who show the password, and keeps what it was asked for."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.asked: list[str] = []


class Handler(BaseHTTPRequestHandler):
    server: Proxy

    def do_GET(self) -> None:
        content = CONTENTS.get(self.path.rpartition("/")[2])
        if self.headers["Proxy-Authorization"] != ALLOWED:
            self.send_response(407)
            self.send_header("Proxy-Authenticate", 'Basic realm="proxy"')
            content = None
        else:
            self.send_response(404 if content is None else 200)
            self.server.asked.append(self.path)
        self.send_header("Content-Length", str(len(content or b"")))
        self.end_headers()
        if self.command == "GET" and content:
            self.wfile.write(content)

    do_HEAD = do_GET

    def log_message(self, format: str, *args: object) -> None:
        """Nothing."""


@pytest.fixture
def proxy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Proxy]:
    settings = tmp_path / "ivy-settings.xml"
    settings.write_text(
        '<ivysettings><settings defaultResolver="main"/><resolvers>'
        '<ibiblio name="main" m2compatible="true" root="http://repository.invalid/maven2/"/></resolvers></ivysettings>'
    )
    monkeypatch.setenv("BFM_IVY_SETTINGS", str(settings))
    monkeypatch.setenv("BFM_CACHE", str(tmp_path / "cache"))
    for name in ("http_proxy", "https_proxy", "no_proxy", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)
    with Proxy() as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def test_jars_come_through_the_proxy_of_the_environment_with_its_password(
    proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTP_PROXY", f"http://ada:p%22a%5Cs%20s%401@127.0.0.1:{proxy.server_port}")

    (path,) = jar_paths([JAR])

    assert Path(path).read_bytes() == CONTENT
    assert "http://repository.invalid/maven2/org/example/thing/1.0/thing-1.0.jar" in proxy.asked
    assert [one.name for one in Path(path).parent.iterdir()] == ["thing-1.0.jar"]  # nothing of the password stays


def test_a_jar_that_is_not_there_is_reported(proxy: Proxy, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTP_PROXY", f"http://ada:p%22a%5Cs%20s%401@127.0.0.1:{proxy.server_port}")

    with pytest.raises(InvalidInput, match=r"could not be fetched(.|\n)*\n:: org.example#other;2.0: not found$"):
        jar_paths([Jar("org.example", "other", "2.0", "")])


@pytest.mark.parametrize("names", ["example.org, .invalid", "invalid", "repository.invalid"])
def test_a_host_of_no_proxy_is_asked_directly(proxy: Proxy, monkeypatch: pytest.MonkeyPatch, names: str) -> None:
    monkeypatch.setenv("HTTP_PROXY", f"http://ada:p%22a%5Cs%20s%401@127.0.0.1:{proxy.server_port}")
    monkeypatch.setenv("NO_PROXY", names)

    with pytest.raises(InvalidInput, match="could not be fetched") as refused:
        jar_paths([JAR])

    assert proxy.asked == [] and "p%22" not in str(refused.value) and PASSWORD not in str(refused.value)


def test_what_is_no_proxy_is_reported_without_its_password(proxy: Proxy, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTPS_PROXY", "http://ada:secret@proxy:port")

    with pytest.raises(InvalidInput) as refused:
        jar_paths([JAR])

    assert str(refused.value) == "HTTPS_PROXY is no address of a proxy, such as http://proxy.example.org:3128."


def test_a_repository_that_says_nothing_is_not_waited_for_without_end(
    proxy: Proxy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("backfill_manager.execution.spark.jars.FETCH_TIMEOUT_S", 3.0)
    with socket.create_server(("127.0.0.1", 0)) as silent:  # the system accepts connections to it
        monkeypatch.setenv("HTTP_PROXY", f"http://127.0.0.1:{silent.getsockname()[1]}")
        with pytest.raises(
            InvalidInput, match=r"org.example:thing:1.0 could not be fetched within 3.0 s: .* does not answer"
        ):
            jar_paths([JAR])
    assert not list((tmp_path / "cache" / "jars").iterdir())


def test_a_java_that_does_not_end_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("backfill_manager.execution.spark.jars.VERSION_TIMEOUT_S", 0.5)
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "java").write_text("#!/bin/sh\nexec tail -f /dev/null\n")
    (tmp_path / "bin" / "java").chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(WrongJava, match=r"does not report its version within 0.5 s. Spark needs Java"):
        java()
