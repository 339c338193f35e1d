"""Sends OpenLineage events, by the OpenLineage client's own transports.

How they wait: `bounded_sender`. They are telemetry: what has been read and written stays in the state.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, Protocol

from backfill_manager.errors import InvalidConfig
from backfill_manager.execution.error_format import one_line
from backfill_manager.manager.telemetry.bounded_sender import MAX_WAITING, BoundedSender
from backfill_manager.model.records import DagRun, RunKey
from backfill_manager.model.transitions import Changes
from backfill_manager.settings.model import OpenLineageSettings

_REFUSED: Final = (400, 413, 422)  # for what is in it; any other status may come of the server or of the configuration
ANSWER_TIMEOUT_S: Final = 30.0  # of a server, unless its transport says otherwise (`timeout`)
_KEEP_METHOD: Final = (307, 308)  # redirects after which the event is sent again as it is

if TYPE_CHECKING:
    from openlineage.client.event_v2 import RunEvent
    from openlineage.client.transport import Transport
    from requests import Response

    from backfill_manager.manager.telemetry.openlineage_events import LineageEvents


class Client(Protocol):
    def emit(self, event: RunEvent) -> None: ...


def make_client(settings: OpenLineageSettings) -> Client:
    """`InvalidConfig` when the library is missing or does not take the transport."""
    try:
        from openlineage.client import OpenLineageClient
    except ImportError:
        raise InvalidConfig(
            "openlineage: needs the package openlineage-python; pip install 'backfill-manager[openlineage]'"
        ) from None
    try:
        client = OpenLineageClient(config={"transport": _patient(settings.transport)})
    except (ValueError, RuntimeError, TypeError, KeyError, ImportError) as error:  # each checks in its own way
        raise InvalidConfig(f"openlineage.transport: {one_line(error)}") from None
    _show_console_events()
    _refuse_lossy_redirects(client.transport)
    return client


def _patient(transport: Mapping[str, Any]) -> dict[str, Any]:
    """The transport `http` waits 5 s for an answer, and sends an event whose answer is late five times more within one attempt.
    A server that takes longer has the event already, and would get it again and again, and no other."""
    kind, several = transport.get("type"), transport.get("transports")
    if kind == "http":
        return {"timeout": ANSWER_TIMEOUT_S, **transport, "retry": {"read": 0, **(transport.get("retry") or {})}}
    if kind == "composite" and isinstance(several, Mapping):
        return {**transport, "transports": {name: _patient(one) for name, one in several.items()}}
    if kind == "composite" and isinstance(several, list):
        return {**transport, "transports": [_patient(one) for one in several]}
    return dict(transport)


def _show_console_events() -> None:
    """The transport `console` gives events to a logger, at a level that Python does not show by itself. It may be one of several
    (`composite`). On standard error each is a line of JSON."""
    logger = logging.getLogger("openlineage.client.transport.console")
    logger.setLevel(logging.INFO)
    logger.handlers, logger.propagate = [logging.StreamHandler()], False


def _refuse_lossy_redirects(transport: Transport) -> None:
    """The transport `http` follows a redirect by a GET without the event, and takes the answer to that for a success."""
    from openlineage.client.transport.composite import CompositeTransport
    from openlineage.client.transport.http import HttpTransport

    if isinstance(transport, CompositeTransport):
        for one in transport.transports:
            _refuse_lossy_redirects(one)
    elif isinstance(transport, HttpTransport):
        transport.session.hooks["response"].append(_refuse_lossy_redirect)


def _refuse_lossy_redirect(response: Response, *_: Any, **__: Any) -> None:
    from requests import HTTPError

    if response.is_redirect and response.status_code not in _KEEP_METHOD:
        status, where = response.status_code, response.headers["location"]
        raise HTTPError(f"the server redirects ({status}) to {where}: set that address", response=response)


class OpenLineageSender(BoundedSender["RunEvent"]):
    def __init__(self, client: Client, events: LineageEvents, *, max_waiting: int = MAX_WAITING) -> None:
        super().__init__("OpenLineage sender", "events", "openlineage", max_waiting=max_waiting)
        self._client, self._events = client, events

    def put(self, changes: Changes, run_of: Callable[[RunKey], DagRun | None]) -> None:
        """What has been committed; see `LineageEvents.of`."""
        self.put_all(self._events.of(changes, run_of))

    def send(self, batch: list[RunEvent]) -> None:
        """What the server will never take is left out, or all that comes after it would wait for ever."""
        for event in batch:
            try:
                self._client.emit(event)
            except Exception as error:
                if _status(error) not in _REFUSED:
                    raise
                self._log.warning("the server refuses an event", job=event.job.name, reason=one_line(error))


def _status(error: Exception) -> int | None:
    """Of HTTP, whichever library the transport uses."""
    return getattr(getattr(error, "response", None), "status_code", None)
