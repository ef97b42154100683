-- name: failures
-- Dead letters grouped by failure, the latest first. $1 state, $2 group, $3 job, $4 manifest (each
-- null for any), $5 and $6 time and failure of the cursor, $7 limit.
SELECT counted.*, sample.id AS sample, sample.job AS sample_job, sample.manifest AS sample_manifest,
       sample.failure ->> 'kind' AS failure_kind,
       left(sample.failure ->> 'message', 500) AS failure_message
FROM (
    SELECT fingerprint, code_version, fingerprint || '@' || code_version AS id,
           count(*) AS letters, min(created_at) AS first_at, max(created_at) AS last_at,
           count(*) FILTER (WHERE retry_requested_at IS NOT NULL) AS asked,
           array_agg(DISTINCT job) AS jobs, array_agg(DISTINCT group_name) AS groups
    FROM dispatcher.dead_letter
    WHERE ($1::text IS NULL OR state = $1)
      AND ($2::text IS NULL OR group_name = $2)
      AND ($3::text IS NULL OR job = $3)
      AND ($4::text IS NULL OR manifest = $4)
    GROUP BY fingerprint, code_version
    HAVING $5::timestamptz IS NULL
        OR (max(created_at), fingerprint || '@' || code_version) < ($5, $6::text)
    ORDER BY last_at DESC, id DESC
    LIMIT $7
) AS counted
CROSS JOIN LATERAL (
    SELECT dead_letter.id, dead_letter.job, dead_letter.manifest, dead_letter.failure
    FROM dispatcher.dead_letter
    WHERE dead_letter.fingerprint = counted.fingerprint
      AND dead_letter.code_version = counted.code_version
      AND dead_letter.created_at = counted.last_at
      AND ($1::text IS NULL OR dead_letter.state = $1)
      AND ($2::text IS NULL OR dead_letter.group_name = $2)
      AND ($3::text IS NULL OR dead_letter.job = $3)
      AND ($4::text IS NULL OR dead_letter.manifest = $4)
    ORDER BY dead_letter.id
    LIMIT 1
) AS sample
ORDER BY counted.last_at DESC, counted.id DESC

-- name: page
-- Dead letters, the newest first, with the work that occupies the slot of a requested retry. $1
-- group, $2 job, $3 manifest, $4 fingerprint, $5 code version, $6 state, $7 created since, $8
-- created before (each null for any), $9 and $10 time and id of the cursor, $11 limit.
SELECT dead_letter.id, dead_letter.work_id, dead_letter.round, dead_letter.manifest,
       dead_letter.group_name, dead_letter.job, dead_letter.reason, dead_letter.attempts,
       dead_letter.failure ->> 'kind' AS failure_kind,
       left(dead_letter.failure ->> 'message', 500) AS failure_message,
       dead_letter.fingerprint, dead_letter.code_version, dead_letter.state,
       dead_letter.created_at, dead_letter.resolved_at, dead_letter.actor, dead_letter.note,
       dead_letter.retry_requested_at AS retry_asked_at,
       dead_letter.retry_requested_by AS retry_asked_by,
       CASE WHEN dead_letter.retry_requested_at IS NOT NULL THEN (
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
-- One dead letter in full, by its id, or the latest of a piece of work. $1 id.
SELECT dead_letter.*, dead_letter.failure ->> 'kind' AS failure_kind,
       dead_letter.failure ->> 'message' AS failure_message, work_queue.cause,
       dead_letter.retry_requested_at AS retry_asked_at,
       dead_letter.retry_requested_by AS retry_asked_by,
       CASE WHEN dead_letter.retry_requested_at IS NOT NULL THEN (
           SELECT other.id FROM dispatcher.work_queue AS other
           WHERE other.manifest_id = work_queue.manifest_id AND other.slot = work_queue.slot
             AND other.state <> 'settled') END AS waits_for
FROM dispatcher.dead_letter
JOIN dispatcher.work_queue ON work_queue.id = dead_letter.work_id
WHERE dead_letter.id = $1 OR dead_letter.work_id = $1
ORDER BY dead_letter.created_at DESC
LIMIT 1

-- name: manifest_of
-- The manifest of a dead letter; null for enqueued work. $1 dead letter.
SELECT manifest_id FROM dispatcher.dead_letter WHERE id = $1

-- name: canary
-- One canary. $1 id.
SELECT id, fingerprint, actor, began_at, ended_at, awaiting, state, reason, step, steps
FROM dispatcher.canary WHERE id = $1

-- name: latest_canary
-- The latest canary of a failure. $1 fingerprint.
SELECT id, fingerprint, actor, began_at, ended_at, awaiting, state, reason, step, steps
FROM dispatcher.canary WHERE fingerprint = $1 ORDER BY began_at DESC LIMIT 1
