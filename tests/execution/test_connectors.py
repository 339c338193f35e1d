"""What Spark is given for a warehouse in an object store."""

from __future__ import annotations

from pathlib import Path

import pytest

from backfill_manager.execution.spark.connectors import CONNECTORS, connector_conf, spark_jars
from backfill_manager.execution.spark.jars import DELTA

SECRET = "wJalrXUtnFEMI"
AWS = {
    "AWS_ACCESS_KEY_ID": "AKIA",
    "AWS_SECRET_ACCESS_KEY": SECRET,
    "AWS_SESSION_TOKEN": SECRET,
    "AWS_REGION": "eu-west-1",
}


@pytest.mark.parametrize(
    ("warehouse", "connector"),
    [
        ("s3a://bucket/w", "hadoop-aws"),
        ("S3://bucket/w", "hadoop-aws"),
        ("abfss://box@account.dfs.core.windows.net/w", "hadoop-azure"),
        ("/srv/warehouse", None),
        ("./warehouse", None),
        ("gs://bucket/w", None),
    ],
)
def test_jars_of_a_connector_come_with_a_warehouse_that_needs_it(
    warehouse: str, connector: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BFM_CACHE", str(tmp_path))
    (tmp_path / "jars").mkdir()
    for jar in (*DELTA, *(jar for jars in CONNECTORS.values() for jar in jars)):
        (tmp_path / "jars" / jar.file_name).touch()
    names = [Path(path).name for path in spark_jars(warehouse)]
    assert names[: len(DELTA)] == [jar.file_name for jar in DELTA]
    assert (names[len(DELTA)].rsplit("-", 1)[0] if connector else names[len(DELTA) :]) == (connector or [])


def test_the_connector_is_of_the_hadoop_that_pyspark_carries() -> None:
    import pyspark

    (api,) = (Path(pyspark.__file__).parent / "jars").glob("hadoop-client-api-*.jar")
    of_hadoop = {jar.version for jars in CONNECTORS.values() for jar in jars if jar.group == "org.apache.hadoop"}
    assert of_hadoop == {api.stem.removeprefix("hadoop-client-api-")}


def test_one_set_of_variables_is_enough_and_no_secret_gets_into_sparks_settings() -> None:
    assert connector_conf("s3a://bucket/w", AWS) == {
        "spark.hadoop.fs.s3.impl": "org.apache.hadoop.fs.s3a.S3AFileSystem",
        "spark.hadoop.fs.s3a.endpoint.region": "eu-west-1",
    }
    conf = connector_conf("s3://bucket/w", {**AWS, "AWS_ENDPOINT_URL": "http://127.0.0.1:9000"})
    assert conf["spark.hadoop.fs.s3a.endpoint"] == "http://127.0.0.1:9000"
    assert conf["spark.hadoop.fs.s3a.path.style.access"] == "true"
    by_host = {"AWS_ENDPOINT_URL_S3": "https://store", "AWS_VIRTUAL_HOSTED_STYLE_REQUEST": "true"}
    assert connector_conf("s3://bucket/w", by_host)["spark.hadoop.fs.s3a.path.style.access"] == "false"
    assert not any(SECRET in value for value in conf.values())
    assert connector_conf("/srv/warehouse", AWS) == {}
