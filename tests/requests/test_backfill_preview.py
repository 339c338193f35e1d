"""The option `preview` of a backfill, before anything is planned."""

from __future__ import annotations

from datetime import datetime

import pytest

from backfill_manager.clock import UTC
from backfill_manager.errors import InvalidInput
from backfill_manager.requests.backfill_checks import check_backfill
from backfill_manager.schemas.backfill_options import CreateBackfill
from backfill_manager.testing import dag_spec

FIRST = datetime(2013, 1, 1, tzinfo=UTC)


@pytest.mark.parametrize(
    ("given", "redone"),
    [
        ({}, "completed"), ({"reprocess": "failed"}, "failed"), ({"kind": "missing"}, "failed"),
        ({"kind": "stale"}, "completed"), ({"preview": False}, "none"),
    ],
)  # fmt: skip
def test_what_a_preview_does_with_dates_that_have_a_run(given: dict[str, object], redone: str) -> None:
    assert CreateBackfill.parse({"dag_id": "d", "preview": True, **given}).effective_reprocess == redone


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"reprocess": "failed_tasks"}, "failed_tasks can't be used with"),
        ({"mark_success": True}, "can't be used with"),
    ],
)
def test_what_does_not_go_with_a_preview(given: dict[str, object], text: str) -> None:
    command = CreateBackfill(dag_id="d", preview=True, start_date=FIRST, end_date=FIRST)
    spec = dag_spec("d", "a")
    check_backfill(command, spec, FIRST.replace(year=2014))
    with pytest.raises(InvalidInput) as refused:
        check_backfill(command.evolve(**given), spec, FIRST.replace(year=2014))
    assert text in str(refused.value)
