"""Errors as values: one situation, worded by each interface in its own terms."""

from __future__ import annotations

import re
from datetime import datetime, timezone

from backfill_manager.cli.render.errors import HINTS, worded
from backfill_manager.errors import BackfillManagerError, NotFound, Refused
from backfill_manager.model.records import Response
from backfill_manager.schemas import commands, errors


def stored(error: BackfillManagerError) -> Response:
    return Response(
        request_id="r", kind="backfill.create", outcome="refused", object_id=None, message=str(error), payload_json=None,
        answered_at=datetime(2026, 1, 1, tzinfo=timezone.utc), term=1, **errors.error_columns(error),
    )  # fmt: skip


def test_each_interface_names_the_field_in_its_own_way() -> None:
    error = errors.RANGE_REVERSED(start="2013-02-01", end="2013-01-01")
    assert (error.code, error.field) == ("range_reversed", "start_date")
    assert str(error) == "start_date 2013-02-01 is after end_date 2013-01-01; the earlier of the two comes first"
    assert worded(error) == "--from 2013-02-01 is after --to 2013-01-01; the earlier of the two comes first"


def test_what_a_person_typed_is_never_taken_for_a_field() -> None:
    error = errors.NO_TASK_MATCHES(pattern="[tasks]{tasks}", whose="", tasks="[conf]")
    assert worded(error) == "--tasks '[tasks]{tasks}' matches no task; there are [conf]"


def test_a_stored_refusal_is_worded_anew_and_keeps_its_hint() -> None:
    error = errors.refusal(stored(errors.RUN_IS_LIVE(run_id="manual__1", state="running")))
    assert isinstance(error, Refused)
    assert error.code == "run_is_live"
    assert worded(error).endswith("or cancel it: `bfm runs cancel manual__1`.")
    not_found = errors.refusal(stored(NotFound("bundle", "exmples", ["examples"])))
    assert not_found.code == "not_found"
    assert str(not_found) == "There is no bundle 'exmples'; did you mean 'examples'?"


def test_a_refusal_with_an_unknown_code_shows_its_message() -> None:
    row = stored(errors.EMPTY_RANGE(start="T")).evolve(error_code="of_a_newer_release", message="as it stands")
    assert str(errors.refusal(row)) == "as it stands"


def test_every_template_names_fields_that_exist_and_hints_that_the_command_line_knows() -> None:
    for code, template in errors.CATALOGUE.items():
        for field in re.findall(r"\[([a-z_]+)\]", template.template):
            assert field == "field" or commands.find_field(field), (code, field)
        assert template.hint is None or template.hint in HINTS, code
