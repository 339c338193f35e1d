"""What Slack, Teams and a mail server get: what Apprise sends to their own addresses by TLS, taken by a proxy on loopback, and by
a real SMTP server."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from email.message import Message
from pathlib import Path
from typing import Any

import pytest
from aiosmtpd.controller import Controller
from aiosmtpd.handlers import Message as MessageHandler
from aiosmtpd.smtp import AuthResult, LoginPassword
from support.http_sink import http_sink
from support.service_proxy import ServiceProxy, service_proxy

from backfill_manager.clock import EPOCH
from backfill_manager.manager.services.notification_sender import (
    MAX_TEXT_CHARS,
    READ_TIMEOUT_S,
    AppriseChannel,
    as_markdown,
    compose,
)
from backfill_manager.manager.services.notification_settings import Target
from backfill_manager.model.records import Notification

pytestmark = pytest.mark.filterwarnings("ignore:Unverified HTTPS request")

ERROR = "load: ValueError: <b>5 < 6</b> & `x` *y* _z_ [a](https://b) <!channel>"
LINK = "https://bfm.example.com/dags/sales_daily/runs/scheduled__2024-01-01T00:00:00Z"
SLACK = "slack://T1JJ3T3L2/A1BRTD4JD/TIiajkdnlazkcOXrIdevi7/#ops?verify=no"
BOT = "slack://bot@xoxb-1234-1234-abcdefghijklmnopqrstuvwx/#ops?verify=no"
TEAMS = "workflows://prod-161.westeurope.logic.azure.com:443/0123456789abcdef/s1gnature?verify=no"


def row(text: str = f"failed: load\n{ERROR}\nafter 3 s", number: int = 1) -> Notification:
    run_id = "scheduled__2024-01-01T00:00:00Z"
    return Notification(
        f"failed/{number}", "ops", "failed", "waiting", "sales_daily", f"sales_daily: run {run_id} has failed", text, number,
        EPOCH, run_id=run_id,
    )  # fmt: skip


def send(url: str, *rows: Notification, is_bad: bool = True) -> str | None:
    title, body = compose(rows or (row(),), lambda _: (), "https://bfm.example.com/")
    return AppriseChannel(Target("ops", url, frozenset({"failed"}), ("*",), 0.0)).send(title, body, is_bad=is_bad)


@pytest.fixture
def services(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ServiceProxy]:
    with service_proxy(tmp_path) as it:
        for name in ("HTTPS_PROXY", "https_proxy"):
            monkeypatch.setenv(name, it.url)
        yield it


def test_slack_gets_lines_and_a_link_and_an_error_calls_nobody(services: ServiceProxy) -> None:
    services.reply = b"ok"
    assert send(SLACK) is None
    assert services.hosts == ["hooks.slack.com:443"]
    assert services.requests[0][0] == "/services/T1JJ3T3L2/A1BRTD4JD/TIiajkdnlazkcOXrIdevi7"
    (payload,) = services.events
    (attachment,) = payload["attachments"]
    assert payload["channel"] == "#ops"
    assert attachment["title"] == "sales_daily: run scheduled__2024-01-01T00:00:00Z has failed"
    lines = attachment["text"].split("\n")
    assert lines == ["failed: load", lines[1], "after 3 s", LINK]
    assert "&lt;b&gt;5 &lt; 6&lt;/b&gt; &amp; `x`" in lines[1] and "&lt;!channel&gt;" in lines[1]
    assert "github" not in str(payload), "no picture of another server"


def test_a_bot_of_slack_says_why_it_was_refused_without_its_token(services: ServiceProxy) -> None:
    services.reply = b'{"ok": false, "error": "channel_not_found"}'
    said = send(BOT)
    assert said is not None and "xoxb" not in said
    assert services.hosts == ["slack.com:443"] and services.requests[0][0] == "/api/chat.postMessage"
    services.reply = b'{"ok": true}'
    assert send(BOT, is_bad=False) is None
    assert services.requests[-1][1]["Authorization"] == "Bearer xoxb-1234-1234-abcdefghijklmnopqrstuvwx"


def test_teams_gets_a_card_whose_lines_stay_lines(services: ServiceProxy) -> None:
    assert send(TEAMS) is None
    assert services.requests[0][0].startswith("/workflows/0123456789abcdef/triggers/manual/paths/invoke?")
    (payload,) = services.events
    (attachment,) = payload["attachments"]
    assert (payload["type"], attachment["contentType"]) == ("message", "application/vnd.microsoft.card.adaptive")
    texts = {block["id"]: block["text"] for block in attachment["content"]["body"] if block["type"] == "TextBlock"}
    assert texts["title"] == "sales_daily: run scheduled__2024-01-01T00:00:00Z has failed"
    lines = texts["body"].split("\n\n")
    assert lines[0] == "failed: load" and lines[-1] == f"[Open]({LINK})"
    assert r"\[a\](https://b) \<!channel\>" in lines[1] and r"\*y\*" in lines[1]
    assert all(block["type"] != "Image" for block in attachment["content"]["body"])


def test_a_message_of_many_errors_fits_into_every_service(services: ServiceProxy) -> None:
    errors = "\n".join(f"task_{n}: Fehler – größer als „erlaubt“ {'ü' * 900}" for n in range(200))
    assert send(TEAMS, row(errors)) is None
    assert int(services.requests[0][1]["Content-Length"]) < 28_000
    body = services.events[0]["attachments"][0]["content"]["body"][-1]["text"]
    assert body.endswith(f"[Open]({LINK})") and len(body) < 2 * MAX_TEXT_CHARS
    assert send(TEAMS, *(row(errors, number) for number in range(50))) is None
    assert int(services.requests[1][1]["Content-Length"]) < 28_000


def test_a_webhook_that_refuses_is_named_without_its_secrets(services: ServiceProxy) -> None:
    services.refuses, services.status = 2, 403
    for url in (SLACK, TEAMS):
        said = send(url)
        assert said is not None and "403" in said
        assert not {"TIiajkdnlazkcOXrIdevi7", "s1gnature", "0123456789abcdef"} & set(said.replace("/", " ").split())


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_a_redirect_is_an_error_and_no_message_that_arrived(status: int) -> None:
    with http_sink() as sink:
        sink.refuses, sink.status, sink.location = 1, status, "/login"
        said = send(f"json://{sink.address}/hook")
    assert said is not None and str(status) in said and not sink.events


def test_an_answer_may_take_half_a_minute_if_the_address_says_nothing_else() -> None:
    def timeout_of(url: str) -> Any:
        (service,) = AppriseChannel(Target("ops", url, frozenset(), (), 0.0))._apprise
        return service.request_timeout

    assert timeout_of("json://127.0.0.1/hook") == (4.0, READ_TIMEOUT_S)
    assert timeout_of("json://127.0.0.1/hook?rto=4") == (4.0, 4.0)


def test_markdown_of_an_error_is_text() -> None:
    assert as_markdown("a *b*\nhttps://x/y") == "a \\*b\\*\n\n[Open](https://x/y)"


# -- e-mail ---------------------------------------------------------------------------------------------------------------


class Mails(MessageHandler):
    def __init__(self) -> None:
        super().__init__()
        self.taken: list[Message] = []
        self.unknown: set[str] = set()

    async def handle_RCPT(self, _server: Any, _session: Any, envelope: Any, address: str, _options: list[str]) -> str:
        if address in self.unknown:
            return "550 no such user here"
        envelope.rcpt_tos.append(address)
        return "250 OK"

    def handle_message(self, message: Message) -> None:
        self.taken.append(message)


def authenticate(_server: Any, _session: Any, _envelope: Any, _mechanism: str, data: Any) -> AuthResult:
    assert isinstance(data, LoginPassword)
    return AuthResult(success=data.password == b"hunter22-secret")


@pytest.fixture
def mails() -> Iterator[tuple[Mails, int]]:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    taken = Mails()
    server = Controller(
        taken, hostname="127.0.0.1", port=port, authenticator=authenticate, auth_require_tls=False, ready_timeout=30
    )
    server.start()
    try:
        yield taken, port
    finally:
        server.stop()


def test_an_e_mail_has_its_lines_and_no_html_of_an_error(mails: tuple[Mails, int]) -> None:
    taken, port = mails
    assert send(f"mailto://127.0.0.1:{port}?from=bfm@example.com&to=them@example.com,you@example.com") is None
    assert {mail["To"] for mail in taken.taken} == {"them@example.com", "you@example.com"}
    mail = taken.taken[0]
    assert mail["Subject"] == "sales_daily: run scheduled__2024-01-01T00:00:00Z has failed"
    assert mail.get_content_type() == "text/plain"
    content = mail.get_payload(decode=True)
    assert isinstance(content, bytes)
    assert content.decode().splitlines() == ["failed: load", ERROR, "after 3 s", LINK]


def test_a_recipient_that_is_refused_does_not_make_the_others_get_the_mail_again(mails: tuple[Mails, int]) -> None:
    taken, port = mails
    taken.unknown = {"gone@example.com"}
    url = f"mailto://127.0.0.1:{port}?from=bfm@example.com&to=them@example.com,gone@example.com,you@example.com"
    channel = AppriseChannel(Target("ops", url, frozenset(), (), 0.0))
    for _ in range(3):
        assert channel.send("sales: failed", "why", is_bad=True) is not None
    assert sorted(mail["To"] for mail in taken.taken) == ["them@example.com", "you@example.com"]
    assert channel.send("sales: failed again", "why", is_bad=True) is not None
    assert len(taken.taken) == 4, "another message goes to all"
    taken.unknown = set()
    assert channel.send("sales: failed again", "why", is_bad=True) is None
    assert [mail["To"] for mail in taken.taken[4:]] == ["gone@example.com"]
    assert channel.send("sales: failed again", "why", is_bad=True) is None
    assert len(taken.taken) == 8, "one that has arrived is sent anew if it is sent anew"


def test_each_of_two_services_of_one_address_gets_the_message_and_none_gets_it_again(mails: tuple[Mails, int]) -> None:
    taken, port = mails
    with http_sink() as one, http_sink() as other:
        other.refuses = 1
        url = f"json://{one.address}, json://{other.address}, mailto://127.0.0.1:{port}?from=bfm@example.com&to=a@example.com"
        channel = AppriseChannel(Target("ops", url, frozenset(), (), 0.0))
        said = channel.send("sales: failed", "why", is_bad=True)
        assert said is not None and "503" in said
        assert channel.send("sales: failed", "why", is_bad=True) is None
    assert (len(one.events), len(other.events), len(taken.taken)) == (1, 1, 1)


def test_what_one_service_says_is_not_taken_for_the_words_of_another() -> None:
    """Each target has a thread, and the library one log for all."""
    with http_sink() as slow, http_sink() as quick:
        has_begun, may_answer = threading.Event(), threading.Event()

        def hold(_: Any) -> bool:
            has_begun.set()
            return may_answer.wait()

        slow.is_wrong, slow.status = hold, 418
        quick.refuses, quick.status = 1, 429
        with ThreadPoolExecutor(1) as threads:
            sending = threads.submit(send, f"json://{slow.address}")
            has_begun.wait()
            said = send(f"json://{quick.address}")
            may_answer.set()
        assert said is not None and "429" in said and "418" not in said
        answer = sending.result()
        assert answer is not None and "418" in answer and "429" not in answer


def test_a_mail_server_that_refuses_the_password_is_named_without_it(mails: tuple[Mails, int]) -> None:
    taken, port = mails
    address = f"127.0.0.1:{port}?from=bfm@example.com&to=them@example.com"
    assert send(f"mailto://bfm:hunter22-secret@{address}") is None and len(taken.taken) == 1
    said = send(f"mailto://bfm:wrong-secret@{address}")
    assert said is not None and "wrong-secret" not in said and len(taken.taken) == 1
