-- name: report
-- Counts since a time. $1 since.
SELECT
    (SELECT count(*) FROM scheduler.occurrence
     WHERE decided_at >= $1 AND decision = 'queued') AS occurrences,
    (SELECT count(*) FROM dispatcher.metadata
     WHERE state = 'completed' AND finished_at >= $1) AS runs_completed,
    (SELECT count(*) FROM dispatcher.metadata
     WHERE state = 'failed' AND finished_at >= $1) AS runs_failed,
    (SELECT count(*) FROM dispatcher.dead_letter WHERE created_at >= $1) AS dead_letters,
    (SELECT count(*) FROM dispatcher.metadata
     WHERE created_at >= $1 AND (reissued > 0 OR begun_elsewhere > 0)) AS runs_in_doubt

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

-- name: under_way
-- Number of works that are with a worker, or on their way. Older work may have been lost with its
-- worker, which only the reaper detects. $1 since.
SELECT count(*)
FROM dispatcher.work_queue
JOIN dispatcher.lease ON lease.id = work_queue.lease_id
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
