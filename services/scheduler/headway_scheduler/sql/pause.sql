-- name: add
-- Add a pause. $1 id, $2 names of manifests, $3 group, $4 labels (all null for all manifests), $5
-- reason, $6 author, $7 now, $8 when it ends by itself (null: not).
INSERT INTO scheduler.pause
    (id, manifests, group_name, labels, reason, created_by, created_at, until)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8)

-- name: same
-- A pause in force that is equal to a requested one. $1 names of manifests, $2 group, $3 labels, $4
-- reason, $5 author, $6 when it ends by itself.
SELECT id FROM scheduler.pause
WHERE (manifests, group_name, labels, reason, created_by, until)
      IS NOT DISTINCT FROM ($1::text[], $2::text, $3::jsonb, $4, $5, $6::timestamptz)
LIMIT 1

-- name: read
-- Pauses in force. $1 ids.
SELECT * FROM scheduler.pause WHERE id = ANY($1::uuid[]) ORDER BY id

-- name: made_for
-- Pauses in force that were made for exactly these manifests. $1 group, $2 labels (both null: for
-- all manifests).
SELECT * FROM scheduler.pause
WHERE (manifests, group_name, labels) IS NOT DISTINCT FROM (NULL::text[], $1::text, $2::jsonb)
ORDER BY id

-- name: naming
-- Pauses in force that name some of these manifests. $1 names.
SELECT * FROM scheduler.pause WHERE manifests && $1::text[] ORDER BY id

-- name: narrow
-- Let a pause name fewer manifests. $1 id, $2 the names that are left.
UPDATE scheduler.pause SET manifests = $2 WHERE id = $1

-- name: remove
-- Delete pauses. $1 ids.
DELETE FROM scheduler.pause WHERE id = ANY($1::uuid[])

-- name: over
-- Pauses whose time is over; at the end, without an id, the next end of another. $1 now.
(SELECT id, until FROM scheduler.pause WHERE until <= $1 ORDER BY until)
UNION ALL
SELECT NULL, min(until) FROM scheduler.pause WHERE until > $1

-- name: ended
-- Who ended a pause, and when. $1 its id as text.
SELECT source, occurred_at FROM scheduler.history
WHERE subject = $1 AND type = 'headway.pause.ended.v1'
ORDER BY id DESC
LIMIT 1

-- name: held
-- Manifests that pauses hold, with their windows, ordered by name. $1 pauses, $2 only these names
-- (null for all).
SELECT id, external_id, pauses FROM scheduler.manifest
WHERE paused AND pruning_at IS NULL
  AND EXISTS (SELECT FROM jsonb_array_elements(pauses) AS held
              WHERE NOT held ? 'ended_at' AND (held ->> 'pause')::uuid = ANY($1::uuid[]))
  AND ($2::text[] IS NULL OR external_id = ANY($2))
ORDER BY external_id

-- name: windows
-- The windows of manifests, ordered by name. $1 ids.
SELECT id, external_id, next_due_at, pauses FROM scheduler.manifest
WHERE id = ANY($1::uuid[])
ORDER BY external_id

-- name: coverage
-- Manifests with their windows, and the pauses in force that cover each. $1 ids, $2 now.
SELECT manifest.id, manifest.external_id, manifest.next_due_at, manifest.pauses,
       (SELECT coalesce(array_agg(pause.id ORDER BY pause.id), '{}') FROM scheduler.pause
        WHERE (pause.until IS NULL OR pause.until > $2) AND scheduler.covers(pause, manifest))
           AS covering
FROM scheduler.manifest
WHERE manifest.id = ANY($1::uuid[])

-- name: store_windows
-- Store the windows of manifests. $1 an array of objects with an id and windows.
UPDATE scheduler.manifest SET pauses = stated.pauses
FROM jsonb_to_recordset($1) AS stated (id uuid, pauses jsonb)
WHERE manifest.id = stated.id
