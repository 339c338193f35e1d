"""A way into the driver's JVM for one task process: a py4j server of its own, made by the manager.

Of its own, because what a process holds of the JVM (sessions, data frames) is kept by the server that gave it out, and is free
when the manager says so, however the process ended; and because Spark calls a process back (`foreachBatch`) through its server.
A server whose process ended by itself is emptied and serves another one: starting it costs more than a task that does little.
"""

from __future__ import annotations

import secrets
import select
import socket
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from py4j.protocol import AUTH_COMMAND_NAME, RETURN_MESSAGE, STRING_TYPE, SUCCESS, Py4JError, is_error

from backfill_manager.execution.spark.spark_health import ignore_stopped_context
from backfill_manager.execution.task_processes.task_spark import SHARED

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ANSWER_TIMEOUT_MS: Final = 1000


@dataclass(eq=False)
class JvmGateway:
    server: Any
    inside: Any  # the table of what it has given out
    given_out: Any
    kept: Any  # names in it that stay
    port: int
    secret: str
    connection: socket.socket  # of the first thread of its process
    expected: bytes = b""  # the next that comes over the connection
    is_new: bool = True  # the names that PySpark uses are not imported yet


class JvmGateways:
    """Those of a manager's session. Used by one thread."""

    def __init__(self, spark: SparkSession) -> None:
        context = spark.sparkContext
        jvm: Any = context._jvm
        self._new_builder = jvm.py4j.ClientServer.ClientServerBuilder
        self._loopback = jvm.java.net.InetAddress.getLoopbackAddress()
        self._new_list = jvm.java.util.ArrayList
        java_context = context._jsc.sc()
        shared = (context._jsc, spark._jsparkSession, java_context.conf(), java_context)
        self._shared = dict(zip(SHARED, shared, strict=True))
        self._free: list[JvmGateway] = []
        self._context_values: dict[str, Any] = {  # of the Python side of the SparkContext
            "master": context.master, "appName": context.appName, "sparkHome": context.sparkHome,
            "environment": dict(context.environment), "_encryption_enabled": bool(context._encryption_enabled),
            "_python_includes": list(context._python_includes),
        }  # fmt: skip

    def open(self) -> JvmGateway:
        while self._free:
            gateway = self._free.pop()
            if _answers(gateway):
                return gateway
            self._shut_down(gateway)
        secret = secrets.token_hex(32)
        server = self._new_builder(None).javaPort(0).javaAddress(self._loopback).authToken(secret).build()
        server.startServer()
        java_server = server.getJavaServer()
        port, inside = java_server.getListeningPort(), java_server.getGateway()
        connection = _connect(port, secret)  # a thread of the server fills its table before it takes connections
        for name, shared in self._shared.items():
            inside.putObject(name, shared)
        given_out = inside.getBindings().keySet()
        return JvmGateway(server, inside, given_out, self._new_list(given_out), port, secret, connection)

    def job(self, gateway: JvmGateway) -> dict[str, Any]:
        """What a process needs to come in, see `task_spark.TaskSpark`."""
        values, is_new = self._context_values, gateway.is_new
        return {"port": gateway.port, "secret": gateway.secret, "values": values, "imports": is_new}

    def release(self, gateway: JvmGateway, *, reusable: bool) -> None:
        """Its process has ended. `reusable`: by itself, and no call of it still runs in the JVM."""
        with ignore_stopped_context():
            # a task may have shut its own down, or have the JVM forget what each process needs
            if reusable and gateway.inside.isStarted() and gateway.given_out.containsAll(gateway.kept):
                gateway.given_out.retainAll(gateway.kept)
                gateway.is_new = False
                _ask(gateway)
                self._free.append(gateway)
                return
        self._shut_down(gateway)

    def close(self) -> None:
        """Ends those that wait for a process: a server that listens would keep the JVM of spark-submit alive."""
        while self._free:
            self._shut_down(self._free.pop())

    def _shut_down(self, gateway: JvmGateway) -> None:
        gateway.connection.close()
        with ignore_stopped_context():
            gateway.server.shutdown()


def _connect(port: int, secret: str) -> socket.socket:
    connection = socket.create_connection(("127.0.0.1", port))
    connection.sendall(f"{AUTH_COMMAND_NAME}\n{secret}\n".encode())
    with connection.makefile("rb") as answers:
        answer = answers.readline().decode()
    refused, _ = is_error(answer.removeprefix(RETURN_MESSAGE))
    if refused:
        connection.close()
        raise Py4JError(f"the JVM refuses a connection: {answer!r}")
    return connection


def _ask(gateway: JvmGateway) -> None:
    """Over its connection, for `_answers`."""
    token = secrets.token_hex(8)
    gateway.expected = f"{RETURN_MESSAGE}{SUCCESS}{STRING_TYPE}{token}\n".encode()
    with suppress(OSError):  # it has ended: no answer comes
        gateway.connection.send(f"c\nz:java.util.Objects\ntoString\ns{token}\ne\n".encode(), socket.MSG_DONTWAIT)


def _answers(gateway: JvmGateway) -> bool:
    """Whether the connection has given the right answer to `_ask`, and nothing else: the answer to a call that a task had left
    would come first."""
    poll = select.poll()
    poll.register(gateway.connection, select.POLLIN)
    try:
        return bool(poll.poll(ANSWER_TIMEOUT_MS)) and gateway.connection.recv(1 << 16) == gateway.expected
    except OSError:
        return False
