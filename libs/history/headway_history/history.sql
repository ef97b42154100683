-- name: append
-- Append events. Parallel arrays: $1 event ids, $2 types, $3 subjects (the entity's id),
-- $4 sources, $5 times of the publishers, $6 data, $7 accepted, $8 refusal reasons (null if
-- accepted), $9 work ids, $10 run ids, $11 lease ids (or null), $12 our own time, or null for the
-- server's.
INSERT INTO {schema}.history
    (event_id, type, subject, source, occurred_at, data, accepted, refusal, work_id, run_id,
     lease_id, recorded_at)
SELECT event.*, coalesce($12::timestamptz, clock_timestamp())
FROM unnest((SELECT $1::text[]), $2::text[], $3::text[], $4::text[], $5::timestamptz[], $6::jsonb[],
            $7::boolean[], $8::text[], $9::uuid[], $10::uuid[], $11::uuid[]) AS event

-- name: of_works
-- Accepted events of the work between two ids. $1 above this id, $2 up to this id.
SELECT id, type, source, occurred_at, recorded_at, data::text AS data,
       work_id AS work, run_id AS run, lease_id AS lease
FROM {schema}.history
WHERE work_id > $1 AND work_id <= $2 AND accepted

-- name: of_these_works
-- Accepted events of some work up to a number, and all of its snapshots. $1 work ids, $2 number.
SELECT id, type, source, occurred_at, recorded_at, data::text AS data,
       work_id AS work, run_id AS run, lease_id AS lease
FROM {schema}.history
WHERE work_id = ANY($1::uuid[]) AND accepted
  AND (id <= $2 OR type = 'headway.history.snapshot.v1')

-- name: be_patient
-- Let this transaction sort all packed events, and wait between two readings of them.
SELECT set_config('statement_timeout', '0', true),
       set_config('idle_in_transaction_session_timeout', '0', true)

-- name: packed
-- Parts of accepted packed events, one for each run, in the order of their work. $1 works, or null
-- for all, $2 up to this number, or null for all.
SELECT packed.id, packed.type, packed.source, packed.occurred_at, packed.recorded_at,
       CASE packed.type
           WHEN 'headway.run.dispatched.v1' THEN packed.shared || part.run
           ELSE jsonb_build_object('runs', jsonb_build_array(part.run))
       END::text AS data,
       (part.run ->> 'work')::uuid AS work, (part.run ->> 'run')::uuid AS run,
       packed.lease_id AS lease
FROM (
    SELECT id, type, source, occurred_at, recorded_at, lease_id, data - 'runs' AS shared,
           data -> 'runs' AS runs
    FROM {schema}.history
    WHERE work_id IS NULL AND lease_id IS NOT NULL AND accepted
      AND type IN ('headway.run.dispatched.v1', 'headway.runs.completed.v1')
      AND ($2::bigint IS NULL OR id <= $2)
    -- So that the data is decompressed once, not for each run.
    OFFSET 0
) AS packed
CROSS JOIN LATERAL jsonb_array_elements(packed.runs) AS part (run)
WHERE $1::uuid[] IS NULL OR (part.run ->> 'work')::uuid = ANY($1)
ORDER BY work

-- name: of_leases
-- Accepted events of leases that belong to no single work, except packed ones. $1 leases.
SELECT id, type, source, occurred_at, recorded_at, data::text AS data,
       work_id AS work, run_id AS run, lease_id AS lease
FROM {schema}.history
WHERE lease_id = ANY($1::uuid[]) AND work_id IS NULL AND accepted
  AND type NOT IN ('headway.run.dispatched.v1', 'headway.runs.completed.v1')

-- name: of_no_work
-- Accepted events that concern neither work nor a lease. $1 types.
SELECT id, type, source, occurred_at, recorded_at, data::text AS data,
       work_id AS work, run_id AS run, lease_id AS lease
FROM {schema}.history
WHERE type = ANY($1::text[]) AND work_id IS NULL AND lease_id IS NULL AND accepted
