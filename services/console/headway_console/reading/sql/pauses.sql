-- name: page
-- Pauses in force, the oldest first, with the number of manifests that each covers now. $1 after
-- this id (null: from the first on), $2 whether only pauses of all manifests, $3 limit.
SELECT pause.id, pause.manifests, pause.group_name, pause.labels, pause.reason, pause.until,
       pause.created_by AS by, pause.created_at AS since,
       (SELECT count(*) FROM scheduler.manifest
        WHERE manifest.pruning_at IS NULL AND scheduler.covers(pause, manifest)) AS count
FROM scheduler.pause
WHERE ($1::uuid IS NULL OR pause.id > $1)
  AND (NOT $2::boolean OR num_nonnulls(pause.manifests, pause.group_name, pause.labels) = 0)
ORDER BY pause.id
LIMIT $3

-- name: coverable
-- The number of manifests that a pause of all covers now.
SELECT count(*) FROM scheduler.manifest WHERE pruning_at IS NULL
