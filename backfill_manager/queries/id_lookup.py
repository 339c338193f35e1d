"""Finds an object by what a person types: its id, a unique prefix of it, or `latest`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from backfill_manager.errors import Ambiguous, NotFound

LATEST: Final = "latest"


def choose(kind: str, id_or_prefix: str, newest_first: Sequence[str], hint: str | None = None) -> str:
    """The one id that `id_or_prefix` means. `NotFound` offers the nearest, `Ambiguous` lists those that begin so."""
    if id_or_prefix == LATEST:
        if newest_first:
            return newest_first[0]
        raise NotFound(kind, id_or_prefix, hint=hint, more=f"; there is no {kind} at all.")
    if id_or_prefix in newest_first:
        return id_or_prefix
    matches = [one for one in newest_first if id_or_prefix and one.startswith(id_or_prefix)]
    if not matches:
        raise NotFound(kind, id_or_prefix, newest_first, hint)
    if len(matches) > 1:
        raise Ambiguous(kind, id_or_prefix, matches)
    return matches[0]
