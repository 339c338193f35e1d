"""Reads: pages that lead from one to the next, ETags, ids as people shorten them, problems that name the field."""

from __future__ import annotations

import base64
import gzip
import json
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any
from urllib.parse import quote

import pytest
from support.api_server import ApiFixture

from backfill_manager.api.context import MAX_CACHE_BYTES, MAX_CACHE_ENTRIES, size_in_memory
from backfill_manager.clock import UTC, parse_instant
from backfill_manager.execution.messages import Succeeded
from backfill_manager.model.records import CheckResult, DagRun, ImportProblem, Request, TaskLog
from backfill_manager.queries.item_map import MapCell
from backfill_manager.schemas.request_kinds import BACKFILL_CREATE
from backfill_manager.settings import ApiSettings, Settings

AT = datetime(2024, 1, 1, tzinfo=UTC)


def every_page(get: Callable[[str], Any], path: str) -> list[list[Any]]:
    """Page after page, by cursor."""
    pages: list[list[Any]] = []
    cursor = ""
    while True:
        joined = f"{path}{'&' if '?' in path else '?'}{f'cursor={cursor}' if cursor else ''}"
        result = get(joined)
        pages.append(result["items"])
        cursor = result["next_cursor"]
        if cursor is None:
            return pages
        assert len(pages) < 200, "pages lead in a circle"


def a_run(n: int, **fields: Any) -> DagRun:
    plain: dict[str, Any] = {
        "dag_id": "flights", "run_id": f"r{n:03}", "run_type": "scheduled", "state": "success", "dag_version": 1,
        "run_seq": n, "created_at": AT, "logical_date": AT + timedelta(days=n),
    }  # fmt: skip
    return DagRun(**{**plain, **fields})


@pytest.mark.parametrize(
    ("order_by", "key"),
    [
        ("-created_at", lambda one: -one["n"]),
        ("created_at", lambda one: one["n"]),
        ("priority", lambda one: (one["priority"], one["n"])),
        ("-priority", lambda one: (-one["priority"], -one["n"])),
    ],
)
def test_the_pages_of_backfills_hold_each_once_in_order(api: ApiFixture, order_by: str, key: Any) -> None:
    numbers = {}
    for n in range(11):
        numbers[api.backfill(1, priority=n % 3)] = n
        api.clock.advance(seconds=1)

    pages = every_page(api.call.get, f"/backfills?limit=3&order_by={order_by}")

    assert [len(page) for page in pages] == [3, 3, 3, 2]
    result = [{**one, "n": numbers[one["backfill_id"]]} for page in pages for one in page]
    assert [one["n"] for one in result] == [one["n"] for one in sorted(result, key=key)]
    assert {one["n"] for one in result} == set(range(11))


def test_those_that_wait_come_first_and_are_paged_too(api: ApiFixture) -> None:
    made = [api.backfill(1) for _ in range(3)]
    submitted = []
    for n in range(5):
        api.clock.advance(seconds=1)
        body = {"dag_id": "flights", "start_date": "2013-01-01", "end_date": f"2013-01-0{n + 1}"}
        submitted.append(api.call("POST", "/backfills", json=body).json()["payload"]["backfill_id"])

    for limit in (1, 2, 3, 5, 8, 100):
        result = [one["backfill_id"] for page in every_page(api.call.get, f"/backfills?limit={limit}") for one in page]
        assert (result[:5], set(result[5:]), len(result)) == (submitted[::-1], set(made), 8), limit


def test_backfills_are_chosen_by_dag_state_and_kind(api: ApiFixture) -> None:
    running, paused = api.backfill(1), api.backfill(1)
    api.call("POST", f"/backfills/{paused}/pause")
    api.manager.tick()
    body = {"dag_id": "flights", "dates": ["2013-01-01"]}
    waiting = api.call("POST", "/backfills", json=body).json()["payload"]["backfill_id"]

    def chosen(query: str) -> set[str]:
        return {one["backfill_id"] for one in api.call.get(f"/backfills?{query}")["items"]}

    assert chosen("state=paused") == {paused}
    assert chosen("state=paused&state=queued") >= {paused, waiting}
    assert chosen("dag_id=other") == set()
    assert chosen("kind=dates") == {waiting}
    assert chosen("kind=schedule") == {running, paused}


def test_runs_are_paged_by_date_those_without_one_last(api: ApiFixture) -> None:
    rows = [a_run(n, logical_date=None, partition_key=str(n)) if n % 4 == 0 else a_run(n) for n in range(1, 14)]
    api.put(*rows)

    for order_by, dated in (("logical_date", [n for n in range(1, 14) if n % 4]),):
        pages = every_page(api.call.get, f"/dags/flights/runs?limit=4&order_by={order_by}")
        result = [int(one["run_id"][1:]) for page in pages for one in page]
        assert result == [*dated, 4, 8, 12]
    newest = [one["run_id"] for page in every_page(api.call.get, "/runs?limit=5") for one in page]
    assert newest == [row.run_id for row in rows[::-1]]


def test_items_are_paged_forwards_backwards_and_by_state(api: ApiFixture) -> None:
    backfill_id = api.backfill(25)
    api.manager.tick()
    path = f"/backfills/{backfill_id}/items"

    def ordinals(query: str) -> list[int]:
        return [one["ordinal"] for page in every_page(api.call.get, f"{path}?limit=7&{query}") for one in page]

    assert ordinals("") == list(range(1, 26))
    assert ordinals("order_by=-ordinal") == list(range(25, 0, -1))
    assert ordinals("state=running") + ordinals("state=pending") == list(range(1, 26))
    assert api.call.get(f"{path}?limit=1")["items"][0]["run_id"].startswith("backfill__2013-01-01")


def test_requests_and_dags_and_versions_are_paged(api: ApiFixture) -> None:
    for n in range(5):
        api.store.append_request(Request(f"q{n}", BACKFILL_CREATE, "{broken", "eve", AT + timedelta(seconds=n // 2)))

    result = [one["request_id"] for page in every_page(api.call.get, "/requests?limit=2") for one in page]
    assert result == ["q4", "q3", "q2", "q1", "q0"]
    assert [one["dag_id"] for one in api.call.get("/dags")["items"]] == ["flights"]
    assert api.call.get("/dags?order_by=-dag_id&is_paused=false")["items"] == []
    assert [one["version"] for one in api.call.get("/dags/flights/versions")["items"]] == [1]


def test_import_errors_are_paged_and_hold_their_traceback(api: ApiFixture) -> None:
    api.put(*(ImportProblem("b", f"f{n}.py", 3, "no", "Traceback", n != 2, AT, AT) for n in range(5)))
    result = [one["file"] for page in every_page(api.call.get, "/import_errors?limit=2") for one in page]
    assert result == ["f0.py", "f1.py", "f3.py", "f4.py"]


def cursor_of(*values: Any) -> str:
    return base64.urlsafe_b64encode(json.dumps(values).encode()).decode().rstrip("=")


@pytest.mark.parametrize(
    "cursor",
    [
        "", "x", "!!!", "e30", cursor_of(), cursor_of("-created_at", 1, 1, ""), cursor_of("-created_at", None, 1, ""),
        cursor_of("-created_at", "2024", "x", ""), cursor_of("created_at", "2024-01-01T00:00:00Z", 1, ""),
        cursor_of("-created_at", "2024-01-01T00:00:00Z", 10**30, ""), cursor_of("-created_at", {}, [], 3),
        cursor_of("-created_at", "0000-99-01", 1, ""), "A" * 4001, quote("\x00"), cursor_of(*"abcdefgh"),
    ],
)  # fmt: skip
def test_a_cursor_that_no_list_gave_is_refused(api: ApiFixture, cursor: str) -> None:
    for path in ("/backfills", "/backfills?order_by=-created_at"):
        response = api.call("GET", f"{path}{'&' if '?' in path else '?'}cursor={cursor}")
        assert response.status_code == 422, response.text


@pytest.mark.parametrize(
    ("path", "order_by"),
    [
        ("/runs", "-created_at"), ("/dags", "dag_id"), ("/dags/flights/versions", "-version"), ("/requests", "-requested_at"),
        ("/backfills/latest/items", "ordinal"), ("/dags/flights/grid", "date"), ("/dags/flights/runs", "-created_at"),
    ],
)  # fmt: skip
def test_a_cursor_of_another_kind_of_list_is_refused(api: ApiFixture, path: str, order_by: str) -> None:
    api.backfill()
    response = api.call("GET", f"{path}?cursor={cursor_of(order_by, None, None, 'a mark')}")
    assert (response.status_code, "not a cursor of this list" in response.json()["detail"]) == (422, True)


def test_an_answer_that_is_known_already_is_not_sent_again(api: ApiFixture) -> None:
    backfill_id = api.backfill()
    for path in ("/backfills", f"/backfills/{backfill_id}", f"/backfills/{backfill_id}/items", "/dags", "/pools"):
        first = api.call("GET", path)
        etag = first.headers["etag"]
        again = api.call("GET", path, headers={"If-None-Match": f'"other", {etag}'})
        assert (again.status_code, again.content, again.headers["etag"]) == (304, b"", etag), path
        assert api.call("GET", path).content == first.content
        if not path.endswith(backfill_id):
            assert api.call("GET", f"{path}?limit=7").headers["etag"] != etag

    etag = api.call("GET", f"/backfills/{backfill_id}").headers["etag"]
    api.call("POST", f"/backfills/{backfill_id}/pause")
    api.manager.tick()
    changed = api.call("GET", f"/backfills/{backfill_id}", headers={"If-None-Match": etag})
    assert (changed.status_code, changed.json()["state"]) == (200, "paused")


def test_a_value_is_computed_once_for_each_version_of_its_tables(api: ApiFixture) -> None:
    context, computed = api.app.state.context, list[int]()

    def submit(key: str = "key") -> list[int]:
        result: list[int] = context.cached_by_version(
            ("pool", "dag"), key, lambda: computed.append(1) or list(computed)
        )
        return result

    assert submit() is submit()
    assert len(computed) == 1
    api.backfill()
    submit()
    assert len(computed) == 1, "another table changed"
    api.call("PATCH", "/pools/backfill", json={"slots": 3})
    api.manager.tick()
    submit()
    assert len(computed) == 2


@pytest.mark.parametrize(
    "value",
    [
        b"x" * 100_000,
        "é" * 100_000,
        [{"state": "success", "note": n * "x"} for n in range(400)],
        MapCell(1, 2, (0,) * 4_000, "", ""),
    ],
)
def test_what_was_read_is_forgotten_in_time(api: ApiFixture, value: object) -> None:
    context = api.app.state.context
    weighs = size_in_memory(value)
    assert 80_000 < weighs < 400_000
    for n in range(600):
        context.cached_by_version(("pool",), ("page", n), lambda: value)
    assert MAX_CACHE_BYTES - 2 * weighs < context._cache.currsize <= MAX_CACHE_BYTES
    for n in range(1200):
        context.cached_by_version(("pool",), ("number", n), int)
    assert len(context._cache) == MAX_CACHE_ENTRIES


def test_a_long_address_weighs_as_much_as_a_long_answer(api: ApiFixture) -> None:
    context = api.app.state.context
    for n in range(MAX_CACHE_ENTRIES):
        context.cached_by_version(("pool",), ("json", f"?note={n:060000}"), int)
    assert len(context._cache) <= MAX_CACHE_BYTES / 60_000


def test_a_backfill_is_found_by_the_beginning_of_its_id_or_as_the_latest(api: ApiFixture) -> None:
    first = api.backfill(1)
    api.clock.advance(seconds=1)
    second = api.backfill(2)

    assert api.call.get("/backfills/latest")["planned"] == 2
    assert api.call.get(f"/backfills/{second}")["backfill_id"] == second
    ambiguous = api.call("GET", f"/backfills/{first[:5]}")
    assert (ambiguous.status_code, "more than one backfill" in ambiguous.json()["detail"]) == (422, True)
    problem = api.call("GET", "/backfills/nothing%20like%20it").json()
    assert (problem["status"], problem["type"]) == (404, "urn:backfill-manager:problem:not-found")
    assert problem["instance"] == "/api/v1/backfills/nothing like it"


def test_a_run_of_a_partition_is_reached_by_an_id_with_a_slash(api: ApiFixture) -> None:
    api.put(
        a_run(1, run_id="backfill__eu/west 1+2:3%25", partition_key="eu/west 1+2:3%", logical_date=None),
        a_run(2, run_id="backfill__eu", partition_key="eu", logical_date=None),
    )

    path = f"/runs/{quote('backfill__eu/west 1+2:3%25', safe='')}"
    assert api.call.get(path)["partition_key"] == "eu/west 1+2:3%"
    assert api.call.get(f"{path}/tasks")["items"] == []
    assert api.call("POST", f"{path}/cancel").status_code == 409


def test_a_run_id_of_two_dags_needs_its_dag(api: ApiFixture) -> None:
    api.put(a_run(1), a_run(2, run_id="r001", dag_id="other"))
    response = api.call("GET", "/runs/r001")
    assert (response.status_code, "other/r001. Name the DAG too" in response.json()["detail"]) == (422, True)
    assert api.call.get("/runs/r001?dag_id=other")["dag_id"] == "other"
    assert api.call.get("/runs/2024-01-02?dag_id=flights")["run_id"] == "r001"


def test_a_run_its_tasks_its_tries_and_its_log(api: ApiFixture) -> None:
    api.backfill(1)
    api.manager.tick()
    api.manager.tick()
    [launch] = api.manager.running.values()
    api.manager.finish(launch.key, Succeeded(), spark_jobs=(3, 4))
    api.manager.tick()
    [run] = api.manager.runs("flights")
    lines = [
        TaskLog("flights", run.run_id, "clean", launch, 1, n, AT, "info", f"line {n}", run.run_seq)
        for launch, n in ((1, 0), (1, 1), (1, 2), (2, 0))
    ]
    api.put(*lines)

    result = api.call.get(f"/runs/{run.run_id}/tasks")
    assert {one["task_id"]: one["state"] for one in result["items"]}["clean"] == "success"
    assert [(one["try_number"], one["term"], one["spark_jobs"]) for one in result["tries"]] == [(1, 1, [3, 4])]

    path = f"/runs/{run.run_id}/tasks/clean/logs"
    first = api.call.get(f"{path}?limit=2")
    assert ([one["message"] for one in first["lines"]], first["after"], first["is_whole"]) == (
        ["line 0", "line 1"], "1.1", False,
    )  # fmt: skip
    rest = api.call.get(f"{path}?after={first['after']}")
    assert [(one["launch"], one["line"]) for one in rest["lines"]] == [(1, 2), (2, 0)]
    assert api.call.get(f"{path}?after={rest['after']}")["lines"] == []
    assert api.call.get(f"{path}?try=9")["lines"] == []
    for wrong in ("after=0.1", "after=x", "after=1", "try=0"):
        assert api.call("GET", f"{path}?{wrong}").status_code == 422
    assert api.call("GET", f"/runs/{run.run_id}/tasks/claen/logs").json()["detail"].count("did you mean 'clean'")


def test_a_try_that_a_crash_broke_off_is_shown_as_lost(api: ApiFixture) -> None:
    api.backfill(1)
    for _ in range(2):
        api.manager.tick()
    assert api.manager.running
    api.manager.crash()
    [run] = api.manager.runs("flights")
    result = api.call.get(f"/runs/{run.run_id}/tasks")
    assert [(one["state"], one["spark_jobs"]) for one in result["tries"]] == [("lost", [])]


def test_one_dag_its_grid_its_timeline_and_its_next_intervals(api: ApiFixture) -> None:
    api.put(*(a_run(n) for n in range(1, 6)), a_run(6, run_id="old", state="overridden", overridden_by="r005",
              logical_date=AT + timedelta(days=5)))  # fmt: skip

    dag = api.call.get("/dags/flights")
    assert (dag["runs"], [task["task_id"] for task in dag["tasks"]]) == (
        {"overridden": 1, "success": 5}, ["clean", "delays"],
    )  # fmt: skip
    first = api.call.get("/dags/flights/grid?limit=2")
    second = api.call.get(f"/dags/flights/grid?limit=2&cursor={first['next_cursor']}")
    third = api.call.get(f"/dags/flights/grid?limit=2&cursor={second['next_cursor']}")
    assert [[run["run_id"] for run in page["runs"]] for page in (first, second, third)] == [
        ["r004", "r005"], ["r002", "r003"], ["r001"],
    ]  # fmt: skip
    assert third["next_cursor"] is None
    made = api.call.get("/dags/flights/grid?limit=4&order=made")
    older = api.call.get(f"/dags/flights/grid?limit=4&order=made&cursor={made['next_cursor']}")
    assert [run["run_id"] for run in older["runs"] + made["runs"]] == ["r001", "r002", "r003", "r004", "r005", "old"]
    timeline = api.call.get("/dags/flights/timeline?limit=2")
    assert [(run["run_id"], [old["run_id"] for old in run["overridden"]]) for run in timeline["items"]] == [
        ("r005", ["old"]), ("r004", []),
    ]  # fmt: skip
    older = api.call.get(f"/dags/flights/timeline?limit=2&cursor={timeline['next_cursor']}")
    assert [run["run_id"] for run in older["items"]] == ["r003", "r002"]
    oldest = api.call.get(f"/dags/flights/timeline?limit=1&cursor={older['next_cursor']}")
    assert ([run["run_id"] for run in oldest["items"]], oldest["next_cursor"]) == (["r001"], None)
    following = api.call.get("/dags/flights/next?n=3")
    assert [parse_instant(one["logical_date"]).day for one in following] == [7, 8, 9]
    behind = api.call.get(f"/dags/flights/next?n=2&after={following[-1]['interval_end']}")
    assert [parse_instant(one["logical_date"]).day for one in behind] == [10, 11]


@pytest.mark.parametrize(
    "at",
    ["", "yesterday", "5", "0001-01-01T00:00:00Z", "9999-12-31T23:59:59Z", "9999-12-31T23:59:59-14:00", "2013-13-01"],
)
def test_a_list_that_is_to_go_on_from_no_instant_is_refused(api: ApiFixture, at: str) -> None:
    response = api.call("GET", "/dags/flights/next", params={"after": at})
    assert (response.status_code, response.json()["detail"]) == (
        422, f"after: {at!r} is not an instant of such a list, YYYY-MM-DDTHH:MM:SSZ.",
    )  # fmt: skip


def test_after_the_end_of_the_calendar_there_are_no_intervals(api: ApiFixture) -> None:
    last = "9998-12-31T23:59:59.999999Z"

    assert api.call.get(f"/dags/flights/next?n=2&after={last}") == []


@pytest.mark.parametrize(
    ("path", "field"),
    [
        ("/backfills?limit=0", "query.limit"),
        ("/backfills?limit=1001", "query.limit"),
        ("/backfills?order_by=nonsense", "query.order_by"),
        ("/backfills?state=asleep", "query.state.0"),
        ("/dags/flights/runs?state=pending", "query.state.0"),
        ("/dags/flights/versions/diff?before=1", "query.after"),
    ],
)
def test_a_wrong_value_is_named_with_its_place(api: ApiFixture, path: str, field: str) -> None:
    response = api.call("GET", path)
    assert (response.status_code, [one["field"] for one in response.json()["errors"]]) == (422, [field])


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b"{", "The body is not JSON: Expecting property name enclosed in double quotes, at character 2."),
        (b'{"dag_id": "flights" "a"}', "at character 22."),
        (b"[" * 50_000, "The body can't be read as JSON: it must be uncompressed UTF-8 text"),
        (b'{"priority": ' + b"9" * 5000 + b"}", "without numbers of thousands of digits"),
        (gzip.compress(b'{"dag_id": "flights"}'), "uncompressed UTF-8"),
        (b'{"dag_id": 3}', "body.dag_id"),
        (b'{"dag_id": "flights", "priority": "1"}', "body.priority"),
        (b'{"dag_id": "flights", "prioritty": 1}', "body.prioritty: unknown field 'prioritty'; did you mean 'priority'?"),
        (b'{"dag_id": "flights", "priority": 99999999999999999999}', "body.priority"),
        (b'{"dag_id": "flights", "conf": {"a": NaN}}', "not finite"),
        (b'{"dag_id": "flights", "conf": {"a": "\\ud800"}}', "half a character"),
        (b'{"dag_id": "flights", "conf": ' + b'{"a":' * 60 + b"1" + b"}" * 61, "nested more than 50 levels"),
        (b"null", "body"),
        (b"", "body: Field required"),
    ],
)  # fmt: skip
def test_an_invalid_body_is_refused_with_the_reason(api: ApiFixture, body: bytes, message: str) -> None:
    response = api.call("POST", "/backfills", content=body, headers={"Content-Type": "application/json"})
    assert response.status_code in (400, 422)
    assert message in response.json()["detail"], response.text
    assert response.headers["content-type"] == "application/problem+json"
    assert api.requests() == []


@pytest.mark.parametrize("kind", ["application/x-www-form-urlencoded", "text/plain", "multipart/form-data"])
@pytest.mark.parametrize("path", ["/backfills", "/backfills/dry_run", "/dags/flights/runs", "/backfills/latest/cancel"])
def test_a_body_with_another_content_type_is_refused_with_the_right_one(api: ApiFixture, path: str, kind: str) -> None:
    api.backfill(1)
    submitted = api.requests()

    response = api.call("POST", path, content=b'{"dag_id": "flights"}', headers={"Content-Type": kind})

    assert (response.status_code, response.json()["detail"]) == (
        415, f"The body was sent as {kind!r}; send JSON, with `Content-Type: application/json`.",
    )  # fmt: skip
    assert api.requests() == submitted


@pytest.mark.parametrize("run_id", ["a/b", "a%2Fb", "a%252Fb", "50%", "%", "a%/b", "%25/2F"])
def test_an_id_with_slashes_and_percent_signs_is_that_very_one(api: ApiFixture, run_id: str) -> None:
    response = api.call("GET", f"/runs/{quote(run_id, safe='')}")
    assert response.json()["detail"] == f"There is no run {run_id!r}."


def test_a_tag_names_an_answer_whether_it_is_sent_as_weak_or_strong(api: ApiFixture) -> None:
    etag = api.call("GET", "/dags").headers["etag"]
    for sent in (etag, etag.removeprefix("W/"), f'"another", {etag}', f'W/"another",{etag.removeprefix("W/")}'):
        assert api.call("GET", "/dags", headers={"If-None-Match": sent}).status_code == 304
    assert api.call("GET", "/dags", headers={"If-None-Match": '"another"'}).status_code == 200


def test_short_lists_are_paged_and_ordered_like_the_others(api: ApiFixture) -> None:
    pages = every_page(api.call.get, "/pools?limit=1&order_by=-name")
    assert [[one["name"] for one in page] for page in pages] == [["scheduled"], ["backfill"]]
    for path in ("/pools", "/bundles", "/import_errors"):
        for wrong, field in (("limit=0", "limit"), ("order_by=colour", "order_by")):
            response = api.call("GET", f"{path}?{wrong}")
            assert (response.status_code, response.json()["errors"][0]["field"]) == (422, f"query.{field}")
        assert api.call("GET", f"{path}?cursor=nonsense").status_code == 422


def test_addresses_and_methods_that_are_not_there_are_problems_too(api: ApiFixture) -> None:
    missing = api.call("GET", "/nothing/here")
    assert (missing.status_code, missing.json()["instance"]) == (404, "/api/v1/nothing/here")
    wrong = api.call("PUT", "/backfills/dry_run")
    assert (wrong.status_code, wrong.headers["allow"]) == (405, "POST")
    assert api.call("PUT", "/backfills/x").headers["allow"] == "DELETE, GET, PATCH"


def test_requests_that_end_in_an_error_of_the_server_are_counted(
    api: ApiFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The alert `BackfillManagerServerErrors` is of these."""

    def fails(*_: Any, **__: Any) -> Any:
        raise ZeroDivisionError

    with monkeypatch.context() as patch, pytest.raises(ZeroDivisionError):
        patch.setattr(api.store, "read", fails)
        api.call("GET", "/import_errors")
    text = api.call("GET", "/metrics").text
    assert 'bfm_http_requests_total{method="GET",route="/api/v1/import_errors",status="500"} 1.0' in text


def test_requests_above_the_limit_are_counted() -> None:
    api = ApiFixture(Settings(api=ApiSettings(requests_per_second=1)))
    refused = 0
    while not refused:
        refused = api.call("GET", "/pools").status_code == 429
    api.clock.advance(seconds=60)
    text = api.call("GET", "/metrics").text
    assert 'bfm_http_requests_total{method="GET",route="other",status="429"} 1.0' in text


def test_requests_are_counted_by_their_route_also_where_an_id_is_encoded(api: ApiFixture) -> None:
    """As the Python client sends those of runs."""
    assert api.call("GET", "/dags/flights/runs/scheduled__2013-01-01T00%3A00%3A00Z").status_code == 404
    route = 'route="/api/v1/dags/{dag_id}/runs/{run_id}"'
    assert f'bfm_http_requests_total{{method="GET",{route},status="404"}} 1.0' in api.call("GET", "/metrics").text


def test_metrics_count_what_the_state_holds(api: ApiFixture) -> None:
    api.backfill(3)
    api.manager.tick()
    api.call("POST", "/dags/flights/runs")
    for number, outcome in enumerate(("passed", "passed", "warned")):
        api.put(
            CheckResult("flights", "r", "clean", 1, number, 1, "silver", "rows > 0", outcome, 1, api.clock.now(), 1)
        )

    response = api.call("GET", "/metrics").text

    assert 'bfm_check_results{outcome="passed"} 2.0' in response
    assert (
        'bfm_check_results{outcome="warned"} 1.0' in response and 'bfm_check_results{outcome="failed"} 0.0' in response
    )
    assert 'bfm_backfill_items{state="running"} 3.0' in response
    assert "bfm_manager_leading 1.0" in response and "bfm_requests_waiting 1.0" in response
    assert 'bfm_pool_slots{pool="backfill"} 16.0' in response
    assert 'bfm_http_requests_total{method="POST",route="/api/v1/dags/{dag_id}/runs",status="202"} 1.0' in response


def test_a_loop_that_may_hang_is_shown(api: ApiFixture) -> None:
    api.manager.tick()
    assert "bfm_manager_slow_loop_seconds 0.0" in api.call("GET", "/metrics").text
    now = api.clock.now()
    api.manager.leader.heartbeat(now, slow_loop="tick", slow_loop_since=now - timedelta(minutes=20))

    assert "bfm_manager_slow_loop_seconds 1200.0" in api.call("GET", "/metrics").text
    health = api.call.get("/health")
    assert health["manager"] == "leading" and "`tick` has been at the same work for 20 min" in health["detail"]


def test_the_address_with_the_dag_means_one_run_whatever_others_are_called(api: ApiFixture) -> None:
    api.put(a_run(1), a_run(2, run_id="r001", dag_id="other"), a_run(3, run_id="backfill__a/b%2Fc"))
    for dag_id in ("flights", "other"):
        assert api.call.get(f"/dags/{dag_id}/runs/r001")["dag_id"] == dag_id
        assert api.call.get(f"/dags/{dag_id}/runs/r001/tasks")["items"] == []
        by_query = api.call.get(f"/runs/r001?dag_id={dag_id}")
        assert by_query == api.call.get(f"/dags/{dag_id}/runs/r001") == api.call.get(f"/runs/{dag_id}%2Fr001")
        refused = api.call("POST", f"/dags/{dag_id}/runs/r001/cancel")
        assert (refused.status_code, f"r001 of {dag_id} has ended" in refused.json()["detail"]) == (409, True)
        marked = api.call("POST", f"/dags/{dag_id}/runs/r001/mark", json={"state": "failed"})
        assert marked.json()["payload"] == {"dag_id": dag_id, "run_id": "r001", "state": "failed"}
    assert api.call.get("/dags/flights/runs/backfill__a%2Fb%252Fc")["run_id"] == "backfill__a/b%2Fc"
    assert "There is no DAG 'flight'" in api.call("GET", "/dags/flight/runs/r001").json()["detail"]
    assert api.call("GET", "/dags/flights/runs/r001/tasks/clean/logs").status_code == 404
