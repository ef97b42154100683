-- name: outcomes
-- Return the state of work, with everything that its outcome event contains. $1 ids.
SELECT work_queue.id, work_queue.round, work_queue.manifest_id, work_queue.manifest,
       work_queue.group_name, work_queue.state, work_queue.outcome, work_queue.run_id,
       work_queue.runs, work_queue.attempts, work_queue.settled_at, work_queue.cancel_reason,
       work_queue.cancel_requested_at,
       letter.id AS letter, letter.reason AS letter_reason,
       CASE WHEN work_queue.state = 'settled' THEN
           (SELECT jsonb_agg(metadata.activations) FROM dispatcher.metadata
            WHERE metadata.work_id = work_queue.id AND metadata.round = work_queue.round
              AND metadata.activations IS NOT NULL) END AS activations
FROM dispatcher.work_queue
LEFT JOIN dispatcher.dead_letter AS letter
    ON letter.work_id = work_queue.id AND letter.round = work_queue.round
   AND letter.state = 'awaiting'
WHERE work_queue.id = ANY($1::uuid[])

-- name: reasons
-- Return the reasons of outcomes that only history has. $1 works.
SELECT work_id, (data ->> 'round')::integer AS round, data ->> 'reason' AS reason
FROM dispatcher.history
WHERE work_id = ANY($1::uuid[]) AND type = 'headway.work.settled.v1' AND accepted

-- name: not_brought_forward
-- Return waiting work that was not brought forward since the request, nor with a worker since. $1
-- ids, $2 times of the requests.
SELECT item.id
FROM unnest($1::uuid[], $2::timestamptz[]) AS item (id, at)
JOIN dispatcher.work_queue USING (id)
WHERE work_queue.state IN ('queued', 'waiting')
  AND NOT EXISTS (
      SELECT FROM dispatcher.history
      WHERE history.work_id = item.id AND history.type = 'headway.work.brought_forward.v1'
        AND history.occurred_at >= item.at)
  AND NOT EXISTS (
      SELECT FROM dispatcher.metadata
      WHERE metadata.work_id = item.id AND metadata.finished_at >= item.at)

-- name: letters
-- Return the state of dead letters, the round of their work after it, and the slot of their work.
-- $1 dead letters.
SELECT dead_letter.id AS dead_letter, dead_letter.state, dead_letter.work_id AS work,
       dead_letter.round + (dead_letter.state = 'retried')::integer AS round,
       dead_letter.manifest_id, dead_letter.group_name AS "group",
       coalesce(dead_letter.actor, '') AS actor, dead_letter.resolved_at, work_queue.manifest,
       work_queue.slot
FROM dispatcher.dead_letter
JOIN dispatcher.work_queue ON work_queue.id = dead_letter.work_id
WHERE dead_letter.id = ANY($1::uuid[])

-- name: group_versions
-- Return the current versions of groups, deletions included. $1 names.
SELECT name, max(version) AS version
FROM (SELECT name, version FROM dispatcher.group_limit WHERE name = ANY($1::text[])
      UNION ALL
      SELECT name, version FROM dispatcher.deleted_group WHERE name = ANY($1::text[])) AS known
GROUP BY name

-- name: job_versions
-- Return the current versions of jobs. $1 names.
SELECT name, version FROM dispatcher.job_limit WHERE name = ANY($1::text[])

-- name: switch_versions
-- Return the current versions of manifest switches. $1 manifest ids.
SELECT manifest_id::text AS name, version FROM dispatcher.manifest_switch
WHERE manifest_id = ANY($1::text[]::uuid[])

-- name: tombstones
-- Return the tombstones of manifests. $1 manifest ids.
SELECT manifest_id, manifest, group_name AS "group", confirmed_at FROM dispatcher.tombstone
WHERE manifest_id = ANY($1::uuid[])

-- name: unclaimed
-- Return leases whose order was published, and that no worker has claimed or lists, the oldest first.
-- $1 created before, $2 listed before, $3 limit.
SELECT lease.id FROM dispatcher.lease
-- An unclaimed lease was never heard of, and `last_heard_at` is indexed.
WHERE lease.ended_at IS NULL AND lease.last_heard_at IS NULL AND lease.created_at < $1
  AND (lease.listed_at IS NULL OR lease.listed_at < $2)
  AND NOT EXISTS (SELECT FROM dispatcher.outbox WHERE outbox.message_id = lease.id::text)
ORDER BY lease.created_at
LIMIT $3

-- name: orders
-- Return everything that the orders of leases contain, without runs that have ended. $1 leases.
SELECT lease.id, lease.token, lease.job, ordered.ids, ordered.runs, ordered.on_lost_contact,
       ordered.traceparent
FROM dispatcher.lease
CROSS JOIN LATERAL (
    SELECT array_agg(work_queue.run_id) AS ids,
           min(work_queue.terms ->> 'on_lost_contact') AS on_lost_contact,
           min(work_queue.traceparent) AS traceparent,
           jsonb_agg(work_queue.terms || jsonb_build_object(
               'run', work_queue.run_id, 'work', work_queue.id, 'round', work_queue.round,
               'attempt', work_queue.attempts + 1,
               'attempts', greatest((work_queue.terms -> 'retry' -> 'attempts')::integer,
                                    work_queue.attempts + 1),
               'manifest', work_queue.manifest, 'group', work_queue.group_name,
               'cause', work_queue.cause, 'due_at', work_queue.due_at, 'input', work_queue.input,
               'input_schema', work_queue.input_schema,
               'traceparent', work_queue.traceparent) ORDER BY work_queue.run_id) AS runs
    FROM dispatcher.work_queue
    WHERE work_queue.lease_id = lease.id AND work_queue.state = 'dispatched'
) AS ordered
WHERE lease.id = ANY($1::uuid[]) AND ordered.ids IS NOT NULL

-- name: lock_leases
-- Lock leases in a fixed order. $1 leases.
SELECT FROM dispatcher.lease WHERE id = ANY($1::uuid[]) ORDER BY id FOR UPDATE

-- name: keep_runs
-- Insert the rows of runs that only were ordered; their leases are locked. $1 runs.
INSERT INTO dispatcher.metadata
SELECT * FROM dispatcher.run WHERE run_id = ANY($1::uuid[])
ON CONFLICT (run_id) DO NOTHING

-- name: note_reissued
-- Count republished orders; returns the runs with their counters. $1 runs.
UPDATE dispatcher.metadata SET reissued = reissued + 1 WHERE run_id = ANY($1::uuid[])
RETURNING run_id AS run, work_id AS work, lease_id AS lease, reissued, begun_elsewhere

-- name: note_begun_elsewhere
-- Count starts that another process reported; returns the runs with their counters. $1 runs, once
-- for each start.
UPDATE dispatcher.metadata SET begun_elsewhere = begun_elsewhere + item.times
FROM (SELECT run_id, count(*)::integer AS times FROM unnest($1::uuid[]) AS run_id GROUP BY run_id)
    AS item
WHERE metadata.run_id = item.run_id
RETURNING metadata.run_id AS run, work_id AS work, lease_id AS lease, reissued, begun_elsewhere

-- name: finished
-- Return the leases of a list that have ended or do not exist. $1 leases.
SELECT item.id
FROM unnest($1::uuid[]) AS item (id)
LEFT JOIN dispatcher.lease ON lease.id = item.id
WHERE lease.id IS NULL OR lease.ended_at IS NOT NULL
