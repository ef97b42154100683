"""The envelope of events: CloudEvents 1.0 in JSON, structured mode.

A message body is one event or a JSON array of events. `null` for an empty list or map counts as
left out, because Go encodes nil slices so.
"""

from collections.abc import Sequence
from datetime import datetime
from typing import Any, ClassVar, TypeVar, get_args
from uuid import UUID

import msgspec

Kind = TypeVar("Kind", bound=msgspec.Struct)


class EventData(msgspec.Struct, frozen=True, kw_only=True):
    """The data of one type of event; `type` is its name on the wire, empty for a base class."""

    type: ClassVar[str] = ""


class Event(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One event with typed data, as it is on the wire."""

    specversion: str
    id: str
    source: str
    type: str
    subject: str
    time: datetime
    datacontenttype: str
    data: Any
    traceparent: str | None = None


class Unknown(msgspec.Struct, frozen=True, kw_only=True):
    """An event of an unknown type."""

    id: str
    type: str


class Malformed(ValueError):
    """Bytes that are not an event, or an event whose data does not fit its type."""


class _Envelope(msgspec.Struct, frozen=True, kw_only=True):
    specversion: str
    id: str
    source: str
    type: str
    subject: str = ""
    time: datetime | None = None
    traceparent: str | None = None
    data: msgspec.Raw = msgspec.Raw(b"null")


_encoder = msgspec.json.Encoder()
_batches = msgspec.json.Decoder(list[_Envelope])
_singles = msgspec.json.Decoder(_Envelope)
_data_types: dict[str, type[EventData]] = {}


def register(*types: type[EventData]) -> None:
    """Make event types known to `decode`."""
    _data_types.update({struct.type: struct for struct in types})


def event(
    data: EventData,
    *,
    id: UUID | str,  # noqa: A002 - CloudEvents calls it so
    source: str,
    subject: UUID | str,
    time: datetime,
    traceparent: str | None = None,
) -> Event:
    """Put data into an envelope."""
    return Event(
        specversion="1.0",
        id=str(id),
        source=source,
        type=data.type,
        subject=str(subject),
        time=time,
        datacontenttype="application/json",
        data=data,
        traceparent=traceparent,
    )


def encode(events: Event | Sequence[Event]) -> bytes:
    """Return the message body of one event, or of several as an array."""
    if not isinstance(events, Event) and len(events) == 1:
        return _encoder.encode(events[0])
    return _encoder.encode(events)


def decode(body: bytes) -> list[Event | Unknown]:
    """Read a message body; raise `Malformed` if it or the data of an event is not valid."""
    try:
        is_array = body.lstrip()[:1] == b"["
        envelopes = _batches.decode(body) if is_array else [_singles.decode(body)]
        return [_open(envelope) for envelope in envelopes]
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Malformed(f"not a Headway event: {error}") from error


def _open(envelope: _Envelope) -> Event | Unknown:
    kind = _data_types.get(envelope.type)
    if kind is None:
        return Unknown(id=envelope.id, type=envelope.type)
    if envelope.time is None or envelope.time.tzinfo is None:
        raise Malformed(f"event {envelope.id} of type {envelope.type} has no time with a zone")
    return event(
        decode_lenient(envelope.data, kind),
        id=envelope.id,
        source=envelope.source,
        subject=envelope.subject,
        time=envelope.time,
        traceparent=envelope.traceparent,
    )


def decode_lenient(data: bytes | msgspec.Raw, kind: type[Kind]) -> Kind:
    """Decode a message; `null` for a list or map that may be empty counts as left out."""
    try:
        return msgspec.json.decode(data, type=kind)
    except msgspec.ValidationError:
        value = msgspec.json.decode(data)
        repaired = _without_null_lists(value, kind)
        if repaired == value:
            raise
        return msgspec.convert(repaired, kind)


def _without_null_lists(value: Any, kind: Any) -> Any:
    """Drop `null` where a struct has an empty list or map by default; keep data of users."""
    struct = _struct_in(kind)
    if struct is None:
        return value
    if isinstance(value, list):
        return [_without_null_lists(item, struct) for item in value]
    if not isinstance(value, dict):
        return value
    kept = dict(value)
    for field in msgspec.structs.fields(struct):
        name = field.encode_name
        if name in kept and kept[name] is None and field.default_factory in (list, dict):
            del kept[name]
        elif name in kept:
            kept[name] = _without_null_lists(kept[name], field.type)
    return kept


def _struct_in(kind: Any) -> type[msgspec.Struct] | None:
    """Return the struct that a type is or contains: itself, in a list, or optional."""
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        return kind
    return next((found for part in get_args(kind) if (found := _struct_in(part))), None)
