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
       queued_at, priority, rank, not_before, retry, timeout_seconds, cancel_grace_seconds,
       on_lost_contact, state, runs, attempts, run_id, outcome, settled_at, traceparent,
       received_at, cancel_requested_at, cancel_reason
FROM dispatcher.work_queue
WHERE id > $1 AND id <= $2

-- name: runs
-- Runs of work between two ids, likewise. $1 above this id, $2 up to this.
SELECT run_id, work_id, lease_id, manifest_id, group_name, job, round, attempt, state, worker, host,
       due_at, created_at, started_at, start_heard_at, finished_at, patience_seconds, failure,
       output, cancel_reason, activations, trace_id
FROM dispatcher.metadata
WHERE work_id > $1 AND work_id <= $2

-- name: letters
-- Dead letters of work between two ids, likewise. $1 above this id, $2 up to this.
SELECT id, work_id, round, manifest_id, group_name, job, input, reason, failure, attempts, state,
       created_at, resolved_at, note, actor
FROM dispatcher.dead_letter
WHERE work_id > $1 AND work_id <= $2
