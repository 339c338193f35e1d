"""The house keeps its order: imports go down the list of rooms, and each library that matters lives in its own rooms.

Read from the sources with `ast`, imports inside functions too: a late import goes up just as well as an early one.
"""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

import backfill_manager

PACKAGE: Final = Path(backfill_manager.__file__).parent

# From the ground up; a room may import those of lower floors. `requests` says what can be asked and planning
# answers it, so it stands below planning; `testing` wires a whole house of memory for users' tests.
FLOORS: Final[tuple[frozenset[str], ...]] = tuple(
    map(
        frozenset,
        (
            {"errors", "clock", "process_info", "descriptors", "service", "masking", "yaml_reader"},
            {"value_rules", "logging"},
            {"settings"},
            {"model"},
            {"schemas"},
            {"store"},
            {"client"},
            {"dags"},
            {"requests"},
            {"planning"},
            {"execution"},
            {"queries"},
            {"manager"},
            {"api", "testing"},
            {"web"},
            {"cli"},
            {"__main__"},
        ),
    )
)
FLOOR_OF: Final = {room: floor for floor, rooms in enumerate(FLOORS) for room in rooms}

# A library, and the rooms that may know it.
HOMES: Final[dict[str, frozenset[str]]] = {
    "pyspark": frozenset({"store", "planning", "execution", "manager", "testing"}),
    "py4j": frozenset({"store", "planning", "execution", "manager"}),
    "delta": frozenset({"store", "execution"}),
    "deltalake": frozenset({"store"}),
    "typer": frozenset({"cli"}),
    "click": frozenset({"cli"}),
    "rich": frozenset({"cli"}),
    "structlog": frozenset({"logging"}),
    "croniter": frozenset({"dags"}),
    "pendulum": frozenset({"dags"}),
    "fastapi": frozenset({"api", "web"}),
    "starlette": frozenset({"api", "web"}),
    "uvicorn": frozenset({"api", "web"}),
    "prometheus_client": frozenset({"api"}),
    "itsdangerous": frozenset({"api"}),
    "jinja2": frozenset({"web"}),
    "httpx": frozenset({"client"}),
}


def room_of(path: Path) -> str:
    first = path.relative_to(PACKAGE).parts[0]
    return first.removesuffix(".py")


def imports_of(source: str, package: str) -> Iterator[tuple[int, str]]:
    """Line and dotted name of everything that a module of `package` imports, wherever in it."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = package.split(".")[: -(node.level - 1) or None] if node.level else []
            base = ".".join([*above, *([node.module] if node.module else [])])
            yield from ((node.lineno, f"{base}.{alias.name}") for alias in node.names)


def trespasses(path: Path, source: str) -> Iterator[str]:
    room = room_of(path)
    package = ".".join(("backfill_manager", *path.relative_to(PACKAGE).parts[:-1]))
    for line, name in imports_of(source, package):
        top, *rest = name.split(".")
        where = f"{path.relative_to(PACKAGE.parent)}:{line}"
        if top in HOMES and room not in HOMES[top]:
            yield f"{where}: {top} is not known in {room}; only in {', '.join(sorted(HOMES[top]))}"
        if top != "backfill_manager" or not rest or rest[0] == room:
            continue
        if rest[0] in FLOOR_OF and FLOOR_OF[rest[0]] >= FLOOR_OF[room]:
            yield f"{where}: {room} imports {rest[0]}, which is not below it"


SOURCES: Final = sorted(path for path in PACKAGE.rglob("*.py") if path != PACKAGE / "__init__.py")


def test_every_file_lives_in_a_room_that_has_a_floor() -> None:
    assert {room_of(path) for path in SOURCES} - set(FLOOR_OF) == set()


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_imports_go_down_and_libraries_stay_in_their_rooms(path: Path) -> None:
    assert list(trespasses(path, path.read_text(encoding="utf-8"))) == []


@pytest.mark.parametrize(
    ("file", "source", "told"),
    [
        ("model/x.py", "from backfill_manager.store import open_store", "model imports store, which is not below it"),
        ("model/x.py", "import backfill_manager.dags.importing.loader", "model imports dags"),
        ("dags/x.py", "def f():\n    from backfill_manager.manager import main", "x.py:2: dags imports manager"),
        ("dags/x.py", "from backfill_manager import planning", "dags imports planning"),
        ("dags/x.py", "from ..execution import session", "dags imports execution"),
        ("dags/x.py", "import pyspark.sql", "pyspark is not known in dags"),
        ("planning/x.py", "from deltalake import DeltaTable", "deltalake is not known in planning"),
        ("manager/x.py", "import rich", "rich is not known in manager"),
        ("errors.py", "from backfill_manager import settings", "errors imports settings"),
    ],
)
def test_a_trespass_is_seen(file: str, source: str, told: str) -> None:
    (found,) = trespasses(PACKAGE / file, source)
    assert told in found


@pytest.mark.parametrize(
    ("file", "source"),
    [
        (
            "dags/x.py",
            "from backfill_manager import dag, task\nfrom backfill_manager.dags import loader\nfrom . import y",
        ),
        ("manager/x.py", "from backfill_manager.planning import readiness\nfrom ..model import states\nimport pyspark"),
    ],
)
def test_what_is_allowed_is_not_complained_of(file: str, source: str) -> None:
    assert list(trespasses(PACKAGE / file, source)) == []


def test_importing_the_package_costs_nothing_until_a_name_of_it_is_used() -> None:
    program = (
        "import sys, backfill_manager; before = [m for m in sys.modules if m.startswith('backfill_manager.')];"
        "from backfill_manager import dag, task, sql; heavy = {'pyspark', 'pandas', 'pyarrow', 'structlog', 'pydantic',"
        "'deltalake', 'pendulum', 'croniter'} & set(sys.modules);"
        "print(before, sorted(heavy), hasattr(backfill_manager, 'nonsense'))"
    )
    told = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert told.stdout.strip() == "[] [] False"
