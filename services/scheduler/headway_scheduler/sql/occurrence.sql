-- name: decide
-- Write decisions into the ledger; returns the new ones, with the names of manifest and group. $1
-- manifests, $2 causes, $3 first due times, $4 last due times, $5 decisions, $6 reasons, $7 work
-- ids, $8 now, $9 actors (null if no user requested it), $10 whether a user requested it, $11
-- whether it has its own input, $12 that input, $13 not before, $14 priorities, $15 seconds until
-- the latest start (null for the values of the manifest).
WITH written AS (
    INSERT INTO scheduler.occurrence
        (manifest_id, cause, first_due_at, last_due_at, decision, reason, work_id, decided_at, actor,
         explicit, has_input, input, not_before, priority, start_within_seconds, policies)
    SELECT verdict.manifest_id, verdict.cause, verdict.first_due_at, verdict.last_due_at,
           verdict.decision, verdict.reason, verdict.work_id, $8, verdict.actor, verdict.explicit,
           verdict.has_input, verdict.input, verdict.not_before, verdict.priority,
           verdict.start_within_seconds, scheduler.policies(manifest)
    FROM unnest((SELECT $1::uuid[]), $2::text[], $3::timestamptz[], $4::timestamptz[], $5::text[], $6::text[],
                $7::uuid[], $9::text[], $10::boolean[], $11::boolean[], $12::jsonb[],
                $13::timestamptz[], $14::smallint[], $15::double precision[])
        AS verdict (manifest_id, cause, first_due_at, last_due_at, decision, reason, work_id, actor,
                    explicit, has_input, input, not_before, priority, start_within_seconds)
    JOIN scheduler.manifest ON manifest.id = verdict.manifest_id
    ON CONFLICT DO NOTHING
    RETURNING manifest_id, cause
)
SELECT written.manifest_id, written.cause, manifest.external_id, manifest.group_name
FROM written
JOIN scheduler.manifest ON manifest.id = written.manifest_id

-- name: record
-- Write scheduled decisions, their outstanding work and the next times of manifests; returns the
-- new decisions, and only those make work. If all are new, the messages are added to the outbox. $1
-- now; of the decisions $2 manifests, $3 causes, $4 first due times, $5 last due times, $6
-- decisions, $7 reasons, $8 work ids, $9 slots; of the manifests $10 ids, $11 next due times (null
-- if none), $12 wake times (null while it cannot fire), $13 seen successes of parents; of the
-- messages $14 ids, $15 subjects, $16 bodies, $17 trace contexts (null if none).
WITH verdict AS MATERIALIZED (
    SELECT * FROM unnest($2::uuid[], $3::text[], $4::timestamptz[], $5::timestamptz[], $6::text[],
                         $7::text[], $8::uuid[], $9::integer[])
        AS stated (manifest_id, cause, first_due_at, last_due_at, decision, reason, work_id, slot)
), written AS (
    INSERT INTO scheduler.occurrence
        (manifest_id, cause, first_due_at, last_due_at, decision, reason, work_id, decided_at,
         policies)
    SELECT verdict.manifest_id, verdict.cause, verdict.first_due_at, verdict.last_due_at,
           verdict.decision, verdict.reason, verdict.work_id, $1, scheduler.policies(manifest)
    FROM verdict
    JOIN scheduler.manifest ON manifest.id = verdict.manifest_id
    ON CONFLICT DO NOTHING
    RETURNING manifest_id, cause, work_id
), made AS (
    INSERT INTO scheduler.work (id, manifest_id, cause, slot, queued_at)
    SELECT written.work_id, written.manifest_id, written.cause, verdict.slot, $1
    FROM written
    JOIN verdict ON verdict.work_id = written.work_id
    ON CONFLICT DO NOTHING
), moved AS (
    UPDATE scheduler.manifest
    SET next_due_at = decided.next_due_at, wake_at = decided.wake_at,
        seen_success = decided.seen_success, trouble = NULL
    FROM unnest($10::uuid[], $11::timestamptz[], $12::timestamptz[], $13::bigint[])
        AS decided (id, next_due_at, wake_at, seen_success)
    WHERE manifest.id = decided.id
), announced AS (
    INSERT INTO scheduler.outbox (message_id, subject, body, traceparent)
    SELECT * FROM unnest($14::text[], $15::text[], $16::bytea[], $17::text[])
    WHERE (SELECT count(*) FROM written) = cardinality($2)
)
SELECT manifest_id, cause FROM written

-- name: release
-- Queue owed decisions that have room now, with their outstanding work, or skip those whose work is
-- invalid; returns decisions that were still owed. $1 manifests, $2 causes, $3 work ids, $4 reasons
-- (null if queued), $5 slots, $6 now.
WITH freed AS (
    SELECT * FROM unnest($1::uuid[], $2::text[], $3::uuid[], $4::text[], $5::integer[])
        AS stated (manifest_id, cause, work_id, reason, slot)
), released AS (
    UPDATE scheduler.occurrence
    SET decision = CASE WHEN freed.reason IS NULL THEN 'queued' ELSE 'skipped' END,
        reason = freed.reason,
        work_id = CASE WHEN freed.reason IS NULL THEN freed.work_id END,
        settled_at = CASE WHEN freed.reason IS NOT NULL THEN $6::timestamptz END
    FROM freed
    WHERE occurrence.manifest_id = freed.manifest_id AND occurrence.cause = freed.cause
      AND occurrence.decision = 'owed'
    RETURNING occurrence.manifest_id, occurrence.cause, occurrence.work_id, freed.slot
), made AS (
    INSERT INTO scheduler.work (id, manifest_id, cause, slot, queued_at)
    SELECT work_id, manifest_id, cause, slot, $6 FROM released WHERE work_id IS NOT NULL
    ON CONFLICT DO NOTHING
)
SELECT manifest_id, cause FROM released

-- name: store_traces
-- Store the traces of activations whose decision is still owed. $1 external ids, $2 causes, $3
-- trace contexts.
UPDATE scheduler.occurrence
SET traceparent = stated.traceparent
FROM unnest($1::text[], $2::text[], $3::text[]) AS stated (external_id, cause, traceparent)
JOIN scheduler.manifest
    ON manifest.external_id = stated.external_id AND manifest.pruning_at IS NULL
WHERE occurrence.manifest_id = manifest.id AND occurrence.cause = stated.cause
  AND occurrence.decision = 'owed'

-- name: of_causes
-- Decisions by their causes, with the values of their work. $1 manifests, $2 causes.
SELECT occurrence.manifest_id, occurrence.cause, occurrence.work_id, occurrence.decision,
       occurrence.outcome, occurrence.reason, occurrence.explicit, occurrence.has_input,
       occurrence.input, occurrence.actor, occurrence.priority, occurrence.not_before,
       occurrence.first_due_at, occurrence.start_within_seconds, occurrence.brought_forward
FROM scheduler.occurrence
JOIN unnest($1::uuid[], $2::text[]) AS wanted (manifest_id, cause)
    ON wanted.manifest_id = occurrence.manifest_id AND wanted.cause = occurrence.cause

-- name: note_forward
-- Note that a trigger brought other work forward instead of making its own. $1 manifest, $2 cause,
-- $3 that work, $4 its cause.
UPDATE scheduler.occurrence SET brought_forward = $3, kept_with = $4
WHERE manifest_id = $1 AND cause = $2

-- name: note_again
-- Note the cause under which a coalesced decision is owed again. $1 manifest, $2 cause, $3 new
-- cause.
UPDATE scheduler.occurrence SET kept_with = $3 WHERE manifest_id = $1 AND cause = $2

-- name: drop_owed
-- Skip owed decisions; returns how many of each manifest. $1 manifests, $2 reason, $3 now.
WITH dropped AS (
    UPDATE scheduler.occurrence SET decision = 'skipped', reason = $2, settled_at = $3
    WHERE manifest_id = ANY($1::uuid[]) AND decision = 'owed'
    RETURNING manifest_id
)
SELECT manifest_id, count(*) AS dropped FROM dropped GROUP BY manifest_id

-- name: forget
-- Delete decisions that were settled long ago, or that never made work and were decided long ago. A
-- decision stays while its work is outstanding again, because its dead letter was retried, and
-- while the work of its cause is outstanding: every attempt of that work, and its outcome, may
-- repeat an activation. A decision that keeps another one goes first, the other one in the next
-- batch. $1 before, $2 how many at once.
DELETE FROM scheduler.occurrence
WHERE ctid IN (
    SELECT ctid FROM scheduler.occurrence
    -- The first condition is redundant, but only it has an index.
    WHERE decided_at < $1 AND coalesce(settled_at, decided_at) < $1 AND decision <> 'owed'
      AND (decision = 'skipped' OR outcome IS NOT NULL)
      AND NOT EXISTS (
        SELECT FROM scheduler.work
        WHERE work.id IN (occurrence.work_id, occurrence.brought_forward,
                          CASE WHEN starts_with(occurrence.cause, 'activation:')
                               THEN split_part(occurrence.cause, ':', 2)::uuid END))
      AND (kept_with IS NULL OR NOT EXISTS (
        SELECT FROM scheduler.occurrence AS other
        WHERE other.manifest_id = occurrence.manifest_id AND other.cause = occurrence.kept_with))
    LIMIT $2)

-- name: forget_timings
-- Delete timings that were replaced before the oldest decision that is kept. $1 kept since.
DELETE FROM scheduler.timing
WHERE EXISTS (
    SELECT FROM scheduler.timing AS later
    WHERE later.manifest_id = timing.manifest_id AND later.since > timing.since
      AND later.since < $1)

-- name: forget_history
-- Delete old audit entries. $1 recorded before, $2 how many at once.
DELETE FROM scheduler.history
WHERE ctid IN (SELECT ctid FROM scheduler.history WHERE recorded_at < $1 LIMIT $2)

-- name: remove_of
-- Delete the ledger of manifests. $1 manifests.
DELETE FROM scheduler.occurrence WHERE manifest_id = ANY($1::uuid[])

-- name: remove_timings_of
-- Delete the timings of manifests. $1 manifests.
DELETE FROM scheduler.timing WHERE manifest_id = ANY($1::uuid[])

-- name: add_timings
-- Add timings that are in force from now on. $1 manifests, $2 timings, $3 now.
INSERT INTO scheduler.timing (manifest_id, since, timing)
SELECT stated.manifest_id, $3, stated.timing
FROM unnest($1::uuid[], $2::jsonb[]) AS stated (manifest_id, timing)
ON CONFLICT (manifest_id, since) DO UPDATE SET timing = excluded.timing

-- name: of_work
-- The decision of a piece of work. $1 manifest, $2 work.
SELECT cause, settled_round FROM scheduler.occurrence WHERE manifest_id = $1 AND work_id = $2

-- name: note_letters
-- Add open dead letters; returns resolved ones. $1 dead letters, $2 their
-- manifests.
WITH resolved_before AS (
    SELECT dead_letter FROM scheduler.resolved WHERE dead_letter = ANY($1::uuid[])
), noted AS (
    INSERT INTO scheduler.unresolved (dead_letter, manifest_id)
    SELECT stated.dead_letter, stated.manifest_id
    FROM unnest($1::uuid[], $2::uuid[]) AS stated (dead_letter, manifest_id)
    WHERE stated.dead_letter NOT IN (SELECT dead_letter FROM resolved_before)
    ON CONFLICT DO NOTHING
)
SELECT dead_letter FROM resolved_before

-- name: note_resolved
-- Note that a dead letter is resolved, in case its outcome arrives later; returns it if that is
-- new. $1 dead letter, $2 now.
WITH done AS (
    DELETE FROM scheduler.unresolved WHERE dead_letter = $1
)
INSERT INTO scheduler.resolved (dead_letter, resolved_at) VALUES ($1, $2) ON CONFLICT DO NOTHING
RETURNING dead_letter

-- name: forget_resolved
-- Delete dead letters that were resolved long ago. $1 before.
DELETE FROM scheduler.resolved WHERE resolved_at < $1
