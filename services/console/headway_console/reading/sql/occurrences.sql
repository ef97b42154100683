-- name: between
-- What was decided about the times of a manifest that lie in a span, the oldest first; of a stretch
-- that began before it, too. How work ended stands in the ledger; its latest run says how it goes.
-- $1 manifest, $2 since, $3 until, $4 how many.
SELECT entry.cause, entry.first_due_at, entry.last_due_at, entry.decision, entry.reason,
       entry.work_id, entry.outcome, entry.decided_at, entry.actor, latest.run_id AS run,
       latest.state AS run_state, latest.started_at, latest.finished_at
FROM (
    SELECT * FROM (
        (SELECT * FROM scheduler.occurrence
         WHERE manifest_id = $1 AND first_due_at >= $2 AND first_due_at < $3
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
    SELECT metadata.run_id, metadata.state, metadata.started_at, metadata.finished_at
    FROM dispatcher.metadata
    WHERE metadata.work_id = entry.work_id
    ORDER BY metadata.created_at DESC, metadata.run_id DESC
    LIMIT 1
) AS latest ON true
ORDER BY entry.first_due_at, entry.decided_at

-- name: last
-- The latest decisions about a manifest, the latest first. $1 manifest, $2 and $3 after this time
-- and cause (null for the first page), $4 how many.
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
    SELECT metadata.run_id, metadata.state, metadata.started_at, metadata.finished_at
    FROM dispatcher.metadata
    WHERE metadata.work_id = entry.work_id
    ORDER BY metadata.created_at DESC, metadata.run_id DESC
    LIMIT 1
) AS latest ON true
ORDER BY entry.first_due_at DESC, entry.cause DESC
