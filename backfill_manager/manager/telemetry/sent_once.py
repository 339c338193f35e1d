"""Remembers what telemetry was sent of: a row is committed again when it changes after its end."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from datetime import datetime
from typing import Final

MAX_REMEMBERED: Final = 20_000


class SentOnce:
    """Of one manager. `since`: what happened before was sent by the manager of that time."""

    def __init__(self, since: datetime) -> None:
        self._since = since
        self._sent = OrderedDict[Hashable, None]()

    def is_new(self, key: Hashable, at: datetime) -> bool:
        """Whether this, which happened then, is to be sent; it counts as sent from now on."""
        if at < self._since or key in self._sent:
            return False
        self._sent[key] = None
        if len(self._sent) > MAX_REMEMBERED:
            self._sent.popitem(last=False)
        return True
