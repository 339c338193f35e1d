"""The files of `static/`, served under a hash of their content, so that browsers may cache them for ever.

One hash covers all files, so that modules import each other by relative names. Not starlette's `StaticFiles`: that needs a
directory, and the package may be imported from a zip (`--py-files`).
"""

from __future__ import annotations

import hashlib
import mimetypes
from functools import cache
from pathlib import PurePath
from typing import Final

from starlette.responses import Response

from backfill_manager.package_files import package_files

IMMUTABLE: Final = "public, max-age=31536000, immutable"
_TYPES: Final = {".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml", ".txt": "text/plain"}


@cache
def files() -> dict[str, bytes]:
    """Content by name (`vendor/htmx.min.js`)."""
    return package_files("backfill_manager.web", "static")


@cache
def digest() -> str:
    total = hashlib.sha256()
    for name, content in files().items():
        total.update(name.encode() + b"\0" + hashlib.sha256(content).digest())
    return total.hexdigest()[:12]


def static(name: str) -> str:
    """The address of a file, for templates; `KeyError` for an unknown name."""
    if name not in files():
        raise KeyError(f"there is no static file {name!r}")
    return f"/static/{digest()}/{name}"


def static_response(requested_digest: str, name: str) -> Response | None:
    """The file, or None. Under an outdated hash it is served, but not cached."""
    content = files().get(name)
    if content is None:
        return None
    media_type = _TYPES.get(PurePath(name).suffix) or mimetypes.guess_type(name)[0] or "application/octet-stream"
    cached = IMMUTABLE if requested_digest == digest() else "no-cache"
    return Response(content, media_type=media_type, headers={"Cache-Control": cached})
