-- name: work
-- One piece of work, with its run if it has one, whether its manifest is disabled, how many runs
-- hold its key, and whether the gate is about to look at that. $1 id.
SELECT work_queue.*, metadata.worker, metadata.state AS run_state,
       metadata.created_at AS ordered_at, metadata.started_at,
       NOT work_queue.explicit AND manifest_switch.manifest_id IS NOT NULL AS manifest_disabled,
       (SELECT count(*) FROM dispatcher.metadata AS active
        WHERE active.concurrency_key = work_queue.concurrency_key
          AND active.state IN ('pending', 'in_progress')) AS key_active,
       EXISTS (SELECT FROM dispatcher.key_changed
               WHERE key_changed.key = work_queue.concurrency_key) AS key_noted
FROM dispatcher.work_queue
LEFT JOIN dispatcher.metadata ON metadata.run_id = work_queue.run_id
LEFT JOIN dispatcher.manifest_switch
    ON manifest_switch.manifest_id = work_queue.manifest_id AND NOT manifest_switch.enabled
WHERE work_queue.id = $1

-- name: ahead_in_group
-- How much ready work of a group comes before a rank, counted no further than needed in each
-- lane. $1 group, $2 rank, $3 how far to count.
SELECT coalesce(sum(before.number), 0)::bigint
FROM dispatcher.ready_lane
CROSS JOIN LATERAL (
    SELECT count(*) AS number
    FROM (SELECT FROM dispatcher.work_queue
          WHERE work_queue.group_name = ready_lane.group_name AND work_queue.job = ready_lane.job
            AND work_queue.state IN ('queued', 'waiting') AND work_queue.held_by IS NULL
            AND work_queue.rank < $2
          LIMIT $3) AS few
) AS before
WHERE ready_lane.group_name = $1

-- name: ahead_with_key
-- How much work with a key comes before a rank: what is ready, and what waits for it too.
-- $1 key, $2 rank, $3 how far to count.
SELECT (SELECT count(*)
        FROM (SELECT FROM dispatcher.work_queue
              WHERE concurrency_key = $1 AND state IN ('queued', 'waiting') AND held_by IS NULL
                AND rank < $2
              LIMIT $3) AS few)
     + (SELECT count(*)
        FROM (SELECT FROM dispatcher.work_queue
              WHERE concurrency_key = $1 AND state IN ('queued', 'waiting') AND held_by = 'key'
                AND rank < $2
              LIMIT $3) AS few)

-- name: holders
-- Runs that hold slots, the oldest first: of a group, of a job or with a key, as far as those are
-- named, or all that count against the limit over everything. $1 group, $2 job, $3 key, $4 whether
-- only those that count globally.
SELECT metadata.run_id, metadata.work_id, work_queue.manifest, metadata.group_name, metadata.job,
       coalesce(metadata.worker, lease.claimed_by) AS worker, metadata.state,
       coalesce(metadata.started_at, metadata.created_at) AS since
FROM dispatcher.metadata
JOIN dispatcher.work_queue ON work_queue.id = metadata.work_id
JOIN dispatcher.lease ON lease.id = metadata.lease_id
LEFT JOIN dispatcher.job_limit ON job_limit.name = metadata.job
WHERE metadata.state IN ('pending', 'in_progress')
  AND ($1::text IS NULL OR metadata.group_name = $1)
  AND ($2::text IS NULL OR metadata.job = $2)
  AND ($3::text IS NULL OR metadata.concurrency_key = $3)
  AND (NOT $4::boolean OR coalesce(job_limit.counts_globally, true))
ORDER BY since, metadata.run_id

-- name: durations
-- How long the latest runs took that a job completed, in seconds; only the last events of history
-- are looked through, so the answer may be none. $1 job.
SELECT extract(epoch FROM metadata.finished_at - metadata.started_at)::double precision AS seconds
FROM (SELECT run_id FROM dispatcher.history
      WHERE type = 'headway.run.completed.v1' AND accepted
        AND id > (SELECT coalesce(max(id), 0) - 5000 FROM dispatcher.history)) AS latest
JOIN dispatcher.metadata ON metadata.run_id = latest.run_id
WHERE metadata.job = $1 AND metadata.started_at IS NOT NULL AND metadata.finished_at IS NOT NULL
LIMIT 200
