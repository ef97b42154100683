-- name: lock
-- Note the ids of arrived events, and lock their leases in a fixed order. The first row has the
-- ids that were never seen before and our own wall clock, each other one a lease, as it is once
-- whoever else was at it is done. $1 the lease of each event, $2 event ids, $3 leases.
WITH fresh AS (
    INSERT INTO dispatcher.inbox (lease_id, event_id, received_at)
    SELECT DISTINCT told.lease_id, told.event_id, clock_timestamp()
    FROM unnest($1::uuid[], $2::text[]) AS told (lease_id, event_id)
    ORDER BY 1, 2
    ON CONFLICT DO NOTHING
    RETURNING lease_id, event_id
), locked AS MATERIALIZED (
    SELECT id, token, claimed_by, nonce, sequence, loose_links, ended_at
    FROM dispatcher.lease
    WHERE id = ANY($3::uuid[])
    ORDER BY id
    FOR UPDATE
)
SELECT NULL AS id, NULL AS token, NULL AS claimed_by, NULL AS nonce, NULL AS sequence,
       NULL AS loose_links, NULL AS ended_at,
       coalesce(array_agg(lease_id), '{}') AS fresh_leases,
       coalesce(array_agg(event_id), '{}') AS fresh_events, clock_timestamp() AS now
FROM fresh
UNION ALL
SELECT locked.*, NULL, NULL, NULL FROM locked

-- name: runs_of
-- The runs of leases, as the fold left them. $1 leases.
SELECT run_id, work_id, lease_id, state, worker, host, created_at, started_at, finished_at,
       worker_started_at, worker_finished_at, failure, output, cancel_reason, activations,
       group_name, attempt, due_at
FROM dispatcher.metadata
WHERE lease_id = ANY($1::uuid[])

-- name: write
-- What the fold made of runs, when we first heard that they have begun, and what became of
-- leases. Which code a claimant has is noted while that process is known: another may take its
-- name. $1 runs, $2 states, $3 workers, $4 hosts, $5 start times, $6 finish times, $7 failures,
-- $8 outputs, $9 cancel reasons, $10 activations, $11 our own wall clock; $12 leases,
-- $13 claimants, $14 nonces, $15 sequences, $16 loose links, $17 ended, $18 warnings for claimants
-- (null where there is nothing new to say); $19 start and $20 finish times of the runs by the clocks
-- of their workers.
WITH folded AS (
    UPDATE dispatcher.metadata
    SET state = told.state, worker = told.worker, host = told.host, started_at = told.started_at,
        finished_at = told.finished_at, failure = told.failure, output = told.output,
        cancel_reason = told.cancel_reason, activations = told.activations,
        worker_started_at = told.worker_started_at,
        worker_finished_at = told.worker_finished_at,
        start_heard_at = CASE WHEN told.started_at IS NOT NULL
                              THEN coalesce(metadata.start_heard_at, $11) END
    FROM unnest($1::uuid[], $2::text[], $3::text[], $4::text[], $5::timestamptz[],
                $6::timestamptz[], $7::jsonb[], $8::jsonb[], $9::text[], $10::jsonb[],
                $19::timestamptz[], $20::timestamptz[])
        AS told (run_id, state, worker, host, started_at, finished_at, failure, output,
                 cancel_reason, activations, worker_started_at, worker_finished_at)
    WHERE metadata.run_id = told.run_id
)
UPDATE dispatcher.lease
SET claimed_by = told.claimed_by,
    nonce = told.nonce,
    last_heard_at = CASE WHEN told.claimed_by IS NULL THEN NULL
                         ELSE greatest(lease.last_heard_at, $11) END,
    sequence = told.sequence,
    loose_links = told.loose_links,
    ended_at = CASE WHEN told.ended THEN coalesce(ended_at, $11) END,
    code_version = coalesce(lease.code_version, worker.code_version),
    warning = coalesce(told.warning, lease.warning),
    warned_at = CASE WHEN told.warning IS NULL THEN lease.warned_at ELSE $11 END
FROM unnest($12::uuid[], $13::text[], $14::text[], $15::bigint[], $16::jsonb[], $17::boolean[],
            $18::text[])
    AS told (id, claimed_by, nonce, sequence, loose_links, ended, warning)
LEFT JOIN dispatcher.worker ON worker.name = told.claimed_by AND worker.nonce = told.nonce
WHERE lease.id = told.id

-- name: state_of
-- A lease as far as it is projected. $1 lease.
SELECT id, token, claimed_by, nonce, sequence, loose_links, ended_at
FROM dispatcher.lease
WHERE id = $1

-- name: warn_claimant
-- A message could not be read that the claimant of a lease has published, by its subject.
-- $1 lease, $2 worker, $3 what is wrong.
UPDATE dispatcher.lease
SET warning = $3, warned_at = clock_timestamp()
WHERE id = $1 AND claimed_by = $2 AND ended_at IS NULL

-- name: unclaimed_until
-- Runs that nobody has claimed or lists, of work that must have begun by some time, the earliest
-- first: with all live runs of their leases. $1 how many, $2 listed before.
SELECT metadata.run_id, metadata.lease_id, lease.token, lease.job, lease.sequence,
       work_queue.start_by,
       ARRAY(SELECT live.run_id FROM dispatcher.metadata AS live
             WHERE live.lease_id = lease.id AND live.finished_at IS NULL
             ORDER BY live.run_id) AS live_runs
FROM dispatcher.lease
JOIN dispatcher.metadata ON metadata.lease_id = lease.id
JOIN dispatcher.work_queue
    ON work_queue.id = metadata.work_id AND work_queue.run_id = metadata.run_id
-- Never heard is never claimed, and that is indexed.
WHERE lease.ended_at IS NULL AND lease.last_heard_at IS NULL
  AND (lease.listed_at IS NULL OR lease.listed_at < $2)
  AND metadata.finished_at IS NULL AND work_queue.state = 'dispatched'
  AND work_queue.start_by IS NOT NULL AND work_queue.attempts = 0
ORDER BY work_queue.start_by
LIMIT $1

-- name: silent
-- Claimed leases that nobody named for too long, unclaimed ones whose time to be claimed is over,
-- and those with a run that took longer than its time and grace. An order that a worker names has
-- been taken from the stream, so it does not wait its turn. $1 heard before, $2 made before,
-- $3 now, $4 how many, $5 jobs whose unclaimed orders only wait their turn.
SELECT lease.id, lease.token, lease.job, lease.sequence, lease.claimed_by, lease.warning,
       coalesce(bool_or(worker.last_heard_at >= $1), false) AS worker_heard,
       CASE WHEN lease.claimed_by IS NULL THEN 'undelivered'
            WHEN lease.last_heard_at < $1 THEN 'orphaned'
            ELSE 'timed_out' END AS kind,
       count(*) AS runs,
       jsonb_agg(jsonb_build_object(
           'run', metadata.run_id,
           'begun', metadata.started_at IS NOT NULL,
           'overdue', coalesce(metadata.start_heard_at
                               + metadata.patience_seconds * interval '1 s' < $3, false)))
           FILTER (WHERE metadata.finished_at IS NULL) AS live_runs
FROM dispatcher.lease
JOIN dispatcher.metadata ON metadata.lease_id = lease.id
LEFT JOIN dispatcher.worker ON worker.name = lease.claimed_by AND worker.nonce = lease.nonce
WHERE lease.ended_at IS NULL
GROUP BY lease.id
HAVING lease.last_heard_at < $1
    OR (lease.claimed_by IS NULL AND lease.created_at < $2
        AND (lease.job <> ALL($5::text[]) OR lease.listed_at IS NOT NULL))
    OR bool_or(metadata.finished_at IS NULL
               AND metadata.start_heard_at + metadata.patience_seconds * interval '1 s' < $3)
ORDER BY lease.created_at
LIMIT $4
