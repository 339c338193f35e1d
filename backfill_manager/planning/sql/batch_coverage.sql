-- Items beside the runs that stand for several dates -> items with what is known of the run that covers each, if any.
--
-- asked: as reprocess.sql tells. covers: stretches that don't overlap: covers_from, covers_until (epoch micros, half-open)
-- and what holds of every date in them: cover_is_live, cover_has_success, cover_is_fresh.
-- One walk in the order of time, where each item looks back at the stretch that began last: no join by range. COALESCE because
-- a union of two partitions would be shuffled into one.
WITH along AS (
  SELECT *, logical_date AS at, 1 AS turn, CAST(NULL AS STRUCT<
    covers_until: BIGINT, cover_is_live: BOOLEAN, cover_has_success: BOOLEAN, cover_is_fresh: BOOLEAN
  >) AS cover
  FROM asked
  UNION ALL
  SELECT
    CAST(NULL AS BIGINT), CAST(NULL AS BIGINT), CAST(NULL AS BIGINT), CAST(NULL AS BIGINT), CAST(NULL AS STRING),
    covers_from, 0, struct(covers_until, cover_is_live, cover_has_success, cover_is_fresh)
  FROM covers
),
one AS (SELECT /*+ COALESCE(1) */ * FROM along),
looked_back AS (
  SELECT place, logical_date, interval_start, interval_end, partition_key,
    last_value(cover) IGNORE NULLS OVER (ORDER BY at, turn ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW) AS cover
  FROM one
)
SELECT place, logical_date, interval_start, interval_end, partition_key,
  IF(cover.covers_until > logical_date, cover.cover_is_live, NULL) AS cover_is_live,
  IF(cover.covers_until > logical_date, cover.cover_has_success, NULL) AS cover_has_success,
  IF(cover.covers_until > logical_date, cover.cover_is_fresh, NULL) AS cover_is_fresh
FROM looked_back
WHERE place IS NOT NULL
