"""The worker runtime: the protocol of `PROTOCOL.md` in Python.

A worker fetches orders for the jobs that it serves (`runtime`), claims their leases and
speaks for them under the broker's fence (`leases`), sees to their runs one after the other
(`tenure`), runs the bodies (`execution`), passes on what they tell of themselves
(`reports`), and says every few seconds that it lives and what it holds (`heartbeat`). A body
is a coroutine, a function in a thread (`threads`), or a function in a process of its own
(`nursery` on this side, `child` on the other). It talks to NATS and to nothing else.
"""

from headway.worker.runtime import UnknownJobs, Worker, WorkerSettings, choose_jobs

__all__ = ["UnknownJobs", "Worker", "WorkerSettings", "choose_jobs"]
