"""The dashboard and the alerts in conf/grafana name metrics and labels that /metrics has."""

from __future__ import annotations

import json
import re
from itertools import combinations
from pathlib import Path
from typing import Any, Final

import pytest
import yaml
from support.api_server import ApiFixture

from backfill_manager.model import states as s
from backfill_manager.model.records import DagRun, Notification

FOLDER: Final = Path(__file__).parents[2] / "conf" / "grafana"
DASHBOARD: Final[dict[str, Any]] = json.loads((FOLDER / "backfill_manager.json").read_text())
RULES: Final = [
    rule for group in yaml.safe_load((FOLDER / "alerts.yaml").read_text())["groups"] for rule in group["rules"]
]
PANELS: Final = [panel for panel in DASHBOARD["panels"] if panel["type"] != "row"]
EXPRESSIONS: Final = [target["expr"] for panel in PANELS for target in panel["targets"]] + [
    rule["expr"] for rule in RULES
]
_OF_PROMETHEUS: Final = {"instance", "job"}  # labels that it adds to what it scrapes
_SERIES: Final = re.compile(r"(bfm_\w+)(?:\{([^}]*)\})?")


@pytest.fixture
def metrics(api: ApiFixture) -> str:
    """Of a state with a bit of everything."""
    api.backfill(3)
    api.manager.tick()
    api.call("POST", "/dags/flights/runs")
    api.manager.leader.heartbeat(api.clock.now(), ticks=3, commits=2, tick_ms=4.0, commit_ms=3.0)
    return api.call("GET", "/metrics").text


@pytest.fixture
def labels(metrics: str) -> dict[str, set[str]]:
    """Of each series."""
    found: dict[str, set[str]] = {}
    for name, of_it in re.findall(r"^(bfm_\w+)(?:\{(.*)\})? ", metrics, re.MULTILINE):
        found.setdefault(name, set()).update(re.findall(r"(\w+)=", of_it))
    return found


def test_every_expression_is_of_metrics_that_are_there(labels: dict[str, set[str]]) -> None:
    for expression in EXPRESSIONS:
        series = _SERIES.findall(expression)
        assert series, expression
        grouped = {label.strip() for by in re.findall(r"\bby \(([^)]*)\)", expression) for label in by.split(",")}
        for name, selected in series:
            assert name in labels, expression
            known = labels[name] | _OF_PROMETHEUS
            assert {*re.findall(r"(\w+)=", selected), *grouped} <= known, expression


def test_states_in_expressions_have_a_series_before_there_is_anything_in_them(api: ApiFixture) -> None:
    text = api.call("GET", "/metrics").text
    chosen = {
        (name, state)
        for expression in EXPRESSIONS
        for name, states in re.findall(r'(bfm_\w+)\{[^}]*\bstate=~?"([^"]*)"', expression)
        for state in states.split("|")
    }
    assert {("bfm_backfill_items", "failed"), ("bfm_scheduled_runs", "failed")} <= chosen
    assert {one for one in chosen if f'{one[0]}{{state="{one[1]}"}} 0.0' not in text} == set()


def test_a_manager_that_is_not_scraped_is_one_that_is_not_running() -> None:
    """The page of a manager ends with it, and with the page the series that says so."""
    (rule,) = [rule for rule in RULES if rule["alert"] == "BackfillManagerIsNotRunning"]
    assert rule["expr"] == "(max(bfm_manager_leading) or vector(0)) == 0"


def test_scheduled_runs_are_counted_apart_from_those_of_backfills(api: ApiFixture) -> None:
    api.backfill(3)
    api.manager.tick()
    runs = api.store.read(DagRun, order_by=("run_seq",))
    api.put(*(run.evolve(state=s.FAILED) for run in runs[:2]))
    api.put(runs[2].evolve(run_id="scheduled__2013-01-03T00:00:00Z", run_type=s.SCHEDULED_RUN, state=s.FAILED))
    text = api.call("GET", "/metrics").text
    assert 'bfm_scheduled_runs{state="failed"} 1.0' in text
    assert 'bfm_dag_runs{state="failed"} 3.0' in text


def test_notifications_that_can_not_be_sent_are_counted_until_they_arrive_or_are_given_up(api: ApiFixture) -> None:
    row = Notification("late/flights/1", "ops", "late", "waiting", "flights", "late", "", 1, api.clock.now())
    refused = row.evolve(notification_id="late/flights/2", failures=3, error="429")
    api.put(row, refused)
    assert "bfm_notifications_failing 1.0" in api.call("GET", "/metrics").text
    api.put(refused.evolve(state="sent"))
    assert "bfm_notifications_failing 0.0" in api.call("GET", "/metrics").text


def test_failures_are_compared_with_the_lowest_count_of_the_hour() -> None:
    """The count of an hour ago is missing where Prometheus is younger, and hides what failed, was run again and failed again."""
    compared = [expression for expression in EXPRESSIONS if 'state="failed"' in expression]
    assert len(compared) == 4
    for expression in compared:
        assert "offset" not in expression and re.search(r"min_over_time\(max\(.*\)\[1h:1m\]\)", expression)


def test_legends_name_labels_that_their_expression_keeps() -> None:
    for panel in PANELS:
        for target in panel["targets"]:
            kept = ",".join(re.findall(r"\bby \(([^)]*)\)", target["expr"]))
            for label in re.findall(r"\{\{(\w+)\}\}", target["legendFormat"]):
                assert label in kept, target


def test_panels_have_titles_and_units_and_do_not_overlap() -> None:
    places = [panel["gridPos"] for panel in DASHBOARD["panels"]]
    assert len({panel["id"] for panel in DASHBOARD["panels"]}) == len(places)
    for panel in PANELS:
        assert panel["title"] and panel["fieldConfig"]["defaults"]["unit"]
        assert panel["datasource"]["uid"] == "${datasource}"
    for a, b in combinations(places, 2):
        beside = a["x"] + a["w"] <= b["x"] or b["x"] + b["w"] <= a["x"]
        assert beside or a["y"] + a["h"] <= b["y"] or b["y"] + b["h"] <= a["y"]
    assert all(place["x"] + place["w"] <= 24 for place in places)


def test_alerts_say_what_is_wrong_and_what_to_do() -> None:
    assert len({rule["alert"] for rule in RULES}) == len(RULES)
    for rule in RULES:
        assert rule["annotations"]["summary"] and rule["annotations"]["action"] and rule["labels"]["severity"]
