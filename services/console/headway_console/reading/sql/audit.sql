-- name: page
-- What was done to what, by whom, the newest first: of both services. Actor and kind are looked for
-- among so many of each. $1 target (null for any), $2 recorded since, $3 recorded before, $4 after
-- this time, $5 and $6 and after these numbers of the scheduler and of the dispatcher at that time,
-- $7 source (a pattern), $8 types (patterns), $9 whether people's doing only, $10 among how many,
-- $11 how many.
SELECT * FROM (
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
) AS looked_at
WHERE ($7::text IS NULL OR looked_at.source LIKE $7)
  AND ($8::text[] IS NULL OR looked_at.type LIKE ANY($8))
ORDER BY looked_at.recorded_at DESC, looked_at.service DESC, looked_at.id DESC
LIMIT $11

-- name: reached
-- How far the same search has looked, in whichever of the two services it came less far; none if it
-- has looked at all. $1 target, $2 recorded since, $3 recorded before, $4 after this time,
-- $5 and $6 and these numbers, $7 whether people's doing only, $8 among how many.
SELECT * FROM (
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
) AS last_looked_at
ORDER BY recorded_at DESC, service DESC, id DESC
LIMIT 1
