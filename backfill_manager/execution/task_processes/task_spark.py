"""PySpark in a task process: attached to the SparkContext of the manager, which lives in the driver's JVM.

A second Python process at one JVM is nothing that PySpark offers, so this file makes the Python halves of `SparkContext` and
`SparkSession` for Java halves that are there already, without what starting them would do over again. A test compares them with
those of an ordinary driver.
"""

from __future__ import annotations

import logging
import os
import secrets
import socket
import sys
import threading
from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Any, Final

from py4j.clientserver import (
    ClientServer,
    ClientServerConnection,
    FinalizerWorker,
    JavaClient,
    JavaParameters,
    PythonParameters,
)
from py4j.java_gateway import JavaClass, JavaObject, java_import
from pyspark import SparkConf, SparkContext, SparkFiles, accumulators
from pyspark.core.broadcast import BroadcastPickleRegistry
from pyspark.errors.exceptions.captured import install_exception_handler
from pyspark.serializers import AutoBatchedSerializer, CPickleSerializer
from pyspark.sql import SparkSession
from pyspark.sql.catalog import Catalog
from pyspark.sql.profiler import AccumulatorProfilerCollector
from pyspark.sql.session import _monkey_patch_RDD
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from backfill_manager.errors import BackfillManagerError, InvalidInput
from backfill_manager.execution.error_format import silence_query_loggers
from backfill_manager.execution.spark.cached_rows import CachedRows
from backfill_manager.execution.spark.spark_job_group import SparkJobGroup

_logger: Final = logging.getLogger("pyspark")
SHARED: Final = ("bfm-jsc", "bfm-session", "bfm-conf", "bfm-context")  # names of Java objects that each gateway has
_IMPORTED: Final = (  # names that PySpark uses without their package
    "org.apache.spark.SparkConf", "org.apache.spark.api.java.*", "org.apache.spark.api.python.*",
    "org.apache.spark.ml.python.*", "org.apache.spark.mllib.api.python.*", "org.apache.spark.resource.*",
    "org.apache.spark.sql.Encoders", "org.apache.spark.sql.OnSuccessCall", "org.apache.spark.sql.functions",
    "org.apache.spark.sql.classic.*", "org.apache.spark.sql.api.python.*", "org.apache.spark.sql.hive.*", "scala.Tuple2",
)  # fmt: skip


class NoSpark(BackfillManagerError):
    """The manager has no way into the JVM for this process."""


class _Connection(ClientServerConnection):  # type: ignore[misc]
    socket: Any
    waiting_for = 0  # answers; a callback of the JVM may call it meanwhile

    def take(self, connected: int) -> None:
        """Be a connection that the manager has made: its thread of the JVM has looked up the methods before."""
        self.socket = socket.socket(fileno=connected)
        self.stream = self.socket.makefile("rb")
        self.is_connected = self.initiated_from_client = True

    def send_command(self, command: str) -> str:
        self.waiting_for += 1
        answer: str = super().send_command(command)
        self.waiting_for -= 1
        return answer


class _Client(JavaClient):  # type: ignore[misc]
    """Each thread of a task has a connection, and so a thread of the JVM, of its own. All of them work for the same try, so each
    new one gets the try's Spark properties (pool, job group, tags), whichever library starts it."""

    of_task: Any = None  # (the Java SparkContext, its properties for this try), once there is a task
    has_more_connections = False  # than the first
    given: int | None = None  # a connection that the manager has made
    first: _Connection | None = None

    def _create_new_connection(self) -> _Connection:
        connection = _Connection(self.java_parameters, self.python_parameters, self.gateway_property, self)
        if self.given is None:
            connection.connect_to_java_server()
        else:
            connection.take(self.given)
            self.first, self.given = connection, None
        self.set_thread_connection(connection)
        if self.of_task is not None and not isinstance(threading.current_thread(), FinalizerWorker):
            self.has_more_connections = True
            java_context, properties = self.of_task
            java_context.setLocalProperties(properties.clone())
            self.deque.remove(connection)  # the caller puts it back, too
        return connection

    def leave_to_parent(self) -> None:
        """In a fork that the task has made: what it calls goes over a connection of its own."""
        if self.first is not None and self.first.socket is not None:
            self.first.socket.close()
            self.first.socket = None

    def has_forked(self) -> None:
        self.has_more_connections = True

    @property
    def is_at_rest(self) -> bool:
        """No other connection was made, and the first waits for no answer: it can serve another process."""
        first = self.first
        is_free = first is not None and first.waiting_for == 0 and first.socket is not None
        return is_free and not self.has_more_connections


class _Gateway(ClientServer):  # type: ignore[misc]
    finalizer: FinalizerWorker | None = None  # the thread that has the JVM forget what Python has forgotten

    def _create_gateway_client(self) -> _Client:
        return _Client(self.java_parameters, self.python_parameters, finalizer_deque=self._create_finalizer_worker())

    def _create_finalizer_worker(self) -> Any:
        before = set(threading.enumerate())
        deque = super()._create_finalizer_worker()
        self.finalizer = next((one for one in threading.enumerate() if one not in before), None)
        return deque


class TaskSparkContext(SparkContext):  # type: ignore[misc]
    """The manager's SparkContext, as a task has it."""

    def __init__(self, gateway: _Gateway, jsc: JavaObject, jconf: JavaObject, values: Mapping[str, Any]) -> None:
        self._callsite = None
        self.jobs: SparkJobGroup | None = None  # of the try
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

    def setLogLevel(self, logLevel: str) -> None:
        """There is one for the whole JVM: a task's would hide the errors of others, or fill the manager's log."""
        _logger.warning("setLogLevel(%r) has no effect: the log level of Spark is the manager's", logLevel)

    def cancelAllJobs(self) -> None:
        """Those of the try, not those of other tasks."""
        assert self.jobs is not None
        self._jsc.cancelJobsWithTag(self.jobs.tag)


_WAYS_TO_A_SESSION: Final = (
    *((SparkContext, name) for name in ("_gateway", "_jvm", "_active_spark_context")),
    *((SparkSession, name) for name in ("_instantiatedSession", "_activeSession")),
    (SparkFiles, "_sc"),
)


class TaskSpark:
    """A task's way into the JVM, taken when it is first needed: by `ctx.spark`, or by what of PySpark looks for a session. A try
    without it costs less than half."""

    def __init__(self, request: Callable[[], Mapping[str, Any]]) -> None:
        """`request` asks the manager for a gateway, see `jvm_gateway.JvmGateways.job`."""
        self._request, self._process = request, os.getpid()
        self._gateway: _Gateway | None = None
        self._kept: list[JavaObject] = []
        self._streams: list[StreamingQuery] = []
        self._jobs: SparkJobGroup | None = None  # of the try
        self._lock, self._is_attaching, self.is_attached = threading.RLock(), False, False
        self._has_left = False  # the last try, and has not been attached again
        self._attached_ways: list[Any] = []  # what `_WAYS_TO_A_SESSION` are when it is attached
        self._watch_ways()

    @property
    def session(self) -> SparkSession:
        self.attach()
        return self._session

    def attach(self) -> None:
        with self._lock:  # a thread that comes meanwhile waits; what this one looks at on its way does not begin again
            if self.is_attached or self._is_attaching:
                return
            if os.getpid() != self._process:
                raise InvalidInput("Spark can't be used in a fork of a task's process; threads of the task can")
            self._is_attaching, self._has_left = True, False
            try:
                if self._gateway is None:
                    self._attach(**self._request())
                else:
                    self._attach_again()
                if self._jobs is not None:
                    self._enter(self._jobs)
                self.is_attached = True
            finally:
                self._is_attaching = False
                if not self.is_attached:
                    self._watch_ways()

    def _watch_ways(self) -> None:
        for owner, name in _WAYS_TO_A_SESSION:
            setattr(owner, name, _Way(self, owner, name))

    def _attach(self, port: int, secret: str, values: Mapping[str, Any], imports: bool, connection: int | None) -> None:
        """`imports`: the gateway does not know yet the names that PySpark uses."""
        silence_query_loggers()
        self._gateway = gateway = _Gateway(
            java_parameters=JavaParameters(port=port, auth_token=secret, auto_convert=True),
            python_parameters=PythonParameters(port=0, eager_load=False),
        )
        gateway.proc = None
        # The JVM may still forget objects of a process that had this gateway before, by their numbers: ours have others.
        gateway.gateway_property.pool.next_id = secrets.randbits(48)
        client = gateway._gateway_client
        client.given = connection
        os.register_at_fork(after_in_parent=client.has_forked, after_in_child=client.leave_to_parent)
        for name in _IMPORTED if imports else ():
            java_import(gateway.jvm, name)
        shared = [JavaObject(name, client) for name in SHARED]
        self._kept += shared  # py4j has the JVM forget what Python has forgotten, and the next process needs these
        jsc, jsession, jconf, self._java_context = shared
        if "PYSPARK_PYTHON" not in os.environ:  # that of the manager is not for a bundle with an interpreter of its own
            os.environ["PYSPARK_PYTHON"] = SparkConf(_jconf=jconf).get("spark.pyspark.python", sys.executable)
        self.context = TaskSparkContext(gateway, jsc, jconf, values)
        self._session = _session(self.context, jsession.newSession())

        def started(_: DataStreamWriter, java: JavaObject) -> StreamingQuery:
            self._streams.append(query := StreamingQuery(java))
            return query

        DataStreamWriter._sq = started
        Catalog.clearCache = _drop_own_rows
        SparkSession._instantiatedSession = self._session
        SparkSession._activeSession = self._session
        self._attached_ways = [vars(owner)[name] for owner, name in _WAYS_TO_A_SESSION]

    def _attach_again(self) -> None:
        """A session for the next try of this process, over the same way into the JVM."""
        for (owner, name), value in zip(_WAYS_TO_A_SESSION, self._attached_ways, strict=True):
            setattr(owner, name, value)
        self._session = _session(self.context, self._kept[1].newSession())
        self.context._pickled_broadcast_vars = BroadcastPickleRegistry()
        SparkSession._instantiatedSession = self._session
        SparkSession._activeSession = self._session

    def enter(self, jobs: SparkJobGroup) -> None:
        """From here on this process works for one try, which has this job group."""
        with self._lock:
            self._jobs = jobs
            if self.is_attached:
                self._enter(jobs)

    def _enter(self, jobs: SparkJobGroup) -> None:
        assert self._gateway is not None
        client = self._gateway._gateway_client
        properties = JavaClass("java.util.Properties", client)()
        self._java_context.setLocalProperties(properties)  # in place of those of the try that had this connection
        JavaClass("org.apache.spark.sql.classic.SparkSession", client).setActiveSession(self._session._jsparkSession)
        jobs.enter(self._session)
        self.context.jobs = jobs
        client.of_task = (self._java_context, properties)
        client.has_more_connections = threading.current_thread() is not threading.main_thread()

    def leave(self) -> None:
        """The try is over, and left nothing that goes on. The next one gets a session of its own when it first needs Spark."""
        with self._lock:
            self._jobs, self.is_attached, self._has_left = None, False, True
            self._streams.clear()
            self._watch_ways()

    @property
    def threads(self) -> list[threading.Thread]:
        """Those of this process that are py4j's, however many tries it serves."""
        finalizer = None if self._gateway is None else self._gateway.finalizer
        return [] if finalizer is None else [finalizer]

    def stop_streams(self, log: Callable[[str, str], None]) -> None:
        """The function has returned, and the process that runs their `foreachBatch` ends now. Nothing is asked of the JVM when no
        stream was started."""
        for query in self._streams:
            if query.isActive:
                about = f"streaming query {query.name or str(query.id)!r}"
                log("WARNING", f"{about} still ran when the function had returned; it is stopped")
                query.stop()

    @property
    def jobs_may_run(self) -> bool:
        """When the task is over: other threads than its main one have called Spark, too, and may still wait for it, or the main
        one was interrupted while it did."""
        if self._gateway is None or self._has_left:
            return False
        return not (self.is_attached and self._gateway._gateway_client.is_at_rest)

    def drop_connection(self) -> None:
        """The current thread takes a new one for its next call: an exception may be raised while it waits for the answer to the
        last, which the next call would then take for its own."""
        if self._gateway is not None:
            self._gateway._gateway_client.thread_connection.connection = None


class _Way:
    """In place of an attribute of PySpark's classes until the process is attached: looking for a session makes it."""

    def __init__(self, spark: TaskSpark, owner: type, name: str) -> None:
        self._spark, self._owner, self._name = spark, owner, name

    def __get__(self, _: object, __: type) -> Any:
        self._spark.attach()
        found = vars(self._owner)[self._name]
        return None if found is self else found  # None: this is on the way of attaching itself


def _drop_own_rows(catalog: Catalog) -> None:
    """In place of `Catalog.clearCache`, which drops what all tasks have cached."""
    CachedRows(catalog._sparkSession).drop_those_of(catalog._sc.jobs.group)


def _session(context: TaskSparkContext, java: JavaObject) -> SparkSession:
    """What `SparkSession(context, java)` makes, without the calls to the JVM that it needs for the first session of a JVM."""
    session = SparkSession.__new__(SparkSession)
    session._sc, session._jsc, session._jvm, session._jsparkSession = context, context._jsc, context._jvm, java
    _monkey_patch_RDD(session)
    install_exception_handler()
    session._profiler_collector = AccumulatorProfilerCollector()
    return session
