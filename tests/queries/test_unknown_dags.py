"""What is said of a DAG's id that is not there."""

from __future__ import annotations

import pytest
from support.sample_state import FilledState

from backfill_manager.errors import NotFound
from backfill_manager.queries.dags import dag_row


@pytest.mark.parametrize(
    ("has_dags", "has_problem", "hint"),
    [
        (False, False, "see_manager"),
        (True, False, "see_dags"),
        (True, True, "see_import_errors"),
        (False, True, "see_import_errors"),
    ],
)
def test_a_file_that_can_not_be_read_may_hold_it(
    state: FilledState, has_dags: bool, has_problem: bool, hint: str
) -> None:
    if has_dags:
        state.dag()
    if has_problem:
        state.import_error()

    with pytest.raises(NotFound, match="There is no DAG 'zzz'") as error:
        dag_row(state.store, "zzz")
    assert error.value.hint == hint
