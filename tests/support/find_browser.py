"""Finds the browser of this machine; does not import Playwright."""

from __future__ import annotations

import os
import shutil

CI = os.environ.get("CI", "").lower() in ("1", "true")
NAMES = ("chromium", "chromium-browser", "google-chrome")
MISSING = (
    f"No test in a browser: there is no {', '.join(NAMES[:-1])} or {NAMES[-1]} (Debian: apt-get install chromium)."
)


def find_browser() -> str | None:
    return next((found for found in map(shutil.which, NAMES) if found), None)
