"""The files under `static/`, served by an address that holds the hash of their content: kept for ever, never stale.

One hash stands for all of them, so that a module finds its neighbours by relative names.
"""

from __future__ import annotations

import hashlib
import mimetypes
from functools import cache
from importlib import resources
from typing import TYPE_CHECKING, Final

from starlette.responses import Response

if TYPE_CHECKING:
    from importlib.abc import Traversable

FOR_EVER: Final = "public, max-age=31536000, immutable"
_TYPES: Final = {".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml", ".txt": "text/plain"}


@cache
def files() -> dict[str, bytes]:
    """Name (`vendor/htmx.min.js`) -> content, of all there are."""
    return dict(_walk(resources.files("backfill_manager.web").joinpath("static"), ""))


def _walk(folder: Traversable, prefix: str) -> list[tuple[str, bytes]]:
    found: list[tuple[str, bytes]] = []
    for one in sorted(folder.iterdir(), key=lambda one: one.name):
        if one.is_dir():
            found += _walk(one, f"{prefix}{one.name}/")
        elif not one.name.startswith("."):
            found.append((f"{prefix}{one.name}", one.read_bytes()))
    return found


@cache
def digest() -> str:
    told = hashlib.sha256()
    for name, content in files().items():
        told.update(name.encode() + b"\0" + hashlib.sha256(content).digest())
    return told.hexdigest()[:12]


def static(name: str) -> str:
    """The address of a file, for templates; `KeyError` for one that is not there, so that a wrong name is found by tests."""
    if name not in files():
        raise KeyError(f"there is no static file {name!r}")
    return f"/static/{digest()}/{name}"


def static_response(wanted: str, name: str) -> Response | None:
    """The file, or None. One that is asked for by an older hash is given too, but not kept."""
    content = files().get(name)
    if content is None:
        return None
    kind = next((kind for end, kind in _TYPES.items() if name.endswith(end)), None)
    media = kind or mimetypes.guess_type(name)[0] or "application/octet-stream"
    cached = FOR_EVER if wanted == digest() else "no-cache"
    return Response(content, media_type=media, headers={"Cache-Control": cached})
