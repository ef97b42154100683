-- name: find_manifest
-- One manifest with everything that an answer needs. $1 external id.
SELECT manifest.*, scheduler.policies(manifest) AS policies,
       manifest_group.enabled AS group_enabled, parent.external_id AS parent,
       job.retired_at AS job_retired_at,
       (SELECT count(*) FROM scheduler.work WHERE work.manifest_id = manifest.id) AS outstanding,
       (SELECT count(*) FROM scheduler.occurrence
        WHERE occurrence.manifest_id = manifest.id AND decision = 'owed') AS owed
FROM scheduler.manifest
JOIN scheduler.manifest_group ON manifest_group.name = manifest.group_name
LEFT JOIN scheduler.manifest AS parent ON parent.id = manifest.depends_on
LEFT JOIN scheduler.job ON job.name = manifest.job
WHERE manifest.external_id = $1 AND manifest.pruning_at IS NULL

-- name: similar_names
-- Ids that may be meant, first ids that begin alike. $1 external id, $2 how many.
SELECT external_id FROM scheduler.manifest
WHERE pruning_at IS NULL
ORDER BY lower(left(external_id, 3)) = lower(left($1, 3)) DESC,
         abs(length(external_id) - length($1))
LIMIT $2

-- name: deleted
-- When the last manifest with an id was deleted, and by whom. $1 external id.
SELECT source, occurred_at
FROM scheduler.history
WHERE subject = $1 AND type = 'headway.manifest.pruned.v1'
ORDER BY id DESC
LIMIT 1

-- name: timing_versions
-- The timings of manifests, oldest first. $1 manifests.
SELECT manifest_id, since, timing
FROM scheduler.timing
WHERE manifest_id = ANY($1::uuid[])
ORDER BY manifest_id, since

-- name: entries_before
-- The last decisions about a manifest up to an instant, latest first. $1 manifest, $2 instant, $3
-- how many.
SELECT cause, first_due_at, last_due_at, decision, reason, work_id AS work, outcome, decided_at, actor,
       not_before, brought_forward, policies
FROM scheduler.occurrence
WHERE manifest_id = $1 AND first_due_at <= $2
ORDER BY first_due_at DESC, decided_at DESC
LIMIT $3

-- name: entry_over
-- The last scheduled decision about a manifest that begins up to an instant, however many other
-- decisions followed. $1 manifest, $2 instant.
SELECT cause, first_due_at, last_due_at, decision, reason, work_id AS work, outcome, decided_at, actor,
       not_before, brought_forward, policies
FROM scheduler.occurrence
WHERE manifest_id = $1 AND first_due_at <= $2
  AND (starts_with(cause, 'due:') OR starts_with(cause, 'stretch:'))
ORDER BY first_due_at DESC, decided_at DESC
LIMIT 1

-- name: entries_after
-- The first decisions about a manifest after an instant. $1 manifest, $2 instant, $3 how many.
SELECT cause, first_due_at, last_due_at, decision, reason, work_id AS work, outcome, decided_at, actor,
       not_before, brought_forward, policies
FROM scheduler.occurrence
WHERE manifest_id = $1 AND first_due_at > $2
ORDER BY first_due_at, decided_at
LIMIT $3

-- name: entries_owed
-- Pending decisions about a manifest, the soonest first. $1 manifest, $2 how many.
SELECT cause, first_due_at, last_due_at, decision, reason, work_id AS work, outcome, decided_at, actor,
       not_before, brought_forward, policies
FROM scheduler.occurrence
WHERE manifest_id = $1 AND decision = 'owed'
ORDER BY coalesce(not_before, first_due_at), first_due_at, cause
LIMIT $2

-- name: switched_off
-- The last audit entry that disabled a manifest or a group. $1 external id or group, $2 types of
-- entries, $3 latest time.
SELECT type, source, occurred_at
FROM scheduler.history
WHERE subject = $1 AND type = ANY($2::text[]) AND occurred_at <= $3
  AND (data ->> 'enabled' = 'false' OR data ->> 'disabled' = 'true')
ORDER BY id DESC
LIMIT 1

-- name: ledger_page
-- The manifests whose ledger is checked next. $1 only this external id (null for all), $2 after
-- this id, $3 how many.
SELECT manifest.id, manifest.external_id, manifest.next_due_at
FROM scheduler.manifest
WHERE manifest.pruning_at IS NULL AND manifest.external_id > $2
  AND ($1::text IS NULL OR manifest.external_id = $1)
ORDER BY manifest.external_id
LIMIT $3

-- name: scheduled_entries
-- The scheduled decisions about a manifest. $1 manifest, $2 since, $3 how many.
SELECT cause, first_due_at, last_due_at
FROM scheduler.occurrence
WHERE manifest_id = $1 AND last_due_at >= $2
  AND (starts_with(cause, 'due:') OR starts_with(cause, 'stretch:'))
ORDER BY first_due_at, last_due_at
LIMIT $3

-- name: origin
-- The state of a piece of work: outstanding, or enqueued. $1 work.
SELECT work.queued_at, manifest.external_id AS manifest,
       coalesce(enqueued.job, manifest.job, '') AS job,
       coalesce(enqueued.group_name, manifest.group_name, job.terms ->> 'group', enqueued.job, '')
           AS group_name,
       enqueued.state AS enqueued_state, enqueued.reason, enqueued.enqueued_at,
       enqueued.decided_at, enqueued.settled_at
FROM (SELECT $1::uuid AS id) AS wanted
LEFT JOIN scheduler.work ON work.id = wanted.id
LEFT JOIN scheduler.manifest ON manifest.id = work.manifest_id
LEFT JOIN scheduler.enqueued ON enqueued.work_id = wanted.id
LEFT JOIN scheduler.job ON job.name = enqueued.job
WHERE work.id IS NOT NULL OR enqueued.work_id IS NOT NULL

-- name: firing_of
-- The fields of stored manifests that determine their fire times. $1 ids.
SELECT id, external_id, timing, jitter_seconds, enabled, disabled_by, operator_fields, next_due_at,
       undeclared_at, terms, owner
FROM scheduler.manifest
WHERE id = ANY($1::uuid[])

-- name: job_settings
-- The limits of jobs as code states them, and the limits that operators set. $1 names.
SELECT name, max_active, rate, batch, counts_globally, operator_limits
FROM scheduler.job
WHERE name = ANY($1::text[])
ORDER BY name

-- name: retired_after
-- Jobs that a declaration would retire, and retired jobs of the application or its manifests; with
-- the manifests that use them (null if none). $1 application, $2 jobs that it declares.
SELECT job.name AS job, job.retired_at, manifest.external_id, manifest.owner
FROM scheduler.job
LEFT JOIN scheduler.manifest ON manifest.job = job.name AND manifest.pruning_at IS NULL
WHERE NOT job.name = ANY($2::text[])
  AND (job.declared_by = ARRAY[$1]
       OR (job.retired_at IS NOT NULL AND manifest.id IS NOT NULL
           AND $1 IN (job.owner, manifest.owner)))
ORDER BY job.name, manifest.external_id

-- name: definitions_of
-- The definitions of stored manifests. $1 ids.
SELECT manifest.*, parent.external_id AS parent
FROM scheduler.manifest
LEFT JOIN scheduler.manifest AS parent ON parent.id = manifest.depends_on
WHERE manifest.id = ANY($1::uuid[])
