-- name: feed
-- Events of history, the newest first, with all events of the last row. All filters but the time
-- search a bounded number of rows. $1 numbers below this one, $2 recorded since, $3 recorded before,
-- $4 types (patterns), $5 run, $6 accepted (null for both), $7 number of rows to search, $8 limit,
-- $9 job, $10 group, $11 manifest (each null for any).
SELECT searched.*,
       (SELECT work_queue.manifest FROM dispatcher.work_queue
        WHERE work_queue.id = searched.work_id) AS manifest,
       (SELECT work_queue.job FROM dispatcher.work_queue
        WHERE work_queue.id = searched.work_id) AS job
FROM (
    -- The number is a column of its own, so that the order is known and the limit ends the search.
    SELECT row.id, part.*, row.recorded_at, row.accepted, row.refusal
    FROM (
        SELECT id, recorded_at, accepted, refusal, history FROM dispatcher.history
        WHERE ($1::bigint IS NULL OR history.id < $1)
          AND ($2::timestamptz IS NULL OR history.recorded_at >= $2)
          AND ($3::timestamptz IS NULL OR history.recorded_at < $3)
        ORDER BY history.id DESC
        LIMIT $7
    ) AS row
    CROSS JOIN LATERAL dispatcher.event_parts(row.history) AS part
) AS searched
WHERE ($4::text[] IS NULL OR searched.type LIKE ANY($4))
  AND ($5::uuid IS NULL OR searched.run_id = $5)
  AND ($6::boolean IS NULL OR searched.accepted = $6)
  AND ($9::text IS NULL OR (SELECT work_queue.job FROM dispatcher.work_queue
                            WHERE work_queue.id = searched.work_id) = $9)
  AND ($10::text IS NULL OR (SELECT work_queue.group_name FROM dispatcher.work_queue
                             WHERE work_queue.id = searched.work_id) = $10)
  AND ($11::text IS NULL OR (SELECT work_queue.manifest FROM dispatcher.work_queue
                             WHERE work_queue.id = searched.work_id) = $11)
ORDER BY searched.id DESC
FETCH FIRST $8 ROWS WITH TIES

-- name: feed_of_work
-- The same for one piece of work, which indexes find, with the events of the leases of its runs. $1
-- work, $2 numbers below this one, $3 recorded since, $4 recorded before, $5 types (patterns), $6
-- run, $7 accepted (null for both), $8 limit, $9 job, $10 group, $11 manifest.
SELECT searched.*, work_queue.manifest, work_queue.job
FROM (
    SELECT (row.history).id, part.*, (row.history).recorded_at, (row.history).accepted,
           (row.history).refusal
    FROM (
        SELECT history FROM dispatcher.history WHERE history.work_id = $1
        UNION ALL
        SELECT history FROM dispatcher.history
        WHERE history.work_id IS NULL
          AND history.lease_id = ANY(ARRAY(SELECT DISTINCT run.lease_id
                                           FROM dispatcher.run
                                           WHERE run.work_id = $1))
    ) AS row
    CROSS JOIN LATERAL dispatcher.event_parts(row.history) AS part
    WHERE part.work_id = $1 OR part.work_id IS NULL
) AS searched
LEFT JOIN dispatcher.work_queue ON work_queue.id = $1
WHERE ($2::bigint IS NULL OR searched.id < $2)
  AND ($3::timestamptz IS NULL OR searched.recorded_at >= $3)
  AND ($4::timestamptz IS NULL OR searched.recorded_at < $4)
  AND ($5::text[] IS NULL OR searched.type LIKE ANY($5))
  AND ($6::uuid IS NULL OR searched.run_id = $6)
  AND ($7::boolean IS NULL OR searched.accepted = $7)
  AND ($9::text IS NULL OR work_queue.job = $9)
  AND ($10::text IS NULL OR work_queue.group_name = $10)
  AND ($11::text IS NULL OR work_queue.manifest = $11)
ORDER BY searched.id DESC
FETCH FIRST $8 ROWS WITH TIES

-- name: reached
-- The last row that the same search has read; no row if it has read everything. $1 numbers below
-- this one, $2 recorded since, $3 recorded before, $4 number of rows to search.
SELECT id, recorded_at FROM dispatcher.history
WHERE ($1::bigint IS NULL OR history.id < $1)
  AND ($2::timestamptz IS NULL OR history.recorded_at >= $2)
  AND ($3::timestamptz IS NULL OR history.recorded_at < $3)
ORDER BY history.id DESC
OFFSET $4 - 1
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
SELECT history.id, part.*, history.recorded_at, history.accepted, history.refusal,
       (SELECT work_queue.manifest FROM dispatcher.work_queue
        WHERE work_queue.id = part.work_id) AS manifest,
       (SELECT work_queue.job FROM dispatcher.work_queue
        WHERE work_queue.id = part.work_id) AS job
FROM dispatcher.history
CROSS JOIN LATERAL dispatcher.event_parts(history) AS part
WHERE history.id = ANY($1::bigint[]) AND history.recorded_at >= $2
  AND ($3::text[] IS NULL OR part.type LIKE ANY($3))
  AND ($4::uuid IS NULL OR part.work_id = $4)
  AND ($5::uuid IS NULL OR part.run_id = $5)
  AND (($6::text IS NULL AND $7::text IS NULL AND $9::text IS NULL)
       OR EXISTS (SELECT FROM dispatcher.work_queue
                  WHERE work_queue.id = part.work_id
                    AND ($6::text IS NULL OR work_queue.job = $6)
                    AND ($7::text IS NULL OR work_queue.group_name = $7)
                    AND ($9::text IS NULL OR work_queue.manifest = $9)))
  AND ($8::boolean IS NULL OR history.accepted = $8)
ORDER BY history.id

-- name: work_of_run
-- The work of a run. $1 run.
SELECT work_id FROM dispatcher.run WHERE run_id = $1

-- name: pulse
-- The newest number of the scheduler's history, and the time of its last tick with a decision.
SELECT coalesce((SELECT id FROM scheduler.history ORDER BY id DESC LIMIT 1), 0) AS decided,
       (SELECT ticked_at FROM scheduler.leader WHERE name = 'tick') AS ticked_at
