"""Classes of the JVM by their whole names, without a question to the JVM."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from py4j.java_gateway import JavaClass

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DELTA: Final = "org.apache.spark.sql.delta"


def java_class(spark: SparkSession, name: str) -> Any:
    """`spark._jvm.a.b.C` asks the JVM for each part of the name, and for each that is a package the JVM looks for a class of that
    name in all jars: 0.6 ms of CPU, some sixty times for a small write. A class that is not there fails when it is used."""
    return JavaClass(name, spark._jvm._gateway_client)
