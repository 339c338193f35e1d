"""What the OpenAPI document promises is what is done: schemathesis calls every route with right and wrong input.

Over a state with something in it and no manager, so every change is asked for and none is carried out: however many
examples there are, the state stays what the examples name.
"""

from __future__ import annotations

import copy
from typing import Any

import jsonschema
import pytest
from support.api_server import ApiFixture, bearer, system_app, with_tokens

from backfill_manager.api.errors import PROBLEM_JSON
from backfill_manager.api.failed_logins import FailedLogins
from backfill_manager.execution.messages import AccessedTable, CheckedWrite, Succeeded
from backfill_manager.model.records import DagRun

schemathesis = pytest.importorskip("schemathesis", reason="schemathesis needs Python 3.11")

WITHOUT_WAITING = "/openapi-without-wait.json"
REFUSALS = ["400", "401", "403", "404", "405", "406", "409", "415", "422", "428", "429", "431", "5xx"]
NEVER_ENDING = "/api/v1/events"  # a stream: it has stories of its own (test_events_and_serving.py)


@pytest.fixture(scope="module")
def app() -> Any:
    api = ApiFixture()
    backfill_id = api.backfill(5)
    for _ in range(3):
        api.manager.tick()
    api.manager.leader.resign(api.clock.now())
    app = system_app(with_tokens(requests_per_second=1_000_000), api.store)
    app.state.context.failed_logins = FailedLogins(api.clock, of_token=1_000_000, of_address=1_000_000)
    [run_id] = [run.run_id for run in api.store.read(DagRun, order_by=("run_seq",), limit=1)]
    app.state.known = {
        "backfill_id": backfill_id, "dag_id": "flights", "run_id": run_id, "name": "backfill", "task_id": "clean",
    }  # fmt: skip
    app.add_api_route(WITHOUT_WAITING, lambda: without_waiting(app.openapi()), include_in_schema=False)
    return app


def without_waiting(document: Any) -> Any:
    """There is no manager that would answer, and a minute is long."""
    changed = copy.deepcopy(document)
    for operations in changed["paths"].values():
        for operation in operations.values():
            operation["parameters"] = [one for one in operation.get("parameters", []) if one["name"] != "wait"]
    return changed


@pytest.fixture(scope="module")
def document(app: Any) -> Any:
    return app.openapi()


def test_every_route_has_a_name_a_group_an_answer_and_problems(document: Any) -> None:
    ids = []
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            where = f"{method} {path}"
            ids.append(operation["operationId"])
            assert operation["tags"] and operation.get("description"), where
            assert operation["operationId"] == "get_health" or operation["security"], where
            assert {"403", "429", "431", "503"} <= operation["responses"].keys(), where
            assert ("security" in operation) == ("401" in operation["responses"]), where
            for status, response in operation["responses"].items():
                if int(status) >= 400:
                    assert list(response["content"]) == [PROBLEM_JSON], where
    assert len(set(ids)) == len(ids)


def test_every_answer_has_a_schema_and_every_property_and_parameter_its_description(document: Any) -> None:
    undescribed = [
        f"{name}.{field}"
        for name, schema in document["components"]["schemas"].items()
        for field, one in schema.get("properties", {}).items()
        if not one.get("description")
    ]
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            where = f"{method} {path}"
            undescribed += [
                f"{where} {one['name']}" for one in operation.get("parameters", ()) if not one.get("description")
            ]
            for status, response in operation["responses"].items():
                if status != "304":  # which has no body
                    assert any(one.get("schema") for one in response.get("content", {}).values()), f"{where} {status}"
    assert undescribed == []


def test_an_answer_has_only_what_its_schema_declares() -> None:
    api = ApiFixture()
    backfill_id = api.backfill(2)
    for _ in range(3):
        api.manager.tick()
    key, *_ = api.manager.running
    written = AccessedTable("write", "silver", "file:/s", 1, 3, 10)
    checked = CheckedWrite("silver", "rows > 0", None, "passed", 3, None, 3.0, "3 rows")
    api.manager.finish(key, Succeeded(), tables=[written], checks=[checked])
    api.manager.tick()
    document = api.app.openapi()
    queries = {"/tables/intervals": "?table=silver", "/lineage": "?dag_id=flights", "/gaps": "?start_date=2013-01-01"}
    names = {
        "backfill_id": backfill_id, "dag_id": "flights", "task_id": "clean",
        "run_id": api.call.get("/runs")["items"][0]["run_id"],
        "request_id": api.call("POST", f"/backfills/{backfill_id}/pause").json()["request_id"],
    }  # fmt: skip
    schemas = document["components"]["schemas"]
    for schema in schemas.values():
        if "properties" in schema:
            schema["additionalProperties"] = False
    validator = jsonschema.Draft202012Validator({"components": {"schemas": schemas}})
    read = 0
    for path, operations in document["paths"].items():
        if "get" not in operations or path.endswith(("/events", "/diff", "/metrics")):
            continue
        schema = operations["get"]["responses"]["200"]["content"]["application/json"]["schema"]
        answer = api.call.get(path.format(**names) + next((queries[end] for end in queries if path.endswith(end)), ""))
        problems = [
            error.message for error in validator.evolve(schema={**validator.schema, **schema}).iter_errors(answer)
        ]
        assert problems == [], path
        read += 1
    assert read > 20


def test_every_reference_of_the_document_leads_somewhere(document: Any) -> None:
    def references(value: Any) -> Any:
        if isinstance(value, dict):
            if isinstance(value.get("$ref"), str):
                yield value["$ref"]
            for one in value.values():
                yield from references(one)
        elif isinstance(value, list):
            for one in value:
                yield from references(one)

    schemas = document["components"]["schemas"]
    for reference in set(references(document)):
        assert reference.removeprefix("#/components/schemas/") in schemas


def scan_results(app: Any, document: Any, *, examples: int, stateful: bool) -> list[str]:
    """All that schemathesis has to say, once each: examples, borders of every value, random input, with all its checks."""
    from schemathesis.engine import events, from_schema

    config = schemathesis.Config.from_dict(
        {
            "headers": bearer("oleg"),
            "generation": {"max-examples": examples},
            "phases": {"stateful": {"enabled": stateful}},
            "checks": {
                # Valid by the document and refused all the same: an unknown id, a date that does not exist.
                "positive_data_acceptance": {"expected-statuses": ["2xx", "404", "409", "422", "503"]},
                # By default, and 431: with a cursor that is too long the address may be, too.
                "negative_data_rejection": {"expected-statuses": REFUSALS},
                # A dry run without a manager.
                "not_a_server_error": {"expected-statuses": ["2xx", "3xx", "4xx", "503"]},
            },
        }
    )
    schema = schemathesis.openapi.from_asgi(WITHOUT_WAITING, app, config=config).exclude(path=NEVER_ENDING)

    @schema.hook("map_path_parameters")  # type: ignore[untyped-decorator]
    def name_what_is_there(context: Any, path_parameters: dict[str, Any] | None) -> dict[str, Any] | None:
        """Half of the ids are of something."""
        known = app.state.known
        return path_parameters and {
            name: known[name] if name in known and len(str(value)) % 2 else value
            for name, value in path_parameters.items()
        }

    results: dict[tuple[str | None, str], str] = {}
    calls = 0
    for event in from_schema(schema).execute():
        if isinstance(event, events.NonFatalError | events.FatalError):
            results[None, str(event)] = f"schemathesis itself: {event}"
        elif isinstance(event, events.ScenarioFinished):
            for check in (one for checks in event.recorder.checks.values() for one in checks):
                calls += 1
                if check.failure_info is not None:
                    failure = check.failure_info.failure
                    result = f"{event.label}: {failure.title}: {failure.message}\n{check.failure_info.code_sample}"
                    results.setdefault((event.label, failure.title), result)
    assert calls > 100 * examples, "it has looked"
    return list(results.values())


def test_schemathesis_finds_nothing(app: Any, document: Any) -> None:
    assert scan_results(app, document, examples=8, stateful=False) == []


@pytest.mark.slow
def test_schemathesis_finds_nothing_in_a_long_run(app: Any, document: Any) -> None:
    assert scan_results(app, document, examples=150, stateful=True) == []
