-- A key is handed out lane by lane, so that work which cannot run keeps it from nobody.

-- Who waits for a key, lane by lane. The only index of them: with one by rank beside it, a plan made
-- while little waits may go by that, and read through all who wait.
CREATE INDEX work_queue_key_lanes ON dispatcher.work_queue (concurrency_key, group_name, job, rank)
    WHERE state IN ('queued', 'waiting') AND held_by = 'key';
DROP INDEX dispatcher.work_queue_key_held;
-- Who is ready with a key, lane by lane.
DROP INDEX dispatcher.work_queue_key_ready;
CREATE INDEX work_queue_key_ready ON dispatcher.work_queue (concurrency_key, group_name, job, rank)
    WHERE state IN ('queued', 'waiting') AND held_by IS NULL AND concurrency_key IS NOT NULL;

-- The first who waits for a key in each lane: a step of the index finds the next one.
CREATE FUNCTION dispatcher.first_for_key(wanted text)
    RETURNS TABLE (group_name text, job text, rank timestamptz, concurrency_limit integer)
    LANGUAGE sql STABLE AS $$
    WITH RECURSIVE head AS (
        (SELECT work_queue.group_name, work_queue.job, work_queue.rank,
                work_queue.concurrency_limit
         FROM dispatcher.work_queue
         WHERE work_queue.concurrency_key = wanted
           AND work_queue.state IN ('queued', 'waiting') AND work_queue.held_by = 'key'
         ORDER BY work_queue.group_name, work_queue.job, work_queue.rank
         LIMIT 1)
        UNION ALL
        SELECT next.*
        FROM head
        CROSS JOIN LATERAL (
            SELECT work_queue.group_name, work_queue.job, work_queue.rank,
                   work_queue.concurrency_limit
            FROM dispatcher.work_queue
            WHERE work_queue.concurrency_key = wanted
              AND work_queue.state IN ('queued', 'waiting') AND work_queue.held_by = 'key'
              AND (work_queue.group_name, work_queue.job) > (head.group_name, head.job)
            ORDER BY work_queue.group_name, work_queue.job, work_queue.rank
            LIMIT 1
        ) AS next
    )
    SELECT head.group_name, head.job, head.rank, head.concurrency_limit FROM head
$$;

-- Work that leaves those who are ready without having run makes way for the next of its lane, and
-- work that comes before others now may be that next one. Whatever statement does it, the gate
-- looks at the key.
CREATE FUNCTION dispatcher.key_turns() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO dispatcher.key_changed (key) VALUES (NEW.concurrency_key);
    RETURN NULL;
END
$$;

CREATE TRIGGER key_turns AFTER UPDATE OF held_by, rank ON dispatcher.work_queue
    FOR EACH ROW
    WHEN (NEW.concurrency_key IS NOT NULL AND NEW.state IN ('queued', 'waiting')
          AND ((OLD.held_by IS NULL AND NEW.held_by IN ('not_before', 'manifest_disabled'))
               OR (NEW.held_by = 'key' AND NEW.rank <> OLD.rank)))
    EXECUTE FUNCTION dispatcher.key_turns();

-- Those who wait under the rule as it was are looked at once.
INSERT INTO dispatcher.key_changed (key)
SELECT DISTINCT concurrency_key FROM dispatcher.work_queue
WHERE state IN ('queued', 'waiting') AND held_by = 'key';
