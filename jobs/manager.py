"""The manager as a Spark application, for spark-submit and for a Databricks job; arguments as of `bfm manager start`.

./spark-submit.sh                                        here, with all that it needs
spark-submit --jars ... jobs/manager.py --state s3://... anywhere; jobs/spark_driver.py shows what must be given
a Databricks job with this file as its Python task       one run at a time, restarted when it fails
"""

from __future__ import annotations

import os
import sys
from pathlib import Path


def main(arguments: list[str]) -> int:
    from backfill_manager.cli import main as bfm
    from backfill_manager.manager.services.parent_watchdog import end_with_parent

    if "PYSPARK_GATEWAY_PORT" in os.environ and "DATABRICKS_RUNTIME_VERSION" not in os.environ:
        submitter = os.environ.get("BFM_SUBMITTER_PID")  # jobs/spark_driver.py, which signals us by what we write there
        end_with_parent(also_with=int(submitter) if submitter else None)
        if pid_file := os.environ.get("BFM_DRIVER_PID_FILE"):
            Path(pid_file).write_text(str(os.getpid()), encoding="ascii")
    return bfm(["manager", "start", *arguments])


if __name__ == "__main__":
    code = main(sys.argv[1:])
    if code:  # a Databricks task counts as failed by any SystemExit, of 0 too
        sys.exit(code)
