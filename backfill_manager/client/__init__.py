"""A typed client of the REST interface.

    from backfill_manager.client import Client

    with Client("http://127.0.0.1:8099", token) as bfm:
        asked = bfm.create_backfill("flights", start_date="2013-01-01", end_date="2013-01-31", wait=10)
        for backfill in bfm.watch(asked.payload["backfill_id"]):
            print(backfill.state, backfill.success, "of", backfill.planned)

`server` holds the methods, one for each route; `things` what they give back, `connection` how they are sent (and sent
again), `live` the watching, `problems` the errors. Knows httpx, pydantic, tenacity, and `errors` and `clock`.
"""

from __future__ import annotations

from backfill_manager.client.client import Client
from backfill_manager.client.errors import Forbidden, NoActiveManager, RateLimited, Unauthenticated, Unreachable

__all__ = ["Client", "Forbidden", "NoActiveManager", "RateLimited", "Unauthenticated", "Unreachable"]
