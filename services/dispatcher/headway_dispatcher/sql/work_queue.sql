-- name: now
-- Return PostgreSQL's time; read after taking locks.
SELECT clock_timestamp()

-- name: apply_group
-- Store the limits of groups, unless a newer version or deletion is known. $1 changes as an array of
-- objects.
INSERT INTO dispatcher.group_limit AS known (name, max_active, priority, enabled, version, rate)
SELECT item.name, max_active, priority, enabled, version, rate
FROM (SELECT "group" AS name, max_active, priority, enabled, version, rate
      FROM jsonb_to_recordset($1) AS change (
          "group" text, max_active integer, priority smallint, enabled boolean, version bigint,
          rate jsonb)) AS item
WHERE NOT EXISTS (SELECT FROM dispatcher.deleted_group
                  WHERE deleted_group.name = item.name AND deleted_group.version > item.version)
ORDER BY item.name
ON CONFLICT (name) DO UPDATE
SET max_active = excluded.max_active,
    priority = excluded.priority,
    enabled = excluded.enabled,
    version = excluded.version,
    rate = excluded.rate
WHERE excluded.version > known.version

-- name: delete_groups
-- Delete groups with their rate counts, unless a newer version is known. $1 changes as an array of
-- objects.
WITH item AS (
    SELECT "group" AS name, version
    FROM jsonb_to_recordset($1) AS change ("group" text, version bigint)
), gone AS (
    DELETE FROM dispatcher.group_limit USING item
    WHERE group_limit.name = item.name AND group_limit.version < item.version
    RETURNING group_limit.name
), unused AS (
    DELETE FROM dispatcher.rate_use
    WHERE kind = 'group' AND name IN (SELECT gone.name FROM gone)
)
INSERT INTO dispatcher.deleted_group AS known (name, version)
SELECT name, version FROM item ORDER BY name
ON CONFLICT (name) DO UPDATE
SET version = excluded.version, deleted_at = excluded.deleted_at
WHERE excluded.version > known.version

-- name: apply_job
-- Store the limits of jobs, unless a newer version is known. $1 changes as an array of objects.
INSERT INTO dispatcher.job_limit AS known
    (name, max_active, rate, counts_globally, batch, version, retired)
SELECT item.*
FROM jsonb_to_recordset($1) AS item (
    job text, max_active integer, rate jsonb, counts_globally boolean, batch integer,
    version bigint, retired boolean)
ORDER BY item.job
ON CONFLICT (name) DO UPDATE
SET max_active = excluded.max_active,
    rate = excluded.rate,
    counts_globally = excluded.counts_globally,
    batch = excluded.batch,
    version = excluded.version,
    retired = excluded.retired
WHERE excluded.version > known.version

-- name: apply_switch
-- Store whether work of manifests may run, unless a newer version is known. Returns changed
-- switches. $1 changes as an array of objects.
INSERT INTO dispatcher.manifest_switch AS known (manifest_id, enabled, version)
SELECT item.* FROM jsonb_to_recordset($1) AS item (manifest_id uuid, enabled boolean, version bigint)
ORDER BY item.manifest_id
ON CONFLICT (manifest_id) DO UPDATE
SET enabled = excluded.enabled, version = excluded.version
WHERE excluded.version > known.version
RETURNING manifest_id, enabled

-- name: hold_disabled
-- Hold ready work of disabled manifests, unless a person requested it. Work that waits for its time
-- or a key is held later. A trigger notes the keys. $1 manifest ids.
UPDATE dispatcher.work_queue SET hold_reason = 'manifest_disabled'
WHERE id = ANY(ARRAY(
    SELECT id FROM dispatcher.work_queue
    WHERE manifest_id = ANY($1::uuid[]) AND state IN ('queued', 'waiting')
      AND hold_reason IS NULL AND NOT explicit
    ORDER BY id
    FOR UPDATE))

-- name: release_held
-- Let the gate check work of manifests that were enabled again. $1 manifest ids.
UPDATE dispatcher.work_queue SET hold_reason = 'not_before'
WHERE id = ANY(ARRAY(
    SELECT id FROM dispatcher.work_queue
    WHERE manifest_id = ANY($1::uuid[]) AND state IN ('queued', 'waiting')
      AND hold_reason = 'manifest_disabled'
    ORDER BY id
    FOR UPDATE))

-- name: insert
-- Insert new work with its history, as queued, or as settled (coalesced) if its slot is taken;
-- returns the ids of inserted rows. It skips known work, work whose slot is taken, and work of
-- pruned manifests. Work that waits for a time or a key is held, and its key is noted for the gate.
-- Every job gets a row. $1 work as an array of objects, $2 now, $3 queued or settled; the history
-- columns $4 event ids, $5 types, $6 subjects, $7 sources, $8 event times, $9 data, $10 accepted,
-- $11 refusal reasons, $12 work ids, $13 run ids, $14 lease ids.
WITH work AS (
    SELECT * FROM jsonb_to_recordset($1) AS item (
        work uuid, round integer, manifest_id uuid, manifest text, slot integer, "group" text,
        job text, input jsonb, input_schema text, cause text, due_at timestamptz,
        queued_at timestamptz, priority smallint, rank timestamptz, not_before timestamptz,
        terms jsonb, traceparent text, start_by timestamptz, concurrency_key text,
        explicit boolean)
    WHERE NOT EXISTS (SELECT FROM dispatcher.tombstone
                      WHERE tombstone.manifest_id = item.manifest_id)
), declared AS (
    INSERT INTO dispatcher.job_limit (name, version)
    SELECT DISTINCT work.job, 0 FROM work ORDER BY 1
    ON CONFLICT DO NOTHING
), taken AS (
    INSERT INTO dispatcher.work_queue
        (id, round, manifest_id, manifest, slot, group_name, job, input, input_schema, cause, due_at,
         queued_at, priority, rank, not_before, terms, state, wait_reason, outcome,
         settled_at, traceparent, received_at, start_by, concurrency_key, explicit, hold_reason)
    SELECT work.work, work.round, work.manifest_id, work.manifest, work.slot, work."group", work.job,
           work.input, work.input_schema, work.cause, work.due_at, work.queued_at, work.priority,
           work.rank, coalesce(work.not_before, work.queued_at), work.terms, $3::text,
           CASE WHEN $3 = 'queued' THEN 'awaiting_gate' END,
           CASE WHEN $3 = 'settled' THEN 'coalesced' END,
           CASE WHEN $3 = 'settled' THEN $2::timestamptz END, work.traceparent, $2, work.start_by,
           work.concurrency_key, work.explicit,
           CASE WHEN work.not_before > $2 THEN 'not_before'
                WHEN work.concurrency_key IS NOT NULL THEN 'key' END
    FROM work
    ORDER BY work.work
    ON CONFLICT DO NOTHING
    RETURNING id, concurrency_key
), noted AS (
    INSERT INTO dispatcher.key_changed (key)
    SELECT DISTINCT concurrency_key FROM taken
    WHERE concurrency_key IS NOT NULL AND $3 = 'queued'
), kept AS (
    INSERT INTO dispatcher.history
        (event_id, type, subject, source, occurred_at, data, accepted, refusal, work_id, run_id,
         lease_id, recorded_at)
    SELECT event.*, clock_timestamp()
    FROM unnest($4::text[], $5::text[], $6::text[], $7::text[], $8::timestamptz[], $9::jsonb[],
                $10::boolean[], $11::text[], $12::uuid[], $13::uuid[], $14::uuid[])
        AS event (event_id, type, subject, source, occurred_at, data, accepted, refusal, work_id,
                  run_id, lease_id)
    WHERE event.work_id IN (SELECT id FROM taken)
)
SELECT id FROM taken

-- name: known
-- Return those of the ids that are known. $1 ids.
SELECT id FROM dispatcher.work_queue WHERE id = ANY($1::uuid[])

-- name: fill_in
-- Complete work that was cancelled before it arrived; returns the ids of completed rows. $1 work as
-- an array of objects.
UPDATE dispatcher.work_queue
SET manifest_id = work.manifest_id, manifest = work.manifest, slot = work.slot, job = work.job,
    input = work.input, input_schema = work.input_schema, cause = work.cause,
    due_at = work.due_at, queued_at = work.queued_at, priority = work.priority,
    rank = work.rank, traceparent = work.traceparent
FROM jsonb_to_recordset($1) AS work (
    work uuid, manifest_id uuid, manifest text, slot integer, job text, input jsonb,
    input_schema text, cause text, due_at timestamptz, queued_at timestamptz, priority smallint,
    rank timestamptz, traceparent text)
WHERE work_queue.id = work.work AND work_queue.job = ''
RETURNING work_queue.id

-- name: lock
-- Lock work in a fixed order, with the activations and the number of runs of its round, whether its
-- manifest was pruned, and whether dead letters wait for its slot. The ids are inside a SELECT, so
-- that one generic plan serves any number: planning costs more than the rows. $1 ids.
SELECT id, round, manifest_id, manifest, group_name, job, input, terms, state, runs, attempts,
       run_id, traceparent, cancel_requested_at, cancel_reason, start_by,
       EXISTS (SELECT FROM dispatcher.tombstone
               WHERE tombstone.manifest_id = work_queue.manifest_id) AS pruned,
       EXISTS (SELECT FROM dispatcher.dead_letter
               WHERE dead_letter.manifest_id = work_queue.manifest_id
                 AND dead_letter.retry_requested_at IS NOT NULL) AS letters_wait,
       (SELECT jsonb_agg(metadata.activations) FROM dispatcher.metadata
        WHERE metadata.work_id = work_queue.id AND metadata.round = work_queue.round
          AND metadata.activations IS NOT NULL) AS activations,
       -- Its last run may have no row yet.
       (SELECT count(*) FROM dispatcher.metadata
        WHERE metadata.work_id = work_queue.id AND metadata.round = work_queue.round)
           + (state = 'dispatched' AND NOT EXISTS (
                  SELECT FROM dispatcher.metadata
                  WHERE metadata.run_id = work_queue.run_id))::integer AS round_runs
FROM dispatcher.work_queue
WHERE id = ANY((SELECT $1::uuid[])::uuid[])
ORDER BY id
FOR UPDATE

-- name: lock_ids
-- Lock work in a fixed order. $1 ids.
SELECT FROM dispatcher.work_queue
WHERE id = ANY((SELECT $1::uuid[])::uuid[])
ORDER BY id
FOR UPDATE

-- name: settle_completed
-- Settle locked work whose run completed, and insert the runs that have no row; returns the work as
-- `lock` does. Activations of the only run of a piece of work are left out, because the caller has
-- them. The state is compared so that no plan reads the index of dispatched work, which is nearly
-- empty by the statistics, and compares each row with each id. $1 ids, $2 now, $3 real time, $4 runs,
-- $5 creation times of the runs to insert (null for others), $6 workers, $7 hosts, $8 start times, $9
-- finish times, $10 and $11 the same by the workers' clocks, $12 outputs.
WITH settled AS (
    UPDATE dispatcher.work_queue
    SET state = 'settled', outcome = 'completed', attempts = attempts + 1, settled_at = $2,
        wait_reason = NULL
    FROM unnest($1::uuid[], $4::uuid[], $5::timestamptz[], $6::text[], $7::text[],
                $8::timestamptz[], $9::timestamptz[], $10::timestamptz[], $11::timestamptz[],
                $12::jsonb[])
             AS item (work_id, run_id, created_at, worker, host, started_at, finished_at,
                      worker_started_at, worker_finished_at, output)
    WHERE work_queue.id = item.work_id AND work_queue.run_id = item.run_id
      AND work_queue.state NOT IN ('queued', 'waiting', 'settled')
    RETURNING work_queue.id, round, manifest_id, manifest, group_name, job, runs, attempts,
              work_queue.run_id, traceparent, due_at, concurrency_key, terms, lease_id,
              item.created_at, item.worker, item.host, item.started_at, item.finished_at,
              item.worker_started_at, item.worker_finished_at, item.output
), ran AS (
    INSERT INTO dispatcher.metadata
        (run_id, work_id, lease_id, manifest_id, group_name, job, concurrency_key, round, attempt,
         due_at, created_at, max_run_seconds, trace_id, state, worker, host, started_at,
         start_heard_at, finished_at, worker_started_at, worker_finished_at, output)
    SELECT run_id, id, lease_id, manifest_id, group_name, job, concurrency_key, round, attempts,
           due_at, created_at, dispatcher.max_run_seconds(terms),
           dispatcher.trace_id(traceparent), 'completed', worker, host, started_at,
           $3::timestamptz, finished_at, worker_started_at, worker_finished_at, output
    FROM settled WHERE created_at IS NOT NULL
)
SELECT id, round, manifest_id, manifest, group_name, job, runs, attempts, run_id, traceparent,
       manifest_id IS NOT NULL
           AND EXISTS (SELECT FROM dispatcher.tombstone
                       WHERE tombstone.manifest_id = settled.manifest_id) AS pruned,
       manifest_id IS NOT NULL
           AND EXISTS (SELECT FROM dispatcher.dead_letter
                       WHERE dead_letter.manifest_id = settled.manifest_id
                         AND dead_letter.retry_requested_at IS NOT NULL) AS letters_wait,
       CASE WHEN runs > 1
            THEN (SELECT jsonb_agg(metadata.activations) FROM dispatcher.metadata
                  WHERE metadata.work_id = settled.id AND metadata.round = settled.round
                    AND metadata.activations IS NOT NULL) END AS activations
FROM settled

-- name: request_cancel
-- Mark work as cancelled. $1 ids, $2 reasons, $3 now.
UPDATE dispatcher.work_queue
SET cancel_requested_at = $3, cancel_reason = item.reason
FROM unnest($1::uuid[], $2::text[]) AS item (id, reason)
WHERE work_queue.id = item.id

-- name: add_cancelled
-- Insert work that was cancelled before it arrived, as settled; returns the ids of inserted rows.
-- An empty job marks it, and it has no terms. $1 cancel requests as an array of objects, $2 now.
INSERT INTO dispatcher.work_queue
    (id, round, manifest_id, manifest, slot, group_name, job, cause, queued_at, priority, rank,
     not_before, terms, state, outcome,
     settled_at, received_at, cancel_requested_at, cancel_reason)
SELECT item.work, item.round, item.manifest_id, item.manifest, 0, item."group", '', '', $2, 0, $2,
       $2, '{}', 'settled', 'cancelled', $2, $2, $2, item.reason
FROM jsonb_to_recordset($1) AS item (
    work uuid, round integer, manifest_id uuid, manifest text, "group" text, reason text)
ORDER BY item.work
ON CONFLICT DO NOTHING
RETURNING id

-- name: bring_forward
-- Move waiting work before all ready work of its group and all work that waits for its key. A
-- person requested it, so a disabled manifest does not hold it. A trigger notes its key. Returns
-- the moved rows. $1 ids, $2 now.
UPDATE dispatcher.work_queue
SET not_before = least(not_before, $2),
    explicit = true,
    hold_reason = CASE WHEN hold_reason = 'manifest_disabled' THEN 'not_before'
                       ELSE hold_reason END,
    rank = least(
        work_queue.rank,
        (SELECT min(head.rank)
         FROM dispatcher.ready_lane
         CROSS JOIN LATERAL (
             SELECT other.rank FROM dispatcher.work_queue AS other
             WHERE other.group_name = ready_lane.group_name AND other.job = ready_lane.job
               AND other.state IN ('queued', 'waiting') AND other.hold_reason IS NULL
             ORDER BY other.rank
             LIMIT 1) AS head
         WHERE ready_lane.group_name = work_queue.group_name),
        (SELECT min(first.rank)
         FROM dispatcher.first_for_key(work_queue.concurrency_key) AS first)
    ) - interval '1 ms'
FROM (
    SELECT id FROM dispatcher.work_queue
    WHERE id = ANY($1::uuid[]) AND state IN ('queued', 'waiting')
    ORDER BY id
    FOR UPDATE
) AS waiting
WHERE work_queue.id = waiting.id
RETURNING work_queue.id AS work, round, runs, rank, not_before

-- name: cancelling
-- Return dispatched runs of cancelled work with their claimant and all live runs of their leases,
-- unclaimed ones first. $1 limit.
SELECT work_queue.run_id, work_queue.lease_id, lease.token, lease.job, lease.sequence,
       lease.claimed_by, work_queue.cancel_reason AS reason,
       ARRAY(SELECT live.run_id FROM dispatcher.work_queue AS live
             WHERE live.lease_id = lease.id AND live.state = 'dispatched'
             ORDER BY live.run_id) AS live_runs
FROM dispatcher.work_queue
JOIN dispatcher.lease ON lease.id = work_queue.lease_id
WHERE work_queue.cancel_requested_at IS NOT NULL AND work_queue.state = 'dispatched'
ORDER BY lease.claimed_by NULLS FIRST, work_queue.cancel_requested_at
LIMIT $1

-- name: activators
-- Return runs that activated dependents, with their work. $1 runs.
SELECT metadata.run_id AS run, metadata.round, work_queue.id AS work, work_queue.manifest_id,
       work_queue.manifest, work_queue.group_name AS "group", work_queue.traceparent
FROM dispatcher.metadata
JOIN dispatcher.work_queue ON work_queue.id = metadata.work_id
WHERE metadata.run_id = ANY($1::uuid[])

-- name: settle
-- Settle work. $1 ids, $2 outcomes, $3 counted attempts, $4 now.
UPDATE dispatcher.work_queue
SET state = 'settled', outcome = item.outcome, attempts = item.attempts, settled_at = $4,
    wait_reason = NULL
FROM unnest($1::uuid[], $2::text[], $3::integer[]) AS item (id, outcome, attempts)
WHERE work_queue.id = item.id

-- name: retry
-- Let work wait for its next attempt. $1 ids, $2 not before, $3 reasons, $4 counted attempts, $5
-- trace contexts (null to keep), $6 whether it needs an exclusive lease from now on, $7 whether it
-- had begun: then `start_by` no longer applies.
UPDATE dispatcher.work_queue
SET state = 'waiting', not_before = item.not_before, wait_reason = item.reason,
    attempts = item.attempts, traceparent = coalesce(item.traceparent, work_queue.traceparent),
    exclusive_lease = work_queue.exclusive_lease OR item.exclusive_lease,
    start_by = CASE WHEN NOT item.begun THEN work_queue.start_by END
FROM unnest($1::uuid[], $2::timestamptz[], $3::text[], $4::integer[], $5::text[], $6::boolean[],
            $7::boolean[])
    AS item (id, not_before, reason, attempts, traceparent, exclusive_lease, begun)
WHERE work_queue.id = item.id

-- name: add_dead_letters
-- Insert dead letters with all runs of their round; returns the code version that failed, if known.
-- $1 dead letters as an array of objects, $2 now.
INSERT INTO dispatcher.dead_letter
    (id, work_id, round, manifest_id, manifest, group_name, job, input, reason, failure, attempts,
     fingerprint, code_version, runs, state, created_at)
SELECT letter.dead_letter, letter.work, letter.round, letter.manifest_id, letter.manifest,
       letter."group", letter.job, letter.input, letter.reason, letter.failure, letter.attempts,
       letter.fingerprint,
       coalesce((SELECT lease.code_version
                 FROM dispatcher.metadata JOIN dispatcher.lease ON lease.id = metadata.lease_id
                 WHERE metadata.run_id = letter.run_id), ''),
       coalesce((
           SELECT jsonb_agg(jsonb_build_object(
               'run', metadata.run_id, 'attempt', metadata.attempt, 'state', metadata.state,
               'worker', metadata.worker, 'host', metadata.host,
               'created_at', metadata.created_at, 'started_at', metadata.started_at,
               'finished_at', metadata.finished_at, 'failure', metadata.failure)
               ORDER BY metadata.created_at, metadata.run_id)
           FROM dispatcher.metadata
           WHERE metadata.work_id = letter.work AND metadata.round = letter.round), '[]'),
       'awaiting', $2
FROM jsonb_to_recordset($1) AS letter (
    dead_letter uuid, work uuid, round integer, manifest_id uuid, manifest text, "group" text,
    job text, input jsonb, reason text, failure jsonb, attempts integer, fingerprint text,
    run_id uuid)
RETURNING id, code_version
