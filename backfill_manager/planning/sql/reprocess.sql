-- Intervals, dates or partitions -> the items of a backfill: judged against the runs that exist already (`reprocess`, in flight,
-- not complete yet), numbered in the order of making. manager/decisions/backfill_runs.py judges once more when a run is made, as others may
-- have made one meanwhile.
--
-- wanted: place (what the order goes by), logical_date, interval_start, interval_end (epoch micros), partition_key, and
-- cover_is_live, cover_has_success, cover_is_fresh of a run that began earlier and stands for this date too (batch_coverage.sql).
-- runs: logical_date (epoch micros), partition_key, state, is_older (made by an earlier version than the DAG's current one) of
-- the DAG's runs that are not overridden.
-- An item is judged by the run on its own date, else by the one that covers it; one that is live is in flight either way.
-- `missing` has no item for what has succeeded, `stale` and `outdated` none for what hasn't or what the current version made (to
-- `outdated` that is what is up to date: gap_kinds.py).
-- :complete_until is the present, in epoch micros: an interval that ends later is not complete. Empty: all are taken.
-- Both sides are one partition: neither the join nor the numbering moves a row, and the whole plan is one Spark job.
WITH known AS (
  SELECT
    logical_date,
    partition_key,
    bool_or(state IN ('queued', 'running')) AS is_live,
    bool_or(state = 'success') AS has_success,
    bool_or(state = 'success' AND NOT is_older) AS is_fresh
  FROM runs
  GROUP BY logical_date, partition_key
),
met AS (
  SELECT /*+ SHUFFLE_HASH(known) */
    wanted.place,
    wanted.logical_date,
    wanted.interval_start,
    wanted.interval_end,
    wanted.partition_key,
    known.is_live IS NOT NULL OR cover_is_live IS NOT NULL AS exists_already,
    coalesce(known.is_live, false) OR coalesce(cover_is_live, false) AS is_live,
    coalesce(known.has_success, cover_has_success, false) AS has_success,
    coalesce(known.is_fresh, cover_is_fresh, false) AS is_fresh
  FROM wanted
  LEFT JOIN known ON wanted.logical_date <=> known.logical_date AND wanted.partition_key <=> known.partition_key
),
judged AS (
  SELECT *,
    CASE
      WHEN is_live THEN 'in flight'
      WHEN exists_already AND NOT (:reprocess = 'completed' OR (:reprocess IN ('failed', 'failed_tasks') AND NOT has_success)) THEN 'already exists'
      WHEN interval_end > CAST(nullif(:complete_until, '') AS BIGINT) THEN 'not complete yet'
    END AS reason
  FROM met
  WHERE CASE :kind
    WHEN 'missing' THEN is_live OR NOT has_success
    WHEN 'stale' THEN is_live OR (has_success AND NOT is_fresh)
    WHEN 'outdated' THEN is_live OR (has_success AND NOT is_fresh)
    ELSE true END
)
SELECT
  CAST(row_number() OVER (ORDER BY IF(:run_backwards = 'true', -place, place)) AS BIGINT) AS ordinal,
  logical_date,
  interval_start,
  interval_end,
  partition_key,
  IF(reason IS NULL, 'pending', 'skipped') AS state,
  reason,
  coalesce(reason = 'already exists', false) AND NOT has_success AS has_not_succeeded
FROM judged
