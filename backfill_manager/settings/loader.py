"""Reads the settings: `conf/manager.yaml` (or --conf, or BFM_CONF)  <  BFM_<SECTION>__<KEY>  <  --state.

Every source gives only what it sets, the later one wins. In the environment `BFM_STATE` is the key `state`,
`BFM_LEASE__SECONDS` is `lease.seconds`, and an entry of a list goes by its name: `BFM_POOLS__BACKFILL__SLOTS`. A value that
begins with `[` or `{` is read as YAML (JSON will do), unless the setting is a text. Relative paths in the file begin at the
file's folder, all others at the current directory, or where spark-submit.sh was started.

Everything that is wrong is reported at once, one line each: the place (file and line, or the variable), the dotted key, what
would be right. Every command reads this, so its import stays light: pydantic, and YAML only when there is some to read.
"""

from __future__ import annotations

import difflib
import os
import re
import typing
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import UnionType
from typing import Any, Final, TypeVar

from pydantic import BaseModel, SecretStr, ValidationError
from pydantic_core import ErrorDetails

from backfill_manager.errors import InvalidConfig, nearest
from backfill_manager.settings.model import DEFAULT_POOLS, SECRET_PREFIX, Settings
from backfill_manager.value_rules import CATALOG_SCHEMA, describe_error
from backfill_manager.yaml_reader import Loc, YamlError, decode, read_documents

DEFAULT_CONF: Final = "conf/manager.yaml"
STARTED_IN: Final = "BFM_STARTED_IN"  # set by jobs/submit.py, which changes the current directory: where it was started
_EXAMPLES: Final = "jobs/bundles"
_PREFIX: Final = "BFM_"
_OTHER_VARIABLES: Final = ("CONF", "SERVER", "TIMEZONE", "TOKEN", "TOKEN_FILE", "CACHE", "IVY_SETTINGS")  # no settings
_OF_PARTS: Final = (
    "list_type",
    "tuple_type",
    "dict_type",
    "mapping_type",
    "model_type",
)  # pydantic's, of what has parts
_MISSPELT: Final = 0.75  # how alike the names are, of 1: `STAET` and `STATE` are 0.8, `SLACK` and `SPARK` 0.6

_Model = TypeVar("_Model", bound=BaseModel)


@dataclass
class RawSettings:
    """The values of all sources laid over each other, where each was set, and what is wrong, or may be, with them up to now."""

    values: dict[str, Any] = field(default_factory=dict)
    places: dict[Loc, str] = field(default_factory=dict)
    errors: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)

    def place(self, loc: Loc) -> str:
        """Of the value itself, else of the nearest one around it."""
        return next((self.places[loc[:end]] for end in range(len(loc), -1, -1) if loc[:end] in self.places), "defaults")

    def move(self, loc: Loc, to: Loc) -> None:
        """The places of `loc`, and of what is in it, are those of `to` from now on."""
        moved = {at: place for at, place in self.places.items() if at[: len(loc)] == loc}
        self.places.update({(*to, *at[len(loc) :]): place for at, place in moved.items()})

    def add_yaml(self, content: bytes, name: str, *, example: str) -> None:
        """Lays the keys of a YAML file over the values; `name` is the file's for people. `InvalidConfig` for no YAML."""
        try:
            documents = read_documents(decode(content), strict=False)
        except YamlError as error:
            raise InvalidConfig(f"{name}, line {error.line}: {error}.") from None
        if not documents:  # empty, or comments only
            return
        document = documents[0]
        if len(documents) > 1:
            raise InvalidConfig(f"{name}, line {documents[1].line(())}: only one YAML document is read.")
        if not isinstance(document.value, dict):
            raise InvalidConfig(f"{name}, line {document.line(())}: must hold keys such as `{example}`.")
        self.values.update(document.value)
        self.places.update({loc: f"{name}, line {line}" for loc, line in document.lines.items()})
        self.errors += [f"{name}, line {error.line}: {error}" for error in document.duplicates]

    def validate(self, model: type[_Model]) -> _Model:
        """The values as `model`; `InvalidConfig` has a line with the place of everything that is wrong."""
        try:
            valid = model.model_validate(self.values)
        except ValidationError as error:
            self.errors += [_describe(detail, self, model) for detail in error.errors(include_url=False)]
        if self.errors:
            raise InvalidConfig("\n".join(self.errors))
        return valid


def load_settings(conf: str | None, *, state: str | None = None, environ: Mapping[str, str]) -> Settings:
    """The settings from file, environment and flags; `InvalidConfig` names everything that is wrong with its place."""
    return settings_and_places(conf, state=state, environ=environ)[0]


def settings_and_places(
    conf: str | None, *, state: str | None = None, environ: Mapping[str, str]
) -> tuple[Settings, RawSettings]:
    raw = RawSettings()
    named = conf or environ.get("BFM_CONF")
    path = Path(named or DEFAULT_CONF)
    if named or path.exists():
        source = f"{path} (from {'--conf' if conf else 'BFM_CONF'})" if named else str(path)
        try:
            content = path.read_bytes()
        except FileNotFoundError:
            hint = "Name a YAML file, or leave it out for the defaults."
            raise InvalidConfig(f"{source} does not exist. {hint}") from None
        except OSError as error:
            raise InvalidConfig(f"{source} can't be read: {error.strerror or error}.") from None
        raw.add_yaml(content, str(path), example="state: ./state")
        _resolve_paths(raw.values, path.parent)
    if "bundles" not in raw.values and Path(_EXAMPLES).is_dir():
        raw.values["bundles"] = [{"name": "examples", "path": _EXAMPLES}]
    _complete_pools(raw)
    started_in = environ.get(STARTED_IN)
    if started_in:
        _resolve_paths(raw.values, Path.cwd())
    _read_environment(environ, raw)
    if started_in:
        _resolve_paths(raw.values, Path(started_in))
    if state is not None:
        raw.values["state"] = state
        raw.places["state",] = "--state"
    return raw.validate(Settings), raw


def _resolve_paths(values: dict[str, Any], folder: Path) -> None:
    """Has relative paths of a file begin at its folder. What is no text is left to validation."""

    def resolve(owner: dict[str, Any], name: str) -> None:
        value = owner.get(name)
        if isinstance(value, str) and value.strip() and not re.match(r"~|[A-Za-z][A-Za-z0-9+.-]*:", value):
            owner[name] = os.path.abspath(folder / value)

    state = values.get("state")
    if isinstance(state, str) and (not re.fullmatch(CATALOG_SCHEMA, state) or (folder / state).exists()):
        resolve(values, "state")
    resolve(values, "warehouse")
    resolve(values, "snapshots")
    if isinstance(secrets := values.get("secrets"), dict):
        resolve(secrets, "files")
    bundles = values.get("bundles")
    for bundle in bundles if isinstance(bundles, list) else ():
        if not isinstance(bundle, dict):
            continue
        resolve(bundle, "python")
        if bundle.get("git") is None:
            resolve(bundle, "path")
        elif not re.match(r"-|.*:", str(bundle["git"]), re.DOTALL):  # no option, no address, no user@host:path
            resolve(bundle, "git")


def _complete_pools(raw: RawSettings) -> None:
    """`scheduled` and `backfill` always exist, with defaults of their own for what the file leaves out."""
    pools = raw.values.get("pools", [])
    if not isinstance(pools, list):
        return  # an error of validation
    defaults = {pool["name"]: dict(pool) for pool in DEFAULT_POOLS}
    for n, pool in enumerate(pools):
        if isinstance(pool, dict) and isinstance(pool.get("name"), str) and pool["name"] in defaults:
            pools[n] = {**defaults[pool["name"]], **pool}
    names = [pool.get("name") for pool in pools if isinstance(pool, dict)]
    raw.values["pools"] = [*pools, *(pool for name, pool in defaults.items() if name not in names)]


def _read_environment(environ: Mapping[str, str], raw: RawSettings) -> None:
    for variable in sorted(environ):
        if not variable.startswith(_PREFIX) or variable.startswith(SECRET_PREFIX):
            continue
        parts = variable.removeprefix(_PREFIX).lower().split("__")
        if len(parts) == 1 and parts[0] not in Settings.model_fields:
            name, known = variable.removeprefix(_PREFIX), [*map(str.upper, Settings.model_fields), *_OTHER_VARIABLES]
            meant = [one for one in _variables(raw) if one.replace("__", "_") == variable]
            meant += [_PREFIX + one for one in difflib.get_close_matches(name, known, n=1, cutoff=_MISSPELT)]
            if name not in known and meant:
                raw.warnings.append(f"environment, {variable}: it sets nothing; did you mean '{meant[0]}'?")
            continue  # BFM_CONF, BFM_CACHE and whatever else is no section
        loc = _locate(parts, raw)
        if loc is None:
            hint = nearest(variable, _variables(raw), n=1) or "; such a setting is BFM_LEASE__SECONDS"
            raw.errors.append(f"environment, {variable}: there is no such setting{hint}")
            continue
        value: Any = environ[variable]  # pydantic reads numbers and truth values from text
        if value.lstrip().startswith(("[", "{")) and not _is_text(_annotation(loc)):
            try:
                document, *others = read_documents(value, strict=False)
                for problem in document.duplicates:
                    raise problem
            except YamlError as error:
                raw.errors.append(f"environment, {variable}: not valid YAML or JSON: {error}")
                continue
            if others:
                raw.errors.append(f"environment, {variable}: only one YAML document is read")
            value = document.value
        _put(raw.values, loc, value)
        if loc == ("pools",):
            _complete_pools(raw)
        raw.places = {at: place for at, place in raw.places.items() if at[: len(loc)] != loc}
        raw.places[loc] = f"environment, {variable}"


def _locate(parts: list[str], raw: RawSettings) -> Loc | None:
    """Where in the settings a variable points: `["pools", "backfill", "slots"]` -> `("pools", 1, "slots")`."""
    loc: Loc = ()
    model: type[BaseModel] | None = Settings
    values: Any = raw.values
    for part in parts:
        if isinstance(values, list):
            names = [_variable_part(v.get("name")) if isinstance(v, dict) else None for v in values]
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
    at: Any = values
    for step in loc[:-1]:
        if isinstance(at, dict) and not isinstance(at.get(step), dict | list):
            at[step] = {}
        at = at[step]
    at[loc[-1]] = value


def _variables(raw: RawSettings) -> Iterator[str]:
    for name, info in Settings.model_fields.items():
        yield f"{_PREFIX}{name.upper()}"
        model, entries, infixes = _model_of(info.annotation), raw.values.get(name), [""]
        if isinstance(entries, list):
            infixes = [f"{_variable_part(entry.get('name'))}__" for entry in entries if isinstance(entry, dict)]
        for key in model.model_fields if model else ():
            yield from (f"{_PREFIX}{name.upper()}__{infix}{key.upper()}" for infix in infixes)


def _variable_part(name: Any) -> str:
    return "".join(c if c.isalnum() else "_" for c in str(name)).upper()


def _describe(detail: ErrorDetails, raw: RawSettings, model: type[BaseModel]) -> str:
    loc: Loc = detail["loc"]
    dotted = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in loc).removeprefix(".")
    where = f"{raw.place(loc)}: {dotted}" if loc else f"{raw.place(loc)}:"
    if detail["type"] == "extra_forbidden":
        known = _keys_at(loc[:-1], model)
        return f"{where} is not a setting{nearest(str(loc[-1]), known, n=1) or '; known here: ' + ', '.join(known)}"
    if detail["type"] == "missing":
        return f"{where} is missing"
    # A text in place of a list of tokens, or of Spark's properties, may be the secret that belongs into it.
    is_in_place = detail["type"] in _OF_PARTS and isinstance(detail["input"], str)
    return f"{where} {describe_error({**detail, 'input': ()} if is_in_place else detail)}"


def _keys_at(loc: Loc, model: type[BaseModel]) -> list[str]:
    at: type[BaseModel] | None = model
    for step in loc:
        if isinstance(step, str) and at is not None:
            at = _model_of(at.model_fields[step].annotation)
    return list(at.model_fields) if at else []


def _annotation(loc: Loc) -> Any:
    """Of the setting there; one that is no field of a section (`spark.conf` has any key) is not known: None."""
    at: Any = Settings
    for step in loc:
        if isinstance(step, str):
            model = _model_of(at)
            at = model.model_fields[step].annotation if model is not None and step in model.model_fields else None
    return at


def _is_text(annotation: Any) -> bool:
    """Whether it is a text, or a text or null."""
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is typing.Annotated:
        return _is_text(arguments[0])
    if origin in (typing.Union, UnionType):
        return all(one is type(None) or _is_text(one) for one in arguments)
    return annotation in (str, SecretStr)


def _model_of(annotation: Any) -> type[BaseModel] | None:
    """The section inside `X`, `list[X]`, `Annotated[list[X], ...]`, `X | None`."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    return next((model for arg in typing.get_args(annotation) if (model := _model_of(arg))), None)
