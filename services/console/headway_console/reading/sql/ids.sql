-- name: in_range
-- Ids in a range, in order, with their kind. Work is looked up where it is enqueued, where it is
-- unsettled and in the dispatcher, and a run without a row on its work. $1 kinds, $2 first id, $3
-- last id, $4 limit.
SELECT DISTINCT found.kind, found.id
FROM (
    (SELECT 'work' AS kind, work_queue.id FROM dispatcher.work_queue
     WHERE 'work' = ANY($1::text[]) AND work_queue.id BETWEEN $2 AND $3
     ORDER BY work_queue.id LIMIT $4)
    UNION ALL
    (SELECT 'work', work.id FROM scheduler.work
     WHERE 'work' = ANY($1::text[]) AND work.id BETWEEN $2 AND $3
     ORDER BY work.id LIMIT $4)
    UNION ALL
    (SELECT 'work', enqueued.work_id FROM scheduler.enqueued
     WHERE 'work' = ANY($1::text[]) AND enqueued.work_id BETWEEN $2 AND $3
     ORDER BY enqueued.work_id LIMIT $4)
    UNION ALL
    (SELECT 'run', metadata.run_id FROM dispatcher.metadata
     WHERE 'run' = ANY($1::text[]) AND metadata.run_id BETWEEN $2 AND $3
     ORDER BY metadata.run_id LIMIT $4)
    UNION ALL
    (SELECT 'run', work_queue.run_id FROM dispatcher.work_queue
     WHERE 'run' = ANY($1::text[]) AND work_queue.state = 'dispatched'
       AND work_queue.run_id BETWEEN $2 AND $3
     ORDER BY work_queue.run_id LIMIT $4)
    UNION ALL
    (SELECT 'dead letter', dead_letter.id FROM dispatcher.dead_letter
     WHERE 'dead letter' = ANY($1::text[]) AND dead_letter.id BETWEEN $2 AND $3
     ORDER BY dead_letter.id LIMIT $4)
    UNION ALL
    (SELECT 'canary', canary.id FROM dispatcher.canary
     WHERE 'canary' = ANY($1::text[]) AND canary.id BETWEEN $2 AND $3
     ORDER BY canary.id LIMIT $4)
    UNION ALL
    (SELECT 'pause', pause.id FROM scheduler.pause
     WHERE 'pause' = ANY($1::text[]) AND pause.id BETWEEN $2 AND $3
     ORDER BY pause.id LIMIT $4)
) AS found
ORDER BY found.id
LIMIT $4
