"""Tokens in a file: a YAML list with the name, role, SHA-256 and optional expiry of each token.

    - name: deploy-bot
      role: operator
      sha256: 5f0c…
      expires: 2027-06-30T00:00:00Z

The tokens are stored nowhere. They have 256 random bits, so a slow hash would add nothing. The file
is read again when it changes; while it cannot be read, its tokens are refused.
"""

import hashlib
import hmac
from datetime import datetime
from pathlib import Path
from typing import Annotated

import msgspec
import yaml
from headway_clock import new_secret
from headway_contract.http import Role
from headway_service_kit.settings import InvalidSettings
from headway_tracing.log import get_logger
from msgspec import Meta, Struct

from headway_console.access.roles import Person

log = get_logger(__name__)

TOKEN_PREFIX = "headway_"  # noqa: S105 - every token begins with it
_MOST_BYTES = 1024 * 1024


class Token(Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """One entry of the file."""

    name: Annotated[str, Meta(min_length=1, max_length=100, pattern=r"^[^\x00-\x1f]*$")]
    role: Role
    sha256: Annotated[str, Meta(pattern=r"^[0-9a-f]{64}$(?!\n)")]
    expires: Annotated[datetime, Meta(tz=True)] | None = None


class Rejected(Exception):
    """An invalid or expired credential; the text is safe to show to the sender."""


def new_token(name: str, role: Role, expires: datetime | None = None) -> tuple[str, Token]:
    """Make a token and its entry for the file."""
    made = TOKEN_PREFIX + new_secret()
    return made, Token(name=name, role=role, sha256=fingerprint(made), expires=expires)


def fingerprint(token: str) -> str:
    """Hash a token as the file stores it."""
    return hashlib.sha256(token.encode()).hexdigest()


def token_as_yaml(token: Token) -> str:
    """Write an entry as YAML."""
    return yaml.safe_dump([msgspec.to_builtins(token)], sort_keys=False, allow_unicode=True)


class Tokens:
    """The entries of the file, and those given to the process."""

    def __init__(self, path: Path | None, given: tuple[Token, ...] = ()) -> None:
        self._path = path
        self._given = given
        self._stamp: object = None
        self._entries = given
        if path is not None:
            self._entries = given + read_tokens(path)
            self._stamp = _stamp(path)

    def person(self, token: str, now: datetime) -> Person:
        """Return the person of a token; raises `Rejected`."""
        return self.person_by(fingerprint(token), now)

    def person_by(self, sha256: str, now: datetime, *, session: str = "") -> Person:
        """Return the person of a fingerprint by the current file; raises `Rejected`."""
        self._refresh()
        found: Token | None = None
        for entry in self._entries:  # all entries, so that the duration reveals nothing
            if hmac.compare_digest(entry.sha256, sha256):
                found = entry
        if found is None:
            raise Rejected("unknown token")
        if found.expires is not None and found.expires <= now:
            raise Rejected(f"the token {found.name!r} expired at {found.expires.isoformat()}")
        return Person(name=found.name, role=found.role, by="token", session=session)

    def _refresh(self) -> None:
        if self._path is None:
            return
        stamp = _stamp(self._path)
        if stamp == self._stamp:
            return
        self._stamp = stamp
        try:
            self._entries = self._given + read_tokens(self._path)
        except InvalidSettings as error:
            self._entries = self._given
            log.error("tokens file unreadable; its tokens are refused", error=error)
        else:
            log.info("tokens file read", path=self._path, tokens=len(self._entries))


def read_tokens(path: Path) -> tuple[Token, ...]:
    """Read the entries of a file; raises `InvalidSettings`."""
    name = f"HEADWAY_API_TOKENS_FILE: {str(path)!r}"
    try:
        with path.open("rb") as file:
            plain = yaml.safe_load(file.read(_MOST_BYTES))
        found = msgspec.convert(plain or [], tuple[Token, ...])
    except OSError as error:
        raise InvalidSettings(f"{name} cannot be read: {error.strerror}") from error
    except (yaml.YAMLError, msgspec.ValidationError, UnicodeDecodeError) as error:
        raise InvalidSettings(
            f"{name}: {' '.join(str(error).split())}; 'headway token new' prints a valid entry"
        ) from error
    return found


def _stamp(path: Path) -> object:
    try:
        state = path.stat()
    except OSError as error:
        return error.errno
    return state.st_mtime_ns, state.st_size, state.st_ino
