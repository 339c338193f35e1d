"""What every command has: it is a frozen pydantic model that takes its values strictly, no "1" for 1, no unknown field."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Final

from pydantic import BaseModel, ConfigDict, ValidationError
from typing_extensions import Self

from backfill_manager.schemas.errors import invalid_input

CONFIG: Final = ConfigDict(frozen=True, extra="forbid", strict=True, defer_build=True)


registered: dict[str, type[Command]] = {}  # by kind; complete once `schemas.commands` is imported


class Command(BaseModel):
    """A request to the manager. One with a `kind` is a payload of the request table."""

    model_config = CONFIG
    KIND: ClassVar[str] = ""

    def __init_subclass__(cls, kind: str = "", **config: Any) -> None:
        super().__init_subclass__(**config)
        cls.KIND = kind
        if kind:
            registered[kind] = cls

    @classmethod
    def parse(cls, values: Mapping[str, Any]) -> Self:
        """The command of these values; `InvalidInput` names the field and what would be right."""
        try:
            return cls.model_validate(dict(values))
        except ValidationError as error:
            raise invalid_input(error, cls) from None

    def check(self) -> None:
        """`InvalidInput` for what is wrong beyond types and limits, whatever the state holds."""

    def evolve(self, **changes: Any) -> Self:
        """A copy with other values, which must be valid."""
        return self.model_copy(update=changes)

    def to_payload(self) -> dict[str, Any]:
        """The values as JSON, in the layout of the request table."""
        return self.model_dump(mode="json")
