-- name: record_workers
-- Insert or update workers. $1 heartbeats as an array of objects, $2 now.
INSERT INTO dispatcher.worker AS known
    (name, nonce, host, sdk, sdk_version, code_version, jobs, slots, draining, first_heard_at,
     last_heard_at, concurrency)
SELECT item.worker, item.nonce, item.host, item.sdk, item.sdk_version, item.code_version,
       item.jobs, item.slots, item.draining, $2, $2, item.concurrency
FROM jsonb_to_recordset($1) AS item (
    worker text, nonce text, host text, sdk text, sdk_version text, code_version text,
    jobs text[], slots integer, draining boolean, concurrency jsonb)
ORDER BY item.worker
ON CONFLICT (name) DO UPDATE
SET nonce = excluded.nonce, host = excluded.host, sdk = excluded.sdk,
    sdk_version = excluded.sdk_version, code_version = excluded.code_version,
    jobs = excluded.jobs, slots = excluded.slots, concurrency = excluded.concurrency,
    gone = false,
    draining = excluded.draining OR known.drain_nonce IS NOT DISTINCT FROM excluded.nonce,
    last_heard_at = greatest(known.last_heard_at, $2),
    first_heard_at = CASE WHEN known.nonce = excluded.nonce
                          THEN known.first_heard_at ELSE $2 END
RETURNING name, nonce, first_heard_at, drain_nonce IS NOT DISTINCT FROM nonce AS drain_requested

-- name: drain
-- Mark worker processes as draining, so that they get no more orders; returns whether each was
-- draining before. $1 names.
WITH selected AS (
    SELECT name, draining FROM dispatcher.worker WHERE name = ANY($1::text[])
    ORDER BY name
    FOR UPDATE
)
UPDATE dispatcher.worker
SET drain_nonce = nonce, draining = true
FROM selected
WHERE worker.name = selected.name
RETURNING worker.name, worker.last_heard_at, selected.draining AS drained_before

-- name: delete_stopped
-- Delete workers that stopped. $1 names, $2 nonces.
DELETE FROM dispatcher.worker
USING unnest($1::text[], $2::text[]) AS gone (name, nonce)
WHERE worker.name = gone.name AND worker.nonce = gone.nonce

-- name: note_gone
-- Mark silent workers; the next heartbeat removes the mark. $1 not heard since.
UPDATE dispatcher.worker SET gone = true WHERE NOT gone AND last_heard_at <= $1

-- name: record_leases
-- Record leases that heartbeats name: those of the claimant are heard, those without a known claim
-- are listed. A locked lease, whose events are being projected, is left to the next heartbeat, so
-- that the reply does not wait for it. Returns, with the reason, leases that are no longer the
-- worker's own, or were listed before and still have no claim. $1 leases, $2 workers, $3 nonces, $4 now.
WITH named AS (
    SELECT lease.id, item.worker, item.nonce, lease.ended_at IS NOT NULL AS ended,
           lease.claimed_by IS NULL AND lease.listed_at IS NOT NULL AS unclaimed,
           lease.claimed_by IS NOT NULL
               AND (lease.claimed_by, lease.nonce) <> (item.worker, item.nonce) AS another
    FROM unnest($1::uuid[], $2::text[], $3::text[]) AS item (lease, worker, nonce)
    JOIN dispatcher.lease ON lease.id = item.lease
    FOR UPDATE OF lease SKIP LOCKED
), heard AS (
    UPDATE dispatcher.lease
    SET last_heard_at = CASE WHEN lease.claimed_by IS NULL THEN NULL
                             ELSE greatest(last_heard_at, $4) END,
        listed_at = CASE WHEN lease.claimed_by IS NULL THEN $4 ELSE listed_at END
    FROM named
    WHERE lease.id = named.id AND NOT named.ended AND NOT named.another
)
SELECT id, worker, nonce,
       CASE WHEN another THEN 'another' WHEN ended THEN 'ended' ELSE 'unclaimed' END AS reason
FROM named
WHERE ended OR another OR unclaimed

-- name: warnings
-- Return recent problems with the messages of workers. $1 workers, $2 their nonces, $3 now.
SELECT lease.claimed_by AS worker, lease.nonce, lease.id, lease.warning
FROM unnest($1::text[], $2::text[]) AS item (worker, nonce)
CROSS JOIN LATERAL (
    SELECT claimed_by, nonce, id, warning
    FROM dispatcher.lease
    WHERE claimed_by = item.worker AND nonce = item.nonce AND warning IS NOT NULL
      AND warned_at > $3::timestamptz - interval '1 minute'
    ORDER BY warned_at DESC
    LIMIT 100
) AS lease

-- name: serving
-- Return live workers that accept orders, with their leases by job. $1 heard after.
SELECT worker.jobs, worker.slots, worker.concurrency, coalesce(holding.held, '{}') AS held
FROM dispatcher.worker
LEFT JOIN (
    SELECT claimed_by, nonce, jsonb_object_agg(job, number) AS held
    FROM (SELECT claimed_by, nonce, job, count(*) AS number
          FROM dispatcher.lease
          WHERE ended_at IS NULL AND last_heard_at > $1
          GROUP BY claimed_by, nonce, job) AS by_job
    GROUP BY claimed_by, nonce
) AS holding ON holding.claimed_by = worker.name AND holding.nonce = worker.nonce
WHERE NOT worker.gone AND worker.last_heard_at > $1 AND NOT worker.draining

-- name: cancels
-- Return live runs of workers whose work is cancelled. $1 workers, $2 their nonces.
SELECT lease.claimed_by AS worker, lease.nonce, lease.id AS lease_id, work_queue.run_id,
       work_queue.cancel_reason AS reason
FROM dispatcher.work_queue
JOIN dispatcher.lease ON lease.id = work_queue.lease_id
JOIN unnest($1::text[], $2::text[]) AS item (worker, nonce)
    ON item.worker = lease.claimed_by AND item.nonce = lease.nonce
WHERE work_queue.cancel_requested_at IS NOT NULL AND work_queue.state = 'dispatched'

-- name: record_witnesses
-- Store heartbeats of dispatchers; a gap restarts `heard_since`. $1 names, $2 now, $3 gap.
INSERT INTO dispatcher.witness AS known (name, heard_since, last_heard_at)
SELECT DISTINCT name, $2::timestamptz, $2::timestamptz FROM unnest($1::text[]) AS name
ON CONFLICT (name) DO UPDATE
SET heard_since = CASE WHEN known.last_heard_at < $2 - $3::interval
                       THEN $2 ELSE known.heard_since END,
    last_heard_at = $2

-- name: witness
-- Return since when a dispatcher has been heard without a gap. $1 name.
SELECT heard_since, last_heard_at FROM dispatcher.witness WHERE name = $1

-- name: delete_witnesses
-- Delete dispatchers that stopped long ago. $1 heard before.
DELETE FROM dispatcher.witness WHERE last_heard_at < $1
