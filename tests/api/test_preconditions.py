"""`If-Match` and `If-None-Match`: of reads, and of changes."""

from __future__ import annotations

import pytest
from support.api_server import ApiFixture, bearer, with_tokens


def test_a_change_with_if_match_needs_the_object_as_it_was_seen(api: ApiFixture) -> None:
    backfill_id = api.backfill()
    path = f"/backfills/{backfill_id}"
    seen = api.call("GET", path).headers["etag"]
    for sent in ('"other"', f'{seen[:-2]}x"', ""):
        refused = api.call("PATCH", path, json={"priority": 3}, headers={"If-Match": sent})
        assert (refused.status_code, refused.json()["title"]) == (412, "Precondition failed"), sent
    assert api.requests() == []
    for sent in (seen, seen.removeprefix("W/"), f'"other", {seen}', "*"):
        assert api.call("PATCH", path, json={"priority": 3}, headers={"If-Match": sent}).status_code == 202
    api.manager.tick()
    refused = api.call("PATCH", path, json={"priority": 4}, headers={"If-Match": seen})
    assert refused.status_code == 412, "its priority has changed"


@pytest.mark.parametrize(("method", "below"), [("DELETE", ""), ("POST", "/pause")])
def test_every_change_of_an_object_goes_by_its_etag(api: ApiFixture, method: str, below: str) -> None:
    path = f"/backfills/{api.backfill()}"
    seen = api.call("GET", path).headers["etag"]
    assert api.call(method, path + below, headers={"If-Match": '"other"'}).status_code == 412
    assert api.call(method, path + below, headers={"If-None-Match": "*"}).status_code == 412
    assert api.call(method, path + below, headers={"If-Match": seen}).status_code == 202


def test_what_does_not_exist_matches_nothing(api: ApiFixture) -> None:
    assert api.call("DELETE", "/backfills/nothing", headers={"If-Match": "*"}).status_code == 412
    assert api.call("DELETE", "/backfills/nothing", headers={"If-None-Match": "*"}).status_code == 404


def test_of_several_lines_of_a_header_each_counts(api: ApiFixture) -> None:
    path = f"/backfills/{api.backfill()}"
    seen = api.call("GET", path).headers["etag"]
    for name, tag, status in (("If-Match", seen, 202), ("If-Match", '"other"', 412), ("If-None-Match", "*", 412)):
        lines = [(name, '"another"'), (name, tag)]
        assert api.call("PATCH", path, json={"priority": 3}, headers=lines).status_code == status, lines
    lines = [("If-None-Match", '"another"'), ("If-None-Match", seen)]
    assert api.call("GET", path, headers=lines).status_code == 304


def test_reads_know_both_headers_too(api: ApiFixture) -> None:
    path = f"/backfills/{api.backfill()}"
    seen = api.call("GET", path).headers["etag"]
    assert api.call("GET", path, headers={"If-None-Match": "*"}).status_code == 304
    assert api.call("GET", "/backfills/nothing", headers={"If-None-Match": "*"}).status_code == 404
    assert api.call("GET", path, headers={"If-Match": seen}).status_code == 200
    assert api.call("GET", path, headers={"If-Match": '"other"'}).status_code == 412


def test_a_change_of_something_else_is_no_change_of_this(api: ApiFixture) -> None:
    path = f"/backfills/{api.backfill()}"
    seen = api.call("GET", path).headers["etag"]
    api.backfill()
    assert api.call("GET", path).headers["etag"] == seen


def test_a_change_that_is_sent_again_is_not_refused_for_what_it_did_itself(api: ApiFixture) -> None:
    path = f"/backfills/{api.backfill()}"
    seen = api.call("GET", path).headers["etag"]

    def send(key: str, tag: str) -> int:
        headers = {"If-Match": tag, "Idempotency-Key": key}
        return api.call("PATCH", f"{path}/note", json={"text": "late data"}, headers=headers).status_code

    assert (send("mine", '"other"'), send("mine", seen)) == (412, 202)
    api.manager.tick()
    assert api.call("GET", path).headers["etag"] != seen
    assert (send("mine", seen), send("another", seen)) == (200, 412), "the first has its answer"
    assert len(api.requests()) == 1


def test_a_stranger_learns_nothing_from_a_condition() -> None:
    api = ApiFixture(with_tokens())
    path = f"/backfills/{api.backfill()}"
    assert api.call("DELETE", path, headers={"If-Match": "*"}).status_code == 401
    assert api.call("DELETE", path, headers={**bearer("oleg"), "If-Match": "*"}).status_code == 202
