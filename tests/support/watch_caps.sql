-- Installed by a test: no commit may leave more runs active than a cap allows. Deferred, so
-- that it looks at what is really committed, at every commit, and not at samples.
CREATE FUNCTION watch_caps() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    too_many record;
BEGIN
    -- Serialises the commits that raise the count, so that each sees those before it.
    PERFORM pg_advisory_xact_lock(424242);
    IF (SELECT count(*) FROM dispatcher.metadata WHERE state IN ('pending', 'in_progress')) > {cap}
    THEN
        RAISE EXCEPTION 'the global cap of {cap} is exceeded';
    END IF;
    SELECT metadata.group_name INTO too_many
    FROM dispatcher.metadata
    JOIN dispatcher.group_limit ON group_limit.name = metadata.group_name
    WHERE metadata.state IN ('pending', 'in_progress')
    GROUP BY metadata.group_name, group_limit.max_active
    HAVING count(*) > group_limit.max_active;
    IF FOUND THEN
        RAISE EXCEPTION 'the cap of group % is exceeded', too_many.group_name;
    END IF;
    RETURN NULL;
END
$$;

CREATE CONSTRAINT TRIGGER watch_caps AFTER INSERT OR UPDATE ON dispatcher.metadata
    DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION watch_caps();
