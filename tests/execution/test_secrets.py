"""Secrets by name: where they are found, who may read which, and that nothing of a try stores or shows one."""

from __future__ import annotations

import os
import sys
import types
from pathlib import Path
from typing import Any

import pytest
from support.executor_fixture import EventRecorder, TaskRunner, a_launch, an_executor

from backfill_manager.clock import SystemClock
from backfill_manager.errors import InvalidInput
from backfill_manager.execution.messages import AccessedTable, Failed, Skipped, Succeeded, TaskEnded, TaskLogged
from backfill_manager.execution.secrets import MAX_BYTES, FoundSecret, NoSecret, Secrets
from backfill_manager.execution.task_processes.task_log import MAX_CHARS, LogLines
from backfill_manager.masking import MASK, mask_text
from backfill_manager.settings import SecretSettings

VALUE = "Qw8!zz 'quoted' ü"


def sources(environ: dict[str, str] | None = None, **settings: Any) -> Secrets:
    def no_spark() -> Any:
        raise AssertionError("nothing but Databricks needs Spark")

    return Secrets(SecretSettings(**settings), no_spark, environ or {})


# -- where they are ---------------------------------------------------------------------------------------------------


def test_the_first_source_that_has_it_gives_it(tmp_path: Path) -> None:
    (tmp_path / "api-key").write_text("of the file\n")
    (tmp_path / "tls.crt").write_text("two\nlines\r\n")
    found = sources({"BFM_SECRET_DB_PASSWORD": "of the variable"}, files=str(tmp_path))
    assert found.find("db-password", "b") == FoundSecret("of the variable", "the environment (BFM_SECRET_...)")
    assert found.find("api-key", "b") == FoundSecret("of the file", f"files in {tmp_path}")
    assert found.find("tls.crt", "b").value == "two\nlines", "but for the newline at its end it is as it is in the file"
    both = sources({"BFM_SECRET_API_KEY": "of the variable"}, files=str(tmp_path))
    assert both.find("api-key", "b").value == "of the variable"
    assert sources({"BFM_SECRET_API_KEY": "of the variable"}, env=None, files=str(tmp_path)).find("api-key", "b").value == "of the file"  # fmt: skip  # noqa: E501
    (tmp_path / "api-key").write_text("changed")
    assert found.find("api-key", "b").value == "changed"


def test_one_that_is_nowhere_is_an_error_that_says_where_was_looked_and_no_value(tmp_path: Path) -> None:
    (tmp_path / "empty").write_text("\n")
    (tmp_path / "latin").write_bytes(b"\xe9\xff hidden")
    (tmp_path / "large").write_bytes(b"x" * (MAX_BYTES + 1))
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "pipe")  # whose other end nobody opens
    found = sources({"BFM_SECRET_OTHER": VALUE}, files=str(tmp_path), databricks="prod")
    for name, why in {
        "none": f"files in {tmp_path};",
        "empty": "where it is empty",
        "latin": "where it is not UTF-8 text",
        "large": "where it has more than 64 KB",
        "folder": "where it can't be read: Is a directory",
        "pipe": "where it is no file",
    }.items():
        with pytest.raises(NoSecret) as raised:
            found.find(name, "b")
        message = str(raised.value)
        assert message.startswith(
            f"{name} is not among the secrets; looked in the environment (BFM_SECRET_...); files in"
        )
        assert why in message
        assert message.endswith(
            "scope prod of Databricks, where it can't be read: this is not Databricks, there is no dbutils"
        )
        assert not any(value in message for value in (VALUE, "hidden", "xxx"))
        assert mask_text(message) == message, "it says what it says when it is stored, too"


@pytest.mark.parametrize("name", ["../etc/passwd", "a/b", ".hidden", "", "..", "a b", "a\nb", "x" * 128, None, 7, "ä"])
def test_a_name_is_no_path(name: Any, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / ".hidden").write_text("x")
    with pytest.raises(InvalidInput, match="a secret's name has letters"):
        sources(files=str(tmp_path / "in")).find(name, "b")


def test_a_bundle_reads_only_what_it_may() -> None:
    environ = {"BFM_SECRET_SALES_KEY": "1", "BFM_SECRET_HR_KEY": "2"}
    found = sources(environ, allow={"sales": ["sales_*"], "hr": ["hr_key"]})
    assert found.find("sales_key", "sales").value == "1"
    assert found.find("hr_key", "hr").value == "2"
    for name, bundle in (("hr_key", "sales"), ("sales_key", "hr"), ("hr_key", "other"), ("HR_KEY", "sales")):
        with pytest.raises(InvalidInput, match=f"bundle {bundle} may not read {name}, which `secrets.allow`"):
            found.find(name, bundle)
    with pytest.raises(InvalidInput, match="may not read"):
        sources(environ, allow={}).find("hr_key", "hr")
    assert sources(environ).find("hr_key", "sales").value == "2", "nobody has limited it"


def test_a_scope_of_databricks_is_read_by_its_dbutils(monkeypatch: pytest.MonkeyPatch) -> None:
    held, given = {"api-key": "of the scope"}, []

    class DBUtils:
        """As that of Databricks, which runs nowhere else."""

        def __init__(self, spark: Any) -> None:
            given.append(spark)
            self.secrets = self

        def list(self, scope: str) -> list[Any]:
            if scope != "prod":
                raise RuntimeError(f"Scope {scope} does not exist, {VALUE}")
            return [types.SimpleNamespace(key=key) for key in held]

        def get(self, scope: str, key: str) -> str:
            return held[key]

    module = types.ModuleType("pyspark.dbutils")
    module.DBUtils = DBUtils  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "pyspark.dbutils", module)
    spark: Any = object()
    found = Secrets(SecretSettings(databricks="prod"), lambda: spark, {}).find("api-key", "b")
    assert (found.value, given) == ("of the scope", [spark])
    with pytest.raises(NoSecret, match=r"scope prod of Databricks$"):
        Secrets(SecretSettings(databricks="prod"), lambda: spark, {}).find("none", "b")
    with pytest.raises(NoSecret, match=r"can't be read: RuntimeError$"):
        Secrets(SecretSettings(databricks="test"), lambda: spark, {}).find("api-key", "b")


def test_no_text_of_one_shows_it() -> None:
    assert repr(FoundSecret(VALUE, "files")) == "FoundSecret(***, 'files')"


# -- what a try keeps -------------------------------------------------------------------------------------------------


def a_log() -> LogLines:
    return LogLines(a_launch(), SystemClock(), lambda: None)


@pytest.mark.parametrize("value", ["Qw8!zz", "7", "etl", "password", "/tmp", "two lines\nof a key"])
def test_a_log_masks_it_however_short_or_common_it_is(value: str) -> None:
    lines = a_log()
    lines.add("INFO", f"before ({value})")
    lines.add_secret(value)
    lines.add("INFO", f"({value}) and [{value!r}]")
    if "\n" in value:
        lines.add("INFO", value.splitlines()[0])
    assert not [line.message for line in lines.take() if value in line.message or value.splitlines()[0] in line.message]


def test_a_short_one_hides_no_parts_of_words() -> None:
    lines = a_log()
    lines.add_secret("etl")
    lines.add("INFO", "etl says: nettle, etl_1")
    assert lines.take()[0].message == "*** says: nettle, ***_1"


def test_what_stands_in_a_document_under_a_secret_name_is_masked_too() -> None:
    lines = a_log()
    lines.add_secret('{"user": "reporting", "password": "hunter2!", "port": 5432}')
    lines.add("INFO", "reporting connects with hunter2!")
    assert lines.take()[0].message == "reporting connects with ***"


def test_a_result_is_stored_without_it_and_says_so() -> None:
    lines = a_log()
    lines.add_secret(VALUE)
    ended = lines.without_secrets(Succeeded(f'{{"url": "x?{VALUE}", "token": "abc", "rows": 7}}'))
    assert isinstance(ended, Succeeded)
    assert ended.result_json == f'{{"url": "x?{MASK}", "token": "abc", "rows": 7}}', "anything else is stored as it is"
    assert ended.shown_json == f'{{"url": "x?{MASK}", "token": "{MASK}", "rows": 7}}'
    assert lines.take()[0].message == "its result holds the value of a secret, and is stored with *** in its place"
    table = lines.table_without_secrets(AccessedTable("read", None, f"s3://b/{VALUE}", columns_json=f'["{VALUE}"]'))
    assert (table.path, table.columns_json) == (f"s3://b/{MASK}", f'["{MASK}"]')


# -- from a task to the manager and back --------------------------------------------------------------------------------


@pytest.fixture
def runner(spark: Any, tmp_path: Path) -> Any:
    (tmp_path / "db-password").write_text(f"{VALUE}\n")
    recorder = EventRecorder()
    find = Secrets(SecretSettings(files=str(tmp_path), allow={"bundle": ["db-*"]}), lambda: spark, {}).find
    with an_executor(spark, recorder, find_secret=find) as executor:
        yield TaskRunner(spark, executor, recorder, [True], tmp_path)


def everything(runner: TaskRunner) -> str:
    """All that the executor reports, and that the manager could store."""
    return repr([event for event in runner.recorder.events if isinstance(event, TaskEnded | TaskLogged)])


def test_a_task_reads_it_and_nothing_of_its_try_holds_it(runner: TaskRunner) -> None:
    longer_than_a_line = MAX_CHARS

    def prints_and_fails(ctx: Any) -> None:
        value = ctx.secret("db-password")
        assert value == "Qw8!zz 'quoted' ü"
        print(f"printed {value}")
        os.write(2, f"written {value}\n".encode())
        ctx.log.info("logged %s and %r", value, {"to": value})
        middle = longer_than_a_line // 2
        ctx.log.info("%s%s%s", "x" * (middle - 45), value, "y" * middle)  # where a line that is too long is cut
        raise ValueError("z" * 485 + value + " was wrong")

    ended = runner.run(a_launch("fails"), prints_and_fails)
    assert isinstance(ended, Failed)
    said = everything(runner)
    for shown in ("printed ***", "written ***", "logged ***", "ctx.secret reads db-password from files in"):
        assert shown in said
    assert not any(part in said for part in (VALUE, "Qw8", "quoted"))

    def returns_and_skips(ctx: Any) -> Any:
        if ctx.params.get("skips"):
            ctx.skip(f"not with {ctx.secret('db-password')}")
        return [ctx.secret("db-password"), 7]

    assert runner.run(a_launch("returns"), returns_and_skips) == Succeeded('["***", 7]')
    assert runner.run(a_launch("skips", params={"skips": True}), returns_and_skips) == Skipped("not with ***")
    assert not any(part in everything(runner) for part in (VALUE, "Qw8", "quoted"))


def test_one_that_may_not_be_read_or_is_not_there_fails_the_task_with_one_clear_line(runner: TaskRunner) -> None:
    def reads(ctx: Any) -> None:
        ctx.secret(ctx.params["name"])

    failed = runner.run(a_launch("none", params={"name": "db-none"}), reads)
    assert isinstance(failed, Failed)
    assert failed.retryable, "it may be mounted later"
    assert failed.error.startswith(
        "db-none is not among the secrets; looked in the environment (BFM_SECRET_...); files in"
    )
    failed = runner.run(a_launch("other", params={"name": "other"}), reads)
    assert failed == Failed(
        "bundle bundle may not read other, which `secrets.allow` of the configuration does not name for it",
        retryable=False,
    )
    failed = runner.run(a_launch("path", params={"name": "../db-password"}), reads)
    assert isinstance(failed, Failed)
    assert failed.error.startswith("a secret's name has letters")


def test_processes_with_code_of_a_bundle_do_not_have_the_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    from backfill_manager.processes.interpreter import environment_for

    monkeypatch.setenv("BFM_SECRET_DB_PASSWORD", VALUE)
    monkeypatch.setenv("BFM_OTHER", "1")
    monkeypatch.setenv("BFM_API__SESSION_SECRET", VALUE)
    assert VALUE not in environment_for(None).values()
    assert environment_for(None)["BFM_OTHER"] == "1"
