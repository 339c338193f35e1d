"""Addresses of clients: loopback, what counts as one address, and what trusted proxies say of their clients."""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from typing import Any

from fastapi import Request
from uvicorn.middleware.proxy_headers import ProxyHeadersMiddleware


def is_loopback(host: str) -> bool:
    """`localhost`, 127.x.x.x, ::1, also with a port or in brackets."""
    name = host.strip().lower()
    if name.startswith("["):
        name = name[1:].partition("]")[0]
    elif name.count(":") == 1:
        name = name.partition(":")[0]
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
    return any(parsed in ipaddress.ip_network(network) for network in networks)


def client_address(request: Request) -> str:
    """The address of the client: of the connection, or what a trusted proxy says (`TrustedProxies`)."""
    return request.client.host if request.client else "unknown"


class TrustedProxies(ProxyHeadersMiddleware):
    """Takes client and scheme from `X-Forwarded-For` and `X-Forwarded-Proto` where the connection is one of
    `api.trusted_proxies`. The client is the last address there that is no such proxy: those before it may be forged."""

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http" and scope.get("client"):
            host, port = scope["client"]
            scope["client"] = without_mapping(host), port
        await super().__call__(scope, receive, send)
