"""PySpark in a task process: attached to the SparkContext of the manager, which lives in the driver's JVM.

A second Python process at one JVM is nothing that PySpark offers, so this file makes the Python halves of `SparkContext` and
`SparkSession` for Java halves that are there already, without what starting them would do over again. A test compares them with
those of an ordinary driver.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

from py4j.clientserver import ClientServer, ClientServerConnection, JavaClient, JavaParameters, PythonParameters
from py4j.java_gateway import java_import
from pyspark import SparkConf, SparkContext, SparkFiles, accumulators
from pyspark.core.broadcast import BroadcastPickleRegistry
from pyspark.serializers import AutoBatchedSerializer, CPickleSerializer
from pyspark.sql import SparkSession

from backfill_manager.errors import InvalidInput

if TYPE_CHECKING:
    from py4j.java_gateway import JavaObject

_IMPORTED: Final = (  # names that PySpark uses without their package
    "org.apache.spark.SparkConf", "org.apache.spark.api.java.*", "org.apache.spark.api.python.*",
    "org.apache.spark.ml.python.*", "org.apache.spark.mllib.api.python.*", "org.apache.spark.resource.*",
    "org.apache.spark.sql.Encoders", "org.apache.spark.sql.OnSuccessCall", "org.apache.spark.sql.functions",
    "org.apache.spark.sql.classic.*", "org.apache.spark.sql.api.python.*", "org.apache.spark.sql.hive.*", "scala.Tuple2",
)  # fmt: skip


class _Client(JavaClient):  # type: ignore[misc]
    """Each thread of a task has a connection, and so a thread of the JVM, of its own. All of them work for the same try, so each
    new one gets the try's Spark properties (pool, job group, tags), whichever library starts it."""

    of_task: Any = None  # (the Java SparkContext, its properties for this try), once there is a task
    has_more_connections = False  # than that of the main thread

    def _create_new_connection(self) -> ClientServerConnection:
        connection = super()._create_new_connection()
        if self.of_task is not None:
            self.has_more_connections = True
            java_context, properties = self.of_task
            java_context.setLocalProperties(properties.clone())
            self.deque.remove(connection)  # the caller puts it back, too
        return connection


class _Gateway(ClientServer):  # type: ignore[misc]
    def _create_gateway_client(self) -> _Client:
        return _Client(self.java_parameters, self.python_parameters, finalizer_deque=self._create_finalizer_worker())


class TaskSparkContext(SparkContext):  # type: ignore[misc]
    """The manager's SparkContext, as a task has it."""

    def __init__(self, gateway: _Gateway, jsc: JavaObject, jconf: JavaObject, values: Mapping[str, Any]) -> None:
        self._callsite = None
        SparkContext._ensure_initialized(self, gateway=gateway)
        self.__dict__.update(values)
        self._conf, self._jsc = SparkConf(_jconf=jconf), jsc
        self._batchSize, self._unbatched_serializer = 0, CPickleSerializer()
        self.serializer = AutoBatchedSerializer(self._unbatched_serializer)
        self.pythonExec = os.environ["PYSPARK_PYTHON"]
        self.pythonVer = f"{sys.version_info.major}.{sys.version_info.minor}"
        self._pickled_broadcast_vars = BroadcastPickleRegistry()
        self.profiler_collector = None
        SparkFiles._sc = self

    @cached_property
    def _accumulatorServer(self) -> Any:
        return accumulators._start_update_server(self._gateway.gateway_parameters.auth_token, False)

    @cached_property
    def _javaAccumulator(self) -> Any:
        host, port = self._accumulatorServer.server_address
        token = self._gateway.gateway_parameters.auth_token
        accumulator = self._jvm.PythonAccumulatorV2(host, port, token)
        self._jsc.sc().register(accumulator)
        return accumulator

    @cached_property
    def _temp_dir(self) -> str:
        utils = getattr(self._jvm, "org.apache.spark.util.Utils")
        folder: str = utils.createTempDir(utils.getLocalDir(self._jsc.sc().conf()), "pyspark").getAbsolutePath()
        return folder

    def stop(self) -> None:
        raise InvalidInput(
            "A task must not stop Spark: the SparkContext belongs to the manager, and all other tasks work with it. Take the "
            "stop() out of the task; its own session goes away with it."
        )


class AttachedSpark:
    """The way into the JVM, before there is a task."""

    def __init__(self, port: int, secret: str, values: Mapping[str, Any], imports: bool) -> None:
        """`imports`: the gateway does not know yet the names that PySpark uses."""
        self._gateway = _Gateway(
            java_parameters=JavaParameters(port=port, auth_token=secret, auto_convert=True),
            python_parameters=PythonParameters(port=0, eager_load=False),
        )
        self._gateway.proc = None
        for name in _IMPORTED if imports else ():
            java_import(self._gateway.jvm, name)
        shared = self._gateway.entry_point
        jsc, jsession, jconf = shared.get(0), shared.get(1), shared.get(2)
        if "PYSPARK_PYTHON" not in os.environ:  # that of the manager is not for a bundle with an interpreter of its own
            os.environ["PYSPARK_PYTHON"] = SparkConf(_jconf=jconf).get("spark.pyspark.python", sys.executable)
        self.context = TaskSparkContext(self._gateway, jsc, jconf, values)
        SparkSession._instantiatedSession = _Placeholder(self.context)  # else the next is the JVM's default
        self.session = SparkSession(self.context, jsession.newSession())
        SparkSession._instantiatedSession = self.session
        SparkSession._activeSession = self.session

    def enter(self, *, pool: str, group: str, tag: str, description: str) -> None:
        """From here on this process works for one try: all its Spark jobs carry this."""
        self.context.setJobGroup(group, description)
        self.context.addJobTag(tag)
        self.context.setLocalProperty("spark.scheduler.pool", pool)
        self.session.conf.set("spark.scheduler.pool", pool)
        java_context = self.context._jsc.sc()
        self._gateway._gateway_client.of_task = (java_context, java_context.getLocalProperties())

    @property
    def jobs_may_run(self) -> bool:
        """When the task is over: other threads than its main one have called Spark, too, and may still wait for it."""
        return bool(self._gateway._gateway_client.has_more_connections)

    def drop_connection(self) -> None:
        """The current thread takes a new one for its next call: an exception may be raised while it waits for the answer to the
        last, which the next call would then take for its own."""
        self._gateway._gateway_client.thread_connection.connection = None


class _Placeholder:
    def __init__(self, context: SparkContext) -> None:
        self._sc = context
