-- A cron expression as five sets, and a zone as windows -> the intervals between consecutive firings, in epoch micros.
--
-- Each window is a stretch of wall-clock readings with one offset (dags/schedule/timezones.py): its days are a sequence, the days that match
-- the calendar sets are crossed with the times of the day, and a reading becomes an instant by subtraction. No join and no
-- shuffle: range(0, 1, 1, 1) is one partition, and everything stays in it. Values come as text because text, unlike a number,
-- is not compiled into the generated code, so that the next backfill finds that code warm.
-- Two readings on one instant are one firing; the last firing only ends the interval before it.
WITH windows AS (
  SELECT window.*
  FROM range(0, 1, 1, 1)
  LATERAL VIEW explode(from_json(
    :windows,
    'array<struct<first_day: bigint, until_day: bigint, local_from: bigint, local_until: bigint, zone_offset: bigint>>'
  )) AS window
),
days AS (
  SELECT windows.*, day, date_add(DATE'1970-01-01', CAST(day AS INT)) AS on_date
  FROM windows LATERAL VIEW explode(sequence(first_day, until_day)) AS day
  WHERE NOT array_contains(split(:excluded, ' '), CAST(day AS STRING))
),
calendar AS (
  SELECT *,
    day(on_date) AS day_of_month,
    day(last_day(on_date)) AS length_of_month,
    dayofweek(on_date) - 1 AS weekday
  FROM days
  WHERE array_contains(split(:months, ' '), CAST(month(on_date) AS STRING))
),
-- :nearest_to is 15 for `15W`, else 0: the day itself, or the Friday or Monday beside it in the same month
targets AS (
  SELECT *,
    least(CAST(:nearest_to AS INT), length_of_month) AS target,
    pmod(weekday + least(CAST(:nearest_to AS INT), length_of_month) - day_of_month, 7) AS target_weekday
  FROM calendar
),
judged AS (
  SELECT *,
    CASE WHEN :nearest_to <> '0' THEN
      day_of_month = target + CASE target_weekday
        WHEN 6 THEN IF(target > 1, -1, 2)
        WHEN 0 THEN IF(target < length_of_month, 1, -2)
        ELSE 0 END
    ELSE
      array_contains(split(:month_days, ' '), CAST(day_of_month AS STRING))
      OR (:last_day = 'true' AND day_of_month = length_of_month)
    END AS in_month,
    array_contains(split(:weekdays, ' '), CAST(weekday AS STRING))
    OR array_contains(split(:nth_weekdays, ' '), concat(weekday, '#', (day_of_month + 6) DIV 7))
    OR (day_of_month > length_of_month - 7 AND array_contains(split(:nth_weekdays, ' '), concat(weekday, '#-1'))) AS in_week
  FROM targets
),
readings AS (
  SELECT day * 86400 + CAST(minute AS BIGINT) * 60 AS reading, local_from, local_until, zone_offset
  FROM judged LATERAL VIEW explode(split(:times, ' ')) AS minute
  WHERE CASE :day_rule
    WHEN 'any' THEN true
    WHEN 'month' THEN in_month
    WHEN 'week' THEN in_week
    WHEN 'either' THEN in_month OR in_week
    ELSE in_month AND in_week END
),
firings AS (
  SELECT (reading - zone_offset) * 1000000 AS instant
  FROM readings
  WHERE reading >= local_from AND reading < local_until
),
bounded AS (
  SELECT instant AS interval_start, lead(instant) OVER (ORDER BY instant) AS interval_end
  FROM firings
)
SELECT interval_start AS place, interval_start AS logical_date, interval_start, interval_end, CAST(NULL AS STRING) AS partition_key
FROM bounded
WHERE interval_end > interval_start
