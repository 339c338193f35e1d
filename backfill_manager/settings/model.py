"""The settings of a manager, and the rules of a bundle, as pydantic models."""

from __future__ import annotations

import ipaddress
import os
import re
from collections.abc import Callable
from datetime import date, datetime, time, timedelta
from typing import Annotated, Any, Final, Literal, TypeVar
from urllib.parse import quote, urlsplit

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    SecretStr,
    WrapValidator,
    model_validator,
)

from backfill_manager.clock import DATE_FORM, INSTANT_FORM, UTC
from backfill_manager.masking import mask_settings, mask_text, without_credentials
from backfill_manager.value_rules import (
    MAX_MEMORY_MB,
    MAX_NICE,
    MIN_MEMORY_MB,
    check_name,
    read_duration,
    read_memory,
    read_number,
)

SECRET_PREFIX: Final = "BFM_SECRET_"  # of variables that no process with code of a bundle is given
PARSERS: Final = ("standard", "single_pass", "event")
PARSER_GROUP: Final = "backfill_manager.bundle_parsers"  # entry points of installed packages
GIT_TRANSPORTS: Final = ("https", "http", "ssh", "git", "file")
_TEN_YEARS_S: Final = 315_360_000  # what waits for longer, waits for ever; clocks would overflow
_Item = TypeVar("_Item")


def _spark_text(value: Any) -> Any:
    """Spark takes text; YAML gives `false` and `200`. Written as Spark spells it."""
    if isinstance(value, bool):
        return str(value).lower()
    return str(value) if isinstance(value, int | float) else value


def _at_least(seconds: int, rule: str) -> WrapValidator:
    def check(value: Any, read: Callable[[Any], float]) -> float:
        number = read(value)
        if number < seconds:
            raise ValueError(f"must be {rule}, not {repr(value) if isinstance(value, str) else f'{value:g} seconds'}")
        return number

    return WrapValidator(check)


def _matching(pattern: str, rule: str, *, secret: bool = False) -> AfterValidator:
    def check(value: str) -> str:
        if not re.fullmatch(pattern, value, re.DOTALL):
            raise ValueError(f"must be {rule}" if secret else f"must be {rule}, not {value!r}")
        return value

    return AfterValidator(check)


def _unique(key: str) -> AfterValidator:
    def check(items: list[_Item]) -> list[_Item]:
        values = [getattr(item, key) for item in items]
        duplicates = sorted({value for value in values if values.count(value) > 1})
        if duplicates:
            raise ValueError(f"each {key} once; twice here: {', '.join(duplicates)}")
        return items

    return AfterValidator(check)


def _path_inside_bundle(path: str) -> str:
    """`/glacier/`, as AIP-85 writes it, is `glacier`."""
    parts = [part for part in path.split("/") if part not in ("", ".")]
    if not parts or ".." in parts:
        raise ValueError(f"must be a folder inside the bundle such as `reports/daily`, not {path!r}")
    return "/".join(parts)


def _end_of_validity(value: Any) -> Any:
    """A date is its whole day; without an offset the time is UTC's."""
    problem = f"must be a date ({DATE_FORM}) or an instant ({INSTANT_FORM}), not {value!r}"
    try:
        if isinstance(value, str):
            is_date = re.fullmatch(r"\d{4}-\d\d-\d\d", value, re.ASCII)
            value = datetime.fromisoformat(value.replace("Z", "+00:00")) + timedelta(days=1 if is_date else 0)
        elif isinstance(value, date) and not isinstance(value, datetime):  # as YAML reads it
            value = datetime.combine(value, time()) + timedelta(days=1)
        if isinstance(value, datetime):
            return value.replace(tzinfo=value.tzinfo or UTC).astimezone(UTC)
    except (ValueError, OverflowError):
        pass
    raise ValueError(problem)


def _requirements(value: Any) -> Any:
    """A file of the bundle, or requirements as they are written in such a file, one in each entry."""
    if isinstance(value, str) and value.endswith(".txt") and not value.startswith("/") and ".." not in value.split("/"):
        return value
    if isinstance(value, list) and value and all(isinstance(line, str) and _is_one_line(line) for line in value):
        return value
    raise ValueError(
        "must be a file of the bundle such as `requirements.txt`, or a list of requirements such as [pandera==0.29], "
        f"not {mask_text(repr(value))}"
    )


def _is_one_line(text: str) -> bool:
    return bool(text.strip()) and len(text.splitlines()) == 1


def _git_url(url: str) -> str:
    """The error leaves the value out: there may be a password in it."""
    transport, has_transport, rest = url.partition("://")
    runs_a_program = url.startswith("-") or "::" in url.partition("/")[0]  # an option; `ext::command`
    unknown = bool(has_transport) and (transport not in GIT_TRANSPORTS or not rest or rest.startswith("-"))
    if runs_a_program or unknown or re.search(r"[\x00-\x1f]", url):
        known = ", ".join(f"{name}://" for name in GIT_TRANSPORTS)
        raise ValueError(f"must be a git repository: {known}, user@host:path or a local path")
    return url


def _git_ref(ref: str) -> str:
    if re.search(r"[\x00-\x20\x7f~^:?*\[\\]|\.\.|@\{|^[-+/]|[/.]$", ref):
        raise ValueError(f"must be a branch, a tag or a commit, not {ref!r}")
    return ref


def _without_password(place: str) -> str:
    """No storage reads one there, and each error about the place would show it."""
    if re.match(r"[A-Za-z][A-Za-z0-9+.-]*://[^/\s]*:[^/\s]*@", place):
        raise ValueError("must not hold a password: give credentials by the environment, or by a role of the machine")
    return place


def _pool_name(name: str) -> str:
    if name == "control":
        raise ValueError("must be another name: `control` is the pool that plans")
    return name


def unknown_parser(name: str, *, misspelt: bool = False) -> str | None:
    """The complaint about a parser that is not known here, if it is not. `misspelt`: only if it is nearly a known one."""
    if name in PARSERS:
        return None
    from difflib import get_close_matches
    from importlib.metadata import entry_points  # reads every installed package's files

    known = [*PARSERS, *sorted({point.name for point in entry_points(group=PARSER_GROUP)})]
    near = get_close_matches(name, known, n=1, cutoff=0.8)
    if name in known or (misspelt and not near):
        return None
    *others, last = map(repr, known)
    hint = f"; did you mean {near[0]!r}?" if near else "; is its package installed where the manager runs?"
    return f"must be {', '.join(others)} or {last}, not {name!r}{hint}"


def _parser_name(name: str) -> str:
    """A parser that is not installed at all is an error of its bundle alone: the manager goes on with the others."""
    if complaint := unknown_parser(name, misspelt=True):
        raise ValueError(complaint)
    return name


Int = Annotated[int, BeforeValidator(read_number)]
Positive = Annotated[Int, Field(gt=0)]
NotNegative = Annotated[Int, Field(ge=0)]
Seconds = Annotated[float, BeforeValidator(read_duration), Field(gt=0, le=_TEN_YEARS_S, allow_inf_nan=False)]
Timeout = Annotated[Seconds, Field(le=3600)]
ParseInterval = Annotated[Seconds, _at_least(1, "1 second or more")]
Age = Annotated[Seconds, _at_least(3600, "1 hour or more, such as `90 days`")]
Name = Annotated[str, AfterValidator(check_name)]
Memory = Annotated[int, BeforeValidator(read_memory), Field(ge=MIN_MEMORY_MB, le=MAX_MEMORY_MB)]
NonEmpty = Annotated[str, _matching(r".*\S.*", "some text")]
Place = Annotated[NonEmpty, AfterValidator(os.path.expanduser)]  # `~` is the home of who reads it
StateRoot = Annotated[NonEmpty, AfterValidator(_without_password)]
Warehouse = Annotated[Place, AfterValidator(_without_password)]
GitUrl = Annotated[Place, AfterValidator(_git_url)]
Requirements = Annotated[str | list[str], BeforeValidator(_requirements)]
Expiry = Annotated[datetime, BeforeValidator(_end_of_validity)]
Nice = Annotated[Int, Field(ge=0, le=MAX_NICE)]
SessionSecret = Annotated[str, _matching(r"\S{32,}", "32 or more characters without spaces", secret=True)]
_ADDRESS: Final = r"https?://[^\s/]+(/[^\s]*)?"
PublicUrl = Annotated[str, _matching(_ADDRESS, "an address such as https://backfills.example.com")]
Collector = Annotated[
    str,
    _matching(
        rf"{_ADDRESS}(?<!/v1/traces)(?<!/v1/traces/)", "an address such as http://localhost:4318, without /v1/traces",
        secret=True,
    ),
]  # fmt: skip
_VARIABLE_BEGINS: Final = "the beginning of a variable's name such as `BFM_SECRET_`"
VariablePrefix = Annotated[str, _matching(r"[A-Za-z_][A-Za-z0-9_]*", _VARIABLE_BEGINS)]
Events = Annotated[list[Literal["failed", "late", "deadlocked", "done"]], Field(min_length=1)]
Grouping = Annotated[float, BeforeValidator(read_duration), Field(ge=0, le=86_400, allow_inf_nan=False)]


def _field(default: Any, description: str) -> Any:
    """A setting; `...` as the default of one that must be set."""
    return Field(default, description=description)


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)


class DirectorySettings(_Section):
    """A folder of a bundle that has its own scan and parse intervals."""

    path: Annotated[str, AfterValidator(_path_inside_bundle)] = _field(..., "Path of the folder within the bundle.")
    scan_interval: Seconds | None = _field(
        None, "Time between two scans for changes. null: the bundle's `fetch_interval`."
    )
    min_file_parse_interval: Seconds | None = _field(
        None, "Minimum time between two parses of a file, even if it changes more often. null: no minimum."
    )
    max_file_parse_interval: ParseInterval | None = _field(
        None, "Maximum time between two parses of a file, changed or not. null: the bundle's `max_file_parse_interval`."
    )

    @model_validator(mode="after")
    def _check_intervals(self) -> DirectorySettings:
        self.check_order(self.max_file_parse_interval)
        return self

    def check_order(self, maximum: float | None) -> None:
        minimum = self.min_file_parse_interval
        if minimum is not None and maximum is not None and minimum > maximum:
            raise ValueError(
                f"must let {self.path!r} have a max_file_parse_interval that is no shorter than its "
                f"min_file_parse_interval, not {maximum:g} and {minimum:g} seconds"
            )


class _Origin(_Section):
    name: Name = _field(..., "Name of the bundle.")
    path: Place = _field(".", "Path of a folder, a .zip or a .whl. With `git`: the folder within the repository.")
    git: GitUrl | None = _field(None, "URL of a git repository.")
    ref: Annotated[NonEmpty, AfterValidator(_git_ref)] = _field("HEAD", "Branch, tag or commit of the git repository.")


class _Environment(_Section):
    """Not for the bundle's own manifest: what is installed and executed on the manager's machine is the operator's decision."""

    python: Place | None = _field(
        None,
        "Python interpreter that parses the bundle's files and runs its tasks. It needs this package and the "
        "same PySpark version. Not together with `requirements`. null: the manager's interpreter.",
    )
    requirements: Requirements | None = _field(
        None,
        "Packages that the bundle needs: a .txt file of the bundle, or a list of requirements. They are "
        "installed in an environment created for them. Not together with `python`.",
    )


class BundleRules(_Section):
    """How a bundle's files are parsed: its own `manifest.yaml` may set these as well."""

    parser: Annotated[Name, AfterValidator(_parser_name)] = _field(
        "standard",
        "Parser of the bundle's files: `standard`, `single_pass`, `event`, or the name of a parser from an "
        "installed package.",
    )
    fetch_interval: Seconds = _field(30.0, "Time between two scans for changes.")
    max_file_parse_interval: ParseInterval | None = _field(
        None, "Maximum time between two parses of a file, changed or not. null: no maximum."
    )
    import_timeout: Annotated[Seconds, Field(le=86_400)] = _field(30.0, "Maximum time to import one file.")
    import_memory: Annotated[Int, Field(ge=16, le=1 << 20)] = _field(1024, "Maximum memory to import one file, in MB.")
    keep_last_good: bool = _field(
        True, "Keep the DAGs of a file's last good version if the file can no longer be imported."
    )
    directories: Annotated[list[DirectorySettings], _unique("path")] = _field(
        [], "Folders of the bundle that have their own intervals."
    )
    options: dict[str, Any] = _field({}, "Options of a parser from an installed package. That parser validates them.")

    @model_validator(mode="after")
    def _check_parser(self) -> BundleRules:
        for directory in self.directories:
            directory.check_order(directory.max_file_parse_interval or self.max_file_parse_interval)
        if "parser" in self.model_fields_set and self.parser in PARSERS and self.options:
            raise ValueError(f"must leave out options: the parser {self.parser!r} has none")
        is_timed = self.max_file_parse_interval or any(one.max_file_parse_interval for one in self.directories)
        if self.parser in ("single_pass", "event") and is_timed:
            raise ValueError(
                f"must leave out max_file_parse_interval: the parser {self.parser!r} reads no file a second time by itself"
            )
        return self

    def shown(self) -> dict[str, Any]:
        """These rules as JSON values, for people: options that are named like secrets are masked."""
        plain = self.model_dump(mode="json", include=set(BundleRules.model_fields))
        return {**plain, "options": mask_settings(plain["options"])}


class BundleSettings(BundleRules, _Environment, _Origin):  # in this order its origin is printed first
    """A source of DAG files, and how the files are parsed."""

    @model_validator(mode="after")
    def _check_origin(self) -> BundleSettings:
        if self.git is None and "path" not in self.model_fields_set:
            raise ValueError("must have a path: a folder, a .zip or a .whl")
        if self.git is None and "ref" in self.model_fields_set:
            raise ValueError("must have the repository's address as `git` when it has a ref")
        if self.git is not None and (self.path.startswith("/") or ".." in self.path.split("/")):
            raise ValueError(f"must have as path a folder inside the repository such as `dags`, not {self.path!r}")
        if self.python is not None and self.requirements is not None:
            raise ValueError("must have python or requirements, not both: an interpreter has its packages already")
        return self

    @property
    def place(self) -> str:
        """Where it comes from, for people."""
        if self.git is None:
            return self.path
        return f"{without_credentials(self.git)} at {self.ref}" + (f", {self.path}" if self.path != "." else "")


class PoolSettings(_Section):
    """A pool of task slots, and the pool of the same name in Spark's fair scheduler."""

    name: Annotated[Name, AfterValidator(_pool_name)] = _field(..., "Name of the pool. `control` is reserved.")
    slots: Positive = _field(16, "Number of task slots. A task takes one, or as many as its `weight` says.")
    weight: Positive = _field(1, "Weight of the Spark pool: its share of the cores when pools compete.")
    min_share: NotNegative = _field(
        0, "Minimum share of the Spark pool: the number of cores that it gets before cores are shared by weight."
    )
    memory: Memory | None = _field(
        None,
        "Memory limit of each task's process, including its child processes: MB, or text such as `2 GB`. null: no limit.",
    )
    nice: Nice | None = _field(
        None,
        "CPU niceness of task processes, 0 to 19: a higher value gives way to others when cores are short. "
        "null: 5, and 10 in a backfill.",
    )


class LimitSettings(_Section):
    """Defaults for DAGs and backfills that do not set these options."""

    max_active_runs: Positive = _field(16, "Maximum number of active runs of a DAG, and of a backfill.")
    max_active_tasks: Positive = _field(16, "Maximum number of running tasks of a DAG, over all of its runs.")
    batch_target: ParseInterval = _field(
        600.0, "Maximum expected duration of a run in a backfill with automatic batch size."
    )
    wait_interval: ParseInterval = _field(
        30.0,
        "Time between two checks of the rows, file or condition that a task waits for. Slow checks are made less often.",
    )


class LeaseSettings(_Section):
    """The lease of the active manager."""

    seconds: Positive = _field(15, "Seconds without a heartbeat of the leader after which a standby takes over.")


class RetentionSettings(_Section):
    """How long finished objects are kept, such as `90 days`. null: for ever. Active or needed objects are kept, whatever
    their age."""

    runs: Age | None = _field(
        None,
        "Overridden and external runs with their tasks, tries and logs; finished backfills with their items; notifications.",
    )
    tries: Age | None = _field(None, "Tries of finished runs.")
    logs: Age | None = _field(None, "Log lines of finished runs.")
    requests: Age | None = _field(None, "Answered requests, with their responses.")
    snapshots: Age | None = _field(None, "Replaced DAG versions that no run refers to, and their files.")
    import_errors: Age | None = _field(
        None, "Import errors that are no longer current: the file has been imported since, or no longer exists."
    )
    previews: Age | None = _field(
        604_800.0,
        "Clones of finished previews that were neither promoted nor discarded. VACUUM of the tables must keep "
        "files for longer than this.",
    )


class TokenSettings(_Section):
    """A bearer token, given by its SHA-256 digest (hex). The token itself is not stored."""

    name: Name = _field(..., "Name of the user, as shown in requests and notes.")
    sha256: Annotated[str, _matching(r"[0-9a-f]{64}", "the token's SHA-256 as 64 hex digits", secret=True)] = _field(
        ..., "SHA-256 digest of the token, as 64 hex digits."
    )
    role: Literal["viewer", "operator"] = _field("viewer", "`viewer` may only read, `operator` may also make changes.")
    expires: Expiry | None = _field(
        None,
        "When the token expires: a date (valid until the end of that day, UTC) or an instant such as "
        "`2027-01-31T18:00Z`. null: never.",
    )

    def is_expired(self, now: datetime) -> bool:
        return self.expires is not None and now >= self.expires


def _proxies(values: list[str]) -> list[str]:
    for value in values:
        try:
            ipaddress.ip_network(value)
        except ValueError:
            raise ValueError(
                f"must be addresses or networks such as `10.0.0.7` or `10.0.0.0/24`, not {value!r}"
            ) from None
    return values


def _one_owner_each(tokens: list[TokenSettings]) -> list[TokenSettings]:
    """With one token of two names it would be open who submitted a request, and what they may do."""
    owners: dict[str, str] = {}
    for token in tokens:
        if token.sha256 in owners:
            raise ValueError(f"each token for one name; {owners[token.sha256]} and {token.name} have the same sha256")
        owners[token.sha256] = token.name
    return tokens


class ApiSettings(_Section):
    """The server of the REST API and the web pages."""

    host: NonEmpty = _field("127.0.0.1", "Address to listen on.")
    port: Annotated[Int, Field(ge=0, le=65535)] = _field(8099, "Port to listen on. 0: any free port.")
    tokens: Annotated[list[TokenSettings], _unique("name"), AfterValidator(_one_owner_each)] = _field(
        [], "Tokens of the users."
    )
    session_secret: SessionSecret | None = _field(
        None,
        "Secret that signs browser sessions, 32 or more characters. Set the same value on servers that share "
        "sessions. null: each server generates its own when it starts.",
    )
    public_url: PublicUrl | None = _field(
        None,
        "URL under which people reach the web pages, for links in messages. With a path (`https://example.com/backfills`), "
        "links of pages have it, too: for a proxy that serves other things beside them.",
    )
    trusted_proxies: Annotated[list[str], AfterValidator(_proxies)] = _field(
        [], "Addresses or networks of proxies whose `X-Forwarded-For` and `X-Forwarded-Proto` headers are trusted."
    )
    requests_per_second: Positive = _field(
        200, "Maximum request rate of one user at one address, or of one address without a token."
    )
    max_concurrent_requests: Positive = _field(
        100,
        "Maximum number of simultaneous requests of one user, or of one address without a token. An open page "
        "that updates live holds one. At most half of `max_connections`.",
    )
    max_body_bytes: Positive = _field(5_000_000, "Maximum size of a request body.")
    max_connections: Positive = _field(
        500, "Maximum number of open connections. At most half of the process's file descriptors."
    )
    max_connections_per_address: Positive | None = _field(
        100, "Maximum number of open connections from one address that is not a trusted proxy. null: no limit."
    )
    header_timeout: Timeout = _field(10.0, "Maximum time to receive the head of a request.")
    body_timeout: Timeout = _field(30.0, "Maximum time to receive the body of a request.")
    send_timeout: Timeout = _field(30.0, "Close the connection if the client stops reading its response for this long.")

    @property
    def path(self) -> str:
        """The path of `public_url`, as a URL has it: `/backfills`; empty if it has none."""
        path = quote(urlsplit(self.public_url or "").path.strip("/"), safe="/%~!$&'()*+,;=:@")
        return f"/{path}" if path else ""


class OpenLineageSettings(_Section):
    """OpenLineage events about runs, tries and the tables that they read and write, for a lineage server. Needs the extra
    `openlineage`."""

    namespace: NonEmpty = _field("backfill_manager", "Namespace of the jobs.")
    transport: dict[str, Any] = _field(
        ...,
        "Transport configuration of the OpenLineage client: `{type: http, url: ...}`, `{type: file, "
        "log_file_path: ..., append: true}`, ...",
    )

    @model_validator(mode="after")
    def _has_type(self) -> OpenLineageSettings:
        if not isinstance(self.transport.get("type"), str):
            raise ValueError("transport must have a type: http, file, console, ...")
        return self


class OpenTelemetrySettings(_Section):
    """Traces of requests, runs, tries and Spark jobs, sent by OTLP over HTTP. Needs the extra `opentelemetry`. The variables
    `OTEL_...` apply where nothing is set here."""

    endpoint: Collector | None = _field(
        None,
        "URL of the collector, without `/v1/traces`. null: the value of `OTEL_EXPORTER_OTLP_ENDPOINT`, else "
        "http://localhost:4318.",
    )
    headers: dict[str, SecretStr] = _field(
        {}, "HTTP headers of each request to the collector, such as an API key. Default: `OTEL_EXPORTER_OTLP_HEADERS`."
    )
    spark_jobs: bool = _field(True, "Create a span for each Spark job of a try.")


class NotificationSettings(_Section):
    """A target for messages about runs and backfills. Needs the extra `notifications`."""

    name: Name = _field(..., "Name of the target.")
    url: Annotated[SecretStr | None, Field(min_length=1)] = _field(
        None,
        "Apprise URL of the target: `slack://...`, `workflows://...` (Teams), `mailtos://...`, "
        "`jsons://host/path` for a webhook. Set either this or `url_env`.",
    )
    url_env: NonEmpty | None = _field(
        None, "Environment variable of the manager that holds the URL. Set either this or `url`."
    )
    events: Events = _field(
        ["failed", "late", "deadlocked"],
        "Events that are sent to this target. `done`: a run or backfill has succeeded.",
    )
    dags: list[NonEmpty] = _field(
        ["*"],
        "DAGs whose events are sent: ids, or patterns such as `sales_*`. `[]`: only DAGs that name this "
        "target in their `notify` setting.",
    )
    group: Grouping = _field(
        60.0, "Events within this time after a first event are sent together with it, as one message."
    )

    @model_validator(mode="after")
    def _has_one_address(self) -> NotificationSettings:
        if (self.url is None) == (self.url_env is None):
            raise ValueError("must have either url or url_env")
        return self


class SecretSettings(_Section):
    """Sources in which `ctx.secret(name)` looks for a secret, in this order. The manager looks it up; values are not stored."""

    env: VariablePrefix | None = _field(
        SECRET_PREFIX,
        "Prefix of environment variables of the manager that hold secrets. With `BFM_SECRET_`, the secret "
        "`db-password` is read from `BFM_SECRET_DB_PASSWORD`. null: none.",
    )
    files: Place | None = _field(
        None,
        "Folder with one file per secret, as mounted by Kubernetes, Docker and systemd, such as `/run/secrets`.",
    )
    databricks: NonEmpty | None = _field(None, "Databricks secret scope, read through `dbutils`.")
    allow: dict[str, list[NonEmpty]] | None = _field(
        None,
        "Secrets that each bundle may read: names, or patterns such as `sales_*`. A bundle that is not listed "
        "may read none. null: every bundle may read all secrets.",
    )


class SparkSettings(_Section):
    """The Spark session of the manager."""

    master: NonEmpty | None = _field(None, "Spark master URL. null: the master given to spark-submit, else `local[*]`.")
    conf: dict[str, Annotated[str, BeforeValidator(_spark_text)]] = _field(
        {},
        "Spark properties, such as `spark.driver.memory`. `spark.jars` and `spark.sql.extensions` are added to Delta's. A "
        "`spark.sql.session.timeZone` other than UTC is refused.",
    )


DEFAULT_POOLS: Final[Any] = (
    {"name": "scheduled", "slots": 16, "weight": 4, "min_share": 2},
    {"name": "backfill", "slots": 16, "weight": 1, "min_share": 0},
)
# Validated as a part of `Settings`: a validator for each section by itself takes time to build.
_DEFAULTS: Final[Any] = {}


class Settings(_Section):
    model_config = ConfigDict(validate_default=True)

    state: StateRoot = _field("./state", "Location of the state: a folder, s3://, abfss://, gs://, or catalog.schema.")
    warehouse: Warehouse = _field("./warehouse", "Location of tables that DAGs name without a path.")
    snapshots: Place | None = _field(
        None,
        "Folder for the files of DAG versions. null: in the state if that is a folder, else in the cache of "
        "the current user.",
    )
    bundles: Annotated[list[BundleSettings], _unique("name")] = _field([], "Sources of DAG files.")
    pools: Annotated[list[PoolSettings], _unique("name")] = _field(DEFAULT_POOLS, "Pools of task slots.")
    limits: LimitSettings = _field(_DEFAULTS, "Defaults for DAGs and backfills.")
    lease: LeaseSettings = _field(_DEFAULTS, "The lease of the active manager.")
    retention: RetentionSettings = _field(_DEFAULTS, "How long finished objects are kept.")
    api: ApiSettings = _field(_DEFAULTS, "The server of the REST API and the web pages.")
    notifications: Annotated[list[NotificationSettings], _unique("name")] = _field(
        [], "Targets for messages about runs and backfills."
    )
    openlineage: OpenLineageSettings | None = _field(None, "OpenLineage events. null: none are sent.")
    opentelemetry: OpenTelemetrySettings | None = _field(
        None, "OpenTelemetry traces. null: none are sent. `{}`: configured by the variables `OTEL_...`."
    )
    secrets: SecretSettings = _field(_DEFAULTS, "Sources of the secrets that tasks read.")
    spark: SparkSettings = _field(_DEFAULTS, "The Spark session of the manager.")
