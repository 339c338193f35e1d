-- The runs of a DAG that has none: an empty relation that the optimiser sees through, so that the join falls away.
SELECT
  CAST(NULL AS BIGINT) AS logical_date,
  CAST(NULL AS STRING) AS partition_key,
  CAST(NULL AS STRING) AS state,
  CAST(NULL AS BOOLEAN) AS is_older
WHERE false
