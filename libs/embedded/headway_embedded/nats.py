"""NATS with JetStream as an embedded server."""

import json
import signal
from pathlib import Path

from headway_embedded.binaries import nats_program
from headway_embedded.data_folder import write_secret
from headway_embedded.server import LOOPBACK, Server

USER = "headway"
MAX_PAYLOAD = 1 << 20

# Streams reserve their maximum size at creation. By default NATS allows three quarters of the free
# disk and would refuse to create them on a small one.
MAX_STORE = 64 << 30


class NatsServer(Server):
    """A NATS server; lines in `config_extra` override its configuration, except the log.

    The password is generated once and kept in the folder, so a restarted server keeps its URL.
    """

    title = "NATS"
    name = "nats"
    stop_signal = signal.SIGTERM

    def __init__(self, folder: Path, *, port: int | None = None, config_extra: str = "") -> None:
        super().__init__(folder, port=port)
        self._config_extra = config_extra

    @property
    def url(self) -> str:
        """The server's URL with the password."""
        return f"nats://{USER}:{self.password}@{LOOPBACK}:{self.port}"

    async def _prepare(self) -> None:
        """Generate the password at the first start."""
        if not self.password_file.exists():
            self._create_password()

    def _command(self, port: int) -> list[str | Path]:
        """Write the configuration and return the command."""
        config = self.folder / "nats.conf"
        store = json.dumps(str(self.folder / "nats"), ensure_ascii=False)
        lines = (
            f'server_name: "headway-{port}"\n'
            f'listen: "{LOOPBACK}:{port}"\n'
            f"max_payload: {MAX_PAYLOAD}\n"
            f'authorization {{ user: "{USER}", password: "{self.password}" }}\n'
            f"jetstream {{ store_dir: {store}, max_file_store: {MAX_STORE} }}\n"
            f"{self._config_extra}\n"
        )
        write_secret(config, lines.encode())
        return [nats_program(), "-c", config]

    def _is_ready(self, process_id: int) -> bool:
        """Return whether this process has logged that it is ready."""
        # Not by connecting to the port: another server may have taken it first.
        return any(
            line.startswith(f"[{process_id}] ") and line.endswith(" Server is ready")
            for line in self.log.read_text(errors="replace").splitlines()
        )
