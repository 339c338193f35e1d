"""Keeps PySpark from importing numpy, pandas and pyarrow in processes that use none of them.

PySpark asks `from pyspark.testing.utils import have_numpy` before it looks whether a value is one of numpy's, in `F.lit` and in
each call that hands a list to the JVM, and that module imports all three. No value is numpy's as long as numpy is not imported.
So this module stands in its place; whoever wants anything else of it gets the real one.
"""

from __future__ import annotations

import importlib
import sys
from types import ModuleType
from typing import Any, Final

_NAME: Final = "pyspark.testing.utils"


class _WithoutNumpy(ModuleType):
    def __getattr__(self, name: str) -> Any:
        if name == "have_numpy":
            return "numpy" in sys.modules
        if name.startswith("__"):
            raise AttributeError(name)
        if sys.modules.get(_NAME) is self:
            del sys.modules[_NAME]
        return getattr(importlib.import_module(_NAME), name)


sys.modules.setdefault(_NAME, _WithoutNumpy(_NAME))
