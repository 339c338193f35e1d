"""The result of a command line: exit code, standard output, standard error."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Said:
    code: int
    out: str
    err: str

    @property
    def document(self) -> Any:
        return json.loads(self.out)

    @property
    def error(self) -> str:
        """The one line that tells what is wrong; nothing else may have been said."""
        assert self.out == ""
        assert "Traceback" not in self.err
        [line] = self.err.splitlines()
        return line


Bfm = Callable[..., Said]
