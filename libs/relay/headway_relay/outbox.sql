-- name: add
-- Append messages. $1 message ids, $2 subjects, $3 bodies, $4 trace contexts (null where none).
INSERT INTO {schema}.outbox (message_id, subject, body, traceparent)
SELECT * FROM unnest($1::text[], $2::text[], $3::bytea[], $4::text[])

-- name: take
-- Take out the oldest messages that no other relay holds; they are gone once the transaction
-- is. $1 how many, $2 the least age; a row of the future is old enough, because the clock was
-- set back since it was written.
DELETE FROM {schema}.outbox
WHERE id = ANY(ARRAY(
    SELECT id FROM {schema}.outbox
    WHERE created_at <= clock_timestamp() - $2::interval OR created_at > clock_timestamp()
    ORDER BY id LIMIT $1 FOR UPDATE SKIP LOCKED))
RETURNING id, message_id, subject, body, traceparent, created_at

-- name: published
-- Messages that their own process has published. $1 message ids.
-- The ids are behind a SELECT so that one plan serves any number of them: planning anew each
-- time costs more than the rows do.
DELETE FROM {schema}.outbox WHERE message_id = ANY((SELECT $1::text[])::text[])

-- name: put_back
-- Messages that were taken out and could not be published keep their places. $1 row ids,
-- $2 message ids, $3 subjects, $4 bodies, $5 trace contexts, $6 when they were written.
INSERT INTO {schema}.outbox (id, message_id, subject, body, traceparent, created_at)
OVERRIDING SYSTEM VALUE
SELECT * FROM unnest($1::bigint[], $2::text[], $3::text[], $4::bytea[], $5::text[],
                     $6::timestamptz[])

-- name: put_aside
-- Keep what can never be published where a person finds it. $1 message ids, $2 subjects,
-- $3 bodies.
INSERT INTO {schema}.rejected (subject, headers, body, reason)
SELECT told.subject, jsonb_build_object('Nats-Msg-Id', told.message_id), told.body,
       'too large to be published'
FROM unnest($1::text[], $2::text[], $3::bytea[]) AS told (message_id, subject, body)

-- name: backlog
-- How many messages wait.
SELECT count(*) FROM {schema}.outbox
