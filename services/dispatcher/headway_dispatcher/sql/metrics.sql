-- name: standing
-- Return the current state for the metrics. Every part reads an index and is limited, so that a
-- backlog does not make it slow. The reasons are those of the view `waiting`. $1 longest silence of
-- a live worker, $2 limit for each lane, and for all work that waits for its time, a key or its
-- manifest.
WITH ready AS (
    SELECT lane.group_name, lane.job, NULL::text AS hold_reason, NULL::text AS wait_reason,
           work.count
    FROM dispatcher.ready_lane AS lane
    CROSS JOIN LATERAL (
        SELECT count(*) AS count
        FROM (SELECT FROM dispatcher.work_queue
              WHERE work_queue.state IN ('queued', 'waiting') AND work_queue.hold_reason IS NULL
                AND work_queue.group_name = lane.group_name AND work_queue.job = lane.job
              ORDER BY work_queue.rank, work_queue.id
              LIMIT $2) AS rows) AS work
), held AS (
    (SELECT group_name, job, hold_reason, CASE WHEN state = 'waiting' THEN wait_reason END
         AS wait_reason
     FROM dispatcher.work_queue
     WHERE state IN ('queued', 'waiting') AND hold_reason = 'not_before'
     ORDER BY not_before
     LIMIT $2)
    UNION ALL
    (SELECT group_name, job, hold_reason, NULL FROM dispatcher.work_queue
     WHERE state IN ('queued', 'waiting') AND hold_reason = 'key'
     ORDER BY concurrency_key, group_name, job, rank
     LIMIT $2)
    UNION ALL
    SELECT work.group_name, work.job, work.hold_reason, NULL
    FROM (SELECT manifest_id FROM dispatcher.manifest_switch WHERE NOT enabled LIMIT $2) AS off
    CROSS JOIN LATERAL (
        SELECT group_name, job, hold_reason FROM dispatcher.work_queue
        WHERE work_queue.manifest_id = off.manifest_id AND work_queue.state <> 'settled'
          AND work_queue.state IN ('queued', 'waiting')
          AND work_queue.hold_reason = 'manifest_disabled') AS work
), alike AS (
    SELECT * FROM ready
    UNION ALL
    SELECT group_name, job, hold_reason, wait_reason, count(*) FROM held GROUP BY 1, 2, 3, 4
), waiting AS (
    SELECT alike.group_name AS "group",
           coalesce(CASE WHEN NOT group_limit.enabled THEN 'group_disabled' END,
                    alike.wait_reason, alike.hold_reason, closed_lane.reason, 'awaiting_gate')
               AS reason,
           alike.count
    FROM alike
    LEFT JOIN dispatcher.group_limit ON group_limit.name = alike.group_name
    LEFT JOIN dispatcher.closed_lane
        ON closed_lane.group_name = alike.group_name AND closed_lane.job = alike.job
), active AS (
    SELECT work_queue.group_name AS "group", work_queue.job,
           coalesce(metadata.state, 'pending') AS state, count(*) AS count
    FROM dispatcher.work_queue
    LEFT JOIN dispatcher.metadata ON metadata.run_id = work_queue.run_id
    WHERE work_queue.state = 'dispatched'
    GROUP BY 1, 2, 3
), letters AS (
    SELECT group_name AS "group", count(*) AS count
    FROM (SELECT group_name FROM dispatcher.dead_letter WHERE state = 'awaiting'
          ORDER BY created_at, id
          LIMIT $2) AS awaiting
    GROUP BY 1
), alive AS (
    SELECT jobs, slots, draining FROM dispatcher.worker
    WHERE last_heard_at > clock_timestamp() - $1::interval
), serving AS (
    SELECT served.job, count(*) AS count
    FROM alive CROSS JOIN LATERAL unnest(alive.jobs) AS served (job)
    WHERE NOT draining
    GROUP BY 1
)
SELECT (SELECT jsonb_agg(waiting) FROM waiting) AS waiting,
       (SELECT jsonb_agg(active) FROM active) AS active,
       (SELECT count(*) FROM dispatcher.lease
        LEFT JOIN dispatcher.job_limit ON job_limit.name = lease.job
        WHERE lease.ended_at IS NULL AND coalesce(job_limit.counts_globally, true)) AS counted,
       (SELECT jsonb_agg(jsonb_build_object('group', name, 'count', max_active))
        FROM dispatcher.group_limit WHERE max_active IS NOT NULL) AS group_limits,
       (SELECT jsonb_agg(jsonb_build_object('job', name, 'count', max_active))
        FROM dispatcher.job_limit WHERE max_active IS NOT NULL) AS job_limits,
       (SELECT jsonb_agg(letters) FROM letters) AS awaiting,
       (SELECT jsonb_agg(serving) FROM serving) AS workers,
       (SELECT coalesce(sum(slots), 0)::bigint FROM alive WHERE NOT draining) AS slots,
       (SELECT count(*) FROM (SELECT FROM dispatcher.outbox LIMIT $2) AS rows) AS outbox_rows,
       coalesce((SELECT extract(epoch FROM clock_timestamp() - created_at)::float8
                 FROM dispatcher.outbox ORDER BY id LIMIT 1), 0) AS outbox_age,
       (SELECT count(*) FROM (SELECT FROM dispatcher.rejected LIMIT $2) AS rows) AS rejected
