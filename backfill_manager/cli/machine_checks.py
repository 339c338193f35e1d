"""What a manager needs of this machine and of its storage, one check for each: `bfm doctor` prints them.

A check finds something out, says it in a line, and says what to do where it is not as it must be. It changes nothing, but for
files of its own that it deletes again. `error`: a manager would not start, or not work; `warning`: it would, but less well.
"""

from __future__ import annotations

import os
import platform
import shutil
import socket
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from datetime import datetime
from importlib.metadata import PackageNotFoundError, requires, version
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

from packaging.requirements import Requirement

from backfill_manager import file_descriptors
from backfill_manager.clock import Clock
from backfill_manager.errors import BackfillManagerError, StateError, WrongJava
from backfill_manager.execution.spark.connectors import missing_jars
from backfill_manager.execution.spark.jars import java, problem_of_spark_home
from backfill_manager.humanise import plural
from backfill_manager.processes.memory_cgroup import memory_limit
from backfill_manager.store import open_store
from backfill_manager.store.uri import is_catalog_schema, is_local

if TYPE_CHECKING:
    from backfill_manager.settings import Settings
    from backfill_manager.settings.model import OpenLineageSettings, OpenTelemetrySettings
    from backfill_manager.store.base import Store

Status = Literal["ok", "warning", "error"]
MIN_DESCRIPTORS: Final = 1024
MIN_FREE_MEMORY_GB: Final = 2.0  # a JVM of 1 GB, the manager, and a few tasks of Python
MIN_FREE_DISK_GB: Final = 1.0
MAX_CLOCK_DIFFERENCE_S: Final = 2.0
PORT_TIMEOUT_S: Final = 1.0
_GB: Final = 1 << 30


@dataclass(frozen=True)
class Check:
    name: str
    status: Status
    found: str
    advice: str | None = None

    def document(self) -> dict[str, Any]:
        return asdict(self)


def check_machine() -> Iterator[Check]:
    """What does not depend on a configuration."""
    yield _python()
    yield _packages()
    yield _java()
    yield _descriptors()
    yield _memory()


def check_place(settings: Settings, clock: Clock) -> Iterator[Check]:
    """What the configuration names: jars, bundles, folders, the port of `bfm serve`, the state and its manager."""
    yield _jars(settings.warehouse)
    yield from _bundles(settings)
    for name, place in (
        ("state", settings.state),
        ("warehouse", settings.warehouse),
        ("snapshots", settings.snapshots),
    ):
        if place is not None and is_local(place):
            yield _folder(name, place, clock)
    yield from _state(settings, clock.now())
    yield _port(settings)
    if settings.notifications:
        yield _notifications(settings)
    if settings.openlineage is not None:
        yield _openlineage(settings.openlineage)
    if settings.opentelemetry is not None:
        yield _opentelemetry(settings.opentelemetry)
    if settings.secrets.files is not None or settings.secrets.allow is not None:
        yield _secrets(settings)


# -- the machine ------------------------------------------------------------------------------------------------------
def _python() -> Check:
    of_workers = os.environ.get("PYSPARK_PYTHON")
    if of_workers and shutil.which(of_workers) is None:
        advice = "Unset it, or correct it, unless the machines of Spark's workers have it: they run it."
        return Check("python", "warning", f"PYSPARK_PYTHON={of_workers} is not on this machine", advice)
    return Check("python", "ok", f"{platform.python_version()} ({sys.executable})")


def _packages() -> Check:
    """Those that this release was made with: Spark, Delta and delta-rs must fit together to the letter."""
    wrong, number = [], 0
    for line in requires("backfill-manager") or []:
        needed = Requirement(line)
        if needed.marker is not None and not needed.marker.evaluate({"extra": ""}):
            continue
        number += 1
        try:
            found = version(needed.name)
        except PackageNotFoundError:
            found = "none"
        if found == "none" or not needed.specifier.contains(found, prereleases=True):
            wrong.append(f"{needed.name} {found} (needed: {needed.specifier})")
    if wrong:
        return Check("packages", "error", ", ".join(wrong), "Install them: `pip install --upgrade backfill-manager`.")
    spark, delta = version("pyspark"), version("delta-spark")
    if problem := problem_of_spark_home():
        return Check("packages", "error", problem, f"Unset SPARK_HOME, or let it name a Spark {spark}.")
    return Check("packages", "ok", f"{plural(number, 'package')}, among them PySpark {spark} and delta-spark {delta}")


def _java() -> Check:
    try:
        return Check("java", "ok", java())
    except WrongJava as error:
        found, _, advice = str(error).partition(". ")
        return Check("java", "error", found, advice)


def _descriptors() -> Check:
    number = file_descriptors.limit()
    if number < MIN_DESCRIPTORS:
        advice = f"Raise it where the manager starts: `ulimit -n {MIN_DESCRIPTORS}` or more, `LimitNOFILE=` in systemd."
        return Check("descriptors", "warning", f"{number} files may be open at once", advice)
    return Check("descriptors", "ok", f"{number} files may be open at once")


def _memory() -> Check:
    try:
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
    except OSError:
        return Check("memory", "ok", "not known on this system")
    kilobytes = {name: int(value.split()[0]) for name, _, value in (line.partition(":") for line in lines)}
    free, total = kilobytes["MemAvailable"] * 1024 / _GB, kilobytes["MemTotal"] * 1024 / _GB
    found = f"{free:.1f} GB of {total:.1f} GB are available"
    limit = memory_limit()
    if limit is not None and limit.most / _GB < total:
        free = min(free, limit.free / _GB)
        found = f"{free:.1f} GB of the {limit.most / _GB:.1f} GB that the cgroup allows (the container, or systemd) are available"
    found += f"; {plural(os.cpu_count() or 1, 'core')}"
    if free < MIN_FREE_MEMORY_GB:
        return Check("memory", "warning", found, f"Spark's driver and a few tasks need {MIN_FREE_MEMORY_GB:.0f} GB.")
    return Check("memory", "ok", found)


# -- what the configuration names -------------------------------------------------------------------------------------
def _jars(warehouse: str) -> Check:
    try:
        missing = missing_jars(warehouse)
    except (BackfillManagerError, OSError) as error:
        return Check("jars", "error", str(error), "Let HOME or BFM_CACHE name a folder of the user of the manager.")
    if missing:
        command = f"python -m backfill_manager.execution.spark.connectors {warehouse}"
        advice = f"The first start fetches them, with a network: `{command}`."
        return Check("jars", "warning", f"not fetched yet: {', '.join(missing)}", advice)
    return Check("jars", "ok", "Delta's, and those that the warehouse needs, are on disk")


def _bundles(settings: Settings) -> Iterator[Check]:
    if not settings.bundles:
        yield Check("bundles", "warning", "none", "Name a folder of DAG files under `bundles:` in the configuration.")
    for one in settings.bundles:
        if one.git is not None:
            found = None if shutil.which("git") else f"{one.name}: there is no git on PATH"
        else:
            found = None if os.path.exists(one.path) else f"{one.name}: {one.path} does not exist, or can't be read"
        if found:
            yield Check("bundles", "error", found, "Correct it in the configuration, or install what is missing.")
        else:
            yield Check("bundles", "ok", f"{one.name}: {one.place}")


def _folder(name: str, place: str, clock: Clock) -> Check:
    """Whether it can be written, whether its file server has the time of this machine, and how much is free."""
    path = Path(place).expanduser().absolute()
    there = next(folder for folder in (path, *path.parents) if os.path.exists(folder))
    try:
        with tempfile.NamedTemporaryFile(dir=there, prefix=".bfm-doctor-") as file:
            difference = os.fstat(file.fileno()).st_mtime - clock.now().timestamp()
    except OSError as error:
        return Check(name, "error", f"{there}: {error.strerror}", "Make it writable for the user of the manager.")
    free = shutil.disk_usage(there).free / _GB
    if abs(difference) > MAX_CLOCK_DIFFERENCE_S:
        found = f"{place}: the clock of its storage differs by {difference:+.0f} s"
        return Check(name, "warning", found, "Synchronise both clocks (NTP): leases and times of runs rest on them.")
    if free < MIN_FREE_DISK_GB:
        return Check(name, "warning", f"{place}: {free:.1f} GB are free", "Make space, or `bfm state prune`.")
    return Check(name, "ok", f"{place}: can be written, {free:.0f} GB are free")


def _state(settings: Settings, now: datetime) -> Iterator[Check]:
    if is_catalog_schema(settings.state):
        yield Check("tables", "ok", f"{settings.state} is in Spark's catalog; `bfm state check` looks into it")
        return
    store = open_store(settings.state)
    try:
        if not store.exists():
            yield Check(
                "tables", "ok", "there is no state yet; a manager makes it at its first start, or `bfm state init`"
            )
            return
        rows = sum(store.count("dag", []).values())
        lease = store.lease()
    except StateError as error:
        yield Check(
            "tables", "error", str(error), "Check address and credentials; docs/how-to/run-on-object-storage.md."
        )
        return
    yield Check("tables", "ok", f"the state has {plural(rows, 'DAG')}")
    if lease is None:
        yield Check("manager", "warning", "none has run here yet", "Start one: `bfm manager start`.")
        return
    ahead = (lease.heartbeat_at - now).total_seconds()
    if ahead > MAX_CLOCK_DIFFERENCE_S:
        found = f"the last sign of the manager on {lease.host} is {ahead:.0f} s in the future"
        yield Check(
            "manager", "error", found, "Synchronise the clocks of both machines (NTP): the lease rests on them."
        )
        return
    yield _manager(lease, now)


def _manager(lease: Any, now: datetime) -> Check:
    from backfill_manager import __version__
    from backfill_manager.queries.managers import status_of_lease

    status = status_of_lease(lease, now)
    where = f"{lease.host}, process {lease.pid}, release {lease.version}"
    if not status["leading"]:
        return Check(
            "manager", "warning", f"none is active; the last one was on {where}", "Start one: `bfm manager start`."
        )
    if lease.version != __version__:
        advice = "Install the same release here, or start the manager anew; docs/operations.md#upgrades."
        return Check("manager", "warning", f"active on {where}, and this is {__version__}", advice)
    if status["advice"]:
        return Check("manager", "warning", f"active on {where}, and may hang", status["advice"])
    return Check("manager", "ok", f"active on {where}")


def _notifications(settings: Settings) -> Check:
    """Whether Apprise takes the addresses; `bfm notify test` is what sends something."""
    from backfill_manager.manager.services.notification_sender import AppriseChannel
    from backfill_manager.manager.services.notification_settings import targets_of

    try:
        names = [AppriseChannel(target).target.name for target in targets_of(settings.notifications)]
    except BackfillManagerError as error:
        advice = "docs/how-to/get-notified.md shows addresses; a manager does not start without them."
        return Check("notifications", "error", str(error), advice)
    return Check("notifications", "ok", f"{', '.join(names)} (`bfm notify test` sends a message)")


def _openlineage(settings: OpenLineageSettings) -> Check:
    """Whether the client takes the transport. Nothing is sent."""
    from backfill_manager.manager.telemetry.openlineage_sender import make_client

    try:
        make_client(settings)
    except BackfillManagerError as error:
        return Check("openlineage", "error", str(error), "docs/how-to/table-lineage.md; a manager does not start so.")
    return Check("openlineage", "ok", f"transport {settings.transport['type']}")


def _opentelemetry(settings: OpenTelemetrySettings) -> Check:
    """Whether the SDK is there, and takes the variables of the environment. Nothing is sent."""
    from backfill_manager.manager.telemetry.trace_sender import make_exporter

    try:
        exporter = make_exporter(settings)
    except BackfillManagerError as error:
        return Check("opentelemetry", "error", str(error), "docs/operations.md#traces; a manager does not start so.")
    if exporter is None:
        advice = "Unset OTEL_SDK_DISABLED and OTEL_TRACES_EXPORTER, or leave `opentelemetry` out."
        return Check("opentelemetry", "warning", "a variable of the environment turns traces off", advice)
    exporter.close()
    return Check("opentelemetry", "ok", "traces are sent by OTLP over HTTP")


def _secrets(settings: Settings) -> Check:
    """Whether the folder can be read, and `allow` names bundles that there are. No secret is read."""
    secrets, advice = settings.secrets, "docs/how-to/secure-it.md#5-give-tasks-their-secrets"
    try:
        count = None if secrets.files is None else sum(not name.startswith(".") for name in os.listdir(secrets.files))
    except OSError as error:
        return Check("secrets", "error", f"{secrets.files} can't be read: {error.strerror}", advice)
    unknown = set(secrets.allow or {}) - {bundle.name for bundle in settings.bundles}
    if unknown:
        names = ", ".join(sorted(unknown))
        return Check("secrets", "warning", f"secrets.allow names no bundle of this configuration: {names}", advice)
    return Check(
        "secrets", "ok", "of the environment" if count is None else f"{plural(count, 'file')} in {secrets.files}"
    )


def _port(settings: Settings) -> Check:
    """Of `bfm serve`: free, or taken by one of ours."""
    from pydantic import ValidationError

    from backfill_manager.client.client import Client

    host, port = settings.api.host, settings.api.port
    if port == 0:
        return Check("port", "ok", "any that is free")
    try:
        with socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET):
            return Check("port", "ok", f"{host}:{port} is free")
    except OSError as error:
        reason = error.strerror or str(error)
    try:
        address = f"[{host}]" if ":" in host else host
        with Client(f"http://{address}:{port}", timeout=PORT_TIMEOUT_S, pause=lambda _: None) as client:
            client.health()
        is_ours = True
    except (BackfillManagerError, ValidationError):  # it does not answer, or in another way
        is_ours = False
    if is_ours:
        return Check("port", "ok", f"a `bfm serve` answers at {host}:{port}")
    return Check("port", "warning", f"{host}:{port}: {reason}", "Name another one: `api.port` in the configuration.")


# -- thorough ---------------------------------------------------------------------------------------------------------
def check_spark(settings: Settings) -> Check:
    """Starts Spark as the manager does."""
    from backfill_manager.execution.spark.spark_trial import write_and_read_a_table

    try:
        rows = write_and_read_a_table(settings)
    except BackfillManagerError as error:
        return Check(
            "spark", "error", str(error), "See `spark:` and `warehouse:` in the configuration; Spark's log is above."
        )
    table = "a Delta table of the warehouse, read and deleted it"
    found = f"Spark {version('pyspark')} has written {plural(rows, 'row')} as {table}, and run Python on a worker"
    return Check("spark", "ok", found)


def check_tables(store: Store) -> Iterator[Check]:
    """Reads every file of the state."""
    from backfill_manager.queries.state_check import check_state

    for one in check_state(store):
        if not one.ok:
            yield Check(
                "tables", "error", f"{one.table}: {one.message}", "`bfm state check --repair` repairs what it can."
            )


def check_fencing(store: Store) -> Check:
    """Two writers race for one entry of the log of requests, which has many writers anyway; each appends nothing."""
    try:
        store.check_promises()
    except StateError as error:
        return Check("storage", "error", str(error), "Use a storage with conditional put.")
    return Check("storage", "ok", "of two writers of one log entry, one succeeds")
