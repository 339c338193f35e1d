"""How a task process and the manager talk, before and while it has a task."""

from __future__ import annotations

import pickle
import signal
import socket
import threading
from typing import Any, cast

import pytest
from support.executor_fixture import PATIENCE, THIS_STATE, a_launch

from backfill_manager.execution.spark.spark_job_group import SparkJobGroup
from backfill_manager.execution.task_processes.task_main import TaskOrder, TaskStopped, _Manager
from backfill_manager.execution.task_processes.task_spark import TaskSpark
from backfill_manager.processes.channel import Channel


class AsksForAGateway:
    """Attaches itself as far as this can be done without a JVM."""

    def __init__(self, manager: _Manager) -> None:
        self._manager = manager
        self.answer: dict[str, Any] = {}

    def attach(self) -> None:
        self.answer = self._manager.request_gateway()


def test_an_order_may_come_before_the_answer_to_what_a_waiting_process_has_asked() -> None:
    order = TaskOrder(a_launch(), THIS_STATE, None, SparkJobGroup("backfill", "tag", "description"))
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.settimeout(PATIENCE)
        theirs.settimeout(PATIENCE)
        channel, manager = Channel(ours), _Manager(Channel(theirs))

        def answer() -> None:
            received = channel.receive()
            assert received is not None
            channel.send({"order": True}, attachment=pickle.dumps(order))
            channel.send({"number": received[0]["number"], "gateway": {"port": 7}})

        answering = threading.Thread(target=answer)
        answering.start()
        spark = AsksForAGateway(manager)
        assert manager.receive_order(cast(TaskSpark, spark)) == order
        assert spark.answer == {"port": 7, "connection": None}
        answering.join()


def test_a_stop_that_comes_in_the_middle_of_a_message_waits_until_it_is_sent() -> None:
    """Of a long line of log, to a manager that is behind; the next message would have been taken for the rest of it."""
    ours, theirs = socket.socketpair()
    theirs.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4_096)
    line = {"level": "INFO", "line": "x" * 1_000_000}
    stopped = threading.Event()
    received: list[tuple[dict[str, Any], list[int]] | None] = []
    with ours, theirs:
        ours.settimeout(PATIENCE)
        manager = _Manager(Channel(theirs))

        def stop(_number: int, _frame: object) -> None:
            waits = manager.stops_when_sent()
            stopped.set()
            if not waits:
                raise TaskStopped

        def stop_and_receive(sender: int) -> None:
            ours.recv(1, socket.MSG_PEEK)
            signal.pthread_kill(sender, signal.SIGTERM)
            assert stopped.wait(PATIENCE)
            received.append(Channel(ours).receive())

        manager.stop = stop
        before = signal.signal(signal.SIGTERM, stop)
        try:
            receiver = threading.Thread(target=stop_and_receive, args=[threading.get_ident()])
            receiver.start()
            with pytest.raises(TaskStopped):
                manager.send(line)
        finally:
            signal.signal(signal.SIGTERM, before)
            theirs.shutdown(socket.SHUT_RDWR)
            receiver.join()
    assert received == [(line, [])]
