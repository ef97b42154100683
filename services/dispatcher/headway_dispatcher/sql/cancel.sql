-- name: runs_named
-- Return the runs among the ids, with their work. $1 ids.
SELECT run_id, work_id, state, finished_at IS NOT NULL AS ended
FROM dispatcher.run
WHERE run_id = ANY($1::uuid[])

-- name: of_group
-- Return unsettled work of a group without a cancel request. $1 group, $2 limit.
SELECT id FROM dispatcher.unsettled
WHERE group_name = $1 AND cancel_requested_at IS NULL
ORDER BY id
LIMIT $2

-- name: of_manifest
-- Return unsettled work of a manifest without a cancel request. $1 manifest id, $2 limit.
SELECT id FROM dispatcher.work_queue
WHERE manifest_id = $1 AND state <> 'settled' AND cancel_requested_at IS NULL
ORDER BY id
LIMIT $2

-- name: waiting_for_slots
-- Return work of dead letters whose retry waits for a slot, of a group or of a manifest. $1 group
-- or null, $2 manifest id or null.
SELECT work_id AS id FROM dispatcher.dead_letter
WHERE (group_name = $1 OR manifest_id = $2) AND retry_requested_at IS NOT NULL
ORDER BY work_id

-- name: lock
-- Lock work to be cancelled, in a fixed order. $1 ids.
SELECT id, round, manifest_id, manifest, group_name, state, outcome, run_id
FROM dispatcher.work_queue
WHERE id = ANY($1::uuid[])
ORDER BY id
FOR UPDATE
