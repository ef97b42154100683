-- name: unsettled
-- Work that is not settled, the newest first, and what it waits for. $1 state, $2 group, $3 job,
-- $4 manifest, $5 why it waits (null where any will do), $6 and $7 after this time and id, $8 limit.
SELECT work_queue.id, work_queue.round, work_queue.manifest, work_queue.group_name, work_queue.job,
       work_queue.cause, work_queue.state, waiting.reason AS wait_reason, work_queue.outcome,
       work_queue.priority, work_queue.attempts, work_queue.runs, work_queue.run_id,
       work_queue.due_at, work_queue.queued_at, work_queue.not_before, work_queue.settled_at,
       work_queue.cancel_requested_at, work_queue.cancel_reason
FROM dispatcher.work_queue
LEFT JOIN dispatcher.waiting ON waiting.id = work_queue.id
WHERE work_queue.state <> 'settled'
  AND ($1::text IS NULL OR work_queue.state = $1)
  AND ($2::text IS NULL OR work_queue.group_name = $2)
  AND ($3::text IS NULL OR work_queue.job = $3)
  AND ($4::uuid IS NULL OR work_queue.manifest_id = $4)
  AND ($5::text IS NULL OR waiting.reason = $5)
  AND ($6::timestamptz IS NULL OR (work_queue.queued_at, work_queue.id) < ($6, $7::uuid))
ORDER BY work_queue.queued_at DESC, work_queue.id DESC
LIMIT $8

-- name: settled
-- Work that is settled, the latest first; looked for among so many. $1 outcome, $2 group, $3 job,
-- $4 manifest (null where any will do), $5 and $6 after this time and id, $7 among how many,
-- $8 how many.
SELECT id, round, manifest, group_name, job, cause, state, NULL AS wait_reason, outcome, priority,
       attempts, runs, run_id, due_at, queued_at, not_before, settled_at, cancel_requested_at,
       cancel_reason
FROM (
    SELECT * FROM dispatcher.work_queue
    WHERE work_queue.state = 'settled'
      AND ($5::timestamptz IS NULL OR (work_queue.settled_at, work_queue.id) < ($5, $6::uuid))
    ORDER BY work_queue.settled_at DESC, work_queue.id DESC
    LIMIT $7
) AS looked_at
WHERE ($1::text IS NULL OR looked_at.outcome = $1)
  AND ($2::text IS NULL OR looked_at.group_name = $2)
  AND ($3::text IS NULL OR looked_at.job = $3)
  AND ($4::uuid IS NULL OR looked_at.manifest_id = $4)
ORDER BY looked_at.settled_at DESC, looked_at.id DESC
LIMIT $8

-- name: reached
-- The last work that the same search has looked at; none if it has looked at all. $1 and $2 after
-- this time and id, $3 among how many.
SELECT settled_at, id FROM dispatcher.work_queue
WHERE work_queue.state = 'settled'
  AND ($1::timestamptz IS NULL OR (work_queue.settled_at, work_queue.id) < ($1, $2::uuid))
ORDER BY work_queue.settled_at DESC, work_queue.id DESC
OFFSET $3 - 1
LIMIT 1

-- name: work
-- One piece of work, by its id or by that of a run of it, with its latest run. $1 id.
SELECT work_queue.id, work_queue.round, work_queue.manifest, work_queue.group_name, work_queue.job,
       work_queue.cause, work_queue.state, waiting.reason AS wait_reason, work_queue.outcome,
       work_queue.priority, work_queue.attempts, work_queue.runs, work_queue.run_id,
       work_queue.due_at, work_queue.queued_at, work_queue.not_before, work_queue.settled_at,
       work_queue.cancel_requested_at, work_queue.cancel_reason, work_queue.input,
       coalesce(work_queue.terms -> 'retry', '{}') AS retry,
       coalesce((work_queue.terms -> 'timeout_seconds')::double precision, 0) AS timeout_seconds,
       work_queue.manifest_id,
       work_queue.start_by, work_queue.concurrency_key, work_queue.concurrency_limit,
       ARRAY(SELECT dead_letter.id FROM dispatcher.dead_letter
             WHERE dead_letter.work_id = work_queue.id ORDER BY dead_letter.round DESC)
           AS dead_letters
FROM dispatcher.work_queue
LEFT JOIN dispatcher.waiting ON waiting.id = work_queue.id
WHERE work_queue.id = $1
   OR work_queue.id = (SELECT work_id FROM dispatcher.metadata WHERE run_id = $1)

-- name: waiting_by_reason
-- How much waits for what, in each group; counted no further than so many. $1 how far to count.
SELECT few.group_name, few.reason, count(*) AS works
FROM (SELECT group_name, reason FROM dispatcher.waiting LIMIT $1) AS few
GROUP BY few.group_name, few.reason
ORDER BY few.group_name, works DESC, few.reason
