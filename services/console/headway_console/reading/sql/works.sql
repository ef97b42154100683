-- name: unsettled
-- Unsettled work, the newest first, with its wait reason. Text is searched in a bounded number of
-- the work that matches. $1 state, $2 group, $3 job, $4 manifest, $5 wait reason (each null for
-- any), $6 and $7 time and id of the cursor, $8 text in the input (a pattern or null), $9 number of
-- works to search, $10 limit.
SELECT searched.* FROM (
    SELECT work_queue.id, work_queue.round, work_queue.manifest, work_queue.group_name,
           work_queue.job, work_queue.cause, work_queue.state, waiting.reason AS wait_reason,
           work_queue.outcome, work_queue.priority, work_queue.attempts, work_queue.runs,
           work_queue.run_id, work_queue.due_at, work_queue.queued_at, work_queue.not_before,
           work_queue.settled_at, work_queue.cancel_requested_at, work_queue.cancel_reason
    FROM dispatcher.unsettled AS work_queue
    LEFT JOIN dispatcher.waiting ON waiting.id = work_queue.id
    WHERE ($1::text IS NULL OR work_queue.state = $1)
      AND ($2::text IS NULL OR work_queue.group_name = $2)
      AND ($3::text IS NULL OR work_queue.job = $3)
      AND ($4::uuid IS NULL OR work_queue.manifest_id = $4)
      AND ($5::text IS NULL OR waiting.reason = $5)
      AND ($6::timestamptz IS NULL OR (work_queue.queued_at, work_queue.id) < ($6, $7::uuid))
    ORDER BY work_queue.queued_at DESC, work_queue.id DESC
    LIMIT $9
) AS searched
WHERE $8::text IS NULL
   OR (SELECT input::text FROM dispatcher.work_queue WHERE work_queue.id = searched.id) ILIKE $8
ORDER BY searched.queued_at DESC, searched.id DESC
LIMIT $10

-- name: unsettled_reached
-- The last work that the same search has read; no row if it has read everything. $1 state, $2
-- group, $3 job, $4 manifest, $5 wait reason, $6 and $7 time and id of the cursor, $8 number of
-- works to search.
SELECT work_queue.queued_at, work_queue.id
FROM dispatcher.unsettled AS work_queue
LEFT JOIN dispatcher.waiting ON waiting.id = work_queue.id
WHERE ($1::text IS NULL OR work_queue.state = $1)
  AND ($2::text IS NULL OR work_queue.group_name = $2)
  AND ($3::text IS NULL OR work_queue.job = $3)
  AND ($4::uuid IS NULL OR work_queue.manifest_id = $4)
  AND ($5::text IS NULL OR waiting.reason = $5)
  AND ($6::timestamptz IS NULL OR (work_queue.queued_at, work_queue.id) < ($6, $7::uuid))
ORDER BY work_queue.queued_at DESC, work_queue.id DESC
OFFSET $8 - 1
LIMIT 1

-- name: settled
-- Settled work, the latest first; the filters search a bounded number. $1 outcome, $2 group, $3
-- job, $4 manifest (each null for any), $5 and $6 time and id of the cursor, $7 text in the input
-- (a pattern or null), $8 number of works to search, $9 limit.
SELECT id, round, manifest, group_name, job, cause, state, NULL AS wait_reason, outcome, priority,
       attempts, runs, run_id, due_at, queued_at, not_before, settled_at, cancel_requested_at,
       cancel_reason
FROM (
    SELECT * FROM dispatcher.work_queue
    WHERE work_queue.state = 'settled'
      AND ($5::timestamptz IS NULL OR (work_queue.settled_at, work_queue.id) < ($5, $6::uuid))
    ORDER BY work_queue.settled_at DESC, work_queue.id DESC
    LIMIT $8
) AS searched
WHERE ($1::text IS NULL OR searched.outcome = $1)
  AND ($2::text IS NULL OR searched.group_name = $2)
  AND ($3::text IS NULL OR searched.job = $3)
  AND ($4::uuid IS NULL OR searched.manifest_id = $4)
  AND ($7::text IS NULL OR searched.input::text ILIKE $7)
ORDER BY searched.settled_at DESC, searched.id DESC
LIMIT $9

-- name: reached
-- The last work that the same search has read; no row if it has read everything. $1 and $2 time and
-- id of the cursor, $3 number of works to search.
SELECT settled_at, id FROM dispatcher.work_queue
WHERE work_queue.state = 'settled'
  AND ($1::timestamptz IS NULL OR (work_queue.settled_at, work_queue.id) < ($1, $2::uuid))
ORDER BY work_queue.settled_at DESC, work_queue.id DESC
OFFSET $3 - 1
LIMIT 1

-- name: work
-- One piece of work with its latest run, by its id or by that of a run. $1 id.
SELECT work_queue.id, work_queue.round, work_queue.manifest, work_queue.group_name, work_queue.job,
       work_queue.cause, work_queue.state, waiting.reason AS wait_reason, work_queue.outcome,
       work_queue.priority, work_queue.attempts, work_queue.runs, work_queue.run_id,
       work_queue.due_at, work_queue.queued_at, work_queue.not_before, work_queue.settled_at,
       work_queue.cancel_requested_at, work_queue.cancel_reason, work_queue.input,
       coalesce(work_queue.terms -> 'retry', '{}') AS retry,
       coalesce((work_queue.terms -> 'timeout_seconds')::double precision, 0) AS timeout_seconds,
       ARRAY(SELECT dead_letter.id FROM dispatcher.dead_letter
             WHERE dead_letter.work_id = work_queue.id ORDER BY dead_letter.round DESC)
           AS dead_letters
FROM dispatcher.work_queue
LEFT JOIN dispatcher.waiting ON waiting.id = work_queue.id
WHERE work_queue.id = $1
   OR work_queue.id = (SELECT work_id FROM dispatcher.run WHERE run_id = $1)

-- name: waiting_by_reason
-- Waiting work by group and reason. $1 limit of the count.
SELECT few.group_name, few.reason, count(*) AS works
FROM (SELECT group_name, reason FROM dispatcher.waiting LIMIT $1) AS few
GROUP BY few.group_name, few.reason
ORDER BY few.group_name, works DESC, few.reason

-- name: enqueued
-- Enqueued work that waits to be queued or was refused, the oldest first. $1 true for refused work
-- only, $2 and $3 time and id of the cursor, $4 limit.
SELECT work_id, job, key, group_name, enqueued_by, enqueued_at, state, reason
FROM scheduler.enqueued
WHERE (state = 'refused' OR (state = 'waiting' AND NOT $1))
  AND ($2::timestamptz IS NULL OR (enqueued_at, work_id) > ($2, $3::uuid))
ORDER BY enqueued_at, work_id
LIMIT $4
