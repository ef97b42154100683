-- What was answered to requests that came with a key, so that sending one again does nothing again.
CREATE TABLE dispatcher.answered (
    kind        text NOT NULL,
    key         text NOT NULL,
    -- Tells the same parameters from others.
    print       bytea NOT NULL,
    answer      bytea NOT NULL,
    answered_at timestamptz NOT NULL,
    PRIMARY KEY (kind, key)
);

CREATE INDEX answered_at ON dispatcher.answered (answered_at);

-- Answers tell how far a canary got, so people may see them.
CREATE OR REPLACE FUNCTION dispatcher.grant_reading(reader regrole) RETURNS void LANGUAGE plpgsql AS $$
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
    EXECUTE format(
        'GRANT SELECT (kind, key, answer, answered_at) ON dispatcher.answered TO %s', reader);
END
$$;

DO $$
BEGIN
    IF to_regrole('headway_reader') IS NOT NULL THEN
        PERFORM dispatcher.grant_reading('headway_reader');
    END IF;
END
$$;
