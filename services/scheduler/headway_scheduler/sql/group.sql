-- name: ensure
-- Add a row with default settings for each group that has none. $1 names, $2 owner (null for
-- enqueued work), $3 now.
INSERT INTO scheduler.manifest_group (name, owner, changed_at)
SELECT name, $2, $3 FROM unnest($1::text[]) AS named (name)
ORDER BY name
ON CONFLICT (name) DO NOTHING

-- name: concerned
-- Groups that a declaration names, and groups of which its application states settings, with the
-- number of their manifests. $1 names, $2 application.
SELECT name, max_active, priority, enabled, rate, operator_fields, declared,
       (SELECT count(*) FROM scheduler.manifest
        WHERE manifest.group_name = manifest_group.name AND pruning_at IS NULL) AS manifests
FROM scheduler.manifest_group
WHERE name = ANY($1::text[])
   OR EXISTS (SELECT FROM jsonb_each(declared) AS stated WHERE stated.value ->> 'app' = $2)
ORDER BY name

-- name: restate
-- Store the settings that a declaration changes; the version rises with the values in force.
-- $1 the groups as an array of objects, $2 now.
UPDATE scheduler.manifest_group AS known
SET max_active = stated.max_active, priority = stated.priority, enabled = stated.enabled,
    rate = stated.rate, declared = stated.declared, owner = coalesce(stated.owner, known.owner),
    version = CASE WHEN changed THEN nextval('scheduler.group_version') ELSE known.version END,
    changed_at = CASE WHEN changed THEN $2 ELSE known.changed_at END
FROM (
    SELECT stated.*, (before.max_active, before.priority, before.enabled, before.rate)
               IS DISTINCT FROM (stated.max_active, stated.priority, stated.enabled, stated.rate)
               AS changed
    FROM jsonb_to_recordset($1) AS stated (
        name text, max_active integer, priority smallint, enabled boolean, rate jsonb,
        declared jsonb, owner text)
    JOIN scheduler.manifest_group AS before USING (name)
) AS stated
WHERE known.name = stated.name

-- name: read
-- The settings of groups, as `GroupChanged` of the contract; locked against deletion. $1 names.
SELECT name AS "group", max_active, priority, enabled, rate, version
FROM scheduler.manifest_group
WHERE name = ANY($1::text[])
ORDER BY name
FOR KEY SHARE

-- name: lock
-- Lock one group. $1 name.
SELECT name, max_active, priority, enabled, rate, version, operator_fields, declared
FROM scheduler.manifest_group WHERE name = $1 FOR UPDATE

-- name: change
-- Store the settings of a group that an operator changed. $1 name, $2 max active, $3 priority, $4
-- enabled, $5 fields that the operator owns, $6 now, $7 rate.
UPDATE scheduler.manifest_group
SET max_active = $2, priority = $3, enabled = $4, operator_fields = $5, rate = $7,
    version = nextval('scheduler.group_version'), changed_at = $6
WHERE name = $1

-- name: members
-- The manifests of a group. $1 name.
SELECT id FROM scheduler.manifest WHERE group_name = $1 AND pruning_at IS NULL

-- name: empty
-- Lock groups without manifests and enqueued work. Groups of other owners, groups that are stated
-- now, and groups with settings of code or operators are left out. $1 owner (null for any), $2
-- names that are stated, $3 only these (null for any).
SELECT name FROM scheduler.manifest_group
WHERE ($1::text IS NULL OR owner IS NULL OR owner = $1)
  AND NOT name = ANY($2::text[])
  AND ($3::text[] IS NULL OR name = ANY($3))
  AND operator_fields = '{}' AND declared = '{}'
  AND NOT EXISTS (SELECT FROM scheduler.manifest WHERE manifest.group_name = manifest_group.name)
  AND NOT EXISTS (SELECT FROM scheduler.enqueued
                  WHERE enqueued.group_name = manifest_group.name AND enqueued.state = 'queued')
ORDER BY name
FOR UPDATE

-- name: remove
-- Delete groups and note their deletion; returns the version of each, as `GroupChanged` of the
-- contract. $1 names, $2 now.
WITH gone AS (
    DELETE FROM scheduler.manifest_group WHERE name = ANY($1::text[]) RETURNING name
)
INSERT INTO scheduler.deleted_group AS known (name, changed_at)
SELECT name, $2 FROM gone ORDER BY name
ON CONFLICT (name) DO UPDATE SET version = excluded.version, changed_at = excluded.changed_at
RETURNING name AS "group", version, true AS deleted

-- name: deleted
-- Deleted groups that were not created again, as `GroupChanged` of the contract. $1 names.
SELECT name AS "group", version, true AS deleted FROM scheduler.deleted_group
WHERE name = ANY($1::text[])
  AND NOT EXISTS (SELECT FROM scheduler.manifest_group
                  WHERE manifest_group.name = deleted_group.name)

-- name: forget_deleted
-- Delete the notes about groups that were deleted long ago. $1 deleted before.
DELETE FROM scheduler.deleted_group WHERE changed_at < $1
