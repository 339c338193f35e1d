"""A typed client of the REST API.

    from backfill_manager.client import Client

    with Client("http://127.0.0.1:8099", token) as bfm:
        request = bfm.create_backfill("flights", start_date="2013-01-01", end_date="2013-01-31", wait=10)
        for backfill in bfm.watch(request.payload["backfill_id"]):
            print(backfill.state, backfill.success, "of", backfill.planned)

`client` has a method for each route; the results are `schemas.resources` (here `models`), the errors those of `errors`.
`connection` sends and retries. Imports httpx, pydantic, and `errors`, `clock`, `schemas`.
"""

from __future__ import annotations

from backfill_manager.client.client import Client
from backfill_manager.errors import Forbidden, NoActiveManager, RateLimited, Unauthenticated, Unreachable
from backfill_manager.schemas import resources as models

__all__ = ["Client", "Forbidden", "NoActiveManager", "RateLimited", "Unauthenticated", "Unreachable", "models"]
