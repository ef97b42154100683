"""Checks of NATS: version, JetStream, disk, streams and consumers, and the services on it."""

from collections.abc import Iterator
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
from msgspec import Struct

from headway_cli.doctor.findings import Area, Finding
from headway_cli.terminal.output import counted

_AREA = Area("nats")
_RESETS, _OLDEST = (2, 14), (2, 11)
_MANY_PENDING = 10_000
_PAYLOAD = 1024**2
# A stream that is created and deleted to test the disk, and a subject that no stream has.
_TRIAL_STREAM, _TRIAL_SUBJECT = "HEADWAY_DOCTOR", "headway.doctor"
_TRIAL_SECONDS = 2.0
# Error codes of a failed write: a new stream could not be stored, a purge met the error.
_WRITE_FAILED = (10049, 10077, 10051)


class BrokerFacts(Struct, frozen=True, kw_only=True):
    """The state of NATS.

    `problem` is set if JetStream does not answer. `write_errors` has the streams that NATS cannot
    write, `untested` the reason why that is unknown.
    """

    where: str
    version: str
    max_payload: int
    ours: datetime
    problem: str = ""
    storage: int = 0
    storage_limit: int = 0
    write_errors: dict[str, str] = {}
    untested: str = ""
    provisioned: list[Inspected] = []
    services: list[Answering] = []


async def gather_broker(
    broker: Broker, settings: DispatcherSettings, jobs: list[str]
) -> BrokerFacts:
    """Read the state of NATS and test its disk; `jobs` are those that live workers serve."""
    version = broker.client.connected_server_version
    facts = BrokerFacts(
        where=broker.where,
        version=f"{version.major}.{version.minor}.{version.patch}",
        max_payload=broker.client.max_payload,
        ours=utc_now(),
    )
    try:
        account = await broker.api("INFO")
    except Exception as error:  # noqa: BLE001 - without JetStream nothing else can be read
        return msgspec.structs.replace(facts, problem=str(error) or type(error).__name__)
    ours = utc_now()
    provisioned = await inspect_provisioned(broker, settings, jobs)
    present = [item.name for item in provisioned if item.kind == "stream" and item.info]
    write_errors, untested = await _test_disk(broker, present, replicas=settings.stream_replicas)
    return msgspec.structs.replace(
        facts,
        ours=ours,
        storage=account.get("storage", 0),
        storage_limit=max(0, account.get("limits", {}).get("max_storage", 0)),
        write_errors=write_errors,
        untested=untested,
        provisioned=provisioned,
        services=await read_services(broker),
    )


async def _test_disk(
    broker: Broker, names: list[str], *, replicas: int
) -> tuple[dict[str, str], str]:
    """Store a new stream, and ask the others for write errors.

    A stream remembers a failed write, and a purge reports it. This one purges a subject that no
    stream has, and so nothing. A refused publish would prove nothing: it is refused before
    anything is written.
    """
    trial = {
        "name": _TRIAL_STREAM,
        "subjects": [_TRIAL_SUBJECT],
        "storage": "file",
        "num_replicas": replicas,
        "max_bytes": 1024,
    }
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


def judge_broker(facts: BrokerFacts) -> list[Finding]:
    """Judge the state of NATS."""
    found = [_judge_version(facts)]
    if facts.max_payload < _PAYLOAD:
        text = f"the largest message is {facts.max_payload:,} bytes"
        remedy = "set max_payload: 1MB, or inputs and outputs of 256 KiB may not fit"
        found.append(_AREA.warning("payload", text, remedy))
    if facts.problem:
        remedy = "enable JetStream for this account; after a full disk free space and restart NATS"
        return [*found, _AREA.trouble("jetstream", facts.problem, remedy)]
    found += _judge_storage(facts)
    times = [item.info["ts"] for item in facts.provisioned if item.info and "ts" in item.info]
    if times:
        theirs = msgspec.convert(times[0], datetime, strict=False)
        found.append(_AREA.clock(theirs, facts.ours, "messages expire by the server's clock"))
    for item in facts.provisioned:
        found += _judge_item(item)
    return [*found, *judge_services(facts.services, metadata.version("headway-jetstream-kit"))]


def _judge_version(facts: BrokerFacts) -> Finding:
    name = f"nats-server {facts.version}"
    version = tuple(int(part) for part in facts.version.split(".")[:2])
    if version < _OLDEST:
        remedy = "upgrade it: claims need 2.11, and the tests run on 2.15"
        return _AREA.trouble("version", name, remedy)
    if version < _RESETS:
        remedy = "upgrade it to 2.14: after a crash messages are redelivered only after ack_wait"
        return _AREA.warning("version", name, remedy)
    return _AREA.ok("version", f"{name} at {facts.where}")


def _judge_storage(facts: BrokerFacts) -> Iterator[Finding]:
    if facts.write_errors:
        reason = next(iter(facts.write_errors.values()))
        text = f"NATS cannot store messages of {', '.join(facts.write_errors)}: {reason}"
        remedy = "free space on its disk, then restart NATS: it writes to such a stream only then"
        yield _AREA.trouble("storage", text, remedy)
        return
    if facts.untested:
        text = f"it is unknown whether NATS can write to its disk: {facts.untested}"
        remedy = f"let this user purge streams and create {_TRIAL_STREAM}, or see the server's log"
        yield _AREA.warning("storage", text, remedy)
    used, limit = _size(facts.storage), facts.storage_limit
    if limit:
        text = f"{used} of {_size(limit)} used"
        yield _AREA.fill("storage", text, facts.storage / limit, "raise the limit")
    else:
        yield _AREA.ok("storage", f"{used} used, without a limit")


def _judge_item(item: Inspected) -> list[Finding]:
    """Judge a stream or a consumer."""
    if item.info is None:
        remedy = "run 'headway provision', or let the dispatcher do it with HEADWAY_PROVISION=auto"
        if subjects.job_of_consumer(item.name.partition("/")[2]) is not None:
            remedy = "check that a dispatcher runs, which creates it; the area postgresql says more"
        return [_AREA.trouble(item.kind, f"{item.name} is missing", remedy)]
    problems = [*_stream_problems(item, item.info), *_consumer_problems(item, item.info)]
    if item.differs:
        differences = ", ".join(
            f"{name} is {actual} and should be {wanted}"
            for name, (actual, wanted) in item.differs.items()
        )
        remedy = "run 'headway provision', or set HEADWAY_STREAM_… here as for the services"
        problems.append(_AREA.warning(item.kind, f"{item.name}: {differences}", remedy))
    messages = item.info.get("num_pending") or item.info.get("state", {}).get("messages", 0)
    return problems or [_AREA.ok(item.kind, f"{item.name} ({messages} messages)")]


def _stream_problems(item: Inspected, info: dict[str, Any]) -> Iterator[Finding]:
    config, cluster = info["config"], info.get("cluster") or {}
    used, limit = info.get("state", {}).get("bytes", 0), max(0, config.get("max_bytes", 0))
    if limit:
        text = f"{item.name} has {_size(used)} of {_size(limit)}"
        remedy = "see why it is not read, or raise HEADWAY_STREAM_MAX_BYTES and provision"
        filled = _AREA.fill(item.kind, text, used / limit, remedy)
        yield from [filled] if filled.verdict != "ok" else []
    lagging = [
        replica["name"]
        for replica in cluster.get("replicas") or []
        if replica.get("offline") or not replica.get("current", True)
    ]
    if item.kind == "consumer":
        return
    if cluster.get("name") and config.get("num_replicas", 1) == 1:
        text = f"{item.name} has one copy in a cluster: it stops while its server is down"
        remedy = "set HEADWAY_STREAM_REPLICAS=3 and run 'headway provision'"
        yield _AREA.warning(item.kind, text, remedy)
    elif lagging:
        text = f"{item.name}: the copies on {', '.join(lagging)} are behind or offline"
        remedy = "repair those servers: another failure may stop the stream"
        yield _AREA.warning(item.kind, text, remedy)


def _consumer_problems(item: Inspected, info: dict[str, Any]) -> Iterator[Finding]:
    pending, unacknowledged = info.get("num_pending", 0), info.get("num_ack_pending", 0)
    most = max(0, info["config"].get("max_ack_pending", 0))
    if pending > _MANY_PENDING:
        remedy = "start more of the service that reads it, or see its log"
        yield _AREA.warning(item.kind, f"{pending:,} messages wait for {item.name}", remedy)
    if most and unacknowledged >= most:
        text = f"{item.name} delivers nothing more: {unacknowledged:,} are unacknowledged"
        remedy = "restart its reader, or raise HEADWAY_STREAM_MAX_ACK_PENDING and provision"
        yield _AREA.trouble(item.kind, text, remedy)


def judge_services(services: list[Answering], version: str) -> Iterator[Finding]:
    """Check that both services answer, and have this version."""
    answering = {service.name: service for service in services}
    for title in ("scheduler", "dispatcher"):
        found = answering.get(f"headway-{title}")
        if found is None:
            remedy = f"start one with 'headway {title}', or see its log"
            text = f"no {title} answers on headway.control.{title}.*"
            yield _AREA.trouble("services", text, remedy)
            continue
        text = f"{counted(found.processes, title)}, version {', '.join(found.versions)}"
        if found.versions == [version]:
            yield _AREA.ok("services", text)
        else:
            remedy = f"this command has version {version}: migrate, then use one version for all"
            yield _AREA.warning("services", text, remedy)


def _size(number: int) -> str:
    for unit in ("bytes", "KiB", "MiB"):
        if number < 1024:
            return f"{number:.0f} {unit}"
        number //= 1024
    return f"{number} GiB"
