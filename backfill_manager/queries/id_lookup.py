"""How a person names a thing: its whole id, any beginning that only one has, or `latest`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from backfill_manager.errors import Ambiguous, NotFound

LATEST: Final = "latest"


def choose(kind: str, wanted: str, newest_first: Sequence[str], hint: str | None = None) -> str:
    """The one id that `wanted` means. `NotFound` offers the nearest, `Ambiguous` lists those that begin so."""
    if wanted == LATEST:
        if newest_first:
            return newest_first[0]
        raise NotFound(kind, wanted, hint=hint, more=f"; there is no {kind} at all.")
    if wanted in newest_first:
        return wanted
    begin_so = [one for one in newest_first if wanted and one.startswith(wanted)]
    if not begin_so:
        raise NotFound(kind, wanted, newest_first, hint)
    if len(begin_so) > 1:
        raise Ambiguous(kind, wanted, begin_so)
    return begin_so[0]
