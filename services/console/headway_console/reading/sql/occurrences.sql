-- name: between
-- Decisions about the due times of a manifest in a span, the oldest first, with a stretch that
-- began before it. The ledger has the outcome of work; its latest run has the progress. $1
-- manifest, $2 since, $3 until, $4 limit, $5 true for decisions without a success only.
SELECT entry.cause, entry.first_due_at, entry.last_due_at, entry.decision, entry.reason,
       entry.work_id, entry.outcome, entry.decided_at, entry.actor, latest.run_id AS run,
       latest.state AS run_state, latest.started_at, latest.finished_at
FROM (
    SELECT * FROM (
        (SELECT * FROM scheduler.occurrence
         WHERE manifest_id = $1 AND first_due_at >= $2 AND first_due_at < $3
           AND (NOT $5 OR decision <> 'queued' OR outcome <> 'completed')
         ORDER BY first_due_at
         LIMIT $4)
        UNION ALL
        (SELECT * FROM (
            SELECT * FROM scheduler.occurrence
            WHERE manifest_id = $1 AND first_due_at < $2
            ORDER BY first_due_at DESC
            LIMIT 10) AS before
         WHERE before.last_due_at >= $2)
    ) AS found
    ORDER BY first_due_at, decided_at
    LIMIT $4
) AS entry
LEFT JOIN LATERAL (
    SELECT run.run_id, run.state, run.started_at, run.finished_at
    FROM dispatcher.run
    WHERE run.work_id = entry.work_id
    ORDER BY run.created_at DESC, run.run_id DESC
    LIMIT 1
) AS latest ON true
ORDER BY entry.first_due_at, entry.decided_at

-- name: last
-- The decisions about a manifest, the latest first. $1 manifest, $2 and $3 time and cause of the
-- cursor (null for the first page), $4 limit.
SELECT entry.cause, entry.first_due_at, entry.last_due_at, entry.decision, entry.reason,
       entry.work_id, entry.outcome, entry.decided_at, entry.actor, latest.run_id AS run,
       latest.state AS run_state, latest.started_at, latest.finished_at
FROM (
    SELECT * FROM scheduler.occurrence
    WHERE manifest_id = $1
      AND ($2::timestamptz IS NULL OR first_due_at <= $2)
      AND ($2::timestamptz IS NULL OR (first_due_at, cause) < ($2, $3::text))
    ORDER BY first_due_at DESC, cause DESC
    LIMIT $4
) AS entry
LEFT JOIN LATERAL (
    SELECT run.run_id, run.state, run.started_at, run.finished_at
    FROM dispatcher.run
    WHERE run.work_id = entry.work_id
    ORDER BY run.created_at DESC, run.run_id DESC
    LIMIT 1
) AS latest ON true
ORDER BY entry.first_due_at DESC, entry.cause DESC

-- name: days
-- The number of single fires of a manifest by day and result. $1 manifest, $2 since, $3 until, $4
-- time zone of the days, $5 number of the latest fires to count.
SELECT (latest.first_due_at AT TIME ZONE $4)::date AS day,
       CASE WHEN latest.decision <> 'queued' THEN latest.decision
            ELSE coalesce(latest.outcome, 'under_way') END AS state,
       split_part(coalesce(latest.reason, ''), ': ', 1) AS reason, count(*) AS fires
FROM (
    SELECT first_due_at, decision, outcome, reason FROM scheduler.occurrence
    WHERE manifest_id = $1 AND first_due_at >= $2 AND first_due_at < $3
      AND first_due_at = last_due_at
    ORDER BY first_due_at DESC
    LIMIT $5
) AS latest
GROUP BY 1, 2, 3
ORDER BY 1, 2, 3

-- name: buckets
-- The number of single fires of a manifest by result and by a short time. $1 manifest, $2 since,
-- where the first bucket begins, $3 until, $4 width of a bucket, $5 number of the latest fires to
-- count.
SELECT date_bin($4, latest.first_due_at, $2) AS at,
       CASE WHEN latest.decision <> 'queued' THEN latest.decision
            ELSE coalesce(latest.outcome, 'under_way') END AS state,
       count(*) AS fires
FROM (
    SELECT first_due_at, decision, outcome FROM scheduler.occurrence
    WHERE manifest_id = $1 AND first_due_at >= $2 AND first_due_at < $3
      AND first_due_at = last_due_at
    ORDER BY first_due_at DESC
    LIMIT $5
) AS latest
GROUP BY 1, 2

-- name: stretches
-- Stretches of due times that were skipped for one reason and overlap a span. $1 manifest, $2
-- since, $3 until, $4 limit of stretches in the span, and of those before it that are searched.
SELECT found.first_due_at, found.last_due_at, found.decision AS state,
       split_part(coalesce(found.reason, ''), ': ', 1) AS reason
FROM (
    (SELECT * FROM scheduler.occurrence
     WHERE manifest_id = $1 AND first_due_at >= $2 AND first_due_at < $3
       AND first_due_at <> last_due_at
     ORDER BY first_due_at DESC
     LIMIT $4)
    UNION ALL
    (SELECT * FROM (
        SELECT * FROM scheduler.occurrence
        WHERE manifest_id = $1 AND first_due_at < $2
        ORDER BY first_due_at DESC
        LIMIT $4) AS before
     WHERE before.last_due_at >= $2)
) AS found
ORDER BY found.first_due_at

-- name: durations
-- The latest runs of a manifest that ended, the newest first. $1 manifest, $2 limit.
SELECT run_id, state, attempt, created_at, started_at,
       date_part('epoch', finished_at - started_at) AS took_seconds
FROM dispatcher.metadata
WHERE finished_at IS NOT NULL AND manifest_id = $1
ORDER BY created_at DESC, run_id DESC
LIMIT $2
