-- Which code a run had, and letters whose runs are what became of them.

ALTER TABLE dispatcher.lease
    -- Of the process that has claimed it, as far as that told.
    ADD COLUMN code_version text;

-- What was heard of runs after their letter was made has not reached it until now.
UPDATE dispatcher.dead_letter
SET runs = made.runs
FROM (
    SELECT letter.id, jsonb_agg(jsonb_build_object(
        'run', metadata.run_id, 'attempt', metadata.attempt, 'state', metadata.state,
        'worker', metadata.worker, 'host', metadata.host, 'created_at', metadata.created_at,
        'started_at', metadata.started_at, 'finished_at', metadata.finished_at,
        'failure', metadata.failure) ORDER BY metadata.created_at, metadata.run_id) AS runs
    FROM dispatcher.dead_letter AS letter
    JOIN dispatcher.metadata
        ON metadata.work_id = letter.work_id AND metadata.round = letter.round
    GROUP BY letter.id) AS made
WHERE made.id = dead_letter.id AND made.runs <> dead_letter.runs;
