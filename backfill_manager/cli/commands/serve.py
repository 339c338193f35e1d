"""`bfm serve`: the REST API and the web pages over a state, without a manager and without a JVM."""

from __future__ import annotations

import gc
import os
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from importlib.abc import MetaPathFinder
from typing import TYPE_CHECKING, Final

from backfill_manager.cli import GC_THRESHOLD
from backfill_manager.cli.command import Command
from backfill_manager.cli.context import CliContext
from backfill_manager.cli.options import option
from backfill_manager.errors import InvalidInput
from backfill_manager.service import Service, ServiceThread

if TYPE_CHECKING:
    import socket

    from backfill_manager.api.app import App
    from backfill_manager.manager.manager import Beside
    from backfill_manager.store.base import Store

PORT_POLL_INTERVAL_S: Final = 5.0


def serve(
    context: CliContext,
    host: str | None = option(
        "--host", "Address to listen on. \\[default: api.host, which is 127.0.0.1]", metavar="HOST"
    ),
    port: int | None = option(
        "--port",
        "Port to listen on. 0: any free port. \\[default: api.port, which is 8099]",
        min=0,
        max=65535,
        metavar="N",
    ),
) -> None:
    """Serve the web pages and the REST API, until Ctrl-C.

    Pages are at /, the API at /api/v1. Any number may run beside a manager or without one. Other machines have
    access only when tokens are configured: [cyan]bfm config token NAME[/].

    Example: [cyan]bfm serve --port 8099[/]
    """
    from backfill_manager.api import server
    from backfill_manager.file_descriptors import raise_limit

    settings = context.settings
    host = host or settings.api.host
    server.check_host(settings, host)
    backend = context.local_backend()
    raise_limit()
    # This process does nothing but serve, and imports pyarrow further down. In almost any call pyarrow imports pandas, only
    # to check whether a value is one of its series (50 MB, half a second), and works without it. Its own memory pools, one
    # for each thread, give nothing back: another 60 MB under load.
    os.environ.setdefault("ARROW_DEFAULT_MEMORY_POOL", "system")
    sys.meta_path.insert(0, _WithoutPandas())
    store = backend.any_store
    app = _site(context, store)
    bound = server.listen(host, settings.api.port if port is None else port)
    url = server.url_of(bound)
    context.out.note(f"Serving the state {settings.state} at {url} (Ctrl-C ends it).")
    if not store.exists():
        context.out.note("There is no state yet: a manager creates it (`bfm manager start`), or `bfm state init`.")
    gc.set_threshold(*GC_THRESHOLD)
    with _preparing(store):
        server.serve(app, bound)


class _WithoutPandas(MetaPathFinder):
    """Has `import pandas` fail. None as `sys.modules["pandas"]` would do so in Python only: pyarrow, which is made by Cython,
    takes the None for the module, and its first call fails."""

    def find_spec(self, name: str, *_: object) -> None:
        if name == "pandas":
            raise ModuleNotFoundError("no pandas in a process that only serves", name=name)


def _site(context: CliContext, store: Store) -> App:
    """Pages and API as one app."""
    from backfill_manager.api.app import create_app
    from backfill_manager.web.page import error_page
    from backfill_manager.web.router import router

    return create_app(context.settings, store, clock=context.clock, extra_routers=[router], error_page=error_page)


@contextmanager
def _preparing(store: Store) -> Iterator[None]:
    """Does in a thread what the first page would wait for; it has ended at the end of the block. Not beside a manager, whose own
    reads it would hold up."""
    from backfill_manager.web.page import compile_templates

    is_over = threading.Event()

    def prepare() -> None:
        store.prepare_reads(is_over.is_set)
        compile_templates()

    thread = ServiceThread("preparing pages", prepare)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()


def _open_pages(context: CliContext, store: Store, bound: socket.socket, pages: ExitStack) -> str:
    """Serves until `pages` is closed; returns the URL."""
    from backfill_manager.api.server import served_beside

    store.read_copies()
    return pages.enter_context(served_beside(_site(context, store), bound))


class PagesOfLeader(Service):
    """Serves beside a manager that found the port taken, in most cases by the leader that it stands by for: started when it leads
    itself, and tries until the port is free. That may take a few seconds after a leader that was stopped, which ends its pages
    after its lease."""

    def __init__(self, context: CliContext, store: Store, pages: ExitStack) -> None:
        """What is opened is closed with `pages`."""
        super().__init__("pages")
        self._context, self._store, self._pages = context, store, pages

    def run_once(self) -> float | None:
        from backfill_manager.api.server import listen
        from backfill_manager.logging import get_logger

        api = self._context.settings.api
        try:
            bound = self._pages.enter_context(listen(api.host, api.port))
        except InvalidInput:
            return PORT_POLL_INTERVAL_S
        url = _open_pages(self._context, self._store, bound, self._pages)
        get_logger("serve").info("port is free: the web pages are served", url=url)
        return None


def served_beside_a_manager(context: CliContext) -> Beside:
    """For `manager start --with-ui`: the same site over the manager's own store, in a thread. A wrong host is refused
    before Spark is started. Where the port is taken, there are no pages until the manager leads: a standby on the same machine
    must be able to start."""
    from backfill_manager.api import server

    settings = context.settings
    server.check_host(settings, settings.api.host)
    try:
        bound = server.listen(settings.api.host, settings.api.port)
    except server.PortTaken:
        bound = None
        context.out.note(
            f"Port {settings.api.port} is taken (api.port): this manager runs without web pages until it leads and the port "
            "is free."
        )

    @contextmanager
    def beside(store: Store) -> Iterator[Callable[[], None]]:
        with ExitStack() as pages:
            if bound is not None:
                context.out.note(f"The web pages are at {_open_pages(context, store, bound, pages)}")
                yield lambda: None
                return
            later = PagesOfLeader(context, store, pages)
            try:
                yield later.start
            finally:
                later.stop()

    return beside


command = Command("serve", serve)
