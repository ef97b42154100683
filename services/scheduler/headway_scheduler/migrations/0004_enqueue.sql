-- Work that applications enqueue in transactions of their own.

-- What work of a job goes by if no manifest says otherwise: group, priority, retries, timeouts.
ALTER TABLE scheduler.job ADD COLUMN terms jsonb NOT NULL DEFAULT '{}';

-- Written by headway.enqueue() alone until the scheduler takes it up, and kept until its work is
-- settled. Then what has no key is deleted; what has one stays, without its input, so that the
-- same key finds its work again.
CREATE TABLE scheduler.enqueued (
    work_id     uuid PRIMARY KEY,
    cause       text NOT NULL,
    job         text NOT NULL,
    key         text,
    input       jsonb,
    group_name  text,
    priority    smallint CHECK (priority BETWEEN 0 AND 31),
    delay       interval,
    not_before  timestamptz,
    start_by    timestamptz,
    traceparent text,
    -- Tells the same parameters from others, long after the input is gone.
    fingerprint bytea NOT NULL,
    enqueued_by text NOT NULL,
    enqueued_at timestamptz NOT NULL,
    state       text NOT NULL DEFAULT 'waiting' CHECK (state IN ('waiting', 'queued', 'refused')),
    reason      text,
    decided_at  timestamptz,
    CHECK ((state = 'refused') = (reason IS NOT NULL)),
    CHECK ((state = 'waiting') = (decided_at IS NULL)),
    CHECK (delay IS NULL OR not_before IS NULL)
);

CREATE INDEX enqueued_waiting ON scheduler.enqueued (enqueued_at) WHERE state = 'waiting';
CREATE INDEX enqueued_refused ON scheduler.enqueued (job, decided_at) WHERE state = 'refused';
CREATE INDEX enqueued_queued ON scheduler.enqueued (decided_at) WHERE state = 'queued';

-- Rows come and go all the time here, so a share of the table is no measure for when to tidy up.
ALTER TABLE scheduler.enqueued
    SET (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000);

-- Rounds of work without a manifest whose end was heard of before their beginning.
CREATE TABLE scheduler.overtaken (
    work_id    uuid PRIMARY KEY,
    round      integer NOT NULL,
    settled_at timestamptz NOT NULL
);

-- Where traces are recorded: the one in which a manifest succeeded last, and the one in which a
-- decision was asked for. What follows from them is linked to them.
ALTER TABLE scheduler.manifest ADD COLUMN success_traceparent text;
ALTER TABLE scheduler.occurrence ADD COLUMN traceparent text;

-- Whoever drops the schema of the scheduler to begin anew leaves this one behind, so what is in it
-- is replaced.
CREATE SCHEMA IF NOT EXISTS headway;

-- The id of the work that a cause makes: the first 16 bytes of SHA-256 over the namespace of
-- enqueued work and the cause, marked as version 8 of RFC 9562. PostgreSQL has no SHA-1, and so no
-- version 5, without an extension. headway_decisions.firing.identity.enqueued_work_id says the same.
CREATE OR REPLACE FUNCTION headway.work_id(cause text) RETURNS uuid
LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
AS $$
    SELECT encode(set_byte(set_byte(digest, 6, get_byte(digest, 6) & 15 | 128),
                           8, get_byte(digest, 8) & 63 | 128), 'hex')::uuid
    FROM (SELECT substring(
              sha256('\x7d1f6a0e5c3b4a929f0e6a8d2c41b7f3'::bytea || convert_to(cause, 'UTF8'))
              FROM 1 FOR 16) AS digest) AS hashed
$$;

-- Enqueue work of a job; it exists once the caller's transaction commits. Returns its id.
-- The same key of a job gives the same work again, and is refused with other parameters.
CREATE OR REPLACE FUNCTION headway.enqueue(
    job         text,
    input       jsonb DEFAULT NULL,
    "group"     text DEFAULT NULL,
    priority    integer DEFAULT NULL,
    delay       interval DEFAULT NULL,
    not_before  timestamptz DEFAULT NULL,
    start_by    timestamptz DEFAULT NULL,
    key         text DEFAULT NULL,
    traceparent text DEFAULT NULL
) RETURNS uuid
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $$
#variable_conflict use_column
DECLARE
    given  CONSTANT jsonb := nullif(enqueue.input, 'null'::jsonb);
    declared record;
    known    record;
    work     uuid;
    why      text;
    print    bytea;
BEGIN
    SELECT takes_input INTO declared FROM scheduler.job WHERE name = enqueue.job;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'headway: job "%" is not declared', enqueue.job
            USING ERRCODE = 'undefined_object',
                  HINT = 'Start the scheduler of the application that has it, or correct the name.';
    END IF;
    why := CASE
        WHEN given IS NOT NULL AND NOT declared.takes_input THEN
            'the job takes no input'
        WHEN octet_length(given::text) > 262144 THEN
            'the input is larger than 262144 bytes: send where it is found'
        WHEN enqueue."group" !~ '^[A-Za-z0-9][A-Za-z0-9_-]{0,63}$' THEN
            'the group must be 1 to 64 letters, digits, "-" and "_", starting with a letter or digit'
        WHEN enqueue.priority NOT BETWEEN 0 AND 31 THEN
            'the priority must be from 0 to 31'
        WHEN enqueue.delay IS NOT NULL AND enqueue.not_before IS NOT NULL THEN
            'give either a delay or a not_before'
        WHEN enqueue.delay < interval '0' OR enqueue.delay > interval '10 years' THEN
            'the delay must be from nothing to 10 years'
        WHEN NOT isfinite(enqueue.not_before) OR NOT isfinite(enqueue.start_by)
             OR extract(year FROM enqueue.not_before) NOT BETWEEN 1970 AND 9998
             OR extract(year FROM enqueue.start_by) NOT BETWEEN 1970 AND 9998 THEN
            'not_before and start_by must be in the years 1970 to 9998'
        WHEN length(enqueue.key) NOT BETWEEN 1 AND 255 THEN
            'the key must have 1 to 255 characters'
    END;
    IF why IS NOT NULL THEN
        RAISE EXCEPTION 'headway: job "%" cannot be enqueued so: %', enqueue.job, why
            USING ERRCODE = 'invalid_parameter_value';
    END IF;
    -- In seconds and not as text, which depends on settings of the session.
    print := sha256(convert_to(jsonb_build_array(
        given, enqueue."group", enqueue.priority, extract(epoch FROM enqueue.delay),
        extract(epoch FROM enqueue.not_before), extract(epoch FROM enqueue.start_by))::text,
        'UTF8'));
    work := CASE WHEN enqueue.key IS NULL THEN gen_random_uuid()
                 ELSE headway.work_id(format('enqueue:%s:%s', enqueue.job, enqueue.key)) END;
    INSERT INTO scheduler.enqueued
        (work_id, cause, job, key, input, group_name, priority, delay, not_before, start_by,
         traceparent, fingerprint, enqueued_by, enqueued_at)
    VALUES
        (work, format('enqueue:%s:%s', enqueue.job, coalesce(enqueue.key, work::text)),
         enqueue.job, enqueue.key, given, enqueue."group", enqueue.priority, enqueue.delay,
         enqueue.not_before, enqueue.start_by, left(enqueue.traceparent, 255), print,
         session_user, clock_timestamp())
    ON CONFLICT (work_id) DO NOTHING;
    IF NOT FOUND THEN
        SELECT fingerprint, enqueued_at INTO known FROM scheduler.enqueued WHERE work_id = work;
        IF known.fingerprint IS DISTINCT FROM print THEN
            RAISE EXCEPTION 'headway: the key "%" of job "%" was used at % with other parameters',
                enqueue.key, enqueue.job, known.enqueued_at
                USING ERRCODE = 'unique_violation',
                      HINT = 'The same key asks for the same work: use another key for other work.';
        END IF;
    END IF;
    RETURN work;
END
$$;

REVOKE ALL ON FUNCTION headway.work_id(text) FROM PUBLIC;
REVOKE ALL ON FUNCTION
    headway.enqueue(text, jsonb, text, integer, interval, timestamptz, timestamptz, text, text)
    FROM PUBLIC;

-- Who is in this role may enqueue, and do nothing else. Roles belong to the whole server, so
-- another database may have made it already; and whoever migrates may not be allowed to.
DO $$
BEGIN
    IF to_regrole('headway_enqueue') IS NULL THEN
        CREATE ROLE headway_enqueue NOLOGIN;
    END IF;
EXCEPTION
    WHEN insufficient_privilege THEN
        RAISE WARNING 'the role headway_enqueue was not made: % may not make roles', current_user;
    WHEN duplicate_object OR unique_violation THEN
        NULL; -- another database of this server was faster
END
$$;

DO $$
BEGIN
    IF to_regrole('headway_enqueue') IS NOT NULL THEN
        GRANT USAGE ON SCHEMA headway TO headway_enqueue;
        GRANT EXECUTE ON FUNCTION
            headway.enqueue(text, jsonb, text, integer, interval, timestamptz, timestamptz, text,
                            text)
            TO headway_enqueue;
    END IF;
END
$$;
