"""What workers say, as text that can be stored.

JSON can spell text that PostgreSQL does not store: NUL characters and halves of surrogate pairs. A
worker in any language may meet such text in what it reports, and must not lose the report for
it: what cannot be stored is replaced by something that can be seen.
"""

import re

NUL_SHOWN = "\\0"
UNREADABLE_SHOWN = "\ufffd"

# Whole escapes, so that an escaped backslash before a `u` is not taken for the start of one.
_PAIR = rb"\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}"
_ESCAPES = re.compile(_PAIR + rb"|\\u[0-9a-fA-F]{4}|\\.", re.DOTALL)
_HALF = re.compile(rb"\\u[dD][89a-fA-F][0-9a-fA-F]{2}")


def storable(body: bytes) -> bytes:
    """JSON whose text can be stored; what is no JSON stays what it is."""
    if not body.isascii():
        body = body.decode(errors="replace").encode()
    return _ESCAPES.sub(_storable_escape, body) if b"\\u" in body else body


def _storable_escape(escape: re.Match[bytes]) -> bytes:
    spelled = escape[0]
    if spelled == b"\\u0000":
        return NUL_SHOWN.replace("\\", "\\\\").encode()
    if _HALF.fullmatch(spelled):
        return UNREADABLE_SHOWN.encode()
    return spelled
