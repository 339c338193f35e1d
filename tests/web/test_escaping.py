"""Escaping: texts of DAGs, runs, tasks, log lines, broken files, requests and users are shown as text. A page has the same
elements as with plain words, so no text has become markup."""

from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path

import pytest
from fastapi.testclient import TestClient
from support.busy_state import put
from support.page_checks import Page, wrongs
from support.page_client import browser_of

from backfill_manager.execution.messages import Failed, Outcome, TaskLaunch
from backfill_manager.model.records import DagVersion, ImportProblem, Request, TaskLog
from backfill_manager.testing import FakeClock, InMemoryManager, dag_spec, days

MARK = "7f3a"
HOSTILE = (
    f"</script></style></textarea></title><script>alert('{MARK}')</script><img src=x onerror=\"alert({MARK})\">"
    f"\"'><b onclick=alert({MARK})>`code` {{{{7*7}}}} {{% raw %}} &lt;b&gt; \u202egnol\u202c \u2028 \x00\x1b[31m "
)
LONG = HOSTILE + "x" * 10_000
ELEMENTS = re.compile(r"alert\(|onerror|onclick")  # in an element's name or an attribute's


def ground_with(text: str) -> InMemoryManager:
    """A state in which each text from outside is this one."""
    clock = FakeClock()

    def script(launch: TaskLaunch) -> Outcome | None:
        return Failed(text, retryable=False)

    spec = dag_spec(
        "plain", "load", "report", upstream={"report": ["load"]}, schedule=None, description=text, owner=text, tags=(text,),
        params={"shown": text},
    )  # fmt: skip
    manager = InMemoryManager(spec, script=script, clock=clock)
    manager.backfill("plain", keys=[text[:900], "b"], conf_json=json.dumps({text[:200]: text}))
    manager.drain()
    manager.backfill("plain", days("2013-01-01", 2), conf_json=json.dumps({"a": text}))
    manager.drain()
    for dag in list(manager.state.catalog.dags.values()):  # as a scan of the bundle would have written them
        manager.state.put(dag.evolve(tags_json=json.dumps([text])))
    manager.ask("dag.trigger", dag_id=text, logical_date=None, conf={text: [text]})
    manager.ask("dag.trigger", dag_id="plain", logical_date=None, conf={"a": text})
    manager.tick()
    [run] = manager.runs("plain")[:1]
    at = clock.now()
    put(
        manager,
        ImportProblem(bundle=text, file=text, line=3, message=text, traceback=text, is_current=True, first_seen_at=at,
                      last_seen_at=at),
        *(TaskLog(dag_id="plain", run_id=run.run_id, task_id="load", launch=1, try_number=1, line=n, level=level, at=at,
                  message=text, run_seq=run.run_seq) for n, level in enumerate((text, "ERROR"), 1)),
    )  # fmt: skip
    manager.store.append_request(
        Request(request_id="forged", kind=text, payload_json=json.dumps({"dag_id": text, text: text}), requested_by=text,
                requested_at=at, source=text, requested_from=text)
    )  # fmt: skip
    return manager


def addresses(manager: InMemoryManager, browser: TestClient) -> list[str]:
    """Every page, found by following links."""
    known = ["/dags", "/backfills", "/pools", "/import-errors", "/requests", "/requests/forged", "/manager", "/login",
             "/backfills/new?dag=plain", "/dags/plain/clear?dry_run=true"]  # fmt: skip
    for one in known:
        for link in Page(browser.get(one).text).links:
            there = link.partition("#")[0]
            if there.startswith("/") and there not in known and len(known) < 120:
                known.append(there)
    return known


def test_no_text_from_outside_becomes_markup() -> None:
    hostile = ground_with(LONG)
    browser = browser_of(hostile.store, hostile.clock)
    pages = addresses(hostile, browser)
    assert len(pages) > 30
    shown = Counter[str]()
    for address in pages:
        answer = browser.get(address, follow_redirects=True)
        assert answer.status_code < 500, address
        if answer.headers.get("content-disposition", "").startswith("attachment"):  # a file: nothing shows it as HTML
            assert answer.headers["content-type"] == "text/plain; charset=utf-8"
            assert answer.headers["x-content-type-options"] == "nosniff"
            continue
        page = Page(answer.text)
        assert (address, wrongs(page)) == (address, [])
        noun = "runs" if "/runs/" in address else address.split("/")[1].partition("?")[0]
        shown[noun] += MARK in answer.text
        for one in page.root.all():
            assert one.tag != "script" or MARK not in one.text, address
            assert [name for name in one.attributes if ELEMENTS.search(name) or name.startswith("on")] == [], address
            assert (one.tag, "src" in one.attributes and one.attributes["src"] == "x") == (one.tag, False), address
            for name in ("href", "src", "action", "hx-get", "hx-post"):
                assert not str(one.attributes.get(name, "/")).lower().startswith(("javascript:", "data:", "//")), (
                    address
                )
    assert all(shown[noun] for noun in ("dags", "runs", "backfills", "requests", "import-errors")), shown


@pytest.mark.parametrize(
    "field",
    [
        "q",
        "tag",
        "before",
        "order",
        "run",
        "tasks",
        "start",
        "start_date",
        "dag",
        "kind",
        "request_id",
        "after",
        "next",
        "state",
        "show",
        "sort",
        "page",
    ],
)
def test_what_an_address_says_is_shown_as_text(busy: TestClient, field: str) -> None:
    for path in ("/dags", "/dags/shop", "/dags/shop/clear?dry_run=true", "/backfills", "/backfills/new?dag=shop", "/requests",
                 "/dags/shop/graph", "/login"):  # fmt: skip
        path, _, query = path.partition("?")
        params = {**dict(part.split("=") for part in query.split("&") if part), field: HOSTILE}
        answer = busy.get(path, params=params)
        page = Page(answer.text)
        assert answer.status_code < 500
        assert wrongs(page) == []
        assert not [one for one in page.root.all() if one.tag == "script" and MARK in one.text]


def test_code_is_read_from_the_snapshot_and_from_nowhere_else(
    manager: InMemoryManager, browser: TestClient, tmp_path: Path
) -> None:
    snapshot, secret = tmp_path / "snapshots" / "1", tmp_path / "secret.py"
    (snapshot / "daily").mkdir(parents=True)
    secret.write_text("what nobody should see")
    (snapshot / "daily" / "shop.py").write_text("print('<b>' + 'shop')")
    (snapshot / "link.py").symlink_to(secret)
    (snapshot / "folder").symlink_to(tmp_path)
    version = max(manager.store.read(DagVersion), key=lambda one: (one.dag_id == "shop", one.version))

    def shown(file: str) -> str:
        put(manager, version.evolve(snapshot=str(snapshot), file=file))
        answer = browser.get("/dags/shop/code")
        assert answer.status_code == 200
        return Page(answer.text).root.whole_text

    assert "print('<b>' + 'shop')" in shown("daily/shop.py")
    for file in (
        "../../secret.py",
        "daily/../../../secret.py",
        str(secret),
        "link.py",
        "folder/secret.py",
        "",
        ".",
        "daily",
        "a\0b",
    ):
        assert "Code not available on this server" in shown(file)
