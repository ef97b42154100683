"""A disk that is full, under NATS and under PostgreSQL: `headway doctor` says so."""

import os
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from headway_cli.doctor.nats import check_broker
from headway_cli.doctor.postgresql import check_database
from headway_contract import subjects
from headway_dispatcher.provisioning import provision_by
from headway_dispatcher.settings import DispatcherSettings
from headway_embedded import NatsServer, PostgresServer
from headway_jetstream_kit import Broker, Stored
from headway_jetstream_kit.provisioning import stream_info
from headway_jetstream_kit.publish import publish
from headway_postgres_kit import Database
from support.servers import needs_embedded

MIB = 1 << 20
SUBJECT = subjects.WORK_SUBJECTS.replace("*", "x").replace(">", "x")
SETTINGS = DispatcherSettings(database_url="", nats_url="")


class SmallDisk:
    """A file system of its own, which a file can fill."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._ballast = folder / "ballast"

    def fill(self) -> None:
        """Leave not a byte free."""
        descriptor = os.open(self._ballast, os.O_WRONLY | os.O_CREAT)
        try:
            for size in (MIB, 4096):
                with pytest.raises(OSError, match="No space left"):
                    while True:
                        os.write(descriptor, bytes(size))
        finally:
            os.close(descriptor)

    def free(self) -> None:
        """Give the space back."""
        self._ballast.unlink()


@contextmanager
def small_disk(size: int) -> Iterator[SmallDisk]:
    """Mount a file system of so many bytes; skip where that is not allowed."""
    needs_embedded()
    with tempfile.TemporaryDirectory(prefix="headway-disk-") as folder:
        mount = ["mount", "-t", "tmpfs", "-o", f"size={size},mode=755", "tmpfs", folder]
        try:
            done = subprocess.run(mount, capture_output=True, text=True, check=False)
        except FileNotFoundError:
            pytest.skip("needs the program mount")
        if done.returncode:
            pytest.skip(f"needs the right to mount: {done.stderr.strip()}")
        try:
            yield SmallDisk(Path(folder))
        finally:
            # Lazily: a server that could not be stopped must not keep the mount.
            subprocess.run(["umount", "--lazy", folder], check=True)


async def storage_found(broker: Broker) -> tuple[str, str, str]:
    findings = await check_broker(broker, SETTINGS, [])
    [found] = [finding for finding in findings if finding.check == "storage"]
    assert await stream_info(broker, "HEADWAY_DOCTOR") is None, "the trial leaves nothing"
    return found.verdict, found.found, found.remedy


async def write_until_it_fails(broker: Broker) -> None:
    while isinstance(await publish(broker, SUBJECT, bytes(4096), timeout=1), Stored):
        pass


async def test_doctor_finds_a_full_disk_of_nats_and_what_stays_broken_after_it():
    with small_disk(16 * MIB) as disk:
        server = NatsServer(disk.folder / "nats")
        await server.start()
        broker = await Broker.connect(server.url, name="test")
        await provision_by(broker, SETTINGS)
        assert isinstance(await publish(broker, SUBJECT, b"first"), Stored)
        before = await stream_info(broker, subjects.WORK_STREAM)
        assert (await storage_found(broker))[0] == "ok"
        after = await stream_info(broker, subjects.WORK_STREAM)
        assert after["state"] == before["state"], "the trial touches no stream"

        disk.fill()
        verdict, found, remedy = await storage_found(broker)
        assert (verdict, "of new streams: " in found) == ("trouble", True), found
        await write_until_it_fails(broker)
        verdict, found, remedy = await storage_found(broker)
        assert verdict == "trouble"
        assert found.startswith(
            f"NATS cannot store messages of {subjects.WORK_STREAM}, new streams: "
        )
        assert "no space left on device" in found
        assert "free space on its disk, then restart NATS" in remedy

        disk.free()
        assert not isinstance(await publish(broker, SUBJECT, b"x", timeout=1), Stored)
        verdict, found, _ = await storage_found(broker)
        assert verdict == "trouble"
        assert found.startswith(f"NATS cannot store messages of {subjects.WORK_STREAM}: ")

        await broker.close()
        await server.stop()
        await server.start()
        broker = await Broker.connect(server.url, name="test")
        assert isinstance(await publish(broker, SUBJECT, b"last"), Stored)
        assert (await storage_found(broker))[0] == "ok"
        await broker.close()
        await server.stop()


async def test_doctor_finds_a_full_disk_of_postgresql():
    with small_disk(160 * MIB) as disk:
        server = PostgresServer(disk.folder / "postgres", durable=False)
        await server.start()
        database = await Database.connect(server.url, name="test")

        async def disk_found() -> list[str]:
            findings = await check_database(database)
            return [
                f"{finding.verdict}: {finding.found}"
                for finding in findings
                if finding.check == "disk"
            ]

        assert await disk_found() == []
        disk.fill()
        [found] = await disk_found()
        assert found.startswith("trouble: PostgreSQL cannot write 20 MB: "), found
        assert "No space left on device" in found
        disk.free()
        assert await disk_found() == [], "it goes on by itself"
        await database.close()
        await server.stop()
