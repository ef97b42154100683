-- name: live
-- Runs that have not ended, the newest first; there are never many. $1 state, $2 group, $3 job, $4
-- manifest, $5 worker (each null for any), $6 created since, $7 created before, $8 and $9 time and
-- id of the cursor, $10 text in the input (a pattern), $11 limit, $12 work (null for any).
SELECT run.run_id, run.work_id, run.round, run.attempt, run.group_name,
       run.job, run.state, coalesce(run.worker, (
           SELECT lease.claimed_by FROM dispatcher.lease
           WHERE lease.id = run.lease_id)) AS worker,
       run.host, run.due_at, run.created_at, run.started_at,
       run.finished_at, NULL AS failure_kind, NULL AS failure_message, run.cancel_reason,
       run_report.progress, work_queue.manifest, work_queue.cause
FROM dispatcher.run
JOIN dispatcher.work_queue ON work_queue.id = run.work_id
LEFT JOIN dispatcher.run_report ON run_report.run_id = run.run_id
WHERE run.state IN ('pending', 'in_progress')
  AND ($1::text IS NULL OR run.state = $1)
  AND ($2::text IS NULL OR run.group_name = $2)
  AND ($3::text IS NULL OR run.job = $3)
  AND ($4::uuid IS NULL OR run.manifest_id = $4)
  AND ($5::text IS NULL OR coalesce(run.worker, (
           SELECT lease.claimed_by FROM dispatcher.lease
           WHERE lease.id = run.lease_id)) = $5)
  AND ($6::timestamptz IS NULL OR run.created_at >= $6)
  AND ($7::timestamptz IS NULL OR run.created_at < $7)
  AND ($8::timestamptz IS NULL OR (run.created_at, run.run_id) < ($8, $9::uuid))
  AND ($10::text IS NULL OR work_queue.input::text ILIKE $10)
  AND ($12::uuid IS NULL OR run.work_id = $12)
ORDER BY run.created_at DESC, run.run_id DESC
LIMIT $11

-- name: ended
-- Runs that have ended, the newest first. Filters with an index search all runs; worker and text
-- search a bounded number of the runs that match. $1 state, $2 group, $3 job, $4 manifest, $5
-- worker (each null for any), $6 created since, $7 created before, $8 and $9 time and id of the
-- cursor, $10 text in the error (a pattern), $11 text in the input, $12 number of runs to search,
-- $13 limit, $14 work (null for any), $15 ended since, $16 ended before.
SELECT page.run_id, page.work_id, page.round, page.attempt, page.group_name, page.job, page.state,
       page.worker, page.host, page.due_at, page.created_at, page.started_at, page.finished_at,
       page.failure ->> 'kind' AS failure_kind,
       left(page.failure ->> 'message', 500) AS failure_message, page.cancel_reason,
       NULL::jsonb AS progress, work_queue.manifest, work_queue.cause
FROM (
    SELECT * FROM (
        SELECT * FROM dispatcher.metadata
        WHERE metadata.finished_at IS NOT NULL
          AND ($1::text IS NULL OR metadata.state = $1)
          AND ($2::text IS NULL OR metadata.group_name = $2)
          AND ($3::text IS NULL OR metadata.job = $3)
          AND ($4::uuid IS NULL OR metadata.manifest_id = $4)
          AND ($6::timestamptz IS NULL OR metadata.created_at >= $6)
          AND ($7::timestamptz IS NULL OR metadata.created_at < $7)
          AND ($8::timestamptz IS NULL OR (metadata.created_at, metadata.run_id) < ($8, $9::uuid))
          AND ($14::uuid IS NULL OR metadata.work_id = $14)
          AND ($15::timestamptz IS NULL OR metadata.finished_at >= $15)
          AND ($16::timestamptz IS NULL
               OR (metadata.finished_at < $16 AND metadata.created_at < $16))
        ORDER BY metadata.created_at DESC, metadata.run_id DESC
        LIMIT $12
    ) AS searched
    WHERE ($5::text IS NULL OR searched.worker = $5)
      AND (($10::text IS NULL AND $11::text IS NULL)
           OR (searched.failure ->> 'kind') || ': ' || (searched.failure ->> 'message') ILIKE $10
           OR (SELECT input::text FROM dispatcher.work_queue
               WHERE work_queue.id = searched.work_id) ILIKE $11)
    ORDER BY searched.created_at DESC, searched.run_id DESC
    LIMIT $13
) AS page
JOIN dispatcher.work_queue ON work_queue.id = page.work_id
ORDER BY page.created_at DESC, page.run_id DESC

-- name: reached
-- The last run that the same search has read; no row if it has read everything. $1 state, $2 group,
-- $3 job, $4 manifest, $5 created since, $6 created before, $7 and $8 time and id of the cursor, $9
-- number of runs to search, $10 work (null for any), $11 ended since, $12 ended before.
SELECT created_at, run_id FROM dispatcher.metadata
WHERE metadata.finished_at IS NOT NULL
  AND ($1::text IS NULL OR metadata.state = $1)
  AND ($2::text IS NULL OR metadata.group_name = $2)
  AND ($3::text IS NULL OR metadata.job = $3)
  AND ($4::uuid IS NULL OR metadata.manifest_id = $4)
  AND ($5::timestamptz IS NULL OR metadata.created_at >= $5)
  AND ($6::timestamptz IS NULL OR metadata.created_at < $6)
  AND ($7::timestamptz IS NULL OR (metadata.created_at, metadata.run_id) < ($7, $8::uuid))
  AND ($10::uuid IS NULL OR metadata.work_id = $10)
  AND ($11::timestamptz IS NULL OR metadata.finished_at >= $11)
  AND ($12::timestamptz IS NULL
       OR (metadata.finished_at < $12 AND metadata.created_at < $12))
ORDER BY metadata.created_at DESC, metadata.run_id DESC
OFFSET $9 - 1
LIMIT 1

-- name: run
-- One run in full, with the state of its work. $1 run.
SELECT run.run_id, run.work_id, run.round, run.attempt, run.group_name,
       run.job, run.state, coalesce(run.worker, lease.claimed_by) AS worker,
       run.host, run.due_at, run.created_at, run.started_at,
       run.finished_at, run.failure ->> 'kind' AS failure_kind,
       run.failure ->> 'message' AS failure_message, run.cancel_reason,
       run_report.progress, run.failure, run.output, run.trace_id,
       coalesce(run_report.log_dropped, 0) AS log_dropped, run.reissued, run.begun_elsewhere,
       run.lease_id,
       lease.last_heard_at, work_queue.manifest, work_queue.cause, work_queue.input,
       work_queue.state AS work_state, work_queue.outcome AS work_outcome,
       coalesce(work_queue.terms -> 'retry', '{}') AS retry,
       coalesce((work_queue.terms -> 'timeout_seconds')::double precision, 0) AS timeout_seconds,
       work_queue.queued_at, work_queue.received_at, work_queue.not_before,
       work_queue.terms ->> 'on_dead_letter' AS on_dead_letter,
       (SELECT occurrence.decided_at FROM scheduler.occurrence
        WHERE occurrence.manifest_id = work_queue.manifest_id
          AND occurrence.cause = work_queue.cause) AS decided_at,
       (SELECT waiting.reason FROM dispatcher.waiting WHERE waiting.id = work_queue.id)
           AS wait_reason,
       letter.id AS dead_letter, letter.state AS letter_state, letter.round AS letter_round
FROM dispatcher.run
JOIN dispatcher.work_queue ON work_queue.id = run.work_id
LEFT JOIN dispatcher.run_report ON run_report.run_id = run.run_id
LEFT JOIN dispatcher.lease ON lease.id = run.lease_id
LEFT JOIN LATERAL (
    SELECT dead_letter.id, dead_letter.state, dead_letter.round FROM dispatcher.dead_letter
    WHERE dead_letter.work_id = work_queue.id
    ORDER BY dead_letter.round = run.round DESC, dead_letter.round DESC
    LIMIT 1
) AS letter ON true
WHERE run.run_id = $1

-- name: attempts
-- The latest runs of a piece of work, the oldest first. $1 work, $2 limit.
SELECT * FROM (
    SELECT run.run_id, run.work_id, run.round, run.attempt,
           run.group_name, run.job, run.state, run.worker, run.host,
           run.due_at, run.created_at, run.started_at, run.finished_at,
           run.failure ->> 'kind' AS failure_kind,
           left(run.failure ->> 'message', 2000) AS failure_message, run.cancel_reason,
           run_report.progress, work_queue.manifest, work_queue.cause
    FROM dispatcher.run
    JOIN dispatcher.work_queue ON work_queue.id = run.work_id
    LEFT JOIN dispatcher.run_report ON run_report.run_id = run.run_id
    WHERE run.work_id = $1
    ORDER BY run.created_at DESC, run.run_id DESC
    LIMIT $2
) AS latest
ORDER BY created_at, run_id

-- name: lease_runs
-- Other runs of a lease, the oldest first. $1 lease, $2 the run that is not listed, $3 limit.
SELECT run.run_id, run.work_id, run.round, run.attempt, run.group_name, run.job, run.state,
       run.worker, run.host, run.due_at, run.created_at, run.started_at, run.finished_at,
       run.failure ->> 'kind' AS failure_kind, NULL AS failure_message, run.cancel_reason,
       NULL::jsonb AS progress, work_queue.manifest, work_queue.cause
FROM (
    SELECT * FROM dispatcher.run
    WHERE run.lease_id = $1 AND run.run_id <> $2
    LIMIT $3
) AS run
JOIN dispatcher.work_queue ON work_queue.id = run.work_id
ORDER BY run.started_at, run.created_at, run.run_id

-- name: events
-- The events of a piece of work and of the leases of its runs, the oldest first. Events of a lease
-- with several runs name no work. $1 work, $2 limit.
SELECT (row.history).id, part.*, (row.history).recorded_at, (row.history).accepted,
       (row.history).refusal
FROM (
    (SELECT history FROM dispatcher.history WHERE work_id = $1 ORDER BY id DESC LIMIT $2)
    UNION ALL
    (SELECT history FROM dispatcher.history
     WHERE lease_id = ANY(ARRAY(SELECT lease_id FROM dispatcher.run WHERE work_id = $1))
       AND work_id IS NULL ORDER BY id DESC LIMIT $2)
) AS row
CROSS JOIN LATERAL dispatcher.event_parts(row.history) AS part
WHERE part.type <> 'headway.history.snapshot.v1' AND (part.work_id = $1 OR part.work_id IS NULL)
ORDER BY 1

-- name: log
-- Log lines of a run, in order. $1 run, $2 numbers after this one, $3 limit.
SELECT number, at, level, message, fields FROM dispatcher.run_log
WHERE run_id = $1 AND number > $2
ORDER BY number
LIMIT $3

-- name: run_changes
-- The values of a run that change while it is open in a browser; no row for an unknown run. $1 run.
SELECT run.state, run_report.progress::text AS progress, coalesce(run_report.log_dropped, 0) AS log_dropped, run.worker,
       work_queue.state AS work_state, work_queue.runs, work_queue.round,
       work_queue.cancel_requested_at,
       (SELECT max(number) FROM dispatcher.run_log WHERE run_log.run_id = $1) AS lines
FROM dispatcher.run
JOIN dispatcher.work_queue ON work_queue.id = run.work_id
LEFT JOIN dispatcher.run_report ON run_report.run_id = run.run_id
WHERE run.run_id = $1
