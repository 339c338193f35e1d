"""Whatever is sent: never a failure of ours, every refusal of the API a problem document, no secret disclosed, every
answer with the security headers. API and pages together, over a state with something in it and no manager.

Schemathesis (test_openapi.py) calls by the document; this sends what no document allows, too.
"""

from __future__ import annotations

import hashlib
import io
import json
from contextlib import redirect_stderr
from typing import Any
from urllib.parse import quote

import httpx
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy
from support.api_server import TOKENS, ApiFixture, Caller, bearer, with_tokens

from backfill_manager.api.app import create_app
from backfill_manager.api.errors import PROBLEM_JSON
from backfill_manager.api.middleware import HEADERS
from backfill_manager.api.sessions import COOKIE
from backfill_manager.model.records import DagRun, Request
from backfill_manager.web import page, router

ORIGIN = "http://localhost:8099"
SIGNING_KEY = b"the key that signs the cookies"
DIGESTS = [hashlib.sha256(token.encode()).hexdigest() for _, token in TOKENS.values()]
SECRETS = [SIGNING_KEY.decode(), *(token for _, token in TOKENS.values()), *DIGESTS]
STREAM = "/api/v1/events"  # never ends: test_events_and_serving.py
SCRIPT = '"><script>alert(1)</script>'
HOSTILE = (
    "", " ", "0", "-1", "1", "1e999", "nan", "NaN", "true", "null", "latest", "9" * 30, "9" * 5000, "0001-01-01",
    "9999-12-31", "0001-01-01T00:00:00+14:00", "2013-01-05", "2013-01-05T00:00:00Z", "2013-02-30", "\x00",
    "\r\nX-Evil: 1", "\x1b[31m", "\u202e", "\U0001f4a9", "../../etc/passwd", "..", ".", "%2F", "a/b", "a\\b",
    "//evil.example", "/\\evil", "javascript:alert(1)", "'", '"', "' or 1=1 --", "; drop table dag", "{{7*7}}",
    "${x}", SCRIPT, "(a+)+$", "(" * 500, "[", ".*", "x" * 300, "é" * 1500, "~00", "~2F",
)  # fmt: skip
FIELDS = (
    "dag_id", "kind", "start_date", "end_date", "dates", "partitions", "conf", "overrides", "tasks", "pool",
    "priority", "batch", "window", "is_paused", "is_polite", "slots", "weight", "min_share", "state", "task_id",
    "run_ids", "dry_run", "subpath", "logical_date", "max_active_runs", "reprocess", "let_running_finish", "token",
    "next", "back", "csrf_token", "do", "once", "dag", "from_date", "from_time", "to_date", "drawn", "version",
    "running", "only", "quick", "sent", "start", "end", "run",
)  # fmt: skip
QUERY = (
    "limit", "cursor", "order_by", "dag_id", "state", "kind", "run_type", "wait", "order", "before", "after", "try",
    "n", "q", "tag", "next", "year", "show", "from", "to", "asked", "version", "dry_run", "tasks", "start", "run",
    "tie", "drawn", "dag", "bundle",
)  # fmt: skip


@pytest.fixture(scope="module")
def call() -> Caller:
    api = ApiFixture()
    api.backfill(5)
    for _ in range(3):
        api.manager.tick()
    api.manager.leader.resign(api.clock.now())
    [run] = api.store.read(DagRun, order_by=("run_seq",), limit=1)
    app = create_app(
        with_tokens(requests_per_second=1_000_000, max_body_bytes=20_000), api.store, clock=api.clock, secret=SIGNING_KEY,
        extra_routers=[router.router], error_page=page.error_page,
    )  # fmt: skip
    api.store.append_request(Request("r1", "dag.pause", '{"dag_id": "flights"}', "ada", api.clock.now()))
    app.state.known = {
        "{dag_id}": "flights", "{task_id}": "clean", "{name}": "backfill", "{backfill_id}": "latest", "{run_id}": run.run_id,
        "{request_id}": "r1", "{day}": "2013-01-01", "{ordinal}": "1",
    }  # fmt: skip
    of_api = [(method.upper(), path) for path, of_path in app.openapi()["paths"].items() for method in of_path]
    of_pages = [(method, path) for path in PAGES for method in ("GET", "POST")]
    elsewhere = [("GET", path) for path in ("/openapi.json", "/static/x/app.css", "/api/v1", "/", "//", "/*")]
    app.state.operations = of_api * 2 + of_pages + elsewhere
    return Caller(app)


PAGES = (
    "/runs", "/tasks", "/fragments/palette",
    "/dags", "/dags/{dag_id}", "/dags/{dag_id}/graph", "/dags/{dag_id}/timeline", "/dags/{dag_id}/calendar",
    "/dags/{dag_id}/day/{day}", "/dags/{dag_id}/code", "/dags/{dag_id}/versions", "/dags/{dag_id}/clear",
    "/dags/{dag_id}/trigger", "/dags/{dag_id}/pause", "/dags/{dag_id}/unpause", "/backfills", "/backfills/new",
    "/backfills/new/dry-run", "/backfills/{backfill_id}", "/backfills/{backfill_id}/settings",
    "/backfills/{backfill_id}/settings/notice", "/backfills/{backfill_id}/items/{ordinal}",
    "/backfills/{backfill_id}/pause", "/backfills/{backfill_id}/cancel", "/backfills/{backfill_id}/retry",
    "/runs/{dag_id}/{run_id}", "/runs/{dag_id}/{run_id}/mark", "/runs/{dag_id}/{run_id}/cancel",
    "/runs/{dag_id}/{run_id}/{task_id}", "/runs/{dag_id}/{run_id}/{task_id}/log",
    "/runs/{dag_id}/{run_id}/{task_id}/mark", "/pools", "/pools/{name}", "/import-errors", "/notifications", "/requests",
    "/requests/{request_id}", "/manager", "/login", "/logout", "/fragments/status_bar",
)  # fmt: skip

texts = st.one_of(st.sampled_from(HOSTILE), st.text(max_size=20))
values: SearchStrategy[Any] = st.recursive(
    st.one_of(texts, st.none(), st.booleans(), st.integers(), st.floats(), st.just(10**400)),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(texts, inner, max_size=3)),
    max_leaves=6,
)
objects = st.dictionaries(st.sampled_from(FIELDS), values, max_size=5)
bodies = st.one_of(
    objects,
    objects,
    objects,
    st.none(),
    st.binary(max_size=60),
    st.sampled_from(
        [b"[" * 9000, b'{"a":' * 3000, b'{"conf": {"a": "\\ud800"}}', b'{"is_paused": NaN}', b" " * 20_001, b"\xff\xfe"]
    ),
)
parts = st.one_of(
    texts.map(lambda text: quote(text.encode("utf-8", "replace"), safe="")),
    st.sampled_from(["%ff%fe", "%", "%zz", "a%2Fb", "%2e%2e"]),
)
headers = st.fixed_dictionaries(
    {},
    optional={
        "Host": st.sampled_from(["localhost:8099", "evil.example", "", "127.0.0.1:x", "[::1"]),
        "Origin": st.sampled_from(["http://localhost:8099", "https://evil.example", "null", "http://[", ""]),
        "Referer": st.sampled_from(["http://localhost:8099/dags", "http://[", "x"]),
        "X-Forwarded-For": st.just("203.0.113.7"),
        "If-None-Match": st.sampled_from(["*", 'W/"x"', ","]),
        "Idempotency-Key": st.sampled_from(["", "k", "x" * 201, "é"]),
        "X-CSRF-Token": st.sampled_from(["", "x"]),
        "Cookie": st.sampled_from([f"{COOKIE}=x", f"{COOKIE}=WyJhIl0.x.y", "=;=", "\x7f"]),
        "Accept": st.sampled_from(["text/html", "image/png"]),
    },
)
content_types = st.sampled_from(
    [
        "application/json",
        "application/json",
        "application/x-www-form-urlencoded",
        "application/json",
        "application/x-www-form-urlencoded",
        "multipart/form-data",
        "multipart/form-data; boundary=b",
        "text/plain",
        "",
    ]
)
METHODS = ["GET", "POST", "PATCH", "DELETE", "PUT", "HEAD", "OPTIONS", "TRACE", "BREW"]
persons = st.sampled_from(["oleg"] * 8 + ["vera", "wrong", "nobody"])


@settings(
    max_examples=600,
    deadline=None,
    phases=[Phase.generate, Phase.shrink],
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
@given(data=st.data())
def test_whatever_is_sent_the_answer_is_in_order(call: Caller, data: st.DataObject) -> None:
    method, template = data.draw(st.sampled_from(call.app.state.operations))
    if not data.draw(st.integers(0, 9)):
        method = data.draw(st.sampled_from(METHODS))
    path = _path(call, template, data)
    if path.startswith(STREAM):
        return
    query = data.draw(st.lists(st.tuples(st.sampled_from(QUERY), texts), max_size=3))
    # Patience is not tested.
    query = [(name, value) for name, value in query if name != "wait" or not value.strip().isdigit()]
    body, content_type = data.draw(bodies), data.draw(content_types)
    sent = {**_who(data.draw(persons)), **data.draw(headers), "Content-Type": content_type}
    submitted = "&".join(f"{name}={quote(value.encode('utf-8', 'replace'))}" for name, value in query)
    log = io.StringIO()
    with redirect_stderr(log):
        answer = call(
            method, f"{ORIGIN}{path}?{submitted}" if submitted else ORIGIN + path, content=_encoded(body, content_type),
            headers={name: value.encode("latin-1") for name, value in sent.items()},
        )  # fmt: skip
    check(method, path, answer, log.getvalue())


def check(method: str, path: str, answer: httpx.Response, log: str) -> None:
    plans = path.endswith("/dry_run") and method == "POST"
    assert answer.status_code < 500 or (plans and answer.status_code == 503), answer.text
    if path.startswith("/api/v1/") and answer.status_code >= 300 and answer.status_code != 304:
        assert answer.headers["content-type"] == PROBLEM_JSON
        problem = answer.json() if method != "HEAD" else {"status": answer.status_code, "detail": "-", "type": "urn:"}
        assert problem["status"] == answer.status_code and problem["detail"] and problem["type"].startswith("urn:")
    assert {name: answer.headers.get(name) for name in HEADERS} == HEADERS
    result = answer.text + str(answer.headers.raw) + log
    assert [secret for secret in SECRETS if secret in result] == []
    assert all(line.startswith("timestamp=") for line in log.splitlines())
    if answer.headers.get("content-type", "").startswith("text/html"):
        assert "<script>alert" not in answer.text
    to = answer.headers.get("location", "/")
    assert to.startswith("/") and not to.startswith(("//", "/\\")) and to.isprintable()


def _path(call: Caller, template: str, data: st.DataObject) -> str:
    known = call.app.state.known
    made = "/".join(
        data.draw(st.one_of(*[st.just(quote(known[part], safe=""))] * 4, parts)) if part in known else part
        for part in template.split("/")
    )
    return made if data.draw(st.integers(0, 9)) else f"{made}/{data.draw(parts)}"


def _who(name: str) -> dict[str, str]:
    if name == "nobody":
        return {}
    return bearer(name) if name in TOKENS else {"Authorization": "Bearer wrong"}


def _encoded(body: Any, content_type: str) -> bytes | None:
    if body is None or isinstance(body, bytes):
        return body
    if "urlencoded" in content_type:
        return "&".join(f"{name}={quote(str(one).encode('utf-8', 'replace'))}" for name, one in body.items()).encode()
    return json.dumps(body, default=str).encode()
