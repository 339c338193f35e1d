"""A way into the driver's JVM for one task process: a py4j server of its own, made and ended by the manager.

Of its own, because what a process holds of the JVM (sessions, data frames) is kept by the server that gave it out, and is free
when that ends, however the process did; and because Spark calls a process back (`foreachBatch`) through its server.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from backfill_manager.execution.spark_health import ignore_stopped_context

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True)
class JvmGateway:
    port: int
    secret: str
    server: Any

    def close(self) -> None:
        """Ends its connections, and forgets what it has given out."""
        with ignore_stopped_context():
            self.server.shutdown()


class JvmGateways:
    """Makes them, for the session of a manager."""

    def __init__(self, spark: SparkSession) -> None:
        context = spark.sparkContext
        jvm: Any = context._jvm
        self._new_builder = jvm.py4j.ClientServer.ClientServerBuilder
        self._loopback = jvm.java.net.InetAddress.getLoopbackAddress()
        self._shared = jvm.java.util.ArrayList()  # what a process takes over: see `attached_spark.attach`
        for shared in (context._jsc, spark._jsparkSession, context._jsc.sc().conf()):
            self._shared.add(shared)
        self.context_values: dict[str, Any] = {  # of the Python side of the SparkContext
            "master": context.master, "appName": context.appName, "sparkHome": context.sparkHome,
            "environment": dict(context.environment), "_encryption_enabled": bool(context._encryption_enabled),
            "_python_includes": list(context._python_includes),
        }  # fmt: skip

    def open(self) -> JvmGateway:
        secret = secrets.token_hex(32)
        builder = self._new_builder(self._shared).javaPort(0).javaAddress(self._loopback).authToken(secret)
        server = builder.build()
        server.startServer()
        return JvmGateway(server.getJavaServer().getListeningPort(), secret, server)
