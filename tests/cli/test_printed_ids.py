"""An id that a command prints is an id that every command takes: whole, whatever is in it and whichever DAGs share it."""

from __future__ import annotations

import typing
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime, timedelta
from types import NoneType

import pytest
from support.bfm import Bfm
from support.sample_state import NEW_YEAR, FilledState, StandingClock

from backfill_manager.api.app import create_app
from backfill_manager.api.server import listen, served_beside
from backfill_manager.clock import format_instant
from backfill_manager.model.records import TABLES, DagRun, TaskInstance
from backfill_manager.settings import Settings

Ask = Callable[..., typing.Any]
MOMENT = NEW_YEAR + timedelta(hours=7, microseconds=123_456)
KEYS = (
    "south/west",
    "50% off",
    "a  b",
    "2013-01-05T05:00:00.250Z",
    "x.5Z",
    "ÅÄÖ",
    "[red]a[/]",
    "a?b#c&d=e",
    "%2F",
    "é/..",
)
OF_FLIGHTS = [
    f"manual__{format_instant(MOMENT)}",
    "backfill__2013-01-01T05:00:00Z",
    "backfill__2013-01-01T05:00:00Z__2",
    "backfill__2013-01-01T05:00:00.000001Z",
    *(f"backfill__{key}" for key in KEYS),
]


@pytest.fixture(params=["over the tables", "over a server"])
def ask(request: pytest.FixtureRequest, bfm: Bfm, state: FilledState, clock: StandingClock) -> Iterator[Ask]:
    if request.param == "over the tables":
        yield bfm
        return
    settings = Settings.model_validate({"state": str(state.root), "api": {"requests_per_second": 10_000}})
    with served_beside(create_app(settings, state.store, clock=clock), listen("127.0.0.1", 0)) as url:
        yield lambda *args: bfm(*args, "--server", url)


def with_runs(state: FilledState, dag_id: str, run_ids: Sequence[str]) -> None:
    state.dag(dag_id)
    seq = state.leader.next_seq(len(run_ids))
    rows: list[DagRun | TaskInstance] = []
    for n, run_id in enumerate(run_ids):
        at = MOMENT if "." in run_id and run_id.startswith("manual") else None
        run = DagRun(
            dag_id=dag_id, run_id=run_id, run_type=run_id.split("__", maxsplit=1)[0], state="failed", dag_version=1,
            run_seq=seq + n, created_at=MOMENT, logical_date=at, started_at=MOMENT,
        )  # fmt: skip
        rows += [run, TaskInstance(dag_id, run_id, "clean", "failed", seq + n, started_at=MOMENT)]
    state.put(*rows)  # one commit


def column(table: str, heading: str, following: str) -> list[str]:
    """The texts of one column of a printed table, as a person would copy them."""
    head, _, *rows = table.splitlines()
    begins, ends = head.index(heading), head.index(following)
    return [row[begins:ends].rstrip() for row in rows]


def fact(shown: str, label: str) -> str:
    """What stands beside a label of `show`."""
    return next(line for line in shown.splitlines() if line.startswith(f"{label} ")).removeprefix(label).strip()


def test_every_run_id_that_is_listed_is_taken_by_every_command_that_takes_one(ask: Ask, state: FilledState) -> None:
    with_runs(state, "flights", OF_FLIGHTS)

    printed = column(ask("runs", "list").out, "run id", "dag id")
    assert sorted(printed) == sorted(OF_FLIGHTS)
    for run_id in printed:
        for named in ((run_id,), (run_id, "--dag", "flights"), (f"flights/{run_id}",)):
            assert ask("runs", "show", *named, "--output", "json").document["run_id"] == run_id
        assert fact(ask("runs", "show", run_id).out, "run id") == run_id
        assert ask("tasks", "states", "flights", run_id).code == 0
        assert ask("tasks", "logs", "flights", run_id, "clean").code == 0
        preview = ask("tasks", "clear", "flights", "--run", run_id, "--dry-run")
        assert column(preview.out.split("\n\n")[0], "run id", "type") == [run_id]
        assert "has ended (failed)" in ask("runs", "cancel", run_id).err
        for submitted in (
            ("runs", "mark", run_id, "success"),
            ("tasks", "mark", "flights", run_id, "clean", "success"),
        ):
            assert ask(*submitted, "--output", "json").document["run_id"] == run_id
    listed = ask("requests", "list", "--output", "json").document
    shown = [ask("requests", "show", one["request_id"], "--output", "json").document for one in listed]
    assert {one["payload"]["run_id"] for one in shown} == set(OF_FLIGHTS)


def test_a_run_id_that_begins_like_a_hundred_others_is_taken(ask: Ask, state: FilledState) -> None:
    with_runs(state, "flights", ["backfill__a", *(f"backfill__a{n}" for n in range(100))])

    assert ask("runs", "show", "backfill__a", "--output", "json").document["run_id"] == "backfill__a"


def test_a_run_id_that_two_dags_have_is_reported_with_both_names_and_either_is_taken(
    ask: Ask, state: FilledState
) -> None:
    shared = [OF_FLIGHTS[0], "backfill__south/west"]
    with_runs(state, "flights", shared)
    with_runs(state, "hourly", shared)

    for run_id in shared:
        result = ask("runs", "show", run_id)
        assert (result.code, result.error) == (
            2,
            f"More than one run is called '{run_id}': flights/{run_id}, hourly/{run_id}. Name the DAG too: DAG/RUN.",
        )
        for dag_id in ("flights", "hourly"):
            by_name = ask("runs", "show", f"{dag_id}/{run_id}", "--output", "json")
            by_option = ask("runs", "show", run_id, "--dag", dag_id, "--output", "json")
            assert by_name.document == by_option.document
            assert (by_name.document["dag_id"], by_name.document["run_id"]) == (dag_id, run_id)
            assert ask("runs", "mark", f"{dag_id}/{run_id}", "success", "--output", "json").document["dag_id"] == dag_id
    assert ask("runs", "show", "hourly/latest", "--output", "json").document["dag_id"] == "hourly"
    assert "There is no DAG 'hourli'; did you mean 'hourly'?" in ask("runs", "show", shared[0], "--dag", "hourli").err


def test_an_expression_for_dags_clears_the_run_that_each_of_them_has(bfm: Bfm, state: FilledState) -> None:
    for dag_id in ("flights", "hourly", "other"):
        with_runs(state, dag_id, ["backfill__a"])

    result = bfm("tasks", "clear", "--dag-regex", "flights|hourly", "--run", "backfill__a", "--dry-run")
    assert column(result.out.split("\n\n")[0], "dag id", "run id") == ["flights", "hourly"]
    refused = bfm("tasks", "clear", "--dag-regex", "flights|hourly", "--run", "hourly/backfill__a", "--dry-run")
    assert (refused.code, "clear hourly by its id" in refused.error) == (2, True)


def test_dates_that_name_a_run_are_printed_whole_and_moments_to_the_second(ask: Ask, state: FilledState) -> None:
    with_runs(state, "flights", OF_FLIGHTS[:1])

    [date] = column(ask("runs", "timeline", "flights").out, "logical date", "state")
    assert ask("runs", "show", date, "--dag", "flights", "--output", "json").document["run_id"] == OF_FLIGHTS[0]
    shown = ask("runs", "show", "latest").out
    assert (fact(shown, "logical date"), fact(shown, "started at")) == (format_instant(MOMENT), "2013-01-01T12:00:00Z")


def test_sql_prints_what_the_tables_hold(bfm: Bfm, state: FilledState) -> None:
    with_runs(state, "flights", OF_FLIGHTS[:1])

    result = bfm("state", "sql", "SELECT run_id, run_id AS seen_at, started_at FROM dag_run")
    exact = format_instant(MOMENT)
    assert result.out.splitlines()[-1].split() == [OF_FLIGHTS[0], OF_FLIGHTS[0], exact]


def test_instants_are_distinguished_from_dates_by_the_names_of_their_columns() -> None:
    """What `cli.render.printer` goes by: a column that ends with `_at` is an instant, and none that names a run does."""
    for record in TABLES.values():
        kinds = typing.get_type_hints(record)
        for name, kind in kinds.items():
            if name.endswith("_at"):
                assert set(typing.get_args(kind) or (kind,)) <= {datetime, NoneType}, f"{record.__name__}.{name}"
