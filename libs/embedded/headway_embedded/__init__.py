"""Real PostgreSQL and real NATS, from wheels, as child processes with a data folder.

Theory of operation. Every server has a *warden*: a small process between it and us, which starts
it in a session of its own and listens to us through a socket. When we ask, or when we are gone for
whatever reason, the warden ends the server: in good order first, by force when that takes too
long. On Linux the kernel ends the server even when the warden itself is killed. Any other program
can be run that way with `Warded`.

Two kinds of locks guard the folder. `lock` is ours alone: while we live, another process is told
at once that the folder is in use. Each server's lock is inherited by its warden and by all of its
processes: after we were killed the next start waits until the last of them is gone, and two
servers never touch the same data. A lock's file names its holder and is emptied by a clean stop,
so a name found in it is the mark of an unclean one. Nothing else is needed to recover: PostgreSQL
replays its log and NATS its store.
"""

from headway_embedded.accounts import Account
from headway_embedded.errors import EmbeddedError
from headway_embedded.logs import last_lines
from headway_embedded.nats import NatsServer
from headway_embedded.ports import free_port
from headway_embedded.postgres import PostgresServer
from headway_embedded.running import Servers, run_servers
from headway_embedded.supervised import Warded

__all__ = [
    "Account",
    "EmbeddedError",
    "NatsServer",
    "PostgresServer",
    "Servers",
    "Warded",
    "free_port",
    "last_lines",
    "run_servers",
]
