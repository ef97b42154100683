"""The `headway` command as processes of their own, to be watched and killed."""

import os
import signal
import sys
from pathlib import Path

from headway_embedded import SupervisedProcess

TESTS = Path(__file__).parents[1]


class Processes:
    """Starts programs against a test's servers; all of them end with the test."""

    def __init__(self, database_url: str, nats_url: str, folder: Path, **settings: str) -> None:
        self.environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith("HEADWAY")},
            "HEADWAY_DATABASE_URL": database_url,
            "HEADWAY_NATS_URL": nats_url,
            "HEADWAY_APP": str(TESTS / "support" / "app_under_test.py"),
            "HEADWAY_STREAM_MAX_BYTES": str(64 * 1024**2),
            "HEADWAY_TEST_FOLDER": str(folder),
            **{f"HEADWAY_{name.upper()}": value for name, value in settings.items()},
        }
        self.folder = folder
        self._running: list[SupervisedProcess] = []

    def export_to(self, address: str) -> None:
        """Let all that are started from now on export their spans, and soon."""
        self.environment["OTEL_EXPORTER_OTLP_ENDPOINT"] = address
        self.environment["OTEL_BSP_SCHEDULE_DELAY"] = "200"

    async def headway(self, *arguments: str, **environment: str) -> SupervisedProcess:
        """Start a `headway` command."""
        return await self.python("-m", "headway_cli", *arguments, **environment)

    async def python(self, *arguments: str, **environment: str) -> SupervisedProcess:
        """Start a Python program."""
        return await self.start(sys.executable, *arguments, **environment)

    async def node(self, *arguments: str, **environment: str) -> SupervisedProcess:
        """Start a program of Node."""
        return await self.start("node", *arguments, **environment)

    async def start(self, *arguments: str, **environment: str) -> SupervisedProcess:
        """Start any program."""
        number = len(self._running)
        log = (self.folder / f"{number}-{arguments[-1].rpartition('/')[2]}.log").open("wb")
        with log:
            program = await SupervisedProcess.start(
                list(arguments),
                env={**self.environment, **environment},
                cwd=TESTS.parent,
                stdout=log.fileno(),
                stderr=log.fileno(),
            )
        self._running.append(program)
        return program

    async def kill(self, program: SupervisedProcess) -> None:
        """`kill -9`, and wait until it is gone."""
        os.kill(program.process_id, signal.SIGKILL)
        await program.wait()

    def logs(self) -> str:
        """Return the output of all programs, for a failing test."""
        return "\n".join(
            f"--- {path.name}\n{path.read_text(errors='replace')[-4000:]}"
            for path in sorted(self.folder.glob("*.log"))
        )

    async def stop(self) -> None:
        """Stop everything that still runs."""
        for program in self._running:
            if program.returncode is None:
                await program.stop(within=10)
