"""What PostgreSQL and NATS have in common: one folder, one port, one supervised process."""

import asyncio
import logging
import os
import signal
from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar

from headway_embedded.accounts import Account
from headway_embedded.errors import EmbeddedError, naming_folder
from headway_embedded.locks import Lock
from headway_embedded.logs import fresh_log, last_lines
from headway_embedded.ports import free_port, port_is_free
from headway_embedded.supervised import STOP_SECONDS, SupervisedProcess

logger = logging.getLogger(__name__)

START_SECONDS = 60.0
PREDECESSOR_SECONDS = 15.0
POLL_SECONDS = 0.01
PORT_ATTEMPTS = 3


class Server(ABC):
    """A server that can be started, stopped, killed and started again on the same port."""

    title: ClassVar[str]
    name: ClassVar[str]
    stop_signal: ClassVar[signal.Signals]

    def __init__(self, folder: Path, *, port: int | None = None) -> None:
        self.folder = folder.absolute()
        self.log = self.folder / "logs" / f"{self.name}.log"
        self.recovered = False
        self.notes: list[str] = []
        self._port = port
        self._lock = Lock(self.folder / f"{self.name}.lock")
        self._process: SupervisedProcess | None = None

    @property
    @abstractmethod
    def url(self) -> str:
        """Where clients connect; kept over restarts."""

    @property
    def port(self) -> int:
        """The port asked for, or chosen at the first start."""
        if self._port is None:
            raise EmbeddedError(f"{self.title} has no port yet; start it first")
        return self._port

    @property
    def process(self) -> SupervisedProcess:
        """The running program and its supervisor."""
        if self._process is None:
            raise EmbeddedError(f"{self.title} in {self.folder} is not running; start it first")
        return self._process

    @property
    def process_id(self) -> int:
        """The process id of the server itself."""
        return self.process.process_id

    async def start(self) -> None:
        """Start the server and return when it is ready."""
        if self._process is not None and self._process.returncode is None:
            raise EmbeddedError(
                f"{self.title} in {self.folder} already runs as process {self.process_id}; "
                "stop it first"
            )
        self._forget(clean=False)
        with naming_folder(self.folder):
            self.folder.mkdir(parents=True, exist_ok=True)
            await self._take_lock()
            try:
                self._check_port()
                await self._prepare()
                await self._launch()
            except BaseException:
                self._lock.release(clean=not self.recovered)
                raise

    async def stop(self, within: float = STOP_SECONDS) -> None:
        """Stop in good order, and by force after `within` seconds."""
        if self._process is None:
            return
        was_running = self._process.returncode is None
        code = await self._process.stop(within)
        if was_running and code != 0:
            logger.warning(
                "%s did not stop in good order within %g s (exit code %d); the next start "
                "recovers its data; see %s",
                *(self.title, within, code, self.log),
            )
        self._forget(clean=was_running and code == 0)

    async def kill(self) -> None:
        """End the server with SIGKILL, as a crash would."""
        self.process.kill()
        await self.process.wait()
        self._forget(clean=False)

    async def wait(self) -> int:
        """Wait until the server ends, and return its exit code, negative for a signal."""
        return await self.process.wait()

    @abstractmethod
    async def _prepare(self) -> None:
        """Make the folder ready for a start."""

    @abstractmethod
    def _command(self, port: int) -> list[str | Path]:
        """The program and its arguments."""

    @abstractmethod
    def _is_ready(self, process_id: int) -> bool:
        """Whether the process accepts clients now."""

    def _environment(self) -> Mapping[str, str]:
        """The program's environment."""
        return os.environ

    def _account(self) -> Account | None:
        """The account to run as, or None for our own."""
        return None

    async def _take_lock(self) -> None:
        """Wait until the last process of an earlier run is gone."""
        if not await self._lock.take(PREDECESSOR_SECONDS):
            raise EmbeddedError(
                f"{self.title} of an earlier run by process {self._lock.holder()} still uses data "
                f"folder {self.folder}; end it or choose another folder with --data"
            )
        self.recovered = self._lock.left_behind

    def _check_port(self) -> None:
        """Refuse a fixed port that somebody else has."""
        if self._port is not None and not port_is_free(self._port):
            raise EmbeddedError(
                f"port {self._port} for {self.title} is in use; "
                "stop what listens there or choose another port"
            )

    async def _launch(self) -> None:
        """Start the program on the port, or on one that is free if none is fixed yet."""
        for attempt in range(1, PORT_ATTEMPTS + 1):
            port = self._port or free_port()
            try:
                self._process = await self._run(port)
            except EmbeddedError:
                # Somebody may have been quicker to listen on the port that we saw free.
                if self._port is not None or attempt == PORT_ATTEMPTS or port_is_free(port):
                    raise
            else:
                self._port = port
                return

    async def _run(self, port: int) -> SupervisedProcess:
        """Start the program with its log, and wait until it is ready."""
        with fresh_log(self.log) as log:
            process = await SupervisedProcess.start(
                self._command(port),
                stop_signal=self.stop_signal,
                env=self._environment(),
                user=self._account(),
                stdout=log,
                stderr=log,
                held=(self._lock.descriptor,),
            )
        try:
            await self._until_ready(process)
        except BaseException:
            await process.stop()
            raise
        return process

    async def _until_ready(self, process: SupervisedProcess) -> None:
        """Wait until the server is ready; its end and the deadline are errors."""
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
        raise EmbeddedError(
            f"{self.title} {fault}; see {self.log}, which ends:\n{last_lines(self.log)}"
        )

    def _forget(self, *, clean: bool) -> None:
        """Let go of a process that has ended, and of the lock on its data."""
        self._process = None
        self._lock.release(clean=clean)
