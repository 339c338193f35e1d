"""Secrets in parameters and results: whatever is read of the API and on pages has them masked; tasks have them as they are."""

from __future__ import annotations

import html
import json
from pathlib import Path
from typing import Any
from urllib.parse import urldefrag, urljoin

import pytest
from fastapi.testclient import TestClient
from support.page_checks import Page
from support.page_client import browser_of

from backfill_manager.execution.messages import Outcome, Succeeded, TaskLaunch
from backfill_manager.model.records import Backfill, CheckResult, DagRow, DagRun, DagVersion, Request, Response, TaskLog
from backfill_manager.model.transitions import Changes
from backfill_manager.queries.backfills import find_backfill
from backfill_manager.testing import InMemoryManager, dag_spec, days

RESULT = {"api_key": "result-secret", "rows": 3, "token_count": 5, "said": "conf-secret is right", "dsn": "env-secret"}
SHOWN = {**RESULT, "dsn": "***"}  # by the environment of the task, which is not that of who shows it
PARAMS: dict[str, Any] = {"db_password": "", "password": None, "api": {}, "full": False, "db": [], "more": 0}
CONF = {"db_password": "conf-secret", "full": True}
LISTS = {"/api/v1/backfills": "backfill_id", "/api/v1/requests": "request_id"}
RUN = "/dags/flights/runs/manual__2013-02-01T00:00:00Z"


@pytest.fixture
def manager() -> InMemoryManager:
    """A run by hand, a backfill, and one that nobody has answered yet, each with a secret."""

    def script(launch: TaskLaunch) -> Outcome:
        is_clean = launch.task.task_id == "clean"
        return Succeeded(json.dumps(RESULT), shown_json=json.dumps(SHOWN)) if is_clean else Succeeded()

    spec = dag_spec(
        "flights", "clean", "delays", upstream={"delays": ["clean"]}, description="With password=doc-secret",
        owner="token=own-secret",
        params={**PARAMS, "warehouse_token": "dag-secret", "depth": 3, "source": "s3://me:url-secret@host/x"},
        each={"delays": {"kind": "sql", "sql": "SELECT read('x', password => 'sql-secret')"}},
    )  # fmt: skip
    manager = InMemoryManager(spec, script=script)
    manager.add_dag(
        dag_spec("flights", "clean", "delays", params={**PARAMS, "warehouse_token": "older-secret", "depth": 2})
    )
    manager.add_dag(spec)
    manager.ask("dag.trigger", dag_id="flights", logical_date="2013-02-01T00:00:00Z", conf=CONF)
    manager.drain()
    manager.script = lambda _: None
    one = manager.backfill(
        "flights", days("2013-01-01", 2), conf_json=json.dumps({"api": {"secret_key": "deep-secret"}})
    )
    manager.tick()
    changes = {"conf": {"api": {"secret_key": "changed-secret"}, "full": True}}
    manager.ask("backfill.set", backfill_id=one, changes=changes)
    manager.drain()
    manager.ask("dag.trigger", dag_id="flights", logical_date="2013-02-02T00:00:00Z", conf={"password": "asked-secret"})
    return manager


@pytest.fixture
def browser(manager: InMemoryManager) -> TestClient:
    return browser_of(manager.store, manager.clock)


def everything(browser: TestClient) -> dict[str, str]:
    """What there is to read: every page that a link leads to, and all of the API that those name."""
    found: dict[str, str] = {}
    open_ = ["/", RUN + "/tasks/clean", "/requests"]
    while open_:
        address = open_.pop()
        if address in found or not address.startswith("/") or address.startswith(("/static", "/logout")):
            continue
        answer = browser.get(address)
        found[address] = answer.text
        if answer.is_redirect:
            open_.append(answer.headers["location"])
        elif answer.headers["content-type"].startswith("text/html"):
            links = (one.attributes.get("href") or "" for one in Page(answer.text).root.all())
            open_ += [urldefrag(urljoin(address, link))[0] for link in links if "?" not in link]
        elif address in LISTS:
            open_ += [f"{address}/{one[LISTS[address]]}" for one in answer.json()["items"]]
        if address == "/":
            open_ += [
                f"/api/v1/{name}" for name in ("dags", "backfills", "requests", "runs", "bundles", "dags/flights")
            ]
            open_ += [f"/api/v1{RUN}{rest}" for rest in ("", "/tasks", "/tasks?task_id=clean")]
            open_ += ["/api/v1/dags/flights/versions/diff?before=1&after=2", "/dags/flights/versions?before=1&after=2"]
    return found


def test_no_page_and_no_answer_of_the_api_has_a_secret(manager: InMemoryManager, browser: TestClient) -> None:
    found = everything(browser)
    assert [address for address, text in found.items() if "-secret" in text] == []
    masked = {address.split("?")[0] for address, text in found.items() if "***" in text}
    backfill_id = manager.store.read(Backfill)[0].backfill_id
    assert masked >= {
        RUN, f"{RUN}/tasks/clean", f"{RUN}/tasks/delays", f"/backfills/{backfill_id}", f"/backfills/{backfill_id}/settings",
        "/dags/flights", "/dags/flights/trigger", "/dags/flights/versions", "/api/v1/dags/flights", f"/api/v1{RUN}",
        f"/api/v1{RUN}/tasks", f"/api/v1/backfills/{backfill_id}", "/api/v1/dags/flights/versions/diff",
    }  # fmt: skip
    requests = [row.request_id for row in manager.store.read(Request)]
    assert masked >= {f"{start}/{one}" for one in requests for start in ("/requests", "/api/v1/requests")}
    assert "-secret" not in "".join(row.message for row in manager.store.read(Response))


def test_what_is_no_secret_is_still_shown(manager: InMemoryManager, browser: TestClient) -> None:
    (clean, _) = browser.get(f"/api/v1{RUN}/tasks").json()["items"]
    assert clean["result"] == {"api_key": "***", "rows": 3, "token_count": 5, "said": "*** is right", "dsn": "***"}
    assert browser.get(f"/api/v1{RUN}").json()["conf"] == {"db_password": "***", "full": True}
    rows = Changes()
    rows.put(manager.store.read(DagRow)[0].evolve(tags_json='["token:tag-secret", "daily"]'))
    manager.leader.commit(rows)
    shown = browser.get("/api/v1/dags/flights").json()
    assert (shown["description"], shown["owner"]) == ("With password=***", "token=***")
    assert shown["tags"] == ["token:***", "daily"]
    shown = browser.get("/api/v1/dags/flights").json()["params"]
    assert shown == {**PARAMS, "warehouse_token": "***", "depth": 3, "source": "s3://***@host/x"}


def test_settings_of_a_backfill_list_the_parameters_of_its_runs(manager: InMemoryManager, browser: TestClient) -> None:
    page = Page(browser.get(f"/backfills/{manager.store.read(Backfill)[0].backfill_id}").text)
    (shown,) = [one.whole_text for one in page.root.all() if one.attributes.get("id") == "backfill-settings"]
    assert '"depth": 3' in shown and '"warehouse_token": "***"' in shown, "the defaults"
    assert '"secret_key": "***"' in shown and '"full": true' in shown, "its own"


def test_a_task_has_parameters_and_results_as_they_are(manager: InMemoryManager) -> None:
    clean, delays = manager.launched[:2]
    assert clean.params["db_password"] == "conf-secret" and clean.params["warehouse_token"] == "dag-secret"
    assert delays.results == {"clean": RESULT}
    assert [launch.params["api"] for launch in manager.launched[2:]] == [{"secret_key": "deep-secret"}] * 2


@pytest.mark.parametrize(
    ("file", "text", "shown"),
    [
        ("a.dag.yaml", "params:\n  db_password: hunter2  # of mine\n  note: token=abc,user=me\n",
         "params:\n  db_password: ***  # of mine\n  note: token=***,user=me\n"),
        ("a.yml", "warehouse_token:\n  default: dag-secret\n", "warehouse_token:\n  default: ***\n"),
        ("a.py", "params = {'warehouse_token': Param('dag-secret')}\ntoken = old_token",
         "params = {'warehouse_token': Param('***')}\ntoken = old_token"),
        ("a.py", "{'warehouse_token': {'default': 'dag-secret'}}", "{'warehouse_token': {'default': '***'}}"),
    ],
)  # fmt: skip
def test_of_files_of_dags_secrets_are_masked_with_and_without_quotes(
    manager: InMemoryManager, browser: TestClient, tmp_path: Path, file: str, text: str, shown: str
) -> None:
    (tmp_path / file).write_text(text)
    version = max(manager.store.read(DagVersion), key=lambda one: one.version)
    rows = Changes()
    rows.put(version.evolve(snapshot=str(tmp_path), file=file))
    manager.leader.commit(rows)
    assert " ".join(shown.split()) in Page(browser.get("/dags/flights/code").text).root.whole_text


def test_log_lines_that_an_older_release_stored_are_masked_when_they_are_read(
    manager: InMemoryManager, browser: TestClient
) -> None:
    run = next(one for one in manager.store.read(DagRun) if one.run_type == "manual")
    rows, said = Changes(), "password=old-secret of conf-secret"
    rows.put(TaskLog("flights", run.run_id, "clean", 1, 1, 1, manager.clock.now(), "INFO", said, run.run_seq))
    manager.leader.commit(rows)
    for address in (
        f"/api/v1{RUN}/tasks/clean/logs",
        f"{RUN}/tasks/clean",
        f"{RUN}/tasks/clean/log",
        f"{RUN}/tasks/clean/log.txt",
    ):
        text = browser.get(address).text
        assert "password=*** of ***" in text and "-secret" not in text


def test_conditions_and_findings_of_checks_are_masked(manager: InMemoryManager, browser: TestClient) -> None:
    run = next(one for one in manager.store.read(DagRun) if one.run_type == "manual")
    rows, condition = Changes(), "note <> 'conf-secret' AND api_key <> 'row-secret'"
    rows.put(
        CheckResult(
            "flights", run.run_id, "clean", 1, 1, 1, "t", condition, "failed", run.run_seq, manager.clock.now(), 1,
            "token=name-secret", message="1 of conf-secret",
        )
    )  # fmt: skip
    manager.leader.commit(rows)
    for address in (f"/api/v1{RUN}/checks", RUN, f"{RUN}/tasks/clean"):
        text = html.unescape(browser.get(address).text)
        assert "note <> '***' AND api_key <> '***'" in text and "-secret" not in text


def changed_conf(manager: InMemoryManager, browser: TestClient, backfill_id: str, **body: Any) -> Any:
    answer = browser.patch(f"/api/v1/backfills/{backfill_id}", json=body)
    assert answer.status_code == 202, answer.text
    manager.drain()
    return json.loads(manager.store.read(Backfill)[0].conf_json)


def test_a_secret_that_comes_back_masked_stays_as_it_is(manager: InMemoryManager, browser: TestClient) -> None:
    backfill_id = manager.store.read(Backfill)[0].backfill_id
    seen = browser.get(f"/api/v1/backfills/{backfill_id}").json()["conf"]
    assert seen == {"api": {"secret_key": "***"}, "full": True}
    mine, kept = {**seen, "full": False}, {"secret_key": "changed-secret"}
    assert changed_conf(manager, browser, backfill_id, conf=mine, was={"conf": seen}) == {"api": kept, "full": False}

    form = Page(browser.get(f"/backfills/{backfill_id}/settings").text).forms
    (fields,) = [one for one in form if one.attributes.get("id") == "settings-form"]
    sent = {str(one.attributes["name"]): one.attributes.get("value") or "" for one in fields.find("input")}
    sent |= {"conf": json.dumps({"api": {"secret_key": "***"}, "more": 1})}
    assert browser.post(f"/backfills/{backfill_id}/settings", data=sent).status_code == 303
    manager.drain()
    assert json.loads(manager.store.read(Backfill)[0].conf_json) == {"api": kept, "more": 1}
    assert find_backfill(manager.store, backfill_id)["conf"] == {"api": {"secret_key": "***"}, "more": 1}


def test_a_masked_value_is_not_taken_for_a_secret(manager: InMemoryManager, browser: TestClient) -> None:
    """Copied from a page into another run, or under a name that had no value."""
    backfill_id, before = manager.store.read(Backfill)[0].backfill_id, len(manager.store.read(Request))
    conf = {"db": [{"password": "***"}]}
    new = {"dag_id": "flights", "start_date": "2013-03-01", "end_date": "2013-03-02", "conf": conf}
    for method, path, body in (
        ("POST", "/dags/flights/runs", {"conf": conf}),
        ("POST", "/backfills", new),
        ("PATCH", f"/backfills/{backfill_id}", {"conf": conf}),
    ):
        answer = browser.request(method, f"/api/v1{path}", json=body)
        assert (answer.status_code, answer.json()["field"]) == (422, "conf")
        assert answer.json()["detail"] == "conf holds '***', which is how a secret is shown; give the value itself"
    assert len(manager.store.read(Request)) == before
