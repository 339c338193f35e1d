"""What a declared field is, for whoever shows it: the command line's options, forms, messages.

`option` declares a field with what only interfaces need; `fields_of` reads all that is declared.
"""

from __future__ import annotations

import types
import typing
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal

from pydantic import BaseModel, Field
from pydantic.fields import FieldInfo


@dataclass(frozen=True)
class Option:
    """`spellings` on the command line, if not the field's name with dashes; `none`: what None means, in text; `as_text`: it is
    typed as text, which the field reads: `2 GB`, `none`."""

    spellings: tuple[str, ...] = ()
    metavar: str | None = None
    none: str | None = None
    as_text: bool = False


def option(
    default: Any, help: str, *spellings: str, label: str | None = None, metavar: str | None = None,
    none: str | None = None, as_text: bool = False, **more: Any,
) -> Any:  # fmt: skip
    """Declares a field that may be left out, with its `Option`; the label is the field's name unless one is given, and
    `more` goes to pydantic's `Field`."""
    declared = Field(default=default, title=label, description=help, **more)
    declared.metadata.append(Option(spellings, metavar, none, as_text))
    return declared


@dataclass(frozen=True)
class DeclaredField:
    """A declared field. `type` is str, int, bool, dict, datetime, ...; of a list (`is_list`), that of its items."""

    name: str
    label: str
    help: str
    type: Any
    default: Any  # None too when the field must be given: see `is_required`
    is_required: bool
    is_list: bool
    may_be_none: bool
    choices: tuple[str, ...]
    low: int | None
    option: Option

    @property
    def spellings(self) -> tuple[str, ...]:
        """As options of the command line, the long one first."""
        return self.option.spellings or (f"--{self.name.replace('_', '-')}",)


@cache
def fields_of(model: type[BaseModel]) -> Mapping[str, DeclaredField]:
    """The fields of a command or a resource in the order of their declaration."""
    return {name: _field(name, info) for name, info in model.model_fields.items()}


def _field(name: str, info: FieldInfo) -> DeclaredField:
    base, metadata = _unwrapped(info.annotation, list(info.metadata))
    is_list = typing.get_origin(base) in (tuple, list)
    may_be_none = False
    if is_list:
        base, _ = _unwrapped(typing.get_args(base)[0], [])
    elif typing.get_origin(base) in (typing.Union, types.UnionType):
        others = [each for each in typing.get_args(base) if each is not type(None)]
        may_be_none = len(others) < len(typing.get_args(base))
        base, metadata = _unwrapped(others[0], metadata)
    choices: tuple[str, ...] = ()
    if typing.get_origin(base) is Literal:
        choices, base = typing.get_args(base), str

    low = next((each.ge for each in metadata if getattr(each, "ge", None) is not None), None)
    return DeclaredField(
        name=name, label=info.title or name.replace("_", " ").capitalize(), help=info.description or "",
        type=typing.get_origin(base) or base, default=None if info.is_required() else info.default,
        is_required=info.is_required(), is_list=is_list, may_be_none=may_be_none, choices=choices, low=low,
        option=next((each for each in metadata if isinstance(each, Option)), Option()),
    )  # fmt: skip


def _unwrapped(annotation: Any, metadata: list[Any]) -> tuple[Any, list[Any]]:
    """Without `Annotated`, whose metadata is added; that of a `Field` in it is spread out."""
    while typing.get_origin(annotation) is typing.Annotated:
        annotation, *more = typing.get_args(annotation)
        for each in more:
            metadata = [*metadata, *(each.metadata if isinstance(each, FieldInfo) else (each,))]
    return annotation, metadata
