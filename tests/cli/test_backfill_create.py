"""`bfm backfill create`: what it asks, and everything it refuses before the manager hears of it."""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path

import pytest
from support.bfm import Bfm
from support.sample_state import DAY, NEW_YEAR, FilledState

from backfill_manager.dags.definition import TaskSpec
from backfill_manager.model.records import AUTO_BATCH, Pool, Request
from backfill_manager.schemas.backfill_options import CreateBackfill
from backfill_manager.schemas.payloads import parse_payload

JANUARY = ("flights", "--from", "2013-01-01", "--to", "2013-01-31")


def fill(state: FilledState) -> None:
    state.dag()
    state.pools()


@pytest.fixture
def filled(state: FilledState) -> FilledState:
    return state.filled_by(fill)


def fill_with_odd_dags(state: FilledState) -> None:
    fill(state)
    state.dag("rolling", tasks=[TaskSpec("sum", depends_on_past=True)])
    state.dag("gone", is_active=False)
    state.dag("by_hand", schedule=None)


def submitted(state: FilledState) -> CreateBackfill:
    [request] = state.store.read(Request)
    assert request.kind == "backfill.create"
    return CreateBackfill.from_payload(parse_payload(request.kind, request.payload_json)["ask"])


def test_a_range_is_asked_for_in_the_time_zone_of_the_dag(bfm: Bfm, filled: FilledState) -> None:
    result = bfm("backfill", "create", *JANUARY)

    assert result.code == 0
    ask = submitted(filled)
    assert (ask.kind, ask.start_date, ask.end_date) == ("schedule", NEW_YEAR, NEW_YEAR + 30 * DAY)
    assert (ask.pool, ask.reprocess, ask.priority, ask.max_active_runs) == ("backfill", "none", 0, None)
    assert "`bfm backfill watch " in result.out
    assert " of flights: schedule 2013-01-01 .. 2013-01-31. " in result.out, "as it was typed"
    assert "No manager is running; the request waits for one" in result.err


def test_every_option_arrives(bfm: Bfm, filled: FilledState) -> None:
    filled.put(Pool(name="slow", slots=2, weight=1, min_share=0))
    result = bfm(
        "backfill", "create", *JANUARY, "--kind", "single", "--reprocess", "completed", "--max-active-runs", "3",
        "-c", '{"full": true}', "-t", "^cl", "-m", "--stop-on-failure", "2", "--pool", "slow", "--priority", "7",
    )  # fmt: skip

    assert result.code == 0, result.err
    assert submitted(filled) == CreateBackfill(
        dag_id="flights", kind="single", start_date=NEW_YEAR, end_date=NEW_YEAR + 31 * DAY, reprocess="completed",
        max_active_runs=3, conf={"full": True}, tasks="^cl", mark_success=True, stop_on_failure=2, pool="slow",
        priority=7,
    )  # fmt: skip


def first_and_copy(bfm: Bfm, state: FilledState, first: tuple[str, ...], *changes: str) -> list[CreateBackfill]:
    """What was asked for by `first`, and by a copy of it with these options."""
    made = bfm("backfill", "create", *first, "--output", "json")
    assert made.code == 0, made.err
    created = made.document
    copied = bfm("backfill", "create", "flights", "--copy-of", created["backfill_id"], *changes)
    assert copied.code == 0, copied.err
    asked = [parse_payload(row.kind, row.payload_json) for row in state.store.read(Request)]
    found = {payload["backfill_id"]: CreateBackfill.from_payload(payload["ask"]) for payload in asked}
    of_first = found.pop(created["backfill_id"])
    return [of_first, *found.values()]


@pytest.mark.parametrize(
    "first",
    [
        (
            *JANUARY, "-B", "--reprocess", "failed", "--max-active-runs", "2", "--stop-on-failure", "3",
            "--priority", "-1", "--window", "20:00-06:00", "-t", "^cl", "--downstream-tasks", "--polite", "--downstream",
            "--set", "retries=3", "--batch-target", "5 min", "-c", '{"full": true, "password": "s3cr3t"}', "--allow-future",
        ),
        ("flights", "--kind", "single", "-s", "2013-01-01T06:30", "-e", "2013-01-05", "--preview"),
        ("flights", "--date", "2013-01-05", "--date", "2013-02-07", "-m"),
    ],
)  # fmt: skip
def test_a_copy_has_every_option_and_setting_of_the_backfill(
    bfm: Bfm, filled: FilledState, first: tuple[str, ...]
) -> None:
    asked, copied = first_and_copy(bfm, filled, first)
    assert copied == asked


@pytest.mark.parametrize(
    ("first", "changes", "result"),
    [
        (JANUARY, ("-s", "2013-01-30", "--priority", "5"), {"start_date": NEW_YEAR + 29 * DAY, "priority": 5}),
        (JANUARY, ("--date", "2013-01-01"),
         {"kind": "dates", "dates": (NEW_YEAR,), "start_date": None, "end_date": None}),
        (("flights", "--date", "2013-01-05"), JANUARY[1:],
         {"kind": "schedule", "dates": (), "start_date": NEW_YEAR, "end_date": NEW_YEAR + 30 * DAY}),
    ],
)  # fmt: skip
def test_of_a_copy_what_is_given_is_other(
    bfm: Bfm, filled: FilledState, first: tuple[str, ...], changes: tuple[str, ...], result: dict[str, object]
) -> None:
    asked, copied = first_and_copy(bfm, filled, (*first, "--reprocess", "completed"), *changes)
    assert copied == asked.evolve(**result)


@pytest.mark.parametrize(
    ("first", "changes", "result"),
    [
        (JANUARY, ("--kind", "single"), {"kind": "single", "end_date": NEW_YEAR + 31 * DAY}),
        ((*JANUARY, "--kind", "single"), ("--kind", "schedule"), {"kind": "schedule", "end_date": NEW_YEAR + 30 * DAY}),
        ((*JANUARY, "--kind", "single"), ("--kind", "missing"), {"kind": "missing", "end_date": NEW_YEAR + 30 * DAY}),
    ],
)
def test_a_copy_of_another_kind_has_the_same_days(
    bfm: Bfm, filled: FilledState, first: tuple[str, ...], changes: tuple[str, ...], result: dict[str, object]
) -> None:
    asked, copied = first_and_copy(bfm, filled, first, *changes)
    assert copied == asked.evolve(**result)


@pytest.mark.parametrize(
    "changes", [("--reprocess", "failed_tasks"), ("--kind", "single"), ("--partition", "north")], ids=" ".join
)
def test_a_copy_leaves_out_a_batch_where_nothing_can_be_batched(
    bfm: Bfm, state: FilledState, changes: tuple[str, ...]
) -> None:
    def fill(state: FilledState) -> None:
        state.dag(batchable=True)
        state.pools()
        state.backfill("b1", {"pending": 3}, batch=AUTO_BATCH)

    state.filled_by(fill)
    copied = bfm("backfill", "create", "flights", "--copy-of", "b1", *changes)
    assert copied.code == 0, copied.err
    assert submitted(state).batch is None


def test_a_copy_is_of_the_same_dag(bfm: Bfm, state: FilledState) -> None:
    state.filled_by(fill_with_odd_dags)
    created = bfm("backfill", "create", *JANUARY, "--output", "json").document
    refused = bfm("backfill", "create", "rolling", "--copy-of", created["backfill_id"])
    assert refused.code == 2
    assert (
        refused.error
        == f"--copy-of {created['backfill_id']} is a backfill of flights; only a backfill of the same DAG can be copied"
    )


def test_the_config_of_one_backfill_makes_another(bfm: Bfm, filled: FilledState) -> None:
    created = bfm("backfill", "create", *JANUARY, "-B", "--request-id", "first", "--output", "json").document
    again = bfm("backfill", "create", "flights", "--config", json.dumps(created["config"]), "--output", "json").document
    assert again["backfill_id"] != created["backfill_id"]
    assert again["config"] == created["config"]


def test_the_future_is_asked_for_and_the_first_item_waits_when_it_is_told_to(bfm: Bfm, filled: FilledState) -> None:
    assert bfm("backfill", "create", *JANUARY, "-I", "--request-id", "plain").code == 0
    shown = bfm(
        "backfill", "create", *JANUARY, "--allow-future", "--no-ignore-first-depends-on-past", "--output", "json"
    ).document

    assert shown["config"]["allow_future"] is True and shown["ignore_first_depends_on_past"] is False
    asks = {one.request_id: json.loads(one.payload_json)["ask"] for one in filled.store.read(Request)}
    first = asks.pop("plain")
    [second] = asks.values()
    assert (first["allow_future"], first["ignore_first_depends_on_past"]) == (False, True)
    assert (second["allow_future"], second["ignore_first_depends_on_past"]) == (True, False)
    page = bfm("backfill", "show", shown["backfill_id"]).out
    assert "also intervals that have not ended" in page and "ignore_first_depends_on_past" not in page
    assert "ignore_first_depends_on_past" in bfm("backfill", "list", "--output", "json").out


def test_a_date_alone_as_the_end_is_its_whole_day_and_an_end_left_out_waits_for_the_plan(
    bfm: Bfm, filled: FilledState
) -> None:
    filled.dag("hours", schedule="@hourly")
    shown = bfm("backfill", "create", "hours", "-s", "2013-02-01", "-e", "2013-02-28", "--output", "json").document
    assert shown["config"]["end_date"] == "2013-03-01T04:00:00Z"
    result = bfm("backfill", "create", "hours", "--start-date", "2013-02-01", "--end-date", "2013-02-01T00:00")
    assert "schedule 2013-02-01 .. 2013-02-01T00:00. " in result.out
    one = bfm("backfill", "create", "hours", "--kind", "single", "-s", "2013-02-01", "-e", "2013-02-01").out
    assert "single 2013-02-01 .. 2013-02-01. " in one
    left_out = bfm("backfill", "create", "hours", "-s", "2013-02-01", "--request-id", "again")
    assert "schedule 2013-02-01 .. the last complete interval" in left_out.out
    assert bfm("backfill", "create", "hours", "-s", "2013-02-01", "--request-id", "again").code == 0


def test_the_help_teaches_what_a_date_alone_means_and_what_has_not_ended(
    bfm: Bfm, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")  # no name of an option is broken into lines
    shown = " ".join(bfm("backfill", "create", "--help").out.replace("│", " ").split())
    assert "A date without a time includes that whole day in the DAG's zone" in shown
    assert "Otherwise they are skipped: not complete yet." in shown
    assert "The first item does not wait for the run before it" in shown
    clear = " ".join(bfm("tasks", "clear", "--help").out.replace("│", " ").split())
    assert "A date without a time includes that whole day" in clear


@pytest.mark.parametrize(
    ("setting", "shown"),
    [
        ("pool=scheduled", "--set pool=scheduled: the pool 'scheduled' is for scheduled runs; a backfill takes 'backfill' or"),
        ("clean.pool=scheduled", "--set clean.pool=scheduled: the pool 'scheduled' is for scheduled runs"),
        ("pool=nope", "--set pool: there is no pool 'nope'. There are backfill, slow."),
        ("clean.pool=slwo", "--set clean.pool: there is no pool 'slwo'; did you mean 'slow'? There are backfill, slow."),
        ("clean.pool=3", "--set clean.pool: pool must be 1 to 200 letters"),
        ("nope.retries=3", "--set nope.retries: DAG 'flights' has no task 'nope'. It has clean, delays."),
        ("max_active_runs=3", "that a backfill can set; a backfill has its own --max-active-runs. There are max_active_tasks"),
    ],
)  # fmt: skip
def test_what_can_not_be_set_is_refused_when_it_is_asked_for_or_changed(
    bfm: Bfm, filled: FilledState, setting: str, shown: str
) -> None:
    filled.put(Pool(name="slow", slots=2, weight=1, min_share=0))
    filled.backfill("b1", {"pending": 1})
    for args in (("create", *JANUARY), ("create", *JANUARY, "--dry-run"), ("set", "b1")):
        result = bfm("backfill", *args, "--set", setting)
        assert (result.code, shown in result.error) == (2, True), result.err
    assert not filled.store.read(Request)


def test_the_kind_follows_from_dates_or_partitions(bfm: Bfm, filled: FilledState) -> None:
    dates = ("--date", "2013-01-05", "--date", "2013-01-07T00:00:00-05:00")
    assert bfm("backfill", "create", "flights", *dates).code == 0
    ask = submitted(filled)
    assert (ask.kind, ask.dates) == ("dates", (NEW_YEAR + 4 * DAY, NEW_YEAR + 6 * DAY))

    filled.dag("billing", schedule=None)
    result = bfm("backfill", "create", "billing", "--partition", "emea", "--partition", "apac", "--output", "json")
    assert result.document["config"] == {"type": "partitions", "partitions": ["emea", "apac"], "run_backwards": False}


def test_an_end_that_was_left_out_is_the_one_of_the_dag(bfm: Bfm, filled: FilledState) -> None:
    filled.dag("ended", end_date=NEW_YEAR + 9 * DAY)

    shown = bfm("backfill", "create", "ended", "--output", "json").document

    assert (shown["config"]["start_date"], shown["config"]["end_date"]) == (
        "2013-01-01T05:00:00Z",
        "2013-01-10T05:00:00Z",
    )


LAST_COMPLETE = "until now (the last complete interval)"


@pytest.mark.parametrize("more", [(), ("--dry-run",), ("--output", "json")], ids=["create", "dry run", "json"])
@pytest.mark.parametrize(
    ("dag", "args", "said"),
    [
        ("flights", (), f"No --from: from start_date 2013-01-01; no --to: {LAST_COMPLETE}."),
        ("flights", ("--kind", "missing"), f"No --from: from start_date 2013-01-01; no --to: {LAST_COMPLETE}."),
        ("flights", ("--kind", "single", "-s", "2013-01-05"), f"No --to: {LAST_COMPLETE}."),
        ("flights", ("-e", "2013-01-05"), "No --from: from start_date 2013-01-01."),
        ("ended", (), "No --from: from start_date 2013-01-01; no --to: until end_date 2013-01-10."),
        ("at_six", ("-e", "2013-01-05"), "No --from: from start_date 2013-01-01T06:30:00-05:00."),
        ("ends_today", ("-s", "2013-01-05"), f"No --to: {LAST_COMPLETE}."),
        ("last_goes_on", ("-s", "2013-01-05"), f"No --to: {LAST_COMPLETE}."),
    ],
)
def test_the_ends_that_were_not_given_are_said_before_anything_is_created(
    bfm: Bfm, filled: FilledState, dag: str, args: tuple[str, ...], said: str, more: tuple[str, ...]
) -> None:
    filled.dag("ended", end_date=NEW_YEAR + 9 * DAY)
    filled.dag("at_six", start_date=NEW_YEAR + timedelta(hours=6.5))
    filled.dag("ends_today", end_date=filled.clock.now() - timedelta(hours=1))  # its last interval goes on
    today = filled.clock.now().replace(hour=4)  # midnight in New York
    filled.dag("last_goes_on", end_date=today - DAY, exclude_dates=(str(today.date()),))
    if more == ("--dry-run",):
        filled.leads()
        summary = {"dag_id": dag, "items": 0, "pending": 0, "runs": 0, "skipped": {}}
        filled.clock.meanwhile = [lambda: filled.answers_next(payload={"items": [], "summary": summary})]
    result = bfm("backfill", "create", dag, *args, *more)
    assert (result.code, result.err.splitlines()[0]) == (0, said), result.err


@pytest.mark.parametrize(
    "args", [JANUARY, ("flights", "--date", "2013-01-05"), ("flights", "--partition", "emea")], ids=lambda args: args[1]
)
def test_nothing_is_said_of_ends_that_were_given_or_that_there_are_not(
    bfm: Bfm, filled: FilledState, args: tuple[str, ...]
) -> None:
    filled.leads()
    assert bfm("backfill", "create", *args).err == ""


def test_old_spellings_are_understood_and_say_what_they_became(bfm: Bfm, filled: FilledState) -> None:
    result = bfm("backfill", "create", "flights", "--start-date", "2013-01-01", "--end-date", "2013-01-31")

    assert result.code == 0
    assert "--start-date is --from here.\n--end-date is --to here.\n" in result.err
    assert submitted(filled).end_date == NEW_YEAR + 30 * DAY


def test_a_living_manager_is_not_waited_for_and_nothing_is_said_of_it(bfm: Bfm, filled: FilledState) -> None:
    filled.leads()

    result = bfm("backfill", "create", *JANUARY)

    assert (result.code, result.err) == (0, "")
    assert filled.clock.pauses == 0


def test_the_answer_as_a_document_is_the_backfill_itself(bfm: Bfm, filled: FilledState) -> None:
    result = bfm("backfill", "create", *JANUARY, "--output", "json")

    shown = result.document
    assert (shown["state"], shown["reason"], shown["dag_id"]) == ("queued", "waiting for the manager", "flights")
    assert bfm("backfill", "show", "latest", "--output", "json").document == shown


def test_the_same_request_id_sent_twice_makes_one_backfill(bfm: Bfm, filled: FilledState) -> None:
    first = bfm("backfill", "create", *JANUARY, "--request-id", "nightly-1", "--output", "json")
    second = bfm("backfill", "create", *JANUARY, "--request-id", "nightly-1", "--output", "json")
    other = bfm("backfill", "create", *JANUARY, "--priority", "1", "--request-id", "nightly-1")

    assert first.document == second.document
    assert len(filled.store.read(Request)) == 1
    assert other.code == 2
    assert "was used for another request" in other.error
    assert "'a b/c'" in bfm("backfill", "create", *JANUARY, "--request-id", "a b/c").error


WRONG = {
    "an unknown DAG": (("flihgts", "-s", "2013-01-01", "-e", "2013-01-02"), 3, "did you mean 'flights'"),
    "a DAG that is gone": (("gone", "-s", "2013-01-01", "-e", "2013-01-02"), 4, "no longer defines it"),
    "from after to": (("flights", "-s", "2013-02-01", "-e", "2013-01-01"), 2, "2013-02-01"),
    "an unparsable start": (("flights", "-s", "yesterdayish", "-e", "2013-01-02"), 2, "--from"),
    "an unparsable end": (("flights", "-s", "2013-01-01", "-e", "2013-02-30"), 2, "--to"),
    "an unparsable date": (("flights", "--date", "05.01.2013x"), 2, "--date"),
    "broken JSON": ((*JANUARY, "-c", '{"a": }'), 2, "--conf is not JSON: Expecting value at line 1, column 7"),
    "JSON that is no object": ((*JANUARY, "-c", "[1]"), 2, "must be a JSON object"),
    "a number JSON lacks": ((*JANUARY, "-c", '{"a": NaN}'), 2, "NaN is not JSON"),
    "a configuration file as run parameters": ((*JANUARY, "-c", "m.yaml"), 2, "`bfm --conf m.yaml backfill create"),
    "JSON without an end": ((*JANUARY, "-c", "[" * 100_000), 2, "--conf"),
    "a config that is no JSON": (("flights", "--config", "{"), 2, "--config is not JSON"),
    "a config that is no object": (("flights", "--config", "[]"), 2, "--config must be a JSON object such as"),
    "a config beside options": ((*JANUARY, "--config", '{"type": "schedule"}'), 2, "leave --from out, or --config"),
    "a config without a type": (("flights", "--config", '{"dates": []}'), 2, "config: the field 'type' is missing"),
    "a config with a slip": (("flights", "--config", '{"type": "dates", "date": []}'), 2, "config: unknown field 'date'"),
    "a config of an unknown type": (("flights", "--config", '{"type": "date"}'), 2, "config: type must be"),
    "a configuration file as config": (("flights", "--config", "m.yaml"), 2, "`bfm --conf m.yaml backfill create"),
    "a broken regular expression": ((*JANUARY, "-t", "cle(an"), 2, "cle(an"),
    "a regular expression that fits no task": ((*JANUARY, "-t", "^nothing$"), 2, "nothing"),
    "backwards over depends_on_past": (("rolling", *JANUARY[1:], "-B"), 2, "'sum'"),
    "no end, here or in the DAG": (("by_hand", "--kind", "single", "-s", "2013-01-01"), 2, "--to (the DAG has no end_date"),
    "dates and partitions": (("flights", "--date", "2013-01-01", "--partition", "x"), 2, "don't go together"),
    "dates and a range": ((*JANUARY, "--date", "2013-01-01"), 2, "don't go with --date"),
    "dates of another kind": (("flights", "--date", "2013-01-01", "--kind", "single"), 2, "--kind dates"),
    "partitions without any": (("flights", "--kind", "partitions"), 2, "--kind partitions needs --partition"),
    "an unknown kind": ((*JANUARY, "--kind", "weekly"), 2, "weekly"),
    "no runs at once": ((*JANUARY, "--max-active-runs", "0"), 2, "--max-active-runs"),
    "an unknown pool": ((*JANUARY, "--pool", "backfil"), 3, "did you mean 'backfill'"),
    "the pool of the scheduled runs": ((*JANUARY, "--pool", "scheduled"), 2, "for scheduled runs"),
    "a range without an interval": (("flights", "-s", "2013-01-01T06:00", "-e", "2013-01-01T07:00"), 2, "2013-01-02"),
    "a schedule that is none": (("by_hand", "-s", "2013-01-01", "-e", "2013-01-02"), 2, "schedule"),
    "an unknown option": ((*JANUARY, "--bacth", "2"), 2, "--bacth"),
}  # fmt: skip


@pytest.mark.parametrize("dry_run", [(), ("--dry-run",)], ids=["create", "dry run"])
@pytest.mark.parametrize("what", WRONG)
def test_what_is_wrong_is_reported_in_one_line_and_nothing_is_asked(
    bfm: Bfm, state: FilledState, what: str, dry_run: tuple[str, ...]
) -> None:
    before = state.filled_by(fill_with_odd_dags).fingerprint()
    args, code, shown = WRONG[what]

    result = bfm("backfill", "create", *args, *dry_run)

    assert (result.code, shown in result.error) == (code, True), result.err
    assert state.fingerprint() == before


def test_without_any_dag_it_says_to_start_a_manager(bfm: Bfm, state: FilledState) -> None:
    result = bfm("backfill", "create", *JANUARY)

    assert result.code == 3
    assert "there are no DAGs yet" in result.error
    assert "`bfm manager status` says whether one runs, `bfm manager start` starts one" in result.error


def test_without_a_state_it_says_how_to_make_one_and_makes_none(bfm: Bfm, tmp_path: Path) -> None:
    result = bfm("--state", "nowhere", "backfill", "create", *JANUARY)

    assert result.code == 2
    assert "There is no state at nowhere" in result.error
    assert "a manager that starts there makes it" in result.error
    assert list(tmp_path.iterdir()) == []


# -- dry run over a living manager -------------------------------------------------------------------------------------


def plan(number: int, skipped: int = 0) -> dict[str, object]:
    items = [
        {
            "ordinal": n,
            "logical_date": f"2013-01-01T00:{n:02d}:00Z",
            "interval_start": f"2013-01-01T00:{n:02d}:00Z",
            "interval_end": f"2013-01-01T00:{n + 1:02d}:00Z",
            "partition_key": None,
            "state": "skipped" if n <= skipped else "pending",
            "reason": "already exists" if n <= skipped else None,
        }
        for n in range(1, number + 1)
    ]
    reasons = {"already exists": skipped} if skipped else {}
    return {"items": items, "summary": {"items": number, "pending": number - skipped, "skipped": reasons}}


def test_a_dry_run_asks_a_living_manager_and_prints_its_plan(bfm: Bfm, filled: FilledState) -> None:
    filled.leads()
    filled.clock.meanwhile = [lambda: filled.answers_next(payload=plan(3))]

    result = bfm("backfill", "create", *JANUARY, "--dry-run", "--output", "json")

    assert result.document == plan(3)
    [request] = filled.store.read(Request)
    assert request.kind == "backfill.dry_run"
    assert bfm("backfill", "list", "--output", "json").document == []


def test_a_long_plan_is_shown_by_its_beginning_and_its_end(bfm: Bfm, filled: FilledState) -> None:
    filled.leads()
    filled.clock.meanwhile = [lambda: filled.answers_next(payload=plan(50))]

    result = bfm("backfill", "create", *JANUARY, "-n")

    assert "… 25 more" in result.out
    ordinals = [line.split()[0] for line in result.out.splitlines()[2:-1] if line.strip() and line.split()[0].isdigit()]
    assert ordinals == [str(n) for n in [*range(1, 21), *range(46, 51)]]
    assert "50 items: 50 would run." in result.out


def test_a_plan_in_which_nothing_would_run_says_why(bfm: Bfm, filled: FilledState) -> None:
    filled.leads()
    filled.clock.meanwhile = [lambda: filled.answers_next(payload=plan(3, skipped=3))]

    result = bfm("backfill", "create", *JANUARY, "-n")

    assert "3 items: 0 would run, 3 skipped (already exists)." in result.out
    assert "--reprocess completed" in result.err


def test_a_plan_that_the_manager_refuses_is_exit_code_4(bfm: Bfm, filled: FilledState) -> None:
    filled.leads()
    filled.clock.meanwhile = [lambda: filled.answers_next("refused", "the plan is empty: every date has a run")]

    result = bfm("backfill", "create", *JANUARY, "-n")

    assert (result.code, result.error) == (4, "the plan is empty: every date has a run")


def test_a_manager_that_does_not_plan_in_time_is_reported(bfm: Bfm, filled: FilledState) -> None:
    filled.leads()

    result = bfm("backfill", "create", *JANUARY, "-n")

    assert result.code == 1
    (request,) = filled.store.read(Request)
    said = result.err.splitlines()[-1]
    assert "has not planned it within 60 s" in said and f"`bfm requests show {request.request_id}`" in said


@pytest.mark.parametrize("output", [(), ("--output", "json")])
def test_a_plan_that_takes_long_says_which_manager_is_waited_for(
    bfm: Bfm, filled: FilledState, output: tuple[str, ...]
) -> None:
    filled.leads()
    late, said = [lambda: None] * 60, "Waiting for the manager (term 2, pid 4711 on here) to plan."
    filled.clock.meanwhile = [*late, lambda: filled.answers_next(payload=plan(3))]

    result = bfm("backfill", "create", *JANUARY, "-n", *output)

    assert result.code == 0
    assert result.err.splitlines().count(said) == (0 if output else 1)
    filled.clock.meanwhile = [lambda: filled.answers_next(payload=plan(3))]
    assert said not in bfm("backfill", "create", *JANUARY, "-n").err


def test_the_payload_that_arrives_can_be_read_by_the_manager(bfm: Bfm, filled: FilledState) -> None:
    bfm("backfill", "create", *JANUARY, "-c", json.dumps({"text": "ünïcode 'quoted' \"twice\""}))

    assert submitted(filled).conf == {"text": "ünïcode 'quoted' \"twice\""}
