"""Run parameters: `Param`, as an author declares one, and `ParamSpec`, what a DAG's definition holds of it.

A param that is given as a plain default value has no `ParamSpec`: only its name is known, and it may have any value.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from backfill_manager.errors import nearest, shorten
from backfill_manager.humanise import name_list
from backfill_manager.masking import MASK

PARAM_TYPES: Final[dict[str, tuple[type, ...]]] = {
    "string": (str,), "integer": (int,), "number": (int, float), "boolean": (bool,), "array": (list,), "object": (dict,),
}  # fmt: skip
_OF_PYTHON: Final[dict[Any, str]] = {
    str: "string", int: "integer", float: "number", bool: "boolean", list: "array", dict: "object"
}  # fmt: skip


@dataclass(frozen=True)
class Param:
    """A run parameter. Without a `default`, every run must set it. `type` is the name of a JSON type (`"integer"`) or a Python
    type (`int`). If it is left out, it follows from the default or the choices.
    A value can be null only if the default is null."""

    default: Any = ...
    type: str | type | None = None
    choices: Sequence[Any] = ()
    description: str = ""


@dataclass(frozen=True)
class ParamSpec:
    """What is declared of a param beside its default."""

    type: str | None = None  # None: any
    choices: tuple[Any, ...] = ()
    description: str = ""
    is_required: bool = False
    is_nullable: bool = False

    def problem(self, value: Any) -> str:
        """What the value must be instead; empty for one that is right."""
        if value is None and self.is_nullable:
            return ""
        if self.type is not None and not _is_of(self.type, value):
            return f"must be of type {self.type}"
        if self.choices and value not in self.choices:
            return f"must be one of {', '.join(map(as_json, self.choices))}"
        return ""

    def describe(self) -> str:
        """`string, one of "eu", "us"; the region to copy`."""
        choices = f"one of {', '.join(map(as_json, self.choices))}" if self.choices else ""
        rules = ", ".join(part for part in (self.type, choices, "required" if self.is_required else "") if part)
        return "; ".join(part for part in (rules, self.description) if part)


def as_json(value: Any) -> str:
    """In a message: the beginning of what is long."""
    return shorten(json.dumps(value, ensure_ascii=False), 100)


def split_params(params: Mapping[str, Any]) -> dict[str, Any]:
    """Params as `read_params` gives them, as the fields of a definition: the defaults, and what is declared beside them."""
    defaults = {name: value.default if isinstance(value, Param) else value for name, value in params.items()}
    declared = {name: _spec(value) for name, value in params.items() if isinstance(value, Param)}
    given = {name: value for name, value in defaults.items() if value is not ...}
    return {"params": given, "declared_params": declared}


def _spec(param: Param) -> ParamSpec:
    kind = param.type if isinstance(param.type, str) else None
    return ParamSpec(kind, tuple(param.choices), param.description, param.default is ..., param.default is None)


def read_params(value: Any) -> dict[str, Any]:
    """The setting `params`: each a plain default, or a `Param` whose type is spelled out. `ValueError` for what is wrong."""
    if not isinstance(value, Mapping) or not all(isinstance(name, str) for name in value):
        raise ValueError(f"must be a dict with texts as keys, not {value!r}")
    try:
        return {name: _read(name, each) if isinstance(each, Param) else _plain(each) for name, each in value.items()}
    except TypeError as error:
        raise ValueError(f"must be JSON values all through: {error}") from None


def read_yaml_params(value: Any) -> dict[str, Any]:
    """The same of a YAML file, where a mapping with one of the types as its `type` declares a param. One that declares a default
    or choices and no such type is a mistake, not a default."""
    if isinstance(value, Mapping):
        for name, each in value.items():
            _refuse_without_type(name, each)
        value = {name: _from_yaml(name, each) if _is_declared(each) else each for name, each in value.items()}
    return read_params(value)


def _is_declared(value: Any) -> bool:
    return isinstance(value, Mapping) and isinstance(kind := value.get("type"), str) and kind in PARAM_TYPES


def _refuse_without_type(name: Any, value: Any) -> None:
    known = Param.__dataclass_fields__.keys()
    if (
        _is_declared(value)
        or not isinstance(value, Mapping)
        or not {"default", "choices"} & value.keys()
        or value.keys() - known
    ):
        return
    kind = value.get("type")
    near = nearest(str(kind), PARAM_TYPES, n=1) or f"; the types are {name_list(list(PARAM_TYPES))}"
    raise ValueError(f"{name!r} has {'no type' if kind is None else f'the type {kind!r}, which is none'}{near}")


def _from_yaml(name: Any, declared: Mapping[str, Any]) -> Param:
    known = tuple(Param.__dataclass_fields__)
    for key in declared:
        if key not in known:
            raise ValueError(
                f"{name!r} has no setting {key!r}{nearest(str(key), known) or f'; known are {name_list(known)}'}"
            )
    return Param(**declared)


def _plain(value: Any) -> Any:
    """A copy as JSON reads it back; `TypeError` for what it can't hold."""
    try:
        return json.loads(json.dumps(value, allow_nan=False))
    except ValueError as error:  # NaN, a circle
        raise TypeError(error) from None


def _read(name: str, param: Param) -> Param:
    default = param.default if param.default is ... else _plain(param.default)
    choices = _plain(param.choices) if isinstance(param.choices, list | tuple) else None
    if choices is None or (not choices and param.choices != ()):
        raise ValueError(f"the choices of {name!r} must be a list of values, not {param.choices!r}")
    if not isinstance(param.description, str):
        raise ValueError(f"the description of {name!r} must be text, not {param.description!r}")
    given = [value for value in (default, *choices) if value is not ... and value is not None]
    kind = _type_of(name, param.type, given)
    made = Param(default, kind, tuple(choices), param.description)
    declared = _spec(made)
    for value in choices:
        if problem := ParamSpec(kind).problem(value):
            raise ValueError(f"a choice of {name!r} {problem}, not {as_json(value)}; say which type it has with type=")
    if default is not ... and (problem := declared.problem(default)):
        raise ValueError(f"the default of {name!r} {problem}, not {as_json(default)}")
    return made


def _type_of(name: str, given: Any, values: list[Any]) -> str | None:
    """The name of the type, of the first value where none is given."""
    if given is None:
        return _OF_PYTHON[type(values[0])] if values else None
    kind = _OF_PYTHON.get(given) if isinstance(given, type) else given
    if isinstance(kind, str) and kind in PARAM_TYPES:
        return kind
    near = nearest(str(given), PARAM_TYPES, n=1) or f"; the types are {name_list(list(PARAM_TYPES))}"
    raise ValueError(f"the type of {name!r} is {given!r}, which is no type{near}")


def _is_of(kind: str, value: Any) -> bool:
    return isinstance(value, PARAM_TYPES[kind]) and (kind == "boolean" or not isinstance(value, bool))


def list_params(params: Mapping[str, Any], declared_params: Mapping[str, Any]) -> list[dict[str, Any]]:
    """For tables: each param (defaults and declarations as a DAG's document has them) with its values as JSON."""
    rows = []
    for name in (*params, *(name for name in declared_params if name not in params)):
        one = declared_params.get(name) or {}
        rows.append({
            "param": name, "default": as_json(params[name]) if name in params else "required", "type": one.get("type"),
            "choices": ", ".join(map(as_json, one.get("choices") or ())), "description": one.get("description"),
        })  # fmt: skip
    return rows


def example_conf(params: Mapping[str, Any], declared_params: Mapping[str, Any]) -> str:
    """A `conf` of a DAG (documents as for `list_params`) as JSON: its defaults, and for each required param a value that fits.
    Empty if there are none."""
    values = dict(params)
    for name, one in declared_params.items():
        if name not in values:
            choices = one.get("choices") or ()
            values[name] = choices[0] if choices else PARAM_TYPES.get(one.get("type") or "string", (str,))[0]()
    shown = {name: value for name, value in values.items() if value != MASK}
    return json.dumps(shown, ensure_ascii=False) if shown else ""
