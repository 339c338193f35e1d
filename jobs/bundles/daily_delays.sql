-- One row per day, carrier and airport, of the run's interval. The interval is half-open: its end is not in it.
-- Minutes are kept as sums, so that other tables can add days up without taking means of means.
SELECT
  day,
  carrier,
  origin,
  count(*)                         AS flights,
  count_if(cancelled)              AS cancelled,
  count(dep_delay)                 AS departed,
  count_if(dep_delay > 15)         AS late,
  coalesce(sum(dep_delay), 0)      AS delay_minutes,
  avg(dep_delay)                   AS mean_delay,
  max(dep_delay)                   AS worst_delay,
  count_if(precip > 0)             AS in_rain_or_snow
FROM clean_flights
WHERE time_hour >= :interval_start AND time_hour < :interval_end
GROUP BY day, carrier, origin
