-- name: applications
-- Applications by name, with the number of manifests and jobs of each. $1 names after this one, $2
-- limit.
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

-- name: jobs
-- Declared and retired jobs by name, with their limits (of an operator, or else of the code),
-- manifests and workers. $1 names after this one, $2 text in the name or title (a pattern), $3 time
-- since which a live worker was heard, $4 limit, $5 one job (null for all).
SELECT job.name, job.owner, job.title, job.description, job.category, job.input_schema,
       job.takes_input, job.batch, job.retired_at,
       CASE WHEN job.operator_limits ? 'max_active'
            THEN (job.operator_limits ->> 'max_active')::integer
            ELSE job.max_active END AS max_active,
       CASE WHEN job.operator_limits ? 'rate'
            THEN job.operator_limits -> 'rate' ELSE job.rate END AS rate,
       ARRAY(SELECT jsonb_object_keys(job.operator_limits) ORDER BY 1) AS touched,
       (job.terms -> 'retry' ->> 'attempts')::integer AS attempts,
       coalesce(scheduled.manifests, 0) AS manifests, coalesce(served.workers, 0) AS workers,
       coalesce(held.slots, 0) AS active
FROM scheduler.job
LEFT JOIN (
    SELECT lease.job AS name, count(*) AS slots
    FROM dispatcher.lease
    WHERE lease.ended_at IS NULL
    GROUP BY lease.job
) AS held ON held.name = job.name
LEFT JOIN (
    SELECT manifest.job AS name, count(*) AS manifests
    FROM scheduler.manifest
    WHERE manifest.pruning_at IS NULL
    GROUP BY manifest.job
) AS scheduled ON scheduled.name = job.name
LEFT JOIN (
    SELECT unnest(worker.jobs) AS name, count(*) AS workers
    FROM dispatcher.worker
    WHERE worker.last_heard_at > $3 AND NOT worker.draining
    GROUP BY 1
) AS served ON served.name = job.name
WHERE job.name > $1 AND ($2::text IS NULL OR job.name ILIKE $2 OR job.title ILIKE $2)
  AND ($5::text IS NULL OR job.name = $5)
ORDER BY job.name
LIMIT $4

-- name: figures
-- The latest ended runs of each job: results, and the median and 95th percentile of the seconds of
-- completed ones. $1 jobs, $2 number of runs of each job.
SELECT named.job, count(latest.state) AS ended,
       count(*) FILTER (WHERE latest.state = 'failed') AS failed,
       percentile_cont(0.5) WITHIN GROUP (ORDER BY latest.seconds)
           FILTER (WHERE latest.state = 'completed') AS p50,
       percentile_cont(0.95) WITHIN GROUP (ORDER BY latest.seconds)
           FILTER (WHERE latest.state = 'completed') AS p95,
       min(latest.created_at) AS since
FROM unnest($1::text[]) AS named (job)
LEFT JOIN LATERAL (
    SELECT metadata.state, metadata.created_at,
           extract(epoch FROM metadata.finished_at - metadata.started_at) AS seconds
    FROM dispatcher.metadata
    WHERE metadata.job = named.job AND metadata.finished_at IS NOT NULL
    ORDER BY metadata.created_at DESC
    LIMIT $2
) AS latest ON true
GROUP BY named.job

-- name: jobs_of_group
-- The jobs of the manifests of a group, with the number of manifests of each. $1 group, $2 limit.
SELECT manifest.job, count(*) AS manifests
FROM scheduler.manifest
WHERE manifest.group_name = $1 AND manifest.pruning_at IS NULL
GROUP BY manifest.job
ORDER BY manifest.job
LIMIT $2
