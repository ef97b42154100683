-- Notifications by webhook: written in the transaction of the fact that they tell of, and sent by a
-- pass. Empty while no webhook is configured.
CREATE TABLE scheduler.notification (
    -- Also the id of the event that is sent, on every attempt.
    id              uuid PRIMARY KEY,
    type            text NOT NULL,
    subject         text NOT NULL,
    data            jsonb NOT NULL,
    created_at      timestamptz NOT NULL,
    state           text NOT NULL DEFAULT 'pending'
                    CHECK (state IN ('pending', 'folded', 'delivered', 'given_up')),
    attempts        integer NOT NULL DEFAULT 0,
    -- Of a pending one; while an attempt is under way, when another process may try.
    next_attempt_at timestamptz CHECK ((next_attempt_at IS NOT NULL) = (state = 'pending')),
    finished_at     timestamptz CHECK ((finished_at IS NULL) = (state = 'pending')),
    -- The digest that stands for it.
    folded_into     uuid CHECK ((folded_into IS NOT NULL) = (state = 'folded')),
    last_error      text NOT NULL DEFAULT ''
);

CREATE INDEX notification_pending ON scheduler.notification (next_attempt_at)
    WHERE state = 'pending';
CREATE INDEX notification_age ON scheduler.notification (created_at);
