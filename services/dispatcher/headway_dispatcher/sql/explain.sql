-- name: work
-- One piece of work, with its run if it has one and who has claimed that, whether its manifest is
-- disabled, how many runs hold its key, and whether the gate is about to look at that. $1 id.
SELECT work_queue.*, metadata.worker, metadata.state AS run_state,
       metadata.created_at AS ordered_at, metadata.started_at, metadata.failure,
       lease.claimed_by,
       NOT work_queue.explicit AND manifest_switch.manifest_id IS NOT NULL AS manifest_disabled,
       (SELECT count(*) FROM dispatcher.metadata AS active
        WHERE active.concurrency_key = work_queue.concurrency_key
          AND active.state IN ('pending', 'in_progress')) AS key_active,
       EXISTS (SELECT FROM dispatcher.key_changed
               WHERE key_changed.key = work_queue.concurrency_key) AS key_noted,
       coalesce(group_limit.priority, 0) AS group_priority
FROM dispatcher.work_queue
LEFT JOIN dispatcher.metadata ON metadata.run_id = work_queue.run_id
LEFT JOIN dispatcher.lease ON lease.id = metadata.lease_id
LEFT JOIN dispatcher.manifest_switch
    ON manifest_switch.manifest_id = work_queue.manifest_id AND NOT manifest_switch.enabled
LEFT JOIN dispatcher.group_limit ON group_limit.name = work_queue.group_name
WHERE work_queue.id = $1

-- name: ahead_in_lanes
-- How much ready work of lanes comes before a turn, by job, counted no further than needed in each
-- lane. $1 groups, $2 jobs, $3 turn, $4 how much older a step of a group's priority makes its work
-- look, $5 how far to count.
SELECT lane.job, sum(before.number)::bigint AS number
FROM unnest($1::text[], $2::text[]) AS lane (group_name, job)
LEFT JOIN dispatcher.group_limit ON group_limit.name = lane.group_name
CROSS JOIN LATERAL (
    SELECT count(*) AS number
    FROM (SELECT FROM dispatcher.work_queue
          WHERE work_queue.group_name = lane.group_name AND work_queue.job = lane.job
            AND work_queue.state IN ('queued', 'waiting') AND work_queue.held_by IS NULL
            AND work_queue.rank < $3::timestamptz + coalesce(group_limit.priority, 0) * $4::interval
          LIMIT $5) AS few
) AS before
GROUP BY lane.job
HAVING sum(before.number) > 0

-- name: ahead_with_key
-- How much work with a key comes before a turn, by lane: what is ready, and what waits for it too.
-- What a disabled manifest would hold once it had the key keeps it from nobody. $1 key, $2 turn,
-- $3 how much older a step of a group's priority makes its work look, $4 how far to count.
SELECT few.group_name, few.job, count(*) AS number
FROM (
    SELECT work_queue.group_name, work_queue.job
    FROM (
        (SELECT id, group_name, job, rank, manifest_id, explicit FROM dispatcher.work_queue
         WHERE concurrency_key = $1 AND state IN ('queued', 'waiting') AND held_by IS NULL)
        UNION ALL
        (SELECT id, group_name, job, rank, manifest_id, explicit FROM dispatcher.work_queue
         WHERE concurrency_key = $1 AND state IN ('queued', 'waiting') AND held_by = 'key')
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
-- Runs that hold slots, the oldest first: of a group, of a job or with a key, as far as those are
-- named, or all that count against the limit over everything; or those that workers have which
-- serve a job, and orders that lie ready for such. $1 group, $2 job, $3 key, $4 whether only those
-- that count globally, $5 the jobs of all workers that serve a job (null where any will do),
-- $6 that job, $7 how long a worker may have been silent.
SELECT metadata.run_id, metadata.work_id, work_queue.manifest, metadata.group_name, metadata.job,
       coalesce(metadata.worker, lease.claimed_by) AS worker, metadata.state,
       coalesce(metadata.started_at, metadata.created_at) AS since
FROM dispatcher.metadata
JOIN dispatcher.work_queue ON work_queue.id = metadata.work_id
JOIN dispatcher.lease ON lease.id = metadata.lease_id
LEFT JOIN dispatcher.job_limit ON job_limit.name = metadata.job
LEFT JOIN dispatcher.worker
    ON worker.name = lease.claimed_by AND worker.nonce = lease.nonce AND NOT worker.draining
   AND worker.last_heard_at > clock_timestamp() - $7::interval
WHERE metadata.state IN ('pending', 'in_progress')
  AND ($1::text IS NULL OR metadata.group_name = $1)
  AND ($2::text IS NULL OR metadata.job = $2)
  AND ($3::text IS NULL OR metadata.concurrency_key = $3)
  AND (NOT $4::boolean OR coalesce(job_limit.counts_globally, true))
  AND ($5::text[] IS NULL
       OR CASE WHEN lease.claimed_by IS NULL THEN metadata.job = ANY($5)
               ELSE $6::text = ANY(worker.jobs) END)
ORDER BY since, metadata.run_id

-- name: durations
-- How long the latest runs took that jobs completed, in seconds; only the last events of history
-- are looked through, so the answer may be none. $1 jobs.
SELECT metadata.job,
       extract(epoch FROM metadata.finished_at - metadata.started_at)::double precision AS seconds
FROM (SELECT run_id FROM dispatcher.history
      WHERE type = 'headway.run.completed.v1' AND accepted
        AND id > (SELECT coalesce(max(id), 0) - 5000 FROM dispatcher.history)) AS latest
JOIN dispatcher.metadata ON metadata.run_id = latest.run_id
WHERE metadata.job = ANY($1::text[])
  AND metadata.started_at IS NOT NULL AND metadata.finished_at IS NOT NULL

-- name: letter
-- One dead letter in full, by its id or the latest of a piece of work. $1 id.
SELECT dead_letter.*, dead_letter.failure ->> 'kind' AS failure_kind,
       dead_letter.failure ->> 'message' AS failure_message, work_queue.cause,
       CASE WHEN dead_letter.retry_asked_at IS NOT NULL THEN (
           SELECT other.id FROM dispatcher.work_queue AS other
           WHERE other.manifest_id = work_queue.manifest_id AND other.slot = work_queue.slot
             AND other.state <> 'settled') END AS waits_for
FROM dispatcher.dead_letter
JOIN dispatcher.work_queue ON work_queue.id = dead_letter.work_id
WHERE dead_letter.id = $1 OR dead_letter.work_id = $1
ORDER BY dead_letter.created_at DESC
LIMIT 1
