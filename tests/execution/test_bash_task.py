"""A `bash` task: its values come by the environment alone, what it prints is its log, its exit code how it ends."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.executor_fixture import EventRecorder, TaskRunner, a_launch, an_executor
from support.of_another_user import NOBODY, ONLY_AS_ROOT, without_leave_to_kill
from support.task_snapshot import of_snapshot

from backfill_manager import bash_task, dag
from backfill_manager.dags.definition import DagSpec, TaskSpec
from backfill_manager.dags.importing.loader import load_file
from backfill_manager.errors import InvalidDag, InvalidInput
from backfill_manager.execution.messages import Cancelled, Failed, Skipped, Succeeded, TaskEnded, TaskLaunch, TaskLogged
from backfill_manager.execution.secrets import Secrets, no_secret
from backfill_manager.execution.tasks.bash_task import BashFailed, run_bash, variables
from backfill_manager.execution.tasks.spark_executor_runtime import TaskSkipped
from backfill_manager.settings import SecretSettings


def a_command(command: str, **how: Any) -> TaskLaunch:
    return a_launch(kind="bash", bash=command, **how)


class Ran:
    """A command that ran in this process."""

    def __init__(self, launch: TaskLaunch, bundle: Path, find_secret: Callable[[str], str] = no_secret) -> None:
        self.lines: list[tuple[str, str]] = []
        self.result = run_bash(launch, lambda level, line: self.lines.append((level, line)), find_secret, bundle)


def test_values_come_by_the_environment_and_are_no_code(tmp_path: Path) -> None:
    evil = "$(touch pwned) `touch pwned`; touch pwned \"' \\ \n*"
    launch = a_command(
        'printf "%s|" "$BFM_PARAM_EVIL" "$BFM_DAG_ID" "$BFM_INTERVAL_START" "$BFM_INTERVAL_END" "$BFM_PARAM_N" "$BFM_PARAM_LIST" '
        '"$BFM_PARAM_NONE" "$REGION" "$BFM_TIMEZONE" "${BFM_PARTITION_KEY-none}"; ls',
        params={"evil": evil, "n": 7, "list": ["a", 1], "none": None}, timezone="Europe/Berlin", env=(("REGION", "eu"),),
    )  # fmt: skip
    ran = Ran(launch, tmp_path)
    printed = "\n".join(line for _, line in ran.lines)
    assert printed == f'{evil}|work_dag|2013-01-01T00:00:00Z|2013-01-02T00:00:00Z|7|["a", 1]||eu|Europe/Berlin|none|'
    assert launch.task.bash is not None and evil not in launch.task.bash
    assert not list(tmp_path.iterdir()), "nor was anything written where its bundle lies"


def test_two_params_of_one_variable_are_refused(tmp_path: Path) -> None:
    launch = a_command("true", params={"a-b": 1, "A_b": 2})
    with pytest.raises(InvalidInput, match="params a-b and A_b are both BFM_PARAM_A_B"):
        variables(launch, tmp_path)


@pytest.mark.parametrize(
    ("command", "error"),
    [
        ("exit 3", "ended with exit code 3"),
        ("for n in 1 2 3 '' '4 '; do echo $n >&2; done; exit 4", "ended with exit code 4: 2 / 3 / 4"),
        ("false; echo not reached", "ended with exit code 1"),
        ("false | true", "ended with exit code 1"),
        ("echo $NO_SUCH", "ended with exit code 1: bash: line 1: NO_SUCH: unbound variable"),
        ("kill -9 $$", "ended with signal 9 (SIGKILL)"),
        (f"printf '%0{300}d' 7 >&2; exit 1", f"ended with exit code 1: {'0' * 149}…"),
    ],
)  # fmt: skip
def test_any_other_end_is_a_failure_with_the_last_of_what_it_said(command: str, error: str, tmp_path: Path) -> None:
    with pytest.raises(BashFailed) as raised:
        Ran(a_command(command), tmp_path)
    assert str(raised.value) == error


def test_what_it_prints_is_its_log_and_the_last_line_its_result(tmp_path: Path) -> None:
    ran = Ran(a_command("echo a; sleep 0.01; echo b >&2; printf 'x%.0s' {1..70000}; printf '\\nc\\n\\nd'"), tmp_path)
    assert ran.result == "d"
    assert [line for level, line in ran.lines if level == "WARNING"] == ["b"]
    printed = [line for level, line in ran.lines if level == "INFO"]
    assert (printed[0], printed[-3:], sum(line.count("x") for line in printed)) == ("a", ["c", "", "d"], 70_000)
    assert Ran(a_command("true"), tmp_path).result is None
    assert Ran(a_command("sleep 1000 & echo left behind"), tmp_path).result == "left behind", "it is not waited for"


def test_a_last_line_without_end_is_the_result_as_a_whole_or_not_at_all(tmp_path: Path) -> None:
    ran = Ran(a_command("echo before; printf '{\"a\": \"%.0s' 1; printf 'x, %.0s' {1..60000}; echo '\"}'"), tmp_path)
    assert ran.result == '{"a": "' + "x, " * 60_000 + '"}' and len(ran.lines) > 2, "its log has it in pieces"
    ran = Ran(a_command("printf '\"%.0s' {1..600000}"), tmp_path)
    assert ran.result is None and "its last line is longer than a result may be" in ran.lines[-1][1]
    ran = Ran(a_command("printf 'x%.0s' {1..1200000}; echo; printf ' %.0s' {1..70000}; echo; echo end"), tmp_path)
    assert ran.result == "end"


def test_an_exit_code_skips_it(tmp_path: Path) -> None:
    with pytest.raises(TaskSkipped) as raised:
        Ran(a_command("exit 99"), tmp_path)
    assert raised.value.reason == "ended with exit code 99"
    with pytest.raises(TaskSkipped):
        Ran(a_command("exit 7", skip_exit_code=7), tmp_path)
    with pytest.raises(BashFailed):
        Ran(a_command("exit 99", skip_exit_code=None), tmp_path)


def test_its_folder_is_empty_or_the_one_that_is_named(tmp_path: Path) -> None:
    (tmp_path / "scripts").mkdir()
    (tmp_path / "scripts" / "a.sh").write_text("echo $1")
    assert Ran(a_command('ls -A; bash "$BFM_BUNDLE/scripts/a.sh" x'), tmp_path).result == "x"
    assert Ran(a_command("bash a.sh y", cwd="scripts"), tmp_path).result == "y"
    assert Ran(a_command("pwd", cwd="/"), tmp_path).result == "/"
    gone = Path(Ran(a_command("pwd"), tmp_path).result or "")
    assert not gone.exists()
    with pytest.raises(InvalidInput, match="cwd: none is no folder of the bundle"):
        Ran(a_command("true", cwd="none"), tmp_path)


@ONLY_AS_ROOT
def test_what_can_not_be_deleted_of_its_folder_fails_no_command_that_has_succeeded(tmp_path: Path) -> None:
    """As files of root are, which `sudo docker run -v "$PWD:/out"` leaves there. (Here a file in place of the folder.)"""
    ran = Ran(a_command('here=$PWD; cd /; rmdir "$here"; touch "$here"; echo "$here"'), tmp_path)
    assert ran.result is not None
    Path(ran.result).unlink()


def test_values_that_are_too_long_for_the_system_are_one_clear_error(tmp_path: Path) -> None:
    launch = a_command("true", params={"one": "x", "ids": ["x" * 1_000] * 10_000})
    with pytest.raises(InvalidInput, match=r"too long for the system .*: BFM_PARAM_IDS has 10,0\d\d,\d\d\d bytes"):
        Ran(launch, tmp_path)


def test_one_that_leaves_a_process_of_another_user_behind_ends_like_any_other(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "held")  # what is left ends with who holds this open
    other = f'setpriv --reuid={NOBODY} --clear-groups sh -c "echo it runs; exec cat" <{tmp_path}/held'
    code = f"""
import os, pathlib
from backfill_manager.execution.tasks.bash_task import run_bash
from backfill_manager.execution.secrets import no_secret
from support.executor_fixture import a_launch
held = os.open("{tmp_path}/held", os.O_RDWR)
launch = a_launch(kind="bash", bash={f"exec 3< <({other}); read line <&3; echo $line"!r})
print(run_bash(launch, lambda level, line: None, no_secret, pathlib.Path("{tmp_path}")))
"""
    assert without_leave_to_kill(code) == "it runs\n"


def test_a_definition_with_one_goes_through_json() -> None:
    task = TaskSpec("t", "bash", bash="true", env=(("A", "1"),), secrets=(("B", "b"),), cwd="x", skip_exit_code=None)
    spec = DagSpec("d", (task, TaskSpec("u")))
    assert DagSpec.from_json(spec.to_json()) == spec
    assert "skip_exit_code" not in DagSpec("d", (TaskSpec("u"),)).to_json(), "an older definition stays the same"


def test_it_is_declared_in_python_and_in_yaml_alike(tmp_path: Path) -> None:
    (tmp_path / "load.sh").write_text("echo of the file\n")

    @dag("a", schedule=None)
    def a() -> None:
        first = bash_task("inline", "echo $REGION", env={"REGION": "eu", "N": 1}, secrets={"KEY": "api-key"}, retries=1)  # type: ignore[dict-item]
        first >> bash_task("again", "echo 2", cwd="/tmp", skip_exit_code=None)

    (tmp_path / "a.dag.yaml").write_text("""
dag_id: a
tasks:
  inline: {bash: echo $REGION, env: {REGION: eu, N: 1}, secrets: {KEY: api-key}, retries: 1}
  again: {bash: echo 2, cwd: /tmp, skip_exit_code: null, after: inline}
---
dag_id: b
tasks:
  t: {bash: load.sh}
""")
    of_yaml, other = load_file(tmp_path / "a.dag.yaml")
    assert of_yaml.spec.tasks == a.spec.tasks
    assert other.spec.tasks[0].bash == "echo of the file\n"


@pytest.mark.parametrize(
    ("task", "message"),
    [
        (
            "{bash: echo 1, checks: [rows > 0]}",
            "checks is a setting of sql and python and executor tasks; this one is bash",
        ),
        ("{bash: echo 1, env: {BFM_X: a}}", "env must have the name of a variable: .* not BFM_"),
        ("{bash: echo 1, env: {A-B: a}}", "env must have the name of a variable"),
        ("{bash: echo 1, env: {A: true}}", "env must have text for A, not True"),
        ("{bash: echo 1, env: [a]}", "env must be variables and their values"),
        ("{bash: echo 1, cwd: ../x}", "cwd must lie in the bundle"),
        ("{bash: echo 1, skip_exit_code: 0}", "skip_exit_code must be"),
        ("{bash: none.sh}", "none.sh can't be read"),
        ("{bash: ../out.sh}", "must lie in the bundle"),
        ("{sql: SELECT 1, cwd: x}", "cwd is a setting of bash tasks; this one is sql"),
        ("{bash: echo 1, sql: SELECT 1}", "needs exactly one of sql, python, executor, bash"),
    ],
)
def test_what_is_wrong_is_an_error_of_its_line(task: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "a.dag.yaml").write_text(f"dag_id: a\ntasks:\n  t: {task}\n")
    with pytest.raises(InvalidDag, match=rf"a\.dag\.yaml.*line 3.*{message}"):
        load_file(tmp_path / "a.dag.yaml")


# -- as a task of a manager --------------------------------------------------------------------------------------------------


@pytest.fixture
def runner(spark: Any, tmp_path: Path) -> Any:
    (tmp_path / "db-password").write_text("Qw8!zz quoted")
    recorder = EventRecorder()
    find = Secrets(SecretSettings(files=str(tmp_path)), lambda: spark, {}).find
    with an_executor(spark, recorder, find_secret=find, grace_s=30.0) as executor:
        yield TaskRunner(spark, executor, recorder, [True], tmp_path)


def test_it_runs_in_a_process_of_its_own_with_its_secrets_masked(runner: TaskRunner, tmp_path: Path) -> None:
    (tmp_path / "bundle").mkdir()
    command = 'echo "with $PASSWORD"; echo "and $PASSWORD" >&2; echo "$BFM_BUNDLE"; exit $BFM_PARAM_CODE'
    launches = {
        code: of_snapshot(
            a_command(command, task_id=f"t{code}", secrets=(("PASSWORD", "db-password"),), params={"code": code}),
            tmp_path / "bundle", "a.py",
        )
        for code in (0, 5, 99)
    }  # fmt: skip
    assert runner.run(launches[0]) == Succeeded(f'"{tmp_path}/bundle"')
    assert runner.run(launches[5]) == Failed("ended with exit code 5: and ***")
    assert runner.run(launches[99]) == Skipped("ended with exit code 99")
    first, *others = runner.recorder.lines(launches[0])
    assert first == f"ctx.secret reads db-password from files in {tmp_path}"
    assert sorted(others) == sorted(["with ***", "and ***", f"{tmp_path}/bundle"])
    said = repr([event for event in runner.recorder.events if isinstance(event, TaskEnded | TaskLogged)])
    assert "Qw8" not in said


def test_secrets_among_the_variables_of_a_command_are_masked_by_their_names(runner: TaskRunner) -> None:
    launch = a_command(
        'echo "with $DB_PASSWORD"; echo "and $DB_PASSWORD" >&2; exit 5', env=(("DB_PASSWORD", "Zx7!open"),)
    )
    assert runner.run(launch) == Failed("ended with exit code 5: and ***")
    assert "Zx7" not in repr([event for event in runner.recorder.events if isinstance(event, TaskEnded | TaskLogged)])


def test_what_is_cancelled_may_end_well_and_leaves_nothing_behind(runner: TaskRunner, tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    os.mkfifo(tmp_path / "begun")
    command = """
        trap 'echo cleaned up; exit 1' TERM
        sleep 1000 & echo $! >> "$FOLDER/pids"
        setsid sleep 1000 & echo $! >> "$FOLDER/pids"
        echo begun > "$FOLDER/begun"
        wait
    """
    launch = dataclasses.replace(a_command(command, env=(("FOLDER", str(tmp_path)),)))
    runner.start(launch)
    assert (tmp_path / "begun").read_text() == "begun\n"
    runner.executor.cancel(launch.key, "by a test")
    assert runner.recorder.outcome(launch) == Cancelled("by a test")
    lines = runner.recorder.lines(launch)
    assert lines[0] == ("by a test: SIGTERM is sent to its command")
    assert lines[1:3] == ["cleaned up", "the command ended with exit code 1 after it was stopped"]
    assert lines[3].startswith("it ended ") and len(lines) == 4
    left = [pid for pid in pids.read_text().split() if _is_running(int(pid))]
    assert left == []


def test_all_that_it_has_printed_before_it_was_stopped_is_in_its_log(runner: TaskRunner, tmp_path: Path) -> None:
    """Also a line without an end, of a command that does not heed the stop and is killed."""
    os.mkfifo(tmp_path / "begun")
    command = """
        trap '' TERM
        seq 2000
        printf 'half a line'
        echo begun > "$FOLDER/begun"
        while true; do sleep 1000; done
    """
    launch = a_command(command, env=(("FOLDER", str(tmp_path)),))
    runner.start(launch)
    assert (tmp_path / "begun").read_text() == "begun\n"
    runner.executor.cancel(launch.key, "by a test")
    assert runner.recorder.outcome(launch) == Cancelled("by a test")
    lines = runner.recorder.lines(launch)
    printed = [line for line in lines if line.isdigit()]
    assert (printed, "half a line" in lines) == ([str(n) for n in range(1, 2001)], True)
    assert "it is killed now" in runner.log_of(launch)


def _is_running(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"
