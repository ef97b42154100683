"""NATS: its version, JetStream, every stream and consumer, and which services answer on it."""

from datetime import datetime
from importlib import metadata
from typing import Any

import msgspec
from headway_clock import utc_now
from headway_console.streams import Answering, read_services
from headway_contract import subjects
from headway_dispatcher.provisioning import consumers, delivery_of, job_consumer, streams_by
from headway_dispatcher.settings import DispatcherSettings
from headway_jetstream_kit import Broker, BrokerUnavailable, Consumer, Stream
from headway_jetstream_kit.connection import ApiError
from headway_jetstream_kit.provisioning import (
    STREAM_NOT_FOUND,
    consumer_info,
    differences,
    stream_info,
)
from msgspec import Struct

from headway_cli.doctor.clocks import judge_clock
from headway_cli.doctor.findings import Area, Finding

_AREA = Area("nats")
_TESTED, _RESETS, _OLDEST = (2, 15), (2, 14), (2, 11)
_FILLING, _FULL = 0.7, 0.9
_MANY_PENDING = 10_000
_PAYLOAD = 1024**2
# What the names of services that answer begin with; each has several desks.
_SERVICES = ("headway-scheduler", "headway-dispatcher")
# The stream that is made and deleted to try the disk, and the subject that no stream has.
_TRIAL_STREAM, _TRIAL_SUBJECT = "HEADWAY_DOCTOR", "headway.doctor"
_TRIAL_SECONDS = 2.0
# Error codes of a write that failed: a new stream could not be stored, a purge met the error.
_WRITE_FAILED = (10049, 10077, 10051)


class Provisioned(Struct, frozen=True, kw_only=True):
    """A stream or a consumer: whether it is there, and what of it is not as it should be.

    `differs` has the names of settings, with what they are and what they should be.
    """

    name: str
    is_there: bool = False
    differs: dict[str, tuple[Any, Any]] = {}
    messages: int = 0
    used: int = 0
    limit: int = 0
    copies: int = 1
    clustered: bool = False
    lagging: list[str] = []
    pending: int = 0
    unacknowledged: int = 0
    most_unacknowledged: int = 0


class StreamFacts(Struct, frozen=True, kw_only=True):
    """What NATS tells. `problem` is why JetStream does not answer.

    `write_errors` has the streams that NATS cannot write, `untried` why that is not known.
    """

    where: str
    version: str
    max_payload: int
    problem: str = ""
    theirs: datetime | None = None
    ours: datetime | None = None
    storage: int = 0
    storage_limit: int = 0
    write_errors: dict[str, str] = {}
    untried: str = ""
    streams: list[Provisioned] = []
    consumers: list[Provisioned] = []
    services: list[Answering] = []


async def gather_streams(
    broker: Broker, settings: DispatcherSettings, jobs: list[str]
) -> StreamFacts:
    """Look at the broker and try its disk; `jobs` are those that a live worker serves."""
    told = StreamFacts(
        where=broker.where,
        version=_version_of(broker),
        max_payload=broker.client.max_payload,
    )
    try:
        account = await broker.api("INFO")
    except Exception as error:  # noqa: BLE001 - whatever it is, the rest cannot be asked either
        return msgspec.structs.replace(told, problem=str(error) or type(error).__name__)
    delivery = delivery_of(settings)
    wanted = [*consumers(delivery), *(job_consumer(job, delivery) for job in jobs)]
    asked_at = utc_now()
    found = [await _stream(broker, one) for one in streams_by(settings)]
    times = [at for _, at in found if at is not None]
    present = [one.name for one, _ in found if one.is_there]
    write_errors, untried = await _try_writing(broker, present, replicas=settings.stream_replicas)
    return msgspec.structs.replace(
        told,
        theirs=times[0] if times else None,
        ours=asked_at,
        storage=account.get("storage", 0),
        storage_limit=max(0, account.get("limits", {}).get("max_storage", 0)),
        write_errors=write_errors,
        untried=untried,
        streams=[one for one, _ in found],
        consumers=[await _consumer(broker, one) for one in wanted],
        services=await read_services(broker),
    )


async def _try_writing(
    broker: Broker, names: list[str], *, replicas: int
) -> tuple[dict[str, str], str]:
    """Store a new stream, and ask ours for write errors; also why that could not be tried.

    A stream remembers a failed write, and a purge tells it. This one purges a subject that no
    stream has, and so nothing. A publish that is refused would prove nothing: it is refused
    before anything is written.
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
                elif error.err_code != STREAM_NOT_FOUND:  # it was deleted, by us or at once
                    raise
    except (ApiError, BrokerUnavailable) as error:
        return errors, str(error)
    return errors, ""


def _version_of(broker: Broker) -> str:
    told = broker.client.connected_server_version
    return f"{told.major}.{told.minor}.{told.patch}"


async def _stream(broker: Broker, wanted: Stream) -> tuple[Provisioned, datetime | None]:
    info = await stream_info(broker, wanted.name)
    if info is None:
        return Provisioned(name=wanted.name), None
    cluster = info.get("cluster") or {}
    told = Provisioned(
        name=wanted.name,
        is_there=True,
        differs=differences(info["config"], wanted.config),
        messages=info["state"]["messages"],
        used=info["state"]["bytes"],
        limit=max(0, info["config"].get("max_bytes", 0)),
        copies=info["config"].get("num_replicas", 1),
        clustered=bool(cluster.get("name")),
        lagging=[
            one["name"]
            for one in cluster.get("replicas") or []
            if one.get("offline") or not one.get("current", True)
        ],
    )
    return told, msgspec.convert(info["ts"], datetime, strict=False) if "ts" in info else None


async def _consumer(broker: Broker, wanted: Consumer) -> Provisioned:
    name = f"{wanted.stream}/{wanted.name}"
    info = await consumer_info(broker, wanted.stream, wanted.name)
    if info is None:
        return Provisioned(name=name)
    return Provisioned(
        name=name,
        is_there=True,
        differs=differences(info["config"], wanted.config),
        pending=info.get("num_pending", 0),
        unacknowledged=info.get("num_ack_pending", 0),
        most_unacknowledged=max(0, info["config"].get("max_ack_pending", 0)),
    )


def judge_streams(facts: StreamFacts) -> list[Finding]:
    """All that can be said about the broker."""
    found = [_version(facts), *_payload(facts)]
    if facts.problem:
        return [
            *found,
            _AREA.trouble(
                "jetstream",
                facts.problem,
                "enable JetStream in the server's configuration, for this account too; if the "
                "server's log says that its disk was full, free space and restart NATS",
            ),
        ]
    found += [*_storage(facts)]
    if facts.theirs is not None and facts.ours is not None:
        why = "messages expire by the server's"
        found.append(judge_clock(_AREA, facts.theirs, facts.ours, why))
    for kind, provisioned in (("stream", facts.streams), ("consumer", facts.consumers)):
        found += [finding for one in provisioned for finding in _provisioned(kind, one)]
    return [*found, *judge_services(facts.services, metadata.version("headway-jetstream-kit"))]


def _version(facts: StreamFacts) -> Finding:
    told = f"nats-server {facts.version}"
    version = tuple(int(part) for part in facts.version.split(".")[:2])
    if version < _OLDEST:
        return _AREA.trouble(
            "version", told, "upgrade it: claims need 2.11, and the tests run on 2.15"
        )
    if version < _RESETS:
        return _AREA.warning(
            "version",
            told,
            "upgrade it to 2.14 or newer: until then what a service has left behind that ended "
            "comes again only after the ack wait",
        )
    return _AREA.ok("version", f"{told} at {facts.where}")


def _payload(facts: StreamFacts) -> list[Finding]:
    if facts.max_payload >= _PAYLOAD:
        return []
    return [
        _AREA.warning(
            "payload",
            f"it takes messages of {facts.max_payload:,} bytes at most",
            "set max_payload: 1MB, or inputs and outputs of 256 KiB may not fit",
        )
    ]


def _storage(facts: StreamFacts) -> list[Finding]:
    if facts.write_errors:
        names = ", ".join(facts.write_errors)
        return [
            _AREA.trouble(
                "storage",
                f"NATS stores nothing for {names}: {next(iter(facts.write_errors.values()))}",
                "free space on its disk, then restart NATS: a stream whose write has failed takes "
                "nothing until then",
            )
        ]
    found = []
    if facts.untried:
        found.append(
            _AREA.warning(
                "storage",
                f"it is unknown whether NATS can write to its disk: {facts.untried}",
                f"let this user purge and make the stream {_TRIAL_STREAM}, or see the server's log",
            )
        )
    if not facts.storage_limit:
        return [*found, _AREA.ok("storage", f"{_size(facts.storage)} used, without a limit")]
    told = f"{_size(facts.storage)} of {_size(facts.storage_limit)} used"
    return [*found, _fill("storage", told, facts.storage / facts.storage_limit, "raise the limit")]


def _provisioned(kind: str, one: Provisioned) -> list[Finding]:
    if not one.is_there:
        remedy = "run 'headway provision', or let the dispatcher do it with HEADWAY_PROVISION=auto"
        if subjects.job_of_consumer(one.name.partition("/")[2]) is not None:
            remedy = (
                "the dispatcher makes it within seconds: see that one runs; with the database "
                "this command says why NATS refuses it"
            )
        return [_AREA.trouble(kind, f"{one.name} is missing", remedy)]
    found = []
    if one.differs:
        told = ", ".join(
            f"{name} is {is_now} and should be {wanted}"
            for name, (is_now, wanted) in one.differs.items()
        )
        found.append(
            _AREA.warning(
                kind,
                f"{one.name}: {told}",
                "run 'headway provision', or give this command the settings (HEADWAY_STREAM_…) "
                "of the services",
            )
        )
    if one.limit and one.used > _FILLING * one.limit:
        told = f"{one.name} has {_size(one.used)} of {_size(one.limit)}"
        remedy = "see why it is not read, or raise HEADWAY_STREAM_MAX_BYTES and provision"
        found.append(_fill(kind, told, one.used / one.limit, remedy))
    found += _copies(kind, one)
    if one.pending > _MANY_PENDING:
        found.append(
            _AREA.warning(
                kind,
                f"{one.pending:,} messages wait for {one.name}",
                "start more of the service that reads it, or see its log",
            )
        )
    if one.most_unacknowledged and one.unacknowledged >= one.most_unacknowledged:
        found.append(
            _AREA.trouble(
                kind,
                f"{one.name} hands out nothing more: {one.unacknowledged:,} are unacknowledged",
                "restart what reads it, or raise HEADWAY_STREAM_MAX_ACK_PENDING and provision",
            )
        )
    return found or [_AREA.ok(kind, f"{one.name} ({one.pending or one.messages} messages)")]


def _copies(kind: str, one: Provisioned) -> list[Finding]:
    if one.clustered and one.copies == 1:
        return [
            _AREA.warning(
                kind,
                f"{one.name} has one copy in a cluster, and is gone while its server is",
                "set HEADWAY_STREAM_REPLICAS=3 and run 'headway provision'",
            )
        ]
    if one.lagging:
        names = ", ".join(one.lagging)
        return [
            _AREA.warning(
                kind,
                f"{one.name}: the copies on {names} are behind or offline",
                "see to those servers: another failure may stop the stream",
            )
        ]
    return []


def _fill(check: str, told: str, part: float, remedy: str) -> Finding:
    if part > _FULL:
        return _AREA.trouble(check, told, remedy)
    return _AREA.warning(check, told, remedy) if part > _FILLING else _AREA.ok(check, told)


def judge_services(services: list[Answering], version: str) -> list[Finding]:
    """Whether both services answer, and are of this version."""
    found = []
    for name in _SERVICES:
        one = next((told for told in services if told.name == name), None)
        title = name.removeprefix("headway-")
        if one is None:
            found.append(
                _AREA.trouble(
                    "services",
                    f"no {title} answers on headway.control.{title}.*",
                    f"start one with 'headway {title}', or see its log",
                )
            )
            continue
        words = f"{one.processes} {title}{'' if one.processes == 1 else 's'}"
        words += f", version {', '.join(one.versions)}"
        if one.versions == [version]:
            found.append(_AREA.ok("services", words))
        else:
            remedy = f"this command is of {version}: let all be of one version, migrated first"
            found.append(_AREA.warning("services", words, remedy))
    return found


def _size(number: int) -> str:
    for unit in ("bytes", "KiB", "MiB"):
        if number < 1024:
            return f"{number:.0f} {unit}"
        number //= 1024
    return f"{number} GiB"
