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
-- Return the runs of leases, and whether each has a row; an EXISTS could read the whole table. The
-- SELECT around the leases lets one plan serve any number of them. $1 leases.
SELECT run_id AS id, work_id, lease_id, state, worker, host, created_at, started_at, finished_at,
       worker_started_at, worker_finished_at, failure, output, cancel_reason,
       coalesce(activations, '[]') AS activations, group_name, attempt, due_at,
       state <> 'pending' OR (SELECT true FROM dispatcher.metadata
                              WHERE metadata.run_id = run.run_id) IS NOT NULL AS has_row
FROM dispatcher.run
WHERE lease_id = ANY((SELECT $1::uuid[])::uuid[])

-- name: write
-- Store runs and leases after a batch of events. A run without a row gets the columns of its work.
-- The code version of a claimant is stored while that process is known, because another process may
-- take its name. $1 runs, $2 states, $3 workers, $4 hosts, $5 start times, $6 finish times, $7
-- failures, $8 outputs, $9 cancel reasons, $10 activations, $11 real time; $12 leases, $13
-- claimants, $14 nonces, $15 sequences, $16 loose links, $17 whether they ended, $18 warnings (null
-- for no new one); $19 start times and $20 finish times by the workers' clocks; $21 hosts of the
-- leases; $22 work, $23 lease and $24 attempt of each run.
WITH folded AS (
    INSERT INTO dispatcher.metadata
        (run_id, work_id, lease_id, manifest_id, group_name, job, concurrency_key, round, attempt,
         due_at, created_at, max_run_seconds, trace_id, state, worker, host, started_at,
         finished_at, failure, output, cancel_reason, activations, worker_started_at,
         worker_finished_at, start_heard_at)
    SELECT item.run_id, work.id, lease.id, work.manifest_id, work.group_name, work.job,
           work.concurrency_key, work.round, item.attempt, work.due_at, lease.ordered_at,
           dispatcher.max_run_seconds(work.terms), dispatcher.trace_id(work.traceparent),
           item.state, item.worker, item.host, item.started_at, item.finished_at, item.failure,
           item.output, item.cancel_reason, item.activations, item.worker_started_at,
           item.worker_finished_at, CASE WHEN item.started_at IS NOT NULL THEN $11::timestamptz END
    FROM unnest($1::uuid[], $2::text[], $3::text[], $4::text[], $5::timestamptz[],
                $6::timestamptz[], $7::jsonb[], $8::jsonb[], $9::text[], $10::jsonb[],
                $19::timestamptz[], $20::timestamptz[], $22::uuid[], $23::uuid[], $24::integer[])
        AS item (run_id, state, worker, host, started_at, finished_at, failure, output,
                 cancel_reason, activations, worker_started_at, worker_finished_at, work_id,
                 lease_id, attempt)
    JOIN dispatcher.work_queue AS work ON work.id = item.work_id
    JOIN dispatcher.lease ON lease.id = item.lease_id
    ON CONFLICT (run_id) DO UPDATE
    SET state = excluded.state, worker = excluded.worker, host = excluded.host,
        started_at = excluded.started_at, finished_at = excluded.finished_at,
        failure = excluded.failure, output = excluded.output,
        cancel_reason = excluded.cancel_reason, activations = excluded.activations,
        worker_started_at = excluded.worker_started_at,
        worker_finished_at = excluded.worker_finished_at,
        start_heard_at = CASE WHEN excluded.started_at IS NOT NULL
                              THEN coalesce(metadata.start_heard_at, $11) END
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
SELECT work_queue.run_id, work_queue.lease_id, lease.token, lease.job, lease.sequence,
       work_queue.start_by,
       ARRAY(SELECT live.run_id FROM dispatcher.work_queue AS live
             WHERE live.lease_id = lease.id AND live.state = 'dispatched'
             ORDER BY live.run_id) AS live_runs
FROM dispatcher.lease
JOIN dispatcher.work_queue ON work_queue.lease_id = lease.id
-- An unclaimed lease was never heard of, and `last_heard_at` is indexed.
WHERE lease.ended_at IS NULL AND lease.last_heard_at IS NULL
  AND (lease.listed_at IS NULL OR lease.listed_at < $2)
  AND work_queue.state = 'dispatched'
  AND work_queue.start_by IS NOT NULL AND work_queue.attempts = 0
ORDER BY work_queue.start_by
LIMIT $1

-- name: silent
-- Return claimed leases that no heartbeat named, orders that no worker claimed, and leases with a
-- run over its time. An order that a worker lists has left the stream, so it does not wait its
-- turn. $1 heard before, $2 created before, $3 now, $4 limit, $5 jobs whose unclaimed orders wait
-- their turn.
SELECT lease.id, lease.token, lease.job, lease.sequence, lease.claimed_by, lease.warning,
       coalesce(worker.last_heard_at >= $1, false) AS worker_heard,
       CASE WHEN lease.claimed_by IS NULL THEN 'undelivered'
            WHEN lease.last_heard_at < $1 THEN 'orphaned'
            ELSE 'timed_out' END AS kind,
       own.runs, own.live_runs
FROM dispatcher.lease
LEFT JOIN dispatcher.worker ON worker.name = lease.claimed_by AND worker.nonce = lease.nonce
CROSS JOIN LATERAL (
    SELECT count(*) AS runs, bool_or(run.overdue) AS overdue,
           jsonb_agg(jsonb_build_object('run', run.run_id, 'begun', run.started_at IS NOT NULL,
                                        'overdue', run.overdue))
               FILTER (WHERE run.finished_at IS NULL) AS live_runs
    FROM (SELECT run_id, started_at, finished_at,
                 coalesce(finished_at IS NULL
                          AND start_heard_at + max_run_seconds * interval '1 s' < $3, false)
                     AS overdue
          FROM dispatcher.run
          WHERE run.lease_id = lease.id) AS run
) AS own
WHERE lease.ended_at IS NULL AND own.live_runs IS NOT NULL
  AND (lease.last_heard_at < $1
       OR (lease.claimed_by IS NULL AND lease.created_at < $2
           AND (lease.job <> ALL($5::text[]) OR lease.listed_at IS NOT NULL))
       OR own.overdue)
ORDER BY lease.created_at
LIMIT $4
