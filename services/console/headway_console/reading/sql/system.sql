-- name: leader
-- Who ticks, since when, and when it last fired.
SELECT epoch, holder, since, ticked_at FROM scheduler.leader WHERE name = 'tick'

-- name: overdue
-- The manifest that should have been looked at first, and by how many it is followed; counted no
-- further than so many. $1 now, $2 how far to count.
SELECT min(late.wake_at) AS oldest_at, count(*) AS manifests
FROM (SELECT wake_at FROM scheduler.manifest WHERE wake_at <= $1 ORDER BY wake_at LIMIT $2) AS late

-- name: outboxes
-- What is written and not yet sent: how much, and since when. $1 how far to count.
SELECT 'scheduler' AS service, min(few.created_at) AS oldest_at, count(*) AS messages
FROM (SELECT created_at FROM scheduler.outbox ORDER BY id LIMIT $1) AS few
UNION ALL
SELECT 'dispatcher', min(few.created_at), count(*)
FROM (SELECT created_at FROM dispatcher.outbox ORDER BY id LIMIT $1) AS few

-- name: in_flight
-- Of so much unsettled work of the scheduler: what the dispatcher has not heard of, and what it has
-- settled without the scheduler having heard of that. $1 how much.
SELECT count(*) AS looked_at,
       count(*) FILTER (WHERE known.id IS NULL) AS unknown,
       min(sample.queued_at) FILTER (WHERE known.id IS NULL) AS unknown_since,
       count(*) FILTER (WHERE known.state = 'settled') AS untold,
       min(known.settled_at) FILTER (WHERE known.state = 'settled') AS untold_since
FROM (SELECT id, round, queued_at FROM scheduler.work LIMIT $1) AS sample
LEFT JOIN dispatcher.work_queue AS known ON known.id = sample.id

-- name: taking_in
-- How long the latest work took from its decision to the dispatcher, in seconds. $1 how much.
SELECT percentile_cont(0.5) WITHIN GROUP (
           ORDER BY extract(epoch FROM latest.received_at - latest.queued_at)) AS p50
FROM (SELECT received_at, queued_at FROM dispatcher.work_queue
      WHERE state = 'settled' ORDER BY settled_at DESC, id DESC LIMIT $1) AS latest

-- name: projecting
-- How long the latest events of workers took to be written down, in seconds, by two clocks, and when
-- the last one was. $1 recorded since, $2 how many of the latest events.
SELECT max(latest.recorded_at) AS last_at,
       percentile_cont(0.5) WITHIN GROUP (
           ORDER BY extract(epoch FROM latest.recorded_at - latest.occurred_at)) AS p50
FROM (SELECT recorded_at, occurred_at, source FROM dispatcher.history
      WHERE recorded_at >= $1 ORDER BY id DESC LIMIT $2) AS latest
WHERE latest.source LIKE 'worker/%'

-- name: dispatchers
-- Dispatchers that were heard of, as they hear themselves by way of the broker.
SELECT name, heard_since, last_heard_at FROM dispatcher.witness ORDER BY name

-- name: connected
-- Which of our programs are connected to this database, and by how many connections.
SELECT application_name AS name, count(*) AS connections
FROM pg_stat_activity
WHERE datname = current_database() AND application_name LIKE 'headway%'
GROUP BY application_name
ORDER BY application_name

-- name: lately_rejected
-- Messages that could not be read or handled: how many of each service, and the last one.
SELECT 'scheduler' AS service, count(*) AS messages, max(rejected_at) AS last_at
FROM scheduler.rejected
UNION ALL
SELECT 'dispatcher', count(*), max(rejected_at) FROM dispatcher.rejected

-- name: tables
-- How large the tables are: rows as last estimated, and bytes with their indexes; the days of
-- history are one.
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
-- Which migrations are applied, and which server this is.
SELECT 'scheduler' AS name, max(number)::text AS version FROM scheduler.migration
UNION ALL
SELECT 'dispatcher', max(number)::text FROM dispatcher.migration
UNION ALL
SELECT 'postgresql', current_setting('server_version')
