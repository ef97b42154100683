"""Checks of NATS: version, JetStream, disk, streams and consumers, and the services on it."""

from datetime import datetime
from importlib import metadata
from typing import Any

import msgspec
from headway_clock import utc_now
from headway_console.public import Answering, read_services
from headway_contract import subjects
from headway_dispatcher.public import DispatcherSettings, Inspected, inspect_provisioned
from headway_jetstream_kit import Broker, BrokerUnavailable
from headway_jetstream_kit.connection import ApiError
from headway_jetstream_kit.provisioning import STREAM_NOT_FOUND

from headway_cli.doctor.findings import Area, Verdict
from headway_cli.terminal.output import counted

_RESETS, _OLDEST = (2, 14), (2, 11)
_MANY_PENDING = 10_000
_PAYLOAD = 1024**2
# A stream that is created and deleted to test the disk, and a subject that no stream has.
_TRIAL_STREAM, _TRIAL_SUBJECT = "HEADWAY_DOCTOR", "headway.doctor"
_TRIAL_SECONDS = 2.0
# Error codes of a failed write: a new stream could not be stored, a purge met the error.
_WRITE_FAILED = (10049, 10077, 10051)


async def check_broker(broker: Broker, settings: DispatcherSettings, jobs: list[str]) -> Area:
    """Check NATS and test its disk; `jobs` are served by live workers."""
    area, version = Area("nats"), broker.client.connected_server_version
    number = (version.major, version.minor, version.patch)
    judge_server(area, number, broker.client.max_payload, broker.where)
    try:
        account = await broker.api("INFO")
    except Exception as error:  # noqa: BLE001 - without JetStream nothing else can be read
        remedy = "enable JetStream for this account; after a full disk free space and restart NATS"
        area.trouble("jetstream", str(error) or type(error).__name__, remedy)
        return area
    ours = utc_now()
    items = await inspect_provisioned(broker, settings, jobs)
    present = [item.name for item in items if item.kind == "stream" and item.info]
    write_errors, untested = await _test_disk(broker, present, replicas=settings.stream_replicas)
    judge_storage(area, account, write_errors, untested)
    judge_items(area, items, ours)
    judge_services(area, await read_services(broker), metadata.version("headway-jetstream-kit"))
    return area


def judge_server(area: Area, version: tuple[int, ...], max_payload: int, where: str) -> None:
    """Judge the version of the server, and its largest message."""
    name = f"nats-server {'.'.join(map(str, version))}"
    if version[:2] < _OLDEST:
        area.trouble("version", name, "upgrade it: claims need 2.11, and the tests run on 2.15")
    elif version[:2] < _RESETS:
        remedy = "upgrade it to 2.14: after a crash messages are redelivered only after ack_wait"
        area.warning("version", name, remedy)
    area.otherwise_ok("version", f"{name} at {where}")
    if max_payload < _PAYLOAD:
        text = f"the largest message is {max_payload:,} bytes"
        remedy = "set max_payload: 1MB, or inputs and outputs of 256 KiB may not fit"
        area.warning("payload", text, remedy)


async def _test_disk(
    broker: Broker, names: list[str], *, replicas: int
) -> tuple[dict[str, str], str]:
    """Store a new stream, and ask the others for write errors.

    A stream remembers a failed write, and a purge reports it. This one purges a subject that no
    stream has, and so nothing. A refused publish would prove nothing: it is refused before
    anything is written.
    """
    trial = {"name": _TRIAL_STREAM, "subjects": [_TRIAL_SUBJECT], "max_bytes": 1024}
    trial |= {"storage": "file", "num_replicas": replicas}
    requests: list[tuple[str, str, dict[str, Any] | None]] = [
        *((name, f"STREAM.PURGE.{name}", {"filter": _TRIAL_SUBJECT}) for name in names),
        ("new streams", f"STREAM.CREATE.{_TRIAL_STREAM}", trial),
        ("new streams", f"STREAM.DELETE.{_TRIAL_STREAM}", None),
    ]
    errors: dict[str, str] = {}
    for name, verb, request in requests:
        try:
            await broker.api(verb, request, timeout=_TRIAL_SECONDS)
        except BrokerUnavailable as error:
            return errors, str(error)
        except ApiError as error:
            if error.err_code in _WRITE_FAILED:
                errors[name] = str(error)
            elif error.err_code != STREAM_NOT_FOUND:  # it could not be created, or is gone
                return errors, str(error)
    return errors, ""


def judge_storage(
    area: Area, account: dict[str, Any], write_errors: dict[str, str], untested: str
) -> None:
    """Judge the streams that NATS cannot write, or why that is unknown, and the space used."""
    if write_errors:
        reason = next(iter(write_errors.values()))
        text = f"NATS cannot store messages of {', '.join(write_errors)}: {reason}"
        remedy = "free space on its disk, then restart NATS: it writes to such a stream only then"
        area.trouble("storage", text, remedy)
        return
    if untested:
        text = f"it is unknown whether NATS can write to its disk: {untested}"
        remedy = f"let this user purge streams and create {_TRIAL_STREAM}, or see the server's log"
        area.warning("storage", text, remedy)
    used, limit = account.get("storage", 0), max(0, account.get("limits", {}).get("max_storage", 0))
    share = f"of {_size(limit)} used" if limit else "used, without a limit"
    area.add(_fill(used, limit), "storage", f"{_size(used)} {share}", "raise the limit")


def _fill(used: int, limit: int) -> Verdict:
    """Judge how full a store is; 0 means no limit."""
    if not limit or used <= 0.7 * limit:
        return "ok"
    return "trouble" if used > 0.9 * limit else "warning"


def judge_items(area: Area, items: list[Inspected], ours: datetime) -> None:
    """Judge the streams and consumers, and the clock of the server by the first answer."""
    times = [item.info["ts"] for item in items if item.info and "ts" in item.info]
    if times:
        theirs = msgspec.convert(times[0], datetime, strict=False)
        area.clock(theirs, ours, "messages expire by the server's clock")
    for item in items:
        _judge_item(area, item)


def _judge_item(area: Area, item: Inspected) -> None:
    """Judge a stream or a consumer."""
    before = len(area)
    if item.info is None:
        remedy = "run 'headway provision', or let the dispatcher do it with HEADWAY_PROVISION=auto"
        if subjects.job_of_consumer(item.name.partition("/")[2]) is not None:
            remedy = "check that a dispatcher runs, which creates it; the area postgresql says more"
        area.trouble(item.kind, f"{item.name} is missing", remedy)
        return
    (_judge_stream if item.kind == "stream" else _judge_consumer)(area, item.name, item.info)
    if item.differs:
        differences = ", ".join(
            f"{name} is {actual} and should be {wanted}"
            for name, (actual, wanted) in item.differs.items()
        )
        remedy = "run 'headway provision', or set HEADWAY_STREAM_… here as for the services"
        area.warning(item.kind, f"{item.name}: {differences}", remedy)
    if len(area) == before:
        messages = item.info.get("num_pending") or item.info.get("state", {}).get("messages", 0)
        area.ok(item.kind, f"{item.name} ({messages} messages)")


def _judge_stream(area: Area, name: str, info: dict[str, Any]) -> None:
    config, cluster = info["config"], info.get("cluster") or {}
    used, limit = info["state"]["bytes"], max(0, config.get("max_bytes", 0))
    if (verdict := _fill(used, limit)) != "ok":
        remedy = "see why it is not read, or raise HEADWAY_STREAM_MAX_BYTES and provision"
        area.add(verdict, "stream", f"{name} has {_size(used)} of {_size(limit)}", remedy)
    lagging = [
        replica["name"]
        for replica in cluster.get("replicas") or []
        if replica.get("offline") or not replica.get("current", True)
    ]
    if cluster.get("name") and config.get("num_replicas", 1) == 1:
        text = f"{name} has one copy in a cluster: it stops while its server is down"
        remedy = "set HEADWAY_STREAM_REPLICAS=3 and run 'headway provision'"
        area.warning("stream", text, remedy)
    elif lagging:
        text = f"{name}: the copies on {', '.join(lagging)} are behind or offline"
        area.warning("stream", text, "repair those servers: another failure may stop the stream")


def _judge_consumer(area: Area, name: str, info: dict[str, Any]) -> None:
    pending, unacknowledged = info.get("num_pending", 0), info.get("num_ack_pending", 0)
    most = max(0, info["config"].get("max_ack_pending", 0))
    if pending > _MANY_PENDING:
        remedy = "start more of the service that reads it, or see its log"
        area.warning("consumer", f"{pending:,} messages wait for {name}", remedy)
    if most and unacknowledged >= most:
        text = f"{name} delivers nothing more: {unacknowledged:,} are unacknowledged"
        remedy = "restart its reader, or raise HEADWAY_STREAM_MAX_ACK_PENDING and provision"
        area.trouble("consumer", text, remedy)


def judge_services(area: Area, services: list[Answering], version: str) -> None:
    """Check that both services answer, and have this version."""
    answering = {service.name: service for service in services}
    for title in ("scheduler", "dispatcher"):
        found = answering.get(f"headway-{title}")
        if found is None:
            text = f"no {title} answers on headway.control.{title}.*"
            area.trouble("services", text, f"start one with 'headway {title}', or see its log")
            continue
        text = f"{counted(found.processes, title)}, version {', '.join(found.versions)}"
        remedy = f"this command has version {version}: migrate, then use one version for all"
        area.add("ok" if found.versions == [version] else "warning", "services", text, remedy)


def _size(number: int) -> str:
    for unit in ("bytes", "KiB", "MiB"):
        if number < 1024:
            return f"{number:.0f} {unit}"
        number //= 1024
    return f"{number} GiB"
