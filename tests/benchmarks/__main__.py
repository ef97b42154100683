"""Measure Headway, and other queues beside it, and compare the figures with the targets.

./justw bench --peers           # everything; about 45 minutes on two cores
./justw bench --peers --repetitions 1 --work 2k --only drain,latency
./justw bench scheduling        # one script: capacity, console_reads, page or scheduling
"""

import argparse
import importlib
import json
import os
import platform
import signal
import sys
import tempfile
from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import psutil
import uvloop
from headway_cli.serve.running import PartEnded
from headway_clock import monotonic, utc_now

from benchmarks import peers, workloads
from benchmarks.database import read_size, read_sizes
from benchmarks.targets import HEADWAY, summary

SCRIPTS = ("capacity", "console_reads", "page", "scheduling")
WORKLOADS = ("drain", "latency", "sleeping", "burst", "tick", "up", "idle", "workers", "growth")
Step = Callable[[], Awaitable[dict[str, float]]]


class Run:
    """The steps of a benchmark and their figures."""

    def __init__(self, options: argparse.Namespace) -> None:
        self._options = options
        self._systems: dict[str, Any] = {HEADWAY: workloads.Headway()}
        self._figures: dict[str, dict[str, list[float | None]]] = {}
        self._failures: list[str] = []

    def install(self) -> None:
        """Create the environments of the peers; a peer that cannot be installed is left out."""
        for name in self._options.peers:
            try:
                peers.PEERS[name].install()
                self._systems[name] = peers.PEERS[name]
            except (peers.PeerFailed, OSError) as error:
                self._fail(name, "install", error)

    async def measure(self, folder: Path) -> None:
        """Run all steps; one that fails leaves a gap, so that repetitions stay side by side."""
        for repetition in range(self._options.repetitions):
            for system, title, step in self._steps(repetition, folder):
                began = monotonic()
                try:
                    found = await step()
                except (peers.PeerFailed, PartEnded, OSError, TimeoutError) as error:
                    self._fail(system, title, error)
                    continue
                for figure, value in found.items():
                    values = self._figures.setdefault(figure, {}).setdefault(system, [])
                    values += [None] * (repetition - len(values))
                    values.append(float(f"{value:.5g}"))
                words = ", ".join(f"{figure} {value:,.4g}" for figure, value in found.items())
                _say(f"{repetition + 1}: {system}, {title} ({monotonic() - began:.0f} s): {words}")

    def document(self) -> dict[str, Any]:
        """Return everything that a page needs, as JSON."""
        return {
            "measured_at": utc_now().isoformat(timespec="seconds"),
            "machine": {
                "system": f"{platform.system()} {platform.machine()}",
                "cores": os.cpu_count(),
                "memory_gb": round(psutil.virtual_memory().total / 1e9),
                "load_at_end": round(os.getloadavg()[0], 1),
                "python": platform.python_version(),
            },
            "work": self._options.work,
            "repetitions": self._options.repetitions,
            "versions": {name: peers.PEERS[name].packages for name in self._options.peers},
            "failures": self._failures,
            "figures": self._figures,
        }

    def _steps(self, repetition: int, folder: Path) -> Iterator[tuple[str, str, Step]]:
        """One repetition, the systems beside each other and each time in another order."""
        work, only = self._options.work, self._options.only
        systems = list(self._systems.items())
        turn = repetition % len(systems)
        systems = systems[turn:] + systems[:turn]
        if "drain" in only:
            for workers in (1, 2):
                for name, system in systems:
                    yield name, f"drain by {workers}", partial(system.drain, work, workers)
        if "latency" in only:
            for name, system in systems:
                yield name, "latency", system.latency
        for name in ("sleeping", "burst", "tick", "up", "idle", "workers"):
            if name in only:
                yield HEADWAY, name, getattr(workloads, name)
        if "growth" in only:
            for finished in self._options.finished:
                kept = folder / str(finished)
                kept.mkdir(exist_ok=True)
                yield HEADWAY, "growth", partial(workloads.growth, work, finished, kept)

    def _fail(self, system: str, title: str, error: Exception) -> None:
        _say(f"{system}, {title} failed: {error}")
        reason = str(error).partition("\n")[0] or type(error).__name__
        self._failures.append(f"{system}, {title}: {reason}")


def _say(text: str) -> None:
    sys.stderr.write(f"{utc_now():%H:%M:%S} {text}\n")
    sys.stderr.flush()


def _names(*known: str) -> Callable[[str], list[str]]:
    def read(text: str) -> list[str]:
        if unknown := [name for name in text.split(",") if name not in known]:
            raise argparse.ArgumentTypeError(f"unknown: {unknown}; known are {', '.join(known)}")
        return text.split(",")

    return read


def _read_arguments() -> argparse.Namespace:
    form = argparse.RawTextHelpFormatter
    parser = argparse.ArgumentParser(prog="just bench", description=__doc__, formatter_class=form)
    known, every = _names(*peers.PEERS), ", ".join(peers.PEERS)
    parser.add_argument(
        "--peers", type=known, nargs="?", const=[*peers.PEERS], default=[], help=every
    )
    every = ", ".join(WORKLOADS)
    parser.add_argument("--only", type=_names(*WORKLOADS), default=WORKLOADS, help=every)
    parser.add_argument("--work", type=read_size, default=20_000, help="jobs of a drain (20k)")
    parser.add_argument("--repetitions", type=int, default=3, help="of everything (3)")
    parser.add_argument(
        "--finished",
        type=read_sizes,
        default=[1_000_000],
        help="finished runs in the tables of growth, such as 1m,5m (1m)",
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all figures there")
    return parser.parse_args()


def main() -> None:
    """Run a script, or measure and print tables; figures so far are kept if it is stopped."""
    if sys.argv[1:2] and sys.argv[1] in SCRIPTS:
        del sys.argv[0]
        importlib.import_module(f"benchmarks.{sys.argv[0]}").main()
        return
    options = _read_arguments()
    # A stop ends all that was started, as Ctrl-C does.
    signal.signal(signal.SIGTERM, lambda *_: signal.raise_signal(signal.SIGINT))
    run = Run(options)
    try:
        run.install()
        with tempfile.TemporaryDirectory(prefix="headway-bench-") as folder:
            uvloop.run(run.measure(Path(folder)))
    except KeyboardInterrupt:
        _say("stopped; the figures so far:")
        sys.exit(130)
    finally:
        document = run.document()
        if options.json:
            options.json.write_text(json.dumps(document, indent=1, sort_keys=True) + "\n")
        sys.stdout.write("\n".join(summary(document)) + "\n")


if __name__ == "__main__":
    main()
