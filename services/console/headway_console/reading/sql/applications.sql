-- name: page
-- Applications in the order of their names, with how much each owns. $1 after this name, $2 how
-- many.
SELECT application.name, application.source, application.generation, application.declared_at,
       application.declared_by,
       (SELECT count(*) FROM scheduler.manifest
        WHERE manifest.owner = application.name AND manifest.pruning_at IS NULL) AS manifests,
       (SELECT count(*) FROM scheduler.job
        WHERE application.name = ANY(job.declared_by)) AS jobs
FROM scheduler.application
WHERE application.name > $1
ORDER BY application.name
LIMIT $2
