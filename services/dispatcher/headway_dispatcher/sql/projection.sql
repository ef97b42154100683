-- name: page_end
-- Up to which id the next page goes, so that it has neither too many works nor too many events;
-- null if all that is left fits. $1 above this id, $2 how many works, $3 how many events.
SELECT least(
    (SELECT id FROM dispatcher.work_queue WHERE id > $1 ORDER BY id OFFSET $2 LIMIT 1),
    (SELECT work_id FROM dispatcher.history WHERE work_id > $1
     ORDER BY work_id OFFSET $3 LIMIT 1))

-- name: works
-- Work between two ids, the columns that follow from history. $1 above this id, $2 up to this.
SELECT id, round, manifest_id, manifest, slot, group_name, job, input, input_schema, cause, due_at,
       queued_at, priority, rank, not_before, terms, state, runs, attempts, run_id, outcome, settled_at, traceparent,
       received_at, cancel_requested_at, cancel_reason, start_by, concurrency_key,
       explicit, alone
FROM dispatcher.work_queue
WHERE id > $1 AND id <= $2

-- name: runs
-- Runs of work between two ids, likewise. $1 above this id, $2 up to this.
SELECT run_id, work_id, lease_id, manifest_id, group_name, job, round, attempt, state, worker, host,
       due_at, created_at, started_at, start_heard_at, finished_at, worker_started_at,
       worker_finished_at, patience_seconds, failure, output, cancel_reason, activations,
       trace_id, concurrency_key, reissued, begun_elsewhere
FROM dispatcher.metadata
WHERE work_id > $1 AND work_id <= $2

-- name: letters
-- Dead letters of work between two ids, likewise. The edit of one that waits for its slot is a
-- wish, and one that changes nothing is none. $1 above this id, $2 up to this.
SELECT id, work_id, round, manifest_id, group_name, job, input, reason, failure, attempts, state,
       created_at, resolved_at, note, actor, manifest, fingerprint, code_version, runs,
       CASE WHEN state <> 'awaiting' THEN nullif(edit, '[]') END AS edit
FROM dispatcher.dead_letter
WHERE work_id > $1 AND work_id <= $2

-- name: services
-- Services that are connected to this database, other than we.
SELECT DISTINCT application_name AS name FROM pg_stat_activity
WHERE datname = current_database() AND pid <> pg_backend_pid()
  AND application_name IN ('headway-dispatcher', 'headway-scheduler')
ORDER BY 1

-- name: witnesses
-- Dispatchers that were heard of lately, by whatever connection. $1 how lately, in seconds.
SELECT name FROM dispatcher.witness
WHERE last_heard_at > clock_timestamp() - $1 * interval '1 s'
ORDER BY 1

-- name: lock_tables
-- Nobody else changes anything while a page is written.
LOCK TABLE dispatcher.work_queue, dispatcher.metadata, dispatcher.dead_letter
    IN SHARE ROW EXCLUSIVE MODE

-- name: delete_letters
-- Dead letters that history does not know. $1 ids.
DELETE FROM dispatcher.dead_letter WHERE id = ANY($1::uuid[])

-- name: delete_runs
-- Runs that history does not know. $1 ids.
DELETE FROM dispatcher.metadata WHERE run_id = ANY($1::uuid[])

-- name: delete_works
-- Work that history does not know, and all that refers to it. $1 ids.
WITH letters AS (
    DELETE FROM dispatcher.dead_letter WHERE work_id = ANY($1::uuid[])
), runs AS (
    DELETE FROM dispatcher.metadata WHERE work_id = ANY($1::uuid[])
)
DELETE FROM dispatcher.work_queue WHERE id = ANY($1::uuid[])

-- name: write_works
-- Work as history says it is. Why it waits is not in history, and will be found out again.
-- $1 rows as an array of objects.
INSERT INTO dispatcher.work_queue
    (id, round, manifest_id, manifest, slot, group_name, job, input, input_schema, cause, due_at,
     queued_at, priority, rank, not_before, terms, state, runs, attempts, run_id, outcome, settled_at, traceparent,
     received_at, cancel_requested_at, cancel_reason, start_by, concurrency_key,
     explicit, alone, wait_reason, held_by)
SELECT id, round, manifest_id, manifest, slot, group_name, job, input, input_schema, cause, due_at,
       queued_at, priority, rank, not_before, terms, state, runs, attempts, run_id, outcome, settled_at, traceparent,
       received_at, cancel_requested_at, cancel_reason, start_by, concurrency_key,
       explicit, alone,
       CASE WHEN state IN ('queued', 'waiting') THEN 'awaiting_gate' END,
       CASE WHEN state IN ('queued', 'waiting') THEN 'not_before' END
FROM jsonb_populate_recordset(NULL::dispatcher.work_queue, $1)
ON CONFLICT (id) DO UPDATE
SET round = excluded.round, manifest_id = excluded.manifest_id, manifest = excluded.manifest,
    slot = excluded.slot, group_name = excluded.group_name, job = excluded.job,
    input = excluded.input, input_schema = excluded.input_schema, cause = excluded.cause,
    due_at = excluded.due_at, queued_at = excluded.queued_at, priority = excluded.priority,
    rank = excluded.rank, not_before = excluded.not_before, terms = excluded.terms,
    state = excluded.state, runs = excluded.runs,
    attempts = excluded.attempts, run_id = excluded.run_id, outcome = excluded.outcome,
    settled_at = excluded.settled_at, traceparent = excluded.traceparent,
    received_at = excluded.received_at, cancel_requested_at = excluded.cancel_requested_at,
    cancel_reason = excluded.cancel_reason, wait_reason = excluded.wait_reason,
    held_by = excluded.held_by, start_by = excluded.start_by,
    concurrency_key = excluded.concurrency_key,
    explicit = excluded.explicit, alone = excluded.alone

-- name: dead_leases
-- Leases that are gone or have ended although a run under them is live, which nobody would ever end.
-- $1 above this work, $2 up to this.
SELECT DISTINCT metadata.lease_id AS id, lease.ended_at
FROM dispatcher.metadata
LEFT JOIN dispatcher.lease ON lease.id = metadata.lease_id
WHERE metadata.work_id > $1 AND metadata.work_id <= $2
  AND metadata.finished_at IS NULL AND (lease.id IS NULL OR lease.ended_at IS NOT NULL)

-- name: open_leases
-- Leases are open while runs under them are live. $1 leases.
UPDATE dispatcher.lease SET ended_at = NULL
WHERE id = ANY($1::uuid[])
  AND EXISTS (SELECT FROM dispatcher.metadata
              WHERE metadata.lease_id = lease.id AND metadata.finished_at IS NULL)

-- name: look_again
-- Let the gate find out anew what work waits for. $1 above this work, $2 up to this.
UPDATE dispatcher.work_queue SET held_by = 'not_before', wait_reason = 'awaiting_gate'
WHERE id > $1 AND id <= $2 AND state IN ('queued', 'waiting')
  AND held_by IS DISTINCT FROM 'not_before'

-- name: write_leases
-- Leases that runs need and that are gone; returns them. Tokens are not in history, so nobody can
-- use one of these: what is live under it will be found silent, and tried again. $1 ids,
-- $2 tokens, $3 jobs, $4 when they were made, $5 whether all of their runs have ended.
INSERT INTO dispatcher.lease (id, token, job, created_at, ended_at)
SELECT made.id, made.token, made.job, made.created_at,
       CASE WHEN made.ended THEN clock_timestamp() END
FROM unnest($1::uuid[], $2::text[], $3::text[], $4::timestamptz[], $5::boolean[])
    AS made (id, token, job, created_at, ended)
ON CONFLICT DO NOTHING
RETURNING id

-- name: write_runs
-- Runs as history says they are, those that have ended first. $1 rows as an array of objects.
INSERT INTO dispatcher.metadata
    (run_id, work_id, lease_id, manifest_id, group_name, job, round, attempt, state, worker, host,
     due_at, created_at, started_at, start_heard_at, finished_at, worker_started_at,
     worker_finished_at, patience_seconds, failure, output, cancel_reason, activations,
     trace_id, concurrency_key, reissued, begun_elsewhere)
SELECT run_id, work_id, lease_id, manifest_id, group_name, job, round, attempt, state, worker, host,
       due_at, created_at, started_at, start_heard_at, finished_at, worker_started_at,
       worker_finished_at, patience_seconds, failure, output, cancel_reason, activations,
       trace_id, concurrency_key, reissued, begun_elsewhere
FROM jsonb_populate_recordset(NULL::dispatcher.metadata, $1)
ORDER BY finished_at NULLS LAST
ON CONFLICT (run_id) DO UPDATE
SET work_id = excluded.work_id, lease_id = excluded.lease_id, manifest_id = excluded.manifest_id,
    group_name = excluded.group_name, job = excluded.job, round = excluded.round,
    attempt = excluded.attempt, state = excluded.state, worker = excluded.worker,
    host = excluded.host, due_at = excluded.due_at, created_at = excluded.created_at,
    started_at = excluded.started_at, start_heard_at = excluded.start_heard_at,
    finished_at = excluded.finished_at, worker_started_at = excluded.worker_started_at,
    worker_finished_at = excluded.worker_finished_at,
    patience_seconds = excluded.patience_seconds,
    failure = excluded.failure, output = excluded.output,
    cancel_reason = excluded.cancel_reason, activations = excluded.activations,
    trace_id = excluded.trace_id, concurrency_key = excluded.concurrency_key,
    reissued = excluded.reissued, begun_elsewhere = excluded.begun_elsewhere

-- name: write_letters
-- Dead letters as history says they are, resolved ones first; a wish that waits for its slot stays
-- with one that awaits somebody. $1 rows as an array of objects.
INSERT INTO dispatcher.dead_letter
    (id, work_id, round, manifest_id, group_name, job, input, reason, failure, attempts, state,
     created_at, resolved_at, note, actor, manifest, fingerprint, code_version, runs, edit)
SELECT id, work_id, round, manifest_id, group_name, job, input, reason, failure, attempts, state,
       created_at, resolved_at, note, actor, manifest, fingerprint, code_version, runs, edit
FROM jsonb_populate_recordset(NULL::dispatcher.dead_letter, $1)
ORDER BY resolved_at NULLS LAST
ON CONFLICT (id) DO UPDATE
SET work_id = excluded.work_id, round = excluded.round, manifest_id = excluded.manifest_id,
    group_name = excluded.group_name, job = excluded.job, input = excluded.input,
    reason = excluded.reason, failure = excluded.failure, attempts = excluded.attempts,
    state = excluded.state, created_at = excluded.created_at, resolved_at = excluded.resolved_at,
    note = excluded.note, actor = excluded.actor, manifest = excluded.manifest,
    fingerprint = excluded.fingerprint, code_version = excluded.code_version,
    runs = excluded.runs,
    edit = CASE WHEN excluded.state = 'awaiting' AND dead_letter.retry_asked_at IS NOT NULL
                THEN dead_letter.edit ELSE excluded.edit END,
    retry_asked_at = CASE WHEN excluded.state = 'awaiting' THEN dead_letter.retry_asked_at END,
    retry_asked_by = CASE WHEN excluded.state = 'awaiting' THEN dead_letter.retry_asked_by END,
    retry_input = CASE WHEN excluded.state = 'awaiting' THEN dead_letter.retry_input END,
    retry_key = CASE WHEN excluded.state = 'awaiting' THEN dead_letter.retry_key END
