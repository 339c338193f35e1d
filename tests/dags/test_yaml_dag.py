"""DAGs in YAML: the same as in Python, every mistake at its line, and a JSON Schema that agrees."""

from __future__ import annotations

import dataclasses
import json
from datetime import datetime, timezone
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest
import yaml
from hypothesis import example, given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator
from support.bundle_folder import BundleFolder
from support.own_process import OwnProcess

from backfill_manager import bash_task, dag, sql, task
from backfill_manager.dags.authoring import Dag
from backfill_manager.dags.bundles.files import may_make_dags
from backfill_manager.dags.definition import DagSpec, TaskSpec
from backfill_manager.dags.importing.bundle_path import enter_bundle
from backfill_manager.dags.importing.import_failure import FailedFile, explain
from backfill_manager.dags.importing.loader import load_file
from backfill_manager.dags.yaml import json_schema
from backfill_manager.dags.yaml.text import documents_of
from backfill_manager.errors import InvalidDag
from backfill_manager.model.records import DagVersion
from backfill_manager.model.states import TRIGGER_RULES
from backfill_manager.schemas.dag_settings import (
    KINDS,
    BashSettings,
    DagSettings,
    DefaultArgs,
    SqlSettings,
    settings_of,
)
from backfill_manager.settings import LimitSettings

UTC = timezone.utc
REPOSITORY = Path(__file__).parents[2]
VALIDATOR = Draft202012Validator(json_schema.schema())
HELPERS = """
from backfill_manager import task

def clean(ctx): return f"cleaned {ctx}"
def notify(ctx): ...
def two(first, second): ...
@task
def decorated(ctx): ...
number = 5
"""
FLIGHTS = """
# A comment.
dag_id: flights
description: Flights, day by day.
schedule: "@daily"
start_date: 2013-01-01
end_date: 2013-12-31 00:00:00
timezone: America/New_York
max_active_runs: 8
batchable: true
params: {region: eu, since: 2012-01-01, share: 0.5, none: null}
tags: [demo]
reads: {flights_raw: time_hour, airports: null}
writes: [delays]
on_failure: helpers:notify
default_args: {retries: 2, on_success: helpers:notify}
tasks:
  clean:
    python: helpers:clean
    retry_delay: 30
  fetch:
    executor: package.inner:clean
    trigger_rule: all_done
    on_success: null
  delays:
    sql: queries/delays.sql
    into: delays
    time_column: day
    mode: append
    schema: merge
    retries: 0
    after: [clean, fetch]
  check:
    sql: SELECT assert_true(count(*) > 0) FROM delays
    after: delays
"""


def fill(bundle: BundleFolder) -> None:
    bundle.write("helpers.py", HELPERS)
    bundle.write("package/inner.py", "def clean(ctx): return 'inner'")
    bundle.write("queries/delays.sql", "SELECT 1\n")


def dags_of(bundle: BundleFolder, text: str | bytes) -> list[Dag]:
    path = bundle.write("f.dag.yaml", "")
    path.write_bytes(text if isinstance(text, bytes) else dedent(text).encode())
    opened = enter_bundle(bundle.root)
    try:
        return opened.dags_of("f.dag.yaml")
    finally:
        opened.leave()


def parser_failure(bundle: BundleFolder, text: str | bytes) -> FailedFile:
    with pytest.raises((Exception, SystemExit)) as error:  # what a helper raises comes out as it is
        dags_of(bundle, text)
    return explain(error.value, bundle.root, "f.dag.yaml")


def is_valid(bundle: BundleFolder, text: str | bytes) -> bool:
    """What an editor would say of every document; False for what is no YAML at all."""
    path = bundle.root / "seen.dag.yaml"
    path.write_bytes(text if isinstance(text, bytes) else dedent(text).encode())
    try:
        return all(VALIDATOR.is_valid(document.value) for document in documents_of(path))
    except InvalidDag:
        return False


# -- what is right ----------------------------------------------------------------------------------------------------


def test_a_yaml_file_gives_the_very_dag_that_python_gives(bundle: BundleFolder) -> None:
    fill(bundle)
    bundle.write(
        "flights.py",
        """
        import helpers
        from package import inner
        from backfill_manager import dag, sql, task

        @dag(
            schedule="@daily", start_date="2013-01-01", end_date="2013-12-31", timezone="America/New_York",
            max_active_runs=8, batchable=True, tags=["demo"], reads={"flights_raw": "time_hour", "airports": None},
            params={"region": "eu", "since": "2012-01-01", "share": 0.5, "none": None}, writes=["delays"],
            description="Flights, day by day.", on_failure=helpers.notify,
            default_args={"retries": 2, "on_success": helpers.notify},
        )
        def flights():
            clean = task(retry_delay=30)(helpers.clean)()
            fetch = task.executor(task_id="fetch", trigger_rule="all_done", on_success=None)(inner.clean)()
            output = {"into": "delays", "time_column": "day", "mode": "append", "schema": "merge"}
            delays = sql("delays", "queries/delays.sql", retries=0, **output)
            [clean, fetch] >> delays >> sql("check", "SELECT assert_true(count(*) > 0) FROM delays")
        """,
    )
    bundle.write("f.dag.yaml", FLIGHTS)
    opened = enter_bundle(bundle.root)
    (ours,), (theirs,) = opened.dags_of("f.dag.yaml"), opened.dags_of("flights.py")
    assert ours.spec == theirs.spec
    assert ours.spec.task("delays").upstream == ("clean", "fetch")
    assert ours.explicit == theirs.explicit | {"dag_id"}
    assert ours.functions == theirs.functions
    assert ours.functions["clean"]("x") == "cleaned x"
    assert opened.dags_of("f.dag.yaml")[0] is ours
    assert is_valid(bundle, FLIGHTS)


def test_the_process_that_parses_returns_definitions_limits_and_imports(bundle: BundleFolder) -> None:
    fill(bundle)
    bundle.write("deep/f.dag.yml", "dag_id: d\nmax_active_runs: 8\ntasks: {t: {python: 'package.inner:clean'}}")
    scan = bundle.scan(limits=LimitSettings(max_active_runs=3, max_active_tasks=5))
    assert scan.failed == ()
    (parsed,) = scan.parsed
    (spec,) = parsed.dags
    assert (spec.dag_id, spec.file, spec.max_active_runs, spec.max_active_tasks) == ("d", "deep/f.dag.yml", 8, 5)
    assert parsed.imported == ("package/inner.py",)


def test_a_wrong_file_is_an_import_error_and_affects_no_other(bundle: BundleFolder) -> None:
    fill(bundle)
    bundle.write("good.dag.yaml", "dag_id: good\n" + TASKS)
    bundle.write("wrong.dag.yaml", "dag_id: wrong\ntaggs: [a]\n" + TASKS)
    bundle.write("hangs.py", "while True: pass")
    bundle.write("hangs.dag.yaml", "dag_id: hangs\ntasks:\n  t:\n    python: hangs:work")
    scan = bundle.scan(import_timeout=2)  # time enough for the others, also on a busy machine
    assert [parsed.file for parsed in scan.parsed] == ["good.dag.yaml"]
    message = {failure.file: (failure.line, failure.message) for failure in scan.failed}
    assert message["wrong.dag.yaml"] == (2, "DAG 'wrong' has no setting 'taggs'; did you mean 'tags'?")
    assert (message["hangs.dag.yaml"][0], "took longer than 2 seconds" in message["hangs.dag.yaml"][1]) == (4, True)


def test_a_sql_file_is_read_from_beside_the_yaml_file(bundle: BundleFolder) -> None:
    fill(bundle)
    bundle.write("queries/f.dag.yaml", "dag_id: d\ntasks: {t: {sql: delays.sql}}")
    (made,) = load_file(bundle.root / "queries" / "f.dag.yaml", root=bundle.root)
    assert made.spec.task("t").sql == "SELECT 1\n"


def test_several_documents_are_several_dags_and_empty_ones_none(bundle: BundleFolder) -> None:
    one = "dag_id: {0}\ntasks: {{t: {{sql: SELECT 1}}}}\n"
    text = "---\n" + one.format("a") + "---\n---\n# nothing\n---\n" + one.format("b")
    assert [made.dag_id for made in dags_of(bundle, text)] == ["a", "b"]
    assert dags_of(bundle, "# all of it taken out\n") == []


def test_anchors_and_merge_keys_share_settings(bundle: BundleFolder) -> None:
    text = """
    dag_id: d
    params: &params {a: 1, b: [x]}
    tasks:
      a: &all {sql: SELECT 1, retries: 3, timeout: 60}
      b: {after: a, <<: *all, retries: 1}
      c: {<<: [{retries: 7}, *all], after: [a, b]}
    """
    (made,) = dags_of(bundle, text)
    message = {t.task_id: (t.sql, t.retries, t.timeout, t.upstream) for t in made.spec.tasks}
    assert message == {
        "a": ("SELECT 1", 3, 60.0, ()),
        "b": ("SELECT 1", 1, 60.0, ("a",)),
        "c": ("SELECT 1", 7, 60.0, ("a", "b")),
    }
    assert is_valid(bundle, text)


@pytest.mark.parametrize(
    ("written", "instant"),
    [
        ("2013-01-01", datetime(2013, 1, 1, 5)),
        ("'2013-01-01'", datetime(2013, 1, 1, 5)),
        ("2013-01-01 06:30:00", datetime(2013, 1, 1, 11, 30)),
        ("2013-01-01T06:30", datetime(2013, 1, 1, 11, 30)),
        ("2013-01-01T06:30:00Z", datetime(2013, 1, 1, 6, 30)),
        ("2013-01-01T06:30:00+01:00", datetime(2013, 1, 1, 5, 30)),
    ],
)
def test_a_date_needs_no_quotes_and_is_the_dags_wall_clock(
    bundle: BundleFolder, written: str, instant: datetime
) -> None:
    text = f"dag_id: d\nstart_date: {written}\ntimezone: America/New_York\ntasks: {{t: {{sql: SELECT 1}}}}"
    assert dags_of(bundle, text)[0].spec.start_date == instant.replace(tzinfo=UTC)
    assert is_valid(bundle, text)


def test_a_schedule_may_be_a_duration(bundle: BundleFolder) -> None:
    text = "dag_id: d\nschedule: {seconds: 3600}\ntasks: {t: {sql: SELECT 1}}"
    assert dags_of(bundle, text)[0].spec.schedule == {"seconds": 3600}
    assert is_valid(bundle, text)


def test_a_private_file_makes_no_dags() -> None:
    names = ("a.dag.yaml", "sub/a.dag.yml", "a.yaml", "_a.dag.yaml", "manifest.yaml", "dag.yaml")
    assert [name for name in names if may_make_dags(name, b"dag")] == ["a.dag.yaml", "sub/a.dag.yml"]


def test_a_stored_version_runs_the_function_that_it_names(bundle: BundleFolder) -> None:
    bundle.write("helpers.py", "def work(ctx):\n    import inner\n    return inner.NUMBER")
    bundle.write("inner.py", "NUMBER = 1")
    bundle.write("f.dag.yaml", "dag_id: d\ntasks: {t: {python: 'helpers:work'}}")
    (parsed,) = bundle.scan().parsed
    at = datetime(2024, 1, 1, tzinfo=UTC)
    version = DagVersion("d", 1, "hash", parsed.definitions[0], "b", "f.dag.yaml", str(bundle.root), at)
    program = """
        from backfill_manager.dags.importing.task_code import load_dag
        result = load_dag(version, None).functions["t"](None)
    """
    with OwnProcess() as process:
        assert process.run(program, version=version) == 1


def test_a_module_that_makes_dags_of_its_own_may_be_named(bundle: BundleFolder) -> None:
    bundle.write_dag("other.py", "theirs", top="def work(ctx): ...")
    assert [made.dag_id for made in dags_of(bundle, "dag_id: d\ntasks: {t: {python: 'other:work'}}")] == ["d"]


@pytest.mark.parametrize(
    ("end", "last"),
    [
        ("2013-12-31", "2014-01-01T04:00"), ("'2013-12-31'", "2014-01-01T04:00"), ("2013-12-31 00:00:00", "2013-12-31T05:00"),
    ],
)  # fmt: skip
def test_a_date_alone_as_end_date_is_its_whole_day(bundle: BundleFolder, end: str, last: str) -> None:
    head = f"dag_id: d\nschedule: '@hourly'\ntimezone: America/New_York\nstart_date: 2013-01-01\nend_date: {end}\n"
    (made,) = dags_of(bundle, head + TASKS)
    assert f"{made.spec.end_date:%Y-%m-%dT%H:%M}" == last


def test_the_example_is_downstream_of_flights() -> None:
    path = REPOSITORY / "jobs" / "bundles" / "airport_day.dag.yaml"
    (made,) = load_file(path)
    assert [read.table for read in made.spec.reads] == ["clean_flights"]
    assert made.spec.end_date == datetime(2013, 12, 31, 5, tzinfo=UTC)
    assert [VALIDATOR.is_valid(document.value) for document in documents_of(path)] == [True]


# -- what is wrong ----------------------------------------------------------------------------------------------------

TASKS = "tasks: {s: {sql: SELECT 1}}\n"
WRONG_DAG = {
    "no mapping": ("- x", 1, "a DAG is written as keys and values"),
    "no dag_id": (TASKS, 1, "DAG needs `dag_id`"),
    "dag_id misspelt": ("owner: x\ndagid: x\n" + TASKS, 2, "DAG has no setting 'dagid'; did you mean 'dag_id'?"),
    "dag_id a number": ("dag_id: 2013\n" + TASKS, 1, "dag_id must be 1 to 200 letters"),
    "no tasks": ("dag_id: d\n", 1, "DAG 'd' needs `tasks`"),
    "tasks empty": ("dag_id: d\ntasks:\n", 2, "DAG 'd': tasks must be the tasks by their ids"),
    "tasks a list": ("dag_id: d\n\ntasks: [a]\n", 3, "tasks must be the tasks by their ids, each with its settings, not"),
    "unknown": ("dag_id: d\nschedul: 1\n" + TASKS, 2, "DAG 'd' has no setting 'schedul'; did you mean 'schedule'?"),
    "value": ("dag_id: d\nlookback: -1\n" + TASKS, 2, "DAG 'd': lookback must be 0 or more, not -1"),
    "schedule": ("dag_id: d\nschedule: '@dayly'\n" + TASKS, 2, "DAG 'd': schedule: there is no preset '@dayly'"),
    "zone": ("dag_id: d\nstart_date: 2013-01-01\ntimezone: Mars/X\n" + TASKS, 3, "Mars/X"),
    "date": ("dag_id: d\nstart_date: 2013-02-30\n" + TASKS, 2, "start_date: '2013-02-30' is not a date"),
    "dates": ("dag_id: d\nend_date: 2013-01-01\nstart_date: 2014-01-01\n" + TASKS, 2, "is after end_date"),
    "default_args": ("dag_id: d\ndefault_args:\n  retries: 1\n  retry: 2\n" + TASKS, 4, "default_args has no setting"),
    "default_args empty": ("dag_id: d\ndefault_args:\n" + TASKS, 2, "default_args must be keys and values, not None"),
    "callback": ("dag_id: d\non_failure: helpers:no\n" + TASKS, 2, "helpers:no names no function of helpers"),
    "two alike": ("dag_id: d\nowner: a\nowner: b\n" + TASKS, 3, "'owner' is here twice; first on line 2"),
    "one id": ("dag_id: d\n" + TASKS + "---\ndag_id: d\n" + TASKS, 4, "DAG 'd' is here twice, first on line 1; give one"),
    "second document": ("dag_id: d\n" + TASKS + "---\ndag_id: e\nx: 1\n" + TASKS, 5, "DAG 'e' has no setting 'x'"),
    "params key": ("dag_id: d\nparams: {1: 2}\n" + TASKS, 2, "a key must be text, and 1 is none in YAML"),
    "condition": ("dag_id: d\nwaits_for: [{condition: DELETE FROM u}]\n" + TASKS, 2, "DAG 'd': waits_for: a condition is one"),
    "condition of default_args": ("dag_id: d\ndefault_args:\n  retries: 1\n  waits_for: [{condition: DELETE FROM u}]\n" + TASKS,
                                  4, "DAG 'd': default_args: waits_for: a condition is one query"),
    "condition of schedule": ("dag_id: d\nschedule: {every: '@daily', waits_for: [{condition: DELETE FROM u}]}\n" + TASKS, 2,
                              "DAG 'd': waits_for: a condition is one query"),
    "params type": ("dag_id: d\nparams: {a: {type: strin, default: x}}\n" + TASKS, 2, "'a' has the type 'strin', which is none; "
                    "did you mean 'string'?"),
    "params no type": ("dag_id: d\nparams: {a: {choices: [x], default: x}}\n" + TASKS, 2, "'a' has no type; the types are"),
    "params nan": ("dag_id: d\nparams: {a: .nan}\n" + TASKS, 2, "params must be JSON values all through"),
}  # fmt: skip
WRONG_TASK = {
    "no settings": ("t:", 1, "DAG 'd', task 't' must be the settings of a task, such as `sql: SELECT 1`, not None"),
    "id": ("a b: {sql: SELECT 1}", 1, "DAG 'd', task 'a b' has an id that must be 1 to 200 letters"),
    "nothing to map": ("t:\n  sql: S\n  over: []", 3, "task 't': over must have 1 to 1,000 values, not 0"),
    "mapped twice": ("t:\n  sql: S\n  over: [a, a]", 3, "task 't': over must have each name once, not 'a' twice"),
    "no key": ("t:\n  sql: S\n  over: [{a: 1}]", 3, "task 't': over must be text or integers that name each task"),
    "two alike": ("t: {sql: S}\nt: {sql: S}", 2, "'t' is here twice"),
    "nothing to run": ("t:\n  into: x", 1, "task 't' needs exactly one of sql, python, executor, bash, and has none"),
    "too much to run": ("t:\n  sql: S\n  python: a:b", 1, "exactly one of sql, python, executor, bash, not sql and python"),
    "misspelt": ("t:\n  sq1: S", 2, "task 't' has no setting 'sq1'; did you mean 'sql'?"),
    "task_id": ("t:\n  sql: S\n  task_id: u", 3, "task 't' has no setting 'task_id'"),
    "value": ("t:\n  sql: S\n  retries: many", 3, "task 't': retries must be a whole number, not 'many'"),
    "rule": ("t:\n  sql: S\n  trigger_rule: all_don", 3, "did you mean 'all_done'?"),
    "of sql only": ("t:\n  python: helpers:clean\n  into: x", 3, "into is a setting of sql tasks; this one is python"),
    "no into": ("t:\n  sql: S\n  time_column: x", 2, "name the table with into"),
    "write mode": ("t:\n  sql: S\n  into: u\n  mode: apend", 4, "mode must be 'replace', 'append' or 'overwrite', not"),
    "mode but no into": ("t:\n  sql: S\n  mode: append", 2, "mode says how rows go into a table; name the table with into"),
    "checks no list": ("t:\n  sql: S\n  into: u\n  checks: rows > 0", 4, "checks must be a list of checks, such as"),
    "check": ("t:\n  sql: S\n  into: u\n  checks:\n  - rows > 0\n  - rows > few", 4, "[1] 'rows > few' compares"),
    "check key": ("t:\n  sql: S\n  into: u\n  checks: [{condtion: a > 0}]", 4, "[0] has no 'condtion'; did you mean"),
    "check on_failure": ("t:\n  sql: S\n  into: u\n  checks: [{condition: a > 0, on_failure: wran}]", 4, "did you mean 'warn'?"),
    "condition": ("t:\n  sql: S\n  waits_for:\n  - {condition: DELETE FROM u}", 3, "waits_for: a condition is one query"),
    "condition value": ("t:\n  sql: S\n  waits_for: [{condition: 'SELECT :interval_strat'}]", 3, "mean ':interval_start'?"),
    "checks but no into": ("t:\n  sql: S\n  checks: [rows > 0]", 2, "write by themselves; name the table with into"),
    "checks on an executor": ("t:\n  executor: helpers:clean\n  checks: [rows > 0]", 2, "a task on an executor does not have"),
    "sql empty": ("t:\n  sql: ''", 2, "sql must be text, not ''"),
    "sql file": ("t:\n  retries: 1\n  sql: no.sql", 3, "no.sql can't be read from the DAG file's folder"),
    "sql outside": ("t:\n  sql: ../no.sql", 2, "../no.sql must lie in the bundle"),
    "upstream": ("t:\n  sql: S\n  after: [u]\nuu: {sql: S}", 3, "comes after 'u', which does not exist; did you mean 'uu'?"),
    "cycle": ("a: {sql: S}\nb:\n  sql: S\n  after: [a, c]\nc: {sql: S, after: b}", (4, 5), "comes after itself: "),
    "itself": ("a:\n  sql: S\n  after: a", 3, "comes after itself: a >> a"),
    "after a number": ("t:\n  sql: S\n  after: 5", 3, "after must be a task's id or a list of them, not 5"),
    "no function": ("t:\n  python: helpers", 2, "python must be module:function, such as helpers:clean, not 'helpers'"),
    "no module": ("t:\n  python: helprs:clean", 2, "helprs:clean names the module helprs, which is not in the bundle"),
    "no inner module": ("t:\n  python: package.no:clean", 2, "names the module package.no, which is not in the bundle"),
    "not installed ones": ("t:\n  python: shutil:rmtree", 2, "names the module shutil, which is not in the bundle"),
    "misspelt function": ("t:\n  executor: helpers:claen", 2, "helpers:claen names no function of helpers; did you mean"),
    "no function but": ("t:\n  python: helpers:number", 2, "helpers:number names no function but a value of type int"),
    "a task": ("t:\n  python: helpers:decorated", 2, "is a @task; name a plain function, its settings stand here"),
    "arguments": ("t:\n  python: helpers:two", 2, "task 't' must take one argument, as in `def two(ctx)`"),
    "callback": ("t:\n  sql: S\n  on_success: helpers:two", 3, "on_success must be a plain function"),
    "callback text": ("t:\n  sql: S\n  on_success: notify", 3, "on_success must be module:function"),
}  # fmt: skip
SEEN_BY_THE_LOADER_ONLY = {
    "schedule", "zone", "date", "dates", "callback", "sql file", "sql outside", "upstream", "cycle", "itself",
    "no module", "no inner module", "not installed ones", "misspelt function", "no function but", "a task",
    "arguments", "one id", "params nan", "check", "condition", "condition value", "condition of default_args",
    "condition of schedule",
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG_DAG)
def test_a_mistake_of_a_dag_is_reported_at_its_line(bundle: BundleFolder, name: str) -> None:
    fill(bundle)
    text, line, message = WRONG_DAG[name]
    failed = parser_failure(bundle, text)
    assert (failed.line, message in failed.message) == (line, True), failed
    assert name in SEEN_BY_THE_LOADER_ONLY or not is_valid(bundle, text)


@pytest.mark.parametrize("name", WRONG_TASK)
def test_a_mistake_of_a_task_is_reported_at_its_line(bundle: BundleFolder, name: str) -> None:
    fill(bundle)
    text, line, message = WRONG_TASK[name]
    text = "dag_id: d\ntasks:\n" + "".join(f"  {each}\n" for each in text.splitlines())
    failed = parser_failure(bundle, text)
    lines = line if isinstance(line, tuple) else (line,)
    assert (failed.line in [n + 2 for n in lines], message in failed.message) == (True, True), failed
    assert name in SEEN_BY_THE_LOADER_ONLY or not is_valid(bundle, text)


@pytest.mark.parametrize(
    ("text", "line", "message"),
    [
        ("dag_id: d\nx: [", 2, "not valid YAML: while parsing a flow node"),
        ("dag_id: d\nschedule: @daily", 2, "put the text in quotes, as in '@daily'"),
        ("dag_id: d\nschedule: * * * * *", 2, "a text that begins with * needs quotes, as in '* * * * *'"),
        ("dag_id: d\n\towner: x", 2, "indent with spaces, not with tabs"),
        ("dag_id: d\nowner: a: b", 2, "a text with a colon and a blank in it needs quotes"),
        ("dag_id: *no", 1, "found undefined alias 'no'"),
        ("dag_id: d\nowner: \0", 2, "the character U+0000 is not allowed"),
        (b"dag_id: d\nowner: \xff", 2, "not UTF-8 text: there is a byte 0xff; save the file as UTF-8"),
        (
            "a: !!python/object/apply:os.system [ls]",
            1,
            "!!python/object/apply:os.system is a type that is not read here",
        ),
        ("dag_id: !mine d", 1, "!mine is a type that is not read here"),
        ("dag_id: !!int d", 1, "'d' is not a number that can be read"),
        ('dag_id: d\nowner: "\\ud800"', 2, "a text holds half a character"),
        ("? [a]\n: b", 1, "a key must be text, and a list or mapping is none in YAML"),
        ("a: {<<: 3}", 1, "`<<` takes in a mapping, or a list of mappings"),
        ("a: &a\n  b: *a", 1, "an alias stands inside of what it stands for"),
        ("[" * 5000, 1, "nested too deeply"),
        ("dag_id: d\nstart_date: 12:30", 2, "12:30 without quotes is the number 750 in YAML; write 750, or '12:30'"),
        ("dag_id: d\nlookback: 010", 2, "010 without quotes is the number 8 in YAML; write 8, or '010'"),
        ("dag_id: d\nparams: {n: 1e3}", 2, "1e3 without quotes is text here and a number in YAML 1.2; write '1e3'"),
        ("dag_id: d\nparams: {n: -1.5e3}", 2, "-1.5e3 without quotes is text here"),
        ("dag_id: d\nparams: {mode: 0o17}", 2, "0o17 without quotes is text here"),
        ("dag_id: d\ncatchup: yes", 2, "yes without quotes is true in YAML; write true, or 'yes' if it is a text"),
        ("dag_id: d\ntags: [de, no]", 2, "no without quotes is false in YAML; write false, or 'no' if it is a text"),
        ("dag_id: d\non: 1", 2, "on without quotes is true in YAML"),
    ],
)
def test_what_yaml_misunderstands_is_reported_at_its_line(
    bundle: BundleFolder, text: str | bytes, line: int, message: str
) -> None:
    failed = parser_failure(bundle, text)
    assert (failed.line, message in failed.message) == (line, True), failed
    assert "\n" not in failed.message


def test_text_that_looks_like_a_number_elsewhere_needs_quotes_or_a_tag(bundle: BundleFolder) -> None:
    (dag,) = dags_of(bundle, f"dag_id: d\nparams: {{a: '1e3', b: !!str 1e3, c: 1e3x, d: 1.5e+3, e: '0o17'}}\n{TASKS}")
    assert dag.spec.params == {"a": "1e3", "b": "1e3", "c": "1e3x", "d": 1500.0, "e": "0o17"}
    (dag,) = dags_of(bundle, f"dag_id: d\nparams: {{a: 1e-06, b: -1e+16, c: '1e-06', d: !!str 1e-06}}\n{TASKS}")
    assert dag.spec.params == {"a": 1e-06, "b": -1e16, "c": "1e-06", "d": "1e-06"}


def test_a_few_lines_that_unfold_to_a_billion_values_are_refused(bundle: BundleFolder) -> None:
    lines = ["dag_id: d", "params:", "  a0: &a0 [lol, lol, lol, lol, lol, lol, lol, lol, lol, lol]"]
    lines += [f"  a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 9)]
    failed = parser_failure(bundle, "\n".join([*lines, TASKS]))
    assert "the document holds too much (each use of an alias counts)" in failed.message
    merged = ["dag_id: d", "params:", "  a0: &a0 {x: 1}"]
    merged += [f"  a{n}: &a{n} {{<<: [{', '.join([f'*a{n - 1}'] * 10)}]}}" for n in range(1, 9)]
    assert "the document holds too much" in parser_failure(bundle, "\n".join([*merged, TASKS])).message


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("\nraise ValueError('no')", "ValueError: no (broken.py, line 2)"),
        ("import nothing_like_it", "ModuleNotFoundError: No module named 'nothing_like_it' (broken.py, line 1)"),
        ("def f(:", "SyntaxError: "),
        ("raise SystemExit(3)", "the file ended the process (SystemExit: 3)"),
    ],
)
def test_a_module_that_breaks_is_reported_with_the_line_that_names_it_and_its_own(
    bundle: BundleFolder, code: str, message: str
) -> None:
    bundle.write("broken.py", code)
    failed = parser_failure(bundle, "dag_id: d\ntasks:\n  t:\n    python: broken:work")
    assert (failed.line, failed.message.startswith(message)) == (4, True), failed
    assert 'File "f.dag.yaml", line 4' in failed.traceback
    assert "    python: broken:work" in failed.traceback


# -- the schema -------------------------------------------------------------------------------------------------------


def test_the_schema_is_one_of_the_draft_that_it_names() -> None:
    Draft202012Validator.check_schema(json_schema.schema())


def test_the_schema_has_every_key_with_a_description_and_the_defaults() -> None:
    document_values = json_schema.schema()
    of_task = document_values["$defs"]["YamlTask"]["properties"]
    assert set(document_values["properties"]) == {*settings_of(DagSettings), "tasks"}
    assert set(of_task) == {*settings_of(SqlSettings), *settings_of(BashSettings), *KINDS, "after"} - {"task_id"}
    assert set(document_values["$defs"]["YamlDefaultArgs"]["properties"]) == set(settings_of(DefaultArgs))
    message = {**document_values["properties"], **of_task, "default_args": document_values["$defs"]["YamlDefaultArgs"]}
    assert [name for name, entry in message.items() if not entry.get("description")] == []
    defaults = {field.name: field.default for kind in (DagSpec, TaskSpec) for field in dataclasses.fields(kind)}
    wrong = [
        name for name, entry in message.items() if name in defaults and entry.get("default", ...) != defaults[name]
    ]
    unsaid = {
        "dag_id",
        "sql",
        "bash",
        "env",
        "secrets",
        "checks",
        "reads",
        "writes",
        "exclude_dates",
        "params",
        "tags",
        "default_args",
        "tasks",
        "waits_for",
        "notify",
        "over",
        "merge_on",
    }
    assert set(wrong) <= unsaid


def test_every_setting_is_a_field_of_its_spec() -> None:
    callbacks = {"on_success", "on_failure"}
    assert {*settings_of(SqlSettings), *settings_of(BashSettings)} - callbacks - {"over"} <= {
        field.name for field in dataclasses.fields(TaskSpec)
    }
    of_tasks = {"default_args", "depends_on_past", "wait_for_downstream", "waits_for"}
    assert {*settings_of(DagSettings)} - callbacks - of_tasks <= {f.name for f in dataclasses.fields(DagSpec)}


# -- any settings -----------------------------------------------------------------------------------------------------

IDS = st.from_regex(r"\A(?!\.+\Z)[A-Za-z0-9_.-]{1,12}\Z")
TEXTS = st.text(st.characters(codec="utf-8", exclude_categories=["Cc", "Cs"]), max_size=20)
FILLED = TEXTS.filter(lambda text: bool(text.strip()))
JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**9), 10**9) | st.floats(allow_nan=False, allow_infinity=False) | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=6,
)
SECONDS = st.integers(1, 10**6) | st.floats(0.001, 1e6)
DATES = st.dates(datetime(2000, 1, 1).date(), datetime(2030, 1, 1).date()).map(str)
OF_TASK: dict[str, st.SearchStrategy[Any]] = {
    "trigger_rule": st.sampled_from(TRIGGER_RULES),
    "retries": st.integers(0, 100),
    "retry_delay": SECONDS,
    "retry_backoff": st.floats(1, 10),
    "max_retry_delay": SECONDS,
    "timeout": st.none() | SECONDS,
    "depends_on_past": st.booleans(),
    "pool": st.none() | IDS,
    "priority": st.integers(-100, 100),
    "weight": st.integers(1, 100),
    "max_active_tis": st.none() | st.integers(1, 100),
    "memory": st.none() | st.integers(16, 1 << 20) | st.sampled_from(["512 MB", "1.5g", "1 TB", " 100 "]),
    "nice": st.none() | st.integers(0, 19),
    "reuse_process": st.booleans(),
}
CHECKS = st.lists(
    st.sampled_from(["rows > 0", {"condition": "a > 0", "on_failure": "warn"}, {"condition": "b > 0", "name": "b"}]),
    max_size=3,
    unique_by=str,
)
KEYS = st.from_regex(r"\Akey[0-9a-z_-]{1,5}\Z")
OF_MAPPING = {
    "over": st.lists(KEYS, min_size=1, max_size=3, unique=True)
    | st.dictionaries(KEYS, JSON_VALUES, min_size=1, max_size=3)
}
OF_SQL = {"into": FILLED}
VARIABLES = st.from_regex(r"[A-Z]{3}_[A-Z0-9]{0,5}", fullmatch=True).filter(lambda name: not name.startswith("BFM_"))
OF_BASH: dict[str, st.SearchStrategy[Any]] = {
    "env": st.dictionaries(VARIABLES, FILLED, max_size=3),
    "secrets": st.dictionaries(VARIABLES, IDS, max_size=3),
    "cwd": st.none() | st.just("scripts"),
    "skip_exit_code": st.none() | st.integers(1, 255),
}
OF_DAG: dict[str, st.SearchStrategy[Any]] = {
    "schedule": st.sampled_from(["@daily", "0 6 * * MON-FRI", "*/5 * * * *", None, {"seconds": 60}]),
    "start_date": DATES,
    "timezone": st.sampled_from(["UTC", "America/New_York", "Asia/Kathmandu"]),
    "catchup": st.booleans(),
    "max_active_runs": st.integers(1, 100),
    "max_active_tasks": st.integers(1, 100),
    "batchable": st.booleans(),
    "lookback": st.integers(0, 100),
    "reads": st.lists(FILLED, max_size=3) | st.dictionaries(FILLED, st.none() | FILLED, max_size=3),
    "writes": st.lists(FILLED, max_size=3),
    "params": st.dictionaries(TEXTS, JSON_VALUES, max_size=4),
    "tags": st.lists(TEXTS, max_size=3),
    "description": TEXTS,
    "owner": TEXTS,
    "default_args": st.fixed_dictionaries({}, optional=OF_TASK),
}


@st.composite
def documents(draw: st.DrawFn) -> dict[str, Any]:
    names = draw(st.lists(IDS, min_size=1, max_size=5, unique=True))
    document_values: dict[str, Any] = {
        "dag_id": draw(IDS),
        **draw(st.fixed_dictionaries({}, optional=OF_DAG)),
        "tasks": {},
    }
    for number, name in enumerate(names):
        kind = draw(st.sampled_from(KINDS))
        runs = {kind: {"sql": "SELECT 1", "bash": "echo 1"}.get(kind, "helpers:work")}
        of_kind = {"sql": OF_SQL, "bash": OF_BASH}.get(kind, {})
        own = draw(st.fixed_dictionaries({}, optional={**OF_TASK, **OF_MAPPING, **of_kind}))
        if kind == "python" or "into" in own:
            own |= draw(st.fixed_dictionaries({}, optional={"checks": CHECKS}))
        after = draw(st.lists(st.sampled_from(names[:number]), unique=True, max_size=3)) if number else []
        document_values["tasks"][name] = {**runs, **own, **({"after": after} if after else {})}
    return document_values


def in_python(document_values: dict[str, Any], work: Any) -> DagSpec:
    def body() -> None:
        made: dict[str, Any] = {}
        for name, chosen in document_values["tasks"].items():
            own = {key: value for key, value in chosen.items() if key not in {*KINDS, "after"}}
            if "sql" in chosen:
                made[name] = sql(name, chosen["sql"], **own)
            elif "bash" in chosen:
                made[name] = bash_task(name, chosen["bash"], **own)
            else:
                made[name] = (task if "python" in chosen else task.executor)(task_id=name, **own)(work)()
        for name, chosen in document_values["tasks"].items():
            [made[each] for each in chosen.get("after", [])] >> made[name]

    spec: DagSpec = dag(**{key: value for key, value in document_values.items() if key != "tasks"})(body).spec
    return spec


@pytest.fixture(scope="module")
def helpers_bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("bundle")
    (root / "helpers.py").write_text("def work(ctx): ...")
    return root


class Dumper(yaml.SafeDumper):
    """With quotes round texts that PyYAML takes for no numbers, and YAML 1.2 does (`08`, `1e3`): a DAG file needs them."""


def _text(dumper: Dumper, text: str) -> yaml.ScalarNode:
    style = "'" if text.startswith(tuple("+-.0123456789")) else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


Dumper.add_representer(str, _text)


@settings(max_examples=150, deadline=None)
@given(document_values=documents(), as_json=st.booleans())
@example(document_values={"dag_id": "d", "tags": ["08", "1e3"], "tasks": {"a": {"sql": "SELECT 1"}}}, as_json=False)
def test_any_settings_give_in_yaml_the_dag_that_they_give_in_python(
    helpers_bundle: Path, document_values: dict[str, Any], as_json: bool
) -> None:
    def work(ctx: Any) -> None: ...

    in_yaml = yaml.dump(document_values, Dumper=Dumper, sort_keys=False, allow_unicode=True)
    text = json.dumps(document_values) if as_json else in_yaml
    path = helpers_bundle / "f.dag.yaml"
    path.write_text(text, encoding="utf-8")
    bundle = enter_bundle(helpers_bundle)
    try:
        (made,) = bundle.dags_of("f.dag.yaml")
    finally:
        bundle.leave()
    expected = in_python(document_values, work)
    assert made.spec == expected
    (document,) = documents_of(path)
    assert [error.message for error in VALIDATOR.iter_errors(document.value)] == []


@settings(max_examples=200, deadline=None)
@given(content=st.binary(max_size=200) | st.text(max_size=200).map(lambda text: text.encode("utf-8", "replace")))
def test_no_bytes_do_anything_but_give_dags_or_one_error_with_a_line(helpers_bundle: Path, content: bytes) -> None:
    (helpers_bundle / "g.dag.yaml").write_bytes(content)
    bundle = enter_bundle(helpers_bundle)
    try:
        bundle.dags_of("g.dag.yaml")
    except InvalidDag as error:
        failed = explain(error, helpers_bundle, "g.dag.yaml")
        assert failed.line is not None and 1 <= failed.line <= content.count(b"\n") + content.count(b"\r") + 2
    finally:
        bundle.leave()
