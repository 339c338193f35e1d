"""Addresses of pages. An id may hold any character (a partition key is part of its run's id), a server decodes `%2F` before
it looks for the route, and a proxy may decode `%25` once more; so what would break a path is spelled with `~` and two hex
digits."""

from __future__ import annotations

import re
from typing import Any, Final
from urllib.parse import quote, urlencode

_BREAKS: Final = re.compile(r"[~%/\\]|^\.{1,2}$|[\x00-\x1f]")
_SPELLED: Final = re.compile(r"~([0-9A-F]{2})")


def segment(text: str) -> str:
    """One part of a path, ready for a link."""
    spelled = _BREAKS.sub(lambda found: "".join(f"~{ord(c):02X}" for c in found[0]), text)
    return quote(spelled, safe=":@=,+~")


def from_segment(text: str) -> str:
    """The reverse, for what the server has decoded already."""
    return _SPELLED.sub(lambda found: chr(int(found[1], 16)), text)


def to(*parts: str, **query: Any) -> str:
    """`to("dags", dag_id, "graph", run="latest")`; parameters that are None or empty are left out."""
    path = "/" + "/".join(segment(part) for part in parts)
    said = {name: value for name, value in query.items() if value not in (None, "", False)}
    return f"{path}?{urlencode(said, doseq=True)}" if said else path


def to_run(dag_id: str, run_id: str, *more: str, **query: Any) -> str:
    """The page of a run, or with `"tasks", task_id` of a task in it. A run id is unique within its DAG only, so the DAG is a
    part of the address."""
    return to("dags", dag_id, "runs", run_id, *more, **query)


def is_own(path: str | None) -> bool:
    """Whether a form may lead there: a path of this server, never another host (`//evil`, `/\\evil`)."""
    return path is not None and re.fullmatch(r"/(?![/\\])[^\x00-\x20\\]*", path) is not None
