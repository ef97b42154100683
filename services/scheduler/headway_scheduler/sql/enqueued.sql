-- name: any
-- Whether enqueued work waits to be taken up.
SELECT EXISTS (SELECT FROM scheduler.enqueued WHERE state = 'waiting')

-- name: take
-- The work that has waited longest and that no other scheduler takes up, with its job and its age.
-- Input and terms come as text, so that a row that cannot be decoded does not affect the others; the
-- schema too, because rows share it. $1 how many.
SELECT taken.work_id, taken.cause, taken.job, taken.key, taken.input::text, taken.group_name,
       taken.priority, taken.delay, taken.not_before, taken.start_by, taken.traceparent,
       clock_timestamp() - taken.enqueued_at AS age, job.retired_at,
       job.input_schema::text, job.takes_input, job.terms::text
FROM (
    SELECT * FROM scheduler.enqueued
    WHERE state = 'waiting'
    ORDER BY enqueued_at
    LIMIT $1
    FOR UPDATE SKIP LOCKED
) AS taken
LEFT JOIN scheduler.job ON job.name = taken.job
ORDER BY taken.enqueued_at, taken.work_id

-- name: lock_waiting
-- Lock work that waits to be taken up: one piece, or all of a group. $1 work id (null for all), $2
-- group (null for all).
SELECT waiting.work_id, waiting.cause,
       coalesce(waiting.group_name, job.terms ->> 'group', waiting.job) AS group_name
FROM scheduler.enqueued AS waiting
LEFT JOIN scheduler.job ON job.name = waiting.job
WHERE waiting.state = 'waiting'
  AND (waiting.work_id = $1
       OR coalesce(waiting.group_name, job.terms ->> 'group', waiting.job) = $2)
ORDER BY waiting.work_id
FOR UPDATE OF waiting

-- name: queued
-- Mark work as queued, with the group and the date that were announced, whatever its job states
-- later. The row is kept until the work is settled, in case its message is lost. $1 work ids, $2
-- their groups, $3 their dates (schedule time), $4 now.
UPDATE scheduler.enqueued
SET state = 'queued', group_name = stated.group_name, queued_at = stated.queued_at, decided_at = $4
FROM unnest($1::uuid[], $2::text[], $3::timestamptz[]) AS stated (work_id, group_name, queued_at)
WHERE enqueued.work_id = stated.work_id

-- name: settled
-- Delete the rows of settled work; rows with a key stay without their input. $1 work ids, $2 now.
WITH without_key AS (
    DELETE FROM scheduler.enqueued WHERE work_id = ANY($1::uuid[]) AND key IS NULL
)
UPDATE scheduler.enqueued SET input = NULL, settled_at = $2
WHERE work_id = ANY($1::uuid[]) AND key IS NOT NULL

-- name: outstanding
-- Enqueued work that is queued and not settled, as it was taken up; locked. $1 work ids.
SELECT kept.work_id, kept.cause, kept.job, kept.key, kept.input::text, kept.group_name,
       kept.priority, kept.delay, kept.not_before, kept.start_by, kept.traceparent,
       coalesce(kept.queued_at, kept.enqueued_at) AS queued_at,
       job.input_schema::text, job.takes_input, job.terms::text
FROM scheduler.enqueued AS kept
JOIN scheduler.work ON work.id = kept.work_id
LEFT JOIN scheduler.job ON job.name = kept.job
WHERE kept.work_id = ANY($1::uuid[]) AND kept.state = 'queued'
ORDER BY work.id
FOR UPDATE OF work

-- name: dismiss
-- Delete refused work. $1 work id.
DELETE FROM scheduler.enqueued WHERE work_id = $1

-- name: refuse
-- Mark work as refused. $1 work ids, $2 reasons, $3 now.
UPDATE scheduler.enqueued
SET state = 'refused', reason = stated.reason, decided_at = $3
FROM unnest($1::uuid[], $2::text[]) AS stated (work_id, reason)
WHERE enqueued.work_id = stated.work_id

-- name: look_again
-- Let refused work wait again whose job was declared differently.
UPDATE scheduler.enqueued
SET state = 'waiting', reason = NULL, decided_at = NULL
FROM scheduler.job
WHERE enqueued.state = 'refused' AND job.name = enqueued.job
  AND job.declared_at > enqueued.decided_at

-- name: enqueue
-- Enqueue work as an application would. $1 job, $2 input, $3 group, $4 priority, $5 delay, $6 not
-- before, $7 start by, $8 key, $9 trace context.
SELECT headway.enqueue($1, $2::jsonb, $3, $4, $5, $6, $7, $8, $9)

-- name: is_known
-- Whether a key of a job has work. $1 job, $2 key.
SELECT EXISTS (SELECT FROM scheduler.enqueued WHERE job = $1 AND key = $2)

-- name: lock_refused
-- Lock refused work. $1 work id.
SELECT job, key, reason FROM scheduler.enqueued
WHERE work_id = $1 AND state = 'refused'
FOR UPDATE

-- name: forget
-- Delete keys whose work was settled long ago. $1 settled before, $2 how many at once.
DELETE FROM scheduler.enqueued
WHERE work_id IN (
    SELECT work_id FROM scheduler.enqueued
    WHERE state = 'queued' AND coalesce(settled_at, decided_at) < $1
      AND NOT EXISTS (SELECT FROM scheduler.work WHERE work.id = enqueued.work_id)
    LIMIT $2)

-- name: role_is_missing
-- Whether the role for applications is missing, or may not enqueue.
SELECT to_regrole('headway_enqueue') IS NULL
    OR NOT has_schema_privilege(to_regrole('headway_enqueue'), 'headway', 'USAGE')
    OR NOT has_function_privilege(to_regrole('headway_enqueue'),
                                  'headway.enqueue'::regproc, 'EXECUTE')
