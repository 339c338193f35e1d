"""A query parameter that an address does not have is an error, not ignored: the answer would look filtered, and would not be."""

from __future__ import annotations

import pytest
from support.api_server import ApiFixture, bearer, with_tokens

ADDRESSES = {
    "{dag_id}": "flights", "{backfill_id}": "latest", "{run_id}": "latest", "{request_id}": "latest", "{name}": "backfill",
    "{task_id}": "clean",
}  # fmt: skip


@pytest.mark.parametrize(
    ("address", "message"),
    [
        ("/runs?dag=flights", "query.dag: there is no such parameter; did you mean 'dag_id'?"),
        ("/runs?stat=failed", "query.stat: there is no such parameter; did you mean 'state'?"),
        ("/pools?zzz=1", "query.zzz: there is no such parameter; there are cursor, limit, order_by"),
        ("/backfills/latest?verbose=1", "query.verbose: there is no such parameter; this address takes none"),
        ("/runs?limit=1&limit=2", "query.limit: is given more than once, and takes one value"),
        ("/health?probe=1", "query.probe: there is no such parameter; this address takes none"),
    ],
)
def test_an_unknown_parameter_is_named_with_the_nearest(api: ApiFixture, address: str, message: str) -> None:
    api.backfill(2)
    answer = api.call("GET", address)
    problem = answer.json()
    assert (answer.status_code, problem["detail"]) == (422, message)
    assert [one["field"] for one in problem["errors"]] == [message.partition(":")[0]]


def test_every_address_of_the_api_refuses_what_it_does_not_know(api: ApiFixture) -> None:
    for template, operations in api.app.openapi()["paths"].items():
        if not template.startswith("/api/"):
            continue
        address = "/".join(ADDRESSES.get(part, part) for part in template.split("/"))
        for method, operation in operations.items():
            answer = api.call(method.upper(), f"{address}?no_such_thing=1", json={})
            assert answer.status_code == 422, (method, address)
            assert answer.json()["errors"][0]["field"] == "query.no_such_thing", (method, address)
            assert "422" in operation["responses"], (method, template)
    assert api.requests() == [], "nothing was asked for"


def test_all_wrong_parameters_are_named_at_once_and_lists_may_be_repeated(api: ApiFixture) -> None:
    problem = api.call("GET", "/runs?dag=flights&stat=failed&state=failed&state=success").json()
    assert [one["field"] for one in problem["errors"]] == ["query.dag", "query.stat"]
    assert api.call.get("/runs?state=failed&state=success&dag_id=flights")["items"] == []


def test_a_change_with_an_unknown_parameter_is_not_made(api: ApiFixture) -> None:
    backfill_id = api.backfill(2)
    assert api.call("POST", f"/backfills/{backfill_id}/pause?wiat=30").status_code == 422
    assert api.requests() == []


def test_head_is_answered_as_get_whatever_an_id_is(api: ApiFixture) -> None:
    """Only the stream of events, which has no end, is not."""
    assert api.call("HEAD", "/dags/events").status_code == api.call("GET", "/dags/events").status_code == 404
    assert api.call("HEAD", "/events").status_code == 405


def test_head_and_get_refuse_alike(api: ApiFixture) -> None:
    assert api.call("HEAD", "/runs?dag=flights").status_code == 422


def test_pages_ignore_what_trackers_add(api: ApiFixture) -> None:
    from backfill_manager.api.app import create_app
    from backfill_manager.web import page, router

    app = create_app(
        with_tokens(), api.store, clock=api.clock, extra_routers=[router.router], error_page=page.error_page
    )
    api.call.app = app
    assert api.call("GET", "http://localhost:8099/dags?utm_source=mail", headers=bearer("oleg")).status_code == 200
