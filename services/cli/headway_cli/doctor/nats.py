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

_AREA = Area("nats")
_RESETS, _OLDEST = (2, 14), (2, 11)
_FILLING = 0.7
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
    problem: str = ""
    asked_at: datetime | None = None
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
    )
    try:
        account = await broker.api("INFO")
    except Exception as error:  # noqa: BLE001 - without JetStream nothing else can be read
        return msgspec.structs.replace(facts, problem=str(error) or type(error).__name__)
    asked_at = utc_now()
    provisioned = await inspect_provisioned(broker, settings, jobs)
    present = [item.name for item in provisioned if item.kind == "stream" and item.info]
    write_errors, untested = await _test_disk(broker, present, replicas=settings.stream_replicas)
    return msgspec.structs.replace(
        facts,
        asked_at=asked_at,
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
    try:
        for name, verb, request in requests:
            try:
                await broker.api(verb, request, timeout=_TRIAL_SECONDS)
            except ApiError as error:
                if error.err_code in _WRITE_FAILED:
                    errors[name] = str(error)
                elif error.err_code != STREAM_NOT_FOUND:  # it could not be created, or is gone
                    raise
    except (ApiError, BrokerUnavailable) as error:
        return errors, str(error)
    return errors, ""


def judge_broker(facts: BrokerFacts) -> list[Finding]:
    """Judge the state of NATS."""
    found = [_version(facts)]
    if facts.max_payload < _PAYLOAD:
        found.append(
            _AREA.warning(
                "payload",
                f"the largest message is {facts.max_payload:,} bytes",
                "set max_payload: 1MB, or inputs and outputs of 256 KiB may not fit",
            )
        )
    if facts.problem:
        remedy = (
            "enable JetStream in the server's configuration, for this account too; if the "
            "server's log says that its disk was full, free space and restart NATS"
        )
        return [*found, _AREA.trouble("jetstream", facts.problem, remedy)]
    found += _storage(facts)
    times = [item.info["ts"] for item in facts.provisioned if item.info and "ts" in item.info]
    if times and facts.asked_at is not None:
        theirs = msgspec.convert(times[0], datetime, strict=False)
        found.append(_AREA.clock(theirs, facts.asked_at, "messages expire by the server's clock"))
    found += [finding for item in facts.provisioned for finding in _judge_item(item)]
    return [*found, *judge_services(facts.services, metadata.version("headway-jetstream-kit"))]


def _version(facts: BrokerFacts) -> Finding:
    name = f"nats-server {facts.version}"
    version = tuple(int(part) for part in facts.version.split(".")[:2])
    if version < _OLDEST:
        remedy = "upgrade it: claims need 2.11, and the tests run on 2.15"
        return _AREA.trouble("version", name, remedy)
    if version < _RESETS:
        remedy = (
            "upgrade it to 2.14 or newer: until then messages of a service that ended are "
            "redelivered only after the ack wait"
        )
        return _AREA.warning("version", name, remedy)
    return _AREA.ok("version", f"{name} at {facts.where}")


def _storage(facts: BrokerFacts) -> Iterator[Finding]:
    if facts.write_errors:
        yield _AREA.trouble(
            "storage",
            f"NATS cannot store messages of {', '.join(facts.write_errors)}: "
            f"{next(iter(facts.write_errors.values()))}",
            "free space on its disk, then restart NATS: a stream whose write failed accepts "
            "nothing until then",
        )
        return
    if facts.untested:
        yield _AREA.warning(
            "storage",
            f"it is unknown whether NATS can write to its disk: {facts.untested}",
            f"let this user purge streams and create {_TRIAL_STREAM}, or see the server's log",
        )
    used = f"{_size(facts.storage)} "
    if not facts.storage_limit:
        yield _AREA.ok("storage", f"{used}used, without a limit")
    else:
        text, part = (
            f"{used}of {_size(facts.storage_limit)} used",
            facts.storage / facts.storage_limit,
        )
        yield _AREA.fill("storage", text, part, "raise the limit")


def _judge_item(item: Inspected) -> list[Finding]:
    """Judge a stream or a consumer."""
    if item.info is None:
        remedy = "run 'headway provision', or let the dispatcher do it with HEADWAY_PROVISION=auto"
        if subjects.job_of_consumer(item.name.partition("/")[2]) is not None:
            remedy = (
                "the dispatcher creates it within seconds: check that one runs; with the database "
                "this command says why NATS refuses it"
            )
        return [_AREA.trouble(item.kind, f"{item.name} is missing", remedy)]
    problems = [*_differences(item), *_stream_problems(item, item.info)]
    problems += _consumer_problems(item, item.info)
    messages = item.info.get("num_pending") or item.info.get("state", {}).get("messages", 0)
    return problems or [_AREA.ok(item.kind, f"{item.name} ({messages} messages)")]


def _differences(item: Inspected) -> Iterator[Finding]:
    if item.differs:
        text = ", ".join(
            f"{name} is {actual} and should be {wanted}"
            for name, (actual, wanted) in item.differs.items()
        )
        yield _AREA.warning(
            item.kind,
            f"{item.name}: {text}",
            "run 'headway provision', or give this command the settings (HEADWAY_STREAM_…) of "
            "the services",
        )


def _stream_problems(item: Inspected, info: dict[str, Any]) -> Iterator[Finding]:
    config, cluster = info["config"], info.get("cluster") or {}
    used, limit = info.get("state", {}).get("bytes", 0), max(0, config.get("max_bytes", 0))
    if limit and used > _FILLING * limit:
        text = f"{item.name} has {_size(used)} of {_size(limit)}"
        remedy = "see why it is not read, or raise HEADWAY_STREAM_MAX_BYTES and provision"
        yield _AREA.fill(item.kind, text, used / limit, remedy)
    if item.kind == "consumer":
        return
    lagging = [
        replica["name"]
        for replica in cluster.get("replicas") or []
        if replica.get("offline") or not replica.get("current", True)
    ]
    if cluster.get("name") and config.get("num_replicas", 1) == 1:
        yield _AREA.warning(
            item.kind,
            f"{item.name} has one copy in a cluster, and is unavailable while its server is down",
            "set HEADWAY_STREAM_REPLICAS=3 and run 'headway provision'",
        )
    elif lagging:
        yield _AREA.warning(
            item.kind,
            f"{item.name}: the copies on {', '.join(lagging)} are behind or offline",
            "repair those servers: another failure may stop the stream",
        )


def _consumer_problems(item: Inspected, info: dict[str, Any]) -> Iterator[Finding]:
    pending, unacknowledged = info.get("num_pending", 0), info.get("num_ack_pending", 0)
    most = max(0, info["config"].get("max_ack_pending", 0))
    if pending > _MANY_PENDING:
        yield _AREA.warning(
            item.kind,
            f"{pending:,} messages wait for {item.name}",
            "start more of the service that reads it, or see its log",
        )
    if most and unacknowledged >= most:
        yield _AREA.trouble(
            item.kind,
            f"{item.name} delivers nothing more: {unacknowledged:,} are unacknowledged",
            "restart its reader, or raise HEADWAY_STREAM_MAX_ACK_PENDING and provision",
        )


def judge_services(services: list[Answering], version: str) -> Iterator[Finding]:
    """Check that both services answer, and have this version."""
    for title in ("scheduler", "dispatcher"):
        found = next((item for item in services if item.name == f"headway-{title}"), None)
        if found is None:
            yield _AREA.trouble(
                "services",
                f"no {title} answers on headway.control.{title}.*",
                f"start one with 'headway {title}', or see its log",
            )
            continue
        plural = "" if found.processes == 1 else "s"
        text = f"{found.processes} {title}{plural}, version {', '.join(found.versions)}"
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
