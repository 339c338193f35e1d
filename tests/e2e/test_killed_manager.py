"""A real `kill -9` of a real manager, in the middle of a real backfill, more than once; a standby that takes over; and one that
serves its pages and is stopped."""

from __future__ import annotations

import json
import re
import signal
import socket
import subprocess
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest
from support.manager_process import TIMEOUT_S, kill, wait_for
from support.steady import Steady

from backfill_manager.client import Client
from backfill_manager.model import states as s
from backfill_manager.model.records import Manager, TaskInstance, TaskTry

DAYS = 9


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path


@pytest.fixture
def story(root: Path) -> Steady:
    lineage = {"type": "file", "log_file_path": str(root / "lineage.json"), "append": True}
    return Steady(root, api={"port": 0}, openlineage={"transport": lineage})


def test_killed_in_the_middle_and_started_again_each_interval_is_written_once(
    root: Path, story: Steady, managers: Callable[..., subprocess.Popen[bytes]]
) -> None:
    first = managers()
    story.begin(DAYS)
    story.when_done(2)
    kill(first)
    second = managers()
    story.when_done(5)
    kill(second)
    last = managers("--until-idle")
    assert last.wait(TIMEOUT_S) == 0, story.log(2)
    assert " WARN " not in story.log(2) and "log4j" not in story.log(2), "Spark logs errors alone"
    story.end()
    assert {ti.try_number for ti in story.store.read(TaskInstance)} == {1}, "a crash costs no try"
    lost = [t for t in story.store.read(TaskTry) if t.state == "lost"]
    assert lost, "something was running when it was killed"
    events = [json.loads(line) for line in (root / "lineage.json").read_text().splitlines()]
    assert len([event for event in events if event["eventType"] == "ABORT"]) == len(lost), "its successor says so"


def test_a_standby_says_so_and_takes_over_from_a_killed_leader(
    story: Steady, managers: Callable[..., subprocess.Popen[bytes]]
) -> None:
    leader = managers()
    story.begin(6)
    story.when_done(1)
    standby = managers("--until-idle")
    wait_for(lambda: "standing by" in story.log(1))
    assert [row.pid for row in story.store.read(Manager)] == [leader.pid]
    kill(leader)
    assert standby.wait(TIMEOUT_S) == 0, story.log(1)
    assert [(row.term, row.pid) for row in story.store.read(Manager, order_by=["term"])] == [
        (1, leader.pid),
        (2, standby.pid),
    ]
    story.end()


def test_a_manager_with_pages_is_asked_over_http_and_sigterm_drains_it(
    story: Steady, managers: Callable[..., subprocess.Popen[bytes]]
) -> None:
    manager = managers("--with-ui")
    url = wait_for(lambda: re.search(r"The web pages are at (http://127\.0\.0\.1:(\d+))", story.log(0)))
    with (
        httpx.Client(base_url=url[1], timeout=TIMEOUT_S, trust_env=False, follow_redirects=True) as browser,
        Client(url[1]) as client,
    ):
        wait_for(lambda: list(client.dags()))
        assert browser.get("/api/v1/health").json()["manager"] == "leading"
        for page in ("/", "/manager"):
            assert (answer := browser.get(page)).status_code == 200, page
            assert "</html>" in answer.text, page

        submitted = client.create_backfill("steady", start_date="2024-06-01", end_date="2024-06-01", wait=60)
        submitted = wait_for(lambda: (found := client.request(submitted.request_id)).is_answered and found)
        assert (submitted.state, submitted.source) == ("accepted", "api")
        *_, last = client.watch(str(submitted.object_id))
        assert (last.state, last.planned, last.success) == (s.SUCCESS, 1, 1)

        story.begin(150)  # more than can be done before it is stopped
        story.when_done(2)
        with browser.stream("GET", "/api/v1/events") as listening:
            manager.send_signal(signal.SIGTERM)
            heard = list(listening.iter_lines())  # listeners are disconnected
        assert "event: changed" in heard
    assert manager.wait(TIMEOUT_S) == 0, story.log(0)
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", int(url[2]))).close()
    assert story.store.lease().state == s.STOPPED  # type: ignore[union-attr]
    assert {ti.state for ti in story.store.read(TaskInstance)} <= {s.SUCCESS, s.NONE, s.SCHEDULED, s.UP_FOR_RETRY}
    assert story.done() < 1 + 150, "nothing new was begun"
