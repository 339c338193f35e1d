"""Makes an archive of the Java classes that Spark and Delta load (class data sharing), if there is none yet: a JVM that maps it
starts with two thirds of the CPU time. A JVM that finds none, or one of another Java or other jars, loads its classes as ever.

    python tests/support/class_archive.py
"""

from __future__ import annotations

import hashlib
import os
import shutil
import sys
import tempfile
from pathlib import Path


def _java_release() -> str:
    """Of the Java that starts: an archive of another one is not used, and Java does not say so."""
    home = os.environ.get("JAVA_HOME")
    java = Path(home, "bin", "java") if home else Path(shutil.which("java") or "java").resolve()
    release = java.parents[1] / "release"
    return hashlib.sha256(release.read_bytes()).hexdigest()[:12] if release.exists() else "unknown"


ARCHIVE = Path(__file__).parents[2] / ".venv" / f"spark-classes-{_java_release()}.jsa"

# JVMs of tests live for seconds, so C2's optimisations cost more than they save. C1's default code cache is 48 MB; the long-lived
# JVM of the session `spark` fills it, and then Java fails to link now and then.
JAVA_OPTIONS = "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m -XX:+UseSerialGC -Xlog:disable"


def make(archive: Path) -> None:
    from backfill_manager.execution.spark.session import build_session

    with tempfile.TemporaryDirectory(dir=archive.parent) as folder:
        made = Path(folder) / archive.name
        os.environ["SPARK_SUBMIT_OPTS"] = f"{JAVA_OPTIONS} -XX:ArchiveClassesAtExit={made}"
        os.environ["SPARK_LAUNCHER_OPTS"] = JAVA_OPTIONS
        spark = build_session(app_name="class archive", master="local[1]", warehouse=f"{folder}/warehouse", pools=[])
        table = f"delta.`{folder}/table`"
        spark.sql(f"CREATE TABLE {table} (id BIGINT, at TIMESTAMP) USING delta")
        spark.range(3).selectExpr("id", "current_timestamp() AS at").createOrReplaceTempView("rows")
        spark.sql(f"INSERT INTO {table} SELECT * FROM rows")
        spark.sql(
            f"MERGE INTO {table} AS t USING rows AS r ON t.id = r.id "
            "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
        )
        spark.table(table).toArrow()
        gateway = spark.sparkContext._gateway.proc  # type: ignore[union-attr]
        spark.stop()
        gateway.stdin.close()  # the JVM ends, and writes the archive
        gateway.wait()
        made.replace(archive)


if __name__ == "__main__":
    if not ARCHIVE.exists():
        sys.stdout = sys.stderr
        make(ARCHIVE)
