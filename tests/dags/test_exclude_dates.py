"""Dates on which a schedule does not fire: how they are written, and the error of each mistake."""

from __future__ import annotations

import json
from datetime import date, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
from support.bundle_folder import BundleFolder

from backfill_manager import dag, on, sql
from backfill_manager.dags.authoring import collecting
from backfill_manager.dags.bundles.files import may_make_dags
from backfill_manager.dags.definition import DagSpec
from backfill_manager.dags.importing.bundle_path import enter_bundle
from backfill_manager.errors import InvalidDag
from backfill_manager.schemas.dag_settings import MAX_EXCLUDED_DATES

CHRISTMAS = ("2025-12-25", "2025-12-26")
NOT_CRON = "exclude_dates needs a cron schedule or a preset such as '@daily', not "
EXAMPLE = "exclude_dates must be dates, such as ['2026-12-25', '2026-12-26']"


def made(**settings: Any) -> DagSpec:
    any_dag: Any = dag

    @any_dag(**settings)
    def silver() -> None:
        sql("one", "SELECT 1")

    spec: DagSpec = silver.spec
    return spec


@pytest.mark.parametrize(
    "written",
    [
        ["2025-12-26", "2025-12-25", "2025-12-25"],
        (date(2025, 12, 26), "2025-12-25"),
        {date(2025, 12, 26), date(2025, 12, 25)},
        {date(2025, 12, 25): "Christmas Day", date(2025, 12, 26): "Second Day of Christmas"},
    ],
    ids=["text", "dates", "set", "names by date"],
)
def test_excluded_dates_are_text_or_dates_or_the_keys_of_a_calendar(written: Any) -> None:
    spec = made(schedule="@daily", exclude_dates=written)
    assert spec.exclude_dates == CHRISTMAS
    assert DagSpec.from_json(spec.to_json()) == spec


def test_a_dag_without_excluded_dates_has_the_definition_that_it_had() -> None:
    assert made(schedule="@daily", exclude_dates=[]) == made(schedule="@daily")
    assert "exclude_dates" not in json.loads(made(schedule="@daily").to_json())


def test_they_are_written_in_yaml_too(bundle: BundleFolder) -> None:
    bundle.write(
        "f.dag.yaml",
        "dag_id: silver\nschedule: 0 6 * * MON-FRI\nexclude_dates: [2025-12-25, '2025-12-26']\ntasks: {one: {sql: SELECT 1}}\n",
    )
    assert may_make_dags("f.dag.yaml", b"")
    opened = enter_bundle(bundle.root)
    try:
        [found] = opened.dags_of("f.dag.yaml")
    finally:
        opened.leave()
    assert found.spec.exclude_dates == CHRISTMAS


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"exclude_dates": ["2025-02-30"]}, f"{EXAMPLE}; '2025-02-30' is not one"),
        ({"exclude_dates": ["25.12.2025"]}, f"{EXAMPLE}; '25.12.2025' is not one"),
        (
            {"exclude_dates": [datetime(2025, 12, 25, 6)]},
            f"{EXAMPLE}; datetime.datetime(2025, 12, 25, 6, 0) is not one",
        ),
        ({"exclude_dates": [20251225]}, f"{EXAMPLE}; 20251225 is not one"),
        ({"exclude_dates": "2025-12-25"}, f"{EXAMPLE}, not '2025-12-25'"),
        ({"exclude_dates": None}, f"{EXAMPLE}, not None"),
        (
            {"exclude_dates": [date(2025, 1, 1) + timedelta(days=n) for n in range(MAX_EXCLUDED_DATES + 1)]},
            "exclude_dates must be at most 2,000 dates, not 2,001",
        ),
        (
            {"exclude_dates": CHRISTMAS, "schedule": None},
            NOT_CRON + "None",
        ),
        (
            {"exclude_dates": CHRISTMAS, "schedule": "@once"},
            NOT_CRON + "'@once'",
        ),
        (
            {"exclude_dates": CHRISTMAS, "schedule": timedelta(days=1)},
            NOT_CRON + "{'seconds': 86400}",
        ),
    ],
)
def test_what_can_not_be_excluded_is_refused_in_one_line(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidDag) as error:
        made(**{"schedule": "@daily", **settings})
    assert str(error.value) == f"DAG 'silver': {message}"


def test_an_end_date_that_is_excluded_ends_with_the_day_before() -> None:
    spec = made(schedule="@hourly", end_date="2025-12-25", exclude_dates=["2025-12-25"])
    assert spec.end_date == datetime(2025, 12, 25, tzinfo=timezone.utc), "no hour starts between the two"


@pytest.mark.parametrize(("own", "fits"), [({"exclude_dates": CHRISTMAS}, True), ({}, False)], ids=["the same", "none"])
def test_a_dag_has_the_schedule_of_what_it_waits_for_if_both_leave_out_the_same_dates(
    own: dict[str, Any], fits: bool
) -> None:
    with collecting(Path("/bundle"), Path("/bundle/silver.py")):

        @dag(schedule="@daily", writes=["bronze.events"], exclude_dates=CHRISTMAS)
        def bronze() -> None:
            sql("one", "SELECT 1")

        if fits:
            assert made(schedule=on("bronze.events"), **own).schedule == "@daily"
        else:
            with pytest.raises(InvalidDag, match="with its `timezone` and `exclude_dates`"):
                made(schedule=on("bronze.events"), **own)
