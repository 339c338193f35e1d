"""A way into the driver's JVM for one task process: a py4j server of its own, made by the manager.

Of its own, because what a process holds of the JVM (sessions, data frames) is kept by the server that gave it out, and is free
when the manager says so, however the process ended; and because Spark calls a process back (`foreachBatch`) through its server.
A server whose process ended by itself is emptied and serves another one: starting it costs more than a task that does little.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from backfill_manager.execution.spark_health import ignore_stopped_context

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(eq=False)
class JvmGateway:
    server: Any
    port: int
    secret: str
    is_new: bool = field(default=True)  # the names that PySpark uses are not imported yet


class JvmGateways:
    """Those of a manager's session. Used by one thread."""

    def __init__(self, spark: SparkSession) -> None:
        context = spark.sparkContext
        jvm: Any = context._jvm
        self._new_builder = jvm.py4j.ClientServer.ClientServerBuilder
        self._loopback = jvm.java.net.InetAddress.getLoopbackAddress()
        self._shared = jvm.java.util.ArrayList()  # what a process takes over: see `attached_spark`
        for shared in (context._jsc, spark._jsparkSession, context._jsc.sc().conf()):
            self._shared.add(shared)
        self._free: list[JvmGateway] = []
        self._context_values: dict[str, Any] = {  # of the Python side of the SparkContext
            "master": context.master, "appName": context.appName, "sparkHome": context.sparkHome,
            "environment": dict(context.environment), "_encryption_enabled": bool(context._encryption_enabled),
            "_python_includes": list(context._python_includes),
        }  # fmt: skip

    def open(self) -> JvmGateway:
        if self._free:
            return self._free.pop()
        secret = secrets.token_hex(32)
        server = self._new_builder(self._shared).javaPort(0).javaAddress(self._loopback).authToken(secret).build()
        server.startServer()
        return JvmGateway(server, server.getJavaServer().getListeningPort(), secret)

    def job(self, gateway: JvmGateway) -> dict[str, Any]:
        """What a process needs to come in: arguments of `AttachedSpark`."""
        return {
            "port": gateway.port, "secret": gateway.secret, "values": self._context_values, "imports": gateway.is_new,
        }  # fmt: skip

    def release(self, gateway: JvmGateway, *, reusable: bool) -> None:
        """Its process has ended. `reusable`: by itself, and no call of it still runs in the JVM."""
        with ignore_stopped_context():
            inside = gateway.server.getJavaServer().getGateway()
            if not reusable or not inside.isStarted():  # a task may have shut its own down
                gateway.server.shutdown()
                return
            inside.shutdown(False)  # forgets what it has given out
            inside.startup()
            gateway.is_new = False
            self._free.append(gateway)

    def close(self) -> None:
        """Ends those that wait for a process: a server that listens would keep the JVM of spark-submit alive."""
        for gateway in self._free:
            with ignore_stopped_context():
                gateway.server.shutdown()
        self._free.clear()
