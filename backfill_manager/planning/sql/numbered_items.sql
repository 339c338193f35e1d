-- Intervals, dates or partitions -> items: numbered in the order of making, judged against the runs that exist already.
--
-- {wanted}: place (what the order goes by), logical_date, interval_start, interval_end (epoch micros), partition_key.
-- {runs}: logical_date (epoch micros), partition_key, state of the DAG's runs that are not overridden.
-- Both sides are one partition: neither the join nor the numbering moves a row, and the whole plan is one Spark job.
WITH known AS (
  SELECT
    logical_date,
    partition_key,
    bool_or(state IN ('queued', 'running')) AS is_live,
    bool_or(state = 'success') AS has_success
  FROM {runs}
  GROUP BY logical_date, partition_key
),
met AS (
  SELECT /*+ SHUFFLE_HASH(known) */
    wanted.*,
    CASE
      WHEN known.is_live IS NULL THEN NULL
      WHEN known.is_live THEN 'in flight'
      WHEN :reprocess = 'completed' OR (:reprocess = 'failed' AND NOT known.has_success) THEN NULL
      ELSE 'already exists'
    END AS reason
  FROM {wanted} AS wanted
  LEFT JOIN known ON wanted.logical_date <=> known.logical_date AND wanted.partition_key <=> known.partition_key
)
SELECT
  CAST(row_number() OVER (ORDER BY IF(:run_backwards = 'true', -place, place)) AS BIGINT) AS ordinal,
  logical_date,
  interval_start,
  interval_end,
  partition_key,
  IF(reason IS NULL, 'pending', 'skipped') AS state,
  reason
FROM met
