"""`bfm manager start --with-ui` on a port that is taken: the pages come when the manager leads and the port is free."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import httpx
import pytest
from support.manager_process import TIMEOUT_S, wait_for
from support.sample_state import FilledState, StandingClock

from backfill_manager.api.server import listen
from backfill_manager.cli.commands.serve import PORT_POLL_INTERVAL_S, PagesOfLeader, served_beside_a_manager
from backfill_manager.cli.context import CliContext
from backfill_manager.manager import manager as composition

LOGGED = 'event="port is free: the web pages are served" url='


@pytest.fixture
def leaders() -> Iterator[socket.socket]:
    """The socket of the leader that this manager stands by for."""
    with listen("127.0.0.1", 0) as taken:
        yield taken


@pytest.fixture
def context(tmp_path: Path, state: FilledState, clock: StandingClock, leaders: socket.socket) -> CliContext:
    """Of the standby, whose port is the leader's."""
    (tmp_path / "m.yaml").write_text(f"api: {{port: {port_of(leaders)}}}\n")
    return CliContext(conf=str(tmp_path / "m.yaml"), state=str(state.root), environ={}, clock=clock)


def port_of(bound: socket.socket) -> int:
    return int(bound.getsockname()[1])


def answers(port: int) -> bool:
    try:
        response = httpx.get(f"http://127.0.0.1:{port}/api/v1/dags", timeout=TIMEOUT_S, trust_env=False)
    except httpx.ConnectError:
        return False
    assert response.status_code == 200, response.text
    return True


def test_they_are_tried_for_until_the_port_is_free_and_end_with_the_manager(
    context: CliContext, state: FilledState, leaders: socket.socket, capsys: pytest.CaptureFixture[str]
) -> None:
    port = port_of(leaders)
    with ExitStack() as pages:
        later = PagesOfLeader(context, state.store, pages)
        assert [later.run_once(), later.run_once()] == [PORT_POLL_INTERVAL_S] * 2
        assert capsys.readouterr().err == ""
        leaders.close()
        assert later.run_once() is None, "nothing is left to be tried"
        assert capsys.readouterr().err.count(f"{LOGGED}http://127.0.0.1:{port}") == 1
        assert answers(port)
    assert not answers(port)


def test_a_standby_has_none_while_it_stands_by_and_a_leader_has(
    context: CliContext, leaders: socket.socket, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    port, has_answered = port_of(leaders), []

    class Elector(composition.LeaderElector):
        def wait(self, stop: threading.Event) -> object:  # type: ignore[override]
            leaders.close()  # it is killed
            assert not answers(port)
            return super().wait(stop)

    class Term:
        def __init__(self, *_: object) -> None: ...

        def lead(self, *_: object) -> int:
            has_answered.append(wait_for(lambda: answers(port)))
            return 0

    monkeypatch.setattr(composition, "LeaderElector", Elector)
    monkeypatch.setattr(composition, "Term", Term)
    beside = served_beside_a_manager(context)
    assert f"Port {port} is taken" in capsys.readouterr().err
    settings = context.settings
    assert composition.run_manager(settings, state=settings.state, clock=context.clock, beside=beside) == 0
    assert has_answered == [True]
    assert not answers(port)


def test_one_that_never_leads_opens_none(context: CliContext, state: FilledState, leaders: socket.socket) -> None:
    with served_beside_a_manager(context)(state.store):
        leaders.close()
    assert not answers(context.settings.api.port)


def test_one_whose_port_was_free_has_them_from_the_start(
    context: CliContext, state: FilledState, leaders: socket.socket, capsys: pytest.CaptureFixture[str]
) -> None:
    leaders.close()
    with served_beside_a_manager(context)(state.store) as on_leading:
        assert answers(context.settings.api.port)
        on_leading()
    assert LOGGED not in capsys.readouterr().err
