-- name: live
-- Runs that have not ended, the newest first: there are never many. $1 state, $2 group, $3 job,
-- $4 manifest, $5 worker (null where any will do), $6 created since, $7 created before, $8 and $9
-- after this time and id, $10 text in the input (a pattern), $11 how many.
SELECT metadata.run_id, metadata.work_id, metadata.round, metadata.attempt, metadata.group_name,
       metadata.job, metadata.state, coalesce(metadata.worker, (
           SELECT lease.claimed_by FROM dispatcher.lease
           WHERE lease.id = metadata.lease_id)) AS worker,
       metadata.host, metadata.due_at, metadata.created_at, metadata.started_at,
       metadata.finished_at, NULL AS failure_kind, NULL AS failure_message, metadata.cancel_reason,
       metadata.progress, work_queue.manifest, work_queue.cause
FROM dispatcher.metadata
JOIN dispatcher.work_queue ON work_queue.id = metadata.work_id
WHERE metadata.state IN ('pending', 'in_progress')
  AND ($1::text IS NULL OR metadata.state = $1)
  AND ($2::text IS NULL OR metadata.group_name = $2)
  AND ($3::text IS NULL OR metadata.job = $3)
  AND ($4::uuid IS NULL OR metadata.manifest_id = $4)
  AND ($5::text IS NULL OR coalesce(metadata.worker, (
           SELECT lease.claimed_by FROM dispatcher.lease
           WHERE lease.id = metadata.lease_id)) = $5)
  AND ($6::timestamptz IS NULL OR metadata.created_at >= $6)
  AND ($7::timestamptz IS NULL OR metadata.created_at < $7)
  AND ($8::timestamptz IS NULL OR (metadata.created_at, metadata.run_id) < ($8, $9::uuid))
  AND ($10::text IS NULL OR work_queue.input::text ILIKE $10)
ORDER BY metadata.created_at DESC, metadata.run_id DESC
LIMIT $11

-- name: ended
-- Runs that have ended, the newest first. What an index finds is found in full; the worker and the
-- text are looked for among so many of those. $1 state, $2 group, $3 job, $4 manifest, $5 worker
-- (null where any will do), $6 created since, $7 created before, $8 and $9 after this time and id,
-- $10 text in the error (a pattern), $11 text in the input, $12 among how many, $13 how many.
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
        ORDER BY metadata.created_at DESC, metadata.run_id DESC
        LIMIT $12
    ) AS looked_at
    WHERE ($5::text IS NULL OR looked_at.worker = $5)
      AND (($10::text IS NULL AND $11::text IS NULL)
           OR (looked_at.failure ->> 'kind') || ': ' || (looked_at.failure ->> 'message') ILIKE $10
           OR (SELECT input::text FROM dispatcher.work_queue
               WHERE work_queue.id = looked_at.work_id) ILIKE $11)
    ORDER BY looked_at.created_at DESC, looked_at.run_id DESC
    LIMIT $13
) AS page
JOIN dispatcher.work_queue ON work_queue.id = page.work_id
ORDER BY page.created_at DESC, page.run_id DESC

-- name: reached
-- The last run that the same search has looked at; none if it has looked at all. $1 state,
-- $2 group, $3 job, $4 manifest, $5 created since, $6 created before, $7 and $8 after this time
-- and id, $9 among how many.
SELECT created_at, run_id FROM dispatcher.metadata
WHERE metadata.finished_at IS NOT NULL
  AND ($1::text IS NULL OR metadata.state = $1)
  AND ($2::text IS NULL OR metadata.group_name = $2)
  AND ($3::text IS NULL OR metadata.job = $3)
  AND ($4::uuid IS NULL OR metadata.manifest_id = $4)
  AND ($5::timestamptz IS NULL OR metadata.created_at >= $5)
  AND ($6::timestamptz IS NULL OR metadata.created_at < $6)
  AND ($7::timestamptz IS NULL OR (metadata.created_at, metadata.run_id) < ($7, $8::uuid))
ORDER BY metadata.created_at DESC, metadata.run_id DESC
OFFSET $9 - 1
LIMIT 1
