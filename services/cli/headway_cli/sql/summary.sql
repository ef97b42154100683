-- name: progress
-- Counts since a time, and of current work. $1 since.
SELECT
    (SELECT count(*) FROM scheduler.manifest WHERE pruning_at IS NULL) AS manifests,
    (SELECT count(*) FROM scheduler.manifest
     WHERE pruning_at IS NULL AND blocked_by IS NOT NULL) AS blocked,
    (SELECT count(*) FROM scheduler.occurrence
     WHERE decided_at >= $1 AND decision = 'queued') AS occurrences,
    (SELECT count(*) FROM scheduler.occurrence
     WHERE decided_at >= $1 AND decision = 'skipped') AS skipped,
    (SELECT count(*) FROM dispatcher.work_queue WHERE state IN ('queued', 'waiting')) AS waiting,
    (SELECT count(*) FROM dispatcher.metadata WHERE state IN ('pending', 'in_progress')) AS running,
    (SELECT count(*) FROM dispatcher.metadata
     WHERE state = 'completed' AND finished_at >= $1) AS completed,
    (SELECT count(*) FROM dispatcher.metadata
     WHERE state = 'failed' AND finished_at >= $1) AS failed,
    (SELECT count(*) FROM dispatcher.dead_letter WHERE created_at >= $1) AS dead_letters,
    (SELECT count(*) FROM dispatcher.metadata
     WHERE created_at >= $1 AND (reissued > 0 OR begun_elsewhere > 0)) AS in_doubt

-- name: lateness
-- Quantiles of the delay from the due time to the start of the body, of first attempts, in
-- milliseconds. $1 since.
SELECT percentile_cont(0.5) WITHIN GROUP (ORDER BY late) AS p50,
       percentile_cont(0.99) WITHIN GROUP (ORDER BY late) AS p99
FROM (
    SELECT extract(epoch FROM started_at - due_at) * 1000 AS late
    FROM dispatcher.metadata
    WHERE attempt = 1 AND started_at IS NOT NULL AND due_at >= $1
) AS starts

-- name: next_due
-- Manifests that fire next; without room for more work a manifest has no wake time, but a due
-- time. $1 limit.
SELECT external_id, coalesce(wake_at, next_due_at) AS next_due_at
FROM scheduler.manifest
WHERE enabled AND pruning_at IS NULL AND next_due_at IS NOT NULL AND blocked_by IS NULL
ORDER BY coalesce(wake_at, next_due_at)
LIMIT $1

-- name: latest
-- The latest runs. $1 since, $2 limit.
SELECT work_queue.manifest, metadata.state, metadata.attempt, metadata.started_at,
       metadata.finished_at, metadata.failure ->> 'message' AS message
FROM dispatcher.metadata
JOIN dispatcher.work_queue ON work_queue.id = metadata.work_id
WHERE metadata.created_at >= $1
ORDER BY metadata.created_at DESC
LIMIT $2

-- name: under_way
-- Number of works that are with a worker, or on their way. Older work may have been lost with its
-- worker, which only the reaper detects. $1 since.
SELECT count(*)
FROM dispatcher.work_queue
JOIN dispatcher.metadata ON metadata.run_id = work_queue.run_id
JOIN dispatcher.lease ON lease.id = metadata.lease_id
WHERE work_queue.state = 'dispatched'
  AND coalesce(lease.last_heard_at, lease.created_at) >= $1

-- name: to_come
-- Number of items that can still start work without a new decision: work that waits only for its
-- turn, unsent messages, and outcomes that have not reached the scheduler. $1 now.
SELECT (SELECT count(*) FROM dispatcher.waiting
        JOIN dispatcher.work_queue USING (id)
        WHERE work_queue.not_before <= $1
          AND waiting.reason NOT IN ('no_worker', 'rate', 'group_disabled', 'manifest_disabled'))
     + (SELECT count(*) FROM scheduler.outbox)
     + (SELECT count(*) FROM scheduler.work
        WHERE NOT EXISTS (SELECT FROM dispatcher.work_queue
                          WHERE work_queue.id = work.id AND work_queue.state <> 'settled'))
     + (SELECT count(*) FROM dispatcher.outbox) AS to_come

-- name: now
-- The database's time.
SELECT clock_timestamp()

-- name: workers_heard
-- Number of workers with a heartbeat since a time. $1 since.
SELECT count(*) FROM dispatcher.worker WHERE last_heard_at >= $1
