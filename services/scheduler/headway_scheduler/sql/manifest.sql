-- name: now
-- The time of every decision: PostgreSQL's, read after the lock.
SELECT clock_timestamp()

-- name: lock_declaring
-- One declaration at a time. $1 lock key.
SELECT pg_advisory_xact_lock($1)

-- name: declared_by
-- What an owner's manifests look like now. $1 owner, $2 external ids that are being declared.
SELECT id, external_id, owner, definition_hash, undeclared_at
FROM scheduler.manifest
WHERE owner = $1 OR external_id = ANY($2::text[])

-- name: upsert_job
-- $1 names, $2 owner, $3 descriptions, $4 input schemas, $5 now.
INSERT INTO scheduler.job (name, owner, description, input_schema, declared_at)
SELECT job.name, $2, job.description, job.input_schema, $5
FROM unnest($1::text[], $3::text[], $4::jsonb[]) AS job (name, description, input_schema)
ON CONFLICT (name) DO UPDATE
SET owner = excluded.owner,
    description = excluded.description,
    input_schema = excluded.input_schema,
    declared_at = excluded.declared_at
WHERE (job.owner, job.description, job.input_schema)
    IS DISTINCT FROM (excluded.owner, excluded.description, excluded.input_schema)

-- name: upsert_group
-- A limit that is null in code keeps what is stored. $1 names, $2 max active, $3 priorities,
-- $4 now, $5 the names of those whose priority is stated.
INSERT INTO scheduler.manifest_group AS known (name, max_active, priority, changed_at)
SELECT stated.name, stated.max_active, coalesce(stated.priority, 0), $4
FROM unnest($1::text[], $2::integer[], $3::smallint[]) AS stated (name, max_active, priority)
ON CONFLICT (name) DO UPDATE
SET max_active = coalesce(excluded.max_active, known.max_active),
    priority = CASE WHEN excluded.name = ANY($5::text[])
                    THEN excluded.priority ELSE known.priority END,
    version = known.version + 1,
    changed_at = $4
WHERE coalesce(excluded.max_active, known.max_active) IS DISTINCT FROM known.max_active
   OR (excluded.name = ANY($5::text[]) AND excluded.priority <> known.priority)

-- name: groups
-- The limits of groups, to be told again whenever they are declared. $1 names.
SELECT name, max_active, priority, enabled, version
FROM scheduler.manifest_group
WHERE name = ANY($1::text[])
ORDER BY name

-- name: upsert_manifest
-- Write new and changed definitions; what operators own stays. $1 ids, $2 external ids,
-- $3 owner, $4 jobs, $5 groups, $6 inputs, $7 cadences, $8 zones, $9 priorities, $10 retry
-- policies, $11 timeouts, $12 lost-contact policies, $13 hashes, $14 next due times, $15 now,
-- $16 cancel graces.
INSERT INTO scheduler.manifest
    (id, external_id, owner, job, group_name, input, cadence, zone, priority, retry,
     timeout_seconds, cancel_grace_seconds, on_lost_contact, definition_hash, next_due_at,
     declared_at)
SELECT stated.id, stated.external_id, $3, stated.job, stated.group_name, stated.input,
       stated.cadence, stated.zone, stated.priority, stated.retry, stated.timeout_seconds,
       stated.cancel_grace_seconds, stated.on_lost_contact, stated.definition_hash, stated.next_due_at, $15
FROM unnest($1::uuid[], $2::text[], $4::text[], $5::text[], $6::jsonb[], $7::jsonb[], $8::text[],
            $9::smallint[], $10::jsonb[], $11::double precision[], $12::text[], $13::text[],
            $14::timestamptz[], $16::double precision[])
    AS stated (id, external_id, job, group_name, input, cadence, zone, priority, retry,
               timeout_seconds, on_lost_contact, definition_hash, next_due_at,
               cancel_grace_seconds)
ON CONFLICT (external_id) DO UPDATE
SET job = excluded.job,
    group_name = excluded.group_name,
    input = excluded.input,
    cadence = excluded.cadence,
    zone = excluded.zone,
    priority = excluded.priority,
    retry = excluded.retry,
    timeout_seconds = excluded.timeout_seconds,
    cancel_grace_seconds = excluded.cancel_grace_seconds,
    on_lost_contact = excluded.on_lost_contact,
    definition_hash = excluded.definition_hash,
    next_due_at = excluded.next_due_at,
    declared_at = excluded.declared_at,
    undeclared_at = NULL

-- name: undeclare
-- Stop manifests that their owner no longer declares. $1 ids, $2 now.
UPDATE scheduler.manifest SET undeclared_at = $2 WHERE id = ANY($1::uuid[])

-- name: due
-- Manifests whose time has come, the oldest of them, with what the decision needs and what
-- the work will carry; locked in a fixed order, so that no declaration comes in between.
-- $1 now, $2 how many.
WITH due AS MATERIALIZED (
    SELECT id
    FROM scheduler.manifest
    WHERE enabled AND undeclared_at IS NULL AND next_due_at <= $1
    ORDER BY next_due_at
    LIMIT $2
)
SELECT manifest.id, manifest.external_id, manifest.job, manifest.group_name, manifest.input,
       manifest.cadence, manifest.zone, manifest.priority, manifest.retry,
       manifest.timeout_seconds, manifest.cancel_grace_seconds, manifest.on_lost_contact, manifest.next_due_at,
       manifest.blocked_by, manifest_group.enabled AS group_enabled,
       (SELECT work.id FROM scheduler.work WHERE work.manifest_id = manifest.id LIMIT 1)
           AS outstanding
FROM scheduler.manifest
JOIN scheduler.manifest_group ON manifest_group.name = manifest.group_name
WHERE manifest.id IN (SELECT id FROM due)
  AND manifest.enabled
  AND manifest.undeclared_at IS NULL
  AND manifest.next_due_at <= $1
ORDER BY manifest.id
FOR NO KEY UPDATE OF manifest

-- name: move_on
-- Where each manifest goes next. $1 ids, $2 next due times (null where there is none).
UPDATE scheduler.manifest
SET next_due_at = decided.next_due_at
FROM unnest($1::uuid[], $2::timestamptz[]) AS decided (id, next_due_at)
WHERE manifest.id = decided.id

-- name: next_due
-- When the next manifest is due.
SELECT min(next_due_at)
FROM scheduler.manifest
WHERE enabled AND undeclared_at IS NULL AND next_due_at IS NOT NULL

-- name: lock
-- Manifests, locked in a fixed order. $1 ids.
SELECT id FROM scheduler.manifest WHERE id = ANY($1::uuid[]) ORDER BY id FOR NO KEY UPDATE

-- name: settle
-- What an outcome does to its manifest. $1 ids, $2 outcomes, $3 settling times, $4 dead
-- letters (null where none).
UPDATE scheduler.manifest
SET last_outcome = told.outcome,
    last_settled_at = told.settled_at,
    success_number = success_number + (told.outcome = 'completed')::integer,
    last_success_at = CASE WHEN told.outcome = 'completed'
                           THEN told.settled_at ELSE last_success_at END,
    blocked_by = coalesce(told.dead_letter, blocked_by)
FROM unnest($1::uuid[], $2::text[], $3::timestamptz[], $4::uuid[])
    AS told (id, outcome, settled_at, dead_letter)
WHERE manifest.id = told.id

-- name: page
-- A page of manifests as clients see them. $1 after this id, $2 how many.
SELECT external_id, owner, job, group_name AS "group", enabled,
       undeclared_at IS NULL AS declared, next_due_at, blocked_by, last_outcome, last_settled_at,
       success_number
FROM scheduler.manifest
WHERE external_id > $1
ORDER BY external_id
LIMIT $2
