-- name: page
-- Changes in the history of both services, the newest first. Actor and type are searched among a
-- bounded number of entries of each service. $1 target (null for any), $2 recorded since, $3
-- recorded before, $4 time of the cursor, $5 and $6 numbers of the scheduler and of the dispatcher
-- to continue below at that time, $7 source (a pattern), $8 types (patterns), $9 true for changes
-- by people only, $10 number of entries to search, $11 limit.
SELECT *, service || id AS entry FROM (
    (SELECT 's' AS service, id, event_id, type, subject, source, occurred_at, recorded_at, data
     FROM scheduler.history
     WHERE ($1::text IS NULL OR subject = $1)
       AND ($2::timestamptz IS NULL OR recorded_at >= $2)
       AND ($3::timestamptz IS NULL OR recorded_at < $3)
       AND ($4::timestamptz IS NULL OR (recorded_at, id) < ($4, $5::bigint))
       AND (NOT $9::boolean OR source LIKE 'operator/%')
     ORDER BY recorded_at DESC, id DESC
     LIMIT $10)
    UNION ALL
    (SELECT 'd', id, event_id, type, subject, source, occurred_at, recorded_at, data
     FROM dispatcher.history
     WHERE source LIKE 'operator/%'
       AND ($1::text IS NULL OR subject = $1)
       AND ($2::timestamptz IS NULL OR recorded_at >= $2)
       AND ($3::timestamptz IS NULL OR recorded_at < $3)
       AND ($4::timestamptz IS NULL OR (recorded_at, id) < ($4, $6::bigint))
     ORDER BY recorded_at DESC, id DESC
     LIMIT $10)
) AS searched
WHERE ($7::text IS NULL OR searched.source LIKE $7)
  AND ($8::text[] IS NULL OR searched.type LIKE ANY($8))
ORDER BY searched.recorded_at DESC, searched.service DESC, searched.id DESC
LIMIT $11

-- name: reached
-- The last entry that the same search has read, of the service where it stopped earlier; no row if
-- it has read everything. $1 target, $2 recorded since, $3 recorded before, $4 time of the cursor,
-- $5 and $6 numbers to continue below, $7 true for changes by people only, $8 number of entries to
-- search.
SELECT *, service || id AS entry FROM (
    (SELECT 's' AS service, id, recorded_at FROM scheduler.history
     WHERE ($1::text IS NULL OR subject = $1)
       AND ($2::timestamptz IS NULL OR recorded_at >= $2)
       AND ($3::timestamptz IS NULL OR recorded_at < $3)
       AND ($4::timestamptz IS NULL OR (recorded_at, id) < ($4, $5::bigint))
       AND (NOT $7::boolean OR source LIKE 'operator/%')
     ORDER BY recorded_at DESC, id DESC
     OFFSET $8 - 1 LIMIT 1)
    UNION ALL
    (SELECT 'd', id, recorded_at FROM dispatcher.history
     WHERE source LIKE 'operator/%'
       AND ($1::text IS NULL OR subject = $1)
       AND ($2::timestamptz IS NULL OR recorded_at >= $2)
       AND ($3::timestamptz IS NULL OR recorded_at < $3)
       AND ($4::timestamptz IS NULL OR (recorded_at, id) < ($4, $6::bigint))
     ORDER BY recorded_at DESC, id DESC
     OFFSET $8 - 1 LIMIT 1)
) AS last_read
ORDER BY recorded_at DESC, service DESC, id DESC
LIMIT 1
