"""Addresses of clients: loopback, what counts as one address, and what trusted proxies say of their clients."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Sequence
from functools import lru_cache
from typing import Final

from fastapi import Request
from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

UNKNOWN: Final = "unknown"  # the client whose address is not known
_WITH_PORT: Final = re.compile(r"([\d.]+):\d{1,5}|\[([^\]]*)\](?::\d{1,5})?")


def is_loopback(host: str) -> bool:
    """`localhost`, 127.x.x.x, ::1, also with a port or in brackets."""
    name = host.strip().lower()
    if name.startswith("[") or name.count(":") == 1:
        name = re.sub(r":\d*\Z", "", name)
    if bracketed := re.fullmatch(r"\[(.*)\]", name):
        name = bracketed[1]
    if name.rstrip(".") == "localhost":
        return True
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False


def without_mapping(address: str) -> str:
    """`::ffff:192.0.2.7`, as a socket for both families has it, is `192.0.2.7`."""
    try:
        parsed = ipaddress.ip_address(address)
    except ValueError:
        return address
    return str(getattr(parsed, "ipv4_mapped", None) or address)


def network_of(address: str) -> str:
    """What counts as one address: for IPv6 the network of 64 bits, as one client may use all its addresses."""
    try:
        parsed = ipaddress.ip_address(without_mapping(address.partition("%")[0]))
    except ValueError:
        return address
    if isinstance(parsed, ipaddress.IPv4Address) or parsed.is_loopback:
        return str(parsed)
    return str(ipaddress.ip_network((parsed, 64), strict=False))


def is_in(address: str, networks: Sequence[str]) -> bool:
    try:
        parsed = ipaddress.ip_address(without_mapping(address))
    except ValueError:
        return False
    return any(parsed in _network(network) for network in networks)


def client_address(request: Request) -> str:
    """The address of the client: of the connection, or what a trusted proxy says (`TrustedProxies`)."""
    return request.client.host if request.client else UNKNOWN


class TrustedProxies:
    """Takes client and scheme from `X-Forwarded-For` and `X-Forwarded-Proto` where the connection is one of
    `api.trusted_proxies`. Each proxy appends to both, so both are read from their ends:

    - The client is the last address that is no such proxy: those before it may be forged. What can't be
      parsed is no proxy: the client then is `UNKNOWN`; all of these share one limit, and none is of this machine.
    - The scheme is by which this client came to the outermost of these proxies: the value as far from the end as the client,
      or, of fewer, the first. What stands before it may be forged.
    """

    def __init__(self, app: ASGIApp, *, networks: Sequence[str]) -> None:
        self._app, self._networks = app, networks

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope.get("client"):
            host, port = scope["client"]
            scope["client"] = without_mapping(host), port
            if is_in(host, self._networks):
                headers = Headers(scope=scope)
                addresses, schemes = _values(headers, "x-forwarded-for"), _values(headers, "x-forwarded-proto")
                hops = 1
                if addresses:
                    client, hops = self._client(addresses)
                    scope["client"] = client, 0
                if schemes and (scheme := schemes[-min(hops, len(schemes))].lower()) in ("http", "https"):
                    scope["scheme"] = scheme
        await self._app(scope, receive, send)

    def _client(self, addresses: Sequence[str]) -> tuple[str, int]:
        """And its place, counted from the end."""
        address = UNKNOWN
        for hops, written in enumerate(reversed(addresses), start=1):
            address = _address(written)
            if not is_in(address, self._networks):
                return address, hops
        return address, len(addresses)


def _values(headers: Headers, name: str) -> list[str]:
    """Of one line, or of several."""
    return [value.strip() for line in headers.getlist(name) for value in line.split(",")]


def _address(written: str) -> str:
    """An address as proxies write it, with or without a port: `192.0.2.7:4711`, `[2001:db8::7]:4711`."""
    bare = _WITH_PORT.fullmatch(written)
    try:
        return without_mapping(str(ipaddress.ip_address(bare[1] or bare[2] if bare else written)))
    except ValueError:
        return UNKNOWN


@lru_cache(maxsize=256)
def _network(text: str) -> ipaddress.IPv4Network | ipaddress.IPv6Network:
    network = ipaddress.ip_network(text)
    if isinstance(network, ipaddress.IPv6Network) and (mapped := network.network_address.ipv4_mapped):
        return ipaddress.ip_network((mapped, max(network.prefixlen - 96, 0)))
    return network
