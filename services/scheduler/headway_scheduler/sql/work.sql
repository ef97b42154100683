-- name: add
-- Make work outstanding. $1 ids, $2 manifests, $3 causes, $4 slots, $5 now.
INSERT INTO scheduler.work (id, manifest_id, cause, slot, queued_at)
SELECT made.*, $5 FROM unnest((SELECT $1::uuid[]), $2::uuid[], $3::text[], $4::integer[]) AS made
ON CONFLICT DO NOTHING

-- name: remove
-- Delete outstanding work. $1 ids.
DELETE FROM scheduler.work WHERE id = ANY($1::uuid[])

-- name: lock
-- The outstanding work among these, locked in a fixed order, with the fields of its manifest
-- (locked already) that closing it needs. $1 ids.
-- The ids are behind a SELECT so that one plan serves any number of them: planning each time costs
-- more than the rows do.
SELECT work.id, work.manifest_id, work.cause, work.round, manifest.next_due_at,
       manifest.depends_on, manifest.timing -> 'cadence' ->> 'type' AS cadence,
       ARRAY(SELECT child.id FROM scheduler.manifest AS child
             WHERE child.depends_on = work.manifest_id AND NOT child.dormant
               AND child.pruning_at IS NULL) AS children
FROM scheduler.work
LEFT JOIN scheduler.manifest ON manifest.id = work.manifest_id
WHERE work.id = ANY((SELECT $1::uuid[])::uuid[])
ORDER BY work.id
FOR UPDATE OF work

-- name: complete
-- Settle completed work where nothing has to be decided, as usual: no manifest, or a manifest that
-- nothing holds, that has no other work, owed decision or dependent, and that wakes at its next due
-- time. This is `reschedule_wake` of headway_decisions for such a manifest; a one-shot that is over
-- is disabled. Returns the first wake time, in a row without an id, and the work that is left. $1
-- ids, $2 rounds, $3 manifests (locked; null if none), $4 settling times, $5 now.
WITH ended AS MATERIALIZED (
    SELECT * FROM unnest((SELECT $1::uuid[]), $2::integer[], $3::uuid[], $4::timestamptz[])
        AS stated (id, round, manifest_id, settled_at)
), outstanding AS MATERIALIZED (
    SELECT work.id, work.manifest_id, work.cause, ended.round, ended.settled_at,
           ended.round >= work.round
           AND ended.manifest_id IS NOT DISTINCT FROM work.manifest_id
           AND (work.manifest_id IS NULL
                OR (manifest.pruning_at IS NULL AND manifest.trouble IS NULL
                    AND manifest.depends_on IS NULL
                    AND manifest.enabled AND manifest_group.enabled AND job.retired_at IS NULL
                    AND manifest.blocked_by IS NULL
                    AND (manifest.paused_at IS NULL OR manifest.resumed_at IS NOT NULL)
                    AND manifest.timing -> 'cadence' ->> 'type' <> 'spaced'
                    AND (manifest.next_due_at IS NULL
                         OR (manifest.next_due_at > ended.settled_at
                             AND manifest.jitter_seconds = 0
                             AND NOT manifest.timing ? 'exclusions'))
                    AND NOT EXISTS (SELECT FROM scheduler.work AS other
                                    WHERE other.manifest_id = work.manifest_id
                                      AND other.id <> work.id)
                    AND NOT EXISTS (SELECT FROM scheduler.occurrence
                                    WHERE occurrence.manifest_id = work.manifest_id
                                      AND occurrence.decision = 'owed')
                    AND NOT EXISTS (SELECT FROM scheduler.manifest AS child
                                    WHERE child.depends_on = work.manifest_id))) AS is_simple,
           manifest.next_due_at IS NULL AND manifest.timing -> 'cadence' ->> 'type' = 'once'
               AS is_over
    FROM ended
    JOIN scheduler.work ON work.id = ended.id
    LEFT JOIN scheduler.manifest ON manifest.id = work.manifest_id
    LEFT JOIN scheduler.manifest_group ON manifest_group.name = manifest.group_name
    LEFT JOIN scheduler.job ON job.name = manifest.job
    ORDER BY work.id
    FOR UPDATE OF work
), simple AS MATERIALIZED (
    SELECT * FROM outstanding WHERE is_simple
), gone AS (
    DELETE FROM scheduler.work USING simple WHERE work.id = simple.id
), gone_enqueued AS (
    DELETE FROM scheduler.enqueued USING simple
    WHERE enqueued.work_id = simple.id AND simple.manifest_id IS NULL AND enqueued.key IS NULL
), kept_enqueued AS (
    UPDATE scheduler.enqueued SET input = NULL, settled_at = $5 FROM simple
    WHERE enqueued.work_id = simple.id AND simple.manifest_id IS NULL AND enqueued.key IS NOT NULL
), decided AS (
    UPDATE scheduler.occurrence
    SET outcome = 'completed', settled_round = greatest(settled_round, simple.round),
        settled_at = $5
    FROM simple
    WHERE occurrence.manifest_id = simple.manifest_id AND occurrence.cause = simple.cause
), moved AS (
    UPDATE scheduler.manifest
    SET last_outcome = 'completed',
        last_settled_at = simple.settled_at,
        last_success_at = simple.settled_at,
        success_number = success_number + 1,
        wake_at = manifest.next_due_at,
        enabled = NOT simple.is_over,
        disabled_by = CASE WHEN simple.is_over THEN 'once' END
    FROM simple
    WHERE manifest.id = simple.manifest_id
    RETURNING manifest.wake_at
)
SELECT NULL AS id, (SELECT min(wake_at) FROM moved) AS wake_at
UNION ALL
SELECT ended.id, NULL FROM ended LEFT JOIN outstanding USING (id)
WHERE NOT coalesce(outstanding.is_simple, ended.round = 1)

-- name: close
-- Delete settled work, and write its outcome to its decisions and manifests, each manifest at most
-- once. A dead letter blocks a manifest unless its policy is `go_on`; returns manifests that were
-- not blocked before. $1 ids, $2 manifests (null if none, or if it is pruned), $3 causes, $4
-- outcomes, $5 rounds, $6 settling times, $7 dead letters (null if none, or if resolved already), $8
-- now.
WITH stated AS MATERIALIZED (
    SELECT * FROM unnest($1::uuid[], $2::uuid[], $3::text[], $4::text[], $5::integer[],
                         $6::timestamptz[], $7::uuid[])
        AS work (id, manifest_id, cause, outcome, round, settled_at, dead_letter)
), gone AS (
    DELETE FROM scheduler.work USING stated WHERE work.id = stated.id
), decided AS (
    UPDATE scheduler.occurrence
    SET outcome = stated.outcome, settled_round = greatest(settled_round, stated.round),
        settled_at = $8
    FROM stated
    WHERE occurrence.manifest_id = stated.manifest_id AND occurrence.cause = stated.cause
), moved AS (
    UPDATE scheduler.manifest
    SET last_outcome = stated.outcome,
        last_settled_at = stated.settled_at,
        success_number = success_number + (stated.outcome = 'completed')::integer,
        last_success_at = CASE WHEN stated.outcome = 'completed'
                               THEN stated.settled_at ELSE last_success_at END,
        dead_letters = CASE WHEN stated.dead_letter IS NULL OR stated.dead_letter = ANY(dead_letters)
                                 OR terms ->> 'on_dead_letter' = 'go_on'
                            THEN dead_letters ELSE dead_letters || stated.dead_letter END
    FROM stated
    WHERE manifest.id = stated.manifest_id
    RETURNING manifest.external_id, manifest.group_name, manifest.dead_letters, stated.dead_letter
)
SELECT external_id AS manifest, group_name AS "group", dead_letter FROM moved
WHERE dead_letters = ARRAY[dead_letter]

-- name: jobs
-- The jobs of work, from its manifest or its enqueued row. $1 work ids, $2 manifests (null if
-- none).
SELECT work.id, coalesce(manifest.job, enqueued.job) AS job
FROM unnest($1::uuid[], $2::uuid[]) AS work (id, manifest_id)
LEFT JOIN scheduler.manifest ON manifest.id = work.manifest_id
LEFT JOIN scheduler.enqueued ON enqueued.work_id = work.id

-- name: remove_of
-- Delete all work of manifests. $1 manifests.
DELETE FROM scheduler.work WHERE manifest_id = ANY($1::uuid[])

-- name: outstanding_of
-- Outstanding work of manifests, oldest first. $1 manifests.
SELECT id, manifest_id, cause, round, slot, queued_at FROM scheduler.work
WHERE manifest_id = ANY($1::uuid[])
ORDER BY queued_at, id

-- name: start_round
-- Make the work of a retried dead letter outstanding; requests belong to one round. $1 id, $2
-- manifest, $3 cause, $4 round, $5 now, $6 slot.
INSERT INTO scheduler.work AS known (id, manifest_id, cause, round, queued_at, slot)
VALUES ($1, $2, $3, $4, $5, $6)
ON CONFLICT (id) DO UPDATE
SET round = excluded.round, cancel_requested_at = NULL, cancel_reason = NULL, forward_requested_at = NULL
WHERE excluded.round > known.round

-- name: overtake
-- Remember a round that ended before the event of its start arrived. $1 work, $2 round, $3 when it
-- ended.
INSERT INTO scheduler.overtaken AS known (work_id, round, settled_at) VALUES ($1, $2, $3)
ON CONFLICT (work_id) DO UPDATE
SET round = greatest(known.round, excluded.round),
    settled_at = greatest(known.settled_at, excluded.settled_at)

-- name: overtaken
-- The last round of work that ended before the event of its start arrived. $1 work.
SELECT round FROM scheduler.overtaken WHERE work_id = $1

-- name: forget_overtaken
-- Delete old overtaken rounds. $1 before.
DELETE FROM scheduler.overtaken WHERE settled_at < $1

-- name: note_cancel
-- Note that the cancellation of work is requested; the first reason stays. It is reconciled soon,
-- in case the request is lost. $1 ids, $2 reason, $3 now.
UPDATE scheduler.work
SET cancel_requested_at = $3, cancel_reason = coalesce(cancel_reason, $2), reconcile_at = NULL, reconcile_count = 0
FROM (SELECT id FROM scheduler.work WHERE id = ANY($1::uuid[]) ORDER BY id FOR UPDATE) AS locked
WHERE work.id = locked.id

-- name: note_forward
-- Note that work is brought forward; it is reconciled soon. $1 id, $2 now.
UPDATE scheduler.work SET forward_requested_at = $2, reconcile_at = NULL, reconcile_count = 0 WHERE id = $1

-- name: find
-- One piece of outstanding work. $1 id.
SELECT id, manifest_id FROM scheduler.work WHERE id = $1

-- name: named
-- Outstanding work of manifests, as `NamedWork` of the contract. $1 manifests, $2 only this work
-- (null for all).
SELECT work.id AS work, work.round, work.manifest_id, manifest.external_id AS manifest,
       manifest.group_name AS "group", work.cancel_requested_at IS NOT NULL AS cancel_repeated
FROM scheduler.work
JOIN scheduler.manifest ON manifest.id = work.manifest_id
WHERE work.manifest_id = ANY($1::uuid[]) AND ($2::uuid IS NULL OR work.id = $2)
ORDER BY work.id

-- name: named_enqueued
-- Outstanding enqueued work, as `NamedWork`: one piece, or all of a group, also work on its way to
-- the dispatcher. $1 work id (null for any), $2 group (null for any).
SELECT work.id AS work, work.round,
       coalesce(enqueued.group_name, job.terms ->> 'group', enqueued.job) AS "group",
       work.cancel_requested_at IS NOT NULL AS cancel_repeated
FROM scheduler.work
JOIN scheduler.enqueued ON enqueued.work_id = work.id
LEFT JOIN scheduler.job ON job.name = enqueued.job
WHERE work.manifest_id IS NULL
  AND ($1::uuid IS NULL OR work.id = $1)
  AND ($2::text IS NULL
       OR coalesce(enqueued.group_name, job.terms ->> 'group', enqueued.job) = $2)
ORDER BY work.id
