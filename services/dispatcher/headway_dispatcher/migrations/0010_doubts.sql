-- How often a run may have begun unseen is in history from now on; what was counted before is noted
-- once.
INSERT INTO dispatcher.history
    (event_id, type, subject, source, occurred_at, data, accepted, work_id, run_id, lease_id,
     recorded_at)
SELECT format('doubt.%s.%s.%s', run_id, reissued, begun_elsewhere), 'headway.run.in_doubt.v1',
       run_id::text, 'headway/dispatcher', clock_timestamp(),
       jsonb_build_object('work', work_id, 'run', run_id, 'reissued', reissued,
                          'begun_elsewhere', begun_elsewhere),
       true, work_id, run_id, lease_id, clock_timestamp()
FROM dispatcher.metadata
WHERE reissued > 0 OR begun_elsewhere > 0;
