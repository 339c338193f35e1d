"""No text that anyone can type changes the meaning of a condition: every engine agrees with plain Python."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.state_changes import AT, changes, request, run, takes_over

from backfill_manager.model.records import DagRun
from backfill_manager.store.base import Condition
from backfill_manager.store.delta_rs.store import DeltaRsStore
from backfill_manager.store.filters import checked, that_meet

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# fmt: off
PIECES = [
    "'", "''", '"', "\\", "\\'", "\n", "\r", "--", ";", "/*", "*/", "%", "_", "$1", ":x", "?", "{", "X'", "NULL", "é",
    "\U0001f98a", " ",
]
KEYS = [
    "", "a", "A", "a'b", "a''b", "a\\b", "a\nb", "%", "_", "a%", "'; DROP TABLE dag_run; --", "é", "\U0001f98a", "NULL",
    None,
]
# fmt: on
adversarial = st.lists(st.one_of(st.sampled_from(PIECES), st.text(max_size=3)), max_size=8).map("".join)
texts = adversarial.filter(lambda text: "\x00" not in text)
NUMBERS = [0, 1, 2**62]


@pytest.fixture(scope="module")
def state(tmp_path_factory: pytest.TempPathFactory) -> DeltaRsStore:
    """Fifteen runs, one for each key."""
    store = DeltaRsStore(str(tmp_path_factory.mktemp("state")))
    store.init()
    runs = [run("d", n, partition_key=key, ordinal=NUMBERS[n % 3] if n % 4 else None) for n, key in enumerate(KEYS)]
    takes_over(store).commit(changes(*runs))
    return store


def conditions() -> st.SearchStrategy[Condition]:
    text = st.one_of(st.sampled_from([key for key in KEYS if key is not None]), texts)
    number = st.one_of(st.sampled_from(NUMBERS), st.integers(-(2**63), 2**63 - 1))
    compare = st.sampled_from(["=", "!=", "<", "<=", ">", ">="])
    return st.one_of(
        st.builds(Condition, st.just("partition_key"), st.one_of(compare, st.just("starts_with")), text),
        st.builds(Condition, st.just("partition_key"), st.just("in"), st.lists(st.one_of(text, st.none()), max_size=4)),
        st.builds(Condition, st.just("partition_key"), st.just("shorter_than"), st.integers(-1, 30)),
        st.builds(Condition, st.just("ordinal"), compare, number),
        st.builds(Condition, st.just("ordinal"), st.just("in"), st.lists(number, max_size=4)),
        st.builds(Condition, st.sampled_from(["ordinal", "partition_key"]), st.sampled_from(["is_null", "not_null"])),
        st.builds(Condition, st.just("created_at"), compare, st.sampled_from([AT, AT.replace(microsecond=123_457)])),
    )


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(where=st.lists(conditions(), max_size=3))
def test_the_engine_finds_what_python_finds(state: DeltaRsStore, where: list[Condition]) -> None:
    everything = state.read(DagRun, order_by=["run_seq"])
    plain = checked(DagRun, where)
    expected = [] if plain is None else that_meet(everything, plain)
    assert state.read(DagRun, where, order_by=["run_seq"]) == expected


@settings(max_examples=3, deadline=None, suppress_health_check=list(HealthCheck))
@given(words=st.lists(texts, min_size=30, max_size=60, unique=True))
def test_spark_takes_any_text_as_a_literal(spark: SparkSession, words: list[str]) -> None:
    from pyspark.sql import functions as f

    from backfill_manager.store.sql_text import SPARK, predicate

    rows = spark.createDataFrame([(n, word) for n, word in enumerate(words)], "n int, partition_key string")
    aggregates = [
        f.max(f.when(f.expr(predicate([Condition("partition_key", "=", word)], SPARK)), f.col("n"))) for word in words
    ]
    found = rows.agg(*aggregates).first()
    assert found is not None and list(found) == list(range(len(words)))


def test_a_folder_with_any_name_can_hold_a_state(tmp_path: Path) -> None:
    store = DeltaRsStore(str(tmp_path / "it's 100% \N{SNOWMAN} #1 (a) {b} state"))
    assert not store.exists()
    store.init()
    store.append_request(request("q1"))
    assert [one.request_id for one in store.unanswered()] == ["q1"]
