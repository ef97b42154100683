"""PostgreSQL as an embedded server."""

import signal
from collections.abc import Mapping
from pathlib import Path

from headway_embedded.accounts import Account, open_installation, open_way, server_account
from headway_embedded.binaries import postgres_programs
from headway_embedded.cluster import DATABASE, ENVIRONMENT, ROLE, Cluster
from headway_embedded.server import LOOPBACK, Server

SETTINGS = {
    "listen_addresses": LOOPBACK,
    "max_connections": "200",
    "shared_buffers": "64MB",
    "huge_pages": "off",
    "timezone": "UTC",
    "log_timezone": "UTC",
    "log_checkpoints": "off",
}
DURABLE = {"fsync": "on", "synchronous_commit": "on", "full_page_writes": "on"}
NOT_DURABLE = dict.fromkeys(DURABLE, "off")

# The limit of a socket's path, minus room for the socket's own name.
LONGEST_SOCKET_FOLDER = 80

# The line of postmaster.pid with the server's status.
STATUS_LINE = 7


class PostgresServer(Server):
    """A PostgreSQL with the role and the database `headway`; `settings` override the defaults."""

    title = "PostgreSQL"
    name = "postgres"
    # A fast shutdown: end sessions, write data.
    stop_signal = signal.SIGINT
    # Not inherited: variables such as PGPORT or PGOPTIONS would change the server.
    environment = ENVIRONMENT

    def __init__(
        self,
        folder: Path,
        *,
        port: int | None = None,
        durable: bool = True,
        settings: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(folder, port=port)
        self._durable = durable
        self._settings = dict(settings or {})
        self._cluster = Cluster(self.folder)
        self._programs = Path()

    @property
    def url(self) -> str:
        """The database's URL with the password."""
        return f"postgresql://{ROLE}:{self._cluster.password()}@{LOOPBACK}:{self.port}/{DATABASE}"

    @property
    def socket_url(self) -> str:
        """The URL through a socket file, which is faster; `url` if the path is too long for one."""
        if not self._socket_folder:
            return self.url
        login = f"{ROLE}:{self._cluster.password()}"
        return f"postgresql://{login}@/{DATABASE}?host={self._socket_folder}&port={self.port}"

    @property
    def _socket_folder(self) -> str:
        folder = str(self._cluster.data.resolve())
        return folder if len(folder.encode()) <= LONGEST_SOCKET_FOLDER else ""

    async def _prepare(self) -> None:
        """Find the program and the account, and create the data at the first start."""
        self._programs = postgres_programs()
        exists = self._cluster.exists()
        if exists:
            self._cluster.check()
        self._account = server_account(self._cluster.data if exists else None)
        if self._account is not None:
            self._grant_access(self._account)
        if not exists:
            lock = self._lock.descriptor
            await self._cluster.create(
                self._programs, self._account, durable=self._durable, lock=lock
            )
        self._cluster.drop_stale_pid_file()

    def _grant_access(self, account: Account) -> None:
        """Let the account reach the program and its data, and note the changes."""
        open_installation(self._programs)
        for target in (self._cluster.data, self._programs):
            self.notes += [
                f"folder {folder} can now be entered by all users (o+x), because PostgreSQL "
                "cannot run as root and has to reach its files"
                for folder in open_way(target, account)
            ]

    def _command(self, port: int) -> list[str | Path]:
        """Return the command with all settings, so that upgrades of Headway change them."""
        durability = DURABLE if self._durable else NOT_DURABLE
        own = {"port": str(port), "unix_socket_directories": self._socket_folder}
        settings = SETTINGS | durability | own | self._settings
        options = [part for name, value in settings.items() for part in ("-c", f"{name}={value}")]
        return [self._programs / "postgres", "-D", self._cluster.data, *options]

    def _is_ready(self, process_id: int) -> bool:
        """Return whether postmaster.pid says that the server is ready."""
        try:
            lines = (self._cluster.data / "postmaster.pid").read_text().splitlines()
        except FileNotFoundError:
            return False
        written = len(lines) > STATUS_LINE and lines[0] == str(process_id)
        return written and lines[STATUS_LINE].strip() == "ready"
