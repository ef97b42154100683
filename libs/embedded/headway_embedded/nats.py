"""NATS with JetStream as an embedded server."""

import json
import signal
from pathlib import Path

from headway_embedded.binaries import nats_program
from headway_embedded.ports import LOOPBACK
from headway_embedded.server import Server

MAX_PAYLOAD = 1 << 20

# Streams reserve their largest size when they are made. NATS would allow three quarters of the
# free disk, and on a small disk refuse them before a byte is written.
MAX_STORE = 64 << 30


class NatsServer(Server):
    """One NATS server; lines in `config_extra` are added to its configuration and win.

    They may name the server, add routes or accounts, but not move the log.
    """

    title = "NATS"
    name = "nats"
    stop_signal = signal.SIGTERM

    def __init__(self, folder: Path, *, port: int | None = None, config_extra: str = "") -> None:
        super().__init__(folder, port=port)
        self._config_extra = config_extra
        self._config = self.folder / "nats.conf"
        self._program = Path()

    @property
    def url(self) -> str:
        """The server's URL."""
        return f"nats://{LOOPBACK}:{self.port}"

    async def _prepare(self) -> None:
        """Find the program."""
        self._program = nats_program()

    def _command(self, port: int) -> list[str | Path]:
        """The server with a configuration written for this start."""
        store = json.dumps(str(self.folder / "nats"), ensure_ascii=False)
        self._config.write_text(
            f'server_name: "headway-{port}"\n'
            f'listen: "{LOOPBACK}:{port}"\n'
            f"max_payload: {MAX_PAYLOAD}\n"
            f"jetstream {{ store_dir: {store}, max_file_store: {MAX_STORE} }}\n"
            f"{self._config_extra}\n"
        )
        return [self._program, "-c", self._config]

    def _is_ready(self, process_id: int) -> bool:
        """Whether this process has logged that it listens, after recovering its streams."""
        # A greeting on the port would not do: another server may have been quicker to take it.
        return any(
            line.startswith(f"[{process_id}] ") and line.endswith(" Server is ready")
            for line in self.log.read_text(errors="replace").splitlines()
        )
