-- name: span
-- Return the events of a time span by number. $1 above this number, $2 since, $3 until (null for no
-- bound), $4 limit.
SELECT id AS number, event_id AS id, type, subject, source, occurred_at, recorded_at, accepted,
       refusal, work_id AS work, run_id AS run, lease_id AS lease, data
FROM dispatcher.history
WHERE history.id > $1
  AND ($2::timestamptz IS NULL OR recorded_at >= $2)
  AND ($3::timestamptz IS NULL OR recorded_at < $3)
ORDER BY history.id
LIMIT $4
