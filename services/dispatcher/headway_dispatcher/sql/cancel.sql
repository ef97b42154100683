-- name: runs_named
-- Those of the ids that are runs, and what they are of. $1 ids.
SELECT run_id, work_id, state, finished_at IS NOT NULL AS ended
FROM dispatcher.metadata
WHERE run_id = ANY($1::uuid[])

-- name: of_group
-- Work of a group that could still end early. $1 group, $2 how many.
SELECT id FROM dispatcher.work_queue
WHERE group_name = $1 AND state <> 'settled' AND cancel_requested_at IS NULL
ORDER BY id
LIMIT $2

-- name: of_manifest
-- Work of a manifest that could still end early. $1 manifest id, $2 how many.
SELECT id FROM dispatcher.work_queue
WHERE manifest_id = $1 AND state <> 'settled' AND cancel_requested_at IS NULL
ORDER BY id
LIMIT $2

-- name: waiting_for_slots
-- Work of dead letters that are to be retried once their slot is free: of a group or of a manifest.
-- $1 group or null, $2 manifest id or null.
SELECT work_id AS id FROM dispatcher.dead_letter
WHERE (group_name = $1 OR manifest_id = $2) AND retry_asked_at IS NOT NULL
ORDER BY work_id

-- name: lock
-- Work that is to end early, locked in a fixed order, as it stands before. $1 ids.
SELECT id, round, manifest_id, manifest, group_name, state, outcome, run_id
FROM dispatcher.work_queue
WHERE id = ANY($1::uuid[])
ORDER BY id
FOR UPDATE
