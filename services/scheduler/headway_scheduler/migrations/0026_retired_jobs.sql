-- Retired jobs: no application declares them any more, and no new work of them is made.

ALTER TABLE scheduler.job
    -- The applications that declare it; `owner` is the one that declared it last.
    ADD COLUMN declared_by text[] NOT NULL DEFAULT '{}',
    ADD COLUMN retired_at timestamptz;
UPDATE scheduler.job SET declared_by = ARRAY[owner];
ALTER TABLE scheduler.job
    ADD CONSTRAINT job_retired CHECK ((retired_at IS NULL) = (declared_by <> '{}'));

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
    work   CONSTANT uuid := gen_random_uuid();
    declared record;
    known    record;
    why      text;
    print    bytea;
BEGIN
    SELECT takes_input, retired_at INTO declared FROM scheduler.job WHERE name = enqueue.job;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'headway: job "%" is not declared', enqueue.job
            USING ERRCODE = 'undefined_object',
                  HINT = 'Start the scheduler of the application that has it, or correct the name.';
    END IF;
    -- A key that was used while the job was declared still finds its work.
    IF declared.retired_at IS NOT NULL AND NOT EXISTS (
        SELECT FROM scheduler.enqueued WHERE job = enqueue.job AND key = enqueue.key) THEN
        RAISE EXCEPTION 'headway: job "%" is retired: no application declares it since %',
            enqueue.job, to_char(declared.retired_at AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI:SS "UTC"')
            USING ERRCODE = 'object_not_in_prerequisite_state',
                  HINT = 'Declare the job again, or enqueue another one.';
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
    LOOP
        INSERT INTO scheduler.enqueued
            (work_id, cause, job, key, input, group_name, priority, delay, not_before, start_by,
             traceparent, fingerprint, enqueued_by, enqueued_at)
        VALUES
            (work, format('enqueue:%s:%s', enqueue.job, coalesce(enqueue.key, work::text)),
             enqueue.job, enqueue.key, given, enqueue."group", enqueue.priority, enqueue.delay,
             enqueue.not_before, enqueue.start_by, left(enqueue.traceparent, 255), print,
             session_user, clock_timestamp())
        ON CONFLICT (job, key) WHERE key IS NOT NULL DO NOTHING;
        IF FOUND THEN
            RETURN work;
        END IF;
        SELECT work_id, fingerprint, enqueued_at INTO known
        FROM scheduler.enqueued WHERE job = enqueue.job AND key = enqueue.key;
        -- What is forgotten just now is not found, and its key is free.
        EXIT WHEN FOUND;
    END LOOP;
    IF known.fingerprint IS DISTINCT FROM print THEN
        RAISE EXCEPTION 'headway: the key "%" of job "%" was used at % with other parameters',
            enqueue.key, enqueue.job, known.enqueued_at
            USING ERRCODE = 'unique_violation',
                  HINT = 'The same key asks for the same work: use another key for other work.';
    END IF;
    RETURN known.work_id;
END
$$;
