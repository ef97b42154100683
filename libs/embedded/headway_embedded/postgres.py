"""PostgreSQL as an embedded server; its data is created atomically and checked at every start."""

import os
import shutil
import signal
from collections.abc import Mapping
from pathlib import Path

from headway_embedded.accounts import open_way, server_account
from headway_embedded.binaries import postgres_major, postgres_programs
from headway_embedded.data_folder import EmbeddedError, last_lines
from headway_embedded.server import LOOPBACK, Server

ROLE = "headway"
DATABASE = "headway"

SETTINGS = {
    "listen_addresses": LOOPBACK,
    "max_connections": "200",
    "shared_buffers": "64MB",
    "huge_pages": "off",
    "timezone": "UTC",
    "log_timezone": "UTC",
    "log_checkpoints": "off",
}
# Not inherited: variables such as PGPORT or PGOPTIONS would change the server. TZ saves initdb a
# search through all time zones.
ENVIRONMENT = {"PATH": os.defpath, "TZ": "UTC", "LC_ALL": "C"}
DURABILITY = ("fsync", "synchronous_commit", "full_page_writes")

# The builtin locale sorts by code point and supports Unicode, the same on every system.
LOCALE = (
    *("--encoding=UTF8", "--locale-provider=builtin"),
    *("--builtin-locale=C.UTF-8", "--locale=C"),
)

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
        self._durability = "on" if durable else "off"
        self._settings = dict(settings or {})
        self._data = self.folder / "postgres"
        self._programs = Path()

    @property
    def url(self) -> str:
        """The database's URL with the password."""
        return f"postgresql://{ROLE}:{self.password}@{LOOPBACK}:{self.port}/{DATABASE}"

    @property
    def socket_url(self) -> str:
        """The URL through a socket file, which is faster; `url` if the path is too long for one."""
        if not self._socket_folder:
            return self.url
        query = f"host={self._socket_folder}&port={self.port}"
        return f"postgresql://{ROLE}:{self.password}@/{DATABASE}?{query}"

    @property
    def _socket_folder(self) -> str:
        folder = str(self._data.resolve())
        return folder if len(folder.encode()) <= LONGEST_SOCKET_FOLDER else ""

    async def _prepare(self) -> None:
        """Find the program and the account, and create the data at the first start."""
        self._programs = postgres_programs()
        exists = (self._data / "PG_VERSION").exists()
        self._check_data(exists=exists)
        self._account = server_account(self._data if exists else None)
        if self._account is not None:
            for target in (self._data, self._programs):
                self.notes += [
                    f"folder {folder} can now be entered by all users (o+x), because PostgreSQL "
                    "cannot run as root and has to reach its files"
                    for folder in open_way(target, self._account)
                ]
        if not exists:
            await self._create_data()
        self._drop_stale_pid_file()

    def _check_data(self, *, exists: bool) -> None:
        """Raise if the folder holds anything but data that this PostgreSQL can read."""
        if not exists:
            if self._data.exists() and any(self._data.iterdir()):
                raise EmbeddedError(
                    f"folder {self._data} holds no PostgreSQL data but is not empty; "
                    "move it away or choose another folder with --data"
                )
            return
        found = (self._data / "PG_VERSION").read_text().strip()
        if found != postgres_major():
            raise EmbeddedError(
                f"folder {self._data} was written by PostgreSQL {found}, and this is PostgreSQL "
                f"{postgres_major()}; move the data with pg_dump and psql, or choose another "
                "folder with --data"
            )
        if not self.password_file.exists():
            raise EmbeddedError(
                f"file {self.password_file} is missing; restore it, or move {self._data} away "
                "to begin with an empty database"
            )

    async def _create_data(self) -> None:
        """Create the data in another folder and move them into place when complete."""
        unfinished = self.folder / "postgres.new"
        shutil.rmtree(unfinished, ignore_errors=True)
        unfinished.mkdir(mode=0o700)
        self._create_password()
        if self._account is not None:
            os.chown(unfinished, *self._account)
            os.chown(self.password_file, *self._account)
        initdb: list[str | Path] = [self._programs / "initdb", "-D", unfinished, "-U", ROLE]
        initdb += [*LOCALE, "--auth=scram-sha-256", f"--pwfile={self.password_file}"]
        initdb.append("--no-instructions")
        if self._durability == "off":
            initdb.append("--no-sync")
        await self._run_to_end(initdb)
        # Single-user mode needs no port, and no password on a command line.
        single: list[str | Path] = [self._programs / "postgres", "--single", "-D", unfinished]
        single += ["-c", f"fsync={self._durability}", "-c", "exit_on_error=on", "postgres"]
        await self._run_to_end(single, statement=f"CREATE DATABASE {DATABASE}\n")
        unfinished.replace(self._data)

    async def _run_to_end(self, command: list[str | Path], *, statement: str = "") -> None:
        """Run a program that creates data, with the statement as its input."""
        reader, writer = os.pipe()
        os.write(writer, statement.encode())
        os.close(writer)
        log_file = self.log.with_name("initdb.log")
        try:
            process = await self._start_program(command, log_file, stdin=reader)
        finally:
            os.close(reader)
        try:
            code = await process.wait()
        except BaseException:
            process.kill()
            raise
        if code != 0:
            raise EmbeddedError(
                f"cannot create a database in {self._data} (exit code {code}); "
                f"see {log_file}, which ends:\n{last_lines(log_file)}"
            )

    def _drop_stale_pid_file(self) -> None:
        """Remove a postmaster.pid whose process is no PostgreSQL, and the lock of its socket."""
        # PostgreSQL itself checks only whether the process id is in use: a zombie has it, or in a
        # restarted container another program.
        pid_file = self._data / "postmaster.pid"
        if not pid_file.exists():
            return
        process = Path("/proc", pid_file.read_text().partition("\n")[0].strip())
        try:
            name, _, fields = (process / "stat").read_text().rpartition(") ")
        except OSError:
            return
        if not name.endswith("(postgres") or fields.startswith("Z"):
            for stale in (pid_file, *self._data.glob(".s.PGSQL.*.lock")):
                stale.unlink()

    def _command(self, port: int) -> list[str | Path]:
        """Return the command with all settings, so that upgrades of Headway change them."""
        durability = dict.fromkeys(DURABILITY, self._durability)
        own = {"port": str(port), "unix_socket_directories": self._socket_folder}
        settings = SETTINGS | durability | own | self._settings
        options = [part for name, value in settings.items() for part in ("-c", f"{name}={value}")]
        return [self._programs / "postgres", "-D", self._data, *options]

    def _is_ready(self, process_id: int) -> bool:
        """Return whether postmaster.pid says that the server is ready."""
        try:
            lines = (self._data / "postmaster.pid").read_text().splitlines()
        except FileNotFoundError:
            return False
        written = len(lines) > STATUS_LINE and lines[0] == str(process_id)
        return written and lines[STATUS_LINE].strip() == "ready"
