-- name: undecided
-- Work of the dispatcher that the scheduler has not decided. Work without a manifest is compared with
-- the enqueued rows. These are deleted when their work settles, unless it has a key, so only
-- unsettled work without a dead letter is compared. $1 age limit of settled work in days, less than
-- decisions are kept. $2 limit.
SELECT work_queue.id
FROM dispatcher.work_queue
WHERE (settled_at IS NULL OR settled_at >= clock_timestamp() - $1 * interval '1 day')
  AND NOT EXISTS (SELECT FROM scheduler.work WHERE work.id = work_queue.id)
  AND CASE WHEN manifest_id IS NOT NULL
           THEN NOT EXISTS (SELECT FROM scheduler.occurrence
                            WHERE occurrence.work_id = work_queue.id
                              AND occurrence.manifest_id = work_queue.manifest_id)
           ELSE settled_at IS NULL
                AND NOT EXISTS (SELECT FROM scheduler.enqueued
                                WHERE enqueued.work_id = work_queue.id)
                AND NOT EXISTS (SELECT FROM dispatcher.dead_letter
                                WHERE dead_letter.work_id = work_queue.id) END
ORDER BY work_queue.id
LIMIT $2
