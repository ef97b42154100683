-- name: page
-- Manifests by name, with their last run. $1 names after this one, $2 text in the name, the id, the
-- job, its title or the group (a pattern), $3 group, $4 job, $5 owner, $6 required labels (each
-- null for any), $7 state: enabled, disabled, paused, blocked, outstanding, troubled or null, $8
-- limit.
SELECT page.*, manifest_group.enabled AS group_enabled, parent.external_id AS parent,
       job.retired_at AS job_retired_at,
       coalesce(job.title, '') AS title,
       (SELECT count(*) FROM scheduler.work WHERE work.manifest_id = page.id) AS outstanding,
       (SELECT count(*) FROM scheduler.occurrence
        WHERE occurrence.manifest_id = page.id AND occurrence.decision = 'owed') AS owed,
       last_run.run_id AS run, last_run.state AS run_state, last_run.created_at AS run_created_at,
       last_run.started_at AS run_started_at, last_run.finished_at AS run_finished_at,
       left(last_run.failure ->> 'message', 500) AS run_failure
FROM (
    SELECT manifest.id, manifest.external_id, manifest.owner, manifest.job, manifest.group_name,
           manifest.labels, manifest.timing, manifest.enabled, manifest.disabled_by,
           manifest.blocked_by, manifest.trouble, manifest.next_due_at, manifest.wake_at,
           manifest.last_outcome, manifest.last_settled_at, manifest.success_number,
           manifest.dormant, manifest.depends_on, manifest.undeclared_at, manifest.paused,
           manifest.pauses
    FROM scheduler.manifest
    WHERE manifest.pruning_at IS NULL AND manifest.external_id > $1
      AND ($2::text IS NULL OR manifest.external_id ILIKE $2 OR manifest.job ILIKE $2
           OR manifest.group_name ILIKE $2 OR manifest.id::text ILIKE $2
           OR EXISTS (SELECT FROM scheduler.job
                      WHERE job.name = manifest.job AND job.title ILIKE $2))
      AND ($3::text IS NULL OR manifest.group_name = $3)
      AND ($4::text IS NULL OR manifest.job = $4)
      AND ($5::text IS NULL OR manifest.owner = $5)
      AND ($6::jsonb IS NULL OR manifest.labels @> $6)
      AND CASE $7::text
          WHEN 'enabled' THEN manifest.enabled
          WHEN 'disabled' THEN NOT manifest.enabled
          WHEN 'paused' THEN manifest.paused
          WHEN 'blocked' THEN manifest.blocked_by IS NOT NULL
          WHEN 'troubled' THEN manifest.trouble IS NOT NULL
          WHEN 'outstanding' THEN EXISTS (
              SELECT FROM scheduler.work WHERE work.manifest_id = manifest.id)
          ELSE true END
    ORDER BY manifest.external_id
    LIMIT $8
) AS page
JOIN scheduler.manifest_group ON manifest_group.name = page.group_name
LEFT JOIN scheduler.job ON job.name = page.job
LEFT JOIN scheduler.manifest AS parent ON parent.id = page.depends_on
LEFT JOIN LATERAL (
    SELECT run.run_id, run.state, run.created_at, run.started_at,
           run.finished_at, run.failure
    FROM dispatcher.run
    WHERE run.manifest_id = page.id
    ORDER BY run.created_at DESC, run.run_id DESC
    LIMIT 1
) AS last_run ON true
ORDER BY page.external_id

-- name: find_id
-- The id of a manifest. $1 name.
SELECT id FROM scheduler.manifest WHERE external_id = $1 AND pruning_at IS NULL

-- name: deleted
-- The last deletion of a manifest with a name. $1 name.
SELECT source, occurred_at
FROM scheduler.history
WHERE subject = $1 AND type = 'headway.manifest.pruned.v1'
ORDER BY id DESC
LIMIT 1

-- name: similar_names
-- Names to compare with a misspelled name, names with the same beginning first. $1 name, $2 limit.
SELECT external_id FROM scheduler.manifest
WHERE pruning_at IS NULL
ORDER BY lower(left(external_id, 3)) = lower(left($1, 3)) DESC,
         abs(length(external_id) - length($1))
LIMIT $2

-- name: manifest
-- One manifest in full. $1 name.
SELECT manifest.*, manifest_group.enabled AS group_enabled, parent.external_id AS parent,
       job.retired_at AS job_retired_at,
       coalesce(job.title, '') AS title, coalesce(job.description, '') AS description,
       coalesce(job.category, '') AS category, job.input_schema,
       coalesce(job.takes_input, true) AS takes_input,
       (SELECT count(*) FROM scheduler.work WHERE work.manifest_id = manifest.id) AS outstanding,
       (SELECT count(*) FROM scheduler.occurrence
        WHERE occurrence.manifest_id = manifest.id AND occurrence.decision = 'owed') AS owed,
       last_run.run_id AS run, last_run.state AS run_state, last_run.created_at AS run_created_at,
       last_run.started_at AS run_started_at, last_run.finished_at AS run_finished_at,
       left(last_run.failure ->> 'message', 500) AS run_failure
FROM scheduler.manifest
JOIN scheduler.manifest_group ON manifest_group.name = manifest.group_name
LEFT JOIN scheduler.manifest AS parent ON parent.id = manifest.depends_on
LEFT JOIN scheduler.job ON job.name = manifest.job
LEFT JOIN LATERAL (
    SELECT run.run_id, run.state, run.created_at, run.started_at,
           run.finished_at, run.failure
    FROM dispatcher.run
    WHERE run.manifest_id = manifest.id
    ORDER BY run.created_at DESC, run.run_id DESC
    LIMIT 1
) AS last_run ON true
WHERE manifest.external_id = $1 AND manifest.pruning_at IS NULL

-- name: family
-- The dependency tree that contains a manifest, parents before their children. $1 manifest, $2
-- limit.
WITH RECURSIVE ancestor AS (
    SELECT id, depends_on FROM scheduler.manifest WHERE id = $1
    UNION
    SELECT parent.id, parent.depends_on
    FROM ancestor
    JOIN scheduler.manifest AS parent ON parent.id = ancestor.depends_on
), tree AS (
    SELECT id, 0 AS depth FROM ancestor WHERE depends_on IS NULL
    UNION ALL
    SELECT child.id, tree.depth + 1
    FROM tree
    JOIN scheduler.manifest AS child ON child.depends_on = tree.id
)
SELECT tree.depth, manifest.id, manifest.external_id, manifest.job, manifest.group_name,
       manifest.enabled, manifest.blocked_by, manifest.dormant, manifest.depends_on,
       manifest.last_outcome, manifest.next_due_at, manifest.paused,
       manifest_group.enabled AS group_enabled, job.retired_at AS job_retired_at
FROM (SELECT * FROM tree LIMIT $2) AS tree
JOIN scheduler.manifest ON manifest.id = tree.id
JOIN scheduler.manifest_group ON manifest_group.name = manifest.group_name
LEFT JOIN scheduler.job ON job.name = manifest.job
WHERE manifest.pruning_at IS NULL
ORDER BY tree.depth, manifest.external_id

-- name: connected
-- Manifests that depend on another or have dependents, by name. $1 limit.
SELECT manifest.id, manifest.external_id, manifest.group_name, manifest.enabled,
       manifest.blocked_by, manifest.dormant, manifest.depends_on, manifest.last_outcome,
       manifest.next_due_at, manifest.paused,
       manifest_group.enabled AS group_enabled, job.retired_at AS job_retired_at
FROM scheduler.manifest
JOIN scheduler.manifest_group ON manifest_group.name = manifest.group_name
LEFT JOIN scheduler.job ON job.name = manifest.job
WHERE manifest.pruning_at IS NULL
  AND (manifest.depends_on IS NOT NULL
       OR EXISTS (SELECT FROM scheduler.manifest AS child
                  WHERE child.depends_on = manifest.id AND child.pruning_at IS NULL))
ORDER BY manifest.external_id
LIMIT $1

-- name: labels
-- The labels of manifests, with the number of manifests of each. $1 limit.
SELECT label.key, label.value, count(*) AS manifests
FROM scheduler.manifest
CROSS JOIN LATERAL jsonb_each_text(manifest.labels) AS label
WHERE manifest.pruning_at IS NULL
GROUP BY label.key, label.value
ORDER BY label.key, label.value
LIMIT $1
