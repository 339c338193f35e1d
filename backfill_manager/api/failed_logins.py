"""`FailedLogins`: counts, limits and logs requests and logins with a wrong token.

They are counted for each wrong token at an address, and for all of an address. A right token is never counted here, so nobody is
refused for the wrong tokens of others, even behind one address.
"""

from __future__ import annotations

import threading
from typing import Final

from backfill_manager.api.client_addresses import network_of
from backfill_manager.api.token_buckets import TokenBuckets
from backfill_manager.clock import Clock
from backfill_manager.errors import RateLimited
from backfill_manager.logging import get_logger

OF_TOKEN: Final = 5  # at once; then one a second
OF_ADDRESS: Final = 20  # at once; then five a second, so that one program with a wrong token does not use them up
log = get_logger("api")


class FailedLogins:
    def __init__(self, clock: Clock, *, of_token: int = OF_TOKEN, of_address: int = OF_ADDRESS) -> None:
        self._of_token = TokenBuckets(clock, per_second=1, at_once=of_token)
        self._of_address = TokenBuckets(clock, per_second=5, at_once=of_address)
        self._lock = threading.Lock()  # logins are handled in threads

    def check(self, address: str, digest: str) -> None:
        """Raises `RateLimited` when this wrong token, or this address, has failed too often."""
        network = network_of(address)
        with self._lock:
            may_try = self._of_token.has((network, digest)) and self._of_address.has(network)
        if not may_try:
            raise RateLimited(f"Too many logins from {network} have failed; try again in a second.")

    def add(self, address: str, digest: str, *, by: str | None, reason: str) -> None:
        """Counts and logs a failed login. `by`: the owner, when the token is known."""
        network = network_of(address)
        with self._lock:
            self._of_token.take((network, digest))
            self._of_address.take(network)
        log.warning("login failed", by=by, reason=reason, address=address)
