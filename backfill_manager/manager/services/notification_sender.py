"""Sends the messages that the state holds, by Apprise: each target from a thread of its own, so that one that is slow to answer
delays no other.

What happens within a target's `group` of its first message is sent as one. An attempt that fails is repeated with growing
delays, for a day and `ATTEMPTS` times at least; the rows say how it went (`NotificationsSent`, which a tick commits). A manager
that is killed between the two leaves a message that the next one sends again.
"""

from __future__ import annotations

import contextlib
import logging
import re
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, ClassVar, Final, Protocol

from backfill_manager.clock import Clock
from backfill_manager.errors import InvalidConfig, StateError, shorten
from backfill_manager.humanise import plural
from backfill_manager.logging import get_logger
from backfill_manager.manager.services.notification_settings import Target
from backfill_manager.masking import mask_text
from backfill_manager.model.records import Notification
from backfill_manager.schemas.page_paths import path_of
from backfill_manager.service import Service

RETRY_S: Final = (5.0, 600.0)  # after the first failure, doubled by each further one up to the last
GIVE_UP_AFTER: Final = timedelta(days=1)
ATTEMPTS: Final = 20  # at least, which take two hours: there may have been no manager in that day
MAX_LISTED: Final = 20  # in one message
MAX_ERROR_CHARS: Final = 300
MAX_TEXT_CHARS: Final = 4_000  # of one message: Teams takes 28 KB, and JSON may write a character with six bytes
MARKDOWN: Final = frozenset({"workflows", "workflow"})  # schemes of services that render Markdown, and nothing else
READ_TIMEOUT_S: Final = 30.0  # for the answer of a service, unless its address says otherwise (`?rto=60`)
FLUSH_S: Final = 10.0  # at the manager's end
_BAD: Final = frozenset({"failed", "deadlocked", "late"})

log = get_logger("notifications")


class Channel(Protocol):
    """The way to one target."""

    def send(self, title: str, body: str, *, is_bad: bool) -> str | None:
        """Returns why it could not be sent."""
        ...


@dataclass(frozen=True)
class NotificationsSent:
    """How sending these rows went; they are as they are to be now."""

    rows: tuple[Notification, ...]


class AppriseChannel:
    def __init__(self, target: Target) -> None:
        """`InvalidConfig` when the library is missing or does not know such an address; the address is never shown."""
        try:
            import apprise
        except ImportError:
            raise InvalidConfig(
                "notifications: needs the package apprise; pip install 'backfill-manager[notifications]'"
            ) from None
        # Most redirects would make a POST a GET without the message, whose answer (200) would count as success.
        about = apprise.AppriseAsset(
            app_id="backfill_manager", image_url_mask="", image_url_logo="", http_redirects=False
        )
        self.target, self._apprise = target, apprise.Apprise(asset=about)
        with apprise.LogCapture(level=logging.CRITICAL):  # type: ignore[no-untyped-call]
            is_known = self._apprise.add(target.url)
        for service in self._apprise:  # one that is slow to answer has the message, and would get it again
            if "socket_read_timeout" not in vars(service):  # its address does not say `rto=`
                service.socket_read_timeout = max(service.socket_read_timeout, READ_TIMEOUT_S)
        if not is_known:
            scheme, has_scheme, _ = target.url.partition("://")
            shown = f" ({scheme[:20]}://...)" if has_scheme else ", which has no ://"
            raise InvalidConfig(
                f"notifications, {target.name}: Apprise does not take this address{shown}; "
                "https://appriseit.com/services lists those that it does"
            )
        self._unfinished: tuple[str, str] | None = None  # message that not all recipients have taken
        # An address may hold several; with each, its recipients that have taken that message, as Apprise notes them.
        self._services = [(apprise.Apprise(service), set[tuple[int | None, Any]]()) for service in self._apprise]

    def send(self, title: str, body: str, *, is_bad: bool) -> str | None:
        """A message that is sent again after a failure goes to those of its recipients that have not taken it."""
        import apprise

        kind = apprise.NotifyType.FAILURE if is_bad else apprise.NotifyType.SUCCESS
        # Else it goes as it is: into HTML, or as `<!channel>` to all of a Slack channel.
        form = apprise.NotifyFormat.TEXT
        if self.target.url.partition("://")[0].lower() in MARKDOWN:
            body, form = as_markdown(body), apprise.NotifyFormat.MARKDOWN
        if self._unfinished != (title, body):
            self._unfinished = title, body
            for _, taken in self._services:
                taken.clear()
        failed = []
        for service, taken in self._services:
            with _remembering(taken):
                result = service.notify(body=body, title=title, notify_type=kind, body_format=form)
            if not result:
                failed += [entry.message for entry in result.logs()] or ["no reason was given"]
        if not failed:
            self._unfinished = None
            return None
        said = " ".join(" ".join(failed).split())
        for secret in (self.target.url, self.target.url.partition("://")[2]):
            said = said.replace(secret, "***")
        return shorten(mask_text(said), MAX_ERROR_CHARS)


@contextlib.contextmanager
def _remembering(taken: set[tuple[int | None, Any]]) -> Iterator[None]:
    """Apprise notes who has taken a message, and forgets it at the end of each `notify`. It has no public way to keep these
    notes; with a version of it that lacks this private one, all recipients get the message again."""
    from apprise.plugins import base

    tracker = getattr(base, "_delivery_tracker", None)
    if tracker is None:
        yield
        return
    marks = tracker.set(taken)
    try:
        yield
    finally:
        tracker.reset(marks)


class NotificationSender(Service):
    """Sends the messages of one target."""

    JOINED: ClassVar = False  # an attempt may wait for a server

    def __init__(
        self, target: Target, channel: Channel, clock: Clock, *, on_sent: Callable[[NotificationsSent], None],
        details: Callable[[Notification], Sequence[str]] = lambda _: (), public_url: str | None = None,
    ) -> None:  # fmt: skip
        """`details`: further lines of a message, read when it is sent."""
        super().__init__(f"notification sender {target.name}")
        self._target, self._channel = target, channel
        self._clock, self._on_sent, self._details, self._public_url = clock, on_sent, details, public_url
        self._waiting: dict[tuple[str, str], Notification] = {}
        self._due_at: float | None = None  # of the monotonic clock
        self._failures = 0  # since it last worked
        self._lock, self._sending, self._is_flushing = threading.Lock(), threading.Lock(), False

    def put(self, rows: Iterable[Notification]) -> None:
        """Committed rows that wait, each once: those that have failed before, or are being sent, are here already. Those of other
        targets are left out."""
        with self._lock:
            for row in rows:
                if row.target != self._target.name or row.state != "waiting":
                    continue
                self._waiting[row.notification_id, row.target] = row
                if self._due_at is None:
                    self._due_at = self._clock.monotonic() + self._target.group_s
        self.wake()

    def run_once(self) -> float | None:
        with self._sending:
            self._send()
        with self._lock:
            return None if self._due_at is None else max(0.0, self._due_at - self._clock.monotonic())

    def start_flush(self) -> threading.Thread:
        """A thread that sends what waits without waiting for more, after what is being sent now."""
        self._is_flushing = True
        thread = threading.Thread(target=self.run_once, name="flush", daemon=True)
        thread.start()
        return thread

    def _send(self) -> None:
        with self._lock:
            if self._due_at is None or (self._due_at > self._clock.monotonic() and not self._is_flushing):
                return
            rows, self._waiting, self._due_at = list(self._waiting.values()), {}, None
        error: str | None
        try:
            title, body = compose(rows, self._details, self._public_url)
        except StateError as unread:  # storage is unavailable for a moment: repeated, as what can't be sent
            error = shorten(str(unread), MAX_ERROR_CHARS)
        else:
            error = self._channel.send(title, body, is_bad=any(row.event in _BAD for row in rows))
        now = self._clock.now()
        if error is None:
            self._failures = 0
            done = [row.evolve(state="sent", ended_at=now, error=None) for row in rows]
        else:
            self._failures += 1
            log.warning("messages can't be sent", target=self._target.name, messages=len(rows), reason=error)
            done = [_failed(row, error, now) for row in rows]
            again = {(row.notification_id, row.target): row for row in done if row.state == "waiting"}
            with self._lock:
                self._waiting = {**again, **self._waiting}
                first, longest = RETRY_S
                if self._waiting:
                    delay = min(first * 2.0 ** min(self._failures - 1, 10), longest)
                    self._due_at = self._clock.monotonic() + delay
        self._on_sent(NotificationsSent(tuple(done)))


def flush(senders: Iterable[NotificationSender]) -> None:
    """All of them at once, for some seconds at most. What is left is sent by the next manager."""
    ends_at = time.monotonic() + FLUSH_S
    for thread in [sender.start_flush() for sender in senders]:
        thread.join(max(0.0, ends_at - time.monotonic()))


def _failed(row: Notification, error: str, now: datetime) -> Notification:
    row = row.evolve(failures=row.failures + 1, error=error)
    is_given_up = now - row.created_at >= GIVE_UP_AFTER and row.failures >= ATTEMPTS
    return row.evolve(state="failed", ended_at=now) if is_given_up else row


def compose(
    rows: Sequence[Notification], details: Callable[[Notification], Sequence[str]], public_url: str | None
) -> tuple[str, str]:
    """Title and text of one message about all of these."""
    if len(rows) == 1:
        (row,) = rows
        text = shorten("\n".join(line for line in (row.text, *details(row)) if line), MAX_TEXT_CHARS)
        lines = [line for line in (text, _link(row, public_url)) if line]
        return row.title, "\n".join(lines) or row.title  # some services take no message without a text
    counts = ", ".join(f"{number} {event}" for event, number in Counter(row.event for row in rows).most_common())
    dags = sorted({row.dag_id for row in rows})
    of = ", ".join(dags[:3]) + (f" and {plural(len(dags) - 3, 'DAG')} more" if len(dags) > 3 else "")
    parts = []
    for row in rows[:MAX_LISTED]:
        why = shorten(row.text.partition("\n")[0], MAX_TEXT_CHARS // MAX_LISTED)
        parts += [f"- {row.title}{f': {why}' if why else ''}", *filter(None, [_link(row, public_url)])]
    if len(rows) > MAX_LISTED:
        parts.append(f"- and {len(rows) - MAX_LISTED} more")
    return f"{counts}: {of}", "\n".join(parts)


def as_markdown(text: str) -> str:
    """Lines stay lines, what looks like Markdown in an error stays as it is, and an address can be opened."""
    lines = text.splitlines()
    return "\n\n".join(
        f"[Open]({line})" if re.fullmatch(r"https?://[^\s()<>]+", line) else re.sub(r"([\\`*_\[\]<>#|])", r"\\\1", line)
        for line in lines
    )


def _link(row: Notification, public_url: str | None) -> str:
    if public_url is None:
        return ""
    if row.backfill_id is not None:
        path = path_of("backfills", row.backfill_id)
    elif row.run_id is not None:
        path = path_of("dags", row.dag_id, "runs", row.run_id)
    else:
        path = path_of("dags", row.dag_id)
    return f"{public_url.rstrip('/')}{path}"
