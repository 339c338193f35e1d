"""The three engines behind one name, delta-rs also over S3 and Azure. A state is shared by all stories of its engine: with
Spark every table costs seconds. Tests therefore use ids of their own (`state_changes.unique`), and get the active leader from
`leader`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest
from support.azure_server import CONTAINER, WHERE_TO_GET_IT, azure_in_environ, find_azurite
from support.leader_contract import Leadership
from support.s3_server import BUCKET, s3_in_environ
from support.state_changes import unique

from backfill_manager.store.base import Store

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from backfill_manager.store.delta_spark.store import DeltaSparkStore

ENGINES = ("memory", "delta-rs", "delta-rs-s3", "delta-rs-azure", "delta-spark")


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Whatever the order, the lease is given back at the end: else someone would have to take over once more."""
    items.sort(key=lambda item: "gives_the_lease_back" in item.name)


@pytest.fixture(scope="session")
def s3() -> Iterator[str]:
    """The address of a server of S3, which the environment names to delta-rs, too."""
    with s3_in_environ() as address:
        yield address


@pytest.fixture(scope="session")
def azure(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The same of Azure's blob storage."""
    if find_azurite() is None:
        pytest.skip(WHERE_TO_GET_IT)
    with azure_in_environ(tmp_path_factory.mktemp("azurite")) as address:
        yield address


@pytest.fixture(scope="session")
def spark_state(spark: SparkSession) -> DeltaSparkStore:
    """The one state of the Spark engine, for the contract's stories and for those of the engine alone."""
    from backfill_manager.store.delta_spark.store import DeltaSparkStore

    made = DeltaSparkStore(f"spark_catalog.{unique('state')}", spark)
    made.init()
    return made


@pytest.fixture(scope="session", params=ENGINES)
def store(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    if request.param == "memory":
        from backfill_manager.store.memory import MemoryStore

        made: Store = MemoryStore()
    elif request.param == "delta-rs":
        from backfill_manager.store.delta_rs.store import DeltaRsStore

        made = DeltaRsStore(str(tmp_path_factory.mktemp("it's a state") / "of affairs"))
    elif request.param == "delta-rs-s3":
        from backfill_manager.store.delta_rs.store import DeltaRsStore

        request.getfixturevalue("s3")
        made = DeltaRsStore(f"s3://{BUCKET}/it's a state")
    elif request.param == "delta-rs-azure":
        from backfill_manager.store.delta_rs.store import DeltaRsStore

        request.getfixturevalue("azure")
        made = DeltaRsStore(f"az://{CONTAINER}/it's a state")
    else:
        made = request.getfixturevalue("spark_state")
    made.init()
    yield made
    made.close()


@pytest.fixture(scope="session")
def spark_leader(spark_state: DeltaSparkStore) -> Leadership:
    """The leadership of `spark_state`, shared, because a take-over with Spark takes many seconds."""
    return Leadership(spark_state)


@pytest.fixture(scope="session")
def leader(request: pytest.FixtureRequest, store: Store) -> Leadership:
    if type(store).__name__ == "DeltaSparkStore":
        shared: Leadership = request.getfixturevalue("spark_leader")
        return shared
    return Leadership(store)
