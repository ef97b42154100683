-- name: names
-- Manifests, jobs, groups and workers by their names, with a line about each; names that begin
-- with the text are first. $1 text in the name (a pattern), $2 beginning of the name (a pattern),
-- $3 limit of each kind.
(SELECT 'manifest' AS kind, manifest.external_id AS name,
        'job ' || manifest.job || ', group ' || manifest.group_name AS about
 FROM scheduler.manifest
 WHERE manifest.pruning_at IS NULL
   AND (manifest.external_id ILIKE $1 OR manifest.job ILIKE $1)
 ORDER BY manifest.external_id ILIKE $2 DESC, manifest.external_id
 LIMIT $3)
UNION ALL
(SELECT 'job', job.name, CASE WHEN job.retired_at IS NULL THEN job.title ELSE 'retired' END
 FROM scheduler.job
 WHERE job.name ILIKE $1 OR job.title ILIKE $1
 ORDER BY job.name ILIKE $2 DESC, job.name
 LIMIT $3)
UNION ALL
(SELECT 'group', manifest_group.name,
        CASE WHEN manifest_group.enabled THEN '' ELSE 'disabled' END
 FROM scheduler.manifest_group
 WHERE manifest_group.name ILIKE $1
 ORDER BY manifest_group.name ILIKE $2 DESC, manifest_group.name
 LIMIT $3)
UNION ALL
(SELECT 'worker', worker.name, CASE WHEN worker.gone THEN 'lost' ELSE worker.host END
 FROM dispatcher.worker
 WHERE worker.name ILIKE $1
 ORDER BY worker.name ILIKE $2 DESC, worker.gone, worker.name
 LIMIT $3)
