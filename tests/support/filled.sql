-- name: manifests
-- Groups, jobs and manifests; every tenth has dependents, some are disabled. $1 manifests,
-- $2 groups, $3 now.
WITH made AS (
    INSERT INTO scheduler.manifest_group (name, max_active, changed_at)
    SELECT 'group-' || lpad(n::text, 2, '0'), 50, $3 FROM generate_series(0, $2::integer - 1) AS n
), declared AS (
    INSERT INTO scheduler.job (name, owner, description, declared_at, title, declared_by)
    SELECT 'job-' || lpad(n::text, 2, '0'), 'bench', 'A job', $3, 'Job number ' || n, '{bench}'
    FROM generate_series(0, 2 * $2::integer - 1) AS n
), limited AS (
    INSERT INTO dispatcher.group_limit (name, max_active, version)
    SELECT 'group-' || lpad(n::text, 2, '0'), 50, 1 FROM generate_series(0, $2::integer - 1) AS n
)
INSERT INTO scheduler.manifest
    (id, external_id, owner, job, group_name, input, timing, terms, definition_hash, next_due_at, wake_at, declared_at,
     enabled, disabled_by, labels, depends_on)
SELECT md5('manifest ' || n)::uuid, 'manifest-' || lpad(n::text, 5, '0'), 'bench',
       'job-' || lpad((n % (2 * $2::integer))::text, 2, '0'),
       'group-' || lpad((n % $2::integer)::text, 2, '0'),
       jsonb_build_object('customer', n),
       '{"cadence": {"type": "every", "seconds": 300}, "zone": "UTC"}',
       '{"retry": {"attempts": 3}, "timeout_seconds": 60, "cancel_grace_seconds": 5}', '',
       $3 + n * interval '1 s', $3 + n * interval '1 s', $3 - interval '60 days',
       n % 50 <> 7, CASE WHEN n % 50 = 7 THEN 'operator' END,
       jsonb_build_object('team', 'team-' || n % 5),
       CASE WHEN n % 10 <> 0 THEN md5('manifest ' || n - n % 10)::uuid END
FROM generate_series(0, $1::integer - 1) AS n
ORDER BY n % 10 <> 0, n

-- name: works
-- Work that is settled, spread over thirty days, one in a hundred of it failed. $1 how much,
-- $2 manifests, $3 groups, $4 now.
INSERT INTO dispatcher.work_queue
    (id, round, manifest_id, manifest, slot, group_name, job, input, cause, due_at, queued_at,
     priority, rank, not_before, terms, state, runs, attempts, run_id, outcome, settled_at, received_at)
SELECT md5('work ' || n)::uuid, 1, md5('manifest ' || m)::uuid,
       'manifest-' || lpad(m::text, 5, '0'), 0, 'group-' || lpad((m % $3::integer)::text, 2, '0'),
       'job-' || lpad((m % (2 * $3::integer))::text, 2, '0'),
       jsonb_build_object('customer', m, 'order', 'order-' || n, 'amount', n % 1000),
       'due:' || at, at, at, 0, at, at,
       '{"retry": {"attempts": 3}, "timeout_seconds": 60, "cancel_grace_seconds": 5}', 'settled', 1, 1,
       md5('run ' || n)::uuid, CASE WHEN n % 100 = 0 THEN 'dead_lettered' ELSE 'completed' END,
       at + interval '3 s', at + interval '20 ms'
FROM generate_series(1, $1::integer) AS n,
     LATERAL (SELECT n % $2::integer AS m,
                     $4::timestamptz - interval '30 days' * (1 - n::float / $1::integer) AS at) AS t

-- name: leases
-- The leases of their runs. $1 how many, $2 now.
INSERT INTO dispatcher.lease (id, token, job, created_at, claimed_by, nonce, last_heard_at, ended_at)
SELECT md5('lease ' || n)::uuid, 'secret', 'job', at, 'worker-' || n % 20, 'n', at, at
FROM generate_series(1, $1::integer) AS n,
     LATERAL (SELECT $2::timestamptz - interval '30 days' * (1 - n::float / $1::integer) AS at) AS t

-- name: runs
-- Their runs. $1 how many, $2 manifests, $3 groups, $4 now.
INSERT INTO dispatcher.metadata
    (run_id, work_id, lease_id, manifest_id, group_name, job, round, attempt, state, worker, host,
     due_at, created_at, started_at, start_heard_at, finished_at, max_run_seconds, failure, output,
     trace_id)
SELECT md5('run ' || n)::uuid, md5('work ' || n)::uuid, md5('lease ' || n)::uuid,
       md5('manifest ' || m)::uuid, 'group-' || lpad((m % $3::integer)::text, 2, '0'),
       'job-' || lpad((m % (2 * $3::integer))::text, 2, '0'), 1, 1,
       CASE WHEN n % 100 = 0 THEN 'failed' ELSE 'completed' END, 'worker-' || n % 20, 'host', at,
       at + interval '50 ms', at + interval '60 ms', at + interval '70 ms',
       at + interval '1 s' * (0.1 + n % 17 / 10.0), 80,
       CASE WHEN n % 100 = 0 THEN jsonb_build_object(
           'kind', 'ValueError', 'message', 'order-' || n || ' has no address',
           'stack', repeat('File "orders.py", line 12, in ship' || chr(10), 10)) END,
       CASE WHEN n % 100 <> 0 THEN jsonb_build_object('shipped', n) END, md5('trace ' || n)
FROM generate_series(1, $1::integer) AS n,
     LATERAL (SELECT n % $2::integer AS m,
                     $4::timestamptz - interval '30 days' * (1 - n::float / $1::integer) AS at) AS t

-- name: lines
-- What runs logged: three lines for each that failed. No parameters.
INSERT INTO dispatcher.run_log (run_id, number, at, level, message, fields, size)
SELECT run_id, number, created_at, 'info', 'line ' || number, '{}', 10
FROM dispatcher.run AS metadata, generate_series(1, 3) AS number
WHERE state = 'failed'

-- name: letters
-- Dead letters of the latest failed runs; nine in ten await somebody. $1 how many.
INSERT INTO dispatcher.dead_letter
    (id, work_id, round, manifest_id, manifest, group_name, job, input, reason, failure, attempts,
     state, created_at, resolved_at, actor, fingerprint, code_version)
SELECT md5('letter ' || work_id)::uuid, work_id, 1, metadata.manifest_id, work_queue.manifest,
       metadata.group_name, metadata.job, work_queue.input, 'attempts_exhausted', metadata.failure,
       3, CASE WHEN number % 10 = 0 THEN 'acknowledged' ELSE 'awaiting' END, metadata.finished_at,
       CASE WHEN number % 10 = 0 THEN metadata.finished_at END, 'somebody',
       left(md5('print ' || number % 40), 12), '1.' || number % 3
FROM (SELECT *, row_number() OVER (ORDER BY created_at DESC) AS number FROM dispatcher.run AS metadata
      WHERE state = 'failed' ORDER BY created_at DESC LIMIT $1) AS metadata
JOIN dispatcher.work_queue ON work_queue.id = metadata.work_id

-- name: ledger
-- The decisions about their due times, and as many skips as one in twenty. $1 how many,
-- $2 manifests, $3 now.
INSERT INTO scheduler.occurrence
    (manifest_id, cause, first_due_at, last_due_at, decision, reason, work_id, outcome, decided_at,
     policies)
SELECT md5('manifest ' || n % $2::integer)::uuid, 'due:' || n, at, at,
       CASE WHEN n % 20 = 0 THEN 'skipped' ELSE 'queued' END,
       CASE WHEN n % 20 = 0 THEN 'still_outstanding' END,
       CASE WHEN n % 20 <> 0 THEN md5('work ' || n)::uuid END,
       CASE WHEN n % 20 <> 0 THEN 'completed' END, at,
       '{"misfire": "fire_once", "overlap": "skip", "group": "ops"}'
FROM generate_series(1, $1::integer) AS n,
     LATERAL (SELECT $3::timestamptz - interval '30 days' * (1 - n::float / $1::integer) AS at) AS t

-- name: days
-- A partition of history for each of the days. $1 now.
SELECT count(dispatcher.add_history_day(day::date))
FROM generate_series($1::timestamptz - interval '30 days', $1, interval '1 day') AS day

-- name: history
-- What was told of the work: how it was taken in, run and settled. $1 how many works, $2 now.
INSERT INTO dispatcher.history
    (event_id, type, subject, source, occurred_at, data, accepted, work_id, run_id, lease_id,
     recorded_at)
SELECT told.type || n, 'headway.' || told.type || '.v1', md5('work ' || n)::uuid::text, told.source,
       at, jsonb_build_object('work', md5('work ' || n)::uuid, 'round', 1), true,
       md5('work ' || n)::uuid, CASE WHEN told.type LIKE 'run.%' THEN md5('run ' || n)::uuid END,
       CASE WHEN told.type LIKE 'run.%' THEN md5('lease ' || n)::uuid END, at + told.after
FROM generate_series(1, $1::integer) AS n,
     LATERAL (SELECT $2::timestamptz - interval '30 days' * (1 - n::float / $1::integer) AS at) AS t,
     (VALUES ('work.queued', 'headway/scheduler', interval '20 ms'),
             ('run.completed', 'worker/worker-1', interval '1 s'),
             ('work.settled', 'headway/dispatcher', interval '1 s')) AS told (type, source, after)

-- name: audit
-- What people and applications did. $1 how much, $2 now.
WITH scheduled AS (
    INSERT INTO scheduler.history
        (event_id, type, subject, source, occurred_at, data, accepted, recorded_at)
    SELECT 'audit ' || n, 'headway.manifest.changed.v1', 'manifest-' || lpad((n % 200)::text, 5, '0'),
           CASE WHEN n % 2 = 0 THEN 'app/bench' ELSE 'operator/person-' || n % 10 END, at,
           '{"enabled": false, "before": {"enabled": true}}', true, at
    FROM generate_series(1, $1::integer) AS n,
         LATERAL (SELECT $2::timestamptz - interval '30 days' * (1 - n::float / $1::integer) AS at) AS t
)
INSERT INTO dispatcher.history
    (event_id, type, subject, source, occurred_at, data, accepted, work_id, recorded_at)
SELECT 'retry ' || id, 'headway.dead_letter.retried.v1', id::text, 'operator/somebody', created_at,
       '{"round": 2}', true, work_id, created_at
FROM dispatcher.dead_letter WHERE state <> 'awaiting'

-- name: queue
-- Work that waits: behind caps, for a worker, for its time. $1 how much, $2 groups, $3 now.
INSERT INTO dispatcher.work_queue
    (id, round, slot, group_name, job, input, cause, queued_at, priority, rank, not_before, terms,
     state, wait_reason, received_at,
     hold_reason)
SELECT gen_random_uuid(), 1, 0, 'group-' || lpad((n % $2::integer)::text, 2, '0'), 'job-00',
       jsonb_build_object('n', n), 'enqueue:' || n, at, 0, at, at, '{}', 'queued',
       'awaiting_gate', at, CASE WHEN n % 3 = 0 THEN 'not_before' END
FROM generate_series(1, $1::integer) AS n, LATERAL (SELECT $3::timestamptz - n * interval '1 ms' AS at)

-- name: live
-- Runs that are under way. $1 how many, $2 groups, $3 now.
WITH work AS (
    INSERT INTO dispatcher.work_queue
        (id, round, slot, group_name, job, cause, queued_at, priority, rank, not_before, terms,
         state, runs, run_id, lease_id, received_at)
    SELECT md5('live ' || n)::uuid, 1, 0, 'group-' || lpad((n % $2::integer)::text, 2, '0'),
           'job-01', 'enqueue:' || n, $3, 0, $3, $3,
           '{"retry": {"attempts": 3}, "timeout_seconds": 60, "cancel_grace_seconds": 5}',
           'dispatched', 1,
           md5('live run ' || n)::uuid, md5('live lease ' || n)::uuid, $3
    FROM generate_series(1, $1::integer) AS n
), lease AS (
    INSERT INTO dispatcher.lease
        (id, token, job, groups, created_at, ordered_at, claimed_by, nonce, last_heard_at)
    SELECT md5('live lease ' || n)::uuid, 'secret', 'job-01',
           ARRAY['group-' || lpad((n % $2::integer)::text, 2, '0')], $3, $3, 'worker-1', 'n', $3
    FROM generate_series(1, $1::integer) AS n
), worker AS (
    INSERT INTO dispatcher.worker
        (name, nonce, host, sdk, sdk_version, jobs, slots, draining, first_heard_at, last_heard_at)
    SELECT 'worker-' || n, 'n', 'host', 'python', '1', ARRAY['job-01'], 10, false, $3, $3
    FROM generate_series(0, 19) AS n
)
INSERT INTO dispatcher.metadata
    (run_id, work_id, lease_id, group_name, job, round, attempt, state, worker, created_at,
     started_at, start_heard_at, max_run_seconds)
SELECT md5('live run ' || n)::uuid, md5('live ' || n)::uuid, md5('live lease ' || n)::uuid,
       'group-' || lpad((n % $2::integer)::text, 2, '0'), 'job-01', 1, 1, 'in_progress', 'worker-1',
       $3, $3, $3, 80
FROM generate_series(1, $1::integer) AS n
