-- name: lock
-- One gate at a time, over all dispatchers. A statement of its own, before any that counts:
-- in one statement the snapshot would be older than the lock. $1 lock key.
SELECT pg_advisory_xact_lock($1)

-- name: active
-- Runs that hold a slot, by group and job, and how many of them the fleet has that takes
-- orders: unclaimed ones, and those claimed by a live process. $1 heard since.
SELECT metadata.group_name, metadata.job, count(*) AS runs,
       count(*) FILTER (WHERE lease.claimed_by IS NULL OR worker.name IS NOT NULL) AS on_fleet
FROM dispatcher.metadata
JOIN dispatcher.lease ON lease.id = metadata.lease_id
LEFT JOIN dispatcher.worker
    ON worker.name = lease.claimed_by AND worker.nonce = lease.nonce
   AND worker.last_heard_at > $1 AND NOT worker.draining
WHERE metadata.state IN ('pending', 'in_progress')
GROUP BY metadata.group_name, metadata.job

-- name: fleet
-- Live workers that take orders. $1 heard since.
SELECT jobs, slots FROM dispatcher.worker WHERE last_heard_at > $1 AND NOT draining

-- name: limits
-- The limits in force.
SELECT name, max_active, priority, enabled FROM dispatcher.group_limit

-- name: candidates
-- Work that may run now, group by group so that a full one is passed over without a scan.
-- $1 groups with room, $2 room of each, $3 jobs with room, $4 now, $5 how many.
SELECT work.*
FROM unnest($1::text[], $2::integer[]) AS open_group (name, room)
JOIN dispatcher.group_limit ON group_limit.name = open_group.name
CROSS JOIN LATERAL (
    SELECT id, round, manifest_id, manifest, group_name, job, input, input_schema, cause, due_at,
           retry, timeout_seconds, cancel_grace_seconds, on_lost_contact, attempts, rank,
           traceparent
    FROM dispatcher.work_queue
    WHERE work_queue.group_name = open_group.name
      AND work_queue.state IN ('queued', 'waiting')
      AND work_queue.not_before <= $4
      AND work_queue.job = ANY($3::text[])
    ORDER BY work_queue.rank
    LIMIT open_group.room
) AS work
ORDER BY group_limit.priority DESC, work.rank
LIMIT $5

-- name: add_leases
-- $1 ids, $2 tokens, $3 jobs, $4 now.
INSERT INTO dispatcher.lease (id, token, job, created_at)
SELECT made.*, $4 FROM unnest($1::uuid[], $2::text[], $3::text[]) AS made

-- name: add_runs
-- $1 runs, $2 work, $3 leases, $4 manifests, $5 groups, $6 jobs, $7 rounds, $8 attempts,
-- $9 due times, $10 trace ids, $11 how long they may take, $12 now.
INSERT INTO dispatcher.metadata
    (run_id, work_id, lease_id, manifest_id, group_name, job, round, attempt, due_at, trace_id,
     patience_seconds, state, created_at)
SELECT made.*, 'pending', $12
FROM unnest($1::uuid[], $2::uuid[], $3::uuid[], $4::uuid[], $5::text[], $6::text[], $7::integer[],
            $8::integer[], $9::timestamptz[], $10::text[], $11::double precision[]) AS made

-- name: dispatch
-- Work that now has a run, unless it was settled since it was looked at; returns the ids of
-- what has. Locked in a fixed order. $1 work ids, $2 runs.
UPDATE dispatcher.work_queue
SET state = 'dispatched', run_id = waiting.run_id, runs = runs + 1, wait_reason = NULL
FROM (
    SELECT work_queue.id, made.run_id
    FROM dispatcher.work_queue
    JOIN unnest($1::uuid[], $2::uuid[]) AS made (id, run_id) ON made.id = work_queue.id
    WHERE work_queue.state IN ('queued', 'waiting')
    ORDER BY work_queue.id
    FOR UPDATE OF work_queue
) AS waiting
WHERE work_queue.id = waiting.id
RETURNING work_queue.id

-- name: hold
-- Why work waits, where the reason is a new one. It is only for people, so rows that somebody
-- else is at are left for the next time. $1 work ids, $2 reasons.
UPDATE dispatcher.work_queue
SET wait_reason = held.reason
FROM (
    SELECT work_queue.id, told.reason
    FROM dispatcher.work_queue
    JOIN unnest($1::uuid[], $2::text[]) AS told (id, reason) ON told.id = work_queue.id
    WHERE work_queue.wait_reason <> told.reason
    FOR UPDATE OF work_queue SKIP LOCKED
) AS held
WHERE work_queue.id = held.id

-- name: explain_waits
-- Why work waits that is no candidate: its group has no room, no live worker serves its job,
-- or those that do have enough. Rows that somebody else is at are left for the next time.
-- $1 groups without room, $2 the reason of each, $3 jobs that live workers serve, $4 those of
-- them with room, $5 now, $6 how many.
UPDATE dispatcher.work_queue
SET wait_reason = held.reason
FROM (
    SELECT work_queue.id, why.reason
    FROM dispatcher.work_queue
    LEFT JOIN unnest($1::text[], $2::text[]) AS full_group (name, reason)
        ON full_group.name = work_queue.group_name
    CROSS JOIN LATERAL (
        SELECT coalesce(
            full_group.reason,
            CASE WHEN NOT work_queue.job = ANY($3::text[]) THEN 'no_worker'
                 WHEN NOT work_queue.job = ANY($4::text[]) THEN 'workers_full' END) AS reason
    ) AS why
    WHERE work_queue.state IN ('queued', 'waiting')
      AND work_queue.not_before <= $5
      AND work_queue.wait_reason <> why.reason
    LIMIT $6
    FOR UPDATE OF work_queue SKIP LOCKED
) AS held
WHERE work_queue.id = held.id

-- name: earliest
-- When the first of the waiting work may run, or might have.
SELECT min(not_before) FROM dispatcher.work_queue WHERE state IN ('queued', 'waiting')

-- name: next_not_before
-- When the next delayed work may run. $1 now.
SELECT min(not_before) FROM dispatcher.work_queue
WHERE state IN ('queued', 'waiting') AND not_before > $1
