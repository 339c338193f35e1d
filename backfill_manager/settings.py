"""How a manager is set up: `conf/manager.yaml`, under the environment, under the command line's flags.

One model; every source gives only what it says, the later one wins, what nobody says has a default:

    conf/manager.yaml (or --conf, or BFM_CONF)  <  BFM_<SECTION>__<KEY>  <  --state

In the environment `BFM_STATE` is the key `state`, `BFM_LEASE__SECONDS` is `lease.seconds`, and one of several named
things is told by its name: `BFM_POOLS__BACKFILL__SLOTS`. A value that begins with `[` or `{` is read as YAML (JSON will
do). Relative paths, in the file too, start at the current directory: a path means the same wherever it is written.

Everything that is wrong is told at once, one line each: the place (file and line, or the variable), the dotted key,
what would be right. Every command reads this, so its import stays light: pydantic, and YAML only when there is some
to read.
"""

from __future__ import annotations

import re
import typing
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Final, Literal, TypeVar

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, model_validator
from pydantic_core import ErrorDetails

from backfill_manager.errors import InvalidConfig, nearest

DEFAULT_CONF: Final = "conf/manager.yaml"
EXAMPLES: Final = "jobs/bundles"
PREFIX: Final = "BFM_"
PARSERS: Final = ("standard", "single_pass", "event")
PARSERS_WITHOUT_TIMES: Final = ("single_pass", "event")
PARSER_GROUP: Final = "backfill_manager.bundle_parsers"  # entry points: other people's
GIT_TRANSPORTS: Final = ("https", "http", "ssh", "git", "file")
MASK: Final = "********"
SECRET_NAME: Final = re.compile(
    r"token|secret|passw|credential|sha256|(api|access|account|private)[._-]?key|sas\b", re.IGNORECASE
)
TEN_YEARS_S: Final = 315_360_000  # what waits for longer, waits for ever; clocks would overflow
_UNITS: Final = {
    **dict.fromkeys(("", "s", "sec", "secs", "second", "seconds"), 1),
    **dict.fromkeys(("m", "min", "mins", "minute", "minutes"), 60),
    **dict.fromkeys(("h", "hr", "hrs", "hour", "hours"), 3600),
    **dict.fromkeys(("d", "day", "days"), 86400),
}


def _number(value: Any) -> Any:
    if isinstance(value, bool):  # YAML's `yes` would pass for 1
        raise ValueError(f"must be a number, not {str(value).lower()}")
    return value


def _text(value: Any) -> Any:
    """Spark takes text; YAML gives `false` and `200`. It is written as Spark spells it."""
    if isinstance(value, bool):
        return str(value).lower()
    return str(value) if isinstance(value, int | float) else value


def _seconds(value: Any) -> Any:
    """`90s`, `5 minutes`, `1 day` as seconds."""
    if not isinstance(value, str):
        return _number(value)
    found = re.fullmatch(r"\s*(\d{1,12}(?:\.\d{1,6})?)\s*([a-z]*)\s*", value, re.ASCII | re.IGNORECASE)
    if not found or found[2].lower() not in _UNITS:
        raise ValueError(f"must be seconds, or a time such as `90s`, `5 minutes`, `2h` or `1 day`, not {value!r}")
    return float(found[1]) * _UNITS[found[2].lower()]


def _a_second_or_more(seconds: float) -> float:
    if seconds < 1:
        raise ValueError(f"must be 1 second or more, not {seconds:g} seconds")
    return seconds


def _matching(pattern: str, told: str, *, secret: bool = False) -> AfterValidator:
    def check(value: str) -> str:
        if not re.fullmatch(pattern, value, re.DOTALL):
            raise ValueError(f"must be {told}" if secret else f"must be {told}, not {value!r}")
        return value

    return AfterValidator(check)


_Listed = TypeVar("_Listed")


def _each_once(key: str) -> Callable[[list[_Listed]], list[_Listed]]:
    def check(things: list[_Listed]) -> list[_Listed]:
        names = [getattr(thing, key) for thing in things]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise ValueError(f"each {key} once; twice here: {', '.join(twice)}")
        return things

    return check


_named_once = _each_once("name")


Positive = Annotated[int, BeforeValidator(_number), Field(gt=0)]
NotNegative = Annotated[int, BeforeValidator(_number), Field(ge=0)]
Seconds = Annotated[float, BeforeValidator(_seconds), Field(gt=0, le=TEN_YEARS_S, allow_inf_nan=False)]
ReadAgain = Annotated[Seconds, AfterValidator(_a_second_or_more)]
Name = Annotated[
    str, _matching(r"(?!\.+$)[A-Za-z0-9_.-]{1,200}", "up to 200 letters, digits, `_`, `.` or `-`, not dots only")
]
Filled = Annotated[str, _matching(r".*\S.*", "some text")]


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


def _inside_the_bundle(path: str) -> str:
    """`/glacier/`, as AIP-85 writes it, is `glacier`."""
    parts = [part for part in path.split("/") if part not in ("", ".")]
    if not parts or ".." in parts:
        raise ValueError(f"must be a folder inside the bundle such as `reports/daily`, not {path!r}")
    return "/".join(parts)


class DirectorySettings(_Section):
    """Times of its own for a folder of a bundle."""

    path: Annotated[str, AfterValidator(_inside_the_bundle)]
    scan_interval: Seconds | None = None  # between two looks for changes; None: the bundle's fetch_interval
    min_file_parse_interval: Seconds | None = None  # a file that changes is read again after this time at the earliest
    max_file_parse_interval: ReadAgain | None = None  # ... and at the latest, changed or not; None: as the bundle says

    @model_validator(mode="after")
    def _has_its_times_in_order(self) -> DirectorySettings:
        _in_order(self.path, self.min_file_parse_interval, self.max_file_parse_interval)
        return self


def _in_order(path: str, least: float | None, most: float | None) -> None:
    if least is not None and most is not None and least > most:
        raise ValueError(
            f"must let {path!r} have a max_file_parse_interval that is no shorter than its min_file_parse_interval, "
            f"not {most:g} and {least:g} seconds"
        )


def unknown_parser(name: str, *, misspelt: bool = False) -> str | None:
    """What is to be said of a parser that is neither ours nor offered by an installed package; None for one that is. With
    `misspelt` only of a name that is nearly a known one."""
    if name in PARSERS:
        return None
    from difflib import get_close_matches
    from importlib.metadata import entry_points  # reads every installed package's files

    known = [*PARSERS, *sorted({point.name for point in entry_points(group=PARSER_GROUP)})]
    near = get_close_matches(name, known, n=1, cutoff=0.8)
    if name in known or (misspelt and not near):
        return None
    *most, last = map(repr, known)
    hint = f"; did you mean {near[0]!r}?" if near else "; is its package installed where the manager runs?"
    return f"must be {', '.join(most)} or {last}, not {name!r}{hint}"


def _not_misspelt(name: str) -> str:
    """A parser that is not here at all is an error of its bundle alone: the manager goes on with the others."""
    if told := unknown_parser(name, misspelt=True):
        raise ValueError(told)
    return name


def _git_url(url: str) -> str:
    """Told without its value: there may be a password in it."""
    transport, has_transport, rest = url.partition("://")
    runs_a_program = url.startswith("-") or "::" in url.partition("/")[0]  # an option; `ext::command`
    unknown = bool(has_transport) and (transport not in GIT_TRANSPORTS or not rest or rest.startswith("-"))
    if runs_a_program or unknown or re.search(r"[\x00-\x1f]", url):
        known = ", ".join(f"{name}://" for name in GIT_TRANSPORTS)
        raise ValueError(f"must be a git repository: {known}, user@host:path or a local path")
    return url


def without_password(url: str) -> str:
    """A URL as it may be shown: without user and password, or the token that stands there."""
    return re.sub(r"(?<=://)[^/\s]*@", "", url)


def _git_ref(ref: str) -> str:
    if re.search(r"[\x00-\x20\x7f~^:?*\[\\]|\.\.|@\{|^[-+/]|[/.]$", ref):
        raise ValueError(f"must be a branch, a tag or a commit, not {ref!r}")
    return ref


class _Origin(_Section):
    """Where a bundle's files come from."""

    name: Name
    path: Filled = "."  # a folder, .zip or .whl; with `git` the folder within the repository
    git: Annotated[Filled, AfterValidator(_git_url)] | None = None
    ref: Annotated[Filled, AfterValidator(_git_ref)] = "HEAD"  # branch, tag or commit


class BundleRules(_Section):
    """How a bundle's files are read: what its own `manifest.yaml` may say as well."""

    parser: Annotated[Name, AfterValidator(_not_misspelt)] = "standard"
    fetch_interval: Seconds = 30.0  # between two looks for changes
    max_file_parse_interval: ReadAgain | None = (
        None  # every file is read again at the latest after this time, changed or not
    )
    import_timeout: Annotated[Seconds, Field(le=86_400)] = 30.0  # one file may take to be executed
    import_memory: Annotated[int, BeforeValidator(_number), Field(ge=16, le=1 << 20)] = (
        1024  # MB that one file may take to be executed
    )
    keep_last_good: bool = True  # DAGs of a file that can't be executed any more stay as they were
    directories: Annotated[list[DirectorySettings], AfterValidator(_each_once("path"))] = []
    options: dict[str, Any] = {}  # of the parser itself, where it is one of a package; it checks them

    @model_validator(mode="after")
    def _fits_its_parser(self) -> BundleRules:
        for directory in self.directories:
            most = directory.max_file_parse_interval or self.max_file_parse_interval
            _in_order(directory.path, directory.min_file_parse_interval, most)
        if "parser" in self.model_fields_set and self.parser in PARSERS and self.options:
            raise ValueError(f"must leave out options: the parser {self.parser!r} has none")
        is_timed = self.max_file_parse_interval or any(one.max_file_parse_interval for one in self.directories)
        if self.parser in PARSERS_WITHOUT_TIMES and is_timed:
            raise ValueError(
                f"must leave out max_file_parse_interval: the parser {self.parser!r} reads no file a second time by itself"
            )
        return self

    def shown(self) -> dict[str, Any]:
        """These rules by their names, as JSON, for people: without the values of options that are named like secrets."""
        plain = self.model_dump(mode="json", include=set(BundleRules.model_fields))
        return {**plain, "options": _without_secrets(plain["options"])}


def _without_secrets(value: Any, key: str = "") -> Any:
    if isinstance(value, dict):
        return {name: _without_secrets(one, str(name)) for name, one in value.items()}
    if isinstance(value, list):
        return [_without_secrets(one, key) for one in value]
    return MASK if value is not None and SECRET_NAME.search(key) else value


class BundleSettings(BundleRules, _Origin):  # in this order its origin is printed first
    """Files that make DAGs."""

    @model_validator(mode="after")
    def _has_one_origin(self) -> BundleSettings:
        if self.git is None and "path" not in self.model_fields_set:
            raise ValueError("must have a path: a folder, a .zip or a .whl")
        if self.git is None and "ref" in self.model_fields_set:
            raise ValueError("must have the repository's address as `git` when it has a ref")
        if self.git is not None and (self.path.startswith("/") or ".." in self.path.split("/")):
            raise ValueError(f"must have as path a folder inside the repository such as `dags`, not {self.path!r}")
        return self

    @property
    def place(self) -> str:
        """Where it comes from, for people."""
        if self.git is None:
            return self.path
        return f"{without_password(self.git)} at {self.ref}" + (f", {self.path}" if self.path != "." else "")


def _not_control(name: str) -> str:
    if name == "control":
        raise ValueError("must be another name: `control` is the pool that plans")
    return name


class PoolSettings(_Section):
    """`slots` tasks at once; `weight` and `min_share` of the Spark pool of the same name."""

    name: Annotated[Name, AfterValidator(_not_control)]
    slots: Positive = 16
    weight: Positive = 1
    min_share: NotNegative = 0


class LimitSettings(_Section):
    """What a DAG gets that says nothing itself."""

    max_active_runs: Positive = 16
    max_active_tasks: Positive = 16


class LeaseSettings(_Section):
    seconds: Positive = 15  # a standby takes over when the leader was silent for so long


class RetentionSettings(_Section):
    """Days that finished things are kept; unset is for ever."""

    history_days: Positive | None = None
    log_days: Positive | None = None


class TokenSettings(_Section):
    """A bearer token by its SHA-256 (hex); the token itself is written nowhere."""

    name: Name
    sha256: Annotated[str, _matching(r"[0-9a-f]{64}", "the token's SHA-256 as 64 hex digits", secret=True)]
    role: Literal["viewer", "operator"] = "viewer"


def _of_one_person_each(tokens: list[TokenSettings]) -> list[TokenSettings]:
    """With a token of two it would be open who asked, and what they may do."""
    owners: dict[str, str] = {}
    for token in tokens:
        if token.sha256 in owners:
            raise ValueError(f"each token for one name; {owners[token.sha256]} and {token.name} have the same sha256")
        owners[token.sha256] = token.name
    return tokens


class ApiSettings(_Section):
    host: Filled = "127.0.0.1"
    port: Annotated[int, BeforeValidator(_number), Field(ge=0, le=65535)] = 8099
    tokens: Annotated[list[TokenSettings], AfterValidator(_named_once), AfterValidator(_of_one_person_each)] = []
    session_secret: (
        Annotated[str, _matching(r"\S{32,}", "32 or more characters without spaces", secret=True)] | None
    ) = None  # signs browsers' sessions; the same for all servers that share them. None: each makes one of its own
    requests_per_second: Positive = 200  # of one address
    max_body_bytes: Positive = 5_000_000  # of one request
    max_connections: Positive = 500  # at once; never more than half of the process's file descriptors
    max_connections_per_address: Positive | None = 100  # None: as many as there may be (behind a proxy)
    header_timeout: Annotated[Seconds, Field(le=3600)] = 10.0  # for the head of a request to arrive
    body_timeout: Annotated[Seconds, Field(le=3600)] = 30.0  # for its body to arrive
    send_timeout: Annotated[Seconds, Field(le=3600)] = 30.0  # without the client taking what is sent to it


class NotificationSettings(_Section):
    """An HTTP address that is told when something ended so."""

    name: Name
    url: Annotated[str, _matching(r"https?://\S+", "an address that begins with http:// or https://")]
    on: list[Literal["success", "failed", "cancelled"]] = ["failed"]


class SparkSettings(_Section):
    """`master` None: what spark-submit gave, else `local[*]`. `conf` is handed to Spark as it stands."""

    master: Filled | None = None
    conf: dict[str, Annotated[str, BeforeValidator(_text)]] = {}


DEFAULT_POOLS: Final = (
    PoolSettings(name="scheduled", slots=16, weight=4, min_share=2),
    PoolSettings(name="backfill", slots=16, weight=1, min_share=0),
)


class Settings(_Section):
    state: Filled = "./state"
    warehouse: Filled = "./warehouse"
    snapshots: Filled | None = (
        None  # files of DAG versions; None: with the state if that is a folder, else in our cache
    )
    bundles: Annotated[list[BundleSettings], AfterValidator(_named_once)] = []
    pools: Annotated[list[PoolSettings], AfterValidator(_named_once)] = list(DEFAULT_POOLS)
    limits: LimitSettings = LimitSettings()
    lease: LeaseSettings = LeaseSettings()
    retention: RetentionSettings = RetentionSettings()
    api: ApiSettings = ApiSettings()
    notifications: Annotated[list[NotificationSettings], AfterValidator(_named_once)] = []
    spark: SparkSettings = SparkSettings()

    def pool(self, name: str) -> PoolSettings | None:
        return next((pool for pool in self.pools if pool.name == name), None)


Loc = tuple[str | int, ...]
_Model = TypeVar("_Model", bound=BaseModel)


@dataclass
class Said:
    """What the sources say, laid over each other, and where each thing was said."""

    values: dict[str, Any] = field(default_factory=dict)
    places: dict[Loc, str] = field(default_factory=dict)
    wrong: list[str] = field(default_factory=list)

    def place(self, loc: Loc) -> str:
        """Of the thing itself, else of the nearest thing around it."""
        for end in range(len(loc), -1, -1):
            if loc[:end] in self.places:
                return self.places[loc[:end]]
        return "defaults"

    def move(self, loc: Loc, to: Loc) -> None:
        """What was said at `loc`, and in it, is known as `to` from now on."""
        moved = {at: place for at, place in self.places.items() if at[: len(loc)] == loc}
        self.places.update({(*to, *at[len(loc) :]): place for at, place in moved.items()})


def load_settings(conf: str | None, *, state: str | None = None, environ: Mapping[str, str]) -> Settings:
    """The settings from file, environment and flags; `InvalidConfig` names everything that is wrong with its place."""
    return settings_and_places(conf, state=state, environ=environ)[0]


def settings_and_places(
    conf: str | None, *, state: str | None = None, environ: Mapping[str, str]
) -> tuple[Settings, Said]:
    """The same, and where each thing was said."""
    said = Said()
    named = conf or environ.get("BFM_CONF")
    path = Path(named or DEFAULT_CONF)
    if named or path.exists():
        _read_file(path, said, told_by="--conf" if conf else "BFM_CONF" if named else None)
    if "bundles" not in said.values and Path(EXAMPLES).is_dir():
        said.values["bundles"] = [{"name": "examples", "path": EXAMPLES}]
    _complete_pools(said)
    _read_environment(environ, said)
    if state is not None:
        said.values["state"] = state
        said.places["state",] = "--state"
    return validated(Settings, said), said


def validated(model: type[_Model], said: Said) -> _Model:
    """What was said as `model`; `InvalidConfig` has a line with the place of each thing that is wrong."""
    try:
        right = model.model_validate(said.values)
    except ValidationError as error:
        said.wrong += [_told(detail, said, model) for detail in error.errors(include_url=False)]
    if said.wrong:
        raise InvalidConfig("\n".join(said.wrong))
    return right


def _complete_pools(said: Said) -> None:
    """`scheduled` and `backfill` always exist, and what the file leaves unsaid about them is theirs, not any pool's."""
    given = said.values.get("pools", [])
    if not isinstance(given, list):
        return  # told when it is validated
    defaults = {pool.name: pool.model_dump() for pool in DEFAULT_POOLS}
    for n, pool in enumerate(given):
        if isinstance(pool, dict) and isinstance(pool.get("name"), str) and pool["name"] in defaults:
            given[n] = {**defaults[pool["name"]], **pool}
    names = [pool.get("name") for pool in given if isinstance(pool, dict)]
    said.values["pools"] = [*given, *(pool for name, pool in defaults.items() if name not in names)]


# -- the file ---------------------------------------------------------------------------------------------------------


def _read_file(path: Path, said: Said, *, told_by: str | None) -> None:
    source = f" (from {told_by})" if told_by else ""
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise InvalidConfig(
            f"{path}{source} does not exist. Name a YAML file, or leave it out for the defaults."
        ) from None
    except UnicodeDecodeError:
        raise InvalidConfig(f"{path}{source} is not UTF-8 text.") from None
    except OSError as error:
        raise InvalidConfig(f"{path}{source} can't be read: {error.strerror or error}.") from None
    read_yaml(text, str(path), said, such_as="state: ./state")


def read_yaml(text: str, path: str, said: Said, *, such_as: str) -> None:
    """Lay the keys of a YAML text over what was said, and their lines; `path` is how the file is called to people."""
    import yaml  # type: ignore[import-untyped]

    loader = None
    try:
        loader = yaml.SafeLoader(text)
        root = loader.get_single_node()
        if root is None:  # empty, or comments only
            return
        if not isinstance(root, yaml.MappingNode):
            raise InvalidConfig(f"{path}, line {root.start_mark.line + 1}: must hold keys such as `{such_as}`.")
        _find_places(root, path, said, set())
        said.values.update(loader.construct_document(root))
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f", line {mark.line + 1}" if mark else ""
        why = getattr(error, "problem", None) or getattr(error, "reason", None) or error
        raise InvalidConfig(f"{path}{where}: not valid YAML: {why}.") from None
    except (ValueError, RecursionError) as error:  # the 31st of February; a thousand brackets
        raise InvalidConfig(f"{path}: not valid YAML: {error}.") from None
    finally:
        if loader is not None:
            loader.dispose()


def _find_places(node: Any, path: str, said: Said, seen: set[int], loc: Loc = ()) -> None:
    """The line of every key and list entry; a key that is there twice (YAML would take the last) is wrong."""
    said.places.setdefault(loc, f"{path}, line {node.start_mark.line + 1}")
    if isinstance(node.value, str) or id(node) in seen:
        return
    seen.add(id(node))  # an alias comes by again, and may stand inside itself
    for n, child in enumerate(node.value):
        key, value = child if isinstance(child, tuple) else (None, child)
        at: Loc = (*loc, n if key is None else str(key.value))
        if key is not None:
            line = key.start_mark.line + 1
            if at in said.places:
                said.wrong.append(
                    f"{path}, line {line}: {_dotted(at)} is here twice; first on {said.places[at].split(', ')[-1]}"
                )
                continue
            said.places[at] = f"{path}, line {line}"
        _find_places(value, path, said, seen, at)


# -- the environment --------------------------------------------------------------------------------------------------


def _read_environment(environ: Mapping[str, str], said: Said) -> None:
    for variable in sorted(environ):
        if not variable.startswith(PREFIX):
            continue
        parts = variable.removeprefix(PREFIX).lower().split("__")
        if len(parts) == 1 and parts[0] not in Settings.model_fields:
            continue  # BFM_CONF, BFM_CACHE and whatever else is no section
        loc = _locate(parts, said)
        if loc is None:
            known = _variables(said)
            told = nearest(variable, known, n=1) or "; such a setting is BFM_LEASE__SECONDS"
            said.wrong.append(f"environment, {variable}: there is no such setting{told}")
            continue
        try:
            _put(said.values, loc, _from_environment(environ[variable]))
        except ValueError as error:
            said.wrong.append(f"environment, {variable}: not valid YAML or JSON: {error}")
            continue
        said.places = {at: place for at, place in said.places.items() if at[: len(loc)] != loc}
        said.places[loc] = f"environment, {variable}"


def _from_environment(text: str) -> Any:
    if not text.lstrip().startswith(("[", "{")):
        return text  # pydantic reads numbers and truth values from text
    import yaml

    try:
        return yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise ValueError(getattr(error, "problem", None) or str(error)) from None


def _locate(parts: list[str], said: Said) -> Loc | None:
    """Where in the settings a variable points: `["pools", "backfill", "slots"]` -> `("pools", 1, "slots")`."""
    loc: Loc = ()
    model: type[BaseModel] | None = Settings
    values: Any = said.values
    for part in parts:
        if isinstance(values, list):
            names = [_as_variable(v.get("name")) if isinstance(v, dict) else None for v in values]
            if part.upper() not in names:
                return None
            step: str | int = names.index(part.upper())
            values = values[int(step)]
        elif model is not None and part in model.model_fields:
            step = part
            values = values.get(part) if isinstance(values, dict) else None
            model = _model_of(model.model_fields[part].annotation)
        else:
            return None
        loc = (*loc, step)
    return loc


def _put(values: dict[str, Any], loc: Loc, value: Any) -> None:
    here: Any = values
    for step in loc[:-1]:
        if isinstance(here, dict) and not isinstance(here.get(step), dict | list):
            here[step] = {}
        here = here[step]
    here[loc[-1]] = value


def _variables(said: Said) -> Iterator[str]:
    for name, info in Settings.model_fields.items():
        yield f"{PREFIX}{name.upper()}"
        inner = _model_of(info.annotation)
        listed = said.values.get(name)
        between = (
            [f"{_as_variable(v.get('name'))}__" for v in listed if isinstance(v, dict)]
            if isinstance(listed, list)
            else [""]
        )
        for key in inner.model_fields if inner else ():
            yield from (f"{PREFIX}{name.upper()}__{one}{key.upper()}" for one in between)


def _as_variable(name: Any) -> str:
    return "".join(c if c.isalnum() else "_" for c in str(name)).upper()


# -- what is wrong ----------------------------------------------------------------------------------------------------


_MUST: Final = {
    "model_type": "must be keys and values",
    "dict_type": "must be keys and values",
    "list_type": "must be a list",
    "string_type": "must be text",
    "int_type": "must be a whole number",
    "int_parsing": "must be a whole number",
    "int_from_float": "must be a whole number",
    "float_type": "must be a number",
    "float_parsing": "must be a number",
    "bool_type": "must be true or false",
    "bool_parsing": "must be true or false",
}


def _told(detail: ErrorDetails, said: Said, model: type[BaseModel]) -> str:
    loc: Loc = detail["loc"]
    where = f"{said.place(loc)}: {_dotted(loc)}" if loc else f"{said.place(loc)}:"
    if detail["type"] == "extra_forbidden":
        known = _keys_at(loc[:-1], model)
        return f"{where} is not a setting{nearest(str(loc[-1]), known, n=1) or '; known here: ' + ', '.join(known)}"
    if detail["type"] == "missing":
        return f"{where} is missing"
    why = _MUST.get(detail["type"]) or detail["msg"].removeprefix("Value error, ")
    why = f"{why[0].lower()}{why[1:]}".removeprefix("input ").replace("should ", "must ")
    shown = detail["input"]
    told = f", not {shown!r}" if isinstance(shown, str | int | float) and detail["type"] != "value_error" else ""
    return f"{where} {why if why.startswith(('must', 'each')) else 'is wrong: ' + why}{told}"


def _keys_at(loc: Loc, model: type[BaseModel]) -> list[str]:
    at: type[BaseModel] | None = model
    for step in loc:
        if isinstance(step, str) and at is not None:
            at = _model_of(at.model_fields[step].annotation)
    return list(at.model_fields) if at else []


def _model_of(annotation: Any) -> type[BaseModel] | None:
    """The section inside `X`, `list[X]`, `Annotated[list[X], ...]`, `X | None`."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    return next((found for arg in typing.get_args(annotation) if (found := _model_of(arg))), None)


def _dotted(loc: Loc) -> str:
    text = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in loc)
    return text.removeprefix(".") or "(the whole)"
