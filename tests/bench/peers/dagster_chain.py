"""For Dagster: three no-op ops, one after another, each in a process of its own, as its default is."""

import dagster as dg


@dg.op
def extract() -> int:
    return 1


@dg.op
def transform(number: int) -> int:
    return number + 1


@dg.op
def load(number: int) -> int:
    return number + 1


@dg.job(partitions_def=dg.DailyPartitionsDefinition(start_date="2024-01-01", end_date="2025-01-01"))
def chain():
    load(transform(extract()))


defs = dg.Definitions(jobs=[chain])
