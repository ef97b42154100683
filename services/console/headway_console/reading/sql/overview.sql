-- name: ended
-- The number of runs that ended in each time slot, by result. $1 since, $2 until, $3 width of a
-- slot.
SELECT stretch.at, counted.ended - counted.failed - counted.cancelled AS completed, counted.failed,
       counted.cancelled
FROM generate_series($1, $2::timestamptz - interval '1 microsecond', $3::interval) AS stretch (at)
CROSS JOIN LATERAL (
    SELECT count(*) AS ended, count(*) FILTER (WHERE state = 'failed') AS failed,
           count(*) FILTER (WHERE state = 'cancelled') AS cancelled
    FROM dispatcher.metadata
    WHERE finished_at IS NOT NULL AND finished_at >= stretch.at
      AND finished_at < least(stretch.at + $3, $2)
) AS counted
ORDER BY stretch.at

-- name: failing
-- Jobs with failed runs, the most failures first. $1 since, $2 limit.
SELECT job, count(*) AS failed, max(created_at) AS last_at
FROM dispatcher.metadata
WHERE state = 'failed' AND created_at >= $1
GROUP BY job
ORDER BY failed DESC, job
LIMIT $2

-- name: due_next
-- The next fires. A manifest with work under way may have no wake time until the work ends, and is
-- due nevertheless. $1 limit, $2 number of works under way to search for such manifests.
SELECT coming.id, coming.external_id, coming.job, coming.group_name, coming.fires_at
FROM (
    (SELECT manifest.id, manifest.external_id, manifest.job, manifest.group_name,
            manifest.wake_at AS fires_at
     FROM scheduler.manifest
     WHERE manifest.wake_at IS NOT NULL AND manifest.blocked_by IS NULL
     ORDER BY manifest.wake_at
     LIMIT $1)
    UNION ALL
    SELECT manifest.id, manifest.external_id, manifest.job, manifest.group_name,
           manifest.next_due_at
    FROM (SELECT DISTINCT few.manifest_id
          FROM (SELECT work.manifest_id FROM scheduler.work LIMIT $2) AS few) AS busy
    JOIN scheduler.manifest ON manifest.id = busy.manifest_id
    JOIN scheduler.manifest_group ON manifest_group.name = manifest.group_name
    WHERE manifest.wake_at IS NULL AND manifest.next_due_at IS NOT NULL
      AND manifest.next_due_at > clock_timestamp()
      AND manifest.enabled AND manifest_group.enabled AND manifest.blocked_by IS NULL
      AND manifest.pruning_at IS NULL AND NOT manifest.paused
) AS coming
ORDER BY coming.fires_at
LIMIT $1

-- name: counts
-- The counts of the overview. $1 time since which a live worker was heard, $2 limit of the counts of
-- work.
SELECT (SELECT count(*) FROM scheduler.manifest WHERE pruning_at IS NULL) AS manifests,
       (SELECT count(*) FROM scheduler.manifest
        WHERE pruning_at IS NULL AND NOT enabled) AS disabled,
       (SELECT count(*) FROM scheduler.manifest
        WHERE pruning_at IS NULL AND blocked_by IS NOT NULL) AS blocked,
       (SELECT count(*) FROM scheduler.manifest
        WHERE pruning_at IS NULL AND trouble IS NOT NULL) AS troubled,
       (SELECT count(*) FROM dispatcher.dead_letter WHERE state = 'awaiting') AS dead_letters,
       (SELECT count(*) FROM dispatcher.worker WHERE last_heard_at > $1) AS workers,
       (SELECT coalesce(sum(slots), 0) FROM dispatcher.worker
        WHERE last_heard_at > $1 AND NOT draining) AS slots,
       (SELECT count(*) FROM (SELECT FROM dispatcher.work_queue
                              WHERE wait_reason IS NOT NULL LIMIT $2) AS few) AS waiting,
       (SELECT count(*) FROM (SELECT FROM dispatcher.work_queue
                              WHERE state = 'dispatched' LIMIT $2) AS few) AS dispatched

-- name: start_delay
-- Percentiles of the seconds from due time to start. $1 created since, $2 number of the latest runs
-- to read.
SELECT count(*) AS runs,
       percentile_cont(0.5) WITHIN GROUP (ORDER BY latest.seconds) AS p50,
       percentile_cont(0.95) WITHIN GROUP (ORDER BY latest.seconds) AS p95,
       percentile_cont(0.99) WITHIN GROUP (ORDER BY latest.seconds) AS p99
FROM (SELECT due_at, started_at, attempt, round,
             greatest(extract(epoch FROM started_at - due_at), 0) AS seconds
      FROM dispatcher.metadata
      WHERE created_at >= $1
      ORDER BY created_at DESC
      LIMIT $2) AS latest
WHERE latest.due_at IS NOT NULL AND latest.started_at IS NOT NULL
  AND latest.attempt = 1 AND latest.round = 1
