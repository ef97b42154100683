-- name: page_end
-- Return the last id of the next page, which is limited by works and by events; null if all the
-- rest fits. $1 above this id, $2 most works, $3 most events.
SELECT least(
    (SELECT id FROM dispatcher.work_queue WHERE id > $1 ORDER BY id OFFSET $2 LIMIT 1),
    (SELECT work_id FROM dispatcher.history WHERE work_id > $1
     ORDER BY work_id OFFSET $3 LIMIT 1))

-- name: works
-- Return the columns of work that follow from history. $1 above this id, $2 up to this id.
SELECT id, group_name, queued_at, rank, not_before, received_at, round, manifest_id, manifest, slot,
       job, input, input_schema, cause, due_at, priority, terms::text, state, runs, attempts,
       run_id, outcome, settled_at, traceparent, cancel_requested_at, cancel_reason, start_by,
       concurrency_key, explicit, exclusive_lease, lease_id
FROM dispatcher.work_queue
WHERE id > $1 AND id <= $2

-- name: runs
-- Return the columns of runs that follow from history. $1 above this work id, $2 up to this one.
SELECT run_id, work_id, lease_id, group_name, job, round, attempt, max_run_seconds, created_at,
       manifest_id, state, worker, host, due_at, started_at, start_heard_at, finished_at,
       worker_started_at, worker_finished_at, failure, output, cancel_reason, activations, trace_id,
       concurrency_key, reissued, begun_elsewhere
FROM dispatcher.run
WHERE work_id > $1 AND work_id <= $2

-- name: letters
-- Return the columns of dead letters that follow from history. The edit of a waiting retry does
-- not, and an empty edit is none. $1 above this work id, $2 up to this one.
SELECT id, work_id, round, group_name, job, reason, failure, attempts, created_at, manifest_id,
       input, state, resolved_at, note, actor, manifest, fingerprint, code_version, runs,
       CASE WHEN state <> 'awaiting' THEN nullif(edit, '[]') END AS edit
FROM dispatcher.dead_letter
WHERE work_id > $1 AND work_id <= $2

-- name: services
-- Return the other services that are connected to this database.
SELECT DISTINCT application_name AS name FROM pg_stat_activity
WHERE datname = current_database() AND pid <> pg_backend_pid()
  AND application_name IN ('headway-dispatcher', 'headway-scheduler')
ORDER BY 1

-- name: witnesses
-- Return dispatchers with a recent heartbeat. $1 age in seconds.
SELECT name FROM dispatcher.witness
WHERE last_heard_at > clock_timestamp() - $1 * interval '1 s'
ORDER BY 1

-- name: lock_tables
-- Block all writers while a page is written.
LOCK TABLE dispatcher.work_queue, dispatcher.metadata, dispatcher.dead_letter
    IN SHARE ROW EXCLUSIVE MODE

-- name: delete_letters
-- Delete dead letters that are not in history. $1 ids.
DELETE FROM dispatcher.dead_letter WHERE id = ANY($1::uuid[])

-- name: delete_runs
-- Delete runs that are not in history. $1 ids.
DELETE FROM dispatcher.metadata WHERE run_id = ANY($1::uuid[])

-- name: delete_works
-- Delete work that is not in history, with its letters and runs. $1 ids.
WITH letters AS (
    DELETE FROM dispatcher.dead_letter WHERE work_id = ANY($1::uuid[])
), runs AS (
    DELETE FROM dispatcher.metadata WHERE work_id = ANY($1::uuid[])
)
DELETE FROM dispatcher.work_queue WHERE id = ANY($1::uuid[])

-- name: write_works
-- Write work as history has it. Why it waits is not in history; the gate finds out. $1 rows as an
-- array of objects.
INSERT INTO dispatcher.work_queue
    (id, round, manifest_id, manifest, slot, group_name, job, input, input_schema, cause, due_at,
     queued_at, priority, rank, not_before, terms, state, runs, attempts, run_id, outcome, settled_at,
     traceparent, received_at, cancel_requested_at, cancel_reason, start_by, concurrency_key, explicit,
     exclusive_lease, lease_id, wait_reason, hold_reason)
SELECT id, round, manifest_id, manifest, slot, group_name, job, input, input_schema, cause, due_at,
       queued_at, priority, rank, not_before, terms, state, runs, attempts, run_id, outcome, settled_at,
       traceparent, received_at, cancel_requested_at, cancel_reason, start_by, concurrency_key, explicit,
       exclusive_lease, lease_id,
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
    hold_reason = excluded.hold_reason, start_by = excluded.start_by,
    concurrency_key = excluded.concurrency_key,
    explicit = excluded.explicit, exclusive_lease = excluded.exclusive_lease,
    lease_id = excluded.lease_id

-- name: dead_leases
-- Return leases that are missing or ended although one of their runs is live. $1 above this work
-- id, $2 up to this one.
SELECT DISTINCT work_queue.lease_id AS id, lease.ended_at
FROM dispatcher.work_queue
LEFT JOIN dispatcher.lease ON lease.id = work_queue.lease_id
WHERE work_queue.id > $1 AND work_queue.id <= $2 AND work_queue.state = 'dispatched'
  AND (lease.id IS NULL OR lease.ended_at IS NOT NULL)

-- name: open_leases
-- Reopen leases with live runs. $1 leases.
UPDATE dispatcher.lease SET ended_at = NULL
WHERE id = ANY($1::uuid[])
  AND EXISTS (SELECT FROM dispatcher.work_queue
              WHERE work_queue.lease_id = lease.id AND work_queue.state = 'dispatched')

-- name: look_again
-- Let the gate find out again why work waits. $1 above this work id, $2 up to this one.
UPDATE dispatcher.work_queue SET hold_reason = 'not_before', wait_reason = 'awaiting_gate'
WHERE id > $1 AND id <= $2 AND state IN ('queued', 'waiting')
  AND hold_reason IS DISTINCT FROM 'not_before'

-- name: write_leases
-- Insert missing leases of runs; returns them. Tokens are not in history, so no worker can use such
-- a lease: the reaper revokes it, and its live runs are retried. $1 ids, $2 tokens, $3 jobs, $4
-- times of creation, $5 whether all of their runs have ended, $6 their groups as an array of arrays.
INSERT INTO dispatcher.lease (id, token, job, groups, created_at, ordered_at, ended_at)
SELECT made.id, made.token, made.job,
       ARRAY(SELECT jsonb_array_elements_text($6::jsonb -> (made.number - 1)::integer)),
       made.created_at, made.created_at, CASE WHEN made.ended THEN clock_timestamp() END
FROM unnest($1::uuid[], $2::text[], $3::text[], $4::timestamptz[], $5::boolean[]) WITH ORDINALITY
    AS made (id, token, job, created_at, ended, number)
ON CONFLICT DO NOTHING
RETURNING id

-- name: write_runs
-- Write runs as history has them, ended ones first. $1 rows as an array of objects.
INSERT INTO dispatcher.metadata
    (run_id, work_id, lease_id, manifest_id, group_name, job, round, attempt, state, worker, host,
     due_at, created_at, started_at, start_heard_at, finished_at, worker_started_at,
     worker_finished_at, max_run_seconds, failure, output, cancel_reason, activations,
     trace_id, concurrency_key, reissued, begun_elsewhere)
SELECT run_id, work_id, lease_id, manifest_id, group_name, job, round, attempt, state, worker, host,
       due_at, created_at, started_at, start_heard_at, finished_at, worker_started_at,
       worker_finished_at, max_run_seconds, failure, output, cancel_reason, activations,
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
    max_run_seconds = excluded.max_run_seconds,
    failure = excluded.failure, output = excluded.output,
    cancel_reason = excluded.cancel_reason, activations = excluded.activations,
    trace_id = excluded.trace_id, concurrency_key = excluded.concurrency_key,
    reissued = excluded.reissued, begun_elsewhere = excluded.begun_elsewhere

-- name: write_letters
-- Write dead letters as history has them, resolved ones first; an open letter keeps its waiting
-- retry. $1 rows as an array of objects.
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
    edit = CASE WHEN excluded.state = 'awaiting' AND dead_letter.retry_requested_at IS NOT NULL
                THEN dead_letter.edit ELSE excluded.edit END,
    retry_requested_at = CASE WHEN excluded.state = 'awaiting'
                              THEN dead_letter.retry_requested_at END,
    retry_requested_by = CASE WHEN excluded.state = 'awaiting'
                              THEN dead_letter.retry_requested_by END,
    retry_input = CASE WHEN excluded.state = 'awaiting' THEN dead_letter.retry_input END,
    retry_key = CASE WHEN excluded.state = 'awaiting' THEN dead_letter.retry_key END
