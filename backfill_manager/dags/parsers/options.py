"""Options of a parser of a package: what `options` of a bundle may hold, checked by a model that the parser declares."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel, ConfigDict, create_model

from backfill_manager.errors import InvalidConfig
from backfill_manager.settings import Loc, RawSettings


class ParserOptions(BaseModel):
    """Base of a parser's `Options`, a pydantic model. An unknown key is an error that names the nearest known one."""

    model_config = ConfigDict(extra="forbid", frozen=True)


@dataclass(frozen=True)
class SaidOptions:
    """The options of a bundle as they were written: those of its manifest under those of its configuration. `places` are
    the lines of the manifest."""

    values: Mapping[str, Any]
    configured: Mapping[str, Any]
    places: Mapping[Loc, str]
    bundle: str

    def checked(self, model: type[ParserOptions], parser: str) -> ParserOptions:
        """As the parser's model. `InvalidConfig` has a line with the place of each thing that is wrong."""
        where = f"bundle {self.bundle!r}"
        raw = RawSettings({"options": dict(self.values)}, {(): where, **self.places})
        for key in self.configured:
            raw.places = {at: place for at, place in raw.places.items() if at[:2] != ("options", key)}
            raw.places["options", key] = where
        if self.values and not model.model_fields:
            place = raw.place(("options", next(iter(self.values))))
            raise InvalidConfig(f"{place}: options must be left out: the parser {parser!r} has none")
        holder = create_model("Holder", options=(model, ...))
        found: ParserOptions = raw.validate(holder).options  # type: ignore[attr-defined]
        return found
