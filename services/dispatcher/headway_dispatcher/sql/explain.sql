-- name: work
-- Return one piece of work with its run and claimant, whether its manifest is disabled, how many
-- runs hold its key, and whether the gate is about to check the key. $1 id.
SELECT work_queue.*, run.worker, run.state AS run_state,
       run.created_at AS ordered_at, run.started_at, run.failure,
       lease.claimed_by,
       NOT work_queue.explicit AND manifest_switch.manifest_id IS NOT NULL AS manifest_disabled,
       (SELECT count(DISTINCT active.lease_id) FROM dispatcher.work_queue AS active
        WHERE active.concurrency_key = work_queue.concurrency_key
          AND active.state = 'dispatched') AS key_active,
       EXISTS (SELECT FROM dispatcher.key_changed
               WHERE key_changed.key = work_queue.concurrency_key) AS key_noted,
       coalesce(group_limit.priority, 0) AS group_priority
FROM dispatcher.work_queue
LEFT JOIN dispatcher.run ON run.run_id = work_queue.run_id AND run.work_id = work_queue.id
LEFT JOIN dispatcher.lease ON lease.id = work_queue.lease_id
LEFT JOIN dispatcher.manifest_switch
    ON manifest_switch.manifest_id = work_queue.manifest_id AND NOT manifest_switch.enabled
LEFT JOIN dispatcher.group_limit ON group_limit.name = work_queue.group_name
WHERE work_queue.id = $1

-- name: ahead_in_lanes
-- Count ready work of lanes before a place in the order, by job; the count of each lane is limited.
-- $1 groups, $2 jobs, $3 place, $4 age that one step of a group's priority is worth, $5 limit.
SELECT lane.job, sum(before.number)::bigint AS number
FROM unnest($1::text[], $2::text[]) AS lane (group_name, job)
LEFT JOIN dispatcher.group_limit ON group_limit.name = lane.group_name
CROSS JOIN LATERAL (
    SELECT count(*) AS number
    FROM (SELECT FROM dispatcher.work_queue
          WHERE work_queue.group_name = lane.group_name AND work_queue.job = lane.job
            AND work_queue.state IN ('queued', 'waiting') AND work_queue.hold_reason IS NULL
            AND work_queue.rank < $3::timestamptz + coalesce(group_limit.priority, 0) * $4::interval
          LIMIT $5) AS few
) AS before
GROUP BY lane.job
HAVING sum(before.number) > 0

-- name: ahead_with_key
-- Count work with a key before a place in the order, by lane: ready work, and work that waits for
-- the key. Work of a disabled manifest does not count, because it does not take the key. $1 key, $2
-- place, $3 age that one step of a group's priority is worth, $4 limit.
SELECT few.group_name, few.job, count(*) AS number
FROM (
    SELECT work_queue.group_name, work_queue.job
    FROM (
        (SELECT id, group_name, job, rank, manifest_id, explicit FROM dispatcher.work_queue
         WHERE concurrency_key = $1 AND state IN ('queued', 'waiting') AND hold_reason IS NULL)
        UNION ALL
        (SELECT id, group_name, job, rank, manifest_id, explicit FROM dispatcher.work_queue
         WHERE concurrency_key = $1 AND state IN ('queued', 'waiting') AND hold_reason = 'key')
    ) AS work_queue
    LEFT JOIN dispatcher.group_limit ON group_limit.name = work_queue.group_name
    LEFT JOIN dispatcher.manifest_switch
        ON manifest_switch.manifest_id = work_queue.manifest_id AND NOT manifest_switch.enabled
       AND NOT work_queue.explicit
    WHERE work_queue.rank - coalesce(group_limit.priority, 0) * $3::interval < $2::timestamptz
      AND manifest_switch.manifest_id IS NULL
    LIMIT $4
) AS few
GROUP BY few.group_name, few.job

-- name: holders
-- Return active runs, the oldest first: of a group, a job or a key, or runs that count against the
-- global limit, or runs of workers that serve a job together with unclaimed orders for such
-- workers. $1 group, $2 job, $3 key (null for any), $4 whether only runs that count globally, $5
-- all jobs of the workers that serve a job (null for any), $6 that job, $7 longest silence of a
-- live worker.
SELECT run.run_id AS run, run.work_id AS work, work_queue.manifest,
       run.group_name AS "group", run.job,
       coalesce(run.worker, lease.claimed_by) AS worker, run.state,
       coalesce(run.started_at, run.created_at) AS since
FROM dispatcher.run
JOIN dispatcher.work_queue ON work_queue.id = run.work_id
JOIN dispatcher.lease ON lease.id = run.lease_id
LEFT JOIN dispatcher.job_limit ON job_limit.name = run.job
LEFT JOIN dispatcher.worker
    ON worker.name = lease.claimed_by AND worker.nonce = lease.nonce AND NOT worker.draining
   AND worker.last_heard_at > clock_timestamp() - $7::interval
WHERE run.state IN ('pending', 'in_progress')
  AND ($1::text IS NULL OR run.group_name = $1)
  AND ($2::text IS NULL OR run.job = $2)
  AND ($3::text IS NULL OR run.concurrency_key = $3)
  AND (NOT $4::boolean OR coalesce(job_limit.counts_globally, true))
  AND ($5::text[] IS NULL
       OR CASE WHEN lease.claimed_by IS NULL THEN run.job = ANY($5)
               ELSE $6::text = ANY(worker.jobs) END)
ORDER BY since, run.run_id

-- name: durations
-- Return the durations of the last completed runs in seconds. $1 jobs, $2 runs of each job.
SELECT wanted.job, recent.seconds
FROM unnest($1::text[]) AS wanted (job)
CROSS JOIN LATERAL (
    SELECT extract(epoch FROM metadata.finished_at - metadata.started_at)::double precision
               AS seconds
    FROM dispatcher.metadata
    WHERE metadata.job = wanted.job AND metadata.state = 'completed'
      AND metadata.started_at IS NOT NULL AND metadata.finished_at IS NOT NULL
    ORDER BY metadata.created_at DESC
    LIMIT $2
) AS recent

-- name: letter
-- Return a dead letter in full, by its id, or the latest of a piece of work. $1 id.
SELECT dead_letter.*, dead_letter.failure ->> 'kind' AS failure_kind,
       dead_letter.failure ->> 'message' AS failure_message, work_queue.cause,
       CASE WHEN dead_letter.retry_requested_at IS NOT NULL THEN (
           SELECT other.id FROM dispatcher.work_queue AS other
           WHERE other.manifest_id = work_queue.manifest_id AND other.slot = work_queue.slot
             AND other.state <> 'settled') END AS waits_for
FROM dispatcher.dead_letter
JOIN dispatcher.work_queue ON work_queue.id = dead_letter.work_id
WHERE dead_letter.id = $1 OR dead_letter.work_id = $1
ORDER BY dead_letter.created_at DESC
LIMIT 1
