-- name: server
-- The server: version, time, load, settings that cost safety, whether this user is a member of the
-- role for reading (null if there is no such role), and tables of Headway that this role can change.
SELECT current_setting('server_version') AS version,
       clock_timestamp() AS now,
       pg_is_in_recovery() AS standby,
       current_setting('max_connections')::integer AS most_connections,
       (SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend') AS connections,
       current_setting('fsync') AS fsync,
       current_setting('synchronous_commit') AS synchronous_commit,
       current_setting('autovacuum') AS autovacuum,
       (SELECT pg_has_role(current_user, oid, 'MEMBER') FROM pg_roles
        WHERE rolname = 'headway_reader') AS reads,
       ARRAY(
           SELECT pg_namespace.nspname || '.' || pg_class.relname
           FROM pg_class
           JOIN pg_namespace ON pg_namespace.oid = pg_class.relnamespace
           JOIN pg_roles ON pg_roles.rolname = 'headway_reader'
           WHERE pg_namespace.nspname IN ('scheduler', 'dispatcher')
             AND pg_class.relkind IN ('r', 'p')
             AND has_table_privilege(
                 pg_roles.oid, pg_class.oid, 'INSERT, UPDATE, DELETE, TRUNCATE')
           ORDER BY 1
       ) AS writable

-- name: write_temporary_file
-- Write 20 MB to a temporary file on the disk of the database: a segment of the log needs 16 MB.
SET LOCAL work_mem = '64kB';
SET LOCAL temp_tablespaces = '';
WITH written AS MATERIALIZED (
    SELECT repeat('x', 8000) AS block FROM generate_series(1, 2600)
)
SELECT count(*) FROM written

-- name: transactions
-- Transactions that are open for long, the oldest first. $1 minimum age, $2 limit.
SELECT pid, application_name AS name, state,
       extract(epoch FROM clock_timestamp() - xact_start)::float8 AS seconds
FROM pg_stat_activity
WHERE datname = current_database() AND backend_type = 'client backend'
  AND pid <> pg_backend_pid() AND clock_timestamp() - xact_start > $1::interval
ORDER BY xact_start
LIMIT $2

-- name: consumers
-- Jobs whose orders reach no worker: the error of their consumer, or null for a job that a live
-- worker serves and no application declares. $1 age of the last heartbeat of live workers, $2 limit.
SELECT name AS job, consumer_error AS error FROM dispatcher.job_limit
WHERE consumer_error IS NOT NULL
UNION ALL
(SELECT DISTINCT served.job, NULL
 FROM dispatcher.worker CROSS JOIN LATERAL unnest(worker.jobs) AS served (job)
 WHERE worker.last_heard_at > clock_timestamp() - $1::interval
   AND NOT EXISTS (SELECT FROM dispatcher.job_limit WHERE job_limit.name = served.job))
ORDER BY 1
LIMIT $2
