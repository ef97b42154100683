-- name: upsert
-- What code says of groups; a setting that it does not state, or that an operator has
-- touched, stays. $1 names, $2 max active, $3 priorities, $4 enabled, $5 owner, $6 now, $7 rates.
INSERT INTO scheduler.manifest_group AS known
    (name, max_active, priority, enabled, rate, owner, changed_at)
SELECT stated.name, stated.max_active, coalesce(stated.priority, 0), coalesce(stated.enabled, true),
       stated.rate, $5, $6
FROM unnest($1::text[], $2::integer[], $3::smallint[], $4::boolean[], $7::jsonb[])
    AS stated (name, max_active, priority, enabled, rate)
ORDER BY stated.name
ON CONFLICT (name) DO NOTHING

-- name: note_declared
-- What code says of groups, for when an operator gives a setting back. $1 names, $2 max active,
-- $3 priorities, $4 enabled, $5 rates.
UPDATE scheduler.manifest_group AS known
SET declared = stated.declared
FROM (SELECT one.name, jsonb_strip_nulls(jsonb_build_object(
                 'max_active', one.max_active, 'priority', one.priority,
                 'enabled', one.enabled, 'rate', one.rate)) AS declared
      FROM unnest($1::text[], $2::integer[], $3::smallint[], $4::boolean[], $5::jsonb[])
          AS one (name, max_active, priority, enabled, rate)) AS stated
WHERE known.name = stated.name AND known.declared <> stated.declared

-- name: forget_declared
-- Groups of which an owner's code says nothing any more. $1 owner, $2 names that are stated.
UPDATE scheduler.manifest_group SET declared = '{}'
WHERE owner = $1 AND NOT name = ANY($2::text[]) AND declared <> '{}'

-- name: restate
-- The same for groups that are there already; returns the names of those that changed.
-- $1 names, $2 max active, $3 priorities, $4 enabled, $5 owner, $6 now, $7 rates.
WITH stated AS (
    SELECT known.name,
           CASE WHEN 'max_active' = ANY(known.touched) THEN known.max_active
                ELSE coalesce(stated.max_active, known.max_active) END AS max_active,
           CASE WHEN 'priority' = ANY(known.touched) THEN known.priority
                ELSE coalesce(stated.priority, known.priority) END AS priority,
           CASE WHEN 'enabled' = ANY(known.touched) THEN known.enabled
                ELSE coalesce(stated.enabled, known.enabled) END AS enabled,
           CASE WHEN 'rate' = ANY(known.touched) THEN known.rate
                ELSE coalesce(stated.rate, known.rate) END AS rate
    FROM unnest($1::text[], $2::integer[], $3::smallint[], $4::boolean[], $7::jsonb[])
        AS stated (name, max_active, priority, enabled, rate)
    JOIN scheduler.manifest_group AS known ON known.name = stated.name
)
UPDATE scheduler.manifest_group AS known
SET max_active = stated.max_active, priority = stated.priority, enabled = stated.enabled,
    rate = stated.rate, owner = $5, version = nextval('scheduler.group_version'), changed_at = $6
FROM stated
WHERE known.name = stated.name
  AND (known.max_active, known.priority, known.enabled, known.rate)
      IS DISTINCT FROM (stated.max_active, stated.priority, stated.enabled, stated.rate)
RETURNING known.name

-- name: read
-- The settings of groups, which nobody may delete meanwhile. $1 names.
SELECT name, max_active, priority, enabled, rate, version, touched
FROM scheduler.manifest_group
WHERE name = ANY($1::text[])
ORDER BY name
FOR KEY SHARE

-- name: lock
-- One group, locked. $1 name.
SELECT name, max_active, priority, enabled, rate, version, touched, declared
FROM scheduler.manifest_group WHERE name = $1 FOR UPDATE

-- name: change
-- What an operator says of a group. $1 name, $2 max active, $3 priority, $4 enabled, $5 the
-- settings that are the operator's, $6 now, $7 rate.
UPDATE scheduler.manifest_group
SET max_active = $2, priority = $3, enabled = $4, touched = $5, rate = $7,
    version = nextval('scheduler.group_version'), changed_at = $6
WHERE name = $1

-- name: members
-- The manifests of a group. $1 name.
SELECT id FROM scheduler.manifest WHERE group_name = $1 AND pruning_at IS NULL

-- name: remove_empty
-- Groups that nobody is in; those of another owner's making, those stated just now and those
-- that an operator has touched stay.
-- $1 owner (null for any), $2 names that are stated.
DELETE FROM scheduler.manifest_group
WHERE ($1::text IS NULL OR owner IS NULL OR owner = $1)
  AND NOT name = ANY($2::text[])
  AND touched = '{}'
  AND NOT EXISTS (SELECT FROM scheduler.manifest WHERE manifest.group_name = manifest_group.name)
RETURNING name

-- name: page
-- A page of groups as clients see them. $1 after this name, $2 how many.
SELECT name, max_active, priority, enabled, rate, touched,
       (SELECT count(*) FROM scheduler.manifest
        WHERE manifest.group_name = manifest_group.name AND pruning_at IS NULL) AS manifests
FROM scheduler.manifest_group
WHERE name > $1
ORDER BY name
LIMIT $2

-- name: remove_if_empty
-- Groups that lost their last manifest; those that an operator has touched or that code states
-- stay. $1 names.
DELETE FROM scheduler.manifest_group
WHERE name = ANY($1::text[]) AND touched = '{}' AND declared = '{}'
  AND NOT EXISTS (SELECT FROM scheduler.manifest WHERE manifest.group_name = manifest_group.name)
