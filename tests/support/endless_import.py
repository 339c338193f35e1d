"""Nobody gets through importing this module."""

from __future__ import annotations

import threading

threading.Event().wait()
