-- name: add
-- Append messages. $1 message ids, $2 subjects, $3 bodies, $4 trace contexts (null where none).
INSERT INTO {schema}.outbox (message_id, subject, body, traceparent)
SELECT * FROM unnest((SELECT $1::text[]), $2::text[], $3::bytea[], $4::text[])

-- name: take
-- Delete and return the oldest messages that no other relay holds. $1 limit, $2 minimum age; a row
-- of the future is old enough, because the clock was set back since it was written.
DELETE FROM {schema}.outbox
WHERE id = ANY(ARRAY(
    SELECT id FROM {schema}.outbox
    WHERE created_at <= clock_timestamp() - $2::interval OR created_at > clock_timestamp()
    ORDER BY id LIMIT $1 FOR UPDATE SKIP LOCKED))
RETURNING id, message_id, subject, body, traceparent, created_at

-- name: published
-- Delete messages that their own process has published. $1 message ids.
-- The SELECT lets one plan serve any number of ids: planning costs more than deleting.
DELETE FROM {schema}.outbox WHERE message_id = ANY((SELECT $1::text[])::text[])

-- name: put_back
-- Restore messages that could not be published, with their ids. $1 row ids, $2 message ids,
-- $3 subjects, $4 bodies, $5 trace contexts, $6 creation times.
INSERT INTO {schema}.outbox (id, message_id, subject, body, traceparent, created_at)
OVERRIDING SYSTEM VALUE
SELECT * FROM unnest($1::bigint[], $2::text[], $3::text[], $4::bytea[], $5::text[],
                     $6::timestamptz[])

-- name: put_aside
-- Store messages that are too large to publish as rejected. $1 message ids, $2 subjects, $3 bodies.
INSERT INTO {schema}.rejected (subject, headers, body, reason)
SELECT message.subject, jsonb_build_object('Nats-Msg-Id', message.message_id), message.body,
       'too large to be published'
FROM unnest($1::text[], $2::text[], $3::bytea[]) AS message (message_id, subject, body)
