-- The terms of work in one column: see `WorkTerms` in headway_contract.work. `priority`, `start_by`
-- and `concurrency_key` stay columns: they are computed for each piece of work, and the gate sorts
-- and filters by them.

CREATE FUNCTION pg_temp.work_terms(flat jsonb) RETURNS jsonb LANGUAGE sql IMMUTABLE AS $$
    SELECT jsonb_build_object(
        'retry', flat -> 'retry', 'timeout_seconds', flat -> 'timeout_seconds',
        'cancel_grace_seconds', flat -> 'cancel_grace_seconds',
        'on_lost_contact', flat -> 'on_lost_contact',
        'concurrency_limit', coalesce(flat -> 'concurrency_limit', '1'))
$$;

ALTER TABLE dispatcher.work_queue ADD COLUMN terms jsonb;
-- Work that was cancelled before it came has no job and no terms.
UPDATE dispatcher.work_queue
SET terms = CASE WHEN job = '' THEN '{}' ELSE pg_temp.work_terms(to_jsonb(work_queue)) END;
ALTER TABLE dispatcher.work_queue
    ALTER COLUMN terms SET NOT NULL,
    DROP COLUMN retry,
    DROP COLUMN timeout_seconds,
    DROP COLUMN cancel_grace_seconds,
    DROP COLUMN on_lost_contact,
    DROP COLUMN concurrency_limit;
-- The gate compares it with what runs, so it is not read out of the terms each time.
ALTER TABLE dispatcher.work_queue
    ADD COLUMN concurrency_limit integer NOT NULL
        GENERATED ALWAYS AS (coalesce((terms ->> 'concurrency_limit')::integer, 1)) STORED;

-- History has to tell what the table says.
UPDATE dispatcher.history
SET data = data - '{retry,timeout_seconds,cancel_grace_seconds,on_lost_contact,concurrency_limit}'::text[]
           || jsonb_build_object('terms', pg_temp.work_terms(data))
WHERE type = 'headway.work.queued.v1';
UPDATE dispatcher.history
SET data = jsonb_set(
    data, '{work}',
    (data -> 'work') - '{retry,timeout_seconds,cancel_grace_seconds,on_lost_contact,concurrency_limit}'::text[]
    || jsonb_build_object('terms', pg_temp.work_terms(data -> 'work')))
WHERE data #> '{work,timeout_seconds}' IS NOT NULL;
DROP FUNCTION pg_temp.work_terms;
