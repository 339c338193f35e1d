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
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Final, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError
from pydantic_core import ErrorDetails

from backfill_manager.errors import InvalidConfig, nearest

DEFAULT_CONF: Final = "conf/manager.yaml"
EXAMPLES: Final = "jobs/bundles"
PREFIX: Final = "BFM_"


def _number(value: Any) -> Any:
    if isinstance(value, bool):  # YAML's `yes` would pass for 1
        raise ValueError(f"must be a number, not {str(value).lower()}")
    return value


def _text(value: Any) -> Any:
    """Spark takes text; YAML gives `false` and `200`. It is written as Spark spells it."""
    if isinstance(value, bool):
        return str(value).lower()
    return str(value) if isinstance(value, int | float) else value


def _matching(pattern: str, told: str, *, secret: bool = False) -> AfterValidator:
    def check(value: str) -> str:
        if not re.fullmatch(pattern, value, re.DOTALL):
            raise ValueError(f"must be {told}" if secret else f"must be {told}, not {value!r}")
        return value

    return AfterValidator(check)


def _named_once(things: list[Any]) -> list[Any]:
    names = [thing.name for thing in things]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise ValueError(f"each name once; twice here: {', '.join(twice)}")
    return things


Positive = Annotated[int, BeforeValidator(_number), Field(gt=0)]
NotNegative = Annotated[int, BeforeValidator(_number), Field(ge=0)]
Seconds = Annotated[float, BeforeValidator(_number), Field(gt=0, allow_inf_nan=False)]
Name = Annotated[str, _matching(r"[A-Za-z0-9_.-]{1,200}", "up to 200 letters, digits, `_`, `.` or `-`")]
Filled = Annotated[str, _matching(r".*\S.*", "some text")]


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class DirectorySettings(_Section):
    """Times of its own for a folder of a bundle."""

    path: Filled
    scan_interval: Seconds | None = None
    min_file_parse_interval: Seconds | None = None


class BundleSettings(_Section):
    """A folder of DAG files."""

    name: Name
    path: Filled
    parser: Literal["standard", "single_pass", "event"] = "standard"
    fetch_interval: Seconds = 30.0  # between two looks for changes
    import_timeout: Seconds = 30.0  # one file may take to be executed
    directories: list[DirectorySettings] = []


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


class ApiSettings(_Section):
    host: Filled = "127.0.0.1"
    port: Annotated[int, BeforeValidator(_number), Field(ge=0, le=65535)] = 8099
    tokens: Annotated[list[TokenSettings], AfterValidator(_named_once)] = []


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


@dataclass
class _Said:
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


def load_settings(conf: str | None, *, state: str | None = None, environ: Mapping[str, str]) -> Settings:
    """The settings from file, environment and flags; `InvalidConfig` names everything that is wrong with its place."""
    said = _Said()
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
    try:
        settings = Settings.model_validate(said.values)
    except ValidationError as error:
        said.wrong += [_told(detail, said) for detail in error.errors(include_url=False)]
    if said.wrong:
        raise InvalidConfig("\n".join(said.wrong))
    return settings


def _complete_pools(said: _Said) -> None:
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


def _read_file(path: Path, said: _Said, *, told_by: str | None) -> None:
    import yaml  # type: ignore[import-untyped]

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
    loader = yaml.SafeLoader(text)
    try:
        root = loader.get_single_node()
        if root is None:  # empty, or comments only
            return
        if not isinstance(root, yaml.MappingNode):
            raise InvalidConfig(f"{path}, line {root.start_mark.line + 1}: must hold keys such as `state: ./state`.")
        _find_places(root, path, said, set())
        said.values.update(loader.construct_document(root))
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f", line {mark.line + 1}" if mark else ""
        raise InvalidConfig(f"{path}{where}: not valid YAML: {getattr(error, 'problem', None) or error}.") from None
    finally:
        loader.dispose()


def _find_places(node: Any, path: Path, said: _Said, seen: set[int], loc: Loc = ()) -> None:
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


def _read_environment(environ: Mapping[str, str], said: _Said) -> None:
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


def _locate(parts: list[str], said: _Said) -> Loc | None:
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


def _variables(said: _Said) -> Iterator[str]:
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
}


def _told(detail: ErrorDetails, said: _Said) -> str:
    loc: Loc = detail["loc"]
    where = f"{said.place(loc)}: {_dotted(loc)}"
    if detail["type"] == "extra_forbidden":
        known = _keys_at(loc[:-1])
        return f"{where} is not a setting{nearest(str(loc[-1]), known, n=1) or '; known here: ' + ', '.join(known)}"
    if detail["type"] == "missing":
        return f"{where} is missing"
    why = _MUST.get(detail["type"]) or detail["msg"].removeprefix("Value error, ")
    why = f"{why[0].lower()}{why[1:]}".removeprefix("input ").replace("should ", "must ")
    shown = detail["input"]
    told = f", not {shown!r}" if isinstance(shown, str | int | float) and detail["type"] != "value_error" else ""
    return f"{where} {why if why.startswith(('must', 'each')) else 'is wrong: ' + why}{told}"


def _keys_at(loc: Loc) -> list[str]:
    model: type[BaseModel] | None = Settings
    for step in loc:
        if isinstance(step, str) and model is not None:
            model = _model_of(model.model_fields[step].annotation)
    return list(model.model_fields) if model else []


def _model_of(annotation: Any) -> type[BaseModel] | None:
    """The section inside `X`, `list[X]`, `Annotated[list[X], ...]`, `X | None`."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    return next((found for arg in typing.get_args(annotation) if (found := _model_of(arg))), None)


def _dotted(loc: Loc) -> str:
    text = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in loc)
    return text.removeprefix(".") or "(the whole)"
