-- name: lock
-- Store the ids of arrived events, and lock their leases in a fixed order. The first row has the
-- new ids and the real time, each other row a lease. $1 lease of each event, $2 event ids, $3
-- leases.
WITH fresh AS (
    INSERT INTO dispatcher.inbox (lease_id, event_id, received_at)
    SELECT DISTINCT item.lease_id, item.event_id, clock_timestamp()
    FROM unnest($1::uuid[], $2::text[]) AS item (lease_id, event_id)
    ORDER BY 1, 2
    ON CONFLICT DO NOTHING
    RETURNING lease_id, event_id
), locked AS MATERIALIZED (
    SELECT id, token, claimed_by, nonce, host, sequence, loose_links,
           ended_at IS NOT NULL AS ended, job
    FROM dispatcher.lease
    WHERE id = ANY($3::uuid[])
    ORDER BY id
    FOR UPDATE
)
SELECT NULL AS id, NULL AS token, NULL AS claimed_by, NULL AS nonce, NULL AS host,
       NULL AS sequence, NULL AS loose_links, NULL AS ended, NULL AS job,
       coalesce(array_agg(lease_id), '{}') AS fresh_leases,
       coalesce(array_agg(event_id), '{}') AS fresh_events, clock_timestamp() AS now
FROM fresh
UNION ALL
SELECT locked.*, NULL, NULL, NULL FROM locked

-- name: runs_of
-- Return the runs of leases. $1 leases.
SELECT run_id AS id, work_id, lease_id, state, worker, host, created_at, started_at, finished_at,
       worker_started_at, worker_finished_at, failure, output, cancel_reason,
       coalesce(activations, '[]') AS activations, group_name, attempt, due_at
FROM dispatcher.metadata
WHERE lease_id = ANY($1::uuid[])

-- name: write
-- Store runs and leases after a batch of events. The code version of a claimant is stored while
-- that process is known, because another process may take its name. $1 runs, $2 states, $3 workers,
-- $4 hosts, $5 start times, $6 finish times, $7 failures, $8 outputs, $9 cancel reasons, $10
-- activations, $11 real time; $12 leases, $13 claimants, $14 nonces, $15 sequences, $16 loose
-- links, $17 whether they ended, $18 warnings (null for no new one); $19 start times and $20 finish
-- times by the workers' clocks; $21 hosts of the leases.
WITH folded AS (
    UPDATE dispatcher.metadata
    SET state = item.state, worker = item.worker, host = item.host, started_at = item.started_at,
        finished_at = item.finished_at, failure = item.failure, output = item.output,
        cancel_reason = item.cancel_reason, activations = item.activations,
        worker_started_at = item.worker_started_at,
        worker_finished_at = item.worker_finished_at,
        start_heard_at = CASE WHEN item.started_at IS NOT NULL
                              THEN coalesce(metadata.start_heard_at, $11) END
    FROM unnest($1::uuid[], $2::text[], $3::text[], $4::text[], $5::timestamptz[],
                $6::timestamptz[], $7::jsonb[], $8::jsonb[], $9::text[], $10::jsonb[],
                $19::timestamptz[], $20::timestamptz[])
        AS item (run_id, state, worker, host, started_at, finished_at, failure, output,
                 cancel_reason, activations, worker_started_at, worker_finished_at)
    WHERE metadata.run_id = item.run_id
)
UPDATE dispatcher.lease
SET claimed_by = item.claimed_by,
    nonce = item.nonce,
    host = item.host,
    last_heard_at = CASE WHEN item.claimed_by IS NULL THEN NULL
                         ELSE greatest(lease.last_heard_at, $11) END,
    sequence = item.sequence,
    loose_links = item.loose_links,
    ended_at = CASE WHEN item.ended THEN coalesce(ended_at, $11) END,
    code_version = coalesce(lease.code_version, worker.code_version),
    warning = coalesce(item.warning, lease.warning),
    warned_at = CASE WHEN item.warning IS NULL THEN lease.warned_at ELSE $11 END
FROM unnest($12::uuid[], $13::text[], $14::text[], $15::bigint[], $16::jsonb[], $17::boolean[],
            $18::text[], $21::text[])
    AS item (id, claimed_by, nonce, sequence, loose_links, ended, warning, host)
LEFT JOIN dispatcher.worker ON worker.name = item.claimed_by AND worker.nonce = item.nonce
WHERE lease.id = item.id

-- name: state_of
-- Return a lease as far as it is projected. $1 lease.
SELECT id, token, claimed_by, nonce, host, sequence, loose_links, ended_at IS NOT NULL AS ended
FROM dispatcher.lease
WHERE id = $1

-- name: warn_claimant
-- Store that a message of the claimant could not be read. $1 lease, $2 worker, $3 problem.
UPDATE dispatcher.lease
SET warning = $3, warned_at = clock_timestamp()
WHERE id = $1 AND claimed_by = $2 AND ended_at IS NULL

-- name: unclaimed_until
-- Return runs with a `start_by` whose lease is neither claimed nor listed, the earliest first, with
-- all live runs of their leases. $1 limit, $2 listed before.
SELECT metadata.run_id, metadata.lease_id, lease.token, lease.job, lease.sequence,
       work_queue.start_by,
       ARRAY(SELECT live.run_id FROM dispatcher.metadata AS live
             WHERE live.lease_id = lease.id AND live.finished_at IS NULL
             ORDER BY live.run_id) AS live_runs
FROM dispatcher.lease
JOIN dispatcher.metadata ON metadata.lease_id = lease.id
JOIN dispatcher.work_queue
    ON work_queue.id = metadata.work_id AND work_queue.run_id = metadata.run_id
-- An unclaimed lease was never heard of, and `last_heard_at` is indexed.
WHERE lease.ended_at IS NULL AND lease.last_heard_at IS NULL
  AND (lease.listed_at IS NULL OR lease.listed_at < $2)
  AND metadata.finished_at IS NULL AND work_queue.state = 'dispatched'
  AND work_queue.start_by IS NOT NULL AND work_queue.attempts = 0
ORDER BY work_queue.start_by
LIMIT $1

-- name: silent
-- Return claimed leases that no heartbeat named, orders that no worker claimed, and leases with a
-- run over its time. An order that a worker lists has left the stream, so it does not wait its
-- turn. $1 heard before, $2 created before, $3 now, $4 limit, $5 jobs whose unclaimed orders wait
-- their turn.
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
                               + metadata.max_run_seconds * interval '1 s' < $3, false)))
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
               AND metadata.start_heard_at + metadata.max_run_seconds * interval '1 s' < $3)
ORDER BY lease.created_at
LIMIT $4
