"""Paths of pages, in links of pages and of messages.

An id may hold any character (a partition key is part of its run's id), a server decodes `%2F` before routing, and a proxy may
decode `%25` once more. So characters that would break a path are written as `~` and two hex digits.
"""

from __future__ import annotations

import re
from typing import Final
from urllib.parse import quote

_UNSAFE: Final = re.compile(r"[~%/\\]|^\.{1,2}$|[\x00-\x1f]")
_ESCAPED: Final = re.compile(r"~([0-9A-F]{2})")


def path_of(*segments: str) -> str:
    """`path_of("dags", dag_id)`"""
    return "/" + "/".join(map(segment, segments))


def from_segment(text: str) -> str:
    """Unescapes a segment that the server has URL-decoded already."""
    return _ESCAPED.sub(lambda match: chr(int(match[1], 16)), text)


def segment(text: str) -> str:
    """Escapes one segment of a path."""
    escaped = _UNSAFE.sub(lambda match: "".join(f"~{ord(c):02X}" for c in match[0]), text)
    return quote(escaped, safe=":@=,+~")
