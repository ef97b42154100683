-- The terms of work in one column: see `WorkTerms` in headway_contract.work. No query filters,
-- sorts or constrains by any of them, so none has a column of its own.

ALTER TABLE scheduler.manifest ADD COLUMN terms jsonb;
UPDATE scheduler.manifest
SET terms = jsonb_build_object(
    'timeout_seconds', timeout_seconds, 'cancel_grace_seconds', cancel_grace_seconds,
    'priority', priority, 'retry', retry, 'on_lost_contact', on_lost_contact,
    'on_dead_letter', on_dead_letter, 'concurrency_key', concurrency_key,
    'concurrency_limit', concurrency_limit, 'start_within_seconds', start_within_seconds);
ALTER TABLE scheduler.manifest
    ALTER COLUMN terms SET NOT NULL,
    DROP COLUMN timeout_seconds,
    DROP COLUMN cancel_grace_seconds,
    DROP COLUMN priority,
    DROP COLUMN retry,
    DROP COLUMN on_lost_contact,
    DROP COLUMN on_dead_letter,
    DROP COLUMN concurrency_key,
    DROP COLUMN concurrency_limit,
    DROP COLUMN start_within_seconds;

-- Terms of a job leave out what is at its default.
UPDATE scheduler.job
SET terms = terms || jsonb_strip_nulls(jsonb_build_object(
    'concurrency_key', concurrency_key, 'concurrency_limit', nullif(concurrency_limit, 1),
    'start_within_seconds', start_within_seconds));
ALTER TABLE scheduler.job
    DROP COLUMN concurrency_key,
    DROP COLUMN concurrency_limit,
    DROP COLUMN start_within_seconds;
