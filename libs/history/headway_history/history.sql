-- name: append
-- Write events down. Parallel arrays: $1 event ids, $2 types, $3 subjects (the entity's id),
-- $4 sources, $5 times of the publishers, $6 data, $7 accepted, $8 refusal reasons (null where
-- accepted), $9 run ids (null where none), $10 lease ids (null where none), $11 our own time.
INSERT INTO {schema}.history
    (event_id, type, subject, source, occurred_at, data, accepted, refusal, run_id, lease_id,
     recorded_at)
SELECT event.*, $11::timestamptz
FROM unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::timestamptz[], $6::jsonb[],
            $7::boolean[], $8::text[], $9::uuid[], $10::uuid[]) AS event

-- name: replay
-- The events of one run and of the lease that it ran under, oldest first. $1 run, $2 lease.
SELECT event_id, type, subject, source, occurred_at, data, accepted, refusal, run_id, lease_id
FROM {schema}.history
WHERE run_id = $1 OR (lease_id = $2 AND run_id IS NULL)
ORDER BY id
