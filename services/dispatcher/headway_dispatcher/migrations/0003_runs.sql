-- What runs tell while they run. Unfenced: it is for people, and nothing is decided by it.

ALTER TABLE dispatcher.metadata
    -- The latest news: its number, when, percent, message.
    ADD COLUMN progress    jsonb,
    ADD COLUMN log_bytes   integer NOT NULL DEFAULT 0 CHECK (log_bytes >= 0),
    ADD COLUMN log_dropped integer NOT NULL DEFAULT 0 CHECK (log_dropped >= 0);

-- The lines that runs have logged. A line has its number from the worker, so that a second
-- delivery changes nothing.
CREATE TABLE dispatcher.run_log (
    run_id  uuid NOT NULL REFERENCES dispatcher.metadata (run_id) ON DELETE CASCADE,
    number  integer NOT NULL CHECK (number >= 1),
    at      timestamptz NOT NULL,
    level   text NOT NULL CHECK (level IN ('debug', 'info', 'warning', 'error', 'critical')),
    message text NOT NULL,
    fields  jsonb NOT NULL,
    size    integer NOT NULL,
    PRIMARY KEY (run_id, number)
);
