-- name: try_lock
-- Try to lock the clean-up; only one dispatcher cleans up at a time. $1 lock key.
SELECT pg_try_advisory_xact_lock($1)

-- name: be_brief
-- Give up early: all writers of history queue behind this lock.
SET LOCAL lock_timeout = '200ms'

-- name: missing_days
-- Return days without a partition: the next ones, and those with events in the default partition.
-- $1 now, $2 days ahead.
SELECT day FROM (
    SELECT generate_series(($1 AT TIME ZONE 'UTC')::date,
                           ($1 AT TIME ZONE 'UTC')::date + $2::integer, interval '1 day')::date
    UNION
    SELECT DISTINCT (recorded_at AT TIME ZONE 'UTC')::date FROM dispatcher.history_default
) AS wanted (day)
WHERE to_regclass('dispatcher.history_' || to_char(day, 'YYYYMMDD')) IS NULL
ORDER BY day

-- name: add_day
-- Create the partition of a day. $1 day.
SELECT dispatcher.add_history_day($1)

-- name: old_days
-- Return days whose partition ended before a time, the oldest first. $1 time.
SELECT day FROM (
    SELECT to_date(substr(partition.relname, 9), 'YYYYMMDD') AS day
    FROM pg_inherits
    JOIN pg_class AS partition ON partition.oid = inhrelid
    WHERE inhparent = 'dispatcher.history'::regclass AND partition.relname ~ '^history_\d{8}$'
) AS known
WHERE (day + 1)::timestamp AT TIME ZONE 'UTC' <= $1
ORDER BY day

-- name: last_of_day
-- Return the highest number of a day. $1 begin of the day, $2 its end.
SELECT max(id) FROM dispatcher.history WHERE recorded_at >= $1 AND recorded_at < $2

-- name: outliving
-- Return work of a day that may need a snapshot before the day is dropped: it still exists, it was
-- not settled on that day, or its snapshot of an earlier day stays, which lacks this day. Work with a
-- snapshot of this day is left out. $1 begin of the day, $2 its end, $3 its highest number.
SELECT work_id, work_id IN (SELECT history.work_id FROM dispatcher.history
                            WHERE type = 'headway.history.snapshot.v1' AND recorded_at >= $2)
           AS snapshot_stays
FROM (
    SELECT work_id, type = 'headway.work.settled.v1'
                    OR (type = 'headway.runs.completed.v1'
                        AND data #>> '{runs,0,settled_at}' IS NOT NULL) AS ended
    FROM dispatcher.history
    WHERE recorded_at >= $1 AND recorded_at < $2 AND accepted AND work_id IS NOT NULL
    UNION ALL
    SELECT (packed.run ->> 'work')::uuid, packed.run ->> 'settled_at' IS NOT NULL
    FROM dispatcher.history
    CROSS JOIN LATERAL jsonb_array_elements(data -> 'runs') AS packed (run)
    WHERE recorded_at >= $1 AND recorded_at < $2 AND accepted AND work_id IS NULL
      AND type IN ('headway.run.dispatched.v1', 'headway.runs.completed.v1')
) AS event
GROUP BY work_id
HAVING (NOT bool_or(ended)
        OR EXISTS (SELECT FROM dispatcher.work_queue WHERE work_queue.id = event.work_id)
        OR work_id IN (SELECT history.work_id FROM dispatcher.history
                       WHERE type = 'headway.history.snapshot.v1' AND recorded_at >= $2))
   AND work_id NOT IN (SELECT history.work_id FROM dispatcher.history
                       WHERE type = 'headway.history.snapshot.v1' AND recorded_at >= $2
                         AND (data ->> 'covers')::bigint >= $3)
ORDER BY work_id

-- name: drop_day
-- Drop the partition of a day. $1 day.
SELECT dispatcher.drop_history_day($1)

-- name: expired_work
-- Return work that was settled long ago, without open or recently resolved dead letters. $1 settled
-- before, $2 limit.
SELECT id FROM dispatcher.work_queue
WHERE state = 'settled' AND settled_at < $1
  AND NOT EXISTS (
    SELECT FROM dispatcher.dead_letter
    WHERE dead_letter.work_id = work_queue.id
      AND (dead_letter.state = 'awaiting' OR dead_letter.resolved_at >= $1))
ORDER BY settled_at
LIMIT $2

-- name: lock_leases
-- Lock the leases of runs of some work, in a fixed order. $1 work ids.
SELECT id FROM dispatcher.lease
WHERE id IN (SELECT lease_id FROM dispatcher.metadata WHERE work_id = ANY($1::uuid[]))
ORDER BY id
FOR UPDATE

-- name: lock_settled
-- Lock work that is still settled, in a fixed order. $1 ids.
SELECT id FROM dispatcher.work_queue
WHERE id = ANY($1::uuid[]) AND state = 'settled'
ORDER BY id
FOR UPDATE

-- name: delete_runs
-- Delete the runs of some work. $1 work ids.
DELETE FROM dispatcher.metadata WHERE work_id = ANY($1::uuid[])

-- name: delete_leases
-- Delete leases without runs; returns them. $1 leases.
DELETE FROM dispatcher.lease
WHERE id = ANY($1::uuid[])
  AND NOT EXISTS (SELECT FROM dispatcher.run WHERE run.lease_id = lease.id)
RETURNING id

-- name: delete_inbox
-- Delete the event ids of deleted leases. $1 leases.
DELETE FROM dispatcher.inbox WHERE lease_id = ANY($1::uuid[])

-- name: delete_letters
-- Delete the dead letters of some work. $1 work ids.
DELETE FROM dispatcher.dead_letter WHERE work_id = ANY($1::uuid[])

-- name: delete_works
-- Delete work without runs and letters. $1 ids.
DELETE FROM dispatcher.work_queue WHERE id = ANY($1::uuid[])

-- name: forget_groups
-- Delete old records of deleted groups. $1 deleted before.
DELETE FROM dispatcher.deleted_group WHERE deleted_at < $1

-- name: sweep_inbox
-- Delete old event ids of unknown leases from one page of the table; returns the last lease of the
-- page, or null at the end. $1 above this lease, $2 received before, $3 page size.
WITH page AS (
    SELECT lease_id, event_id, received_at FROM dispatcher.inbox
    WHERE lease_id > $1
    ORDER BY lease_id, event_id
    LIMIT $3
), swept AS (
    DELETE FROM dispatcher.inbox
    USING page
    WHERE (inbox.lease_id, inbox.event_id) = (page.lease_id, page.event_id)
      AND page.received_at < $2
      AND NOT EXISTS (SELECT FROM dispatcher.lease WHERE lease.id = page.lease_id)
)
SELECT lease_id FROM page ORDER BY lease_id DESC LIMIT 1

-- name: forget_workers
-- Delete workers that crashed long ago; a worker that stops in order is deleted at once. $1 not
-- heard since.
DELETE FROM dispatcher.worker WHERE gone AND last_heard_at < $1
