"""Messages between a worker and the process of a body: one JSON object a line."""

from typing import Any

import msgspec
from headway_contract.lifecycle import Failure
from headway_contract.orders import OrderedRun
from headway_contract.worker_protocol import Level
from msgspec import Struct

from headway.worker.context import ActivationRequest


class FunctionPath(Struct, frozen=True):
    """A function by its module and file."""

    module: str
    file: str
    name: str


class Begin(Struct, frozen=True, kw_only=True, tag="begin"):
    """Run this body."""

    function: FunctionPath
    job: str
    ordered: OrderedRun
    capture_logging: bool = False


class Stop(Struct, frozen=True, tag="stop"):
    """The body should end early."""


class ActivateReply(Struct, frozen=True, kw_only=True, tag="activated"):
    """The result of an activation: success, or an error of `headway.errors`."""

    number: int
    error: str = ""
    message: str = ""


class Alive(Struct, frozen=True, tag="alive"):
    """The process has started."""

    pid: int


class ProgressFrame(Struct, frozen=True, kw_only=True, tag="progress"):
    """Progress of the body."""

    percent: float | None = None
    message: str | None = None


class LogFrame(Struct, frozen=True, kw_only=True, tag="line"):
    """A log line of the body."""

    level: Level
    message: str
    fields: dict[str, Any] = {}


class ActivateFrame(Struct, frozen=True, kw_only=True, tag="activate"):
    """The body activates dependents."""

    number: int
    requests: list[ActivationRequest]


class Returned(Struct, frozen=True, tag="returned"):
    """The body returned this."""

    output: msgspec.Raw


class Raised(Struct, frozen=True, tag="raised"):
    """The body failed."""

    failure: Failure


class Exited(Struct, frozen=True, tag="exited"):
    """The fork server reports that the process has ended; a negative code is a signal."""

    code: int


ToChild = Begin | Stop | ActivateReply
FromChild = Alive | ProgressFrame | LogFrame | ActivateFrame | Returned | Raised | Exited

to_child: msgspec.json.Decoder[ToChild] = msgspec.json.Decoder(ToChild)
from_child: msgspec.json.Decoder[FromChild] = msgspec.json.Decoder(FromChild)


def encode_frame(frame: ToChild | FromChild) -> bytes:
    """Encode a frame as one line."""
    return msgspec.json.encode(frame) + b"\n"
