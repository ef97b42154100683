-- name: append
-- Append events. Parallel arrays: $1 event ids, $2 types, $3 subjects (the entity's id),
-- $4 sources, $5 times of the publishers, $6 data, $7 accepted, $8 refusal reasons (null if
-- accepted), $9 work ids, $10 run ids, $11 lease ids (or null), $12 our own time, or null for the
-- server's.
INSERT INTO {schema}.history
    (event_id, type, subject, source, occurred_at, data, accepted, refusal, work_id, run_id,
     lease_id, recorded_at)
SELECT event.*, coalesce($12::timestamptz, clock_timestamp())
FROM unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::timestamptz[], $6::jsonb[],
            $7::boolean[], $8::text[], $9::uuid[], $10::uuid[], $11::uuid[]) AS event

-- name: of_works
-- Accepted events of the work between two ids. $1 above this id, $2 up to this id.
SELECT id, type, source, occurred_at, recorded_at, data::text AS data,
       work_id AS work, run_id AS run, lease_id AS lease
FROM {schema}.history
WHERE work_id > $1 AND work_id <= $2 AND accepted
ORDER BY work_id

-- name: of_these_works
-- Accepted events of some work. $1 work ids.
SELECT id, type, source, occurred_at, recorded_at, data::text AS data,
       work_id AS work, run_id AS run, lease_id AS lease
FROM {schema}.history
WHERE work_id = ANY($1::uuid[]) AND accepted
ORDER BY work_id

-- name: of_leases
-- Accepted events of leases that belong to no single work. $1 leases.
SELECT id, type, source, occurred_at, recorded_at, data::text AS data,
       work_id AS work, run_id AS run, lease_id AS lease
FROM {schema}.history
WHERE lease_id = ANY($1::uuid[]) AND work_id IS NULL AND accepted

-- name: of_no_work
-- Accepted events that concern neither work nor a lease. $1 types.
SELECT id, type, source, occurred_at, recorded_at, data::text AS data,
       work_id AS work, run_id AS run, lease_id AS lease
FROM {schema}.history
WHERE type = ANY($1::text[]) AND work_id IS NULL AND lease_id IS NULL AND accepted
