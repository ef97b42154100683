-- name: failing
-- Jobs with failed runs or open dead letters, the highest share of failed runs first. $1 since when
-- runs ended, $2 limit.
SELECT found.*, latest.run_id AS last_run, latest.finished_at AS last_at,
       latest.failure ->> 'kind' AS failure_kind,
       left(latest.failure ->> 'message', 500) AS failure_message
FROM (
    SELECT job, coalesce(ended.runs, 0) AS runs, coalesce(ended.failed, 0) AS failed,
           ended.failed::double precision / nullif(ended.runs, 0) AS rate,
           coalesce(open.letters, 0) AS dead_letters
    FROM (
        SELECT job, count(*) AS runs, count(*) FILTER (WHERE state = 'failed') AS failed
        FROM dispatcher.metadata
        WHERE finished_at IS NOT NULL AND finished_at >= $1 AND state IN ('completed', 'failed')
        GROUP BY job
    ) AS ended
    FULL JOIN (
        SELECT job, count(*) AS letters
        FROM dispatcher.dead_letter
        WHERE state = 'awaiting'
        GROUP BY job
    ) AS open USING (job)
    WHERE ended.failed > 0 OR open.letters > 0
    ORDER BY rate DESC NULLS LAST, failed DESC, dead_letters DESC, job
    LIMIT $2
) AS found
LEFT JOIN LATERAL (
    SELECT run_id, finished_at, failure
    FROM dispatcher.metadata
    WHERE metadata.job = found.job AND metadata.state = 'failed'
    ORDER BY created_at DESC, run_id DESC
    LIMIT 1
) AS latest ON true
ORDER BY rate DESC NULLS LAST, failed DESC, dead_letters DESC, job
