-- name: leader
-- The ticking scheduler, and the time of its last decision.
SELECT epoch, holder, since, ticked_at FROM scheduler.leader WHERE name = 'tick'

-- name: overdue
-- The number of manifests whose wake time has passed, and the oldest wake time. $1 now, $2 limit of
-- the count.
SELECT min(late.wake_at) AS oldest_at, count(*) AS waiting
FROM (SELECT wake_at FROM scheduler.manifest WHERE wake_at <= $1 ORDER BY wake_at LIMIT $2) AS late

-- name: outboxes
-- The messages in each outbox, and the oldest. $1 limit of the count.
SELECT 'scheduler_outbox' AS name, min(few.created_at) AS oldest_at, count(*) AS waiting
FROM (SELECT created_at FROM scheduler.outbox ORDER BY id LIMIT $1) AS few
UNION ALL
SELECT 'dispatcher_outbox', min(few.created_at), count(*)
FROM (SELECT created_at FROM dispatcher.outbox ORDER BY id LIMIT $1) AS few

-- name: in_flight
-- Of a sample of the scheduler's unsettled work: work that the dispatcher has not received, and
-- settled work whose outcome the scheduler has not received. $1 size of the sample.
WITH sample AS (
    SELECT work.queued_at, known.id, known.state, known.settled_at
    FROM (SELECT id, queued_at FROM scheduler.work LIMIT $1) AS work
    LEFT JOIN dispatcher.work_queue AS known ON known.id = work.id
)
SELECT 'dispatcher_intake' AS name, min(queued_at) AS oldest_at, count(*) AS waiting
FROM sample WHERE id IS NULL
UNION ALL
SELECT 'scheduler_intake', min(settled_at), count(*) FROM sample WHERE state = 'settled'
ORDER BY name

-- name: taking_in
-- The median seconds from the decision to the dispatcher, of the latest settled work. $1 number of
-- works.
SELECT percentile_cont(0.5) WITHIN GROUP (
           ORDER BY extract(epoch FROM latest.received_at - latest.queued_at)) AS p50
FROM (SELECT received_at, queued_at FROM dispatcher.work_queue
      WHERE state = 'settled' ORDER BY settled_at DESC, id DESC LIMIT $1) AS latest

-- name: projecting
-- The median seconds until events of workers were recorded, by two clocks, and the time of the last
-- one. $1 recorded since, $2 number of the latest events.
SELECT max(latest.recorded_at) AS last_at,
       percentile_cont(0.5) WITHIN GROUP (
           ORDER BY extract(epoch FROM latest.recorded_at - latest.occurred_at)) AS usual_seconds
FROM (SELECT recorded_at, occurred_at, source FROM dispatcher.history
      WHERE recorded_at >= $1 ORDER BY id DESC LIMIT $2) AS latest
WHERE latest.source LIKE 'worker/%'

-- name: dispatchers
-- Dispatchers by their own heartbeats through the broker.
SELECT name, heard_since, last_heard_at FROM dispatcher.witness ORDER BY name

-- name: connected
-- Connections of Headway's programs to this database.
SELECT application_name AS name, count(*) AS connections
FROM pg_stat_activity
WHERE datname = current_database() AND application_name LIKE 'headway%'
GROUP BY application_name
ORDER BY application_name

-- name: rejected
-- Messages that a service could not handle, with the last one.
SELECT 'scheduler' AS service, count(*) AS messages, max(rejected_at) AS last_at
FROM scheduler.rejected
UNION ALL
SELECT 'dispatcher', count(*), max(rejected_at) FROM dispatcher.rejected

-- name: tables
-- The size of each table: estimated rows, and bytes with indexes. The partitions of history count
-- as one table.
SELECT coalesce(parent.nspname || '.' || whole.relname, own.nspname || '.' || part.relname) AS name,
       sum(greatest(part.reltuples, 0))::bigint AS rows,
       sum(pg_total_relation_size(part.oid))::bigint AS bytes
FROM pg_class AS part
JOIN pg_namespace AS own ON own.oid = part.relnamespace
LEFT JOIN pg_inherits ON pg_inherits.inhrelid = part.oid
LEFT JOIN pg_class AS whole ON whole.oid = pg_inherits.inhparent
LEFT JOIN pg_namespace AS parent ON parent.oid = whole.relnamespace
WHERE own.nspname IN ('scheduler', 'dispatcher') AND part.relkind = 'r'
GROUP BY 1
ORDER BY bytes DESC, name

-- name: versions
-- The applied migrations, and the version of the server.
SELECT 'scheduler' AS name, max(number)::text AS version FROM scheduler.migration
UNION ALL
SELECT 'dispatcher', max(number)::text FROM dispatcher.migration
UNION ALL
SELECT 'postgresql', current_setting('server_version')

-- name: workers
-- Workers by name, with the runs that each has claimed. $1 time since which a live worker was
-- heard, $2 true for live workers only, $3 names after this one, $4 limit, $5 one worker, $6 a job
-- that they serve (each null for any).
SELECT worker.*, worker.last_heard_at > $1 AS alive,
       ARRAY(SELECT work_queue.run_id
             FROM dispatcher.lease
             JOIN dispatcher.work_queue
                 ON work_queue.lease_id = lease.id AND work_queue.state = 'dispatched'
             WHERE lease.ended_at IS NULL AND lease.claimed_by = worker.name
               AND lease.nonce = worker.nonce
             ORDER BY lease.ordered_at, work_queue.run_id) AS runs
FROM dispatcher.worker
WHERE worker.name > $3
  AND (NOT $2::boolean OR worker.last_heard_at > $1)
  AND ($5::text IS NULL OR worker.name = $5)
  AND ($6::text IS NULL OR $6 = ANY(worker.jobs))
ORDER BY worker.name
LIMIT $4

-- name: leases_of_worker
-- The leases that a worker holds, the oldest first, with their runs that have not ended. $1 worker,
-- $2 limit.
SELECT lease.id, lease.job, lease.groups, lease.ordered_at, lease.last_heard_at,
       ARRAY(SELECT work_queue.run_id FROM dispatcher.work_queue
             WHERE work_queue.lease_id = lease.id AND work_queue.state = 'dispatched'
             ORDER BY work_queue.run_id) AS runs
FROM dispatcher.lease
JOIN dispatcher.worker ON worker.name = lease.claimed_by AND worker.nonce = lease.nonce
WHERE lease.ended_at IS NULL AND lease.claimed_by = $1
ORDER BY lease.ordered_at, lease.id
LIMIT $2

-- name: heartbeats
-- Values that change with every heartbeat, and when a worker appears or disappears.
SELECT count(*) AS workers, max(last_heard_at) AS last_heard_at FROM dispatcher.worker
