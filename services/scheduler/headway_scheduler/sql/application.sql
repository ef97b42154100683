-- name: read
-- One application. $1 name.
SELECT name, source, generation, declared_at, declared_by
FROM scheduler.application WHERE name = $1

-- name: declare
-- Store who declared an application. $1 name, $2 generation, $3 now, $4 source, $5 author.
INSERT INTO scheduler.application (name, generation, declared_at, source, declared_by)
VALUES ($1, $2, $3, $4, $5)
ON CONFLICT (name) DO UPDATE
SET generation = excluded.generation, declared_at = excluded.declared_at,
    source = excluded.source, declared_by = excluded.declared_by

-- name: declared_last
-- Whether a declaration is the last one of its application. $1 name, $2 when it was.
SELECT declared_at = $2 FROM scheduler.application WHERE name = $1

-- name: give_back
-- Let the code of an application declare it again, whatever its generation. $1 name.
UPDATE scheduler.application SET source = 'code', generation = 0 WHERE name = $1

-- name: rename
-- Rename an application. $1 name, $2 new name.
UPDATE scheduler.application SET name = $2 WHERE name = $1

-- name: rename_manifests
-- Rename the owner of manifests. $1 name, $2 new name.
UPDATE scheduler.manifest SET owner = $2 WHERE owner = $1

-- name: rename_jobs
-- Rename the owner of jobs. $1 name, $2 new name.
UPDATE scheduler.job
SET owner = CASE WHEN owner = $1 THEN $2 ELSE owner END,
    declared_by = array_replace(declared_by, $1, $2)
WHERE owner = $1 OR $1 = ANY(declared_by)

-- name: rename_groups
-- Rename the owner of groups, also in the statements of settings. $1 name, $2 new name.
UPDATE scheduler.manifest_group
SET owner = CASE WHEN owner = $1 THEN $2 ELSE owner END,
    declared = (
        SELECT coalesce(jsonb_object_agg(field, CASE
            WHEN statement ->> 'app' = $1
            THEN statement || jsonb_build_object('app', $2::text)
            ELSE statement END), '{}')
        FROM jsonb_each(declared) AS stated (field, statement))
WHERE owner = $1
   OR EXISTS (SELECT FROM jsonb_each(declared) AS stated (field, statement)
              WHERE statement ->> 'app' = $1)

-- name: remove
-- Delete a retired application. $1 name.
DELETE FROM scheduler.application WHERE name = $1

-- name: release_groups
-- Remove the owner of the groups of a retired application. $1 name.
UPDATE scheduler.manifest_group SET owner = NULL WHERE owner = $1

-- name: manifests
-- The manifests of an application that are not being pruned. $1 name.
SELECT id FROM scheduler.manifest WHERE owner = $1 AND pruning_at IS NULL

-- name: renamed
-- The last time that an application was renamed or retired, and its new name. $1 name.
SELECT type, source, occurred_at, data ->> 'to' AS "to"
FROM scheduler.history
WHERE subject = $1
  AND type IN ('headway.application.renamed.v1', 'headway.application.retired.v1')
ORDER BY id DESC
LIMIT 1
