"""What differs between two versions of a DAG, and the code of one."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.sample_state import FilledState

from backfill_manager.errors import InvalidInput, NotFound
from backfill_manager.model.records import DagRow, DagVersion
from backfill_manager.queries.versions import code_of, diff_versions
from backfill_manager.store.base import matching

FILES = ("flights.py", "helper.py", "weather.py")


@pytest.fixture
def two_versions(state: FilledState, tmp_path: Path) -> FilledState:
    """Of `flights`: the second has other tags, and each of its files is another one."""
    for version, tags in ((1, ()), (2, ("x",))):
        state.dag(version=version, tags=tags)
        folder = tmp_path / f"snapshot{version}"
        folder.mkdir()
        for file in FILES:
            (folder / file).write_text(f"VERSION = {version}\n")
        (row,) = state.store.read(DagVersion, matching(dag_id="flights", version=version))
        state.put(row.evolve(snapshot=str(folder)))
    return state


def test_only_what_differs_is_a_setting_or_a_file_of_the_difference(two_versions: FilledState) -> None:
    state = two_versions
    found = diff_versions(state.store, "flights", 1, 2)
    assert found["settings"] == [{"name": "tags", "before": [], "after": ["x"]}]
    assert (found["tasks"], [file["file"] for file in found["files"]]) == ([], [*FILES])

    state.dag("weather")  # another DAG of the bundle: its file is not what this one runs
    (flights,) = state.store.read(DagRow, matching(dag_id="flights"))
    state.put(flights.evolve(dag_id="elsewhere", bundle="another", file="helper.py"))
    assert [file["file"] for file in diff_versions(state.store, "flights", 1, 2)["files"]] == [
        "flights.py",
        "helper.py",
    ]


def test_a_version_without_a_snapshot_has_no_code_whatever_stands_in_the_working_folder(
    state: FilledState, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    state.dag()
    (row,) = state.store.read(DagVersion, matching(dag_id="flights"))
    state.put(row.evolve(snapshot=""))
    (tmp_path / "flights.py").write_text("SOMETHING = 'else'\n")
    monkeypatch.chdir(tmp_path)
    assert code_of(state.store, "flights", 1) == {"dag_id": "flights", "version": 1, "file": "flights.py", "text": None}


def test_a_version_that_is_not_there_is_refused_with_those_that_are(two_versions: FilledState) -> None:
    with pytest.raises(InvalidInput, match=r"^DAG 'flights' has no version 3; it has 1 to 2$"):
        diff_versions(two_versions.store, "flights", 1, 3)
    with pytest.raises(NotFound, match=r"There is no DAG 'fligths'; did you mean 'flights'"):
        diff_versions(two_versions.store, "fligths", 1, 2)
    (row,) = two_versions.store.read(DagRow, matching(dag_id="flights"))
    two_versions.put(row.evolve(dag_id="damaged"))
    with pytest.raises(InvalidInput, match=r"^DAG 'damaged' has no versions$"):
        code_of(two_versions.store, "damaged", 1)
