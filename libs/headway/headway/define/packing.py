"""Definitions on their way to the scheduler: JSON, compressed."""

import zlib

import msgspec

from headway.define.definitions import Definitions
from headway.define.validation import problems_of_body

MOST_BYTES = 64 * 1024**2


class UnreadableDefinitions(Exception):
    """What came are no definitions, or too many."""


def pack(definitions: Definitions) -> bytes:
    """Definitions as they travel."""
    return zlib.compress(msgspec.json.encode(definitions))


def unpack(packed: bytes) -> Definitions:
    """Read definitions that came over the wire; a small message may unpack to a huge one."""
    unpacker = zlib.decompressobj()
    try:
        body = unpacker.decompress(packed, MOST_BYTES)
    except zlib.error as error:
        raise UnreadableDefinitions(f"not definitions: {error}") from error
    if unpacker.unconsumed_tail:
        raise UnreadableDefinitions(f"the definitions are larger than {MOST_BYTES} bytes")
    if not unpacker.eof:
        raise UnreadableDefinitions("not definitions: they end too early")
    try:
        return msgspec.json.decode(body, type=Definitions)
    except msgspec.ValidationError as error:
        try:
            problems = problems_of_body(body)
        except (msgspec.DecodeError, RecursionError):  # it is no better further on
            problems = [f"not definitions: {error}"]
        raise UnreadableDefinitions("\n".join(problems)) from error
    except msgspec.DecodeError as error:
        raise UnreadableDefinitions(f"not definitions: {error}") from error
