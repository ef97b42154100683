-- name: plan_anew
-- Plan by what a question asks for: one plan for all questions could use no index.
SET LOCAL plan_cache_mode = force_custom_plan

-- name: letters
-- A page of dead letters, the newest first, and who is in the slot that one waits for.
-- $1 group, $2 job, $3 manifest, $4 fingerprint, $5 code version, $6 state, $7 created after,
-- $8 created before (null where any will do), $9 and $10 after this time and id, $11 how many.
SELECT dead_letter.id, dead_letter.work_id, dead_letter.round, dead_letter.manifest,
       dead_letter.group_name, dead_letter.job, dead_letter.reason, dead_letter.attempts,
       dead_letter.failure ->> 'kind' AS failure_kind,
       left(dead_letter.failure ->> 'message', 500) AS failure_message,
       dead_letter.fingerprint, dead_letter.code_version, dead_letter.state,
       dead_letter.created_at, dead_letter.resolved_at, dead_letter.actor, dead_letter.note,
       dead_letter.retry_asked_at, dead_letter.retry_asked_by,
       CASE WHEN dead_letter.retry_asked_at IS NOT NULL THEN (
           SELECT other.id FROM dispatcher.work_queue AS own
           JOIN dispatcher.work_queue AS other
               ON other.manifest_id = own.manifest_id AND other.slot = own.slot
           WHERE own.id = dead_letter.work_id AND other.state <> 'settled') END AS waits_for
FROM dispatcher.dead_letter
WHERE ($1::text IS NULL OR group_name = $1)
  AND ($2::text IS NULL OR job = $2)
  AND ($3::text IS NULL OR manifest = $3)
  AND ($4::text IS NULL OR fingerprint = $4)
  AND ($5::text IS NULL OR code_version = $5)
  AND ($6::text IS NULL OR state = $6)
  AND ($7::timestamptz IS NULL OR created_at >= $7)
  AND ($8::timestamptz IS NULL OR created_at < $8)
  AND ($9::timestamptz IS NULL OR (created_at, id) < ($9, $10::uuid))
ORDER BY created_at DESC, id DESC
LIMIT $11

-- name: letter
-- One dead letter in full, by its id or the latest of a piece of work. $1 id.
SELECT dead_letter.*, dead_letter.failure ->> 'kind' AS failure_kind,
       dead_letter.failure ->> 'message' AS failure_message, work_queue.cause,
       CASE WHEN dead_letter.retry_asked_at IS NOT NULL THEN (
           SELECT other.id FROM dispatcher.work_queue AS other
           WHERE other.manifest_id = work_queue.manifest_id AND other.slot = work_queue.slot
             AND other.state <> 'settled') END AS waits_for
FROM dispatcher.dead_letter
JOIN dispatcher.work_queue ON work_queue.id = dead_letter.work_id
WHERE dead_letter.id = $1 OR dead_letter.work_id = $1
ORDER BY dead_letter.created_at DESC
LIMIT 1

-- name: unsettled_works
-- A page of work that is not settled, the newest first. $1 state, $2 group, $3 job, $4 manifest,
-- $5 why it waits (null where any will do), $6 and $7 after this time and id, $8 how many.
SELECT work_queue.*, waiting.reason AS waits_for
FROM dispatcher.work_queue
LEFT JOIN dispatcher.waiting ON waiting.id = work_queue.id
WHERE work_queue.state <> 'settled'
  AND ($1::text IS NULL OR work_queue.state = $1)
  AND ($2::text IS NULL OR work_queue.group_name = $2)
  AND ($3::text IS NULL OR work_queue.job = $3)
  AND ($4::uuid IS NULL OR work_queue.manifest_id = $4)
  AND ($5::text IS NULL OR waiting.reason = $5)
  AND ($6::timestamptz IS NULL OR (work_queue.queued_at, work_queue.id) < ($6, $7::uuid))
ORDER BY work_queue.queued_at DESC, work_queue.id DESC
LIMIT $8

-- name: settled_works
-- A page of work that is settled, the latest first. $1 group, $2 job, $3 manifest, $4 outcome
-- (null where any will do), $5 and $6 after this time and id, $7 how many.
SELECT *, NULL AS waits_for FROM dispatcher.work_queue
WHERE state = 'settled'
  AND ($1::text IS NULL OR group_name = $1)
  AND ($2::text IS NULL OR job = $2)
  AND ($3::uuid IS NULL OR manifest_id = $3)
  AND ($4::text IS NULL OR outcome = $4)
  AND ($5::timestamptz IS NULL OR (settled_at, id) < ($5, $6::uuid))
ORDER BY settled_at DESC, id DESC
LIMIT $7

-- name: work
-- One piece of work, by its id or by that of a run of it. $1 id.
SELECT work_queue.*, waiting.reason AS waits_for
FROM dispatcher.work_queue
LEFT JOIN dispatcher.waiting ON waiting.id = work_queue.id
WHERE work_queue.id = $1
   OR work_queue.id = (SELECT work_id FROM dispatcher.metadata WHERE run_id = $1)

-- name: letters_of
-- The dead letters of a piece of work, the latest first. $1 work.
SELECT id FROM dispatcher.dead_letter WHERE work_id = $1 ORDER BY round DESC

-- name: runs
-- A page of runs, the newest first. $1 state, $2 group, $3 job, $4 manifest, $5 work, $6 worker
-- (null where any will do), $7 and $8 after this time and id, $9 how many, $10 created since,
-- $11 created before (null where there is no bound).
SELECT metadata.*, work_queue.manifest, work_queue.input,
       metadata.failure ->> 'kind' AS failure_kind,
       left(metadata.failure ->> 'message', 500) AS failure_message
FROM dispatcher.metadata
JOIN dispatcher.work_queue ON work_queue.id = metadata.work_id
WHERE ($1::text IS NULL OR metadata.state = $1)
  AND ($2::text IS NULL OR metadata.group_name = $2)
  AND ($3::text IS NULL OR metadata.job = $3)
  AND ($4::uuid IS NULL OR metadata.manifest_id = $4)
  AND ($5::uuid IS NULL OR metadata.work_id = $5)
  AND ($6::text IS NULL OR metadata.worker = $6)
  AND ($7::timestamptz IS NULL OR (metadata.created_at, metadata.run_id) < ($7, $8::uuid))
  AND ($10::timestamptz IS NULL OR metadata.created_at >= $10)
  AND ($11::timestamptz IS NULL OR metadata.created_at < $11)
ORDER BY metadata.created_at DESC, metadata.run_id DESC
LIMIT $9

-- name: run
-- One run in full. $1 run.
SELECT metadata.*, work_queue.manifest, work_queue.input,
       metadata.failure ->> 'kind' AS failure_kind,
       metadata.failure ->> 'message' AS failure_message
FROM dispatcher.metadata
JOIN dispatcher.work_queue ON work_queue.id = metadata.work_id
WHERE metadata.run_id = $1

-- name: run_log
-- The lines that a run has logged, in their order. $1 run.
SELECT number, at, level, message, fields FROM dispatcher.run_log
WHERE run_id = $1
ORDER BY number

-- name: workers
-- A page of workers in the order of their names, with the runs that each has claimed. $1 heard
-- since, to be alive, $2 after this name, $3 how many.
SELECT worker.*, worker.last_heard_at > $1 AS alive,
       ARRAY(SELECT metadata.run_id
             FROM dispatcher.lease
             JOIN dispatcher.metadata ON metadata.lease_id = lease.id
             WHERE lease.ended_at IS NULL AND lease.claimed_by = worker.name
               AND lease.nonce = worker.nonce AND metadata.finished_at IS NULL
             ORDER BY metadata.created_at) AS runs
FROM dispatcher.worker
WHERE worker.name > $2
ORDER BY worker.name
LIMIT $3

-- name: group_limits
-- The limits of groups, in the order of their names. $1 group (null for all).
SELECT name, max_active, enabled FROM dispatcher.group_limit
WHERE $1::text IS NULL OR name = $1
ORDER BY name

-- name: active_by_group
-- Runs that hold a slot. $1 group (null for all).
SELECT group_name, state, count(*) AS runs
FROM dispatcher.metadata
WHERE state IN ('pending', 'in_progress') AND ($1::text IS NULL OR group_name = $1)
GROUP BY group_name, state

-- name: waiting_by_group
-- What waits, and why. $1 group (null for all).
SELECT group_name, reason, count(*) AS works
FROM dispatcher.waiting
WHERE $1::text IS NULL OR group_name = $1
GROUP BY group_name, reason
ORDER BY group_name, reason

-- name: letters_by_group
-- Dead letters that await somebody. $1 group (null for all).
SELECT group_name, count(*) AS letters
FROM dispatcher.dead_letter
WHERE state = 'awaiting' AND ($1::text IS NULL OR group_name = $1)
GROUP BY group_name
