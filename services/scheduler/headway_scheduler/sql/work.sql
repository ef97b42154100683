-- name: decide
-- Write decisions into the ledger; returns those that nobody had written yet. $1 manifests,
-- $2 causes, $3 first due times, $4 last due times, $5 decisions, $6 reasons, $7 work ids,
-- $8 now.
INSERT INTO scheduler.occurrence
    (manifest_id, cause, first_due_at, last_due_at, decision, reason, work_id, decided_at)
SELECT verdict.*, $8
FROM unnest($1::uuid[], $2::text[], $3::timestamptz[], $4::timestamptz[], $5::text[], $6::text[],
            $7::uuid[]) AS verdict
ON CONFLICT DO NOTHING
RETURNING work_id

-- name: add
-- Work that is now outstanding. $1 ids, $2 manifests, $3 causes, $4 now.
INSERT INTO scheduler.work (id, manifest_id, cause, queued_at)
SELECT made.*, $4 FROM unnest($1::uuid[], $2::uuid[], $3::text[]) AS made

-- name: lock
-- The outstanding work among these, locked in a fixed order. $1 ids.
SELECT id, manifest_id, cause, round FROM scheduler.work WHERE id = ANY($1::uuid[]) ORDER BY id FOR UPDATE

-- name: remove
-- Work that is settled. $1 ids.
DELETE FROM scheduler.work WHERE id = ANY($1::uuid[])

-- name: tell_outcome
-- How the work of an occurrence ended. $1 manifests, $2 causes, $3 outcomes.
UPDATE scheduler.occurrence
SET outcome = told.outcome
FROM unnest($1::uuid[], $2::text[], $3::text[]) AS told (manifest_id, cause, outcome)
WHERE occurrence.manifest_id = told.manifest_id AND occurrence.cause = told.cause
