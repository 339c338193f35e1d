"""`WatchedBackend`: for commands that read the same for hours, until something has ended."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from backfill_manager.cli.backend.base import Document
from backfill_manager.cli.render.errors import HINTS
from backfill_manager.errors import Unreachable

if TYPE_CHECKING:
    from backfill_manager.cli.context import CliContext
    from backfill_manager.model.records import Request, Response

SLOW_POLL_INTERVAL_S: Final = 5.0  # of what is expensive to read or changes slowly
UNSAID_WAIT_S: Final = 2.0
MAX_AWAY_S: Final = 600.0  # of a server, which may be started anew


class WatchedBackend:
    """Reads as the backend does. While its server can't be reached, it is asked again: its end is not that of what is watched."""

    def __init__(self, context: CliContext, what: str, say: Callable[[str], None]) -> None:
        self._context, self._what, self._say = context, what, say
        self._is_led, self._looked_at = True, float("-inf")

    def __getattr__(self, name: str) -> Callable[..., Any]:
        read = getattr(self._context.backend, name)

        def asked_again(*args: Any, **options: Any) -> Any:
            clock = self._context.clock
            until: float | None = None
            while True:
                try:
                    return read(*args, **options)
                except Unreachable as error:
                    if until is None:
                        until = clock.monotonic() + MAX_AWAY_S
                        self._say(f"{str(error).rstrip('.')}; it is asked again for {MAX_AWAY_S / 60:g} minutes.")
                    elif clock.monotonic() >= until:
                        raise
                self._context.pause(SLOW_POLL_INTERVAL_S)

        return asked_again

    def look_for_manager(self) -> None:
        """Says so whenever no manager leads any more, at the beginning too: what is watched would stand still without a word. And
        when one leads again: in a notebook what was said stays."""
        at = self._context.clock.monotonic()
        if at - self._looked_at < SLOW_POLL_INTERVAL_S:
            return
        was_led, self._is_led, self._looked_at = self._is_led, self.has_active_manager(), at
        if was_led and not self._is_led:
            self._say(f"No manager is running; the {self._what} waits for one: {HINTS['start_manager']}.")
        elif self._is_led and not was_led:
            self._say("A manager is running.")


def watched_response(context: CliContext, request: Request, timeout_s: float, to: str | None = None) -> Response | None:
    """The response; of a manager that ends meanwhile it is said, as the next one answers. `to`: what it is waited for, which may
    take long: `Waiting for the manager (term 3, pid 17 on node1) to plan.`"""
    backend = WatchedBackend(context, "request", lambda text: context.out.note(text, style="yellow"))
    until = context.clock.monotonic() + timeout_s
    interval = SLOW_POLL_INTERVAL_S if to is None else UNSAID_WAIT_S
    while True:
        left = until - context.clock.monotonic()
        response: Response | None = backend.wait(request, min(left, interval))
        if response is not None or left <= interval:
            return response
        backend.look_for_manager()
        if to is not None and interval < SLOW_POLL_INTERVAL_S:
            interval, manager = SLOW_POLL_INTERVAL_S, backend.manager()
            say_who_is_waited_for(context, manager, to)


def say_who_is_waited_for(context: CliContext, manager: Document, to: str) -> None:
    if manager["leading"] and context.out.is_table:
        who = "term {term}, pid {pid} on {host}".format(**manager)
        context.out.note(f"Waiting for the manager ({who}) to {to}.")
