-- Installed by a test: no commit may raise the number of active leases above a cap. Deferred, so
-- that it looks at what is really committed, at every commit, and not at samples.
CREATE FUNCTION watch_caps() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    too_many record;
BEGIN
    -- Serialises the commits that raise the count, so that each sees those before it.
    PERFORM pg_advisory_xact_lock(424242);
    SELECT count(DISTINCT lease_id) AS leases INTO too_many
    FROM dispatcher.work_queue
    LEFT JOIN dispatcher.job_limit ON job_limit.name = work_queue.job
    WHERE work_queue.state = 'dispatched' AND job_limit.counts_globally IS NOT FALSE
    HAVING count(DISTINCT lease_id) > {cap};
    IF FOUND THEN
        RAISE EXCEPTION 'the global cap of {cap} is exceeded';
    END IF;
    SELECT work_queue.group_name INTO too_many
    FROM dispatcher.work_queue
    JOIN dispatcher.group_limit ON group_limit.name = work_queue.group_name
    WHERE work_queue.state = 'dispatched'
    GROUP BY work_queue.group_name, group_limit.max_active
    HAVING count(DISTINCT lease_id) > group_limit.max_active;
    IF FOUND THEN
        RAISE EXCEPTION 'the cap of group % is exceeded', too_many.group_name;
    END IF;
    SELECT work_queue.job INTO too_many
    FROM dispatcher.work_queue
    JOIN dispatcher.job_limit ON job_limit.name = work_queue.job
    WHERE work_queue.state = 'dispatched'
    GROUP BY work_queue.job, job_limit.max_active
    HAVING count(DISTINCT lease_id) > job_limit.max_active;
    IF FOUND THEN
        RAISE EXCEPTION 'the cap of job % is exceeded', too_many.job;
    END IF;
    SELECT work_queue.concurrency_key INTO too_many
    FROM dispatcher.work_queue
    WHERE work_queue.state = 'dispatched' AND work_queue.concurrency_key IS NOT NULL
    GROUP BY work_queue.concurrency_key
    HAVING count(DISTINCT lease_id) > max(work_queue.concurrency_limit);
    IF FOUND THEN
        RAISE EXCEPTION 'the limit of key % is exceeded', too_many.concurrency_key;
    END IF;
    RETURN NULL;
END
$$;

CREATE CONSTRAINT TRIGGER watch_new_work AFTER INSERT ON dispatcher.work_queue
    DEFERRABLE INITIALLY DEFERRED FOR EACH ROW WHEN (NEW.state = 'dispatched')
    EXECUTE FUNCTION watch_caps();
CREATE CONSTRAINT TRIGGER watch_dispatches AFTER UPDATE ON dispatcher.work_queue
    DEFERRABLE INITIALLY DEFERRED FOR EACH ROW
    WHEN (OLD.state <> 'dispatched' AND NEW.state = 'dispatched')
    EXECUTE FUNCTION watch_caps();
