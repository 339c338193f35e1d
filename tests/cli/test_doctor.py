"""`bfm doctor`: what a manager needs, found out on this machine."""

from __future__ import annotations

import json
import socket
import sys
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from support.sample_state import FilledState, StandingClock

from backfill_manager.cli import machine_checks
from backfill_manager.cli.app import run
from backfill_manager.cli.context import CliContext
from backfill_manager.clock import Clock, SystemClock

CONF = {"state": "./state", "warehouse": "./warehouse", "api": {"port": 0}}


@dataclass(frozen=True)
class Found:
    code: int
    checks: list[dict[str, Any]]

    def of(self, name: str) -> tuple[str, str]:
        [one] = [one for one in self.checks if one["name"] == name]
        assert (one["advice"] is None) == (one["status"] == "ok"), "what is not ok says what to do"
        return one["status"], one["found"]


Doctor = Callable[..., Found]


@pytest.fixture
def doctor(tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Doctor:
    """In a folder with this configuration, and an empty bundle."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "dags").mkdir()

    def run_it(*options: str, clock: Clock | None = None, **conf: Any) -> Found:
        document = {**CONF, "bundles": [{"name": "shop", "path": "dags"}], **conf}
        (tmp_path / "manager.yaml").write_text(json.dumps(document))
        capfd.readouterr()
        line = ("--conf", "manager.yaml", "--output", "json", "doctor", *options)
        code = run(line, CliContext(environ={}, clock=clock or SystemClock()))
        return Found(code, json.loads(capfd.readouterr().out))

    return run_it


def test_where_all_is_there_each_check_says_what_it_has_found(doctor: Doctor, tmp_path: Path) -> None:
    found = doctor()
    assert found.code == 0
    assert {one["status"] for one in found.checks if one["name"] not in ("jars", "memory", "descriptors")} == {"ok"}
    assert [one["name"] for one in found.checks] == [
        "python", "packages", "java", "descriptors", "memory", "configuration", "jars", "bundles", "state", "warehouse", "tables",
        "port",
    ]  # fmt: skip
    assert "there is no state yet" in found.of("tables")[1]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["dags", "manager.yaml"], "nothing was left behind"


def test_a_wrong_configuration_is_an_error_and_the_machine_is_checked_all_the_same(doctor: Doctor) -> None:
    found = doctor(lease={"seconds": -1})
    assert found.code == 1
    assert found.of("configuration")[0] == "error" and "lease.seconds" in found.of("configuration")[1]
    assert found.of("python")[0] == "ok"


@pytest.mark.parametrize(
    ("conf", "check", "status", "part"),
    [
        ({"bundles": []}, "bundles", "warning", "none"),
        ({"bundles": [{"name": "shop", "path": "nowhere"}]}, "bundles", "error", "nowhere does not exist"),
        (
            {"bundles": [{"name": "shop", "git": "https://me:pw@example.org/x.git"}]},
            "bundles",
            "ok",
            "shop: https://example.org",
        ),
        (
            {"bundles": [{"name": "shop", "git": "https://token@example.org/x.git"}]},
            "bundles",
            "ok",
            "shop: https://example.org",
        ),
        (
            {"bundles": [{"name": "shop", "git": "https://example.org/x.git?private_token=s3cr3t"}]},
            "bundles",
            "ok",
            "shop: https://example.org/x.git?private_token=*** at",
        ),
        (
            {"notifications": [{"name": "ops", "url": "slakc://x"}]},
            "notifications",
            "error",
            "Apprise does not take this",
        ),
        ({"notifications": [{"name": "ops", "url_env": "NO_SUCH"}]}, "notifications", "error", "no variable NO_SUCH"),
        ({"notifications": [{"name": "ops", "url": "json://127.0.0.1:9"}]}, "notifications", "ok", "ops"),
        ({"openlineage": {"transport": {"type": "htp"}}}, "openlineage", "error", "openlineage.transport: "),
        (
            {"openlineage": {"transport": {"type": "http", "url": "http://127.0.0.1:9"}}},
            "openlineage",
            "ok",
            "transport http",
        ),
        ({"opentelemetry": {}}, "opentelemetry", "ok", "OTLP"),
        ({"secrets": {"files": "no-such"}}, "secrets", "error", "no-such can't be read: No such file"),
        ({"secrets": {"files": "dags"}}, "secrets", "ok", "files in"),
        ({"secrets": {"allow": {"shopp": ["a"]}}}, "secrets", "warning", "no bundle of this configuration: shopp"),
        ({"state": "manager.yaml/state"}, "state", "error", "manager.yaml: Not a directory"),
    ],
)
def test_what_the_configuration_names_must_be_there(
    doctor: Doctor, conf: dict[str, Any], check: str, status: str, part: str
) -> None:
    found = doctor(**conf)
    assert found.of(check)[0] == status and part in found.of(check)[1]
    assert found.code == (status == "error")


@pytest.mark.parametrize(
    ("name", "value", "status", "part"),
    [
        ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc", "error", "must be http/protobuf, not 'grpc'"),
        ("OTEL_TRACES_EXPORTER", "none", "warning", "turns traces off"),
    ],
)
def test_variables_of_traces_are_checked(
    doctor: Doctor, name: str, value: str, status: str, part: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(name, value)
    found = doctor(opentelemetry={})
    assert found.of("opentelemetry")[0] == status and part in found.of("opentelemetry")[1]


def test_an_old_or_missing_java_is_an_error(doctor: Doctor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    found = doctor()
    assert (found.code, found.of("java")) == (1, ("error", f"Java was not found in JAVA_HOME={tmp_path}"))


def test_a_python_of_sparks_workers_that_is_not_here_is_a_warning(
    doctor: Doctor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYSPARK_PYTHON", "/no/such/python")
    assert doctor().of("python") == ("warning", "PYSPARK_PYTHON=/no/such/python is not on this machine")
    monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)
    assert doctor().of("python")[0] == "ok"


def test_packages_that_do_not_fit_are_named(doctor: Doctor, monkeypatch: pytest.MonkeyPatch) -> None:
    real = machine_checks.version
    monkeypatch.setattr(machine_checks, "version", lambda name: "4.1.0" if name == "pyspark" else real(name))
    assert doctor().of("packages") == ("error", "pyspark 4.1.0 (needed: ==4.2.0)")


def test_another_spark_in_spark_home_is_an_error(
    doctor: Doctor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for file in ("bin/spark-submit", "jars/spark-core_2.13-3.5.1.jar"):
        (tmp_path / "spark" / file).parent.mkdir(parents=True)
        (tmp_path / "spark" / file).touch()
    monkeypatch.setenv("SPARK_HOME", str(tmp_path / "spark"))
    status, said = doctor().of("packages")
    assert status == "error" and "is Spark 3.5.1, and PySpark is 4.2.0" in said


def test_a_port_that_another_program_has_is_a_warning(doctor: Doctor) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        other.listen(1)
        port = other.getsockname()[1]
        connected = doctor(api={"port": port})
    assert (
        connected.of("port")[0] == "warning" and f"127.0.0.1:{port}: Address already in use" in connected.of("port")[1]
    )


def test_a_storage_with_another_time_is_a_warning(doctor: Doctor) -> None:
    status, said = doctor(clock=StandingClock()).of("warehouse")
    assert status == "warning" and "the clock of its storage differs by" in said


@pytest.mark.parametrize(
    ("ahead_s", "here", "expected"),
    [
        (0, None, ("ok", "active on here, process 4711, release ")),
        (-7200, None, ("warning", "none is active; the last one was on here")),
        (60, None, ("error", "the last sign of the manager on here is 60 s in the future")),
        (0, "99.0", ("warning", "and this is 99.0")),
    ],
)
def test_the_manager_is_looked_at(
    doctor: Doctor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ahead_s: int, here: str | None, expected: tuple[str, str]
) -> None:  # fmt: skip
    clock = StandingClock()
    clock.at += timedelta(seconds=ahead_s)
    FilledState(tmp_path / "state", clock).leads()
    clock.at -= timedelta(seconds=ahead_s)
    if here:
        monkeypatch.setattr("backfill_manager.__version__", here)
    found = doctor(clock=clock)
    status, said = found.of("manager")
    assert status == expected[0] and expected[1] in said
    assert found.code == (status == "error")


def test_a_manager_that_may_hang_is_a_warning(doctor: Doctor, tmp_path: Path) -> None:
    state = FilledState(tmp_path / "state", clock := StandingClock())
    state.leads()
    state.leader.heartbeat(clock.now(), slow_loop="tick", slow_loop_since=clock.now() - timedelta(minutes=4))
    found = doctor(clock=clock)
    assert found.of("manager")[0] == "warning" and "may hang" in found.of("manager")[1]
    assert any("has been at the same work for 4 min" in (one["advice"] or "") for one in found.checks)


def test_a_state_that_can_not_be_read_is_an_error(doctor: Doctor, tmp_path: Path) -> None:
    state = FilledState(tmp_path / "state", StandingClock())
    state.pools()
    for entry in (tmp_path / "state" / "dag" / "_delta_log").iterdir():
        entry.write_bytes(b"{")
    found = doctor()
    assert (found.code, found.of("tables")[0]) == (1, "error")


def test_two_writers_race_in_a_thorough_check(doctor: Doctor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Spark is started by `tests/e2e/test_doctor.py`."""
    started = machine_checks.Check("spark", "ok", "not started here")
    monkeypatch.setattr(machine_checks, "check_spark", lambda settings: started)
    FilledState(tmp_path / "state", StandingClock()).pools()
    assert doctor("--thorough").of("storage") == ("ok", "of two writers of one log entry, one succeeds")
