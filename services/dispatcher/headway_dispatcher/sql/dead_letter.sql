-- name: job_of
-- Return the job, manifest and group of a dead letter. $1 dead letter.
SELECT job, manifest_id, group_name FROM dispatcher.dead_letter WHERE id = $1

-- name: chosen
-- Return open letters that match a filter, the oldest first. $1 group, $2 job, $3 manifest, $4
-- fingerprint, $5 code version (null for any), $6 created after, $7 created before, $8 and $9 time
-- and id to begin after (null for the first page), $10 limit.
SELECT id, created_at FROM dispatcher.dead_letter
WHERE state = 'awaiting'
  AND ($1::text IS NULL OR group_name = $1)
  AND ($2::text IS NULL OR job = $2)
  AND ($3::text IS NULL OR manifest = $3)
  AND ($4::text IS NULL OR fingerprint = $4)
  AND ($5::text IS NULL OR code_version = $5)
  AND ($6::timestamptz IS NULL OR created_at >= $6)
  AND created_at < $7
  AND ($8::timestamptz IS NULL OR (created_at, id) > ($8, $9::uuid))
ORDER BY created_at, id
LIMIT $10

-- name: works_of
-- Return the work of letters, and whether its manifest was pruned. $1 dead letters.
SELECT dead_letter.id, dead_letter.work_id, dead_letter.round,
       tombstone.manifest_id IS NOT NULL AS pruned
FROM dispatcher.dead_letter
LEFT JOIN dispatcher.tombstone ON tombstone.manifest_id = dead_letter.manifest_id
WHERE dead_letter.id = ANY($1::uuid[])

-- name: lock_works
-- Lock the work of letters in a fixed order, before the letters. $1 works.
SELECT id FROM dispatcher.work_queue WHERE id = ANY($1::uuid[]) ORDER BY id FOR UPDATE

-- name: lock
-- Lock letters, the oldest first; their work is already locked. Also return the work in the slot of
-- each, and whether its job is retired. $1 ids.
SELECT dead_letter.*, work_queue.slot, work_queue.traceparent, work_queue.state AS work_state,
       EXISTS (SELECT FROM dispatcher.job_limit
               WHERE job_limit.name = dead_letter.job AND job_limit.retired) AS job_retired,
       (SELECT other.id FROM dispatcher.work_queue AS other
        WHERE other.manifest_id = work_queue.manifest_id AND other.slot = work_queue.slot
          AND other.state <> 'settled' AND other.id <> work_queue.id) AS taken_by
FROM dispatcher.dead_letter
JOIN dispatcher.work_queue ON work_queue.id = dead_letter.work_id
WHERE dead_letter.id = ANY($1::uuid[])
ORDER BY dead_letter.created_at, dead_letter.id
FOR UPDATE OF dead_letter

-- name: lock_waiting
-- Lock letters whose slot has become free, the longest waiting first. Skip locked letters, and
-- those whose manifest was pruned or whose job is retired. $1 manifests (null for all), $2 limit.
SELECT dead_letter.id
FROM dispatcher.dead_letter
JOIN dispatcher.work_queue ON work_queue.id = dead_letter.work_id
WHERE dead_letter.retry_requested_at IS NOT NULL
  AND ($1::uuid[] IS NULL OR dead_letter.manifest_id = ANY($1))
  AND NOT EXISTS (SELECT FROM dispatcher.work_queue AS other
                  WHERE other.manifest_id = work_queue.manifest_id
                    AND other.slot = work_queue.slot
                    AND other.state <> 'settled')
  AND NOT EXISTS (SELECT FROM dispatcher.tombstone
                  WHERE tombstone.manifest_id = dead_letter.manifest_id)
  AND NOT EXISTS (SELECT FROM dispatcher.job_limit
                  WHERE job_limit.name = dead_letter.job AND job_limit.retired)
ORDER BY dead_letter.retry_requested_at, dead_letter.id
LIMIT $2
FOR UPDATE OF work_queue, dead_letter SKIP LOCKED

-- name: requeue
-- Queue work in its next round, behind work that has waited longer. A person requested it, so it
-- does not expire, and a disabled manifest does not hold it. Returns its new place. $1 works, $2
-- rounds, $3 whether the input was edited, $4 the edited input, $5 now, $6 trace contexts (null to
-- keep), $7 whether the concurrency key changes, $8 the new key.
UPDATE dispatcher.work_queue
SET state = 'queued', round = item.round, attempts = 0, run_id = NULL, lease_id = NULL,
    outcome = NULL, settled_at = NULL, wait_reason = 'awaiting_gate',
    input = CASE WHEN $3::boolean THEN $4::jsonb ELSE work_queue.input END,
    concurrency_key = CASE WHEN $7::boolean THEN $8::text ELSE work_queue.concurrency_key END,
    rank = work_queue.rank + ($5::timestamptz - work_queue.queued_at),
    queued_at = $5, not_before = $5, start_by = NULL, explicit = true,
    traceparent = coalesce(item.traceparent, work_queue.traceparent)
FROM unnest($1::uuid[], $2::integer[], $6::text[]) AS item (id, round, traceparent)
WHERE work_queue.id = item.id
RETURNING work_queue.id, work_queue.input, work_queue.queued_at, work_queue.not_before,
          work_queue.rank, work_queue.concurrency_key, work_queue.runs, item.traceparent

-- name: resolve
-- Resolve letters. $1 ids, $2 retried or acknowledged, $3 actor, $4 note (null for none), $5 edits
-- (null for none), $6 now.
UPDATE dispatcher.dead_letter
SET state = $2, resolved_at = $6, actor = $3, note = $4, edit = item.edit,
    retry_requested_at = NULL, retry_requested_by = NULL, retry_input = NULL, retry_key = NULL
FROM unnest($1::uuid[], $5::jsonb[]) AS item (id, edit)
WHERE dead_letter.id = item.id

-- name: update_runs
-- Copy late reports of runs to the letters that contain them; a late start may move the end. $1
-- works.
UPDATE dispatcher.dead_letter
SET runs = (
    SELECT jsonb_agg(
        CASE WHEN metadata.run_id IS NULL THEN kept.run
             ELSE kept.run || jsonb_build_object(
                 'worker', metadata.worker, 'host', metadata.host,
                 'started_at', metadata.started_at,
                 'finished_at', metadata.finished_at) END
        ORDER BY kept.place)
    FROM jsonb_array_elements(dead_letter.runs) WITH ORDINALITY AS kept (run, place)
    LEFT JOIN dispatcher.metadata ON metadata.run_id = (kept.run ->> 'run')::uuid)
WHERE work_id = ANY($1::uuid[]) AND runs <> '[]'

-- name: store_order
-- Store a retry that waits for its slot. $1 id, $2 actor, $3 edited input, $4 edit (null for none),
-- $5 now, $6 concurrency key of the edited input, as an array (null to keep the key).
UPDATE dispatcher.dead_letter
SET retry_requested_at = $5, retry_requested_by = $2, retry_input = $3, edit = $4, retry_key = $6
WHERE id = $1

-- name: purge
-- Delete letters that were resolved long ago and whose work is settled. $1 resolved before, $2
-- limit.
DELETE FROM dispatcher.dead_letter
WHERE id IN (
    SELECT dead_letter.id
    FROM dispatcher.dead_letter
    JOIN dispatcher.work_queue ON work_queue.id = dead_letter.work_id
    WHERE dead_letter.state <> 'awaiting' AND dead_letter.resolved_at < $1
      AND work_queue.state = 'settled'
    ORDER BY dead_letter.resolved_at
    LIMIT $2
    FOR UPDATE OF dead_letter SKIP LOCKED)

-- name: withdraw
-- Withdraw retries that wait for a slot; returns their work. $1 works.
UPDATE dispatcher.dead_letter
SET retry_requested_at = NULL, retry_requested_by = NULL, retry_input = NULL, retry_key = NULL,
    edit = NULL
WHERE work_id = ANY($1::uuid[]) AND retry_requested_at IS NOT NULL
RETURNING work_id
