-- name: look
-- What is in flight, or null if everything waits for time to pass; and when each timed pass is due
-- next. A service that is down delays nothing. $1 now, $2 scheduler is up, $3 dispatcher is up,
-- $4 worker is up, $5 scheduler ticks.
SELECT CASE
    WHEN $2 AND $5 AND EXISTS (SELECT FROM scheduler.manifest WHERE wake_at <= $1)
        THEN 'a manifest is due'
    WHEN $2 AND EXISTS (SELECT FROM scheduler.pause WHERE until <= $1)
        THEN 'a pause is over'
    WHEN $2 AND EXISTS (SELECT FROM scheduler.enqueued WHERE state = 'waiting')
        THEN 'something was enqueued'
    WHEN $2 AND EXISTS (SELECT FROM scheduler.outbox) THEN 'the scheduler has messages to publish'
    WHEN $3 AND EXISTS (SELECT FROM dispatcher.outbox) THEN 'the dispatcher has messages to publish'
    WHEN $3 AND EXISTS (
        SELECT FROM scheduler.work
        WHERE NOT EXISTS (SELECT FROM dispatcher.work_queue WHERE work_queue.id = work.id))
        THEN 'work is on its way to the dispatcher'
    -- OFFSET 0 forces an index lookup for each of the few rows of unsettled work.
    WHEN $2 AND EXISTS (
        SELECT FROM scheduler.work
        CROSS JOIN LATERAL (SELECT state FROM dispatcher.work_queue
                            WHERE work_queue.id = work.id OFFSET 0) AS known
        WHERE known.state = 'settled') THEN 'an outcome is on its way to the scheduler'
    WHEN $3 AND $4 AND EXISTS (
        SELECT FROM dispatcher.work_queue WHERE state = 'dispatched')
        THEN 'a run is under way'
    WHEN $3 AND $4 AND EXISTS (
        SELECT FROM dispatcher.work_queue
        LEFT JOIN dispatcher.group_limit ON group_limit.name = work_queue.group_name
        WHERE state IN ('queued', 'waiting') AND not_before <= $1
          AND group_limit.enabled IS DISTINCT FROM false
          AND hold_reason IS DISTINCT FROM 'manifest_disabled'
          AND NOT EXISTS (
            SELECT FROM dispatcher.rate_use
            WHERE frees_at > $1 AND (kind, rate_use.name) IN (('group', group_name), ('job', job))))
        THEN 'work waits for the gate'
    WHEN $2 AND $3 AND EXISTS (SELECT FROM scheduler.manifest WHERE pruning_at IS NOT NULL)
        THEN 'a manifest is being pruned'
END AS busy,
CASE WHEN $2 THEN (SELECT min(wake_at) FROM scheduler.manifest) END AS tick,
CASE WHEN $2 THEN (SELECT min(until) FROM scheduler.pause) END AS windows,
least(
    CASE WHEN $3 THEN (SELECT min(not_before) FROM dispatcher.work_queue
                       WHERE state IN ('queued', 'waiting') AND not_before > $1) END,
    CASE WHEN $3 THEN (SELECT min(start_by) FROM dispatcher.work_queue
                       WHERE state IN ('queued', 'waiting') AND start_by > $1) END,
    CASE WHEN $3 AND EXISTS (SELECT FROM dispatcher.work_queue
                             WHERE state IN ('queued', 'waiting') AND hold_reason IS NULL)
         THEN (SELECT min(frees_at) FROM dispatcher.rate_use WHERE frees_at > $1) END
) AS gate

-- name: pending_names
-- Name the runs under way, and the work that waits although its time has come. $1 now, $2 limit.
(SELECT format('job %L%s runs', work_queue.job, ' of manifest ' || quote_literal(manifest)) AS name
 FROM dispatcher.run
 JOIN dispatcher.work_queue ON work_queue.id = run.work_id
 WHERE run.state IN ('pending', 'in_progress')
 ORDER BY run.created_at, work_queue.id
 LIMIT $2)
UNION ALL
(SELECT format('job %L%s waits: %s', waiting.job, ' of manifest ' || quote_literal(waiting.manifest),
               waiting.reason)
 FROM dispatcher.waiting
 JOIN dispatcher.work_queue ON work_queue.id = waiting.id
 WHERE work_queue.not_before <= $1
 ORDER BY work_queue.rank, waiting.id
 LIMIT $2)
LIMIT $2

-- name: fires
-- All decisions that queued work, oldest first.
SELECT manifest.external_id AS manifest, cause, decided_at AS at, work_id AS work, outcome,
       CASE WHEN starts_with(cause, 'due:') THEN first_due_at END AS due_at
FROM scheduler.occurrence
JOIN scheduler.manifest ON manifest.id = occurrence.manifest_id
WHERE decision = 'queued'
ORDER BY decided_at, first_due_at, cause

-- name: skips
-- All decisions to skip due times, oldest first.
SELECT manifest.external_id AS manifest, first_due_at, last_due_at, occurrence.reason
FROM scheduler.occurrence
JOIN scheduler.manifest ON manifest.id = occurrence.manifest_id
WHERE decision = 'skipped'
ORDER BY decided_at, first_due_at, cause

-- name: declared
-- All manifests that were ever declared, including deleted ones.
SELECT DISTINCT subject FROM scheduler.history WHERE type = 'headway.manifest.declared.v1'

-- name: vacuum
-- Do the work of autovacuum: a world makes an hour's changes in seconds.
VACUUM (ANALYZE) scheduler.manifest, scheduler.work, scheduler.outbox, scheduler.occurrence,
    dispatcher.work_queue, dispatcher.metadata, dispatcher.lease, dispatcher.outbox
