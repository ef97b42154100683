-- name: days
-- How many fires of a manifest on each day came to what; of stretches see below. $1 manifest,
-- $2 since, $3 until, $4 zone of the days, $5 how many of the latest are counted.
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

-- name: stretches
-- Stretches of time in which a manifest was skipped for one reason, that touch a span; of those
-- that began before it so many are looked at. $1 manifest, $2 since, $3 until, $4 how many.
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
