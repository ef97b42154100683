-- name: take_turn
-- Begin or extend the turn of a scheduler to heal; no row if another scheduler has it. Liveness uses
-- the server's clock; a time in the future is from before the clock was set back. $1 holder,
-- $2 how long a turn lasts after its last extension.
INSERT INTO scheduler.leader AS known (name, epoch, holder, since, ticked_at)
VALUES ('healing', 1, $1, clock_timestamp(), clock_timestamp())
ON CONFLICT (name) DO UPDATE
SET epoch = known.epoch + (known.holder <> excluded.holder)::integer,
    holder = excluded.holder, ticked_at = excluded.ticked_at,
    since = CASE WHEN known.holder <> excluded.holder THEN excluded.since ELSE known.since END
WHERE known.holder = excluded.holder OR known.ticked_at IS NULL
   OR known.ticked_at NOT BETWEEN clock_timestamp() - $2::interval AND clock_timestamp()
RETURNING true

-- name: end_turn
-- Let another scheduler heal. $1 holder.
UPDATE scheduler.leader SET ticked_at = NULL WHERE name = 'healing' AND holder = $1

-- name: marks
-- The last mark of each stream.
SELECT stream, created, sequence, taken_at FROM scheduler.stream_mark

-- name: mark
-- Store the mark of a stream. $1 stream, $2 when it was created, $3 last sequence, $4 now.
INSERT INTO scheduler.stream_mark (stream, created, sequence, taken_at) VALUES ($1, $2, $3, $4)
ON CONFLICT (stream) DO UPDATE
SET created = excluded.created, sequence = excluded.sequence, taken_at = excluded.taken_at

-- name: last_message
-- The newest message of the outbox, or null.
SELECT max(id) FROM scheduler.outbox

-- name: published
-- Whether all messages up to one were published. $1 message.
SELECT NOT EXISTS (SELECT FROM scheduler.outbox WHERE id <= $1)

-- name: reconcile_all
-- Make all work due for reconciliation; returns how much was not. $1 now.
WITH woken AS (
    UPDATE scheduler.work SET reconcile_at = $1, reconcile_count = 0
    WHERE reconcile_at IS NULL OR reconcile_at > $1
    RETURNING id
)
SELECT count(*) FROM woken

-- name: due
-- Work to reconcile: first work that never was, then work that is due for the longest time.
-- PostgreSQL sees that the index yields the first part in order only if it is sorted by both
-- columns. $1 now, $2 queued before this if never reconciled, $3 how many.
(SELECT id, manifest_id, round, queued_at, republished_at, republish_count, reconcile_count,
        cancel_requested_at, forward_requested_at
 FROM scheduler.work WHERE reconcile_at IS NULL AND queued_at <= $2
 ORDER BY reconcile_at, queued_at LIMIT $3)
UNION ALL
(SELECT id, manifest_id, round, queued_at, republished_at, republish_count, reconcile_count,
        cancel_requested_at, forward_requested_at
 FROM scheduler.work WHERE reconcile_at <= $1
 ORDER BY reconcile_at LIMIT $3)
LIMIT $3

-- name: reconciled
-- Store when work is reconciled next. $1 ids, $2 next times, $3 how often in a row the answer was
-- that it is under way, $4 now.
UPDATE scheduler.work
SET reconciled_at = $4, reconcile_at = answered.reconcile_at,
    reconcile_count = answered.reconcile_count
FROM unnest($1::uuid[], $2::timestamptz[], $3::smallint[])
    AS answered (id, reconcile_at, reconcile_count)
WHERE work.id = answered.id

-- name: lost
-- Work whose message was lost, with its decision; locked, so that it does not settle meanwhile.
-- $1 ids.
SELECT work.id AS work, work.manifest_id, work.cause, work.slot, work.queued_at,
       work.republish_count, occurrence.first_due_at, occurrence.last_due_at, occurrence.explicit,
       occurrence.has_input, occurrence.input, occurrence.not_before, occurrence.priority,
       occurrence.start_within_seconds, occurrence.traceparent
FROM scheduler.work
JOIN scheduler.occurrence
    ON occurrence.manifest_id = work.manifest_id AND occurrence.cause = work.cause
WHERE work.id = ANY($1::uuid[])
ORDER BY work.id
FOR UPDATE OF work

-- name: without_manifest
-- Work without a manifest. $1 ids.
SELECT id, republish_count FROM scheduler.work
WHERE id = ANY($1::uuid[]) AND manifest_id IS NULL
ORDER BY id

-- name: republished
-- Count that work was republished; returns how often each was. $1 ids, $2 now.
UPDATE scheduler.work SET republished_at = $2, republish_count = least(republish_count + 1, 10000)
WHERE id = ANY($1::uuid[])
RETURNING id, republish_count

-- name: to_cancel
-- Outstanding work whose cancellation was requested, as `NamedWork` of the contract and with the
-- reason; locked, so that it does not settle meanwhile. $1 ids.
SELECT work.id AS work, work.round, work.manifest_id, manifest.external_id AS manifest,
       coalesce(manifest.group_name, enqueued.group_name, job.terms ->> 'group', enqueued.job)
           AS "group",
       work.cancel_reason AS reason
FROM scheduler.work
LEFT JOIN scheduler.manifest ON manifest.id = work.manifest_id
LEFT JOIN scheduler.enqueued ON enqueued.work_id = work.id
LEFT JOIN scheduler.job ON job.name = enqueued.job
WHERE work.id = ANY($1::uuid[]) AND work.cancel_requested_at IS NOT NULL
ORDER BY work.id
FOR UPDATE OF work

-- name: to_bring_forward
-- Outstanding work that a trigger brought forward, and its group. $1 ids.
SELECT work.id, manifest.group_name
FROM scheduler.work
JOIN scheduler.manifest ON manifest.id = work.manifest_id
WHERE work.id = ANY($1::uuid[]) AND work.forward_requested_at IS NOT NULL
ORDER BY work.id
FOR UPDATE OF work

-- name: blocking
-- Dead letters that block manifests. $1 after this one, $2 how many.
SELECT letter.id AS dead_letter, manifest.id AS manifest_id, manifest.external_id AS manifest,
       manifest.group_name AS "group"
FROM scheduler.manifest
CROSS JOIN LATERAL unnest(manifest.dead_letters) AS letter (id)
WHERE manifest.blocked_by IS NOT NULL AND manifest.pruning_at IS NULL AND letter.id > $1
ORDER BY letter.id
LIMIT $2

-- name: not_blocking
-- Open dead letters that do not block their manifest. $1 after this one, $2 how many.
SELECT unresolved.dead_letter, manifest.id AS manifest_id, manifest.external_id AS manifest,
       manifest.group_name AS "group"
FROM scheduler.unresolved
JOIN scheduler.manifest ON manifest.id = unresolved.manifest_id
WHERE unresolved.dead_letter > $1 AND manifest.pruning_at IS NULL
  AND unresolved.dead_letter <> ALL (manifest.dead_letters)
ORDER BY unresolved.dead_letter
LIMIT $2

-- name: group_versions
-- The versions of the settings of groups, and of deletions of groups. $1 after this name, $2 how
-- many.
SELECT name, version, changed_at FROM scheduler.manifest_group
WHERE name > $1
UNION ALL
SELECT name, version, changed_at FROM scheduler.deleted_group
WHERE name > $1
  AND NOT EXISTS (SELECT FROM scheduler.manifest_group
                  WHERE manifest_group.name = deleted_group.name)
ORDER BY name
LIMIT $2

-- name: job_versions
-- The versions of the limits of jobs. $1 after this name, $2 how many.
SELECT name, version, greatest(declared_at, retired_at) AS changed_at, retired_at
FROM scheduler.job
WHERE name > $1
ORDER BY name
LIMIT $2

-- name: switch_versions
-- The versions of manifests that were ever enabled or disabled. The time of the change is not
-- stored; republishing it once too often is harmless. $1 after this id, $2 how many.
SELECT id::text AS name, version, declared_at AS changed_at FROM scheduler.manifest
WHERE version > 0 AND pruning_at IS NULL AND id::text > $1
ORDER BY id::text
LIMIT $2

-- name: switches
-- The switches of manifests as they were announced last. $1 ids as text.
SELECT id AS manifest_id, external_id AS manifest, group_name AS "group",
       announced_enabled AS enabled, version
FROM scheduler.manifest WHERE id = ANY($1::text[]::uuid[]) AND pruning_at IS NULL

-- name: pruning
-- Manifests whose prune is not confirmed, and when it was last announced. $1 after this id, $2 how
-- many.
SELECT id, prune_announced_at AS announced_at
FROM scheduler.manifest
WHERE pruning_at IS NOT NULL AND id > $1
ORDER BY id
LIMIT $2

-- name: prunes_republished
-- Note that prunes are republished; returns unconfirmed ones. $1 ids, $2 now.
UPDATE scheduler.manifest SET prune_announced_at = $2
WHERE id = ANY($1::uuid[]) AND pruning_at IS NOT NULL
RETURNING id AS manifest_id, external_id AS manifest, group_name AS "group",
          coalesce(prune_reason, 'no longer declared') AS reason
