"""Checks of NATS: version, JetStream, disk, streams and consumers, and the services on it."""

from importlib import metadata
from typing import Any

from headway_console.public import Answering, read_services
from headway_contract import subjects
from headway_dispatcher.public import DispatcherSettings, Inspected, inspect_provisioned
from headway_jetstream_kit import Broker, BrokerUnavailable
from headway_jetstream_kit.connection import ApiError
from headway_jetstream_kit.provisioning import STREAM_NOT_FOUND

from headway_cli.doctor.findings import Area, Verdict
from headway_cli.terminal.output import counted

_OLDEST = (2, 11)
# A stream that is created and deleted to test the disk, and a subject that no stream has.
_TRIAL_STREAM, _TRIAL_SUBJECT = "HEADWAY_DOCTOR", "headway.doctor"
_TRIAL_SECONDS = 2.0
# Error codes of a failed write: a new stream could not be stored, a purge met the error.
_WRITE_FAILED = (10049, 10077, 10051)


async def check_broker(broker: Broker, settings: DispatcherSettings, jobs: list[str]) -> Area:
    """Check NATS and test its disk; `jobs` are served by live workers."""
    area, version = Area("nats"), broker.client.connected_server_version
    judge_server(area, (version.major, version.minor, version.patch), broker.where)
    try:
        account = await broker.api("INFO")
    except Exception as error:  # noqa: BLE001 - without JetStream nothing else can be read
        remedy = "enable JetStream for this account; after a full disk free space and restart NATS"
        area.trouble("jetstream", str(error) or type(error).__name__, remedy)
        return area
    items = await inspect_provisioned(broker, settings, jobs)
    present = [item.name for item in items if item.kind == "stream" and item.info]
    write_errors, untested = await _test_disk(broker, present, replicas=settings.stream_replicas)
    judge_storage(area, account, write_errors, untested)
    for item in items:
        judge_item(area, item)
    judge_services(area, await read_services(broker), metadata.version("headway"))
    return area


def judge_server(area: Area, version: tuple[int, ...], where: str) -> None:
    """Judge the version of the server."""
    name = f"nats-server {'.'.join(map(str, version))}"
    if version[:2] < _OLDEST:
        area.trouble("version", name, "upgrade it: claims need 2.11, and the tests run on 2.15")
    area.otherwise_ok("version", f"{name} at {where}")


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
    elif untested:
        text = f"it is unknown whether NATS can write to its disk: {untested}"
        remedy = f"let this user purge streams and create {_TRIAL_STREAM}, or see the server's log"
        area.warning("storage", text, remedy)
    else:
        used, limit = account.get("storage", 0), account.get("limits", {}).get("max_storage", 0)
        area.add(_fill(used, limit), "storage", _share(used, limit), "raise the limit")


def judge_item(area: Area, item: Inspected) -> None:
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
    config = info["config"]
    used, limit = info["state"]["bytes"], config.get("max_bytes", 0)
    if (verdict := _fill(used, limit)) != "ok":
        remedy = "see why it is not read, or raise HEADWAY_STREAM_MAX_BYTES and provision"
        area.add(verdict, "stream", f"{name}: {_share(used, limit)}", remedy)
    if (info.get("cluster") or {}).get("name") and config.get("num_replicas", 1) == 1:
        text = f"{name} has one copy in a cluster: it stops while its server is down"
        remedy = "set HEADWAY_STREAM_REPLICAS=3 and run 'headway provision'"
        area.warning("stream", text, remedy)


def _judge_consumer(area: Area, name: str, info: dict[str, Any]) -> None:
    unacknowledged, most = info.get("num_ack_pending", 0), info["config"].get("max_ack_pending", 0)
    if 0 < most <= unacknowledged:
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


def _fill(used: int, limit: int) -> Verdict:
    """Judge how full a store is; no positive number is no limit."""
    if limit <= 0 or used <= 0.7 * limit:
        return "ok"
    return "trouble" if used > 0.9 * limit else "warning"


def _share(used: int, limit: int) -> str:
    of = f" of {limit / 1024**2:,.1f}" if limit > 0 else ""
    return f"{used / 1024**2:,.1f}{of} MiB used"
