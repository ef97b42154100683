-- name: lock_declaring
-- Let one declaration run at a time. $1 lock key.
SELECT pg_advisory_xact_lock($1)

-- name: lock
-- Lock manifests in a fixed order, without pruned ones. $1 ids.
SELECT id FROM scheduler.manifest
WHERE id = ANY($1::uuid[]) AND pruning_at IS NULL
ORDER BY id
FOR NO KEY UPDATE

-- name: lock_named
-- Lock one manifest, unless it is pruned. $1 external id.
SELECT id FROM scheduler.manifest
WHERE external_id = $1 AND pruning_at IS NULL
FOR NO KEY UPDATE

-- name: lock_with_children
-- Lock manifests, and the dependents that follow successes of some of them, in a fixed order. $1
-- ids, $2 manifests that succeeded.
SELECT id, CASE WHEN NOT dormant THEN depends_on END AS depends_on FROM scheduler.manifest
WHERE (id = ANY($1::uuid[]) OR (depends_on = ANY($2::uuid[]) AND NOT dormant))
  AND pruning_at IS NULL
ORDER BY id
FOR NO KEY UPDATE

-- name: views
-- Everything that decisions about manifests need, and the values of their work. Values that many
-- manifests share come as text, to be decoded once. $1 ids.
-- The ids are behind a SELECT so that one plan serves any number of them: planning each time costs
-- more than the rows do. Of the owed decisions, the first hundred explicit ones and the first
-- hundred others are read, so that neither kind hides the other.
SELECT manifest.id, manifest.external_id, manifest.job, manifest.group_name, manifest.input,
       manifest.timing::text, manifest.misfire::text, manifest.overlap::text,
       manifest.jitter_seconds, manifest.terms::text, manifest.next_due_at,
       manifest.enabled, manifest.blocked_by, manifest.last_settled_at, manifest.dormant,
       manifest.depends_on, manifest.seen_success, parent.success_number AS parent_success,
       parent.success_traceparent AS parent_traceparent,
       manifest_group.enabled AS group_enabled, job.retired_at AS job_retired_at,
       job.input_schema::text, coalesce(job.takes_input, true) AS takes_input, manifest.paused_at,
       manifest.resumed_at, manifest.pause_reason,
       ARRAY(SELECT slot FROM scheduler.work WHERE work.manifest_id = manifest.id) AS slots,
       (SELECT jsonb_agg(to_jsonb(ledger_row) ORDER BY ledger_row.ripe_at, ledger_row.first_due_at)
        FROM (SELECT manifest_id AS manifest, cause, first_due_at, last_due_at, decision, explicit,
                     has_input, input, not_before, priority, start_within_seconds, traceparent,
                     decided_at, true AS release, coalesce(not_before, decided_at) AS ripe_at
              FROM (SELECT *, row_number() OVER (
                               PARTITION BY explicit
                               ORDER BY coalesce(not_before, decided_at), first_due_at) AS place
                    FROM scheduler.occurrence
                    WHERE occurrence.manifest_id = manifest.id AND decision = 'owed') AS placed
              WHERE place <= 100) AS ledger_row) AS owed
FROM scheduler.manifest
JOIN scheduler.manifest_group ON manifest_group.name = manifest.group_name
LEFT JOIN scheduler.manifest AS parent ON parent.id = manifest.depends_on
LEFT JOIN scheduler.job ON job.name = manifest.job
WHERE manifest.id = ANY((SELECT $1::uuid[])::uuid[])
ORDER BY manifest.id

-- name: awake
-- Manifests whose wake time has come, the longest due first; at the end, without an id, the next
-- wake time of the others. $1 now, $2 how many.
(SELECT id, wake_at FROM scheduler.manifest WHERE wake_at <= $1 ORDER BY wake_at LIMIT $2)
UNION ALL
SELECT NULL, min(wake_at) FROM scheduler.manifest WHERE wake_at > $1

-- name: awake_groups
-- The number of due manifests of each group, and since when the first is due. Only the hundred
-- thousand that are due the longest are counted. The bound is written here so that the planner
-- knows it: the cost then depends on the due manifests only, not on the number of groups or on
-- statistics. $1 now.
SELECT awake.name, manifest_group.priority, awake.due, awake.since
FROM (SELECT group_name AS name, count(*) AS due, min(wake_at) AS since
      FROM (SELECT group_name, wake_at FROM scheduler.manifest
            WHERE wake_at <= $1
            ORDER BY wake_at
            LIMIT 100000) AS longest
      GROUP BY group_name) AS awake
JOIN scheduler.manifest_group USING (name)

-- name: awake_others
-- The same for groups that were not counted because so many manifests are due: one index lookup for
-- each group. $1 now, $2 groups that were counted, $3 how many to count of each.
SELECT manifest_group.name, manifest_group.priority, awake.due, awake.since
FROM scheduler.manifest_group
CROSS JOIN LATERAL (
    SELECT count(*) AS due, min(wake_at) AS since
    FROM (SELECT wake_at FROM scheduler.manifest
          WHERE (manifest.group_name, manifest.wake_at)
                    >= (manifest_group.name, '-infinity'::timestamptz)
            AND (manifest.group_name, manifest.wake_at) <= (manifest_group.name, $1)
            AND manifest.wake_at IS NOT NULL
          ORDER BY manifest.group_name, manifest.wake_at
          LIMIT $3) AS first
) AS awake
WHERE manifest_group.name <> ALL($2::text[]) AND awake.due > 0

-- name: awake_of_groups
-- The longest due manifests of each group, as many as its share, the longest due first. $1 now, $2
-- groups, $3 shares.
-- Rows are compared instead of columns, so that only the index by group can answer: with the other
-- index each group would scan the due manifests of all groups.
SELECT shared.name, awake.id
FROM unnest($2::text[], $3::integer[]) AS shared (name, room)
CROSS JOIN LATERAL (
    SELECT id, wake_at FROM scheduler.manifest
    WHERE (manifest.group_name, manifest.wake_at) >= (shared.name, '-infinity'::timestamptz)
      AND (manifest.group_name, manifest.wake_at) <= (shared.name, $1)
      AND manifest.wake_at IS NOT NULL
    ORDER BY manifest.group_name, manifest.wake_at
    LIMIT shared.room
) AS awake
ORDER BY awake.wake_at

-- name: move_on
-- Store the next times of manifests where they change. $1 ids, $2 next due times (null if none), $3
-- wake times (null while it cannot fire), $4 seen successes of parents.
UPDATE scheduler.manifest
SET next_due_at = decided.next_due_at, wake_at = decided.wake_at,
    seen_success = decided.seen_success, trouble = NULL
FROM unnest((SELECT $1::uuid[]), $2::timestamptz[], $3::timestamptz[], $4::bigint[])
    AS decided (id, next_due_at, wake_at, seen_success)
WHERE manifest.id = decided.id
  AND (manifest.next_due_at, manifest.wake_at, manifest.seen_success, manifest.trouble)
      IS DISTINCT FROM (decided.next_due_at, decided.wake_at, decided.seen_success, NULL)

-- name: put_off
-- Postpone manifests that cannot be judged. $1 ids, $2 troubles, $3 wake time.
UPDATE scheduler.manifest
SET trouble = stated.trouble, wake_at = $3
FROM unnest($1::uuid[], $2::text[]) AS stated (id, trouble)
WHERE manifest.id = stated.id

-- name: store_traces
-- Store the traces of the last successes of manifests. $1 ids, $2 trace contexts.
UPDATE scheduler.manifest
SET success_traceparent = stated.traceparent
FROM unnest($1::uuid[], $2::text[]) AS stated (id, traceparent)
WHERE manifest.id = stated.id

-- name: unblock
-- Remove a resolved dead letter; others may still block the manifest. $1 manifests, $2 dead letter.
UPDATE scheduler.manifest
SET dead_letters = array_remove(dead_letters, $2)
WHERE id = ANY($1::uuid[])

-- name: retire
-- Disable one-shots that are over, and return them. $1 ids.
UPDATE scheduler.manifest
SET enabled = false, disabled_by = 'once', wake_at = NULL
WHERE id = ANY($1::uuid[]) AND enabled
  AND timing -> 'cadence' ->> 'type' = 'once' AND next_due_at IS NULL
  AND NOT EXISTS (SELECT FROM scheduler.work WHERE work.manifest_id = manifest.id)
  AND NOT EXISTS (SELECT FROM scheduler.occurrence
                  WHERE occurrence.manifest_id = manifest.id AND decision = 'owed')
RETURNING external_id

-- name: change
-- Store the fields of a manifest that an operator changed. $1 id, $2 enabled, $3 who disabled it
-- (null if it is enabled), $4 retry policy, $5 jitter, $6 fields that the operator owns, $7 whether
-- fields were given back: then the next declaration must read its definition again.
UPDATE scheduler.manifest
SET enabled = $2, disabled_by = $3, terms = jsonb_set(terms, '{retry}', $4), jitter_seconds = $5,
    operator_fields = $6,
    definition_hash = CASE WHEN $7 THEN '' ELSE definition_hash END
WHERE id = $1

-- name: ids_of
-- The ids of manifests by their external ids, and their parents. $1 external ids.
SELECT id, external_id, depends_on, dormant
FROM scheduler.manifest
WHERE external_id = ANY($1::text[]) AND pruning_at IS NULL

-- name: targets
-- The fields of manifests that activations need. $1 external ids.
SELECT manifest.id, manifest.external_id, manifest.depends_on, manifest.dormant, manifest.job,
       manifest.group_name, manifest.terms ->> 'concurrency_key' AS concurrency_key, job.input_schema,
       coalesce(job.takes_input, true) AS takes_input, job.retired_at
FROM scheduler.manifest
LEFT JOIN scheduler.job ON job.name = manifest.job
WHERE external_id = ANY($1::text[]) AND pruning_at IS NULL

-- name: mark_pruning
-- Begin to prune manifests; returns them as `ManifestPruned` of the contract. $1 ids, $2 now, $3
-- the reason.
UPDATE scheduler.manifest
SET pruning_at = $2, prune_announced_at = $2, prune_reason = $3, wake_at = NULL, depends_on = NULL
WHERE id = ANY($1::uuid[])
RETURNING id AS manifest_id, external_id AS manifest, group_name AS "group", prune_reason AS reason

-- name: orphan_children
-- Remove the parent of dependents of pruned manifests, until they are declared again. $1 ids.
UPDATE scheduler.manifest SET depends_on = NULL, definition_hash = ''
WHERE depends_on = ANY($1::uuid[])

-- name: lock_pruning
-- Lock manifests that are being pruned, in a fixed order. $1 ids.
SELECT id, group_name FROM scheduler.manifest
WHERE id = ANY($1::uuid[]) AND pruning_at IS NOT NULL
ORDER BY id
FOR UPDATE

-- name: remove
-- Delete manifests. $1 ids.
DELETE FROM scheduler.manifest WHERE id = ANY($1::uuid[])

-- name: declared_by
-- The manifests of an owner, and manifests with the ids that are being declared. $1 owner, $2
-- external ids.
SELECT id, external_id, owner, definition_hash, timing, batch, depends_on
FROM scheduler.manifest
WHERE (owner = $1 OR external_id = ANY($2::text[])) AND pruning_at IS NULL

-- name: key_templates
-- The template of the concurrency key for work of a manifest, or for enqueued work of a job. A
-- manifest that has another job by now does not count. $1 job, $2 manifest (null if none).
SELECT CASE WHEN manifest.job = $1 THEN manifest.terms ->> 'concurrency_key'
            ELSE (SELECT job.terms ->> 'concurrency_key' FROM scheduler.job WHERE job.name = $1)
       END AS concurrency_key,
       manifest.external_id, manifest.group_name
FROM scheduler.manifest WHERE manifest.id = $2
UNION ALL
SELECT job.terms ->> 'concurrency_key', NULL, NULL FROM scheduler.job WHERE job.name = $1 AND $2 IS NULL

-- name: jobs
-- Jobs, also retired ones. $1 names.
SELECT name, owner, input_schema, takes_input, retired_at, terms
FROM scheduler.job WHERE name = ANY($1::text[])

-- name: inheriting
-- Manifests that take terms from jobs, as they were sent. $1 jobs.
SELECT sent FROM scheduler.manifest
WHERE job = ANY($1::text[]) AND sent IS NOT NULL AND pruning_at IS NULL

-- name: upsert_job
-- Store jobs; the version rises with their limits. $1 the jobs as an array of objects, $2 owner, $3
-- now.
INSERT INTO scheduler.job AS known
    (name, owner, title, category, description, input_schema, takes_input, max_active, rate,
     counts_globally, batch, terms, declared_at, declared_by)
SELECT stated.name, $2, stated.title, stated.category, stated.description, stated.input_schema,
       stated.takes_input, stated.max_active, stated.rate, stated.counts_globally, stated.batch,
       stated.terms, $3, ARRAY[$2::text]
FROM jsonb_to_recordset($1) AS stated (
    name text, title text, category text, description text, input_schema jsonb,
    takes_input boolean, max_active integer, rate jsonb, counts_globally boolean, batch integer,
    terms jsonb)
ORDER BY stated.name
ON CONFLICT (name) DO UPDATE
SET owner = excluded.owner,
    title = excluded.title,
    category = excluded.category,
    description = excluded.description,
    input_schema = excluded.input_schema,
    takes_input = excluded.takes_input,
    max_active = excluded.max_active,
    rate = excluded.rate,
    counts_globally = excluded.counts_globally,
    batch = excluded.batch,
    terms = excluded.terms,
    version = CASE WHEN known.retired_at IS NOT NULL
                       OR (known.max_active, known.rate, known.counts_globally, known.batch)
                           IS DISTINCT FROM (excluded.max_active, excluded.rate,
                                             excluded.counts_globally, excluded.batch)
                   THEN nextval('scheduler.job_version') ELSE known.version END,
    declared_at = excluded.declared_at,
    declared_by = CASE WHEN $2 = ANY(known.declared_by) THEN known.declared_by
                       ELSE known.declared_by || excluded.declared_by END,
    retired_at = NULL
WHERE NOT $2 = ANY(known.declared_by)
   OR (known.owner, known.title, known.category, known.description, known.input_schema,
       known.takes_input, known.max_active, known.rate, known.counts_globally, known.batch,
       known.terms)
    IS DISTINCT FROM (excluded.owner, excluded.title, excluded.category, excluded.description,
                      excluded.input_schema, excluded.takes_input, excluded.max_active,
                      excluded.rate, excluded.counts_globally, excluded.batch,
                      excluded.terms)

-- name: retire_jobs
-- Remove an application from the jobs that it no longer declares; a job that no other application
-- declares is retired. $1 application, $2 jobs that it declares, $3 now.
UPDATE scheduler.job
SET declared_by = kept.declared_by,
    owner = coalesce(kept.declared_by[1], job.owner),
    retired_at = CASE WHEN kept.declared_by = '{}' THEN $3::timestamptz END,
    version = CASE WHEN kept.declared_by = '{}' THEN nextval('scheduler.job_version')
                   ELSE job.version END
FROM (SELECT name, array_remove(declared_by, $1) AS declared_by FROM scheduler.job
      WHERE $1 = ANY(declared_by) AND NOT name = ANY($2::text[])
      ORDER BY name
      FOR UPDATE) AS kept
WHERE job.name = kept.name
RETURNING job.name, job.retired_at

-- name: members_of_switched_jobs
-- Manifests of jobs that a declaration retires or restores. $1 application, $2 jobs that it
-- declares.
SELECT manifest.id FROM scheduler.job
JOIN scheduler.manifest ON manifest.job = job.name
WHERE manifest.pruning_at IS NULL
  AND CASE WHEN job.name = ANY($2::text[]) THEN job.retired_at IS NOT NULL
           ELSE job.declared_by = ARRAY[$1] END

-- name: use_retired_jobs
-- Manifests of retired jobs, by job: manifests of an application, and manifests of jobs that it
-- had. $1 application.
SELECT job.name AS job, job.retired_at, manifest.external_id, manifest.owner
FROM scheduler.job
JOIN scheduler.manifest ON manifest.job = job.name
WHERE job.retired_at IS NOT NULL AND manifest.pruning_at IS NULL
  AND $1 IN (job.owner, manifest.owner)
ORDER BY job.name, manifest.external_id

-- name: drop_retired_jobs
-- Delete retired jobs without manifests and without waiting or outstanding work. $1 names.
DELETE FROM scheduler.job
WHERE name = ANY($1::text[]) AND retired_at IS NOT NULL
  AND NOT EXISTS (SELECT FROM scheduler.manifest WHERE manifest.job = job.name)
  AND NOT EXISTS (SELECT FROM scheduler.enqueued
                  WHERE enqueued.job = job.name AND enqueued.state = 'waiting')
  AND NOT EXISTS (SELECT FROM scheduler.enqueued JOIN scheduler.work ON work.id = enqueued.work_id
                  WHERE enqueued.job = job.name)
RETURNING name

-- name: job_limits
-- The limits of jobs in force, as `JobChanged` of the contract: the operator's limits, where there
-- are any. $1 names.
SELECT name AS job,
       CASE WHEN operator_limits ? 'max_active' THEN (operator_limits ->> 'max_active')::integer
            ELSE max_active END AS max_active,
       CASE WHEN operator_limits ? 'rate' THEN nullif(operator_limits -> 'rate', 'null')
            ELSE rate END AS rate,
       counts_globally, batch, version, retired_at IS NOT NULL AS retired
FROM scheduler.job WHERE name = ANY($1::text[])
ORDER BY name

-- name: lock_job
-- Lock the limits that operators set for a job. $1 name.
SELECT operator_limits FROM scheduler.job WHERE name = $1 FOR UPDATE

-- name: limit_job
-- Store the limits that operators set for a job. $1 name, $2 limits.
UPDATE scheduler.job SET operator_limits = $2, version = nextval('scheduler.job_version')
WHERE name = $1

-- name: job_names
-- Declared jobs by name. $1 how many.
SELECT name FROM scheduler.job WHERE retired_at IS NULL ORDER BY name LIMIT $1

-- name: switched
-- Note the announced state of manifests whose state changed, as `ManifestChanged` of the contract;
-- a paused manifest is disabled there. Their rows are locked, so versions rise in the order of the
-- changes. $1 ids.
UPDATE scheduler.manifest
SET announced_enabled = enabled AND (paused_at IS NULL OR resumed_at IS NOT NULL),
    version = nextval('scheduler.manifest_version')
WHERE id = ANY($1::uuid[])
  AND (enabled AND (paused_at IS NULL OR resumed_at IS NOT NULL)) <> announced_enabled
RETURNING id AS manifest_id, external_id AS manifest, group_name AS "group",
          announced_enabled AS enabled, version

-- name: chosen
-- Manifests that a request selects, ordered by external id. $1 external ids, $2 group, $3 labels
-- (null to ignore each), $4 whether only paused ones.
SELECT id, external_id FROM scheduler.manifest
WHERE pruning_at IS NULL
  AND ($1::text[] IS NULL OR external_id = ANY($1))
  AND ($2::text IS NULL OR group_name = $2)
  AND ($3::jsonb IS NULL OR labels @> $3)
  AND (NOT $4::boolean OR (paused_at IS NOT NULL AND resumed_at IS NULL))
ORDER BY external_id COLLATE "C"

-- name: pause
-- Pause manifests; paused ones keep the start of their pause. $1 ids, $2 now, $3 until (null: until
-- resumed), $4 reason, $5 actor.
UPDATE scheduler.manifest
SET paused_at = CASE WHEN resumed_at IS NULL THEN coalesce(paused_at, $2) ELSE $2 END,
    paused_until = $3, pause_reason = $4, paused_by = $5, resumed_at = NULL
WHERE id = ANY($1::uuid[])

-- name: resume
-- End the pause of manifests. $1 ids, $2 now.
UPDATE scheduler.manifest SET resumed_at = greatest($2, paused_at), paused_until = NULL
WHERE id = ANY($1::uuid[]) AND paused_at IS NOT NULL AND resumed_at IS NULL

-- name: windows
-- The last pauses of manifests, ordered by external id. $1 ids.
SELECT id, external_id, paused_at, resumed_at, paused_until, pause_reason, paused_by, next_due_at
FROM scheduler.manifest
WHERE id = ANY($1::uuid[])
ORDER BY external_id

-- name: windows_over
-- Paused manifests whose pause is over, the earliest end first; at the end, without an id, the next
-- end of a pause. $1 now, $2 how many.
(SELECT id, paused_until FROM scheduler.manifest
 WHERE paused_until <= $1 AND pruning_at IS NULL ORDER BY paused_until LIMIT $2)
UNION ALL
SELECT NULL, min(paused_until) FROM scheduler.manifest
WHERE paused_until > $1 AND pruning_at IS NULL

-- name: insert_manifest
-- Add manifests. $1 the manifests as an array of objects, $2 owner, $3 now.
INSERT INTO scheduler.manifest
    (id, external_id, owner, job, group_name, input, timing, misfire, overlap, jitter_seconds,
     terms, enabled, disabled_by, dormant, batch, definition_hash, next_due_at, declared_at, labels,
     sent)
SELECT stated.id, stated.external_id, $2, stated.job, stated.group_name, stated.input,
       stated.timing, stated.misfire, stated.overlap, stated.jitter_seconds, stated.terms,
       stated.enabled, CASE WHEN NOT stated.enabled THEN 'code' END, stated.dormant, stated.batch,
       stated.definition_hash, stated.next_due_at, $3, stated.labels, stated.sent
FROM jsonb_to_recordset($1) AS stated (
    id uuid, external_id text, job text, group_name text, input jsonb, timing jsonb,
    misfire jsonb, overlap jsonb, jitter_seconds double precision, terms jsonb,
    enabled boolean, dormant boolean, batch text, definition_hash text, next_due_at timestamptz,
    labels jsonb, sent jsonb)

-- name: update_manifest
-- Store changed manifests; fields that operators own stay. A manifest that was no longer declared
-- fires again, and a one-shot that has fired only for another time. $1 the manifests as an array of
-- objects, $2 now.
UPDATE scheduler.manifest
SET job = stated.job,
    group_name = stated.group_name,
    input = stated.input,
    timing = stated.timing,
    misfire = stated.misfire,
    overlap = stated.overlap,
    jitter_seconds = CASE WHEN 'jitter' = ANY(manifest.operator_fields)
                          THEN manifest.jitter_seconds ELSE stated.jitter_seconds END,
    terms = jsonb_set(
        stated.terms, '{retry}', stated.terms -> 'retry' || jsonb_strip_nulls(jsonb_build_object(
            'attempts', CASE WHEN 'attempts' = ANY(manifest.operator_fields)
                             THEN manifest.terms -> 'retry' -> 'attempts' END,
            'interval_seconds', CASE WHEN 'interval' = ANY(manifest.operator_fields)
                                     THEN manifest.terms -> 'retry' -> 'interval_seconds' END))),
    -- With the policy `go_on`, earlier dead letters do not block it either.
    dead_letters = CASE WHEN stated.terms ->> 'on_dead_letter' = 'go_on' THEN '{}'
                        ELSE manifest.dead_letters END,
    enabled = switched.enabled,
    disabled_by = CASE WHEN switched.enabled THEN NULL
                       WHEN switched.keeps THEN manifest.disabled_by
                       ELSE 'code' END,
    undeclared_at = NULL,
    dormant = stated.dormant,
    -- A manifest that is no longer dormant waits for the next success of its parent.
    seen_success = CASE WHEN manifest.dormant AND NOT stated.dormant
                        THEN coalesce((SELECT parent.success_number
                                       FROM scheduler.manifest AS parent
                                       WHERE parent.id = manifest.depends_on), 0)
                        ELSE manifest.seen_success END,
    batch = stated.batch,
    labels = stated.labels,
    sent = stated.sent,
    definition_hash = stated.definition_hash,
    next_due_at = CASE WHEN stated.retimed THEN stated.next_due_at ELSE manifest.next_due_at END,
    declared_at = $2,
    trouble = NULL
FROM jsonb_to_recordset($1) AS stated (
    id uuid, job text, group_name text, input jsonb, timing jsonb,
    misfire jsonb, overlap jsonb, jitter_seconds double precision, terms jsonb,
    enabled boolean, dormant boolean, batch text, definition_hash text, next_due_at timestamptz,
    retimed boolean, labels jsonb, sent jsonb)
JOIN scheduler.manifest AS known ON known.id = stated.id
CROSS JOIN LATERAL (
    SELECT CASE known.disabled_by WHEN 'pruned' THEN false
                                  WHEN 'once' THEN NOT stated.retimed
                                  ELSE 'enabled' = ANY(known.operator_fields) END AS keeps
) AS kept
CROSS JOIN LATERAL (
    SELECT kept.keeps, CASE WHEN kept.keeps THEN known.enabled ELSE stated.enabled END AS enabled
) AS switched
WHERE manifest.id = stated.id

-- name: set_parents
-- Store the parents of manifests where they change; a new dependent waits for the next success. $1
-- ids, $2 parents (null if none).
UPDATE scheduler.manifest
SET depends_on = stated.parent, seen_success = coalesce(parent.success_number, 0)
FROM unnest($1::uuid[], $2::uuid[]) AS stated (id, parent)
LEFT JOIN scheduler.manifest AS parent ON parent.id = stated.parent
WHERE manifest.id = stated.id AND manifest.depends_on IS DISTINCT FROM stated.parent

-- name: undeclare
-- Keep manifests that their owner no longer declares, and disable them if the policy says so;
-- returns changed ones. $1 ids, $2 now, $3 whether to disable them.
UPDATE scheduler.manifest
SET undeclared_at = $2,
    definition_hash = '',
    enabled = enabled AND NOT $3::boolean,
    disabled_by = CASE WHEN enabled AND $3 THEN 'pruned' ELSE disabled_by END
WHERE id = ANY($1::uuid[]) AND (undeclared_at IS NULL OR (enabled AND $3))
RETURNING external_id

-- name: parents_of
-- The parents of manifests, all the way up. $1 ids.
WITH RECURSIVE line AS (
    SELECT id, external_id, depends_on FROM scheduler.manifest WHERE id = ANY($1::uuid[])
    UNION
    SELECT manifest.id, manifest.external_id, manifest.depends_on
    FROM scheduler.manifest JOIN line ON manifest.id = line.depends_on
)
SELECT external_id, (SELECT parent.external_id FROM scheduler.manifest AS parent
                     WHERE parent.id = line.depends_on) AS parent
FROM line
