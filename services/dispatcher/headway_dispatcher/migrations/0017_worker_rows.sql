-- Worker rows and rejected messages do not stay for ever.

-- Whether a worker fell silent for the orphan timeout: the gate reads only the others.
ALTER TABLE dispatcher.worker ADD COLUMN gone boolean NOT NULL DEFAULT false;
CREATE INDEX worker_here ON dispatcher.worker (name) WHERE NOT gone;

CREATE INDEX rejected_at ON dispatcher.rejected (rejected_at);
