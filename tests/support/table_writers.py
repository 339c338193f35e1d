"""Which runs have written a table, by the user metadata of its commits."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def runs_that_wrote(spark: SparkSession, table: Path) -> list[str]:
    """The run of each write, sorted: as often as it has written. A commit of several writes names all of them."""
    marks = spark.sql(f"DESCRIBE HISTORY delta.`{table}`").where("userMetadata IS NOT NULL").collect()
    about = [json.loads(row["userMetadata"]) for row in marks]
    return sorted(write["run"] for one in about for write in one.get("writes", [one]))
