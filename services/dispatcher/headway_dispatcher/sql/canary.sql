-- name: begin
-- Insert a canary, unless one for the same failure runs. $1 id, $2 fingerprint, $3 actor, $4 now,
-- $5 fingerprint without its version, $6 code version (null for any), $7 steps.
INSERT INTO dispatcher.canary (id, fingerprint, actor, began_at, awaiting, reason, steps)
SELECT $1, $2, $3, $4,
       (SELECT count(*) FROM dispatcher.dead_letter
        WHERE state = 'awaiting' AND fingerprint = $5 AND ($6::text IS NULL OR code_version = $6)),
       'starting', $7
ON CONFLICT (fingerprint) WHERE state = 'running' DO NOTHING

-- name: running_of
-- Return the running canary of a failure. $1 fingerprint.
SELECT id FROM dispatcher.canary WHERE fingerprint = $1 AND state = 'running'

-- name: stop
-- Stop a running canary. $1 id, $2 reason, $3 now.
UPDATE dispatcher.canary SET state = 'stopped', reason = $2, ended_at = $3
WHERE id = $1 AND state = 'running'

-- name: status
-- Return the status of a canary. $1 id.
SELECT id, fingerprint, actor, began_at, ended_at, awaiting, state, reason, step, steps
FROM dispatcher.canary WHERE id = $1

-- name: running
-- Return running canaries, the oldest first.
SELECT id FROM dispatcher.canary WHERE state = 'running' ORDER BY began_at, id

-- name: lock
-- Lock a running canary, unless another dispatcher advances it. $1 id.
SELECT * FROM dispatcher.canary WHERE id = $1 AND state = 'running' FOR UPDATE SKIP LOCKED

-- name: fates
-- Return retried letters with the state of their work, and the fingerprint of the next dead letter
-- of that work, if it has one. $1 letters.
SELECT letter.id, letter.state, letter.retry_requested_at, letter.fingerprint,
       work_queue.state AS work, work_queue.outcome, following.fingerprint AS following
FROM dispatcher.dead_letter AS letter
JOIN dispatcher.work_queue ON work_queue.id = letter.work_id
LEFT JOIN LATERAL (
    SELECT dead_letter.fingerprint FROM dispatcher.dead_letter
    WHERE dead_letter.work_id = letter.work_id AND dead_letter.round > letter.round
    ORDER BY dead_letter.round
    LIMIT 1
) AS following ON true
WHERE letter.id = ANY($1::uuid[])

-- name: record
-- Store the result of a pass. $1 id, $2 state, $3 reason, $4 end (null while it runs), $5 step, $6
-- steps, $7 letters under way, $8 whether letters are left, $9 and $10 time and id of the last
-- retried letter.
UPDATE dispatcher.canary
SET state = $2, reason = $3, ended_at = $4, step = $5, steps = $6, under_way = $7, more = $8,
    after_at = $9, after_id = $10
WHERE id = $1

-- name: purge
-- Delete canaries that ended long ago. $1 ended before.
DELETE FROM dispatcher.canary WHERE ended_at < $1
