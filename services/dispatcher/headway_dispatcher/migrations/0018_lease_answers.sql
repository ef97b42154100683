-- What is wrong with the messages of a lease's owner: the worker hears it in the replies to its
-- heartbeats, and the end of an abandoned lease gives it as the reason.
ALTER TABLE dispatcher.lease
    ADD COLUMN warning text,
    ADD COLUMN warned_at timestamptz,
    ADD CONSTRAINT lease_warning_has_a_time CHECK ((warning IS NULL) = (warned_at IS NULL));

CREATE INDEX lease_warned ON dispatcher.lease (claimed_by, nonce) WHERE warning IS NOT NULL;
