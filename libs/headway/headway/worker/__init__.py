"""The worker runtime: the protocol of `PROTOCOL.md` in Python.

A worker fetches orders for the jobs that it serves (`runtime`), claims their leases and
speaks for them under the broker's fence (`leases`), runs the bodies (`execution`), and
says every few seconds that it lives and what it holds (`heartbeat`). It talks to NATS
and to nothing else.
"""

from headway.worker.runtime import Worker, WorkerSettings

__all__ = ["Worker", "WorkerSettings"]
