"""Who has access, and with which permissions."""

from __future__ import annotations

import hashlib
import time
from pathlib import Path
from typing import Any

import pytest
from support.api_server import ApiFixture, Caller, bearer, with_tokens
from support.api_sessions import LOGIN, session_of, with_login

from backfill_manager.api.app import create_app
from backfill_manager.api.client_addresses import is_loopback
from backfill_manager.api.server import check_host
from backfill_manager.api.sessions import SESSION_S
from backfill_manager.errors import InvalidConfig
from backfill_manager.settings import ApiSettings, Settings, TokenSettings
from backfill_manager.store.delta_rs.store import DeltaRsStore
from backfill_manager.testing import FakeClock


@pytest.fixture
def guarded() -> ApiFixture:
    """With tokens: vera may look, oleg may change."""
    return ApiFixture(with_tokens())


def test_without_tokens_every_local_user_is_operator(api: ApiFixture) -> None:
    backfill_id = api.backfill()
    assert api.call("POST", f"/backfills/{backfill_id}/pause").status_code == 202
    assert api.requests()[0].requested_by == "local"


@pytest.mark.parametrize("address", ["192.0.2.1", "10.0.0.3", "::ffff:192.0.2.1"])
def test_without_tokens_another_machine_is_sent_away(api: ApiFixture, address: str) -> None:
    result = Caller(api.app, address=(address, 1))("GET", "/backfills")
    assert (result.status_code, "its own machine only" in result.json()["detail"]) == (403, True)


@pytest.mark.parametrize(
    "host",
    [
        "evil.example", "localhost.evil.example", "127.0.0.1.nip.io:8099", "192.0.2.1", "[::1].evil.example",
        "localhost:evil.example", "evil.example:80:127.0.0.1",
    ],
)  # fmt: skip
def test_a_foreign_host_name_that_resolves_to_loopback_is_refused(api: ApiFixture, host: str) -> None:
    """DNS rebinding: the page's own name, the person's own machine."""
    for path in ("/backfills", "/metrics", "/openapi.json"):
        assert api.call("GET", path, headers={"Host": host}).status_code == 403


@pytest.mark.parametrize(
    "host", ["localhost", "LOCALHOST:1", "127.0.0.1:8099", "[::1]:8099", "127.9.9.9", "localhost."]
)
def test_loopback_has_many_names(api: ApiFixture, host: str) -> None:
    assert is_loopback(host)
    assert api.call("GET", "/backfills", headers={"Host": host}).status_code == 200


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "https://evil.example"},
        {"Origin": "null"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
        {"Origin": "http://localhost:8000"},
    ],
)
def test_a_page_of_another_site_can_change_nothing(api: ApiFixture, headers: dict[str, str]) -> None:
    response = api.call("POST", f"/backfills/{api.backfill()}/pause", headers=headers)
    assert (response.status_code, api.requests()) == (403, [])


@pytest.mark.parametrize("origin", ["http://localhost:8099", "https://jobs.example.org"])
def test_a_page_of_ours_can(api: ApiFixture, origin: str) -> None:
    """Also where a proxy does not pass on the name by which the browser knows the server."""
    headers = {"Origin": origin, "Sec-Fetch-Site": "same-origin"}
    assert api.call("POST", f"/backfills/{api.backfill()}/pause", headers=headers).status_code == 202


def test_where_only_the_host_tells_a_refusal_says_what_a_proxy_must_pass_on(api: ApiFixture) -> None:
    refused = api.call("POST", f"/backfills/{api.backfill()}/pause", headers={"Origin": "http://jobs.example.org"})
    assert "from http://jobs.example.org and was sent to localhost:8099" in refused.json()["detail"]
    assert "a proxy must pass `Host` on" in refused.json()["detail"]


def test_a_viewer_reads_and_an_operator_changes(guarded: ApiFixture) -> None:
    backfill_id = guarded.backfill()
    for name, status in (("vera", 403), ("oleg", 202)):
        assert guarded.call("GET", f"/backfills/{backfill_id}", headers=bearer(name)).status_code == 200
        assert guarded.call("POST", f"/backfills/{backfill_id}/pause", headers=bearer(name)).status_code == status
    assert [row.requested_by for row in guarded.requests()] == ["oleg"]


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"Authorization": "Bearer wrong"},
        {"Authorization": "Bearer "},
        {"Authorization": "Basic b2xlZzp0b2tlbg=="},
        {"Authorization": "token of oleg"},
        {"Authorization": f"Bearer {hashlib.sha256(b'token of oleg').hexdigest()}"},
        {"Authorization": "Bearer " + "x" * 5000},
        {"Cookie": "bfm_session=forged"},
        {"Cookie": "bfm_session=WyJvbGVnIiwiYSIsImIiXQ.aaaaaa.bbbb"},
    ],
)
def test_a_wrong_token_is_refused(guarded: ApiFixture, headers: dict[str, str]) -> None:
    for path in ("/backfills", "/requests/latest", "/metrics", "/events", "/openapi.json"):
        response = guarded.call("GET", path, headers=headers)
        assert (response.status_code, response.headers["www-authenticate"]) == (401, 'Bearer realm="backfill_manager"')


def test_health_is_for_probes_and_shows_anonymous_users_little(guarded: ApiFixture) -> None:
    assert guarded.call.get("/health")["leader"] is None
    assert guarded.call.get("/health", headers=bearer("vera"))["leader"]["leading"] is True


def test_why_the_state_can_not_be_read_is_for_those_with_a_token(tmp_path: Path) -> None:
    state = tmp_path / "private" / "state"
    app = create_app(with_tokens(), DeltaRsStore(str(state)), clock=FakeClock())
    anonymous, viewer = (Caller(app)("GET", "/health", headers=headers) for headers in ({}, bearer("vera")))
    assert (anonymous.status_code, "private" in anonymous.text) == (503, False)
    assert (viewer.status_code, str(state) in viewer.json()["detail"]) == (503, True)


def test_a_browser_logs_in_once_and_its_cookie_is_out_of_reach_of_scripts(guarded: ApiFixture) -> None:
    call = with_login(guarded)

    result = call("POST", LOGIN, headers={"X-Token": "token of vera"})

    cookie = result.headers["set-cookie"].lower()
    assert "httponly" in cookie and "samesite=lax" in cookie and "path=/" in cookie
    assert "token of vera" not in cookie
    assert (
        call("GET", "/backfills", headers={"Cookie": result.headers["set-cookie"].partition(";")[0]}).status_code == 200
    )
    assert call("POST", LOGIN, headers={"X-Token": "wrong"}).status_code == 401


@pytest.mark.parametrize(
    ("proto", "is_secure"),
    [("https", True), ("https, http", True), ("http", False), ("", False), ("evil; path=/x", False)],
)
def test_behind_a_proxy_with_tls_the_cookie_is_for_tls_only(guarded: ApiFixture, proto: str, is_secure: bool) -> None:
    result = with_login(guarded)("POST", LOGIN, headers={"X-Token": "token of vera", "X-Forwarded-Proto": proto})
    assert ("secure" in result.headers["set-cookie"].lower()) is is_secure


def test_a_session_is_over_after_half_a_day(guarded: ApiFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    cookie, _ = session_of(with_login(guarded), "token of vera")
    now = time.time()
    monkeypatch.setattr("itsdangerous.timed.time.time", lambda: now + SESSION_S - 60)
    assert guarded.call("GET", "/backfills", headers=cookie).status_code == 200
    monkeypatch.setattr("itsdangerous.timed.time.time", lambda: now + SESSION_S + 60)
    assert guarded.call("GET", "/backfills", headers=cookie).status_code == 401


def test_a_role_that_was_taken_away_is_gone_from_sessions_too(guarded: ApiFixture) -> None:
    cookie, csrf = session_of(with_login(guarded), "token of oleg")
    tokens = [one.model_copy(update={"role": "viewer"}) for one in guarded.settings.api.tokens]
    call = Caller(
        create_app(Settings(api=ApiSettings(tokens=tokens)), guarded.store, clock=guarded.clock, secret=b"known")
    )
    assert call("GET", "/backfills", headers=cookie).status_code == 200
    result = call("POST", f"/backfills/{guarded.backfill()}/pause", headers={**cookie, **csrf})
    assert (result.status_code, "role operator" in result.json()["detail"], guarded.requests()) == (403, True, [])


def test_where_a_request_comes_from_is_the_connection_and_no_header(api: ApiFixture) -> None:
    headers = {"X-Forwarded-For": "203.0.113.7", "Forwarded": "for=203.0.113.7", "X-Real-IP": "203.0.113.7"}
    assert api.call("POST", f"/backfills/{api.backfill()}/pause", headers=headers).status_code == 202
    assert api.requests()[0].requested_from == "127.0.0.1"
    far = Caller(api.app, address=("192.0.2.1", 1))
    assert far("GET", "/backfills", headers={"X-Forwarded-For": "127.0.0.1"}).status_code == 403


def test_a_change_in_a_session_needs_its_csrf_token(guarded: ApiFixture) -> None:
    call, backfill_id = with_login(guarded), guarded.backfill()
    cookie, csrf = session_of(call, "token of oleg")
    path = f"/backfills/{backfill_id}/pause"

    assert call("POST", path, headers=cookie).status_code == 403
    assert call("POST", path, headers={**cookie, "X-CSRF-Token": "guessed"}).status_code == 403
    assert call("POST", path, headers={**cookie, "X-CSRF-Token": b"\xfc"}).status_code == 403
    other = session_of(call, "token of oleg")[1]
    assert call("POST", path, headers={**cookie, **other}).status_code == 403
    assert guarded.requests() == []
    result = call("POST", path, headers={**cookie, **csrf})
    assert (result.status_code, result.json()["source"], result.json()["requested_by"]) == (202, "ui", "oleg")


def test_a_form_may_carry_the_csrf_token_as_a_field(guarded: ApiFixture) -> None:
    call, backfill_id = with_login(guarded), guarded.backfill()
    cookie, csrf = session_of(call, "token of oleg")

    result = call("POST", f"/backfills/{backfill_id}/pause", headers=cookie, data={"csrf_token": csrf["X-CSRF-Token"]})

    assert result.status_code == 202, result.text


def test_servers_that_share_a_secret_share_their_sessions(guarded: ApiFixture) -> None:
    settings = with_tokens(session_secret="s" * 32)
    one, two = (create_app(settings, guarded.store, clock=guarded.clock) for _ in range(2))
    guarded.app = one
    guarded.call = Caller(one)
    cookie, _ = session_of(with_login(guarded), "token of oleg")
    assert Caller(two)("GET", "/backfills", headers=cookie).status_code == 200
    alone = create_app(with_tokens(), guarded.store, clock=guarded.clock)
    assert Caller(alone)("GET", "/backfills", headers=cookie).status_code == 401


def test_a_session_ends_with_its_token(guarded: ApiFixture) -> None:
    cookie, _ = session_of(with_login(guarded), "token of oleg")
    assert guarded.call("GET", "/backfills", headers=cookie).status_code == 200

    left = [token for token in guarded.settings.api.tokens if token.name != "oleg"]
    replaced = [*left, TokenSettings(name="oleg", sha256="0" * 64, role="operator")]
    for tokens in (left, replaced):
        settings = Settings(api=ApiSettings(tokens=tokens))
        call = Caller(create_app(settings, guarded.store, clock=guarded.clock, secret=b"known"))
        assert call("GET", "/backfills", headers=cookie).status_code == 401


def test_a_cookie_of_another_server_is_invalid(guarded: ApiFixture) -> None:
    cookie, _ = session_of(with_login(guarded), "token of oleg")
    other = Caller(create_app(guarded.settings, guarded.store, clock=guarded.clock, secret=b"another"))
    assert other("GET", "/backfills", headers=cookie).status_code == 401


def test_other_hosts_need_configured_tokens() -> None:
    for host in ("127.0.0.1", "localhost", "::1"):
        check_host(Settings(), host)
    for host in ("0.0.0.0", "::", "192.0.2.1", "example.org", ""):
        with pytest.raises(InvalidConfig, match=r"no token is configured.*bfm config token NAME"):
            check_host(Settings(), host)
    check_host(with_tokens(), "0.0.0.0")


def test_no_secret_is_written_to_the_log(guarded: ApiFixture, capfd: pytest.CaptureFixture[str]) -> None:
    secret = "hunter2secret"
    for name in ("vera", "oleg"):
        headers = {**bearer(name), "X-Secret": secret, "Cookie": f"a={secret}"}
        for query in ("", f"?token={secret}"):
            guarded.call("POST", f"/dags/flights/runs{query}", json={"conf": {"password": secret}}, headers=headers)
    guarded.call("POST", "/dags/flights/runs", headers={"Authorization": f"Bearer {secret}"})

    output = capfd.readouterr().err
    assert 'event="http request" method=POST path=/api/v1/dags/flights/runs status=202 by=oleg' in output
    assert secret not in output and "token of" not in output


def test_every_answer_carries_the_security_headers(api: ApiFixture) -> None:
    for path in ("/backfills", "/nothing", "/openapi.json", "/metrics"):
        headers = api.call("GET", path).headers
        policy = headers["content-security-policy"]
        assert "default-src 'none'" in policy and "unsafe" not in policy and "script-src 'self';" in policy
        assert (headers["x-content-type-options"], headers["x-frame-options"]) == ("nosniff", "DENY")
        assert "server" not in headers


def test_too_many_requests_get_429_with_retry_after() -> None:
    api = ApiFixture(Settings(api=ApiSettings(requests_per_second=2)))
    statuses = [api.call("GET", "/health").status_code for _ in range(7)]
    assert statuses == [200] * 6 + [429]
    refused = api.call("GET", "/health")
    assert (refused.headers["retry-after"], refused.headers["content-type"]) == ("1", "application/problem+json")
    assert Caller(api.app, address=("127.0.0.2", 1))("GET", "/health").status_code == 200, "others may"
    api.clock.advance(seconds=1)
    assert api.call("GET", "/health").status_code == 200


def test_a_body_that_is_too_large_is_not_read(api: ApiFixture) -> None:
    small = ApiFixture(Settings(api=ApiSettings(max_body_bytes=1000)))

    async def pieces() -> Any:
        for _ in range(100):
            yield b" " * 100

    json = {"Content-Type": "application/json"}
    for body in (b" " * 1001, pieces()):
        response = small.call("POST", "/backfills", content=body, headers=json)
        assert (response.status_code, response.headers["content-type"]) == (413, "application/problem+json"), (
            response.text
        )
