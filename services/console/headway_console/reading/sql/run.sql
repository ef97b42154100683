-- name: run
-- One run with all that is known of it, and what its work is like. $1 run.
SELECT metadata.run_id, metadata.work_id, metadata.round, metadata.attempt, metadata.group_name,
       metadata.job, metadata.state, coalesce(metadata.worker, lease.claimed_by) AS worker,
       metadata.host, metadata.due_at, metadata.created_at, metadata.started_at,
       metadata.finished_at, metadata.failure ->> 'kind' AS failure_kind,
       metadata.failure ->> 'message' AS failure_message, metadata.cancel_reason,
       metadata.progress, metadata.failure, metadata.output, metadata.trace_id,
       metadata.log_dropped, metadata.reissued, metadata.begun_elsewhere, metadata.lease_id,
       metadata.manifest_id, lease.last_heard_at,
       lease.ended_at AS lease_ended_at, work_queue.manifest, work_queue.cause,
       work_queue.input, work_queue.state AS work_state, work_queue.outcome,
       coalesce(work_queue.terms -> 'retry', '{}') AS retry,
       coalesce((work_queue.terms -> 'timeout_seconds')::double precision, 0) AS timeout_seconds,
       work_queue.not_before, work_queue.cancel_requested_at,
       work_queue.queued_at, work_queue.received_at, work_queue.concurrency_key,
       (SELECT waiting.reason FROM dispatcher.waiting WHERE waiting.id = work_queue.id)
           AS wait_reason,
       (SELECT dead_letter.id FROM dispatcher.dead_letter
        WHERE dead_letter.work_id = work_queue.id ORDER BY dead_letter.round DESC LIMIT 1)
           AS dead_letter
FROM dispatcher.metadata
JOIN dispatcher.work_queue ON work_queue.id = metadata.work_id
LEFT JOIN dispatcher.lease ON lease.id = metadata.lease_id
WHERE metadata.run_id = $1

-- name: attempts
-- The runs of a piece of work, the oldest first; only so many of the latest. $1 work, $2 how many.
SELECT * FROM (
    SELECT metadata.run_id, metadata.work_id, metadata.round, metadata.attempt,
           metadata.group_name, metadata.job, metadata.state, metadata.worker, metadata.host,
           metadata.due_at, metadata.created_at, metadata.started_at, metadata.finished_at,
           metadata.failure ->> 'kind' AS failure_kind,
           left(metadata.failure ->> 'message', 2000) AS failure_message, metadata.cancel_reason,
           metadata.progress, work_queue.manifest, work_queue.cause
    FROM dispatcher.metadata
    JOIN dispatcher.work_queue ON work_queue.id = metadata.work_id
    WHERE metadata.work_id = $1
    ORDER BY metadata.created_at DESC, metadata.run_id DESC
    LIMIT $2
) AS latest
ORDER BY created_at, run_id

-- name: events
-- What history tells of a piece of work, and of the lease of one run of it, the oldest first. A
-- lease of several runs is no single work's. $1 work, $2 lease, $3 how many at most.
SELECT id, event_id, type, subject, source, occurred_at, recorded_at, accepted, refusal, work_id,
       run_id, lease_id, data
FROM (
    (SELECT * FROM dispatcher.history WHERE work_id = $1 ORDER BY id DESC LIMIT $3)
    UNION ALL
    (SELECT * FROM dispatcher.history
     WHERE lease_id = $2 AND work_id IS NULL ORDER BY id DESC LIMIT $3)
) AS told
WHERE type <> 'headway.history.snapshot.v1'
ORDER BY id

-- name: log
-- Lines that a run has logged, in their order. $1 run, $2 after this number, $3 how many.
SELECT number, at, level, message, fields FROM dispatcher.run_log
WHERE run_id = $1 AND number > $2
ORDER BY number
LIMIT $3

-- name: look
-- What changes about a run while somebody looks at it; none if there is no such run. $1 run.
SELECT metadata.state, metadata.progress::text AS progress, metadata.log_dropped, metadata.worker,
       work_queue.state AS work_state, work_queue.runs, work_queue.round,
       work_queue.cancel_requested_at,
       (SELECT max(number) FROM dispatcher.run_log WHERE run_log.run_id = $1) AS lines
FROM dispatcher.metadata
JOIN dispatcher.work_queue ON work_queue.id = metadata.work_id
WHERE metadata.run_id = $1
