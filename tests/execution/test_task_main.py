"""How a task process and the manager talk, before and while it has a task."""

from __future__ import annotations

import pickle
import socket
import threading
from typing import Any, cast

from support.executor_fixture import PATIENCE, THIS_STATE, a_launch

from backfill_manager.execution.task_main import TaskOrder, _Manager
from backfill_manager.execution.task_spark import TaskSpark
from backfill_manager.processes.channel import Channel


class AsksForAGateway:
    """Attaches itself as far as this can be done without a JVM."""

    def __init__(self, manager: _Manager) -> None:
        self._manager = manager
        self.answer: dict[str, Any] = {}

    def attach(self) -> None:
        self.answer = self._manager.request_gateway()


def test_an_order_may_come_before_the_answer_to_what_a_waiting_process_has_asked() -> None:
    order = TaskOrder(a_launch(), THIS_STATE, None, group="group", tag="tag", description="description")
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
