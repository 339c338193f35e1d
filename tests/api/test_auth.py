"""Who may come in, and what they may do."""

from __future__ import annotations

import hashlib
import time
from typing import Any

import pytest
from fastapi import Request
from fastapi.responses import JSONResponse, Response
from support.api_server import Caller, Stage, bearer, with_tokens

from backfill_manager.api.app import create_app
from backfill_manager.api.auth import SESSION_S, Viewer, csrf_token, is_loopback, open_session
from backfill_manager.api.context import Context
from backfill_manager.api.server import check_host
from backfill_manager.errors import InvalidConfig
from backfill_manager.settings import ApiSettings, Settings, TokenSettings

LOGIN = "http://localhost:8099/login"


@pytest.fixture
def guarded() -> Stage:
    """With tokens: vera may look, oleg may change."""
    return Stage(with_tokens())


def test_without_tokens_whoever_sits_at_this_machine_may_do_anything(stage: Stage) -> None:
    backfill_id = stage.backfill()
    assert stage.call("POST", f"/backfills/{backfill_id}/pause").status_code == 202
    assert stage.asked()[0].requested_by == "local"


@pytest.mark.parametrize("address", ["192.0.2.1", "10.0.0.3", "::ffff:192.0.2.1"])
def test_without_tokens_another_machine_is_sent_away(stage: Stage, address: str) -> None:
    told = Caller(stage.app, address=(address, 1))("GET", "/backfills")
    assert (told.status_code, "its own machine only" in told.json()["detail"]) == (403, True)


@pytest.mark.parametrize("host", ["evil.example", "localhost.evil.example", "127.0.0.1.nip.io:8099", "192.0.2.1"])
def test_a_name_of_somebody_else_that_leads_to_loopback_is_refused(stage: Stage, host: str) -> None:
    """DNS rebinding: the page's own name, the person's own machine."""
    for path in ("/backfills", "/metrics"):
        assert stage.call("GET", path, headers={"Host": host}).status_code == 403


@pytest.mark.parametrize(
    "host", ["localhost", "LOCALHOST:1", "127.0.0.1:8099", "[::1]:8099", "127.9.9.9", "localhost."]
)
def test_loopback_has_many_names(stage: Stage, host: str) -> None:
    assert is_loopback(host)
    assert stage.call("GET", "/backfills", headers={"Host": host}).status_code == 200


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
def test_a_page_of_another_site_can_change_nothing(stage: Stage, headers: dict[str, str]) -> None:
    told = stage.call("POST", f"/backfills/{stage.backfill()}/pause", headers=headers)
    assert (told.status_code, stage.asked()) == (403, [])


def test_a_page_of_ours_can(stage: Stage) -> None:
    headers = {"Origin": "http://localhost:8099", "Sec-Fetch-Site": "same-origin"}
    assert stage.call("POST", f"/backfills/{stage.backfill()}/pause", headers=headers).status_code == 202


def test_a_viewer_looks_and_an_operator_changes(guarded: Stage) -> None:
    backfill_id = guarded.backfill()
    for name, status in (("vera", 403), ("oleg", 202)):
        assert guarded.call("GET", f"/backfills/{backfill_id}", headers=bearer(name)).status_code == 200
        assert guarded.call("POST", f"/backfills/{backfill_id}/pause", headers=bearer(name)).status_code == status
    assert [row.requested_by for row in guarded.asked()] == ["oleg"]


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
def test_a_wrong_token_opens_nothing(guarded: Stage, headers: dict[str, str]) -> None:
    for path in ("/backfills", "/requests/latest", "/metrics", "/events"):
        told = guarded.call("GET", path, headers=headers)
        assert (told.status_code, told.headers["www-authenticate"]) == (401, 'Bearer realm="backfill_manager"')


def test_health_is_for_probes_and_tells_strangers_little(guarded: Stage) -> None:
    assert guarded.call.get("/health")["leader"] is None
    assert guarded.call.get("/health", headers=bearer("vera"))["leader"]["leading"] is True


def with_login(stage: Stage) -> Caller:
    """As the pages log in."""

    async def login(request: Request, context: Context) -> Response:
        response = JSONResponse({})
        open_session(context, request, response, request.headers["x-token"])
        return response

    async def csrf(request: Request, _: Viewer) -> dict[str, Any]:
        return {"csrf": csrf_token(request)}

    stage.app.add_api_route("/login", login, methods=["POST"], response_model=None)
    stage.app.add_api_route("/api/v1/csrf", csrf, methods=["GET"])
    return stage.call


def session_of(call: Caller, token: str) -> tuple[dict[str, str], dict[str, str]]:
    """The cookie of a browser that logs in, and its CSRF header."""
    told = call("POST", LOGIN, headers={"X-Token": token})
    assert told.status_code == 200
    cookie = {"Cookie": told.headers["set-cookie"].partition(";")[0]}
    return cookie, {"X-CSRF-Token": call.get("/csrf", headers=cookie)["csrf"]}


def test_a_browser_logs_in_once_and_its_cookie_is_out_of_reach_of_scripts(guarded: Stage) -> None:
    call = with_login(guarded)

    told = call("POST", LOGIN, headers={"X-Token": "token of vera"})

    cookie = told.headers["set-cookie"].lower()
    assert "httponly" in cookie and "samesite=lax" in cookie and "path=/" in cookie
    assert "token of vera" not in cookie
    assert (
        call("GET", "/backfills", headers={"Cookie": told.headers["set-cookie"].partition(";")[0]}).status_code == 200
    )
    assert call("POST", LOGIN, headers={"X-Token": "wrong"}).status_code == 401


@pytest.mark.parametrize(
    ("proto", "is_secure"), [("https", True), ("http", False), ("", False), ("evil; path=/x", False)]
)
def test_behind_a_proxy_with_tls_the_cookie_is_for_tls_only(guarded: Stage, proto: str, is_secure: bool) -> None:
    told = with_login(guarded)("POST", LOGIN, headers={"X-Token": "token of vera", "X-Forwarded-Proto": proto})
    assert ("secure" in told.headers["set-cookie"].lower()) is is_secure


def test_a_session_is_over_after_half_a_day(guarded: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    cookie, _ = session_of(with_login(guarded), "token of vera")
    now = time.time()
    monkeypatch.setattr("itsdangerous.timed.time.time", lambda: now + SESSION_S - 60)
    assert guarded.call("GET", "/backfills", headers=cookie).status_code == 200
    monkeypatch.setattr("itsdangerous.timed.time.time", lambda: now + SESSION_S + 60)
    assert guarded.call("GET", "/backfills", headers=cookie).status_code == 401


def test_a_role_that_was_taken_away_is_gone_from_sessions_too(guarded: Stage) -> None:
    cookie, csrf = session_of(with_login(guarded), "token of oleg")
    tokens = [one.model_copy(update={"role": "viewer"}) for one in guarded.settings.api.tokens]
    call = Caller(
        create_app(Settings(api=ApiSettings(tokens=tokens)), guarded.store, clock=guarded.clock, secret=b"known")
    )
    assert call("GET", "/backfills", headers=cookie).status_code == 200
    told = call("POST", f"/backfills/{guarded.backfill()}/pause", headers={**cookie, **csrf})
    assert (told.status_code, "role operator" in told.json()["detail"], guarded.asked()) == (403, True, [])


def test_where_a_request_comes_from_is_the_connection_and_no_header(stage: Stage) -> None:
    headers = {"X-Forwarded-For": "203.0.113.7", "Forwarded": "for=203.0.113.7", "X-Real-IP": "203.0.113.7"}
    assert stage.call("POST", f"/backfills/{stage.backfill()}/pause", headers=headers).status_code == 202
    assert stage.asked()[0].requested_from == "127.0.0.1"
    far = Caller(stage.app, address=("192.0.2.1", 1))
    assert far("GET", "/backfills", headers={"X-Forwarded-For": "127.0.0.1"}).status_code == 403


def test_a_change_in_a_session_needs_its_csrf_token(guarded: Stage) -> None:
    call, backfill_id = with_login(guarded), guarded.backfill()
    cookie, csrf = session_of(call, "token of oleg")
    path = f"/backfills/{backfill_id}/pause"

    assert call("POST", path, headers=cookie).status_code == 403
    assert call("POST", path, headers={**cookie, "X-CSRF-Token": "guessed"}).status_code == 403
    assert call("POST", path, headers={**cookie, "X-CSRF-Token": b"\xfc"}).status_code == 403
    other = session_of(call, "token of oleg")[1]
    assert call("POST", path, headers={**cookie, **other}).status_code == 403
    assert guarded.asked() == []
    told = call("POST", path, headers={**cookie, **csrf})
    assert (told.status_code, told.json()["source"], told.json()["requested_by"]) == (202, "ui", "oleg")


def test_a_form_may_carry_the_csrf_token_as_a_field(guarded: Stage) -> None:
    call, backfill_id = with_login(guarded), guarded.backfill()
    cookie, csrf = session_of(call, "token of oleg")

    told = call("POST", f"/backfills/{backfill_id}/pause", headers=cookie, data={"csrf_token": csrf["X-CSRF-Token"]})

    assert told.status_code == 202, told.text


def test_servers_that_share_a_secret_share_their_sessions(guarded: Stage) -> None:
    settings = with_tokens(session_secret="s" * 32)
    one, two = (create_app(settings, guarded.store, clock=guarded.clock) for _ in range(2))
    guarded.app = one
    guarded.call = Caller(one)
    cookie, _ = session_of(with_login(guarded), "token of oleg")
    assert Caller(two)("GET", "/backfills", headers=cookie).status_code == 200
    alone = create_app(with_tokens(), guarded.store, clock=guarded.clock)
    assert Caller(alone)("GET", "/backfills", headers=cookie).status_code == 401


def test_a_session_ends_with_its_token(guarded: Stage) -> None:
    cookie, _ = session_of(with_login(guarded), "token of oleg")
    assert guarded.call("GET", "/backfills", headers=cookie).status_code == 200

    left = [token for token in guarded.settings.api.tokens if token.name != "oleg"]
    replaced = [*left, TokenSettings(name="oleg", sha256="0" * 64, role="operator")]
    for tokens in (left, replaced):
        settings = Settings(api=ApiSettings(tokens=tokens))
        call = Caller(create_app(settings, guarded.store, clock=guarded.clock, secret=b"known"))
        assert call("GET", "/backfills", headers=cookie).status_code == 401


def test_a_cookie_of_another_server_is_worth_nothing(guarded: Stage) -> None:
    cookie, _ = session_of(with_login(guarded), "token of oleg")
    other = Caller(create_app(guarded.settings, guarded.store, clock=guarded.clock, secret=b"another"))
    assert other("GET", "/backfills", headers=cookie).status_code == 401


def test_others_are_let_in_only_when_tokens_tell_them_apart() -> None:
    for host in ("127.0.0.1", "localhost", "::1"):
        check_host(Settings(), host)
    for host in ("0.0.0.0", "::", "192.0.2.1", "example.org", ""):
        with pytest.raises(InvalidConfig, match=r"no token is configured.*bfm config token NAME"):
            check_host(Settings(), host)
    check_host(with_tokens(), "0.0.0.0")


def test_no_secret_is_written_to_the_log(guarded: Stage, capfd: pytest.CaptureFixture[str]) -> None:
    secret = "hunter2secret"
    for name in ("vera", "oleg"):
        headers = {**bearer(name), "X-Secret": secret, "Cookie": f"a={secret}"}
        for query in ("", f"?token={secret}"):
            guarded.call("POST", f"/dags/flights/runs{query}", json={"conf": {"password": secret}}, headers=headers)
    guarded.call("POST", "/dags/flights/runs", headers={"Authorization": f"Bearer {secret}"})

    told = capfd.readouterr().err
    assert 'event="http request" method=POST path=/api/v1/dags/flights/runs status=202 by=oleg' in told
    assert secret not in told and "token of" not in told


def test_every_answer_carries_the_security_headers(stage: Stage) -> None:
    for path in ("/backfills", "/nothing", "/openapi.json", "/metrics"):
        headers = stage.call("GET", path).headers
        policy = headers["content-security-policy"]
        assert "default-src 'none'" in policy and "unsafe" not in policy and "script-src 'self';" in policy
        assert (headers["x-content-type-options"], headers["x-frame-options"]) == ("nosniff", "DENY")
        assert "server" not in headers


def test_whoever_asks_too_often_is_told_when_to_come_back() -> None:
    stage = Stage(Settings(api=ApiSettings(requests_per_second=2)))
    statuses = [stage.call("GET", "/health").status_code for _ in range(7)]
    assert statuses == [200] * 6 + [429]
    refused = stage.call("GET", "/health")
    assert (refused.headers["retry-after"], refused.headers["content-type"]) == ("1", "application/problem+json")
    assert Caller(stage.app, address=("127.0.0.2", 1))("GET", "/health").status_code == 200, "others may"
    stage.clock.advance(seconds=1)
    assert stage.call("GET", "/health").status_code == 200


def test_whoever_guesses_tokens_is_slowed_down() -> None:
    stage = Stage(with_tokens(requests_per_second=50))
    statuses = [stage.call("GET", "/pools", headers={"Authorization": "Bearer no"}).status_code for _ in range(5)]
    assert statuses == [401, 401, 401, 429, 429]


def test_a_body_that_is_too_large_is_not_read(stage: Stage) -> None:
    small = Stage(Settings(api=ApiSettings(max_body_bytes=1000)))

    async def pieces() -> Any:
        for _ in range(100):
            yield b" " * 100

    json = {"Content-Type": "application/json"}
    for body in (b" " * 1001, pieces()):
        told = small.call("POST", "/backfills", content=body, headers=json)
        assert (told.status_code, told.headers["content-type"]) == (413, "application/problem+json"), told.text
