"""Settings: environment and flags, read once into a frozen struct.

The field `orphan_timeout_seconds` of a settings struct is read from the environment variable
`HEADWAY_ORPHAN_TIMEOUT_SECONDS`, or from the file that `HEADWAY_ORPHAN_TIMEOUT_SECONDS_FILE` names,
which suits secrets. All problems are reported together. The `Meta` of a field's type holds its
meaning and its limits, from which the documentation is generated.
"""

import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any, TypeVar

import msgspec
from msgspec import Meta, Struct, inspect
from msgspec.structs import FieldInfo

PREFIX = "HEADWAY_"

Settings = TypeVar("Settings", bound=Struct)

Above0 = Annotated[float, Meta(gt=0)]
From1 = Annotated[int, Meta(ge=1)]

# Returns the problem of a value, or `None`; the text omits URLs, which may hold passwords.
Check = Callable[[str], str | None]
NO_CHECKS: Mapping[str, Check] = {}

# Marks a setting whose value is never shown.
SECRET = {"secret": True}


class InvalidSettings(Exception):
    """Settings are missing or invalid; the text names each problem on its own line."""


DatabaseUrl = Annotated[
    str, Meta(description="PostgreSQL, as in `postgresql://user:password@host:5432/database`.")
]
NatsUrl = Annotated[
    str, Meta(description="NATS, as in `nats://host:4222`; several URLs are separated by commas.")
]
NatsCreds = Annotated[
    str | None, Meta(description="File with the credentials for NATS, if it requires any.")
]
NatsPing = Annotated[
    Above0,
    Meta(
        description="Interval between pings to NATS. After three missing answers the process "
        "reconnects, after nine it ends."
    ),
]
HealthAddress = Annotated[
    str,
    Meta(
        description="Address of `/livez`, `/readyz` and `/metrics`, as `host:port`; port 0 is "
        "any free port."
    ),
]


class ServiceSettings(Struct, frozen=True, kw_only=True):
    """Settings of every service that uses PostgreSQL and NATS."""

    database_url: DatabaseUrl
    nats_url: NatsUrl
    nats_creds: NatsCreds = None
    database_answer_seconds: Annotated[
        Above0,
        Meta(
            description="Maximum wait for an answer from PostgreSQL before the connection is "
            "closed. The longest wait for a lock is a third of it."
        ),
    ] = 30.0
    database_connections: Annotated[
        int,
        Meta(
            ge=3,
            description="Maximum connections to PostgreSQL for the passes of the process (tick, "
            "gate, projector, relay and the others).",
        ),
    ] = 10
    database_request_connections: Annotated[
        int,
        Meta(
            ge=1,
            description="Maximum additional connections of scheduler and dispatcher to PostgreSQL "
            "for users' requests. Further requests wait.",
        ),
    ] = 5
    nats_ping_seconds: NatsPing = 3.0
    health_address: HealthAddress = "127.0.0.1:0"
    metrics_age_seconds: Annotated[
        float,
        Meta(
            ge=0,
            description="Maximum age of metrics from PostgreSQL and NATS: a scrape reads them at "
            "most this often.",
        ),
    ] = 5.0
    outbox_batch: Annotated[
        int, Meta(ge=1, le=10_000, description="Maximum number of messages to publish at once.")
    ] = 500


def read(
    struct: type[Settings],
    environment: Mapping[str, str],
    checks: Mapping[str, Check] = NO_CHECKS,
    /,
    **overrides: Any,
) -> Settings:
    """Fill the struct from overrides (flags), environment and defaults, or raise all problems."""
    values: dict[str, Any] = {}
    problems: list[str] = []
    for field in msgspec.structs.fields(struct):
        try:
            raw = overrides.get(field.name)
            if raw is None:
                raw = lookup(environment, field.name)
            if raw is not None:
                values[field.name] = convert(field, raw)
                if field.name in checks and (problem := checks[field.name](str(raw))):
                    raise InvalidSettings(f"{variable_of(field.name)}: {problem}")
            elif field.required:
                raise InvalidSettings(f"{variable_of(field.name)} is not set")
        except InvalidSettings as error:
            problems.append(str(error))
    if problems:
        raise InvalidSettings("\n".join(problems))
    return struct(**values)


def variable_of(name: str) -> str:
    """Return the environment variable of a setting."""
    return PREFIX + name.upper()


def lookup(environment: Mapping[str, str], name: str) -> str | None:
    """Return a setting from its variable or from the file that `_FILE` names; `None` if unset."""
    variable = variable_of(name)
    path = environment.get(f"{variable}_FILE")
    if environment.get(variable) or not path:
        return environment.get(variable) or None
    try:
        return Path(path).read_text(encoding="utf-8").strip() or None
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "not text"
        raise InvalidSettings(f"{variable}_FILE: {path!r} cannot be read: {reason}") from error


def convert(field: FieldInfo, raw: Any) -> Any:
    """Convert a value to the type of its field; raise `InvalidSettings` with the expected type."""
    if isinstance(raw, str) and raw.strip().lower() == "none" and accepts_none(field):
        return None
    setting = f"{variable_of(field.name)}={raw!r}"
    try:
        value = msgspec.convert(raw, field.type, strict=False)
    except msgspec.ValidationError as error:
        choices = [kind.values for kind in kinds(field) if isinstance(kind, inspect.LiteralType)]
        hint = f", use one of {', '.join(map(str, choices[0]))}" if choices else ""
        raise InvalidSettings(f"{setting}: {error}{hint}") from error
    if isinstance(value, float) and not math.isfinite(value):
        raise InvalidSettings(f"{setting}: Expected a finite number")
    return value


def accepts_none(field: FieldInfo) -> bool:
    """Return whether `none` removes a number; in a text it is an ordinary word."""
    found = {type(kind) for kind in kinds(field)}
    return inspect.NoneType in found and not found & {inspect.StrType, inspect.LiteralType}


def kinds(field: FieldInfo) -> tuple[inspect.Type, ...]:
    """Return the types that a field accepts."""
    found = inspect.type_info(field.type)
    if isinstance(found, inspect.Metadata):
        found = found.type
    return found.types if isinstance(found, inspect.UnionType) else (found,)
