"""How a state root is read: a path, an object store's URI, or `catalog.schema`."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlsplit

from backfill_manager.value_rules import CATALOG_SCHEMA

_SAME_SCHEME: Final = {"s3a": "s3", "s3n": "s3", "abfs": "abfss", "gcs": "gs"}  # ways to spell one storage


def is_catalog_schema(root: str) -> bool:
    """True for `main.jobs`; a folder of that name (`./main.jobs` or one that exists) is a path."""
    return bool(re.fullmatch(CATALOG_SCHEMA, root)) and not Path(root).exists()


def is_local(root: str) -> bool:
    return "://" not in root and not is_catalog_schema(root)


def is_a_file(root: str) -> bool:
    """A file of this machine lies there, where a state would need a folder."""
    return is_local(root) and os.path.isfile(Path(root).expanduser())


def canonical_place(root: str) -> str:
    """The same text for the same place: a path without links, a URI with one spelling of its scheme and without needless
    slashes, `catalog.schema` in small letters."""
    if is_catalog_schema(root):
        return root.lower()
    if is_local(root):
        return os.path.realpath(Path(root).expanduser())
    uri = urlsplit(root)
    scheme = uri.scheme.lower()
    if scheme == "file":
        return os.path.realpath(unquote(uri.path))
    path = re.sub("/{2,}", "/", uri.path).rstrip("/")
    return f"{_SAME_SCHEME.get(scheme, scheme)}://{uri.netloc.lower()}{path}"
