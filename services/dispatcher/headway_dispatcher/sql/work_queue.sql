-- name: now
-- The time of every decision: PostgreSQL's, read after the locks.
SELECT clock_timestamp()

-- name: know_groups
-- Give every group a row, with no limits until they are told. $1 names.
INSERT INTO dispatcher.group_limit (name)
SELECT DISTINCT unnest($1::text[]) ORDER BY 1
ON CONFLICT DO NOTHING

-- name: apply_group
-- The limits of groups; an older version changes nothing. $1 names, $2 max active,
-- $3 priorities, $4 enabled, $5 versions.
INSERT INTO dispatcher.group_limit AS known (name, max_active, priority, enabled, version)
SELECT told.* FROM unnest($1::text[], $2::integer[], $3::smallint[], $4::boolean[], $5::bigint[])
    AS told (name, max_active, priority, enabled, version)
ORDER BY told.name
ON CONFLICT (name) DO UPDATE
SET max_active = excluded.max_active,
    priority = excluded.priority,
    enabled = excluded.enabled,
    version = excluded.version
WHERE excluded.version > known.version

-- name: take_in
-- Work that is new, queued or (if its manifest's slot is taken) settled as coalesced; returns
-- the ids of what was really taken in. What is known by its id, or finds its slot taken, is
-- left out. $1 the work as an array of objects, $2 now, $3 queued or settled.
INSERT INTO dispatcher.work_queue
    (id, round, manifest_id, manifest, slot, group_name, job, input, input_schema, cause, due_at,
     queued_at, priority, rank, not_before, retry, timeout_seconds, cancel_grace_seconds,
     on_lost_contact, state, wait_reason, outcome, settled_at, traceparent, received_at)
SELECT work.work, work.round, work.manifest_id, work.manifest, work.slot, work."group", work.job,
       work.input, work.input_schema, work.cause, work.due_at, work.queued_at, work.priority,
       work.rank, coalesce(work.not_before, work.queued_at), work.retry, work.timeout_seconds,
       work.cancel_grace_seconds, work.on_lost_contact, $3::text,
       CASE WHEN $3 = 'queued' THEN 'awaiting_gate' END,
       CASE WHEN $3 = 'settled' THEN 'coalesced' END,
       CASE WHEN $3 = 'settled' THEN $2::timestamptz END, work.traceparent, $2
FROM jsonb_to_recordset($1) AS work (
    work uuid, round integer, manifest_id uuid, manifest text, slot integer, "group" text,
    job text, input jsonb, input_schema text, cause text, due_at timestamptz,
    queued_at timestamptz, priority smallint, rank timestamptz, not_before timestamptz,
    retry jsonb, timeout_seconds double precision, cancel_grace_seconds double precision,
    on_lost_contact text, traceparent text)
ORDER BY work.work
ON CONFLICT DO NOTHING
RETURNING id

-- name: known
-- Which of these are here already. $1 ids.
SELECT id FROM dispatcher.work_queue WHERE id = ANY($1::uuid[])

-- name: lock
-- The work of ended runs, locked in a fixed order. $1 ids.
SELECT id, round, manifest_id, manifest, group_name, job, input, retry, state, runs, attempts,
       run_id, traceparent
FROM dispatcher.work_queue
WHERE id = ANY($1::uuid[])
ORDER BY id
FOR UPDATE

-- name: settle
-- Work that came to its end. $1 ids, $2 outcomes, $3 counted attempts, $4 now.
UPDATE dispatcher.work_queue
SET state = 'settled', outcome = told.outcome, attempts = told.attempts, settled_at = $4,
    wait_reason = NULL
FROM unnest($1::uuid[], $2::text[], $3::integer[]) AS told (id, outcome, attempts)
WHERE work_queue.id = told.id

-- name: retry
-- Work that runs again. $1 ids, $2 not before, $3 reasons, $4 counted attempts.
UPDATE dispatcher.work_queue
SET state = 'waiting', not_before = told.not_before, wait_reason = told.reason,
    attempts = told.attempts
FROM unnest($1::uuid[], $2::timestamptz[], $3::text[], $4::integer[])
    AS told (id, not_before, reason, attempts)
WHERE work_queue.id = told.id

-- name: add_dead_letters
-- $1 ids, $2 work ids, $3 rounds, $4 manifests, $5 groups, $6 jobs, $7 inputs, $8 reasons,
-- $9 failures, $10 counted attempts, $11 now.
INSERT INTO dispatcher.dead_letter
    (id, work_id, round, manifest_id, group_name, job, input, reason, failure, attempts, state,
     created_at)
SELECT letter.*, 'awaiting', $11
FROM unnest($1::uuid[], $2::uuid[], $3::integer[], $4::uuid[], $5::text[], $6::text[], $7::jsonb[],
            $8::text[], $9::jsonb[], $10::integer[]) AS letter
