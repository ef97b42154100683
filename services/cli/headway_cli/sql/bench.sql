-- name: count_statements
-- Let PostgreSQL count statements; the server was started with the library loaded.
CREATE EXTENSION IF NOT EXISTS pg_stat_statements

-- name: counters
-- Statements of this database and bytes of WAL so far.
SELECT coalesce(sum(calls), 0)::bigint AS statements,
       pg_wal_lsn_diff(pg_current_wal_lsn(), '0/0')::bigint AS wal_bytes
FROM pg_stat_statements
WHERE dbid = (SELECT oid FROM pg_database WHERE datname = current_database())

-- name: row_counters
-- Rows written and transactions of this database so far, as far as sessions have reported them.
SELECT tup_inserted + tup_updated + tup_deleted AS row_operations, xact_commit AS commits
FROM pg_stat_database
WHERE datname = current_database()

-- name: enqueue
-- Enqueue work as an application does, with about 100 bytes of input. $1 how much.
SELECT headway.enqueue(
           'nothing', jsonb_build_object('number', number, 'sent', 0.0, 'pad', repeat('x', 50)))
FROM generate_series(1, $1::integer) AS number

-- name: is_queued
-- Whether the dispatcher has so much work that is not settled. $1 how much. Rows are counted only
-- when all are sent, because this is asked while they are measured.
SELECT CASE WHEN EXISTS (SELECT FROM scheduler.enqueued WHERE state = 'waiting') THEN false
            ELSE (SELECT count(*) >= $1 FROM dispatcher.unsettled) END

-- name: is_settled
-- Whether the scheduler has sent all work and received every outcome.
SELECT NOT EXISTS (SELECT FROM scheduler.work)
   AND NOT EXISTS (SELECT FROM scheduler.enqueued WHERE state = 'waiting')

-- name: workers
-- Number of workers with a heartbeat since a time. $1 time.
SELECT count(*) FROM dispatcher.worker WHERE last_heard_at >= $1

-- name: latency
-- Median and 99th percentile of the milliseconds from the triggers of some work to its first body,
-- and to its end. $1 work ids, $2 times of the triggers.
SELECT percentile_cont(ARRAY[0.5, 0.99]) WITHIN GROUP (
           ORDER BY extract(epoch FROM metadata.started_at - sent.at) * 1000) AS to_start_ms,
       percentile_cont(ARRAY[0.5, 0.99]) WITHIN GROUP (
           ORDER BY extract(epoch FROM work_queue.settled_at - sent.at) * 1000) AS to_settled_ms
FROM unnest($1::uuid[], $2::timestamptz[]) AS sent (id, at)
JOIN dispatcher.metadata ON metadata.work_id = sent.id
JOIN dispatcher.work_queue ON work_queue.id = sent.id

-- name: first_start
-- Start of the first body after a time. $1 time.
SELECT min(started_at) FROM dispatcher.metadata WHERE started_at > $1

-- name: burst
-- Delays of a burst that was due at one moment: seconds until the last decision, and from the
-- due time to the start of the bodies. $1 due at.
SELECT extract(epoch FROM (SELECT max(decided_at) FROM scheduler.occurrence
                           WHERE first_due_at = $1) - $1)::double precision AS decided_seconds,
       count(*) AS runs,
       percentile_cont(0.5) WITHIN GROUP (ORDER BY extract(epoch FROM started_at - $1))
           AS start_p50,
       percentile_cont(0.99) WITHIN GROUP (ORDER BY extract(epoch FROM started_at - $1))
           AS start_p99,
       max(extract(epoch FROM started_at - $1))::double precision AS start_last
FROM dispatcher.metadata
WHERE due_at = $1

-- name: is_fired
-- Whether every manifest that was due at a time has fired. $1 due at.
SELECT NOT EXISTS (SELECT FROM scheduler.manifest WHERE wake_at <= $1)
