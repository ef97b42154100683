-- What runs tell while they run. Unfenced: it is for people, and nothing is decided by it.

ALTER TABLE dispatcher.metadata
    -- The latest news: its number, when, percent, message.
    ADD COLUMN progress    jsonb,
    ADD COLUMN log_bytes   integer NOT NULL DEFAULT 0 CHECK (log_bytes >= 0),
    ADD COLUMN log_dropped integer NOT NULL DEFAULT 0 CHECK (log_dropped >= 0);

-- Jobs of which a worker runs fewer at once than it has slots.
ALTER TABLE dispatcher.worker ADD COLUMN concurrency jsonb NOT NULL DEFAULT '{}';

-- What each state says of the other columns (docs/states.md lists it).
ALTER TABLE dispatcher.metadata
    ADD CONSTRAINT metadata_attempts_from_one CHECK (attempt >= 1),
    ADD CONSTRAINT metadata_pending_has_not_begun CHECK (state <> 'pending' OR started_at IS NULL),
    ADD CONSTRAINT metadata_output_of_completed CHECK (output IS NULL OR state = 'completed'),
    ADD CONSTRAINT metadata_reason_of_cancelled
        CHECK ((state = 'cancelled') = (cancel_reason IS NOT NULL));

ALTER TABLE dispatcher.work_queue
    ADD CONSTRAINT work_queue_rounds_and_slots CHECK (round >= 1 AND slot >= 0),
    ADD CONSTRAINT work_queue_attempts_are_runs CHECK (attempts BETWEEN 0 AND runs),
    ADD CONSTRAINT work_queue_waiting_has_run CHECK (state <> 'waiting' OR runs > 0),
    ADD CONSTRAINT work_queue_known_outcome
        CHECK (outcome IN ('completed', 'cancelled', 'dead_lettered', 'coalesced', 'expired'));

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
