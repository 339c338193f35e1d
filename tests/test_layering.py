"""Imports go down the layers only, no two files import each other in a circle, and each library is used by its own packages.

Read from the sources with `ast`, imports inside functions too: a late import goes up just as well as an early one. Imports
under `if TYPE_CHECKING` count for the layers and not for circles: at run time there are none.
"""

from __future__ import annotations

import ast
import graphlib
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

import backfill_manager

PACKAGE: Final = Path(backfill_manager.__file__).parent

# From the ground up; a package or module may import those of lower layers.
LAYERS: Final[tuple[frozenset[str], ...]] = tuple(
    map(
        frozenset,
        (
            {
                "errors",
                "clock",
                "humanise",
                "process_info",
                "file_descriptors",
                "service",
                "yaml_reader",
                "package_files",
                "number_ranges",
            },
            {"masking", "user_cache"},
            {"value_rules", "logging"},
            {"settings"},
            {"model"},
            {"schemas"},
            {"store"},
            {"client"},
            {"processes"},
            {"dags"},
            {"planning"},
            {"execution"},
            {"queries"},
            {"requests"},
            {"manager"},
            {"api", "testing", "task_testing"},
            {"web"},
            {"importers"},
            {"cli"},
            {"notebook", "__main__"},
        ),
    )
)
LAYER_OF: Final = {package: layer for layer, packages in enumerate(LAYERS) for package in packages}

# The same within the two largest packages, whose packages stand on modules beside them (`messages.py`, `state.py`, ...).
LAYERS_WITHIN: Final[dict[str, tuple[frozenset[str], ...]]] = {
    "execution": tuple(
        map(
            frozenset,
            ({"spark"}, {"lineage"}, {"output"}, {"inputs", "promote_revert", "tasks"}, {"task_processes"}),
        )
    ),
    "planning": tuple(map(frozenset, ({"runs", "data", "batches"}, {"backfills"}))),
    "manager": tuple(
        map(frozenset, ({"telemetry", "decisions"}, {"operations"}, {"services", "maintenance"})),
    ),
}

# What decisions, and the handlers of requests, do without: a decision is the same at any time, on any thread and machine.
PURE: Final = ("decisions", "operations")
IMPURE: Final = frozenset(
    {"threading", "concurrent", "asyncio", "subprocess", "socket", "time", "os", "random", "pyspark"}
)

# A library, and the packages that may import it.
LIBRARIES: Final[dict[str, frozenset[str]]] = {
    "pyspark": frozenset({"store", "planning", "execution", "manager", "task_testing"}),
    "py4j": frozenset({"store", "planning", "execution", "manager"}),
    "delta": frozenset({"store", "execution"}),
    "deltalake": frozenset({"store"}),
    "typer": frozenset({"cli"}),
    "click": frozenset({"cli"}),
    "rich": frozenset({"cli", "notebook"}),
    "IPython": frozenset({"notebook"}),
    "structlog": frozenset({"logging"}),
    "croniter": frozenset({"dags"}),
    "pendulum": frozenset(),  # why not: docs/design-decisions.md, "Dates and periods"
    "fastapi": frozenset({"api", "web"}),
    "starlette": frozenset({"api", "web"}),
    "uvicorn": frozenset({"api", "web"}),
    "prometheus_client": frozenset({"api"}),
    "itsdangerous": frozenset({"api"}),
    "jinja2": frozenset({"dags", "importers", "web"}),
    "pygments": frozenset({"web"}),
    "httpx": frozenset({"client"}),
    "openlineage": frozenset({"manager"}),
    "apprise": frozenset({"manager"}),
    "opentelemetry": frozenset({"execution", "manager"}),
    "pandera": frozenset({"execution"}),
}


def package_of(path: Path) -> str:
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


def violations(path: Path, source: str) -> Iterator[str]:
    package = package_of(path)
    dotted = ".".join(("backfill_manager", *path.relative_to(PACKAGE).parts[:-1]))
    for line, name in imports_of(source, dotted):
        top, *rest = name.split(".")
        where = f"{path.relative_to(PACKAGE.parent)}:{line}"
        if top in LIBRARIES and package not in LIBRARIES[top]:
            yield f"{where}: {top} may not be imported by {package}; only by {', '.join(sorted(LIBRARIES[top]))}"
        if top != "backfill_manager" or not rest or rest[0] == package:
            continue
        if rest[0] in LAYER_OF and LAYER_OF[rest[0]] >= LAYER_OF[package]:
            yield f"{where}: {package} imports {rest[0]}, which is not below it"


SOURCES: Final = sorted(path for path in PACKAGE.rglob("*.py") if path != PACKAGE / "__init__.py")


def test_every_file_belongs_to_a_layer() -> None:
    assert {package_of(path) for path in SOURCES} - set(LAYER_OF) == set()


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_imports_go_down_and_libraries_stay_in_their_packages(path: Path) -> None:
    assert list(violations(path, path.read_text(encoding="utf-8"))) == []


def packages_within(outer: str) -> set[str]:
    return {path.parent.name for path in (PACKAGE / outer).glob("*/__init__.py")}


@pytest.mark.parametrize("outer", LAYERS_WITHIN)
def test_the_packages_within_a_package_import_only_those_below_them(outer: str) -> None:
    layer_of = {package: layer for layer, packages in enumerate(LAYERS_WITHIN[outer]) for package in packages}
    assert set(layer_of) == packages_within(outer)
    found = [
        f"{path.relative_to(PACKAGE)}:{line}: {package} imports {imported}, which is not below it"
        for package in layer_of
        for path in sorted((PACKAGE / outer / package).glob("*.py"))
        for line, name in imports_of(path.read_text(encoding="utf-8"), f"backfill_manager.{outer}.{package}")
        for imported in [(name.split(".") + [""] * 3)[2]]
        if name.startswith(f"backfill_manager.{outer}.") and imported in layer_of
        if imported != package and layer_of[imported] >= layer_of[package]
    ]
    assert found == []


def test_decisions_know_no_thread_no_clock_and_no_spark() -> None:
    found = [
        f"{path.relative_to(PACKAGE)}:{line}: {name}"
        for package in PURE
        for path in sorted((PACKAGE / "manager" / package).glob("*.py"))
        for line, name in imports_of(path.read_text(encoding="utf-8"), f"backfill_manager.manager.{package}")
        if name.split(".")[0] in IMPURE or name == "backfill_manager.clock.SystemClock"
    ]
    assert found == []


@pytest.mark.parametrize(
    ("file", "source", "message"),
    [
        ("model/x.py", "from backfill_manager.store import open_store", "model imports store, which is not below it"),
        ("model/x.py", "import backfill_manager.dags.importing.loader", "model imports dags"),
        ("dags/x.py", "def f():\n    from backfill_manager.manager import main", "x.py:2: dags imports manager"),
        ("dags/x.py", "from backfill_manager import planning", "dags imports planning"),
        ("dags/x.py", "from ..execution import session", "dags imports execution"),
        ("dags/x.py", "import pyspark.sql", "pyspark may not be imported by dags"),
        ("planning/x.py", "from deltalake import DeltaTable", "deltalake may not be imported by planning"),
        ("manager/x.py", "import rich", "rich may not be imported by manager"),
        ("errors.py", "from backfill_manager import settings", "errors imports settings"),
    ],
)
def test_a_violation_is_seen(file: str, source: str, message: str) -> None:
    (found,) = violations(PACKAGE / file, source)
    assert message in found


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
def test_what_is_allowed_is_not_reported(file: str, source: str) -> None:
    assert list(violations(PACKAGE / file, source)) == []


def imported_files(path: Path) -> Iterator[Path]:
    """The files of the package that a file imports at run time, wherever in it. An imported `__init__` counts only where it
    is named itself: Python runs it, but it imports nothing of its package here."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    for node in list(ast.walk(tree)):  # what only type checkers read
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            node.body = [ast.Pass()]
    package = ".".join(("backfill_manager", *path.relative_to(PACKAGE).parts[:-1]))
    for _, name in imports_of(ast.unparse(tree), package):
        parts = name.split(".")
        if parts[0] == "backfill_manager":
            for end in (len(parts), len(parts) - 1):  # a module, or a name in one
                file = PACKAGE.joinpath(*parts[1:end])
                if file.with_suffix(".py").exists() or (file / "__init__.py").exists():
                    yield file.with_suffix(".py") if file.with_suffix(".py").exists() else file / "__init__.py"
                    break


def test_no_two_files_import_each_other_in_a_circle() -> None:
    imports = {path: set(imported_files(path)) - {path} for path in SOURCES}
    try:
        graphlib.TopologicalSorter(imports).prepare()
    except graphlib.CycleError as error:
        pytest.fail(" imports ".join(str(path.relative_to(PACKAGE)) for path in reversed(error.args[1])))


def test_what_tests_share_lies_in_support() -> None:
    tests = PACKAGE.parent / "tests"
    folders = {folder.name for folder in tests.iterdir() if folder.is_dir()} - {"support"}
    shared = [
        f"{file.relative_to(tests)}:{line} imports {name}"
        for file in tests.rglob("test_*.py")
        for line, name in imports_of(file.read_text(), "")
        if name.split(".")[0] in folders or name.startswith("test_")
    ]
    assert shared == []


def test_importing_the_package_costs_nothing_until_a_name_of_it_is_used() -> None:
    program = (
        "import sys, backfill_manager; before = [m for m in sys.modules if m.startswith('backfill_manager.')];"
        "from backfill_manager import dag, task, sql; heavy = {'pyspark', 'pandas', 'pyarrow', 'structlog', 'pydantic',"
        "'deltalake', 'pendulum', 'croniter'} & set(sys.modules);"
        "print(before, sorted(heavy), hasattr(backfill_manager, 'nonsense'))"
    )
    output = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert output.stdout.strip() == "[] [] False"
