-- Indexes for what people look at, and a role that can only read.

-- Runs of a manifest by time. It takes the place of one by lease, so a run costs no more to write.
DROP INDEX dispatcher.metadata_manifest;
CREATE INDEX metadata_manifest ON dispatcher.metadata (manifest_id, created_at, run_id)
    WHERE manifest_id IS NOT NULL;
-- Of runs that have ended only: one entry for each run, written when it ends, and none when it is
-- ordered or begins. What is live is found by metadata_active, and is little.
CREATE INDEX metadata_group ON dispatcher.metadata (group_name, created_at, run_id)
    WHERE finished_at IS NOT NULL;
-- How much ended when and how, counted without looking at the runs themselves.
CREATE INDEX metadata_finished ON dispatcher.metadata (finished_at, state)
    WHERE finished_at IS NOT NULL;
-- What went wrong: nothing for a run that completes.
CREATE INDEX metadata_unhappy ON dispatcher.metadata (state, created_at, run_id)
    WHERE state IN ('failed', 'cancelled');
CREATE INDEX metadata_unhappy_job ON dispatcher.metadata (job, state, created_at, run_id)
    WHERE state IN ('failed', 'cancelled');

-- What people did, for the audit: nothing for what services and workers tell.
CREATE INDEX history_operator ON dispatcher.history (recorded_at, id)
    WHERE source LIKE 'operator/%';

-- Let a role read what people may see. Tokens of leases, and messages that carry them, are not
-- among it.
CREATE FUNCTION dispatcher.grant_reading(reader regrole) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    EXECUTE format('GRANT USAGE ON SCHEMA dispatcher TO %s', reader);
    EXECUTE format(
        'GRANT SELECT ON dispatcher.group_limit, dispatcher.job_limit, dispatcher.manifest_switch,'
        ' dispatcher.rate_use, dispatcher.work_queue, dispatcher.closed_lane,'
        ' dispatcher.ready_lane, dispatcher.waiting, dispatcher.metadata, dispatcher.run_log,'
        ' dispatcher.dead_letter, dispatcher.worker, dispatcher.witness, dispatcher.history,'
        ' dispatcher.tombstone, dispatcher.migration TO %s', reader);
    EXECUTE format(
        'GRANT SELECT (id, job, created_at, claimed_by, nonce, last_heard_at, sequence, ended_at,'
        ' listed_at) ON dispatcher.lease TO %s', reader);
    EXECUTE format('GRANT SELECT (id, subject, created_at) ON dispatcher.outbox TO %s', reader);
    EXECUTE format(
        'GRANT SELECT (id, subject, reason, rejected_at) ON dispatcher.rejected TO %s', reader);
END
$$;

-- Roles belong to the whole server, so another database may have made it already; and whoever
-- migrates may not be allowed to.
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
        PERFORM dispatcher.grant_reading('headway_reader');
    END IF;
END
$$;

-- Whoever made the role may take it on, so that a console with the same user needs nothing more.
DO $$
BEGIN
    IF to_regrole('headway_reader') IS NOT NULL
       AND NOT pg_has_role(current_user, 'headway_reader', 'MEMBER') THEN
        GRANT headway_reader TO CURRENT_USER;
    END IF;
EXCEPTION
    WHEN insufficient_privilege THEN
        RAISE WARNING '% may not take on the role headway_reader', current_user
            USING HINT = 'An administrator runs: GRANT headway_reader TO <the console''s user>;';
END
$$;
