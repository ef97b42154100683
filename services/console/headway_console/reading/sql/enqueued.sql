-- name: page
-- Enqueued work that waits to be queued or was refused, the oldest first. $1 only the refused,
-- $2 and $3 after this time and id, $4 how many.
SELECT work_id, job, key, group_name, enqueued_by, enqueued_at, state, reason
FROM scheduler.enqueued
WHERE (state = 'refused' OR (state = 'waiting' AND NOT $1))
  AND ($2::timestamptz IS NULL OR (enqueued_at, work_id) > ($2, $3::uuid))
ORDER BY enqueued_at, work_id
LIMIT $4
