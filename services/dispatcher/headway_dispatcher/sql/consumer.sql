-- name: jobs
-- Return declared jobs: whether each needs a consumer, and the last error. A retired job needs one
-- until its last work is settled. $1 jobs that have a consumer.
SELECT job_limit.name, job_limit.consumer_error AS error,
       NOT job_limit.retired OR job_limit.name = ANY($1::text[]) AND EXISTS (
           SELECT FROM dispatcher.unsettled WHERE unsettled.job = job_limit.name) AS needed
FROM dispatcher.job_limit
ORDER BY job_limit.name

-- name: note_error
-- Store why a consumer could not be created; null if it was. $1 job, $2 error.
UPDATE dispatcher.job_limit SET consumer_error = $2 WHERE name = $1
