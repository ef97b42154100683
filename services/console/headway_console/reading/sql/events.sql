-- name: feed
-- Events of history, the newest first. An index finds the work; all other filters search a bounded
-- number of events. $1 work (null for any), $2 numbers below this one, $3 recorded since, $4
-- recorded before, $5 types (patterns), $6 run, $7 accepted (null for both), $8 number of events to
-- search, $9 limit, $10 job, $11 group.
SELECT searched.*,
       (SELECT work_queue.manifest FROM dispatcher.work_queue
        WHERE work_queue.id = searched.work_id) AS manifest,
       (SELECT work_queue.job FROM dispatcher.work_queue
        WHERE work_queue.id = searched.work_id) AS job
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
) AS searched
WHERE ($5::text[] IS NULL OR searched.type LIKE ANY($5))
  AND ($6::uuid IS NULL OR searched.run_id = $6)
  AND ($7::boolean IS NULL OR searched.accepted = $7)
  AND ($10::text IS NULL OR (SELECT work_queue.job FROM dispatcher.work_queue
                             WHERE work_queue.id = searched.work_id) = $10)
  AND ($11::text IS NULL OR (SELECT work_queue.group_name FROM dispatcher.work_queue
                             WHERE work_queue.id = searched.work_id) = $11)
ORDER BY searched.id DESC
LIMIT $9

-- name: feed_of
-- The same for one manifest, which has few of the events: each piece of work is looked up once, not
-- once for each of its events. $1 work, $2 numbers below this one, $3 recorded since, $4 recorded
-- before, $5 types (patterns), $6 run, $7 accepted, $8 number of events to search, $9 limit, $10
-- job, $11 group (each null for any), $12 manifest.
WITH searched AS MATERIALIZED (
    SELECT history.id, history.recorded_at, history.work_id
    FROM dispatcher.history
    WHERE ($1::uuid IS NULL OR history.work_id = $1)
      AND ($2::bigint IS NULL OR history.id < $2)
      AND ($3::timestamptz IS NULL OR history.recorded_at >= $3)
      AND ($4::timestamptz IS NULL OR history.recorded_at < $4)
    ORDER BY history.id DESC
    LIMIT $8
), matching AS MATERIALIZED (
    SELECT work_queue.id FROM dispatcher.work_queue
    WHERE work_queue.id = ANY(ARRAY(SELECT DISTINCT searched.work_id FROM searched))
      AND ($10::text IS NULL OR work_queue.job = $10)
      AND ($11::text IS NULL OR work_queue.group_name = $11)
      AND work_queue.manifest = $12
), found AS MATERIALIZED (
    SELECT searched.id, searched.recorded_at FROM searched
    WHERE searched.work_id = ANY(ARRAY(SELECT matching.id FROM matching))
    ORDER BY searched.id DESC
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
-- The last event that the same search has read; no row if it has read everything. $1 work, $2
-- numbers below this one, $3 recorded since, $4 recorded before, $5 number of events to search.
SELECT id, recorded_at FROM dispatcher.history
WHERE ($1::uuid IS NULL OR history.work_id = $1)
  AND ($2::bigint IS NULL OR history.id < $2)
  AND ($3::timestamptz IS NULL OR history.recorded_at >= $3)
  AND ($4::timestamptz IS NULL OR history.recorded_at < $4)
ORDER BY history.id DESC
OFFSET $5 - 1
LIMIT 1

-- name: last_number
-- The number of the newest visible event; 0 if there is none. $1 recorded since, so that the latest
-- partitions are read first.
SELECT coalesce(
    (SELECT id FROM dispatcher.history WHERE recorded_at >= $1 ORDER BY id DESC LIMIT 1),
    (SELECT id FROM dispatcher.history ORDER BY id DESC LIMIT 1), 0)

-- name: numbers
-- The visible event numbers above a number. $1 number, $2 limit, $3 recorded since.
SELECT id FROM dispatcher.history
WHERE id > $1 AND recorded_at >= $3
ORDER BY id
LIMIT $2

-- name: these
-- The matching events among some numbers. $1 numbers, $2 recorded since, $3 types (patterns), $4
-- work, $5 run, $6 job, $7 group, $8 accepted, $9 manifest (each null for any).
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
-- The work of a run. $1 run.
SELECT work_id FROM dispatcher.metadata WHERE run_id = $1

-- name: pulse
-- The newest number of the scheduler's history, and the time of its last tick with a decision.
SELECT coalesce((SELECT id FROM scheduler.history ORDER BY id DESC LIMIT 1), 0) AS decided,
       (SELECT ticked_at FROM scheduler.leader WHERE name = 'tick') AS ticked_at
