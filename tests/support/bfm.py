"""The result of one command line: exit code, standard output, standard error."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class BfmResult:
    code: int
    out: str
    err: str

    @property
    def document(self) -> Any:
        return json.loads(self.out)

    @property
    def error(self) -> str:
        """The one line of an error; there is no other output."""
        assert self.out == ""
        assert "Traceback" not in self.err
        [line] = self.err.splitlines()
        return line


Bfm = Callable[..., BfmResult]
