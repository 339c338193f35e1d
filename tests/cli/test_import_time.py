"""The command line as a process: what it imports, how it ends, what a closed pipe does to it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from support.loaded_modules import HEAVY, SAY_WHAT_IS_LOADED, process
from support.sample_state import FilledState

from backfill_manager.dags.definition import TableRead


@pytest.mark.parametrize(
    "args",
    [
        ("dags", "list"),
        ("backfill", "list"),
        ("backfill", "create", "flights", "--from", "2013-01-01", "--to", "2013-01-31"),
        ("backfill", "show", "b1", "--output", "json"),
        ("backfill", "items", "b1"),
        ("backfill", "set", "b1", "--set", "retries=3", "--window", "20:00-06:00"),
        ("dags", "next", "flights", "-n", "3"),
        ("dags", "trigger", "flights"),
        ("runs", "timeline", "flights"),
        ("tasks", "states", "flights", "latest"),
        ("tasks", "clear", "flights", "-s", "2013-01-01", "--yes"),
        ("manager", "status"),
    ],
    ids=lambda args: " ".join(args[:2]),
)
def test_reading_and_asking_load_nothing_heavy(state: FilledState, tmp_path: Path, args: tuple[str, ...]) -> None:
    state.dag()
    state.pools()
    state.backfill("b1", {"success": 2, "pending": 1})

    ended = process("-c", SAY_WHAT_IS_LOADED.format(heavy=HEAVY), *args, cwd=tmp_path)

    assert ended.stderr.splitlines()[-1] == "[]", ended.stderr
    assert ended.returncode == (1 if args[0] == "manager" else 0)


@pytest.mark.parametrize("args", [("backfill", "list"), ("backfill", "show", "b1")], ids=" ".join)
def test_a_list_loads_what_it_shows_and_no_other_part(
    state: FilledState, tmp_path: Path, args: tuple[str, ...]
) -> None:
    state.dag()
    state.backfill("b1", {"success": 2, "pending": 1})
    others = [
        *("dags", "execution", "importers", "manager", "requests", "processes"),
        *(f"queries.{name}" for name in ("bundles", "dags", "managers", "pools", "requests", "tasks", "versions")),
    ]
    names = tuple(f"backfill_manager.{name}" for name in others)

    ended = process("-c", SAY_WHAT_IS_LOADED.format(heavy=names), *args, cwd=tmp_path)

    assert ended.stderr.splitlines()[-1] == "[]", ended.stderr
    assert ended.returncode == 0


def test_a_server_gives_back_the_memory_of_arrow(tmp_path: Path) -> None:
    """pyarrow chooses its memory pool when it is imported."""
    program = """
import sys
from backfill_manager.api import server
from backfill_manager.cli import main
def serve(app, bound):
    bound.close()
    print(sys.modules["pyarrow"].default_memory_pool().backend_name)
server.serve = serve
sys.exit(main(["serve", "--port", "0"]))
"""

    ended = process("-c", program, cwd=tmp_path)

    assert (ended.stdout, ended.returncode) == ("system\n", 0), ended.stderr


def test_no_light_command_looks_for_garbage(state: FilledState, tmp_path: Path) -> None:
    state.backfill("b1", {"success": 2})
    program = (
        "import gc; from backfill_manager.cli import main; main(['backfill', 'list']); print(len(gc.get_objects()))"
    )

    ended = process("-c", program, cwd=tmp_path)

    assert int(ended.stdout.splitlines()[-1]) < 10_000, ended.stderr  # all that was there is not looked at when it ends


def test_the_module_is_the_command(tmp_path: Path) -> None:
    version = process("-m", "backfill_manager", "--version", cwd=tmp_path)
    nothing = process("-m", "backfill_manager", "dags", "list", cwd=tmp_path)

    assert (version.returncode, version.stdout.split()[0]) == (0, "backfill_manager")
    assert (nothing.returncode, nothing.stdout) == (2, "")
    assert nothing.stderr.startswith("There is no state at ./state;")
    assert list(tmp_path.iterdir()) == []


def test_a_reader_that_has_seen_enough_is_no_error(state: FilledState, tmp_path: Path) -> None:
    state.backfill("b1", {"pending": 3000})
    reader, writer = os.pipe()
    os.close(reader)

    ended = subprocess.run(
        [sys.executable, "-m", "backfill_manager", "backfill", "items", "b1", "--output", "json"],
        cwd=tmp_path, stdout=writer, stderr=subprocess.PIPE, text=True, check=False,
    )  # fmt: skip
    os.close(writer)

    assert (ended.stderr, ended.returncode) == ("", 1)


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="a device of Linux")
@pytest.mark.parametrize("command", ["backfill list", "backfill list --output json", "--version"])
def test_output_on_a_full_disk_is_no_bug(state: FilledState, tmp_path: Path, command: str) -> None:
    state.backfill("b1", {"success": 1})
    environ = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    with open("/dev/full", "w") as full:
        ended = subprocess.run(
            [sys.executable, "-m", "backfill_manager", *command.split()],
            cwd=tmp_path, env=environ, stdout=full, stderr=subprocess.PIPE, text=True, check=False,
        )  # fmt: skip
    assert (ended.stderr, ended.returncode) == ("Output, or a file: No space left on device.\n", 1)


def test_closed_streams_are_no_error(state: FilledState, tmp_path: Path) -> None:
    state.dag()
    state.backfill("b1", {"success": 1})

    def run_in_shell(line: str) -> tuple[int, str, str]:
        shell = ["sh", "-c", f'exec "$0" -m backfill_manager {line}', sys.executable]
        ended = subprocess.run(shell, cwd=tmp_path, capture_output=True, text=True, check=False)
        return ended.returncode, ended.stdout, ended.stderr

    assert run_in_shell("backfill list >&-") == (0, "", "")
    assert run_in_shell("backfill show nothing 2>&-") == (3, "", "")
    code, _, said = run_in_shell("dags mark flights failed --backfill b1 --item 1 <&-")
    assert (code, said.splitlines()[-1]) == (2, "Nothing was marked, as there was no answer; -y marks without asking.")


def test_without_a_manager_a_dry_run_plans_here_and_writes_nothing(state: FilledState, tmp_path: Path) -> None:
    state.dag(writes=("clean_flights",))
    state.dag("report", reads=(TableRead("clean_flights"),))
    state.pools()
    state.backfill("b1", {"success": 2})
    before = state.fingerprint()

    args = ("backfill", "create", "flights", "-s", "2013-01-01", "-e", "2013-01-05", "--downstream", "--dry-run")
    ended = process("-m", "backfill_manager", *args, "--output", "json", cwd=tmp_path)

    assert (ended.returncode, ended.stderr) == (0, "")
    plan = json.loads(ended.stdout)
    assert set(plan) == {"items", "summary", "downstream", "first_item"}
    assert [item["state"] for item in plan["items"]] == ["skipped", "skipped", "pending", "pending", "pending"]
    assert plan["items"][2]["interval_start"] == "2013-01-03T05:00:00Z"
    [below] = plan["downstream"]
    assert (below["dag_id"], below["waits_for"], len(below["items"])) == ("report", ["flights"], 3)
    assert plan["summary"]["estimate"]["run_s"]["median"] == 2.0
    assert below["summary"]["estimate"]["unknown"] == ["clean_flights"]
    assert state.fingerprint() == before
    assert [entry.name for entry in tmp_path.iterdir()] == ["state"]
