"""Pages and API under the path of `api.public_url`, as a proxy that serves other things beside them has them."""

from __future__ import annotations

from urllib.parse import urldefrag, urljoin

import pytest
from fastapi.testclient import TestClient
from support.page_checks import Page
from support.page_client import browser_of

from backfill_manager.api.auth import sha256_of
from backfill_manager.settings import Settings
from backfill_manager.testing import InMemoryManager

PATH = "/apps/back%20fills"  # with what a URL must escape
HERE = "http://localhost"


def settings(**api: object) -> Settings:
    return Settings.model_validate({"api": {"public_url": f"https://example.com{PATH}/", **api}})


@pytest.fixture
def below(busy_ground_of_module: InMemoryManager) -> TestClient:
    return browser_of(busy_ground_of_module.store, busy_ground_of_module.clock, settings())


@pytest.fixture
def changing(manager: InMemoryManager) -> TestClient:
    return browser_of(manager.store, manager.clock, settings())


def test_every_link_leads_somewhere(below: TestClient) -> None:
    waiting, seen, dead = [f"{PATH}/dags"], set[str](), dict[str, int]()
    while waiting and len(seen) < 150:
        here = waiting.pop()
        answer = below.get(here)
        if answer.status_code != 200:
            dead[here] = answer.status_code
            continue
        for link in Page(answer.text).links:
            there = urldefrag(urljoin(HERE + here, link)).url.removeprefix(HERE)
            if there not in seen:
                seen.add(there)
                waiting.append(there)
    assert dead == {}
    assert len(seen) > 100


def test_the_path_alone_is_the_home_page_and_without_it_pages_are_there_too(below: TestClient) -> None:
    for address in (PATH, f"{PATH}/", "/"):
        assert "Failed since yesterday" in below.get(address).text
    assert below.get("/apps/back%20fillsdags").status_code == 404


def test_a_form_leads_back_to_its_page(changing: TestClient) -> None:
    page = Page(changing.get(f"{PATH}/pools").text)
    (form, *_) = [form for form in page.forms if "/pools/" in str(form.attributes.get("action"))]
    fields = {str(one.attributes["name"]): one.attributes.get("value") or "" for one in form.find("input")}
    answer = changing.post(str(form.attributes["action"]), data=fields | {"slots": "3"})
    assert answer.status_code == 303
    assert answer.headers["location"].startswith(f"{PATH}/pools?request_id=")
    assert changing.get(answer.headers["location"]).status_code == 200


def test_an_error_leads_back_to_the_page_before(below: TestClient) -> None:
    answer = below.get(f"{PATH}/dags/nope", headers={"Referer": f"{HERE}{PATH}/dags?q=x"})
    assert answer.status_code == 404
    assert f"{PATH}/dags" in Page(answer.text).links


def test_a_browser_logs_in_and_out(manager: InMemoryManager) -> None:
    token = {"name": "ada", "role": "operator", "sha256": sha256_of("token of ada")}
    browser = browser_of(manager.store, manager.clock, settings(tokens=[token]))
    to_login = browser.get(f"{PATH}/pools?x=1")
    assert (to_login.status_code, to_login.headers["location"]) == (303, f"{PATH}/login?next=%2Fpools%3Fx%3D1")
    (form,) = Page(browser.get(to_login.headers["location"]).text).forms
    fields = {str(one.attributes["name"]): one.attributes.get("value") or "" for one in form.find("input")}
    answer = browser.post(str(form.attributes["action"]), data=fields | {"token": "token of ada"})
    assert (answer.status_code, answer.headers["location"]) == (303, f"{PATH}/pools?x=1")
    assert f"Path={PATH};" in answer.headers["set-cookie"]
    page = Page(browser.get(answer.headers["location"]).text)
    (out,) = [form for form in page.forms if form.attributes.get("action") == f"{PATH}/logout"]
    csrf = {str(one.attributes["name"]): one.attributes.get("value") or "" for one in out.find("input")}
    assert browser.post(f"{PATH}/logout", data=csrf).headers["location"] == f"{PATH}/login"
    assert browser.get(f"{PATH}/pools").status_code == 303


def test_the_api_is_there_with_its_locations_and_ids_with_slashes(changing: TestClient) -> None:
    answer = changing.post(f"{PATH}/api/v1/dags/shop/runs", json={})
    assert answer.headers["location"].startswith(f"{PATH}/api/v1/requests/")
    assert changing.get(answer.headers["location"]).status_code == 200
    run = changing.get(f"{PATH}/api/v1/dags/regions/runs/backfill__south%2Fwest")
    assert run.json()["partition_key"] == "south/west"
    assert changing.get(f"{PATH}/openapi.json").json()["servers"] == [{"url": PATH}]
    assert "servers" not in browser_openapi(changing)


def browser_openapi(client: TestClient) -> dict[str, object]:
    """The document itself, which all servers of the process share."""
    return client.app.openapi()  # type: ignore[attr-defined,no-any-return]
