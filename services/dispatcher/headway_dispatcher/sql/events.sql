-- name: last_number
-- The number of the newest event that can be seen; zero if there is none.
SELECT coalesce((SELECT id FROM dispatcher.history ORDER BY id DESC LIMIT 1), 0)

-- name: numbers
-- Which numbers above one can be seen. $1 above this, $2 how many.
SELECT id FROM dispatcher.history WHERE id > $1 ORDER BY id LIMIT $2

-- name: these
-- Those of some events that fit the filters, each of which may be null. $1 numbers, $2 types
-- (patterns), $3 job, $4 work, $5 run.
SELECT id, event_id, type, subject, source, occurred_at, recorded_at, accepted, refusal, work_id,
       run_id, lease_id, data
FROM dispatcher.history
WHERE id = ANY($1::bigint[])
  AND ($2::text[] IS NULL OR type LIKE ANY($2))
  AND ($3::text IS NULL OR data ->> 'job' = $3
       OR EXISTS (SELECT FROM dispatcher.work_queue
                  WHERE work_queue.id = history.work_id AND work_queue.job = $3))
  AND ($4::uuid IS NULL OR work_id = $4)
  AND ($5::uuid IS NULL OR run_id = $5)
ORDER BY id

-- name: latest
-- The newest events below a number that fit the filters, newest first. $1 below this, $2 types
-- (patterns), $3 job, $4 work, $5 run, $6 since, $7 how many. Each filter may be null.
SELECT id, event_id, type, subject, source, occurred_at, recorded_at, accepted, refusal, work_id,
       run_id, lease_id, data
FROM dispatcher.history
WHERE id < $1
  AND ($2::text[] IS NULL OR type LIKE ANY($2))
  AND ($3::text IS NULL OR data ->> 'job' = $3
       OR EXISTS (SELECT FROM dispatcher.work_queue
                  WHERE work_queue.id = history.work_id AND work_queue.job = $3))
  AND ($4::uuid IS NULL OR work_id = $4)
  AND ($5::uuid IS NULL OR run_id = $5)
  AND ($6::timestamptz IS NULL OR recorded_at >= $6)
ORDER BY id DESC
LIMIT $7

-- name: span
-- What was recorded in a span of time, in the order of numbers. $1 above this number, $2 since,
-- $3 until (both may be null), $4 how many.
SELECT id, event_id, type, subject, source, occurred_at, recorded_at, accepted, refusal, work_id,
       run_id, lease_id, data
FROM dispatcher.history
WHERE id > $1
  AND ($2::timestamptz IS NULL OR recorded_at >= $2)
  AND ($3::timestamptz IS NULL OR recorded_at < $3)
ORDER BY id
LIMIT $4
