"""Real PostgreSQL and NATS servers, from wheels, as child processes with a data folder.

Each server has a *supervisor*: a small process between it and us that starts the server in its own
session and listens to us through a socket. When we ask, or when our process is gone, the
supervisor stops the server, by force after a time limit. On Linux the kernel stops the server even
if the supervisor is killed. `SupervisedProcess` runs any other program that way.

Two kinds of locks guard the folder. `lock` is held by our process: another process fails at once
with "in use". Each server's lock is inherited by its supervisor and all of its processes: after we
were killed, the next start waits until the last of them is gone, so two servers never use the same
data. A lock file names its holder and is emptied by a clean stop,
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
from headway_embedded.supervised import SupervisedProcess

__all__ = [
    "Account",
    "EmbeddedError",
    "NatsServer",
    "PostgresServer",
    "Servers",
    "SupervisedProcess",
    "free_port",
    "last_lines",
    "run_servers",
]
