-- name: feed
-- Events of history, the newest first. The work is found by an index; everything else is looked
-- for among so many. $1 work (null where any will do), $2 below this number, $3 recorded since,
-- $4 recorded before, $5 types (patterns), $6 run, $7 whether accepted (null for all), $8 among how
-- many, $9 how many, $10 job, $11 group.
SELECT looked_at.*,
       (SELECT work_queue.manifest FROM dispatcher.work_queue
        WHERE work_queue.id = looked_at.work_id) AS manifest,
       (SELECT work_queue.job FROM dispatcher.work_queue
        WHERE work_queue.id = looked_at.work_id) AS job
FROM (
    SELECT id, event_id, type, subject, source, occurred_at, recorded_at, accepted, refusal,
           work_id, run_id, lease_id, data
    FROM dispatcher.history
    WHERE ($1::uuid IS NULL OR history.work_id = $1)
      AND ($2::bigint IS NULL OR history.id < $2)
      AND ($3::timestamptz IS NULL OR history.recorded_at >= $3)
      AND ($4::timestamptz IS NULL OR history.recorded_at < $4)
    ORDER BY history.id DESC
    LIMIT $8
) AS looked_at
WHERE ($5::text[] IS NULL OR looked_at.type LIKE ANY($5))
  AND ($6::uuid IS NULL OR looked_at.run_id = $6)
  AND ($7::boolean IS NULL OR looked_at.accepted = $7)
  AND ($10::text IS NULL OR (SELECT work_queue.job FROM dispatcher.work_queue
                             WHERE work_queue.id = looked_at.work_id) = $10)
  AND ($11::text IS NULL OR (SELECT work_queue.group_name FROM dispatcher.work_queue
                             WHERE work_queue.id = looked_at.work_id) = $11)
ORDER BY looked_at.id DESC
LIMIT $9

-- name: feed_of
-- The same of a manifest, which few events are of: each piece of work is looked up once, and not for
-- each of its events. $1 work, $2 below this number, $3 recorded since, $4 recorded before, $5 types
-- (patterns), $6 run, $7 whether accepted, $8 among how many, $9 how many, $10 job, $11 group (null
-- where any will do), $12 manifest.
WITH looked_at AS MATERIALIZED (
    SELECT history.id, history.recorded_at, history.work_id
    FROM dispatcher.history
    WHERE ($1::uuid IS NULL OR history.work_id = $1)
      AND ($2::bigint IS NULL OR history.id < $2)
      AND ($3::timestamptz IS NULL OR history.recorded_at >= $3)
      AND ($4::timestamptz IS NULL OR history.recorded_at < $4)
    ORDER BY history.id DESC
    LIMIT $8
), fitting AS MATERIALIZED (
    SELECT work_queue.id FROM dispatcher.work_queue
    WHERE work_queue.id = ANY(ARRAY(SELECT DISTINCT looked_at.work_id FROM looked_at))
      AND ($10::text IS NULL OR work_queue.job = $10)
      AND ($11::text IS NULL OR work_queue.group_name = $11)
      AND work_queue.manifest = $12
), found AS MATERIALIZED (
    SELECT looked_at.id, looked_at.recorded_at FROM looked_at
    WHERE looked_at.work_id = ANY(ARRAY(SELECT fitting.id FROM fitting))
    ORDER BY looked_at.id DESC
)
SELECT history.id, event_id, type, subject, source, occurred_at, history.recorded_at, accepted,
       refusal, work_id, run_id, lease_id, data, $12::text AS manifest,
       (SELECT work_queue.job FROM dispatcher.work_queue
        WHERE work_queue.id = history.work_id) AS job
FROM found
CROSS JOIN LATERAL (
    SELECT * FROM dispatcher.history
    WHERE history.id = found.id AND history.recorded_at = found.recorded_at
      AND ($5::text[] IS NULL OR history.type LIKE ANY($5))
      AND ($6::uuid IS NULL OR history.run_id = $6)
      AND ($7::boolean IS NULL OR history.accepted = $7)
    LIMIT 1
) AS history
ORDER BY history.id DESC
LIMIT $9

-- name: reached
-- The last event that the same search has looked at; none if it has looked at all. $1 work,
-- $2 below this number, $3 recorded since, $4 recorded before, $5 among how many.
SELECT id, recorded_at FROM dispatcher.history
WHERE ($1::uuid IS NULL OR history.work_id = $1)
  AND ($2::bigint IS NULL OR history.id < $2)
  AND ($3::timestamptz IS NULL OR history.recorded_at >= $3)
  AND ($4::timestamptz IS NULL OR history.recorded_at < $4)
ORDER BY history.id DESC
OFFSET $5 - 1
LIMIT 1

-- name: last_number
-- The number of the newest event that can be seen; zero if there is none. $1 recorded since, to
-- look into the latest days only.
SELECT coalesce(
    (SELECT id FROM dispatcher.history WHERE recorded_at >= $1 ORDER BY id DESC LIMIT 1),
    (SELECT id FROM dispatcher.history ORDER BY id DESC LIMIT 1), 0)

-- name: numbers
-- Which numbers above one can be seen. $1 above this, $2 how many, $3 recorded since.
SELECT id FROM dispatcher.history
WHERE id > $1 AND recorded_at >= $3
ORDER BY id
LIMIT $2

-- name: these
-- Those of some events that fit. $1 numbers, $2 recorded since, $3 types (patterns), $4 work,
-- $5 run, $6 job, $7 group, $8 whether accepted, $9 manifest; null where any will do.
SELECT id, event_id, type, subject, source, occurred_at, recorded_at, accepted, refusal, work_id,
       run_id, lease_id, data,
       (SELECT work_queue.manifest FROM dispatcher.work_queue
        WHERE work_queue.id = history.work_id) AS manifest,
       (SELECT work_queue.job FROM dispatcher.work_queue
        WHERE work_queue.id = history.work_id) AS job
FROM dispatcher.history
WHERE id = ANY($1::bigint[]) AND recorded_at >= $2
  AND ($3::text[] IS NULL OR type LIKE ANY($3))
  AND ($4::uuid IS NULL OR work_id = $4)
  AND ($5::uuid IS NULL OR run_id = $5)
  AND (($6::text IS NULL AND $7::text IS NULL AND $9::text IS NULL)
       OR EXISTS (SELECT FROM dispatcher.work_queue
                  WHERE work_queue.id = history.work_id
                    AND ($6::text IS NULL OR work_queue.job = $6)
                    AND ($7::text IS NULL OR work_queue.group_name = $7)
                    AND ($9::text IS NULL OR work_queue.manifest = $9)))
  AND ($8::boolean IS NULL OR accepted = $8)
ORDER BY id

-- name: work_of_run
-- Of which work a run is. $1 run.
SELECT work_id FROM dispatcher.metadata WHERE run_id = $1
