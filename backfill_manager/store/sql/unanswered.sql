-- request -> (nothing yet): what was asked and has no response, oldest first. The same id may have been sent twice.
SELECT {columns}
FROM {request} r
WHERE NOT EXISTS (SELECT 1 FROM {response} a WHERE a.request_id = r.request_id)
ORDER BY r.requested_at, r.request_id
