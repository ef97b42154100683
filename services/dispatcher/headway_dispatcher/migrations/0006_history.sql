-- History by the day, complete, and clean-up of what is old.

ALTER TABLE dispatcher.history RENAME TO history_before;
DROP INDEX dispatcher.history_run, dispatcher.history_lease;

CREATE SEQUENCE dispatcher.history_number AS bigint;

CREATE TABLE dispatcher.history (
    id          bigint NOT NULL DEFAULT nextval('dispatcher.history_number'),
    event_id    text NOT NULL,
    type        text NOT NULL,
    subject     text NOT NULL,
    source      text NOT NULL,
    occurred_at timestamptz NOT NULL,
    data        jsonb NOT NULL,
    accepted    boolean NOT NULL,
    refusal     text,
    -- The work that the event tells of; none for what concerns a lease of several runs, or all.
    work_id     uuid,
    run_id      uuid,
    lease_id    uuid,
    recorded_at timestamptz NOT NULL,
    CHECK (accepted = (refusal IS NULL))
) PARTITION BY RANGE (recorded_at);

ALTER SEQUENCE dispatcher.history_number OWNED BY dispatcher.history.id;

CREATE INDEX history_id ON dispatcher.history (id);
CREATE INDEX history_work ON dispatcher.history (work_id) WHERE work_id IS NOT NULL;
CREATE INDEX history_lease ON dispatcher.history (lease_id)
    WHERE work_id IS NULL AND lease_id IS NOT NULL;
-- What concerns manifests and the history itself. There is little of it.
CREATE INDEX history_type ON dispatcher.history (type)
    WHERE work_id IS NULL AND lease_id IS NULL;

-- Behind the days: what finds no day of its own waits here until it has one.
CREATE TABLE dispatcher.history_default PARTITION OF dispatcher.history DEFAULT;

-- Make the partition of one day, with what the default one has of it. False if it is there.
-- A day is made apart and then attached: that way writers of other days need not wait.
CREATE FUNCTION dispatcher.add_history_day(day date) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
    partition_name text := 'history_' || to_char(day, 'YYYYMMDD');
    begins timestamptz := day::timestamp AT TIME ZONE 'UTC';
    ends timestamptz := (day + 1)::timestamp AT TIME ZONE 'UTC';
BEGIN
    IF to_regclass('dispatcher.' || partition_name) IS NOT NULL THEN
        RETURN false;
    END IF;
    LOCK TABLE dispatcher.history_default IN ACCESS EXCLUSIVE MODE;
    EXECUTE format(
        'CREATE TABLE dispatcher.%I (LIKE dispatcher.history INCLUDING DEFAULTS'
        ' INCLUDING CONSTRAINTS)', partition_name);
    EXECUTE format(
        'WITH moved AS (DELETE FROM dispatcher.history_default'
        ' WHERE recorded_at >= %L AND recorded_at < %L RETURNING *)'
        ' INSERT INTO dispatcher.%I SELECT * FROM moved', begins, ends, partition_name);
    EXECUTE format(
        'ALTER TABLE dispatcher.history ATTACH PARTITION dispatcher.%I'
        ' FOR VALUES FROM (%L) TO (%L)', partition_name, begins, ends);
    RETURN true;
END $$;

-- Drop the partition of one day with all that is in it.
CREATE FUNCTION dispatcher.drop_history_day(day date) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    EXECUTE format('DROP TABLE dispatcher.%I', 'history_' || to_char(day, 'YYYYMMDD'));
END $$;

SELECT dispatcher.add_history_day(day::date)
FROM (
    SELECT DISTINCT date_trunc('day', recorded_at AT TIME ZONE 'UTC') FROM dispatcher.history_before
    UNION
    SELECT generate_series(date_trunc('day', now() AT TIME ZONE 'UTC'),
                           date_trunc('day', now() AT TIME ZONE 'UTC') + interval '7 days',
                           '1 day')
) AS wanted (day);

INSERT INTO dispatcher.history
    (id, event_id, type, subject, source, occurred_at, data, accepted, refusal, work_id, run_id,
     lease_id, recorded_at)
SELECT history_before.id, event_id, type, subject, source, occurred_at, data, accepted, refusal,
       metadata.work_id, history_before.run_id, history_before.lease_id, recorded_at
FROM dispatcher.history_before
LEFT JOIN dispatcher.metadata ON metadata.run_id = history_before.run_id
ORDER BY history_before.id;

DROP TABLE dispatcher.history_before;

SELECT setval('dispatcher.history_number', coalesce(max(id), 0) + 1, false) FROM dispatcher.history;

-- Until now history did not hold all that the tables follow from. So it begins with how they stand.
INSERT INTO dispatcher.history
    (event_id, type, subject, source, occurred_at, data, accepted, work_id, recorded_at)
SELECT 'snapshot.' || work_queue.id || '.' || numbers.covers, 'headway.history.snapshot.v1',
       work_queue.id::text, 'headway/dispatcher', clock_timestamp(),
       jsonb_build_object(
           'covers', numbers.covers,
           'work', to_jsonb(work_queue) - 'wait_reason',
           'runs', coalesce((SELECT jsonb_agg(to_jsonb(metadata)) FROM dispatcher.metadata
                             WHERE metadata.work_id = work_queue.id), '[]'),
           'letters', coalesce((SELECT jsonb_agg(to_jsonb(dead_letter)) FROM dispatcher.dead_letter
                                WHERE dead_letter.work_id = work_queue.id), '[]')),
       true, work_queue.id, clock_timestamp()
FROM dispatcher.work_queue
CROSS JOIN (SELECT coalesce(max(id), 0) AS covers FROM dispatcher.history) AS numbers;
