"""The envelope: CloudEvents 1.0 in JSON, structured mode.

A message body is one event or a JSON array of events. `decode` never fails on a type
that it does not know; it fails with `Malformed`, and only with that, on bytes that are
not an event at all or whose data does not fit the type that they claim.
"""

from collections.abc import Sequence
from datetime import datetime
from typing import Any, ClassVar
from uuid import UUID

import msgspec

from headway_contract.nulls import decode_lenient


class EventData(msgspec.Struct, frozen=True, kw_only=True):
    """The data of one type of event; `type` is its name on the wire."""

    type: ClassVar[str]


class Event(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One event with typed data, as it stands on the wire."""

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
    """An event of a type that this program does not know: counted and passed over."""

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
_data_decoders: dict[str, msgspec.json.Decoder[Any]] = {}
_types: dict[str, type[EventData]] = {}


def register(*types: type[EventData]) -> None:
    """Make event types known to `decode`."""
    for struct in types:
        _data_decoders[struct.type] = msgspec.json.Decoder(struct)
        _types[struct.type] = struct


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
    """The message body for one event, or for several as an array."""
    if not isinstance(events, Event) and len(events) == 1:
        return _encoder.encode(events[0])
    return _encoder.encode(events)


def decode(body: bytes) -> list[Event | Unknown]:
    """Read a message body; unknown types come back as `Unknown`."""
    try:
        is_array = body.lstrip()[:1] == b"["
        envelopes = _batches.decode(body) if is_array else [_singles.decode(body)]
        return [_open(envelope) for envelope in envelopes]
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Malformed(f"not a Headway event: {error}") from error


def _read_data(envelope: _Envelope) -> EventData:
    try:
        data: EventData = _data_decoders[envelope.type].decode(envelope.data)
    except msgspec.ValidationError:
        return decode_lenient(envelope.data, _types[envelope.type])
    return data


def _open(envelope: _Envelope) -> Event | Unknown:
    if envelope.type not in _data_decoders:
        return Unknown(id=envelope.id, type=envelope.type)
    if envelope.time is None or envelope.time.tzinfo is None:
        raise Malformed(f"event {envelope.id} of type {envelope.type} has no time with a zone")
    return Event(
        specversion=envelope.specversion,
        id=envelope.id,
        source=envelope.source,
        type=envelope.type,
        subject=envelope.subject,
        time=envelope.time,
        datacontenttype="application/json",
        data=_read_data(envelope),
        traceparent=envelope.traceparent,
    )
