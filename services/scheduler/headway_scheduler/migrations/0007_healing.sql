-- Asking again: what the broker's storage may lose is asked about until it is settled.

ALTER TABLE scheduler.work
    ADD COLUMN asked_at timestamptz,
    -- When it was last announced again because its message was lost.
    ADD COLUMN told_again_at timestamptz,
    -- When to ask next; null until it was asked about for the first time.
    ADD COLUMN ask_at timestamptz,
    -- How often the dispatcher has answered that it is under way; the pauses grow with it.
    ADD COLUMN asks smallint NOT NULL DEFAULT 0 CHECK (asks >= 0);

-- Where a stream ended at a moment when all that had been decided before was published. No
-- message of before can be stored behind it, in the stream that was made at that time.
CREATE TABLE scheduler.stream_mark (
    stream   text PRIMARY KEY,
    -- The broker's own words, to the nanosecond: it is only ever compared.
    created  text NOT NULL,
    sequence bigint NOT NULL,
    taken_at timestamptz NOT NULL
);
