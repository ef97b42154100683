-- name: i2_run_of_nothing
-- I2: a run whose work or lease is gone.
SELECT run_id FROM dispatcher.run
WHERE NOT EXISTS (SELECT FROM dispatcher.work_queue WHERE work_queue.id = work_id)
   OR NOT EXISTS (SELECT FROM dispatcher.lease WHERE lease.id = lease_id)

-- name: i6_enqueued_and_lost
-- I6: what was enqueued was queued, and its work is nowhere. Of settled work only its key is
-- kept, without the input.
SELECT work_id FROM scheduler.enqueued
WHERE state = 'queued' AND (key IS NULL OR input IS NOT NULL)
  AND NOT EXISTS (SELECT FROM scheduler.work WHERE work.id = work_id)
  AND NOT EXISTS (SELECT FROM dispatcher.work_queue WHERE work_queue.id = work_id)

-- name: i1_fired_and_lost
-- I1: an occurrence fired, and its work is neither outstanding nor settled.
SELECT manifest_id, cause FROM scheduler.occurrence
WHERE decision = 'queued' AND outcome IS NULL
  AND NOT EXISTS (SELECT FROM scheduler.work WHERE work.id = occurrence.work_id)

-- name: i1_undecided_work
-- I1: work of a manifest that no occurrence tells of. What the clean-up may have forgotten there
-- is as old as what it forgets here; manifests that the scheduler does not know are a test's own.
SELECT id FROM dispatcher.work_queue
WHERE job <> '' AND EXISTS (SELECT FROM scheduler.manifest WHERE manifest.id = manifest_id)
  AND NOT EXISTS (
    SELECT FROM scheduler.occurrence
    WHERE occurrence.manifest_id = work_queue.manifest_id
      AND occurrence.cause = work_queue.cause AND occurrence.work_id = work_queue.id)

-- name: i1_two_decisions
-- I1: one cause of a manifest was decided about twice.
SELECT manifest_id, cause FROM scheduler.occurrence GROUP BY manifest_id, cause HAVING count(*) > 1

-- name: i2_two_outcomes
-- I2: two accepted outcomes of one run.
SELECT run_id FROM dispatcher.history_event AS history
WHERE accepted AND type IN ('headway.run.completed.v1', 'headway.run.failed.v1',
                            'headway.run.cancelled.v1')
GROUP BY run_id HAVING count(*) > 1

-- name: i2_two_live_runs
-- I2: two live runs of one piece of work.
SELECT work_id FROM dispatcher.run AS metadata
WHERE state IN ('pending', 'in_progress') GROUP BY work_id HAVING count(*) > 1

-- name: i2_stray_run
-- I2: a live run of work that is not dispatched, or has another run.
SELECT metadata.run_id FROM dispatcher.run AS metadata
JOIN dispatcher.work_queue ON work_queue.id = metadata.work_id
WHERE metadata.state IN ('pending', 'in_progress')
  AND (work_queue.state <> 'dispatched' OR work_queue.run_id <> metadata.run_id)

-- name: i2_end_without_outcome
-- I2: an ended run without an accepted outcome, unless a snapshot stands for it.
SELECT run_id FROM dispatcher.run AS metadata
WHERE finished_at IS NOT NULL AND NOT EXISTS (
    SELECT FROM dispatcher.history_event AS history
    WHERE history.work_id = metadata.work_id AND accepted
      AND (type = 'headway.history.snapshot.v1'
           OR (history.run_id = metadata.run_id
               AND type IN ('headway.run.completed.v1', 'headway.run.failed.v1',
                            'headway.run.cancelled.v1'))))

-- name: i4_not_the_claimant
-- I4: an accepted event of somebody who did not hold the lease.
SELECT history.event_id FROM dispatcher.history
JOIN dispatcher.lease ON lease.id = history.lease_id
WHERE history.accepted AND history.source LIKE 'worker/%'
  AND ((history.data ->> 'nonce') IS DISTINCT FROM lease.nonce
       OR history.source IS DISTINCT FROM 'worker/' || lease.claimed_by)

-- name: i5_outcome_changed
-- I5: a run is not in the state that its one accepted outcome put it in.
SELECT metadata.run_id FROM dispatcher.run AS metadata
JOIN dispatcher.history_event AS history ON history.work_id = metadata.work_id
 AND history.run_id = metadata.run_id AND history.accepted
WHERE history.type IN ('headway.run.completed.v1', 'headway.run.failed.v1',
                       'headway.run.cancelled.v1')
  AND history.type <> 'headway.run.' || metadata.state || '.v1'

-- name: i5_settled_twice
-- I5: a round of work was settled in two ways.
SELECT work_id FROM dispatcher.history_event
WHERE accepted AND type = 'headway.work.settled.v1'
GROUP BY work_id, data ->> 'round' HAVING count(DISTINCT data ->> 'outcome') > 1

-- name: i6_outcome_not_told
-- I6: settled work that the scheduler still waits for, with nothing on its way.
SELECT work.id FROM scheduler.work
JOIN dispatcher.work_queue ON work_queue.id = work.id AND work_queue.state = 'settled'
WHERE NOT EXISTS (SELECT FROM dispatcher.outbox)
  AND work_queue.settled_at < clock_timestamp() - interval '10 seconds'

-- name: i6_letter_not_waited_for
-- I6: a dead letter that awaits somebody, and that the scheduler, which heard of it, does not ask
-- about: word of its retry could be lost for good.
SELECT dead_letter.id FROM dispatcher.dead_letter
JOIN scheduler.manifest ON manifest.id = dead_letter.manifest_id AND manifest.pruning_at IS NULL
JOIN scheduler.occurrence ON occurrence.manifest_id = dead_letter.manifest_id
 AND occurrence.work_id = dead_letter.work_id AND occurrence.settled_round >= dead_letter.round
WHERE dead_letter.state = 'awaiting'
  AND NOT EXISTS (SELECT FROM scheduler.unresolved
                  WHERE unresolved.dead_letter = dead_letter.id)

-- name: i6_stuck_with_an_ended_run
-- I6: dispatched work whose run has ended.
SELECT work_queue.id FROM dispatcher.work_queue
JOIN dispatcher.run AS metadata ON metadata.run_id = work_queue.run_id
WHERE work_queue.state = 'dispatched' AND metadata.finished_at IS NOT NULL

-- name: i6_stuck_with_an_ended_lease
-- I6: a live run whose lease has ended, so that nobody will ever end it.
SELECT metadata.run_id FROM dispatcher.run AS metadata
JOIN dispatcher.lease ON lease.id = metadata.lease_id
WHERE metadata.finished_at IS NULL AND lease.ended_at IS NOT NULL

-- name: i6_no_reason
-- I6: work that waits and does not say why.
SELECT id FROM dispatcher.work_queue
WHERE state IN ('queued', 'waiting') AND coalesce(wait_reason, '') = ''

-- name: i6_key_kept_from_who_waits
-- I6: work waits for a key that has room, and nobody will look at it: no change of the key is noted,
-- and nothing of its lane that comes before it is ready. Where limits differ, a smaller one that is
-- stated by what runs or comes before counts for it too.
WITH active AS (
    SELECT metadata.concurrency_key AS key, count(DISTINCT metadata.lease_id) AS leases,
           min(work_queue.concurrency_limit) AS least
    FROM dispatcher.run AS metadata
    JOIN dispatcher.work_queue ON work_queue.id = metadata.work_id
    WHERE metadata.state IN ('pending', 'in_progress') AND metadata.concurrency_key IS NOT NULL
    GROUP BY metadata.concurrency_key
), waiter AS (
    SELECT id, concurrency_key AS key, group_name, job, rank,
           min(concurrency_limit) OVER (PARTITION BY concurrency_key ORDER BY rank) AS least
    FROM dispatcher.work_queue
    WHERE state IN ('queued', 'waiting') AND hold_reason = 'key'
)
SELECT waiter.id
FROM waiter
LEFT JOIN active ON active.key = waiter.key
WHERE least(waiter.least, active.least) > coalesce(active.leases, 0)
  AND NOT EXISTS (SELECT FROM dispatcher.key_changed WHERE key_changed.key = waiter.key)
  AND NOT EXISTS (
    SELECT FROM dispatcher.work_queue AS ready
    WHERE ready.concurrency_key = waiter.key AND ready.state IN ('queued', 'waiting')
      AND ready.hold_reason IS NULL AND ready.group_name = waiter.group_name
      AND ready.job = waiter.job AND ready.rank <= waiter.rank)

-- name: i8_event_without_a_word
-- I8: an event that was received, and is in history neither as accepted nor as refused.
SELECT lease_id, event_id FROM dispatcher.inbox
WHERE NOT EXISTS (SELECT FROM dispatcher.history WHERE history.event_id = inbox.event_id)

-- name: i8_rejected_without_a_reason
-- I8: a message that was put aside without saying why.
SELECT id FROM dispatcher.rejected WHERE reason = ''
UNION ALL
SELECT id FROM scheduler.rejected WHERE reason = ''

-- name: secret_in_history
-- Nobody finds the token of a lease in what everybody may read.
SELECT event_id FROM dispatcher.history WHERE data ? 'token'
