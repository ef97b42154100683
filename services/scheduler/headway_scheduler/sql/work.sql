-- name: add
-- Work that is now outstanding. $1 ids, $2 manifests, $3 causes, $4 slots, $5 now.
INSERT INTO scheduler.work (id, manifest_id, cause, slot, queued_at)
SELECT made.*, $5 FROM unnest($1::uuid[], $2::uuid[], $3::text[], $4::integer[]) AS made
ON CONFLICT DO NOTHING

-- name: lock
-- The outstanding work among these, locked in a fixed order. $1 ids.
SELECT id, manifest_id, cause, round FROM scheduler.work
WHERE id = ANY($1::uuid[])
ORDER BY id
FOR UPDATE

-- name: remove
-- Work that is settled. $1 ids.
DELETE FROM scheduler.work WHERE id = ANY($1::uuid[])

-- name: remove_of
-- All work of manifests. $1 manifests.
DELETE FROM scheduler.work WHERE manifest_id = ANY($1::uuid[])

-- name: outstanding_of
-- What is under way of manifests. $1 manifests.
SELECT id, manifest_id, cause, round, slot, queued_at FROM scheduler.work
WHERE manifest_id = ANY($1::uuid[])
ORDER BY queued_at, id

-- name: start_round
-- Work of a dead letter that runs again. $1 id, $2 manifest, $3 cause, $4 round, $5 now, $6 slot.
INSERT INTO scheduler.work AS known (id, manifest_id, cause, round, queued_at, slot)
VALUES ($1, $2, $3, $4, $5, $6)
ON CONFLICT (id) DO UPDATE SET round = greatest(known.round, excluded.round)

-- name: overtake
-- A round that is over before we heard of its beginning. $1 work, $2 round, $3 when it ended.
INSERT INTO scheduler.overtaken AS known (work_id, round, settled_at) VALUES ($1, $2, $3)
ON CONFLICT (work_id) DO UPDATE
SET round = greatest(known.round, excluded.round),
    settled_at = greatest(known.settled_at, excluded.settled_at)

-- name: overtaken
-- The last round of a piece of work that was over before its beginning was heard of. $1 work.
SELECT round FROM scheduler.overtaken WHERE work_id = $1

-- name: forget_overtaken
-- Such rounds of long ago. $1 before.
DELETE FROM scheduler.overtaken WHERE settled_at < $1

-- name: find
-- One piece of outstanding work. $1 id.
SELECT id, manifest_id FROM scheduler.work WHERE id = $1

-- name: named
-- Outstanding work of manifests, as the dispatcher has to be told of it. $1 manifests, $2 only
-- this one (null for all).
SELECT work.id, work.round, work.manifest_id, manifest.external_id, manifest.group_name
FROM scheduler.work
JOIN scheduler.manifest ON manifest.id = work.manifest_id
WHERE work.manifest_id = ANY($1::uuid[]) AND ($2::uuid IS NULL OR work.id = $2)
ORDER BY work.id

-- name: named_enqueued
-- Outstanding work that an application has enqueued. $1 id.
SELECT work.id, work.round, NULL::uuid AS manifest_id, NULL AS external_id,
       coalesce(enqueued.group_name, job.terms ->> 'group', enqueued.job) AS group_name
FROM scheduler.work
JOIN scheduler.enqueued ON enqueued.work_id = work.id
LEFT JOIN scheduler.job ON job.name = enqueued.job
WHERE work.id = $1
