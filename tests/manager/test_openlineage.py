"""OpenLineage events: made of what is committed, sent to a server that may be away, and never in the way of a tick."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from openlineage.client.serde import Serde
from openlineage.client.transport.http import HttpTransport
from support.http_sink import Sink, http_sink
from support.scenarios import accepted, clear

from backfill_manager.clock import EPOCH
from backfill_manager.errors import InvalidConfig
from backfill_manager.execution import messages as m
from backfill_manager.manager.telemetry.openlineage_events import PRODUCER, LineageEvents
from backfill_manager.manager.telemetry.openlineage_sender import ANSWER_TIMEOUT_S, OpenLineageSender, make_client
from backfill_manager.model.records import DagRun, RunKey
from backfill_manager.schemas import request_kinds
from backfill_manager.settings.model import OpenLineageSettings
from backfill_manager.testing import InMemoryManager, dag_spec, days

READ = m.AccessedTable(
    "read", "bronze.events", "s3a://lake/bronze/events", 7, columns_json='[{"name": "id", "type": "long"}]'
)
COLUMNS = json.dumps(
    [
        {"name": "id", "type": "long", "from": [["bronze.events", "id"]]},
        {"name": "one", "type": "integer", "from": []},
    ]
)
WRITTEN = m.AccessedTable("write", None, "file:/warehouse/silver/", 3, 240, 1024, columns_json=COLUMNS)


@pytest.fixture
def sink() -> Iterator[Sink]:
    with http_sink() as server:
        yield server


def settings(url: str, **more: Any) -> OpenLineageSettings:
    return OpenLineageSettings(namespace="ours", transport={"type": "http", "url": url, **more})


class Manager(InMemoryManager):
    """Whose commits are sent by `sender`."""

    def __init__(self, sender: OpenLineageSender, **how: Any) -> None:
        def run_of(key: RunKey) -> DagRun | None:
            return run.row if (run := self.state.runs.get(key)) else None

        spec = dag_spec("flights", "clean", upstream={"clean": []}, each={"clean": {"retries": 1}})
        super().__init__(spec, on_commit=lambda changes: sender.put(changes, run_of), **how)


def a_sender(client: Any, since: datetime = EPOCH, **how: Any) -> OpenLineageSender:
    return OpenLineageSender(client, LineageEvents("ours", "0123456789ab", "4.2.0", since), **how)


@pytest.fixture
def sender(sink: Sink) -> Iterator[OpenLineageSender]:
    sender = a_sender(make_client(settings(sink.url)))
    sender.start()
    yield sender
    sender.stop()


def of(events: list[dict[str, Any]], job: str) -> list[str]:
    return [event["eventType"] for event in events if event["job"]["name"] == job]


def test_a_run_and_its_tries_with_the_tables_of_each(sink: Sink, sender: OpenLineageSender) -> None:
    manager = Manager(sender, script=lambda _: None)
    manager.backfill("flights", days("2024-01-01", 1))
    manager.drain()
    (first,) = manager.running
    manager.finish(first, m.Failed("no flights on this day"), tables=[READ])
    manager.drain()
    (second,) = manager.running
    manager.finish(second, m.Succeeded(rows_written=240), tables=[READ, WRITTEN])
    manager.drain()

    events = sink.wait_for(6)
    assert of(events, "flights") == ["START", "COMPLETE"]
    assert of(events, "flights.clean") == ["START", "FAIL", "START", "COMPLETE"]
    assert [e["job"]["name"] for e in events][:: len(events) - 1] == ["flights", "flights"], "in their order"
    run, failed, done = events[0], events[2], events[4]
    assert events[1]["run"]["runId"] == failed["run"]["runId"] != done["run"]["runId"]
    assert len({UUID(event["run"]["runId"]) for event in events}) == 3
    assert failed["run"]["facets"]["errorMessage"]["message"] == "no flights on this day"
    facets = done["run"]["facets"]
    assert facets["parent"]["run"]["runId"] == run["run"]["runId"]
    assert facets["nominalTime"]["nominalStartTime"] == "2024-01-01T00:00:00+00:00"
    assert {tag["key"]: tag["value"] for tag in facets["tags"]["tags"]}["run_type"] == "backfill"
    (read,), (written,) = done["inputs"], done["outputs"]
    assert (read["namespace"], read["name"]) == ("s3://lake", "bronze/events")
    assert read["facets"]["version"]["datasetVersion"] == "7"
    assert [(f["name"], f["type"]) for f in read["facets"]["schema"]["fields"]] == [("id", "long")]
    assert read["facets"]["symlinks"]["identifiers"][0]["name"] == "bronze.events"
    assert (written["namespace"], written["name"]) == ("file", "/warehouse/silver")
    statistics = written["outputFacets"]["outputStatistics"]
    assert (statistics["rowCount"], statistics["size"]) == (240, 1024)
    assert [(f["name"], f["type"]) for f in written["facets"]["schema"]["fields"]] == [
        ("id", "long"),
        ("one", "integer"),
    ]
    (field,) = written["facets"]["columnLineage"]["fields"].values()
    assert [(f["namespace"], f["name"], f["field"]) for f in field["inputFields"]] == [
        ("s3://lake", "bronze/events", "id")
    ]


def test_every_event_says_where_its_schema_is_published(sink: Sink, sender: OpenLineageSender) -> None:
    manager = Manager(sender, script=lambda _: None)
    manager.backfill("flights", days("2024-01-01", 1))
    manager.drain()
    (key,) = manager.running
    manager.finish(key, m.Succeeded(), tables=[READ, WRITTEN])
    manager.drain()
    published = re.compile(r"https://openlineage\.io/spec/facets/\d+-\d+-\d+/(\w+)\.json#/\$defs/\1")
    for event in sink.wait_for(4):
        assert event["schemaURL"].startswith("https://openlineage.io/spec/")
        assert event["producer"] == PRODUCER
        assert datetime.fromisoformat(event["eventTime"]).tzinfo is not None
        datasets = event["inputs"] + event["outputs"]
        facets = [facet for holder in (event["run"], event["job"], *datasets) for facet in holder["facets"].values()]
        facets += [facet for one in event["outputs"] for facet in one["outputFacets"].values()]
        assert all(published.fullmatch(facet["_schemaURL"]) and facet["_producer"] == PRODUCER for facet in facets)


def test_what_begins_and_ends_in_one_tick_has_a_start(sink: Sink, sender: OpenLineageSender) -> None:
    manager = Manager(sender)
    manager.backfill("flights", days("2024-01-01", 2))
    manager.drain()
    events = sink.wait_for(8)
    assert of(events, "flights.clean").count("START") == of(events, "flights.clean").count("COMPLETE") == 2
    assert of(events, "flights").count("START") == of(events, "flights").count("COMPLETE") == 2


def test_a_run_that_changes_after_its_end_has_no_second_start_or_end(sink: Sink) -> None:
    client = make_client(settings(sink.url))
    sender = a_sender(client)
    manager = Manager(sender)
    manager.backfill("flights", days("2024-01-02", 1))
    manager.drain()
    manager.backfill("flights", days("2024-01-01", 1))  # the run of the day after follows it now
    manager.drain()
    (run,) = [row for row in manager.runs("flights") if row.logical_date == days("2024-01-02", 1)[0][0]]
    assert run.previous_run_id is not None
    note = {"dag_id": "flights", "run_id": run.run_id}
    accepted(manager, request_kinds.RUN_NOTE, text="late", **note)
    sender.run_once()
    assert of(sink.events, "flights") == of(sink.events, "flights.clean") == ["START", "COMPLETE"] * 2

    manager.clock.advance(seconds=10)
    successor = a_sender(client, manager.clock.now())
    manager._decisions._on_commit = lambda changes: successor.put(changes, lambda _: None)
    accepted(manager, request_kinds.RUN_NOTE, text="very late", **note)
    successor.run_once()
    assert len(sink.events) == 8


def test_a_run_that_is_marked_has_another_end_and_a_cleared_one_begins_again(sink: Sink) -> None:
    sender = a_sender(make_client(settings(sink.url)))
    manager = Manager(sender, script=lambda _: m.Failed("no flights"))
    manager.backfill("flights", days("2024-01-01", 1))
    manager.drain()
    manager.clock.advance(minutes=10)
    manager.drain()
    (run,) = manager.runs("flights")
    accepted(manager, request_kinds.RUN_MARK, dag_id="flights", run_id=run.run_id, state="success")
    manager.drain()
    sender.run_once()
    assert of(sink.events, "flights") == ["START", "FAIL", "COMPLETE"]
    manager.script = lambda _: m.Succeeded()
    accepted(manager, request_kinds.TASKS_CLEAR, **clear("flights"))
    manager.drain()
    sender.run_once()
    assert of(sink.events, "flights") == ["START", "FAIL", "COMPLETE", "START", "COMPLETE"]


def test_a_server_that_is_away_gets_all_events_in_their_order_once_it_is_back(sink: Sink) -> None:
    sink.refuses = 3
    sender = a_sender(make_client(settings(sink.url, retry={"total": 0})))
    manager = Manager(sender)
    manager.backfill("flights", days("2024-01-01", 1))
    manager.drain()  # no tick waits for it
    assert manager.tasks("flights")[0].state == "success"
    assert sender.run_once() == 1.0
    sender._woken.clear()
    manager.backfill("flights", days("2024-01-02", 1))
    manager.drain()
    assert not sender._woken.is_set(), "what is committed meanwhile makes no attempt come sooner"
    assert [sender.run_once() for _ in range(2)] == [2.0, 4.0] and not sink.events
    assert sender.run_once() is None
    assert of(sink.events, "flights.clean") == ["START", "COMPLETE"] * 2
    manager.backfill("flights", days("2024-01-03", 1))
    manager.drain()
    assert sender._woken.is_set()


@pytest.mark.parametrize("status", [400, 413, 422])
def test_an_event_that_the_server_refuses_holds_up_no_other(sink: Sink, status: int) -> None:
    sink.status, sink.is_wrong = status, lambda event: event["job"]["name"] == "flights.clean"
    sender = a_sender(make_client(settings(sink.url, retry={"total": 0})))
    manager = Manager(sender)
    manager.backfill("flights", days("2024-01-01", 1))
    manager.drain()
    assert sender.run_once() is None
    assert of(sink.events, "flights") == ["START", "COMPLETE"]


@pytest.mark.parametrize("is_one_of_several", [False, True])
@pytest.mark.parametrize("status", [301, 302, 303])
def test_an_event_whose_redirect_would_lose_it_waits(
    sink: Sink, status: int, is_one_of_several: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    sink.refuses, sink.status, sink.location = 1, status, "/login"
    how = settings(sink.url)
    if is_one_of_several:
        how = OpenLineageSettings(
            namespace="ours",
            transport={"type": "composite", "transports": [how.transport], "continue_on_failure": False},
        )
    sender = a_sender(make_client(how))
    manager = Manager(sender)
    manager.backfill("flights", days("2024-01-01", 1))
    manager.drain()
    assert sender.run_once() == 1.0 and not sink.events
    if not is_one_of_several:
        assert f"the server redirects ({status}) to /login" in capsys.readouterr().err
    assert sender.run_once() is None
    assert of(sink.events, "flights") == ["START", "COMPLETE"]


def test_a_redirect_that_keeps_the_event_is_followed(sink: Sink) -> None:
    sink.refuses, sink.status, sink.location = 1, 308, "/api/v2/lineage"
    sender = a_sender(make_client(settings(sink.url)))
    manager = Manager(sender)
    manager.backfill("flights", days("2024-01-01", 1))
    manager.drain()
    assert sender.run_once() is None
    assert sink.requests[0][0] == "/api/v2/lineage"
    assert of(sink.events, "flights") == ["START", "COMPLETE"]


def test_while_nothing_can_be_sent_the_oldest_are_left_out() -> None:
    class Away:
        def __init__(self) -> None:
            self.sent, self.is_back = list[Any](), False

        def emit(self, event: Any) -> None:
            if not self.is_back:
                raise ConnectionError("refused")
            self.sent.append(json.loads(Serde.to_json(event)))

    client = Away()
    sender = a_sender(client, max_waiting=5)
    manager = Manager(sender)
    manager.backfill("flights", days("2024-01-01", 4))
    manager.drain()
    assert sender.run_once() == 1.0
    client.is_back = True
    assert sender.run_once() is None
    assert len(client.sent) == 5 and client.sent[-1]["eventType"] == "COMPLETE"


@pytest.mark.parametrize(
    ("transport", "message"),
    [
        ({"type": "http"}, "openlineage.transport: "),
        ({"type": "carrier pigeon"}, "openlineage.transport: "),
        ({"type": "kafka"}, "openlineage.transport: "),
    ],
)
def test_a_transport_that_the_client_does_not_take_is_refused_at_the_start(
    transport: dict[str, Any], message: str
) -> None:
    with pytest.raises(InvalidConfig, match=message):
        make_client(OpenLineageSettings(transport=transport))


@pytest.mark.parametrize("of_several", ["", "list", "names"])
def test_a_server_may_take_half_a_minute_and_gets_an_event_once_in_that_time(of_several: str) -> None:
    def http_of(**more: Any) -> HttpTransport:
        transport: dict[str, Any] = {"type": "http", "url": "http://127.0.0.1:9", **more}
        if of_several:
            several = {"list": [transport], "names": {"one": transport}}[of_several]
            transport = {"type": "composite", "transports": several}
        found = make_client(OpenLineageSettings(transport=transport)).transport
        (found,) = found.transports if of_several else [found]
        assert isinstance(found, HttpTransport)
        return found

    assert (http_of().timeout, http_of().config.retry["read"]) == (ANSWER_TIMEOUT_S, 0)
    asked = http_of(timeout=7.0, retry={"read": 2})
    assert (asked.timeout, asked.config.retry["read"], asked.config.retry["connect"]) == (7.0, 2, 5)


def test_an_event_that_is_sent_again_is_the_same(sink: Sink) -> None:
    sink.is_wrong = lambda event: taken.append(event) or len(taken) == 1
    taken: list[dict[str, Any]] = []
    sender = a_sender(make_client(settings(sink.url, retry={"total": 0})))
    manager = Manager(sender, script=lambda _: m.Succeeded())
    manager.backfill("flights", days("2024-01-01", 1))
    manager.drain()
    assert sender.run_once() == 1.0
    assert sender.run_once() is None
    assert taken[0] == taken[1] and len(taken) == 5


def test_events_go_to_a_file_too(tmp_path: Path) -> None:
    transport = {"type": "file", "log_file_path": str(tmp_path / "events.json"), "append": True}
    sender = a_sender(make_client(OpenLineageSettings(transport=transport)))
    manager = Manager(sender, script=lambda _: m.Succeeded())
    manager.backfill("flights", days("2024-01-01", 1))
    manager.drain()
    sender.run_once()
    events = [json.loads(line) for line in (tmp_path / "events.json").read_text().splitlines()]
    assert of(events, "flights") == of(events, "flights.clean") == ["START", "COMPLETE"]


@pytest.mark.parametrize("is_one_of_several", [False, True])
def test_events_go_to_the_console_too(is_one_of_several: bool, capsys: pytest.CaptureFixture[str]) -> None:
    transport: dict[str, Any] = {"type": "console"}
    if is_one_of_several:
        transport = {"type": "composite", "transports": {"one": transport}}
    sender = a_sender(make_client(OpenLineageSettings(transport=transport)))
    manager = Manager(sender, script=lambda _: m.Succeeded())
    manager.backfill("flights", days("2024-01-01", 1))
    manager.drain()
    capsys.readouterr()
    sender.run_once()
    events = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    assert of(events, "flights") == of(events, "flights.clean") == ["START", "COMPLETE"]


def test_a_transport_has_a_type() -> None:
    with pytest.raises(ValueError, match="transport must have a type"):
        OpenLineageSettings(transport={"url": "http://localhost"})
