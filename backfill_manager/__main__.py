"""`python -m backfill_manager` is `bfm`."""

from __future__ import annotations

import sys

from backfill_manager.cli import main

if __name__ == "__main__":
    sys.exit(main())
