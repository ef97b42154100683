-- A group without a row has no limits, so the row of a deleted group can go at once.

ALTER TABLE dispatcher.work_queue DROP CONSTRAINT work_queue_group_name_fkey;

-- Groups that the scheduler deleted, by the version of the deletion: an older message that comes
-- later does not bring one back.
CREATE TABLE dispatcher.deleted_group (
    name       text PRIMARY KEY,
    version    bigint NOT NULL,
    deleted_at timestamptz NOT NULL DEFAULT clock_timestamp()
);

CREATE OR REPLACE VIEW dispatcher.waiting AS
SELECT work_queue.id, work_queue.group_name, work_queue.job, work_queue.manifest,
       coalesce(CASE WHEN NOT group_limit.enabled THEN 'group_disabled' END,
                CASE WHEN work_queue.held_by = 'not_before' AND work_queue.state = 'waiting'
                     THEN work_queue.wait_reason END,
                work_queue.held_by, closed_lane.reason, 'awaiting_gate') AS reason
FROM dispatcher.work_queue
LEFT JOIN dispatcher.group_limit ON group_limit.name = work_queue.group_name
LEFT JOIN dispatcher.closed_lane
    ON closed_lane.group_name = work_queue.group_name AND closed_lane.job = work_queue.job
WHERE work_queue.state IN ('queued', 'waiting');

-- Rows that no scheduler ever announced, and rows of groups that were deleted before deletions were
-- announced. Whoever may not read the scheduler's table keeps the latter.
DELETE FROM dispatcher.group_limit WHERE version = 0;
DO $$
BEGIN
    IF to_regclass('scheduler.manifest_group') IS NOT NULL
       AND has_schema_privilege('scheduler', 'USAGE')
       AND has_table_privilege('scheduler.manifest_group', 'SELECT') THEN
        DELETE FROM dispatcher.group_limit
        WHERE NOT EXISTS (SELECT FROM scheduler.manifest_group
                          WHERE manifest_group.name = group_limit.name);
    END IF;
END
$$;
