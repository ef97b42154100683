-- name: latest
-- The latest runs of a manifest that ended, the newest first. $1 manifest, $2 limit.
SELECT run_id, state, attempt, created_at, started_at,
       date_part('epoch', finished_at - started_at) AS took_seconds
FROM dispatcher.metadata
WHERE finished_at IS NOT NULL AND manifest_id = $1
ORDER BY created_at DESC, run_id DESC
LIMIT $2
