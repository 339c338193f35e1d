-- A duration -> its intervals from the first start on, in epoch micros. Exact elapsed time, so arithmetic is all there is.
-- In chunks, so that no single array holds them all; text and one partition for the reasons given in cron_firings.sql.
WITH grid AS (
  SELECT grid.*
  FROM range(0, 1, 1, 1)
  LATERAL VIEW explode(array(from_json(:grid, 'struct<first: bigint, step: bigint, count: bigint>'))) AS grid
),
chunks AS (
  SELECT grid.*, chunk * 65536 AS low, least((chunk + 1) * 65536, count) - 1 AS high
  FROM grid LATERAL VIEW explode(sequence(0L, (count - 1) DIV 65536)) AS chunk
  WHERE count > 0
)
SELECT
  n AS place,
  first + step * n AS logical_date,
  first + step * n AS interval_start,
  first + step * (n + 1) AS interval_end,
  CAST(NULL AS STRING) AS partition_key
FROM chunks LATERAL VIEW explode(sequence(low, high)) AS n
