"""`bfm serve`: the REST API and the web pages over a state, without a manager and without a JVM."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, Annotated

import typer

from backfill_manager.cli.context import CliContext, command

if TYPE_CHECKING:
    from backfill_manager.api.app import App
    from backfill_manager.store.base import Store


def register(app: typer.Typer) -> None:
    command(app, "serve")(serve)


def serve(
    call: CliContext,
    host: Annotated[
        str | None,
        typer.Option("--host", metavar="HOST", help="Where to listen. \\[default: api.host, which is 127.0.0.1]"),
    ] = None,
    port: Annotated[
        int | None,
        typer.Option("--port", min=0, max=65535, metavar="N", help="0: any. \\[default: api.port, which is 8099]"),
    ] = None,
) -> None:
    """Serve the web pages and the REST API, until Ctrl-C.

    Pages are at /, the API at /api/v1. Any number may run beside a manager or without one. Other machines are let in only
    when tokens are configured: [cyan]bfm config token NAME[/].

    Example: [cyan]bfm serve --port 8099[/]
    """
    from backfill_manager.api import server
    from backfill_manager.descriptors import raise_limit

    raise_limit()
    settings = call.settings
    host = host or settings.api.host
    server.check_host(settings, host)
    app = site(call, call.any_store)
    bound = server.listen(host, settings.api.port if port is None else port)
    url = server.url_of(bound)
    call.out.remark(f"Serving the state {settings.state} at {url} (Ctrl-C ends it).")
    if not call.any_store.exists():
        call.out.remark("There is no state yet: a manager makes it (`bfm manager start`), or `bfm state init`.")
    _spare_memory()
    server.serve(app, bound)


class _NoPandas:
    """A finder of modules that finds no pandas."""

    def find_spec(self, name: str, path: object = None, target: object = None) -> None:
        if name == "pandas":
            raise ModuleNotFoundError("pandas is left out of `bfm serve`", name=name)


def _spare_memory() -> None:
    """For a process that does nothing but serve, before pyarrow is imported. With almost any call it imports pandas, only
    to ask whether a value is one of its series (50 MB, half a second), and goes on without where there is none. And memory
    pools of its own, one for each thread, give nothing back: another 60 MB under load."""
    os.environ.setdefault("ARROW_DEFAULT_MEMORY_POOL", "system")
    sys.meta_path.insert(0, _NoPandas())


def site(call: CliContext, store: Store) -> App:
    """Pages and API as one app."""
    from backfill_manager.api.app import create_app
    from backfill_manager.web.page import error_page
    from backfill_manager.web.router import router

    return create_app(call.settings, store, clock=call.clock, extra_routers=[router], error_page=error_page)


def served_beside_a_manager(call: CliContext) -> Callable[[Store], AbstractContextManager[None]] | None:
    """What `manager start --with-ui` hands to the manager: the same site over the manager's own store, in a thread. The
    host is refused before Spark is started. None, and a remark, where the port is taken: a standby on the same machine must
    be able to start."""
    from backfill_manager.api import server

    settings = call.settings
    server.check_host(settings, settings.api.host)
    try:
        bound = server.listen(settings.api.host, settings.api.port)
    except server.PortTaken:
        call.out.remark(f"Port {settings.api.port} is taken (api.port): this manager goes on without web pages.")
        return None

    @contextmanager
    def beside(store: Store) -> Iterator[None]:
        with server.served_beside(site(call, store), bound) as url:
            call.out.remark(f"The web pages are at {url}")
            yield

    return beside
