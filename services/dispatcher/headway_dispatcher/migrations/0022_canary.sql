-- Retries of all dead letters of one failure, in steps. The row holds the whole state, so any
-- dispatcher continues it after a restart.
CREATE TABLE dispatcher.canary (
    id          uuid PRIMARY KEY,
    -- With a code version (`3f9a2c1b7d20@1.4.2`), or without one for any version.
    fingerprint text NOT NULL,
    actor       text NOT NULL,
    began_at    timestamptz NOT NULL,
    ended_at    timestamptz,
    -- How many letters of the failure were open when it began.
    awaiting    bigint NOT NULL,
    state       text NOT NULL DEFAULT 'running' CHECK (state IN ('running', 'stopped', 'finished')),
    reason      text NOT NULL,
    step        integer NOT NULL DEFAULT 0,
    -- For each step its size and the number of letters by fate.
    steps       jsonb NOT NULL,
    -- Letters of the current step whose work has not settled.
    under_way   uuid[] NOT NULL DEFAULT '{}',
    -- Whether letters may be left, and the last one that was retried.
    more        boolean NOT NULL DEFAULT true,
    after_at    timestamptz,
    after_id    uuid,
    CHECK ((state = 'running') = (ended_at IS NULL))
);

CREATE UNIQUE INDEX canary_running ON dispatcher.canary (fingerprint) WHERE state = 'running';
CREATE INDEX canary_fingerprint ON dispatcher.canary (fingerprint, began_at);

CREATE OR REPLACE FUNCTION dispatcher.grant_reading(reader regrole) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    EXECUTE format('GRANT USAGE ON SCHEMA dispatcher TO %s', reader);
    EXECUTE format(
        'GRANT SELECT ON dispatcher.group_limit, dispatcher.job_limit, dispatcher.manifest_switch,'
        ' dispatcher.rate_use, dispatcher.work_queue, dispatcher.closed_lane,'
        ' dispatcher.ready_lane, dispatcher.waiting, dispatcher.metadata, dispatcher.run_log,'
        ' dispatcher.dead_letter, dispatcher.canary, dispatcher.worker, dispatcher.witness,'
        ' dispatcher.history, dispatcher.tombstone, dispatcher.migration TO %s', reader);
    EXECUTE format(
        'GRANT SELECT (id, job, created_at, claimed_by, nonce, last_heard_at, sequence, ended_at,'
        ' listed_at) ON dispatcher.lease TO %s', reader);
    EXECUTE format('GRANT SELECT (id, subject, created_at) ON dispatcher.outbox TO %s', reader);
    EXECUTE format(
        'GRANT SELECT (id, subject, reason, rejected_at) ON dispatcher.rejected TO %s', reader);
END
$$;

DO $$
BEGIN
    IF to_regrole('headway_reader') IS NOT NULL THEN
        PERFORM dispatcher.grant_reading('headway_reader');
        REVOKE SELECT ON dispatcher.answered FROM headway_reader;
    END IF;
END
$$;
