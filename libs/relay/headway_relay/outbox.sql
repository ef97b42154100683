-- name: add
-- Append messages. $1 message ids, $2 subjects, $3 bodies, $4 trace contexts (null where none).
INSERT INTO {schema}.outbox (message_id, subject, body, traceparent)
SELECT * FROM unnest($1::text[], $2::text[], $3::bytea[], $4::text[])

-- name: any
-- Whether there is anything to send.
SELECT EXISTS (SELECT FROM {schema}.outbox)

-- name: take
-- The oldest messages that no other relay holds. $1 how many.
SELECT id, message_id, subject, body, traceparent
FROM {schema}.outbox
ORDER BY id
LIMIT $1
FOR UPDATE SKIP LOCKED

-- name: put_aside
-- Keep what can never be published where a person finds it. $1 row ids.
INSERT INTO {schema}.rejected (subject, headers, body, reason)
SELECT subject, jsonb_build_object('Nats-Msg-Id', message_id), body, 'too large to be published'
FROM {schema}.outbox WHERE id = ANY($1::bigint[])

-- name: remove
-- Forget what the broker has. $1 row ids.
DELETE FROM {schema}.outbox WHERE id = ANY($1::bigint[])

-- name: backlog
-- How many messages wait.
SELECT count(*) FROM {schema}.outbox
