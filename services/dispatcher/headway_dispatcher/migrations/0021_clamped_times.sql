-- The times of a run are in order: created, started, finished. The dispatcher clamps what workers
-- say to what it knows, and keeps the times by their own clocks beside it.

ALTER TABLE dispatcher.metadata
    ADD COLUMN worker_started_at timestamptz,
    ADD COLUMN worker_finished_at timestamptz;

-- The fold of history clamps older events in the same way. `greatest` passes over null.
UPDATE dispatcher.metadata
SET started_at = CASE WHEN started_at IS NOT NULL THEN greatest(started_at, created_at) END,
    finished_at = CASE WHEN finished_at IS NOT NULL
                       THEN greatest(finished_at, started_at, created_at) END
WHERE started_at < created_at OR finished_at < greatest(started_at, created_at);

-- Dead letters have copies of their runs.
UPDATE dispatcher.dead_letter
SET runs = clamped.runs
FROM (
    SELECT letter.id, jsonb_agg(
        copy.run || jsonb_build_object(
            'started_at', CASE WHEN times.started_at IS NOT NULL
                               THEN greatest(times.started_at, times.created_at) END,
            'finished_at', CASE WHEN times.finished_at IS NOT NULL
                                THEN greatest(times.finished_at, times.started_at,
                                              times.created_at) END)
        ORDER BY copy.number) AS runs
    FROM dispatcher.dead_letter AS letter
    CROSS JOIN jsonb_array_elements(letter.runs) WITH ORDINALITY AS copy (run, number)
    CROSS JOIN jsonb_to_record(copy.run)
        AS times (created_at timestamptz, started_at timestamptz, finished_at timestamptz)
    GROUP BY letter.id
    HAVING bool_or(times.started_at < times.created_at
                   OR times.finished_at < greatest(times.started_at, times.created_at))
) AS clamped
WHERE clamped.id = dead_letter.id;

ALTER TABLE dispatcher.metadata
    ADD CONSTRAINT metadata_times_in_order
    CHECK (started_at >= created_at AND finished_at >= coalesce(started_at, created_at));
