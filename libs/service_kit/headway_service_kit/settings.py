"""Settings: environment and flags, read once into a frozen struct.

A field `orphan_timeout_seconds` of a settings struct is read from the environment
variable `HEADWAY_ORPHAN_TIMEOUT_SECONDS`, or from the file that
`HEADWAY_ORPHAN_TIMEOUT_SECONDS_FILE` names, which is how secrets are best given. All
problems are reported together. What a field means and which values it takes is said once, in
the `Meta` of its type; `describing` makes the page and the command of it.
"""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

import msgspec
from msgspec import Meta, Struct

PREFIX = "HEADWAY_"

Settings = TypeVar("Settings", bound=msgspec.Struct)
Source = Literal["flag", "environment", "file", "default"]

Above0 = Annotated[float, Meta(gt=0)]
# Marks what is shown to nobody.
SECRET = {"secret": True}

From1 = Annotated[int, Meta(ge=1)]


class InvalidSettings(Exception):
    """One or more settings are missing or cannot be read."""


DatabaseUrl = Annotated[
    str, Meta(description="PostgreSQL, as in `postgresql://user:password@host:5432/database`.")
]
NatsUrl = Annotated[
    str, Meta(description="NATS, as in `nats://host:4222`; several with commas between them.")
]
NatsCreds = Annotated[
    str | None, Meta(description="The file with the credentials for NATS, where it asks for any.")
]
NatsPing = Annotated[
    Above0,
    Meta(
        description="How often NATS is asked for a sign of life: without three in a row the "
        "connection is made anew, without nine the process ends."
    ),
]
HealthAddress = Annotated[
    str,
    Meta(
        description="Where `/livez`, `/readyz` and `/metrics` are answered, as `host:port`; 0 is "
        "any port."
    ),
]


class ServiceSettings(Struct, frozen=True, kw_only=True):
    """What every service needs that stands on PostgreSQL and NATS."""

    database_url: DatabaseUrl
    nats_url: NatsUrl
    nats_creds: NatsCreds = None
    database_answer_seconds: Annotated[
        Above0,
        Meta(
            description="How long PostgreSQL may take for an answer before the connection is "
            "given up. A lock is waited for for a third of it."
        ),
    ] = 30.0
    database_connections: Annotated[
        int,
        Meta(
            ge=3,
            description="How many connections to PostgreSQL the passes of the process (tick, gate, "
            "projector, relay and the others) open at the most.",
        ),
    ] = 10
    database_request_connections: Annotated[
        int,
        Meta(
            ge=1,
            description="How many connections to PostgreSQL scheduler and dispatcher open besides "
            "at the most, to answer requests of people. More requests wait for their turn.",
        ),
    ] = 5
    nats_ping_seconds: NatsPing = 3.0
    health_address: HealthAddress = "127.0.0.1:0"
    metrics_age_seconds: Annotated[
        float,
        Meta(
            ge=0,
            description="How old metrics may be that have to be asked for: a scrape asks "
            "PostgreSQL and NATS at most so often.",
        ),
    ] = 5.0
    outbox_batch: Annotated[
        int, Meta(ge=1, le=10_000, description="How many messages are published at once.")
    ] = 500


class Given(Struct, frozen=True, kw_only=True):
    """What somebody said about a setting, and where."""

    raw: Any
    source: Source


def read(struct: type[Settings], environment: Mapping[str, str], **overrides: Any) -> Settings:
    """Fill the struct from overrides (flags) first, then the environment, then defaults.

    Raises `InvalidSettings` with every problem, one a line.
    """
    values: dict[str, Any] = {}
    problems: list[str] = []
    for field in msgspec.structs.fields(struct):
        try:
            found = find(environment, field.name, overrides)
            if found is not None:
                values[field.name] = convert(field, found.raw)
            elif field.required:
                raise InvalidSettings(f"{variable_of(field.name)} is not set")
        except InvalidSettings as error:
            problems.append(str(error))
    if problems:
        raise InvalidSettings("\n".join(problems))
    return struct(**values)


def variable_of(name: str) -> str:
    """The environment variable of a setting."""
    return PREFIX + name.upper()


def find(
    environment: Mapping[str, str], name: str, overrides: Mapping[str, Any] | None = None
) -> Given | None:
    """What was said about a setting, and where; none where its default holds."""
    flag = (overrides or {}).get(name)
    if flag is not None:
        return Given(raw=flag, source="flag")
    text = given(environment, name)
    if text is None:
        return None
    return Given(raw=text, source="environment" if environment.get(variable_of(name)) else "file")


def given(environment: Mapping[str, str], name: str) -> str | None:
    """What the environment says about a setting, itself or in a file that it names."""
    variable = variable_of(name)
    path = environment.get(f"{variable}_FILE")
    if environment.get(variable) or not path:
        return environment.get(variable) or None
    try:
        return Path(path).read_text(encoding="utf-8").strip() or None
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "not text"
        raise InvalidSettings(f"{variable}_FILE: {path!r} cannot be read: {reason}") from error


def convert(field: msgspec.structs.FieldInfo, raw: Any) -> Any:
    """A value as its field takes it, or `InvalidSettings` with what was expected."""
    if isinstance(raw, str) and raw.strip().lower() == "none" and may_be_lifted(field):
        return None
    try:
        value = msgspec.convert(raw, field.type, strict=False)
    except msgspec.ValidationError as error:
        told = f"{variable_of(field.name)}={raw!r}: {error}{_choice(field)}"
        raise InvalidSettings(told) from error
    if isinstance(value, float) and not math.isfinite(value):
        raise InvalidSettings(f"{variable_of(field.name)}={raw!r}: Expected a finite number")
    return value


def _choice(field: msgspec.structs.FieldInfo) -> str:
    """The words that a setting takes, if it takes only some."""
    found = msgspec.inspect.type_info(field.type)
    if isinstance(found, msgspec.inspect.Metadata):
        found = found.type
    if not isinstance(found, msgspec.inspect.LiteralType):
        return ""
    return f", use one of {', '.join(map(str, found.values))}"


def may_be_lifted(field: msgspec.structs.FieldInfo) -> bool:
    """Whether it is a number that `none` takes away; of a text, none would be a word."""
    found = msgspec.inspect.type_info(field.type)
    if isinstance(found, msgspec.inspect.Metadata):
        found = found.type
    kinds = found.types if isinstance(found, msgspec.inspect.UnionType) else ()
    words = (msgspec.inspect.StrType, msgspec.inspect.LiteralType)
    return any(isinstance(one, msgspec.inspect.NoneType) for one in kinds) and not any(
        isinstance(one, words) for one in kinds
    )
