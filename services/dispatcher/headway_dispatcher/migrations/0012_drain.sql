-- Workers that people have asked to drain.

ALTER TABLE dispatcher.worker
    -- The process that is meant: who starts later under the same name has another nonce.
    ADD COLUMN drain_asked_of text;
