-- What was answered to requests that came with a key, so that sending one again does nothing again.
CREATE TABLE scheduler.answered (
    kind        text NOT NULL,
    key         text NOT NULL,
    -- Tells the same parameters from others.
    print       bytea NOT NULL,
    answer      bytea NOT NULL,
    answered_at timestamptz NOT NULL,
    PRIMARY KEY (kind, key)
);

CREATE INDEX answered_at ON scheduler.answered (answered_at);
