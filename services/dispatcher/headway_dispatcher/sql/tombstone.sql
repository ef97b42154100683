-- name: share_lock
-- Block new tombstones until this transaction ends. $1 lock key.
SELECT pg_advisory_xact_lock_shared($1)

-- name: try_share_lock
-- Try to block new tombstones without waiting. $1 lock key.
SELECT pg_try_advisory_xact_lock_shared($1)

-- name: write_tombstones
-- Insert tombstones; returns new ones. $1 prunes as an array of objects, $2 now.
INSERT INTO dispatcher.tombstone (manifest_id, manifest, group_name, reason, pruned_at)
SELECT item.*, $2
FROM jsonb_to_recordset($1) AS item (manifest_id uuid, manifest text, "group" text, reason text)
ORDER BY item.manifest_id
ON CONFLICT DO NOTHING
RETURNING manifest_id

-- name: confirmed
-- Return confirmed tombstones. $1 manifest ids.
SELECT manifest_id, manifest, group_name AS "group", confirmed_at FROM dispatcher.tombstone
WHERE manifest_id = ANY($1::uuid[]) AND confirmed_at IS NOT NULL

-- name: pruned
-- Return manifests that have a tombstone. $1 manifest ids.
SELECT manifest_id FROM dispatcher.tombstone WHERE manifest_id = ANY($1::uuid[])

-- name: waiting
-- Return waiting work of pruned manifests. $1 limit.
SELECT work_queue.id
FROM dispatcher.tombstone
JOIN dispatcher.work_queue USING (manifest_id)
WHERE tombstone.confirmed_at IS NULL AND work_queue.state IN ('queued', 'waiting')
LIMIT $1

-- name: ready
-- Return pruned manifests without unsettled work, the oldest first. $1 limit.
SELECT manifest_id FROM dispatcher.tombstone
WHERE confirmed_at IS NULL
  AND NOT EXISTS (
    SELECT FROM dispatcher.work_queue
    WHERE work_queue.manifest_id = tombstone.manifest_id AND work_queue.state <> 'settled')
ORDER BY pruned_at
LIMIT $1

-- name: lock
-- Lock a tombstone, unless another dispatcher has locked it. $1 manifest id.
SELECT manifest FROM dispatcher.tombstone
WHERE manifest_id = $1 AND confirmed_at IS NULL
FOR UPDATE SKIP LOCKED

-- name: lock_leases
-- Lock leases of runs of a manifest, in a fixed order. $1 manifest id, $2 most runs.
SELECT id FROM dispatcher.lease
WHERE id IN (
    SELECT lease_id FROM dispatcher.metadata WHERE manifest_id = $1
    ORDER BY created_at, run_id
    LIMIT $2)
ORDER BY id
FOR UPDATE

-- name: delete_runs
-- Delete the manifest's runs under these leases. $1 leases, $2 manifest id.
DELETE FROM dispatcher.metadata WHERE lease_id = ANY($1::uuid[]) AND manifest_id = $2

-- name: delete_leases
-- Delete leases without runs of other manifests; returns them. $1 leases.
DELETE FROM dispatcher.lease
WHERE id = ANY($1::uuid[])
  AND NOT EXISTS (SELECT FROM dispatcher.run WHERE run.lease_id = lease.id)
RETURNING id

-- name: delete_inbox
-- Delete the event ids of deleted leases. $1 leases.
DELETE FROM dispatcher.inbox WHERE lease_id = ANY($1::uuid[])

-- name: delete_dead_letters
-- Delete dead letters of a manifest; returns the number. $1 manifest id, $2 limit.
WITH gone AS (
    DELETE FROM dispatcher.dead_letter
    WHERE id IN (SELECT id FROM dispatcher.dead_letter WHERE manifest_id = $1 LIMIT $2)
    RETURNING id
)
SELECT count(*) FROM gone

-- name: delete_work
-- Delete work of a manifest that has no runs left; returns the number. $1 manifest id, $2 limit.
WITH gone AS (
    DELETE FROM dispatcher.work_queue
    WHERE id IN (
        SELECT id FROM dispatcher.work_queue WHERE manifest_id = $1
        ORDER BY id
        LIMIT $2
        FOR UPDATE)
    RETURNING id
)
SELECT count(*) FROM gone

-- name: confirm
-- Confirm that nothing is left of a manifest. $1 manifest id, $2 now.
WITH forgotten AS (DELETE FROM dispatcher.manifest_switch WHERE manifest_id = $1)
UPDATE dispatcher.tombstone SET confirmed_at = $2 WHERE manifest_id = $1
RETURNING manifest_id, manifest, group_name AS "group", confirmed_at
