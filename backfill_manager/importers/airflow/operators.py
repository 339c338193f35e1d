"""What operators of Airflow become: the body of a Python task, or a SQL statement. One that is not in `READERS` has no equal."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from backfill_manager.dags.definition import VALUES_OF_CONDITIONS, has_macros, problem_of_condition
from backfill_manager.importers.airflow import templates
from backfill_manager.importers.airflow.callables import call_of
from backfill_manager.importers.airflow.expressions import at_runtime
from backfill_manager.importers.airflow.settings import COMMON
from backfill_manager.importers.airflow.walk import Walk
from backfill_manager.importers.source import names_in
from backfill_manager.importers.writer import call, keywords, quoted, unparse
from backfill_manager.store.sql_guard import named_parameters, problem_of_statements

Arguments = Mapping[str, ast.expr]
EXIT_CODE_OF_A_SKIP: Final = 99
UNTRANSLATED: Final = "a template of Airflow: write it as its TODO says, and remove this line"


@dataclass
class Made:
    """A task to be written. `sql`: text of Python with the statement, in place of a `body`. `known`: arguments that were read."""

    body: str = ""
    sql: str | None = None
    settings: dict[str, str] = field(default_factory=dict)
    known: frozenset[str] = frozenset()
    is_branch: bool = False
    skips_all: bool = False  # what comes after it, whatever its trigger rule
    is_missing: bool = False  # nothing here does it
    with_result: str = ""  # the body if another task takes the result: a command's last line, a condition
    over: str = ""  # the variable of the task over whose result it is mapped


Reader = Callable[[Walk, ast.Call, Arguments], Made]


def missing(walk: Walk, node: ast.Call, name: str, instead: str, known: frozenset[str] = frozenset()) -> Made:
    walk.remark(node, f"{name} has no equal", instead)
    known -= COMMON
    was = "".join(f"# {line}\n" for line in unparse(node).splitlines())
    return Made(
        f"{was}raise NotImplementedError({quoted(f'{name} of Airflow: write here what it did')})",
        known=known,
        is_missing=True,
    )


def short_circuit(called: str, given: Arguments, known: frozenset[str] = frozenset()) -> Made:
    """A task that is skipped where its condition does not hold. As in Airflow, its result is the condition."""
    respects = given.get("ignore_downstream_trigger_rules")
    skip = 'ctx.skip("its condition does not hold")'
    return Made(
        f"if not {called}:\n    {skip}",
        known=known,
        skips_all=not (isinstance(respects, ast.Constant) and respects.value is False),
        with_result=f"condition = {called}\nif not condition:\n    {skip}\nreturn condition",
    )


def returned_branch(called: str) -> str:
    return f"chosen = {called}\nreturn [chosen] if isinstance(chosen, str) else list(chosen or [])"


def _python(walk: Walk, node: ast.Call, given: Arguments) -> Made:
    known = frozenset({
        "python_callable", "op_args", "op_kwargs", "templates_dict", "requirements", "system_site_packages", "python",
        "python_version", "use_dill", "expect_airflow", "string_args", "serializer", "venv_cache_path",
    })  # fmt: skip
    name = unparse(node.func).rpartition(".")[2]
    if "python_callable" not in given:
        return missing(walk, node, name, "Write the function here", known)
    if "Virtualenv" in name or "External" in name:
        walk.remark(node, name, "Packages of tasks are installed for their bundle: environment in docs/bundles.md")
    called = call_of(walk, given["python_callable"], given)
    if name.startswith("Branch"):
        return Made(returned_branch(called), known=known, is_branch=True)
    if name.startswith("ShortCircuit"):
        return short_circuit(called, given, known | {"ignore_downstream_trigger_rules"})
    return Made(f"return {called}", known=known)


def shell(command: str, options: Mapping[str, str], skips: str = "", *, keeps_output: bool = False) -> str:
    """`skips`: text of Python, the exit code or codes with which the command skips its task."""
    arguments = [f'["bash", "-c", {command}]', *keywords(options), *([] if skips else ["check=True"])]
    if keeps_output:
        arguments += ["stdout=subprocess.PIPE", "text=True"]
    run = call("subprocess.run", arguments)
    lines = [f"done = {run}" if skips or keeps_output else run]
    if keeps_output:
        lines.append("print(done.stdout)")
    if skips:
        is_one = skips.isdecimal()
        reason = f'"exit code {skips}"' if is_one else 'f"exit code {done.returncode}"'
        lines.append(f"if done.returncode {'==' if is_one else 'in'} {skips}:\n    ctx.skip({reason})")
        lines.append("done.check_returncode()")
    if keeps_output:
        lines.append('return (done.stdout.splitlines() or [""])[-1]')
    return "\n".join(lines)


def _skip_codes(walk: Walk, given: Arguments, text: str) -> str:
    match given.get("skip_on_exit_code", ast.Constant(EXIT_CODE_OF_A_SKIP)):
        case ast.Constant(value=None):
            return ""
        case ast.Constant(value=int() as code) if code != EXIT_CODE_OF_A_SKIP:
            return str(code)
        case ast.Constant(value=int()):  # also Airflow's default, which is taken only where the command has it
            is_meant = "skip_on_exit_code" in given or f"exit {EXIT_CODE_OF_A_SKIP}" in text
            return str(EXIT_CODE_OF_A_SKIP) if is_meant else ""
        case ast.List() | ast.Tuple() | ast.Set() as codes:
            return unparse(codes)
        case other:
            walk.remark(other, f"skip_on_exit_code={unparse(other)[:60]}", "Call ctx.skip(...) for that exit code")
            return ""


def _bash(walk: Walk, node: ast.Call, given: Arguments) -> Made:
    known = frozenset(
        {"bash_command", "env", "append_env", "cwd", "output_encoding", "skip_on_exit_code", "output_processor"}
    )
    if "bash_command" not in given:
        return missing(walk, node, "BashOperator", "Write the command here", known)
    text = walk.text_of(given["bash_command"]) or ""
    command = at_runtime(walk, given["bash_command"], shell=True)
    if text.rstrip().endswith((".sh", ".bash")) and "\n" not in text.strip():
        instead = "Airflow renders it as a template; here it is run as it is, from the manager's folder"
        walk.remark(node, f"the script {text.strip()}", instead)
    options = {}
    if "env" in given:
        env = at_runtime(walk, given["env"])
        options["env"] = f"{{**os.environ, **{env}}}"
        if not isinstance(given.get("append_env"), ast.Constant) or not given["append_env"].value:  # type: ignore[attr-defined]
            walk.remark(node, "env= replaces the environment in Airflow", "Here it is added to the manager's")
    if "cwd" in given:
        options["cwd"] = at_runtime(walk, given["cwd"])
    skips = _skip_codes(walk, given, text)
    return Made(
        shell(command, options, skips), known=known, with_result=shell(command, options, skips, keeps_output=True)
    )


def _marker(walk: Walk, node: ast.Call, given: Arguments) -> Made:
    instead = "A clear stays in its DAG; `bfm backfill create --downstream` runs what reads its tables"
    walk.remark(node, "ExternalTaskMarker", instead)
    return Made("pass", known=frozenset(given) - COMMON)


_LATE: Final = "datetime.now(timezone.utc) >= ctx.interval.end + (ctx.interval.end - ctx.interval.start)"
_LATEST_ONLY: Final = Made(f'if ctx.run_type != "manual" and {_LATE}:\n    ctx.skip("not the latest interval")')
_OF_SQL: Final = (
    "conn_id", "database", "parameters", "autocommit", "split_statements", "return_last", "handler", "show_return_value_in_logs",
    "hook_params", "warehouse", "role", "schema", "use_legacy_sql", "location", "name", "http_path", "session_parameters",
)  # fmt: skip
_OF_SPARK_SQL: Final = (
    "conf", "master", "num_executors", "executor_cores", "total_executor_cores", "executor_memory", "keytab", "principal",
    "yarn_queue",
)  # fmt: skip


def _sql(*arguments: str) -> Reader:
    """Of an operator whose first argument of these that is given has the statement."""

    def read(walk: Walk, node: ast.Call, given: Arguments) -> Made:
        known = frozenset(
            {*arguments, *_OF_SQL, *_OF_SPARK_SQL, *(name for name in given if name.endswith("_conn_id"))}
        )
        name = unparse(node.func).rpartition(".")[2]
        statement = next((given[one] for one in arguments if one in given), None)
        if isinstance(settings := walk.reader.constant(statement), ast.Dict):  # BigQuery's configuration
            statement = _nested(settings, "query", "query")
            job = _nested(settings, "query")
            for key, value in zip(getattr(job, "keys", []), getattr(job, "values", []), strict=True):
                if walk.text_of(key) not in ("query", "useLegacySql", "priority"):
                    what = f"{unparse(key) if key else '**'} of the configuration"
                    walk.remark(value, what, "sql(task_id, text, into=table) writes the rows of a query into a table")
        parts = statement.elts if isinstance(statement, ast.List | ast.Tuple) else [statement]
        values: list[ast.expr] = []
        texts = [_statement(walk, part, values) for part in parts]
        if statement is None or any(text is None for text in texts):
            return missing(walk, node, name, "Write its statement as sql(task_id, text)", known)
        if not name.startswith("SparkSql"):
            instead = "It runs in Spark, not in the database of its connection: check tables and dialect"
            walk.remark(node, f"{name} becomes Spark SQL", instead)
        for one in (one for one in _OF_SPARK_SQL if one in given):
            walk.remark(given[one], f"{one}= of {name}", "A SQL task runs in the Spark session of the manager")
        if "parameters" in given:
            walk.remark(node, "parameters= of a statement", "Params of the DAG are named parameters here: `:name`")
        written = []
        for text in (text.strip() for text in texts if text):
            if text.endswith((".sql", ".hql")) and len(text.split()) == 1:
                what = f"the file {_written(text, values)}"
                if (content := walk.read(text)) is None:
                    instead = (
                        "Put it beside the DAG file, with its Jinja as macros (docs/authoring.md): sql(task_id, file)"
                    )
                    walk.remark(node, what, instead)
                    return missing(walk, node, name, "Write its statement as sql(task_id, text)", known)
                walk.remark(node, what, "Its statements are in the draft, with Jinja as named parameters")
                text = content.strip()
            translated = walk.translated(node, text.rstrip(";"), templates.as_sql)
            if "endraw" in translated:
                return missing(walk, node, name, "Write its statement as sql(task_id, text)", known)
            written.append(f"{{% raw %}}{translated}{{% endraw %}}" if has_macros(translated) else translated)
        statement_text = ";\n".join(written)
        params = walk.dag.params if walk.dag is not None else walk.facts.dag_params
        plain = _VALUE.sub("x", statement_text)
        unknown = named_parameters(plain, (*params, *VALUES_OF_CONDITIONS, "run_id"))
        if (problem := problem_of_statements(plain, has_output=False)) or unknown:
            why = (
                f"the text is refused: {problem}" if problem else f"declare {', '.join(unknown)} in params= of the DAG"
            )
            return missing(walk, node, name, f"Write its statement as sql(task_id, text): {why}", known)
        if walk.untranslated:  # as a text it would be part of the data; this is no SQL, so that no retry follows
            statement_text = f"`{UNTRANSLATED}`;\n{statement_text}"
        return Made(sql=_written(statement_text, values), known=known)

    return read


_VALUE: Final = re.compile("\ue100(\\d+)\ue101")


def _statement(walk: Walk, node: ast.expr | None, values: list[ast.expr]) -> str | None:
    """Its text. What an f-string puts into it when the file is read is added to the `values`, with a mark in the text."""
    node = walk.reader.inlined(node) if node is not None else None
    if not isinstance(node, ast.JoinedStr):
        return walk.text_of(node)
    if not walk.reader.is_plain(node) or any(walk.known.get(name) is not None for name in names_in(node)):
        return None
    text = ""
    for part in templates.flat(node):
        if isinstance(part, ast.Constant):
            text += str(part.value)
        else:
            text += f"\ue100{len(values)}\ue101"
            values.append(part)
    return None if re.search("{[{%][^}]*\ue100", text) else text  # of a template that a value completes


def _written(text: str, values: Sequence[ast.expr]) -> str:
    """Text of Python for a text with marks."""
    if not _VALUE.search(text):
        return quoted(text)
    parts = [values[int(part)] if n % 2 else ast.Constant(part) for n, part in enumerate(_VALUE.split(text))]
    return templates.f_string(parts)


def _nested(node: ast.Dict, *path: str) -> ast.expr | None:
    found: ast.expr | None = node
    for name in path:
        if not isinstance(found, ast.Dict):
            return None
        pairs = zip(found.keys, found.values, strict=True)
        found = next((value for key, value in pairs if isinstance(key, ast.Constant) and key.value == name), None)
    return found


def _spark_submit(walk: Walk, node: ast.Call, given: Arguments) -> Made:
    options = {
        "conf": None, "name": "--name", "java_class": "--class", "py_files": "--py-files", "jars": "--jars", "files": "--files",
        "packages": "--packages", "driver_memory": "--driver-memory", "executor_memory": "--executor-memory",
        "executor_cores": "--executor-cores", "num_executors": "--num-executors",
        "total_executor_cores": "--total-executor-cores",
        "deploy_mode": "--deploy-mode", "properties_file": "--properties-file", "archives": "--archives",
        "proxy_user": "--proxy-user", "principal": "--principal", "keytab": "--keytab", "yarn_queue": "--queue",
        "exclude_packages": "--exclude-packages", "repositories": "--repositories", "driver_class_path": "--driver-class-path",
    }  # fmt: skip
    known = frozenset({
        *options, "application", "application_args", "conn_id", "verbose", "spark_binary", "env_vars", "status_poll_interval",
    })  # fmt: skip
    if "application" not in given:
        return missing(walk, node, "SparkSubmitOperator", "Write the command here", known)
    words = [_as_word(walk, given["spark_binary"]) if "spark_binary" in given else '"spark-submit"']
    for name, spelling in options.items():
        if name not in given:
            continue
        if spelling:
            words += [quoted(spelling), _as_word(walk, given[name])]
        elif isinstance(conf := walk.reader.inlined(given[name]), ast.Dict) and all(conf.keys):
            for key, value in zip(conf.keys, conf.values, strict=True):
                setting = ast.JoinedStr([*_in_f_string(walk, key), ast.Constant("="), *_in_f_string(walk, value)])  # type: ignore[arg-type]
                texts = [str(one.value) for one in setting.values if isinstance(one, ast.Constant)]
                words += ['"--conf"', quoted("".join(texts)) if len(texts) == len(setting.values) else unparse(setting)]
        else:
            each = f"for key, value in {at_runtime(walk, conf)}.items() for word in ('--conf', f'{{key}}={{value}}')"
            words.append(f"*[word {each}]")
    words.append(at_runtime(walk, given["application"]))
    if "application_args" in given:
        arguments = walk.reader.inlined(given["application_args"])
        words += (
            [_as_word(walk, one) for one in arguments.elts]
            if isinstance(arguments, ast.List)
            else [f"*{at_runtime(walk, arguments)}"]
        )
    instead = (
        "It runs as before, as an application of its own; in a task with ctx.spark its code shares the manager's Spark"
    )
    walk.remark(node, "SparkSubmitOperator: master and connection are not known here", instead)
    env = [f"env={{**os.environ, **{at_runtime(walk, given['env_vars'])}}}"] if "env_vars" in given else []
    return Made(
        call("subprocess.run", [call("", words).replace("(", "[", 1)[:-1] + "]", *env, "check=True"]), known=known
    )


def _in_f_string(walk: Walk, node: ast.expr) -> list[ast.expr]:
    written = ast.parse(at_runtime(walk, node), mode="eval").body
    return [
        ast.Constant(str(written.value)) if isinstance(written, ast.Constant) else ast.FormattedValue(written, -1, None)
    ]


def _as_word(walk: Walk, node: ast.expr) -> str:
    """Of a command without a shell, where a number is an error."""
    text = at_runtime(walk, node)
    is_text = isinstance(written := ast.parse(text, mode="eval").body, ast.JoinedStr) or (
        isinstance(written, ast.Constant) and isinstance(written.value, str)
    )
    return text if is_text else f"str({text})"


def _file_sensor(*arguments: str, scheme: str = "") -> Reader:
    def read(walk: Walk, node: ast.Call, given: Arguments) -> Made:
        known = frozenset({*arguments, *_OF_SENSORS, *_OF_FILE_SENSORS})
        name = unparse(node.func).rpartition(".")[2]
        texts = [walk.text_of(given[one]) for one in arguments if one in given]
        whole = "/".join(text for text in texts if text)
        path, problems = templates.as_path(whole)
        path = f"{scheme}{path}" if scheme and "://" not in path else path
        if (
            problems
            or None in texts
            or not path.startswith(("/", "s3://", "gs://", "abfss://", "hdfs://"))
            or "*" in path
        ):
            return missing(walk, node, name, "waits_for=[file('s3://.../{interval_start:%Y-%m-%d}/_SUCCESS')]", known)
        if walk.dag is not None and "timezone" in walk.dag.settings and templates.has_template(whole):
            walk.remark(node, "a date in the path", "It is in the time zone of the DAG here, in Airflow in UTC")
        return Made("pass", settings={"waits_for": f"[file({quoted(path)})]", **_sensor_settings(given)}, known=known)

    return read


def _sql_sensor(walk: Walk, node: ast.Call, given: Arguments) -> Made:
    known = frozenset(
        {"sql", "conn_id", "success", "failure", "fail_on_empty", "parameters", "hook_params", *_OF_SENSORS}
    )
    text = walk.text_of(given.get("sql")) or ""
    query, problems = templates.as_sql(text)
    is_more = given.keys() & {"success", "failure", "fail_on_empty", "parameters"}
    if problems or is_more or problem_of_condition(query):  # also for a file, and no text at all
        return missing(walk, node, "SqlSensor", 'waits_for=[condition("SELECT count(*) > 0 FROM ...")]', known)
    instead = "It must give true or false, from tables that Spark sees"
    walk.remark(node, "SqlSensor becomes a condition in Spark SQL", instead)
    return Made("pass", settings={"waits_for": f"[condition({quoted(query)})]", **_sensor_settings(given)}, known=known)


_OF_SENSORS: Final = (
    "timeout", "soft_fail", "poke_interval", "mode", "deferrable", "exponential_backoff", "max_wait", "silent_fail", "never_fail",
)  # fmt: skip


_OF_FILE_SENSORS: Final = (
    "fs_conn_id", "aws_conn_id", "google_cloud_conn_id", "recursive", "verify", "wildcard_match",
)  # fmt: skip


def _sensor_settings(given: Arguments) -> dict[str, str]:
    settings = {"wait_limit": unparse(given["timeout"]) if "timeout" in given else "604800"}
    soft = given.get("soft_fail")
    return settings | ({"after_wait_limit": '"skip"'} if isinstance(soft, ast.Constant) and soft.value else {})


def _missing(instead: str, *known: str) -> Reader:
    def read(walk: Walk, node: ast.Call, given: Arguments) -> Made:
        name = unparse(node.func).rpartition(".")[2]
        return missing(walk, node, name, instead, frozenset(known) or frozenset(given))

    return read


_WAIT: Final = "Write on the task that comes after it what it waits for: "
_OTHER_DAG: Final = _WAIT + 'waits_for=["a table that the other DAG writes"], with wait_limit='
READERS: Final[Mapping[str, Reader]] = {
    **dict.fromkeys(
        ("PythonOperator", "BranchPythonOperator", "ShortCircuitOperator", "PythonVirtualenvOperator", "ExternalPythonOperator",
         "BranchPythonVirtualenvOperator", "BranchExternalPythonOperator"),
        _python,
    ),
    "BashOperator": _bash,
    **dict.fromkeys(("EmptyOperator", "DummyOperator"), lambda *_: Made("pass")),
    "LatestOnlyOperator": lambda *_: replace(_LATEST_ONLY),
    **dict.fromkeys(
        ("SparkSqlOperator", "SQLExecuteQueryOperator", "PostgresOperator", "MySqlOperator", "SqliteOperator", "MsSqlOperator",
         "OracleOperator", "SnowflakeOperator", "SnowflakeSqlApiOperator", "RedshiftSQLOperator", "RedshiftDataOperator",
         "TrinoOperator",
         "PrestoOperator", "VerticaOperator", "JdbcOperator", "ExasolOperator", "TeradataOperator", "DatabricksSqlOperator",
         "ClickHouseOperator", "DuckDBOperator"),
        _sql("sql", "_sql"),
    ),
    "HiveOperator": _sql("hql"),
    "AthenaOperator": _sql("query"),
    "BigQueryInsertJobOperator": _sql("configuration"),
    "BigQueryExecuteQueryOperator": _sql("sql"),
    "SparkSubmitOperator": _spark_submit,
    "FileSensor": _file_sensor("filepath"),
    "S3KeySensor": _file_sensor("bucket_name", "bucket_key", scheme="s3://"),
    "GCSObjectExistenceSensor": _file_sensor("bucket", "object", scheme="gs://"),
    "SqlSensor": _sql_sensor,
    "ExternalTaskSensor": _missing(_OTHER_DAG),
    "ExternalTaskMarker": _marker,
    "PythonSensor": _missing(_WAIT + "waits_for=[rows(...)], [file(...)] or [condition(...)]"),
    "BashSensor": _missing(_WAIT + "waits_for=[rows(...)], [file(...)] or [condition(...)]"),
    **dict.fromkeys(
        ("TimeSensor", "TimeSensorAsync", "TimeDeltaSensor", "TimeDeltaSensorAsync", "DateTimeSensor", "DateTimeSensorAsync",
         "DayOfWeekSensor", "WaitSensor"),
        _missing("Give the DAG a schedule that is so much later, or waits_for= what it really waits for"),
    ),
    **dict.fromkeys(
        ("BranchDateTimeOperator", "BranchDayOfWeekOperator", "BranchSQLOperator"),
        _missing("A task that skips itself: `if ...: ctx.skip(reason)` by ctx.logical_date"),
    ),
    "TriggerDagRunOperator": _missing(
        "The other DAG waits for a table of this one: waits_for=[table]; or use the Python client"
    ),
    "EmailOperator": _missing("Send it with smtplib, or from on_failure= and on_success= (docs/callbacks.md)"),
    **dict.fromkeys(("SimpleHttpOperator", "HttpOperator"), _missing("Call the service in a task, by a library such as httpx")),
    **dict.fromkeys(
        ("DockerOperator", "KubernetesPodOperator"), _missing("subprocess.run([...]) of docker or kubectl; or its code as a task")
    ),
    "SubDagOperator": _missing("Write its tasks into this DAG"),
}  # fmt: skip
