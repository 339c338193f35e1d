"""A process that writes its environment variables to a descriptor."""

from __future__ import annotations

import json
import os
from typing import Any, NoReturn


def run(_: dict[str, Any], descriptors: list[int]) -> NoReturn:
    os.write(descriptors[0], json.dumps(dict(os.environ)).encode())
    os._exit(0)
