-- Items of a DAG none of whose runs stands for several dates: the columns of batch_coverage.sql with nothing in them, which the optimiser
-- folds away.
SELECT *,
  CAST(NULL AS BOOLEAN) AS cover_is_live,
  CAST(NULL AS BOOLEAN) AS cover_has_success,
  CAST(NULL AS BOOLEAN) AS cover_is_fresh
FROM asked
