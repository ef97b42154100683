"""PostgreSQL's data: created atomically, and checked at every start."""

import os
import shutil
from pathlib import Path

from headway_embedded.accounts import Account
from headway_embedded.binaries import postgres_major
from headway_embedded.data_folder import (
    EmbeddedError,
    fresh_log,
    last_lines,
    write_password,
)
from headway_embedded.supervised import SupervisedProcess

ROLE = "headway"
DATABASE = "headway"

# TZ saves initdb a search through all time zones. Nothing else is inherited.
ENVIRONMENT = {"PATH": os.defpath, "TZ": "UTC", "LC_ALL": "C"}

# The builtin locale sorts by code point and supports Unicode, the same on every system.
LOCALE = (
    *("--encoding=UTF8", "--locale-provider=builtin"),
    *("--builtin-locale=C.UTF-8", "--locale=C"),
)


class Cluster:
    """The files of a PostgreSQL: its data and the password of its only role."""

    def __init__(self, folder: Path) -> None:
        self.data = folder / "postgres"
        self.password_file = folder / "postgres.password"
        self._unfinished = folder / "postgres.new"
        self._log = folder / "logs" / "initdb.log"

    def exists(self) -> bool:
        """Return whether there are data; raise if the folder contains something else."""
        if (self.data / "PG_VERSION").exists():
            return True
        if self.data.exists() and any(self.data.iterdir()):
            raise EmbeddedError(
                f"folder {self.data} holds no PostgreSQL data but is not empty; "
                "move it away or choose another folder with --data"
            )
        return False

    def check(self) -> None:
        """Raise if this PostgreSQL cannot read the data, or if the password is missing."""
        found = (self.data / "PG_VERSION").read_text().strip()
        if found != postgres_major():
            raise EmbeddedError(
                f"folder {self.data} was written by PostgreSQL {found}, and this is PostgreSQL "
                f"{postgres_major()}; move the data with pg_dump and psql, or choose another "
                "folder with --data"
            )
        if not self.password_file.exists():
            raise EmbeddedError(
                f"file {self.password_file} is missing; restore it, or move {self.data} away "
                "to begin with an empty database"
            )

    def password(self) -> str:
        """Read the password of the role."""
        return self.password_file.read_text().strip()

    def drop_stale_pid_file(self) -> None:
        """Remove a postmaster.pid whose process is no PostgreSQL."""
        # PostgreSQL itself checks only whether the process id is in use: a zombie has it, or in a
        # restarted container another program.
        pid_file = self.data / "postmaster.pid"
        if not pid_file.exists():
            return
        process = Path("/proc", pid_file.read_text().partition("\n")[0].strip())
        try:
            name, _, fields = (process / "stat").read_text().rpartition(") ")
        except OSError:
            return
        if not name.endswith("(postgres") or fields.startswith("Z"):
            pid_file.unlink()

    async def create(
        self, programs: Path, account: Account | None, *, durable: bool, lock: int
    ) -> None:
        """Create the data in another folder and move them into place when complete."""
        shutil.rmtree(self._unfinished, ignore_errors=True)
        self._unfinished.mkdir(mode=0o700)
        write_password(self.password_file)
        if account is not None:
            os.chown(self._unfinished, *account)
            os.chown(self.password_file, *account)
        initdb: list[str | Path] = [programs / "initdb", "-D", self._unfinished, "-U", ROLE]
        initdb += [*LOCALE, "--auth=scram-sha-256", f"--pwfile={self.password_file}"]
        initdb.append("--no-instructions")
        if not durable:
            initdb.append("--no-sync")
        await self._run(initdb, account, lock=lock)
        # Single-user mode needs no port, and no password on a command line.
        single: list[str | Path] = [programs / "postgres", "--single", "-D", self._unfinished]
        single += ["-c", f"fsync={'on' if durable else 'off'}", "-c", "exit_on_error=on"]
        statement = f"CREATE DATABASE {DATABASE}\n"
        await self._run([*single, "postgres"], account, lock=lock, statement=statement)
        self._unfinished.replace(self.data)

    async def _run(
        self,
        command: list[str | Path],
        account: Account | None,
        *,
        lock: int,
        statement: str = "",
    ) -> None:
        """Run a program to its end, with the statement as its input."""
        reader, writer = os.pipe()
        os.write(writer, statement.encode())
        os.close(writer)
        try:
            with fresh_log(self._log) as log:
                process = await SupervisedProcess.start(
                    command,
                    env=ENVIRONMENT,
                    user=account,
                    stdin=reader,
                    stdout=log,
                    stderr=log,
                    held=(lock,),
                )
        finally:
            os.close(reader)
        try:
            code = await process.wait()
        except BaseException:
            process.kill()
            raise
        if code != 0:
            raise EmbeddedError(
                f"cannot create a database in {self.data} (exit code {code}); "
                f"see {self._log}, which ends:\n{last_lines(self._log)}"
            )
