"""The worker runtime: the protocol of `PROTOCOL.md` in Python.

`runtime` fetches orders for the jobs that the worker serves. `leases` claims a lease and publishes
its events under the broker's fence. `lease_runner` runs the bodies of its runs one after the other:
as coroutines, in threads (`body_thread`), or in processes that `fork_server` forks
(`forked_process` is the code of such a process, `pipe_frames` the messages between the two).
`reports` publishes progress and log lines, and `heartbeat` sends the worker's state and its leases
every few seconds. A worker connects to NATS only.
"""

from headway.worker.runtime import UnknownJobs, Worker, WorkerSettings, choose_jobs

__all__ = ["UnknownJobs", "Worker", "WorkerSettings", "choose_jobs"]
