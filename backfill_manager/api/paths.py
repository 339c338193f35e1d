"""Ids in addresses. A partition's run id may hold a slash, which a server takes for the end of a part of the path; sent as
`%2F` it is kept apart here and given back to the handler. So is a percent sign, or an id that holds the very text `%2F` (a
key that somebody has encoded already) would be taken for one with a slash."""

from __future__ import annotations

from typing import Annotated, Final
from urllib.parse import unquote

from fastapi import Path
from pydantic import AfterValidator
from starlette.types import ASGIApp, Receive, Scope, Send

_OF_THE_API: Final = "/api/"


def _spelled(part: str) -> str:
    return part.replace("%", "%25").replace("/", "%2F")


def _as_meant(text: str) -> str:
    return text.replace("%2F", "/").replace("%25", "%")


_OneOfMany = AfterValidator(_as_meant)
Id = Annotated[str, Path(min_length=1, max_length=200), _OneOfMany]
RunId = Annotated[
    str,
    Path(
        min_length=1, max_length=4000,
        description="Its id, a beginning of it, or `latest`; `422` with their names when several DAGs have such a run.",
    ),
    _OneOfMany,
]  # fmt: skip
RunOfDag = Annotated[
    str,
    Path(
        min_length=1, max_length=4000,
        description="Its id, a beginning of it, its logical date in the DAG's zone, or `latest`.",
    ),
    _OneOfMany,
]  # fmt: skip


class KeepSlashes:
    """Lets `/runs/a%2Fb` be the run `a/b`, not the thing `b` of the run `a`."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        raw: bytes = scope.get("raw_path") or b""
        if scope["type"] == "http" and b"%" in raw and scope["path"].startswith(_OF_THE_API):
            parts = raw.decode("latin-1").split("/")
            scope = {**scope, "path": "/".join(_spelled(unquote(part)) for part in parts)}
        await self._app(scope, receive, send)
