"""Real PostgreSQL and NATS servers, from wheels, as child processes with a data folder.

Each server has a *supervisor*: a small process between it and us that starts the server in its own
session and listens to us through a socket. When we ask, or when our process is gone, the
supervisor stops the server, by force after a time limit. On Linux the kernel stops the server even
if the supervisor is killed. `SupervisedProcess` runs any other program the same way.

Two kinds of locks guard the folder. Our process holds `lock`: another process fails at once with
"in use". Each server's supervisor and processes inherit that server's lock: after we are killed,
the next start waits until the last of them is gone, so two servers never use the same data. A lock
file contains its holder's process id and a clean stop empties it, so an id in it means that the
last stop was unclean. PostgreSQL then replays its log and NATS its store.
"""

from headway_embedded.data_folder import EmbeddedError, last_lines, write_secret
from headway_embedded.nats import NatsServer
from headway_embedded.postgres import PostgresServer
from headway_embedded.server import Server, free_port, port_is_free
from headway_embedded.servers import run_servers
from headway_embedded.supervised import SupervisedProcess

__all__ = [
    "EmbeddedError",
    "NatsServer",
    "PostgresServer",
    "Server",
    "SupervisedProcess",
    "free_port",
    "last_lines",
    "port_is_free",
    "run_servers",
    "write_secret",
]
