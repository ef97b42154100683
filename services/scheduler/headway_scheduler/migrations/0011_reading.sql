-- What people search manifests by, when the tick last fired, and a role that can only read.

ALTER TABLE scheduler.manifest
    -- Names and values by which people find manifests, and pause them together.
    ADD COLUMN labels jsonb NOT NULL DEFAULT '{}' CHECK (jsonb_typeof(labels) = 'object');

ALTER TABLE scheduler.leader ADD COLUMN ticked_at timestamptz;

-- The audit is read by time, so a coarse index will not do any longer.
DROP INDEX scheduler.history_recorded;
CREATE INDEX history_recorded ON scheduler.history (recorded_at, id);

-- Let a role read what people may see. Messages are not among it.
CREATE FUNCTION scheduler.grant_reading(reader regrole) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    EXECUTE format('GRANT USAGE ON SCHEMA scheduler TO %s', reader);
    EXECUTE format(
        'GRANT SELECT ON scheduler.manifest_group, scheduler.job, scheduler.application,'
        ' scheduler.manifest, scheduler.timing, scheduler.occurrence, scheduler.work,'
        ' scheduler.leader, scheduler.history, scheduler.enqueued, scheduler.stream_mark,'
        ' scheduler.migration TO %s', reader);
    EXECUTE format('GRANT SELECT (id, subject, created_at) ON scheduler.outbox TO %s', reader);
    EXECUTE format(
        'GRANT SELECT (id, subject, reason, rejected_at) ON scheduler.rejected TO %s', reader);
END
$$;

-- As the dispatcher's migration has it, which may come before this one or after.
DO $$
BEGIN
    IF to_regrole('headway_reader') IS NULL THEN
        CREATE ROLE headway_reader NOLOGIN;
    END IF;
EXCEPTION
    WHEN insufficient_privilege THEN
        RAISE WARNING 'the role headway_reader was not made: % may not make roles', current_user
            USING HINT = 'An administrator runs: CREATE ROLE headway_reader NOLOGIN; '
                         'GRANT headway_reader TO <the console''s user>; and in this database '
                         'SELECT dispatcher.grant_reading(''headway_reader''), '
                         'scheduler.grant_reading(''headway_reader'');';
    WHEN duplicate_object OR unique_violation THEN
        NULL; -- another database of this server was faster
END
$$;

DO $$
BEGIN
    IF to_regrole('headway_reader') IS NOT NULL THEN
        PERFORM scheduler.grant_reading('headway_reader');
    END IF;
END
$$;
