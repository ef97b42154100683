-- Installed by a test: no commit may raise the number of active leases above a cap. Deferred, so
-- that it looks at what is really committed, at every commit, and not at samples.
CREATE FUNCTION watch_caps() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    too_many record;
BEGIN
    -- Serialises the commits that raise the count, so that each sees those before it.
    PERFORM pg_advisory_xact_lock(424242);
    SELECT count(DISTINCT lease_id) AS leases INTO too_many
    FROM dispatcher.metadata
    LEFT JOIN dispatcher.job_limit ON job_limit.name = metadata.job
    WHERE metadata.state IN ('pending', 'in_progress') AND job_limit.counts_globally IS NOT FALSE
    HAVING count(DISTINCT lease_id) > {cap};
    IF FOUND THEN
        RAISE EXCEPTION 'the global cap of {cap} is exceeded';
    END IF;
    SELECT metadata.group_name INTO too_many
    FROM dispatcher.metadata
    JOIN dispatcher.group_limit ON group_limit.name = metadata.group_name
    WHERE metadata.state IN ('pending', 'in_progress')
    GROUP BY metadata.group_name, group_limit.max_active
    HAVING count(DISTINCT lease_id) > group_limit.max_active;
    IF FOUND THEN
        RAISE EXCEPTION 'the cap of group % is exceeded', too_many.group_name;
    END IF;
    SELECT metadata.job INTO too_many
    FROM dispatcher.metadata
    JOIN dispatcher.job_limit ON job_limit.name = metadata.job
    WHERE metadata.state IN ('pending', 'in_progress')
    GROUP BY metadata.job, job_limit.max_active
    HAVING count(DISTINCT lease_id) > job_limit.max_active;
    IF FOUND THEN
        RAISE EXCEPTION 'the cap of job % is exceeded', too_many.job;
    END IF;
    SELECT work_queue.concurrency_key INTO too_many
    FROM dispatcher.metadata
    JOIN dispatcher.work_queue ON work_queue.id = metadata.work_id
    WHERE metadata.state IN ('pending', 'in_progress') AND work_queue.concurrency_key IS NOT NULL
    GROUP BY work_queue.concurrency_key
    HAVING count(DISTINCT lease_id) > max(work_queue.concurrency_limit);
    IF FOUND THEN
        RAISE EXCEPTION 'the limit of key % is exceeded', too_many.concurrency_key;
    END IF;
    RETURN NULL;
END
$$;

CREATE CONSTRAINT TRIGGER watch_new_runs AFTER INSERT ON dispatcher.metadata
    DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION watch_caps();
CREATE CONSTRAINT TRIGGER watch_runs_that_come_back AFTER UPDATE ON dispatcher.metadata
    DEFERRABLE INITIALLY DEFERRED FOR EACH ROW
    WHEN (OLD.state NOT IN ('pending', 'in_progress') AND NEW.state IN ('pending', 'in_progress'))
    EXECUTE FUNCTION watch_caps();
