"""Names that become subject tokens, checked at every entrance."""

import re

# The lookahead, because `$` alone also matches before a newline at the end.
NAME_PATTERN = r"^[A-Za-z0-9][A-Za-z0-9_-]{0,63}$(?!\n)"
_NAME = re.compile(NAME_PATTERN)
_MANIFEST_ID = re.compile(r"^[A-Za-z0-9][A-Za-z0-9_-]{0,199}$")


class InvalidName(ValueError):
    """A name that could not be part of a subject."""


def check_name(kind: str, name: object) -> str:
    """Return `name` if it may become a subject token, else say what is wrong with it."""
    if isinstance(name, str) and _NAME.fullmatch(name):
        return name
    raise InvalidName(
        f"{kind} name {name!r} is not valid: use 1 to 64 letters, digits, '-' and '_', "
        "starting with a letter or digit (no spaces, no dots)"
    )


def check_manifest_id(external_id: object) -> str:
    """Return a manifest's id if it may be one; it is longer than a name, for it is no token."""
    if isinstance(external_id, str) and _MANIFEST_ID.fullmatch(external_id):
        return external_id
    raise InvalidName(
        f"manifest id {external_id!r} is not valid: use 1 to 200 letters, digits, '-' and '_', "
        "starting with a letter or digit (no spaces, no dots)"
    )
