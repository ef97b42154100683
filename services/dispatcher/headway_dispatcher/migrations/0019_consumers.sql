-- Consumers of declared jobs.

ALTER TABLE dispatcher.job_limit
    -- No application declares the job any more; its consumer goes with the last work of it.
    ADD COLUMN retired boolean NOT NULL DEFAULT false,
    -- Why its consumer could not be made, as the broker says.
    ADD COLUMN consumer_error text;

-- From now on the intake writes down every job of which it hears.
INSERT INTO dispatcher.job_limit (name, version)
SELECT DISTINCT job, 0 FROM dispatcher.work_queue WHERE state <> 'settled'
ON CONFLICT DO NOTHING;
