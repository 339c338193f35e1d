"""`bfm state`: made, checked, upgraded, asked for rows, and pruned."""

from __future__ import annotations

from pathlib import Path

from deltalake import DeltaTable
from support.bfm import Bfm
from support.sample_state import DAY, FilledState

from backfill_manager.model.records import Backfill, Request
from backfill_manager.store.table_properties import VERSION_PROPERTY


def test_the_state_is_made_checked_found_and_queried(bfm: Bfm, tmp_path: Path) -> None:
    made = bfm("state", "init", "--output", "json").document
    again = bfm("state", "init")
    checked = bfm("state", "check", "--output", "json")
    places = bfm("state", "locations", "--output", "json").document
    submitted = bfm("state", "sql", "SELECT count(*) AS n, max(started_at) AS at FROM dag_run", "--output", "json")

    assert "dag_run" in made["made"]
    assert "All tables exist" in again.out
    assert (checked.code, {one["outcome"] for one in checked.document}) == (0, {"ok"})
    assert Path(places["dag_run"]) == tmp_path / "state" / "dag_run"
    assert submitted.document == [{"n": 0, "at": None}]


def test_a_state_of_an_older_release_is_upgraded_and_not_called_created(bfm: Bfm, tmp_path: Path) -> None:
    bfm("state", "init")
    for table in ("dag", "pool"):
        older = DeltaTable(str(tmp_path / "state" / table))
        older.alter.set_table_properties({VERSION_PROPERTY: "2"}, raise_if_not_exists=False)
    assert "Upgraded 2 tables at " in bfm("state", "init").out
    assert bfm("state", "sql", "DROP TABLE dag_run").code == 2
    assert bfm("state", "sql", "SELECT * FROM dag_rum").code == 2


def test_a_query_shows_no_secret_of_a_document_elsewhere(bfm: Bfm, state: FilledState) -> None:
    state.run("2013-01-05", run_type="manual", conf_json='{"db_password": "hunter2", "note": "it is hunter2"}')
    shown = bfm("state", "sql", "SELECT conf_json AS c, 'of hunter2' AS x FROM dag_run", "--output", "json")
    assert shown.document == [{"c": '{"db_password": "***", "note": "it is ***"}', "x": "of ***"}]


def test_a_table_with_a_schema_is_asked_for_without(bfm: Bfm, state: FilledState) -> None:
    refused = bfm("state", "sql", "SELECT * FROM public.task_instance")
    assert (refused.code, refused.err.strip()) == (
        2,
        "The query can't be run: name the table task_instance alone, without a schema",
    )


def test_instants_of_a_query_are_utc_with_a_z(bfm: Bfm, state: FilledState) -> None:
    state.store.append_request(Request("r1", "manager.stop", '{"drain": false}', "ada", state.clock.at))

    assert bfm("state", "sql", "SELECT requested_at FROM request", "--output", "json").document == [
        {"requested_at": "2024-05-15T12:00:00Z"}
    ]


def test_what_is_old_enough_is_counted_and_then_deleted(bfm: Bfm, state: FilledState, tmp_path: Path) -> None:
    for name in ("b1", "b2"):
        state.backfill(name, {"success": 2}, state="success", completed_at=state.clock.at)
    no_age = "No age is set: everything is kept for ever. Set some below `retention` in the configuration file, such as"
    assert no_age in bfm("state", "prune", "--dry-run").error
    (tmp_path / "m.yaml").write_text("retention: {runs: 1 hour, tries: 1 hour, logs: 1 hour}\n")
    state.goes()
    state.clock.at += 400 * DAY
    counted = bfm("--conf", "m.yaml", "state", "prune", "--dry-run", "--output", "json")
    assert counted.document == {
        "dry_run": True,
        "pruned": {"logs": 0, "tries": 0, "runs": 0, "backfills": 1, "notifications": 0},
    }
    assert "would be deleted" in bfm("--conf", "m.yaml", "state", "prune", "--dry-run").out
    assert len(state.store.read(Backfill)) == 2
    pruned = bfm("--conf", "m.yaml", "state", "prune", "--output", "json")
    assert pruned.document == {"dry_run": False, "pruned": counted.document["pruned"]}
    assert [row.backfill_id for row in state.store.read(Backfill)] == ["b2"]


def test_columns_of_one_name_are_refused_as_one_would_stand_for_the_other(bfm: Bfm, state: FilledState) -> None:
    state.dag()
    state.run("2013-01-05", tasks={"clean": "failed"})
    of_both = "FROM dag_run r JOIN task_instance t ON r.run_id = t.run_id"

    refused = bfm("state", "sql", f"SELECT r.state, t.state {of_both}")

    assert (refused.code, refused.out) == (2, "")
    assert refused.error == "Several columns of the result are called state; name them apart with AS."
    apart = bfm("state", "sql", f"SELECT r.state, t.state AS of_task {of_both}", "--output", "json").document
    assert apart == [{"state": "success", "of_task": "failed"}]
