"""What a worker and the process of a body say to each other: JSON, a line each."""

from typing import Any

import msgspec
from headway_contract.lifecycle import Failure
from headway_contract.orders import OrderedRun
from headway_contract.progress import Level
from msgspec import Struct


class Place(Struct, frozen=True):
    """Where a function is found: its module by name, or else by its file."""

    module: str
    file: str
    name: str


class Begin(Struct, frozen=True, kw_only=True, tag="begin"):
    """Run this body."""

    place: Place
    job: str
    ordered: OrderedRun
    capture_logging: bool = False


class Stop(Struct, frozen=True, tag="stop"):
    """The body should end early."""


class Activated(Struct, frozen=True, kw_only=True, tag="activated"):
    """How an activation ended: well, or with one of the errors of `headway.errors`."""

    number: int
    error: str = ""
    message: str = ""


class Alive(Struct, frozen=True, tag="alive"):
    """The process is there."""

    pid: int


class ToldProgress(Struct, frozen=True, kw_only=True, tag="progress"):
    """How far the body is."""

    percent: float | None = None
    message: str | None = None


class ToldLine(Struct, frozen=True, kw_only=True, tag="line"):
    """A line of its log."""

    level: Level
    message: str
    fields: dict[str, Any] = {}


class ToActivate(Struct, frozen=True, kw_only=True, tag="activate"):
    """The body wakes dependents, each given as manifest, input and key."""

    number: int
    wanted: list[tuple[str, Any, str | None]]


class Returned(Struct, frozen=True, tag="returned"):
    """The body returned this."""

    output: msgspec.Raw


class Raised(Struct, frozen=True, tag="raised"):
    """The body failed."""

    failure: Failure


ToChild = Begin | Stop | Activated
FromChild = Alive | ToldProgress | ToldLine | ToActivate | Returned | Raised

to_child: msgspec.json.Decoder[ToChild] = msgspec.json.Decoder(ToChild)
from_child: msgspec.json.Decoder[FromChild] = msgspec.json.Decoder(FromChild)


def line(frame: ToChild | FromChild) -> bytes:
    """A frame as it travels."""
    return msgspec.json.encode(frame) + b"\n"
