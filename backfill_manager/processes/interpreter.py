"""Another Python interpreter for a bundle: the environment of its processes, and whether it fits the manager.

It must have what the manager has: the same PySpark and this package, and the minor version of Python, as functions travel
from the process of a task to Spark's Python workers.
"""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
from contextlib import suppress
from importlib import metadata
from typing import Any, Final

from backfill_manager import __version__
from backfill_manager.errors import InvalidInput, shorten
from backfill_manager.masking import mask_text
from backfill_manager.processes.fork_server import MANAGERS_PYTHONPATH
from backfill_manager.settings.model import SECRET_PREFIX

_SESSION_SECRET: Final = "BFM_API__SESSION_SECRET"  # who has it makes sessions of the pages for anybody
OUR_JVM: Final = frozenset({"PYSPARK_GATEWAY_PORT", "PYSPARK_GATEWAY_SECRET", "SPARK_ENV_LOADED"})
_OF_ONE_INTERPRETER: Final = frozenset(
    {"PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV", "__PYVENV_LAUNCHER__", "PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON"}
)
_CHECK_TIMEOUT_S: Final = 120.0  # it imports PySpark and pandas, perhaps on a busy machine
_NAMES: Final = {"python": "Python", "pyspark": "PySpark", "delta-spark": "delta-spark", "ours": "backfill_manager"}
_CHECK: Final = """
import importlib, json, sys
from importlib import metadata
def version_of(module):
    try:
        return importlib.import_module(module).__version__
    except ModuleNotFoundError as error:
        if error.name != module.partition(".")[0]:
            raise
def installed(name):
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None
found = {
    "python": "%d.%d" % sys.version_info[:2], "pyspark": version_of("pyspark.version"),
    "delta-spark": installed("delta-spark"), "ours": version_of("backfill_manager"),
}
if all(found[name] == version for name, version in json.loads(sys.argv[1]).items()):
    for module in sys.argv[2:]:
        importlib.import_module(module)
print(json.dumps(found))
"""
_IMPORTED: Final = (  # what parsing files and running tasks takes: all of it can be imported together
    "pyspark.sql", "delta", "pandas", "pyarrow",
    "backfill_manager.processes.fork_server", "backfill_manager.dags.importing.parse_file",
    "backfill_manager.dags.yaml.reader", "backfill_manager.logging",
)  # fmt: skip
_fitting: set[str] = set()


def environment_for(python: str | None) -> dict[str, str]:
    """Environment variables of a process that runs code of a bundle: the manager's, but no way into its JVM: such a process
    would otherwise be given, and could stop, the session that tasks are running in; and no secrets, which `ctx.secret` gives out
    by name, nor that of the pages' sessions. `python`: another interpreter, which knows itself where its packages are; None is
    the manager's own, which gets the manager's module path."""
    environ = {name: value for name, value in os.environ.items() if not name.startswith(SECRET_PREFIX)}
    for name in (*OUR_JVM, _SESSION_SECRET):
        environ.pop(name, None)
    if python is None:
        path, own_path = os.pathsep.join(path for path in sys.path if path), environ.get("PYTHONPATH", "")
        return {**environ, "PYTHONPATH": path, MANAGERS_PYTHONPATH: own_path}
    return {name: value for name, value in environ.items() if name not in _OF_ONE_INTERPRETER}


def check_interpreter(python: str) -> None:
    """`InvalidInput` with one line when it does not fit the manager. One that fits is not asked again."""
    if python in _fitting:
        return
    if os.path.isdir(python):
        raise InvalidInput(f"python {python} is a folder; name the interpreter in it, such as {python}/bin/python")
    ours = _own_versions()
    theirs = _ask(python, ours)
    wrong = [f"{_NAMES[name]} {theirs.get(name) or 'is not there'}" for name in ours if theirs.get(name) != ours[name]]
    if wrong:
        needed = ", ".join(f"{_NAMES[name]} {version}" for name, version in ours.items())
        raise InvalidInput(f"its interpreter {python} does not fit: {', '.join(wrong)}; it must have {needed}")
    _fitting.add(python)


def _own_versions() -> dict[str, str]:
    minor, pyspark = f"{sys.version_info.major}.{sys.version_info.minor}", importlib.import_module("pyspark.version")
    versions = {"python": minor, "pyspark": pyspark.__version__, "ours": __version__}
    with suppress(metadata.PackageNotFoundError):  # Delta may come with Spark, as a file
        versions["delta-spark"] = metadata.version("delta-spark")
    return versions


def _ask(python: str, ours: dict[str, str]) -> dict[str, str | None]:
    command = [python, "-c", _CHECK, json.dumps(ours), *_IMPORTED]
    try:
        process = subprocess.run(
            command, cwd="/", env=environment_for(python), stdin=subprocess.DEVNULL, capture_output=True, text=True,
            errors="replace", timeout=_CHECK_TIMEOUT_S, check=False,
        )  # fmt: skip
    except FileNotFoundError:
        raise InvalidInput(f"its interpreter {python} does not exist") from None
    except OSError as error:
        raise InvalidInput(f"its interpreter {python} can't be started: {error.strerror}") from None
    except subprocess.TimeoutExpired:
        raise InvalidInput(f"its interpreter {python} does not answer within {_CHECK_TIMEOUT_S:g} seconds") from None
    with suppress(IndexError, ValueError):  # what it imports may print, and it may be no Python at all
        answer: Any = json.loads(process.stdout.strip().splitlines()[-1])
        if process.returncode == 0 and isinstance(answer, dict):
            return answer
    errors = process.stderr.strip().splitlines() or [f"exit code {process.returncode}"]
    why = shorten(mask_text(errors[-1].strip()), 500)
    raise InvalidInput(f"its interpreter {python} can't import what parsing and tasks need: {why}")
