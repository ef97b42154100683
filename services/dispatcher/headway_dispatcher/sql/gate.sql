-- name: look
-- Return whether the gate has something to do: ready work, changed keys, and the next `not_before`
-- and `start_by`.
SELECT clock_timestamp() AS now,
       EXISTS (SELECT FROM dispatcher.work_queue
               WHERE state IN ('queued', 'waiting') AND hold_reason IS NULL) AS ready,
       EXISTS (SELECT FROM dispatcher.key_changed) AS keys_changed,
       (SELECT min(not_before) FROM dispatcher.work_queue
        WHERE state IN ('queued', 'waiting') AND hold_reason = 'not_before') AS not_before,
       (SELECT min(start_by) FROM dispatcher.work_queue
        WHERE state IN ('queued', 'waiting') AND start_by IS NOT NULL AND attempts = 0) AS start_by

-- name: situation
-- Return everything that the gate needs before it reads work, in one round trip: active leases by
-- group and by job, those that are unclaimed or held by the fleet, and the live workers that accept
-- orders, with their leases. A lease has one job and may have several groups. Limits include only
-- groups and jobs that have one, or a known duration. $1 longest silence of a live worker.
WITH here AS MATERIALIZED (
    SELECT name, nonce, jobs, slots, concurrency FROM dispatcher.worker
    WHERE NOT gone AND NOT draining AND last_heard_at > clock_timestamp() - $1::interval
), live AS MATERIALIZED (
    SELECT lease.job, lease.groups, lease.claimed_by, lease.nonce,
           lease.claimed_by IS NULL OR here.name IS NOT NULL AS on_fleet
    FROM dispatcher.lease
    LEFT JOIN here ON here.name = lease.claimed_by AND here.nonce = lease.nonce
    WHERE lease.ended_at IS NULL
)
SELECT clock_timestamp() AS now,
       (SELECT jsonb_object_agg(name, number)
        FROM (SELECT unnest(groups) AS name, count(*) AS number FROM live GROUP BY 1) AS by_group)
           AS active_groups,
       (SELECT jsonb_object_agg(job, number)
        FROM (SELECT job, count(*) AS number FROM live GROUP BY job) AS by_job) AS active_jobs,
       (SELECT jsonb_object_agg(job, number)
        FROM (SELECT job, count(*) AS number FROM live WHERE on_fleet GROUP BY job) AS by_job)
           AS leases_on_fleet,
       (SELECT jsonb_agg(jsonb_build_object('jobs', here.jobs, 'slots', here.slots,
                                            'concurrency', here.concurrency,
                                            'held', coalesce(holding.held, '{}')))
        FROM here
        LEFT JOIN (
            SELECT claimed_by, nonce, jsonb_object_agg(job, number) AS held
            FROM (SELECT claimed_by, nonce, job, count(*) AS number FROM live
                  WHERE claimed_by IS NOT NULL
                  GROUP BY claimed_by, nonce, job) AS by_job
            GROUP BY claimed_by, nonce
        ) AS holding ON holding.claimed_by = here.name AND holding.nonce = here.nonce)
           AS fleet,
       (SELECT jsonb_object_agg(
                   group_limit.name,
                   jsonb_build_object('max_active', max_active, 'enabled', enabled, 'rate', rate,
                                      'begun', coalesce(begun, '[]')))
        FROM dispatcher.group_limit
        LEFT JOIN dispatcher.rate_use ON kind = 'group' AND rate_use.name = group_limit.name
        WHERE max_active IS NOT NULL OR NOT enabled OR rate IS NOT NULL) AS groups,
       (SELECT jsonb_object_agg(
                   job_limit.name,
                   jsonb_build_object('max_active', max_active, 'rate', rate,
                                      'begun', coalesce(begun, '[]'),
                                      'counts_globally', counts_globally, 'batch', batch,
                                      'seconds', job_duration.seconds))
        FROM dispatcher.job_limit
        LEFT JOIN dispatcher.job_duration ON job_duration.job = job_limit.name
        LEFT JOIN dispatcher.rate_use ON kind = 'job' AND rate_use.name = job_limit.name
        WHERE max_active IS NOT NULL OR rate IS NOT NULL OR NOT counts_globally
           OR batch IS NOT NULL OR job_duration.job IS NOT NULL)
           AS jobs,
       EXISTS (SELECT FROM dispatcher.key_changed) AS keys_changed,
       (SELECT min(not_before) FROM dispatcher.work_queue
        WHERE state IN ('queued', 'waiting') AND hold_reason = 'not_before') AS not_before,
       (SELECT min(start_by) FROM dispatcher.work_queue
        WHERE state IN ('queued', 'waiting') AND start_by IS NOT NULL AND attempts = 0) AS start_by

-- name: expired
-- Lock work that was not tried before its `start_by`; skip locked rows. The limit is a literal, so
-- that the planner knows it. $1 now.
SELECT id FROM dispatcher.work_queue
WHERE state IN ('queued', 'waiting') AND start_by IS NOT NULL AND attempts = 0 AND start_by <= $1
ORDER BY start_by
LIMIT 1000
FOR UPDATE SKIP LOCKED

-- name: release_due
-- Make work ready whose `not_before` has passed, or let it wait for its key; skip locked rows. The
-- limit is a literal, so that the planner knows it. Returns the number of rows. $1 now.
WITH due AS (
    SELECT id, concurrency_key FROM dispatcher.work_queue
    WHERE state IN ('queued', 'waiting') AND hold_reason = 'not_before' AND not_before <= $1
    ORDER BY not_before
    LIMIT 1000
    FOR UPDATE SKIP LOCKED
), noted AS (
    INSERT INTO dispatcher.key_changed (key)
    SELECT DISTINCT concurrency_key FROM due WHERE concurrency_key IS NOT NULL
), released AS (
    UPDATE dispatcher.work_queue
    SET hold_reason = CASE WHEN concurrency_key IS NOT NULL THEN 'key' END
    WHERE id = ANY(ARRAY(SELECT id FROM due))
    RETURNING id
)
SELECT count(*) FROM released

-- name: offer_keys
-- Make the first work that waits for a key ready in each lane, up to the room that active runs
-- leave. Ready work of other lanes does not count: those lanes may be closed, and the gate enforces
-- the limit. It checks only changed keys. Where limits differ, work without room blocks all work
-- behind it. A key whose row was locked is noted again. Ready work is found by a range that only
-- the key index has, and rows are locked by id only, so that no plan reads the backlog. Returns how
-- many changes there were, and how many keys were noted again. $1 limit.
WITH changed AS (
    DELETE FROM dispatcher.key_changed
    WHERE ctid = ANY(ARRAY(SELECT ctid FROM dispatcher.key_changed LIMIT $1))
    RETURNING key
), used AS (
    SELECT key, (SELECT count(DISTINCT lease_id) FROM dispatcher.work_queue
                 WHERE concurrency_key = key AND state = 'dispatched') AS active
    FROM (SELECT DISTINCT key FROM changed) AS distinct_key
), lane AS (
    SELECT used.key, head.group_name, head.job,
           CASE WHEN bool_and(head.concurrency_limit > used.active)
                         OVER (PARTITION BY used.key ORDER BY head.rank)
                THEN head.concurrency_limit - used.active ELSE 0 END AS room
    FROM used
    CROSS JOIN LATERAL dispatcher.first_for_key(used.key) AS head
), selected AS (
    SELECT lane.key, first.id
    FROM lane
    CROSS JOIN LATERAL (
        SELECT id, rank, row_number() OVER (ORDER BY rank) AS place FROM dispatcher.work_queue
        WHERE work_queue.concurrency_key = lane.key
          AND work_queue.group_name = lane.group_name AND work_queue.job = lane.job
          AND work_queue.state IN ('queued', 'waiting') AND work_queue.hold_reason = 'key'
        ORDER BY rank
        LIMIT lane.room
    ) AS first
    CROSS JOIN LATERAL (
        SELECT count(*) AS ready
        FROM (SELECT FROM dispatcher.work_queue
              WHERE (concurrency_key, group_name, job) >= (lane.key, lane.group_name, lane.job)
                AND (concurrency_key, group_name, job, rank)
                    <= (lane.key, lane.group_name, lane.job, first.rank)
                AND state IN ('queued', 'waiting') AND hold_reason IS NULL
                AND concurrency_key IS NOT NULL
              LIMIT lane.room) AS few
    ) AS before
    WHERE before.ready + first.place <= lane.room
), locked AS (
    SELECT id, state, hold_reason FROM dispatcher.work_queue
    WHERE id = ANY(ARRAY(SELECT id FROM selected))
    FOR UPDATE SKIP LOCKED
), handed_out AS (
    UPDATE dispatcher.work_queue SET hold_reason = NULL
    WHERE id = ANY(ARRAY(SELECT id FROM locked
                         WHERE state IN ('queued', 'waiting') AND hold_reason = 'key'))
), noted AS (
    INSERT INTO dispatcher.key_changed (key)
    SELECT DISTINCT key FROM selected
    WHERE NOT EXISTS (SELECT FROM locked WHERE locked.id = selected.id)
    RETURNING key
)
SELECT (SELECT count(*) FROM changed) AS changed, (SELECT count(*) FROM noted) AS left_over

-- name: lock_gate
-- Block the next pass of the gate until this transaction ends. $1 lock key.
SELECT pg_advisory_xact_lock($1)

-- name: candidates
-- Lock work that may run now, lane by lane; lanes without room are skipped. Priority counts as age:
-- a step of a manifest's priority is worth a minute, and a step of a group's priority outweighs all
-- of those. Locked rows are skipped, so the gate never waits for one. Rows are locked by id only,
-- so that no plan reads the backlog, and their state is checked afterwards, because it may have
-- changed. Work that must not wait as a spare order is left out if no slot is idle. The lists are
-- inside SELECTs, so that one generic plan serves any list: planning costs ten times as much. $1
-- groups with limits, $2 leases and $3 runs that each has room for, $4 whether each may have spare
-- orders, $5 jobs that can run, $6 runs that each has room for, $7 those for idle slots, $8 most
-- runs in a lease of each, $9 now, $10 limit, $11 age that one step of a group's priority is worth.
WITH chosen AS (
    SELECT first.id, first.rank - coalesce(group_limit.priority, 0) * $11::interval AS turn
    FROM dispatcher.ready_lane AS lane
    LEFT JOIN dispatcher.group_limit ON group_limit.name = lane.group_name
    JOIN unnest((SELECT $5::text[]), (SELECT $6::integer[]), (SELECT $7::integer[]),
                (SELECT $8::integer[]))
        AS open_job (name, runs, idle, lease_size) ON open_job.name = lane.job
    LEFT JOIN unnest((SELECT $1::text[]), (SELECT $2::integer[]), (SELECT $3::integer[]),
                     (SELECT $4::boolean[]))
        AS limited (name, leases, runs, spares) ON limited.name = lane.group_name
    CROSS JOIN LATERAL (
        SELECT id, rank, concurrency_key FROM dispatcher.work_queue
        WHERE work_queue.group_name = lane.group_name AND work_queue.job = lane.job
          AND work_queue.state IN ('queued', 'waiting') AND work_queue.hold_reason IS NULL
          AND (work_queue.start_by IS NULL OR work_queue.start_by > $9 OR work_queue.attempts > 0)
        ORDER BY work_queue.rank
        LIMIT least(limited.leases * open_job.lease_size, limited.runs,
                    CASE WHEN limited.spares IS FALSE THEN open_job.idle ELSE open_job.runs END)
    ) AS first
    WHERE first.concurrency_key IS NULL OR open_job.idle > 0
    ORDER BY turn
    LIMIT (SELECT $10::integer)
), locked AS (
    SELECT id, round, manifest_id, manifest, group_name, job, input, input_schema, cause, due_at,
           start_by, terms, attempts, traceparent, concurrency_key, exclusive_lease, explicit,
           state, hold_reason, rank
    FROM dispatcher.work_queue
    WHERE id = ANY(ARRAY(SELECT id FROM chosen))
    FOR UPDATE SKIP LOCKED
)
SELECT work.id, work.round, work.manifest, work.group_name, work.job, work.input::text AS input,
       work.input_schema, work.cause, work.due_at, work.start_by, work.terms::text AS terms,
       work.attempts, work.traceparent, work.concurrency_key,
       CASE WHEN work.concurrency_key IS NOT NULL
            THEN (SELECT count(DISTINCT lease_id) FROM dispatcher.work_queue AS active
                  WHERE active.concurrency_key = work.concurrency_key
                    AND active.state = 'dispatched')
            ELSE 0 END AS key_active,
       manifest_switch.manifest_id IS NOT NULL AND NOT work.explicit AS manifest_disabled,
       work.exclusive_lease, clock_timestamp() AS locked_at
FROM locked AS work
LEFT JOIN dispatcher.group_limit ON group_limit.name = work.group_name
LEFT JOIN dispatcher.manifest_switch
    ON manifest_switch.manifest_id = work.manifest_id AND NOT manifest_switch.enabled
WHERE work.state IN ('queued', 'waiting') AND work.hold_reason IS NULL
-- Not joined with the chosen ones: a plan for few rows would compare each with all others.
ORDER BY work.rank - coalesce(group_limit.priority, 0) * $11::interval

-- name: dispatch
-- Insert leases, and mark the work of their runs, which is already locked, as dispatched. $1 leases,
-- $2 tokens, $3 their jobs, $4 real time, $5 now, $6 work ids, $7 runs, $8 lease of each.
WITH dispatched AS (
    UPDATE dispatcher.work_queue
    SET state = 'dispatched', run_id = made.run_id, lease_id = made.lease_id, runs = runs + 1,
        wait_reason = NULL
    FROM unnest($6::uuid[], $7::uuid[], $8::uuid[]) AS made (work_id, run_id, lease_id)
    WHERE work_queue.id = made.work_id
    RETURNING work_queue.lease_id, work_queue.group_name
)
INSERT INTO dispatcher.lease (id, token, job, groups, created_at, ordered_at)
SELECT made.id, made.token, made.job, member.groups, $4, $5
FROM unnest($1::uuid[], $2::text[], $3::text[]) AS made (id, token, job)
JOIN (SELECT lease_id, array_agg(DISTINCT group_name) AS groups
      FROM dispatched GROUP BY lease_id) AS member ON member.lease_id = made.id

-- name: wait_for_key
-- Hold work, which is already locked, until a run with its key has ended. $1 work ids.
UPDATE dispatcher.work_queue SET hold_reason = 'key' WHERE id = ANY($1::uuid[])

-- name: write_rates
-- Store recent starts under rate limits. $1 kinds, $2 names, $3 starts, $4 times of the next
-- allowed start.
INSERT INTO dispatcher.rate_use (kind, name, begun, frees_at)
SELECT * FROM unnest($1::text[], $2::text[], $3::jsonb[], $4::timestamptz[])
ON CONFLICT (kind, name) DO UPDATE SET begun = excluded.begun, frees_at = excluded.frees_at

-- name: hold_disabled
-- Hold work of disabled manifests. It locks their switches first, so that a transaction that
-- enables one does not miss this work. A trigger notes the keys. $1 work ids.
WITH disabled AS (
    SELECT manifest_id FROM dispatcher.manifest_switch
    WHERE NOT enabled
      AND manifest_id IN (SELECT manifest_id FROM dispatcher.work_queue
                          WHERE id = ANY($1::uuid[]))
    ORDER BY manifest_id
    FOR SHARE
), selected AS (
    SELECT work_queue.id FROM dispatcher.work_queue
    JOIN disabled ON disabled.manifest_id = work_queue.manifest_id
    WHERE work_queue.id = ANY($1::uuid[]) AND NOT work_queue.explicit
      AND work_queue.state IN ('queued', 'waiting') AND work_queue.hold_reason IS NULL
    ORDER BY work_queue.id
    FOR UPDATE OF work_queue
)
UPDATE dispatcher.work_queue SET hold_reason = 'manifest_disabled'
WHERE id = ANY(ARRAY(SELECT id FROM selected))

-- name: lock_lanes
-- Try to lock the list of closed lanes. $1 lock key.
SELECT pg_try_advisory_xact_lock($1)

-- name: lanes
-- Return the lanes with ready work.
SELECT group_name, job FROM dispatcher.ready_lane

-- name: close_lanes
-- Store why lanes with ready work are closed; other lanes are open. It writes only changes. $1
-- groups, $2 jobs, $3 reasons, $4 now.
WITH closed AS (
    SELECT * FROM unnest($1::text[], $2::text[], $3::text[]) AS closed (group_name, job, reason)
), opened AS (
    DELETE FROM dispatcher.closed_lane
    WHERE NOT EXISTS (SELECT FROM closed WHERE closed.group_name = closed_lane.group_name
                                           AND closed.job = closed_lane.job)
)
INSERT INTO dispatcher.closed_lane AS known (group_name, job, reason, since)
SELECT group_name, job, reason, $4 FROM closed
ORDER BY group_name, job
ON CONFLICT (group_name, job) DO UPDATE SET reason = excluded.reason, since = excluded.since
WHERE known.reason <> excluded.reason

-- name: write_durations
-- Store how long runs of jobs take. $1 jobs, $2 seconds.
INSERT INTO dispatcher.job_duration (job, seconds, measured_at)
SELECT measured.job, measured.seconds, clock_timestamp()
FROM unnest($1::text[], $2::double precision[]) AS measured (job, seconds)
ORDER BY measured.job
ON CONFLICT (job) DO UPDATE
SET seconds = excluded.seconds, measured_at = excluded.measured_at
