"""Sends the messages that the state holds, by Apprise, from a thread of its own.

What happens within a target's `group` of its first message is sent as one. An attempt that fails is repeated with growing
delays, for a day and `ATTEMPTS` times at least; the rows say how it went (`NotificationsSent`, which a tick commits). A manager
that is killed between the two leaves a message that the next one sends again.
"""

from __future__ import annotations

import logging
import re
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import ClassVar, Final, Protocol

from backfill_manager.clock import Clock
from backfill_manager.errors import InvalidConfig, StateError, shorten
from backfill_manager.humanise import plural
from backfill_manager.logging import get_logger
from backfill_manager.manager.notification_settings import Target
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
            scheme = target.url.partition("://")[0][:20]
            raise InvalidConfig(
                f"notifications, {target.name}: Apprise does not take this address ({scheme}://...); "
                "https://appriseit.com/services lists those that it does"
            )

    def send(self, title: str, body: str, *, is_bad: bool) -> str | None:
        import apprise

        kind = apprise.NotifyType.FAILURE if is_bad else apprise.NotifyType.SUCCESS
        # Else it goes as it is: into HTML, or as `<!channel>` to all of a Slack channel.
        form = apprise.NotifyFormat.TEXT
        if self.target.url.partition("://")[0].lower() in MARKDOWN:
            body, form = as_markdown(body), apprise.NotifyFormat.MARKDOWN
        with apprise.LogCapture(level=logging.WARNING, fmt="%(message)s") as written:  # type: ignore[no-untyped-call]
            if self._apprise.notify(body=body, title=title, notify_type=kind, body_format=form):
                return None
            said = " ".join(written.getvalue().split()) or "no reason was given"
        for secret in (self.target.url, self.target.url.partition("://")[2]):
            said = said.replace(secret, "***")
        return shorten(mask_text(said), MAX_ERROR_CHARS)


@dataclass
class _Waiting:
    rows: dict[tuple[str, str], Notification] = field(default_factory=dict)
    due_at: float | None = None  # of the monotonic clock
    failures: int = 0  # since it last worked


class NotificationSender(Service):
    JOINED: ClassVar = False  # an attempt may wait for a server

    def __init__(
        self, targets: Iterable[Target], channels: Mapping[str, Channel], clock: Clock, *,
        on_sent: Callable[[NotificationsSent], None], details: Callable[[Notification], Sequence[str]] = lambda _: (),
        public_url: str | None = None,
    ) -> None:  # fmt: skip
        """`details`: further lines of a message, read when it is sent."""
        super().__init__("notification sender")
        self._targets, self._channels = {target.name: target for target in targets}, channels
        self._clock, self._on_sent, self._details, self._public_url = clock, on_sent, details, public_url
        self._waiting = {name: _Waiting() for name in self._targets}
        self._lock, self._sending, self._is_flushing = threading.Lock(), threading.Lock(), False

    def put(self, rows: Iterable[Notification]) -> None:
        """Committed rows that wait, each once: those that have failed before, or are being sent, are here already."""
        now = self._clock.monotonic()
        with self._lock:
            for row in rows:
                waiting = self._waiting.get(row.target)
                if waiting is None or row.state != "waiting":
                    continue
                waiting.rows[row.notification_id, row.target] = row
                if waiting.due_at is None:
                    waiting.due_at = now + self._targets[row.target].group_s
        self.wake()

    def run_once(self) -> float | None:
        with self._sending:
            for name in self._targets:
                self._send_to(name)
        with self._lock:
            due = min((one.due_at for one in self._waiting.values() if one.due_at is not None), default=None)
        return None if due is None else max(0.0, due - self._clock.monotonic())

    def flush(self) -> None:
        """Sends what waits without waiting for more, after what is being sent now; for some seconds at most. What is left is
        sent by the next manager."""
        self._is_flushing = True
        thread = threading.Thread(target=self.run_once, name="flush", daemon=True)
        thread.start()
        thread.join(FLUSH_S)

    def _send_to(self, name: str) -> None:
        with self._lock:
            waiting = self._waiting[name]
            if waiting.due_at is None or (waiting.due_at > self._clock.monotonic() and not self._is_flushing):
                return
            rows, waiting.rows, waiting.due_at = list(waiting.rows.values()), {}, None
        error: str | None
        try:
            title, body = compose(rows, self._details, self._public_url)
        except StateError as unread:  # storage is unavailable for a moment: repeated, as what can't be sent
            error = shorten(str(unread), MAX_ERROR_CHARS)
        else:
            error = self._channels[name].send(title, body, is_bad=any(row.event in _BAD for row in rows))
        now = self._clock.now()
        if error is None:
            waiting.failures = 0
            done = [row.evolve(state="sent", ended_at=now, error=None) for row in rows]
        else:
            waiting.failures += 1
            log.warning("messages can't be sent", target=name, messages=len(rows), reason=error)
            done = [_failed(row, error, now) for row in rows]
            again = {(row.notification_id, row.target): row for row in done if row.state == "waiting"}
            with self._lock:
                waiting.rows = {**again, **waiting.rows}
                first, longest = RETRY_S
                if waiting.rows:
                    delay = min(first * 2.0 ** min(waiting.failures - 1, 10), longest)
                    waiting.due_at = self._clock.monotonic() + delay
        self._on_sent(NotificationsSent(tuple(done)))


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
