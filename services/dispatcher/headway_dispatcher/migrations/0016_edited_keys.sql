-- An edited input may make another concurrency key.

ALTER TABLE dispatcher.dead_letter
    -- The key of the input with which it is to be retried: one element, or null if it stays.
    ADD COLUMN retry_key text[];
