"""How a state root is read: a path, an object store's URI, or `catalog.schema`."""

from __future__ import annotations

import re
from pathlib import Path

_CATALOG_SCHEMA = re.compile(r"[A-Za-z_]\w*\.[A-Za-z_]\w*")


def is_catalog_schema(root: str) -> bool:
    """True for `main.jobs`; a folder of that name (`./main.jobs` or one that exists) is a path."""
    return bool(_CATALOG_SCHEMA.fullmatch(root)) and not Path(root).exists()


def is_local(root: str) -> bool:
    return "://" not in root and not is_catalog_schema(root)
