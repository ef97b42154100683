-- name: span
-- Return the events of a time span by number. $1 above this number, $2 since, $3 until (null for no
-- bound), $4 limit.
SELECT id, event_id, type, subject, source, occurred_at, recorded_at, accepted, refusal, work_id,
       run_id, lease_id, data
FROM dispatcher.history
WHERE id > $1
  AND ($2::timestamptz IS NULL OR recorded_at >= $2)
  AND ($3::timestamptz IS NULL OR recorded_at < $3)
ORDER BY id
LIMIT $4
