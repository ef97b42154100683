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

-- name: fill_in
-- What is now known of work that was cancelled before it came; nothing else changes. Returns the
-- ids of what was filled in.
-- $1 the work as an array of objects.
UPDATE dispatcher.work_queue
SET manifest_id = work.manifest_id, manifest = work.manifest, slot = work.slot, job = work.job,
    input = work.input, input_schema = work.input_schema, cause = work.cause,
    due_at = work.due_at, queued_at = work.queued_at, priority = work.priority,
    rank = work.rank, traceparent = work.traceparent
FROM jsonb_to_recordset($1) AS work (
    work uuid, manifest_id uuid, manifest text, slot integer, job text, input jsonb,
    input_schema text, cause text, due_at timestamptz, queued_at timestamptz, priority smallint,
    rank timestamptz, traceparent text)
WHERE work_queue.id = work.work AND work_queue.job = ''
RETURNING work_queue.id

-- name: lock
-- Work that is decided about, locked in a fixed order, with the activations of all runs of its
-- round, and whether its manifest was pruned. $1 ids.
SELECT id, round, manifest_id, manifest, group_name, job, input, retry, state, runs, attempts,
       run_id, traceparent, cancel_requested_at, cancel_reason,
       EXISTS (SELECT FROM dispatcher.tombstone
               WHERE tombstone.manifest_id = work_queue.manifest_id) AS pruned,
       (SELECT jsonb_agg(metadata.activations) FROM dispatcher.metadata
        WHERE metadata.work_id = work_queue.id AND metadata.round = work_queue.round
          AND metadata.activations IS NOT NULL) AS activations
FROM dispatcher.work_queue
WHERE id = ANY($1::uuid[])
ORDER BY id
FOR UPDATE

-- name: request_cancel
-- Work that is to end early. $1 ids, $2 reasons, $3 now.
UPDATE dispatcher.work_queue
SET cancel_requested_at = $3, cancel_reason = told.reason
FROM unnest($1::uuid[], $2::text[]) AS told (id, reason)
WHERE work_queue.id = told.id

-- name: add_cancelled
-- Work that was cancelled before it came: all that is known of it, settled; returns the ids of
-- what was really new. An empty job marks it, until it comes. $1 ids, $2 rounds,
-- $3 manifest ids, $4 manifests, $5 groups, $6 reasons, $7 now.
INSERT INTO dispatcher.work_queue
    (id, round, manifest_id, manifest, slot, group_name, job, cause, queued_at, priority, rank,
     not_before, retry, timeout_seconds, cancel_grace_seconds, on_lost_contact, state, outcome,
     settled_at, received_at, cancel_requested_at, cancel_reason)
SELECT told.id, told.round, told.manifest_id, told.manifest, 0, told.group_name, '', '', $7, 0, $7,
       $7, '{}', 0, 0, 'stop', 'settled', 'cancelled', $7, $7, $7, told.reason
FROM unnest($1::uuid[], $2::integer[], $3::uuid[], $4::text[], $5::text[], $6::text[])
    AS told (id, round, manifest_id, manifest, group_name, reason)
ORDER BY told.id
ON CONFLICT DO NOTHING
RETURNING id

-- name: bring_forward
-- Work that waits comes first in its group, and may run now; returns it. $1 ids, $2 now.
UPDATE dispatcher.work_queue
SET not_before = least(not_before, $2),
    rank = (SELECT min(other.rank) FROM dispatcher.work_queue AS other
            WHERE other.group_name = work_queue.group_name
              AND other.state IN ('queued', 'waiting')) - interval '1 ms'
FROM (
    SELECT id FROM dispatcher.work_queue
    WHERE id = ANY($1::uuid[]) AND state IN ('queued', 'waiting')
    ORDER BY id
    FOR UPDATE
) AS waiting
WHERE work_queue.id = waiting.id
RETURNING work_queue.id, round, runs, rank, not_before

-- name: cancelling
-- Ordered runs of work that is to end early: who has them, and whether each is the only live
-- one of its lease. Those that nobody has come first. $1 how many.
SELECT metadata.run_id, metadata.lease_id, lease.token, lease.job, lease.sequence,
       lease.claimed_by, work_queue.cancel_reason AS reason,
       NOT EXISTS (SELECT FROM dispatcher.metadata AS other
                   WHERE other.lease_id = lease.id AND other.run_id <> metadata.run_id
                     AND other.finished_at IS NULL) AS alone
FROM dispatcher.work_queue
JOIN dispatcher.metadata ON metadata.run_id = work_queue.run_id
JOIN dispatcher.lease ON lease.id = metadata.lease_id
WHERE work_queue.cancel_requested_at IS NOT NULL AND work_queue.state = 'dispatched'
  AND metadata.finished_at IS NULL
ORDER BY lease.claimed_by NULLS FIRST, work_queue.cancel_requested_at
LIMIT $1

-- name: activators
-- The runs that woke dependents, and what they run for. $1 runs.
SELECT metadata.run_id, metadata.round, work_queue.id AS work_id, work_queue.manifest_id,
       work_queue.manifest, work_queue.group_name, work_queue.traceparent
FROM dispatcher.metadata
JOIN dispatcher.work_queue ON work_queue.id = metadata.work_id
WHERE metadata.run_id = ANY($1::uuid[])

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
