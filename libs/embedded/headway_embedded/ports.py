"""Loopback ports."""

import secrets
import socket

from headway_embedded.errors import EmbeddedError

LOOPBACK = "127.0.0.1"

# Below the range from which systems number outgoing connections: there, a client that tries to
# reach a stopped server could be given that very port, and the server could not come back to it.
FIRST_PORT, LAST_PORT = 20_000, 32_000
ATTEMPTS = 200


def port_is_free(port: int) -> bool:
    """Whether a server could listen on the port now."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((LOOPBACK, port))
        except OSError:
            return False
    return True


def free_port() -> int:
    """A port that nobody listens on, chosen at random so that two searches rarely meet."""
    for _ in range(ATTEMPTS):
        port = FIRST_PORT + secrets.randbelow(LAST_PORT - FIRST_PORT)
        if port_is_free(port):
            return port
    raise EmbeddedError(
        f"no free port found on {LOOPBACK} between {FIRST_PORT} and {LAST_PORT}; "
        "stop other servers or name a port"
    )
