"""Common base of PostgreSQL and NATS: a folder, a loopback port and a supervised process."""

import asyncio
import secrets
import signal
import socket
from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

from headway_tracing.log import get_logger

from headway_embedded import data_folder
from headway_embedded.accounts import Account
from headway_embedded.supervised import STOP_SECONDS, SupervisedProcess

log = get_logger(__name__)

LOOPBACK = "127.0.0.1"

# Below the ephemeral range: a client that reconnects to a stopped server could otherwise be given
# that very port, and the server could not start again.
FIRST_PORT, LAST_PORT = 20_000, 32_000
FREE_PORT_ATTEMPTS = 200

START_SECONDS = 60.0
PREDECESSOR_SECONDS = 15.0
POLL_SECONDS = 0.01
PORT_ATTEMPTS = 3


class Server(ABC):
    """A server that can be started, stopped, killed and started again on the same port."""

    title: ClassVar[str]
    name: ClassVar[str]
    stop_signal: ClassVar[signal.Signals]
    environment: ClassVar[Mapping[str, str] | None] = None

    def __init__(self, folder: Path, *, port: int | None = None) -> None:
        self.folder = folder.absolute()
        self.log = self.folder / "logs" / f"{self.name}.log"
        self.password_file = self.folder / f"{self.name}.password"
        self.recovered = False
        self.notes: list[str] = []
        self._port = port
        self._lock = data_folder.Lock(self.folder / f"{self.name}.lock")
        self._account: Account | None = None
        self._process: SupervisedProcess | None = None

    @property
    def port(self) -> int:
        """The requested port, or the port chosen at the first start."""
        if self._port is None:
            raise data_folder.EmbeddedError(f"{self.title} has no port yet; start it first")
        return self._port

    @property
    def process(self) -> SupervisedProcess:
        """The running program and its supervisor."""
        if self._process is None:
            raise data_folder.EmbeddedError(
                f"{self.title} in {self.folder} is not running; start it first"
            )
        return self._process

    @property
    def process_id(self) -> int:
        """The server's process id."""
        return self.process.process_id

    @property
    def password(self) -> str:
        """The password of the server's only user."""
        return self.password_file.read_text().strip()

    async def start(self) -> None:
        """Start the server and return when it is ready."""
        if self._process is not None and self._process.returncode is None:
            raise data_folder.EmbeddedError(
                f"{self.title} in {self.folder} already runs as process {self.process_id}; "
                "stop it first"
            )
        self._forget(clean=False)
        with data_folder.folder_errors(self.folder):
            data_folder.make_folder(self.folder)
            if not await self._lock.take(PREDECESSOR_SECONDS):
                raise data_folder.EmbeddedError(
                    f"{self.title} of an earlier run by process {self._lock.holder()} still uses "
                    f"data folder {self.folder}; end it or choose another folder with --data"
                )
            self.recovered = self._lock.was_unclean
            try:
                if self._port is not None and not port_is_free(self._port):
                    raise data_folder.EmbeddedError(
                        f"port {self._port} for {self.title} is in use; "
                        "stop the process that listens there or choose another port"
                    )
                await self._prepare()
                await self._launch()
            except BaseException:
                self._lock.release(clean=not self.recovered)
                raise

    async def stop(self, within: float = STOP_SECONDS) -> None:
        """Stop orderly, and by force after `within` seconds."""
        if self._process is None:
            return
        was_running = self._process.returncode is None
        code = await self._process.stop(within)
        if was_running and code != 0:
            log.warning(
                "embedded server did not stop orderly; the next start recovers its data",
                server=self.title,
                seconds=within,
                exit_code=code,
                log=self.log,
            )
        self._forget(clean=was_running and code == 0)

    async def kill(self) -> None:
        """Kill the server with SIGKILL, like a crash."""
        self.process.kill()
        await self.process.wait()
        self._forget(clean=False)

    @abstractmethod
    async def _prepare(self) -> None:
        """Prepare the folder for a start."""

    @abstractmethod
    def _command(self, port: int) -> list[str | Path]:
        """The program and its arguments."""

    @abstractmethod
    def _is_ready(self, process_id: int) -> bool:
        """Return whether the process accepts clients."""

    async def _launch(self) -> None:
        """Start the program on its port, or on a free port at the first start."""
        for attempt in range(1, PORT_ATTEMPTS + 1):
            port = self._port or free_port()
            try:
                self._process = await self._run(port)
            except data_folder.EmbeddedError:
                # Another process may have taken the free port first.
                if self._port is not None or attempt == PORT_ATTEMPTS or port_is_free(port):
                    raise
            else:
                self._port = port
                return

    async def _run(self, port: int) -> SupervisedProcess:
        """Start the program with its log, and wait until it is ready."""
        process = await self._start_program(
            self._command(port), self.log, stop_signal=self.stop_signal
        )
        try:
            await self._until_ready(process)
        except BaseException:
            await process.stop()
            raise
        return process

    async def _start_program(
        self, command: list[str | Path], log_file: Path, **options: Any
    ) -> SupervisedProcess:
        """Start a program with its log; it holds the server's lock."""
        with data_folder.fresh_log(log_file) as output:
            return await SupervisedProcess.start(
                command,
                env=self.environment,
                user=self._account,
                stdout=output,
                stderr=output,
                held=(self._lock.descriptor,),
                **options,
            )

    def _create_password(self) -> None:
        """Write a new password that needs no quoting in a URL."""
        data_folder.write_secret(self.password_file, f"{secrets.token_urlsafe(24)}\n".encode())

    async def _until_ready(self, process: SupervisedProcess) -> None:
        """Wait until the server is ready; raise if it ends or is too slow."""
        ended = asyncio.ensure_future(process.wait())
        try:
            async with asyncio.timeout(START_SECONDS):
                while not ended.done():
                    if self._is_ready(process.process_id):
                        return
                    await asyncio.wait([ended], timeout=POLL_SECONDS)
            fault = f"ended at its start with exit code {ended.result()}"
        except TimeoutError:
            fault = f"was not ready within {START_SECONDS:.0f} seconds"
        finally:
            ended.cancel()
        raise data_folder.EmbeddedError(
            f"{self.title} {fault}; see {self.log}, which ends:\n{data_folder.last_lines(self.log)}"
        )

    def _forget(self, *, clean: bool) -> None:
        """Drop an ended process and release the lock on its data."""
        self._process = None
        self._lock.release(clean=clean)


def port_is_free(port: int) -> bool:
    """Return whether a server could listen on the port now."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((LOOPBACK, port))
        except OSError:
            return False
    return True


def free_port() -> int:
    """Return a free port, chosen at random so that two searches rarely collide."""
    for _ in range(FREE_PORT_ATTEMPTS):
        port = FIRST_PORT + secrets.randbelow(LAST_PORT - FIRST_PORT)
        if port_is_free(port):
            return port
    raise data_folder.EmbeddedError(
        f"no free port found on {LOOPBACK} between {FIRST_PORT} and {LAST_PORT}; "
        "stop other servers or name a port"
    )
