"""Failed logins, sessions that end, tokens that expire, and clients behind a proxy."""

from __future__ import annotations

import asyncio
import os
import time
from datetime import date, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import httpx
import pytest
from fastapi import Request
from pydantic import ValidationError
from support.api_server import HERE, TOKENS, ApiFixture, Caller, bearer, with_tokens
from support.api_sessions import LOGIN, LOGOUT, session_of, with_login

from backfill_manager.api.app import create_app
from backfill_manager.api.context import AppContext
from backfill_manager.api.failed_logins import OF_ADDRESS, OF_TOKEN
from backfill_manager.api.sessions import SESSION_S, EndedSessions, Session, find_session
from backfill_manager.settings import ApiSettings, Settings, TokenSettings

PROXY = ("10.0.0.7", 4711)
WRONG = {"Authorization": "Bearer wrong"}


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where logged-out sessions of a state in memory are kept."""
    monkeypatch.setenv("BFM_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def via(client: str, proto: str = "https") -> dict[str, str]:
    return {"X-Forwarded-For": client, "X-Forwarded-Proto": proto}


def guess(n: int) -> dict[str, str]:
    return {"Authorization": f"Bearer guess {n}"}


# -- failed logins ----------------------------------------------------------------------------------------------------


def test_a_right_token_is_never_refused_for_wrong_ones_of_the_same_address() -> None:
    api = ApiFixture(with_tokens(requests_per_second=2))
    call = with_login(api)
    cookie, _ = session_of(call, TOKENS["vera"][1])
    statuses = [call("GET", "/pools", headers=guess(n)).status_code for n in range(50)]
    assert set(statuses) == {401, 429}
    for n in range(50):
        call("POST", LOGIN, headers={"X-Token": f"guess {n}"})
    assert call("GET", "/pools", headers=bearer("oleg")).status_code == 200
    assert call("GET", "/pools", headers=cookie).status_code == 200
    assert call("POST", LOGIN, headers={"X-Token": TOKENS["olga"][1]}).status_code == 200
    assert call("GET", "/health").status_code == 200, "nor is who has none yet"


def test_a_wrong_token_is_limited_by_itself_and_all_of_an_address_together() -> None:
    api = ApiFixture(with_tokens())
    one = [api.call("GET", "/pools", headers=WRONG).status_code for _ in range(OF_TOKEN + 30)]
    assert one == [401] * OF_TOKEN + [429] * 30
    others = [api.call("GET", "/pools", headers=guess(n)).status_code for n in range(OF_ADDRESS + 10)]
    left = OF_ADDRESS - OF_TOKEN  # a program that repeats one wrong token does not use up what its address has
    assert others == [401] * left + [429] * (len(others) - left)
    refused = api.call("GET", "/pools", headers=guess(99))
    assert (refused.headers["retry-after"], "have failed" in refused.json()["detail"]) == ("1", True)
    elsewhere = Caller(api.app, address=("192.0.2.1", 1))
    assert elsewhere("GET", "/pools", headers=WRONG).status_code == 401
    api.clock.advance(seconds=1)
    assert api.call("GET", "/pools", headers=guess(99)).status_code == 401


def test_wrong_tokens_are_counted_where_none_is_needed_too(capfd: pytest.CaptureFixture[str]) -> None:
    api = ApiFixture(with_tokens())
    statuses = [api.call("GET", "/health", headers=guess(n)).status_code for n in range(OF_ADDRESS + 10)]
    assert statuses == [200] * OF_ADDRESS + [429] * 10, "what health shows tells whether a token is right"
    assert capfd.readouterr().err.count("login failed") == OF_ADDRESS
    assert api.call("GET", "/health").status_code == 200
    assert api.call.get("/health", headers=bearer("vera"))["leader"] is not None


def test_logins_are_limited_as_requests_are() -> None:
    api = ApiFixture(with_tokens())
    call = with_login(api)
    statuses = [call("POST", LOGIN, headers={"X-Token": "wrong"}).status_code for _ in range(OF_TOKEN + 3)]
    assert statuses == [401] * OF_TOKEN + [429] * 3


def test_logins_and_failures_are_logged_with_who(capfd: pytest.CaptureFixture[str]) -> None:
    api = ApiFixture(with_tokens())
    call = with_login(api)
    call.address = ("192.0.2.9", 1)
    cookie, csrf = session_of(call, TOKENS["oleg"][1])
    call("POST", LOGOUT, headers={**cookie, **csrf})
    call("POST", LOGIN, headers={"X-Token": "hunter2"})
    call("GET", "/pools", headers={"Authorization": "Bearer hunter2"})
    output = capfd.readouterr().err
    assert "event=login by=oleg role=operator address=192.0.2.9" in output
    assert "event=logout by=oleg address=192.0.2.9" in output
    assert output.count('level=warning component=api event="login failed" by= reason=unknown address=192.0.2.9') == 2
    assert "hunter2" not in output


# -- behind a proxy ---------------------------------------------------------------------------------------------------


def test_behind_a_trusted_proxy_one_stranger_slows_nobody_else_down() -> None:
    api = ApiFixture(with_tokens(requests_per_second=2, trusted_proxies=["10.0.0.0/24"]))
    call = Caller(api.app, address=PROXY)
    stranger = [call("GET", "/health", headers=via("203.0.113.5")).status_code for _ in range(10)]
    assert stranger == [200] * 6 + [429] * 4
    assert call("GET", "/health", headers=via("203.0.113.6")).status_code == 200
    forged = via("203.0.113.77, 203.0.113.5")  # the stranger's own header, and what the proxy has appended to it
    assert call("GET", "/health", headers=forged).status_code == 429


def test_an_address_comes_from_trusted_proxies_only() -> None:
    for proxies, address in ((["10.0.0.7"], "203.0.113.5"), (["10.0.0.8"], "10.0.0.7"), ([], "10.0.0.7")):
        api = ApiFixture(with_tokens(trusted_proxies=proxies))
        call = Caller(api.app, address=PROXY)
        assert call("POST", f"/backfills/{api.backfill()}/pause", headers={**bearer("oleg"), **via("203.0.113.5")})
        assert [row.requested_from for row in api.requests()] == [address]


def test_an_ipv4_proxy_is_known_at_an_ipv6_socket() -> None:
    api = ApiFixture(with_tokens(trusted_proxies=["10.0.0.0/24"]))
    call = Caller(api.app, address=("::ffff:10.0.0.7", 1))
    answer = call("GET", "/health", headers=via("203.0.113.5"))
    assert "strict-transport-security" in answer.headers


@pytest.mark.parametrize(
    ("address", "proto", "is_required"),
    [("10.0.0.7", "https", True), ("10.0.0.7", "http", False), ("203.0.113.5", "https", False)],
)
def test_browsers_are_told_to_use_tls_behind_a_trusted_proxy_that_ends_it(
    address: str, proto: str, is_required: bool
) -> None:
    api = ApiFixture(with_tokens(trusted_proxies=["10.0.0.7"]))
    answer = Caller(api.app, address=(address, 1))("GET", "/health", headers=via("203.0.113.9", proto))
    assert ("strict-transport-security" in answer.headers) is is_required


@pytest.mark.parametrize(
    ("client", "proto", "is_required"),
    [
        ("203.0.113.9, 10.0.0.8", "https, http", True),  # TLS ends at the first proxy, which is trusted
        ("203.0.113.9, 10.0.0.8", "http, https", False),
        ("203.0.113.9, 10.0.0.8", "https", True),  # the second hands it on as it is
        ("203.0.113.9", "https, http", False),  # `https` is the client's own
        ("203.0.113.9", "http, HTTPS", True),
        ("192.0.2.1, 203.0.113.9, ::ffff:10.0.0.8", "https, http, http", False),
        ("203.0.113.9", "https,", False),
    ],
)
def test_of_several_schemes_that_counts_by_which_the_client_came_to_a_trusted_proxy(
    client: str, proto: str, is_required: bool
) -> None:
    api = ApiFixture(with_tokens(trusted_proxies=["10.0.0.0/24"]))
    call = Caller(api.app, address=PROXY)
    in_a_line = call("GET", "/health", headers=via(client, proto))
    in_lines = call(
        "GET",
        "/health",
        headers=[("X-Forwarded-For", client), *(("X-Forwarded-Proto", one) for one in proto.split(","))],
    )
    for answer in (in_a_line, in_lines):
        assert ("strict-transport-security" in answer.headers) is is_required


@pytest.mark.parametrize(
    ("said", "client"),
    [
        ("203.0.113.5, ::ffff:10.0.0.8", "203.0.113.5"),
        ("203.0.113.5, ::FFFF:a00:8, [::ffff:10.0.0.8]:80, 10.0.0.8:80", "203.0.113.5"),
        ("::ffff:203.0.113.5", "203.0.113.5"),
        ("203.0.113.5:4711", "203.0.113.5"),
        ("[2001:db8::5]:4711, 10.0.0.8", "2001:db8::5"),
        ("10.0.0.9, 10.0.0.8", "10.0.0.9"),
        ("203.0.113.5, garbage", "unknown"),
        ("203.0.113.5, 127.1", "unknown"),
        ("203.0.113.5, [10.0.0.8", "unknown"),
        ("203.0.113.5, 10.0.0.8:x", "unknown"),
        ("203.0.113.5,", "unknown"),
        ("", "unknown"),
        ("garbage, 203.0.113.5, 10.0.0.8", "203.0.113.5"),
    ],
)
@pytest.mark.parametrize("proxies", [["10.0.0.0/24"], ["::ffff:10.0.0.0/120"]])
def test_the_client_is_the_last_address_that_is_no_trusted_proxy(proxies: list[str], said: str, client: str) -> None:
    api = ApiFixture(with_tokens(trusted_proxies=proxies))
    call = Caller(api.app, address=PROXY)
    assert call("POST", f"/backfills/{api.backfill()}/pause", headers={**bearer("oleg"), **via(said)})
    assert [row.requested_from for row in api.requests()] == [client]


def test_an_address_that_cannot_be_read_is_not_of_this_machine() -> None:
    api = ApiFixture(Settings(api=ApiSettings(trusted_proxies=["127.0.0.1"])))
    call = Caller(api.app, address=("127.0.0.1", 1))
    assert call("GET", "/pools").status_code == 200
    assert call("GET", "/pools", headers=via("garbage")).status_code == 403


@pytest.mark.parametrize("wrong", ["*", "proxy.example", "10.0.0.7/8", "10.0.0.0/33", ""])
def test_a_proxy_is_named_by_its_address(wrong: str) -> None:
    with pytest.raises(ValidationError, match=r"must be addresses or networks such as"):
        ApiSettings(trusted_proxies=[wrong])


# -- sessions ---------------------------------------------------------------------------------------------------------


def test_a_session_that_was_logged_out_is_over_on_the_server_too() -> None:
    api = ApiFixture(with_tokens())
    call = with_login(api)
    first, second = session_of(call, TOKENS["oleg"][1]), session_of(call, TOKENS["oleg"][1])
    assert call("POST", LOGOUT, headers={**first[0], **first[1]}).status_code == 200
    assert call("GET", "/pools", headers=first[0]).status_code == 401, "a copy of the cookie, too"
    assert call("GET", "/pools", headers=second[0]).status_code == 200


def test_servers_of_one_state_and_those_that_start_later_know_what_was_logged_out() -> None:
    api = ApiFixture(with_tokens())
    call = with_login(api)
    cookie, csrf = session_of(call, TOKENS["oleg"][1])
    beside = Caller(create_app(api.settings, api.store, clock=api.clock, secret=b"known"))
    assert beside("GET", "/pools", headers=cookie).status_code == 200
    call("POST", LOGOUT, headers={**cookie, **csrf})
    later = Caller(create_app(api.settings, api.store, clock=api.clock, secret=b"known"))
    assert [one("GET", "/pools", headers=cookie).status_code for one in (beside, later)] == [401, 401]


def test_what_was_logged_out_is_kept_beside_the_state_for_as_long_as_a_cookie(tmp_path: Path) -> None:
    ended, owner = EndedSessions(str(tmp_path)), TokenSettings(name="ada", sha256="0" * 64)
    first, second = Session(owner, "first"), Session(owner, "second")
    ended.add(first)
    folder = tmp_path / "ended_sessions"
    assert (first in ended, second in ended) == (True, False)
    assert [(folder.stat().st_mode & 0o777, one.stat().st_mode & 0o777) for one in folder.iterdir()] == [(0o700, 0o600)]
    old = (folder / first.id).stat().st_mtime - SESSION_S - 60
    os.utime(folder / first.id, (old, old))
    ended.add(second)
    assert [one.name for one in folder.iterdir()] == [second.id]


def test_a_server_that_was_there_before_its_state_remembers_what_others_log_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BFM_CACHE", str(tmp_path / "cache"))
    place, owner = tmp_path / "state", TokenSettings(name="ada", sha256="0" * 64)
    before, first, second = EndedSessions(str(place)), Session(owner, "first"), Session(owner, "second")
    before.add(first)
    assert not place.exists()
    place.mkdir()
    later = EndedSessions(str(place))
    later.add(second)
    assert [one in ended for ended in (before, later) for one in (first, second)] == [True] * 4
    assert [one.name for one in (place / "ended_sessions").iterdir()] == [second.id]


def test_events_end_with_the_session(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("backfill_manager.api.polling.KEEP_ALIVE_INTERVAL_S", 0.01)
    api = ApiFixture(with_tokens())
    cookie, _ = session_of(with_login(api), TOKENS["oleg"][1])
    context: AppContext = api.app.state.context
    session = find_session(context, Request({"type": "http", "headers": [(b"cookie", cookie["Cookie"].encode())]}))
    assert session is not None

    until = time.monotonic() + 60

    def log_out() -> None:
        assert time.monotonic() < until, "the stream goes on"
        if context.tables._listeners:
            context.ended_sessions.add(session)

    answer = api.call("GET", "/events", headers=cookie, meanwhile=log_out)
    assert (answer.status_code, "event: changed" in answer.text) == (200, True)


# -- requests at once -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("limit", [{"max_concurrent_requests": 2}, {"max_connections": 4}])
def test_one_person_does_not_take_all_live_connections(limit: dict[str, int]) -> None:
    api = ApiFixture(with_tokens(trusted_proxies=["127.0.0.1"], **limit))

    async def ask(client: httpx.AsyncClient, path: str, name: str, address: str = "203.0.113.5") -> httpx.Response:
        return await client.get(f"/api/v1{path}", headers={**bearer(name), **via(address)})

    async def scenario() -> list[httpx.Response]:
        async with httpx.AsyncClient(
            transport=httpx.ASGITransport(api.app, client=HERE), base_url="http://localhost"
        ) as client:
            live = [asyncio.ensure_future(ask(client, "/events", "vera")) for _ in range(2)]
            while len(api.app.state.context.tables._listeners) < len(live):
                await asyncio.sleep(0)
            answers = [await ask(client, *one) for one in (("/pools", "vera", "203.0.113.6"), ("/pools", "oleg"))]
            for stream in live:
                stream.cancel()
            await asyncio.wait(live)
            return [*answers, await ask(client, "/pools", "vera")]

    refused, other, again = asyncio.run(scenario())
    assert (refused.status_code, other.status_code, again.status_code) == (429, 200, 200)
    assert "2 requests of user vera are in progress (api.max_concurrent_requests)" in refused.json()["detail"]


# -- tokens that expire -----------------------------------------------------------------------------------------------


def expiring(api: ApiFixture, expires: datetime) -> Caller:
    """Another server over the same state, on which the token of oleg expires."""
    tokens = [
        one.model_copy(update={"expires": expires}) if one.name == "oleg" else one for one in api.settings.api.tokens
    ]
    settings = api.settings.model_copy(update={"api": ApiSettings(tokens=tokens)})
    return Caller(create_app(settings, api.store, clock=api.clock, secret=b"known"))


def test_a_token_expires_and_its_sessions_with_it(capfd: pytest.CaptureFixture[str]) -> None:
    api = ApiFixture(with_tokens())
    cookie, _ = session_of(with_login(api), TOKENS["oleg"][1])
    call = expiring(api, api.clock.now() + timedelta(seconds=10))
    for headers in (cookie, bearer("oleg")):
        assert call("GET", "/pools", headers=headers).status_code == 200
    api.clock.advance(seconds=10)
    for headers in (cookie, bearer("oleg")):
        assert call("GET", "/pools", headers=headers).status_code == 401
    assert "The token of oleg has expired (" in call("GET", "/pools", headers=bearer("oleg")).json()["detail"]
    assert call("GET", "/pools", headers=bearer("vera")).status_code == 200
    assert 'event="login failed" by=oleg reason=expired' in capfd.readouterr().err


@pytest.mark.parametrize(
    ("written", "instant"),
    [
        ("2027-01-31", datetime(2027, 2, 1, tzinfo=timezone.utc)),
        (date(2027, 1, 31), datetime(2027, 2, 1, tzinfo=timezone.utc)),
        (datetime(2027, 1, 31, 18), datetime(2027, 1, 31, 18, tzinfo=timezone.utc)),
        ("2027-01-31T18:00Z", datetime(2027, 1, 31, 18, tzinfo=timezone.utc)),
        ("2027-01-31T18:00", datetime(2027, 1, 31, 18, tzinfo=timezone.utc)),
        ("2027-01-31 18:00+02:00", datetime(2027, 1, 31, 16, tzinfo=timezone.utc)),
    ],
)
def test_an_expiry_is_a_whole_day_or_an_instant(written: str | date, instant: datetime) -> None:
    token = TokenSettings.model_validate({"name": "ada", "sha256": "0" * 64, "expires": written})
    assert token.expires == instant


@pytest.mark.parametrize("wrong", ["soon", "2027-02-30", "9999-12-31", 20270131, "31.01.2027", True])
def test_an_expiry_that_is_no_date_is_refused(wrong: Any) -> None:
    with pytest.raises(ValidationError, match=r"must be a date \(YYYY-MM-DD\)"):
        TokenSettings.model_validate({"name": "ada", "sha256": "0" * 64, "expires": wrong})
