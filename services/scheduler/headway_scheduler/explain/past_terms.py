"""The terms that were in force when something was decided. Pure.

A decision does not name them. The audit has, with each declaration that changed a manifest, what
that has replaced. So what was in force at some time is what the next declaration has replaced, or
what is in force now; and nothing is known of what is older than the audit.
"""

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from msgspec import Struct


class Terms(Struct, frozen=True, kw_only=True):
    """Which policies a manifest had, and which group; none where nobody knows."""

    misfire: str | None = None
    overlap: str | None = None
    group: str | None = None


class Redeclared(Struct, frozen=True, kw_only=True):
    """When a manifest was declared, and the terms that this has replaced."""

    at: datetime
    replaced: Terms


class TermsOverTime(Struct, frozen=True, kw_only=True):
    """The terms of a manifest now, and those that declarations have replaced, the first first."""

    now: Terms
    redeclared: Sequence[Redeclared]
    known_since: datetime

    def at(self, decided_at: datetime | None) -> Terms:
        """The terms by which something was decided; a declaration itself decides by the old."""
        if decided_at is None or decided_at < self.known_since:
            return Terms()
        return next((one.replaced for one in self.redeclared if one.at >= decided_at), self.now)


def terms_of(row: Any) -> Terms:
    """The terms of a manifest that is stored."""
    return Terms(
        misfire=row["misfire"].get("policy", "fire_once"),
        overlap=row["overlap"].get("policy", "skip"),
        group=row["group_name"],
    )


def redeclared(row: Any) -> Redeclared:
    """A declaration, out of the audit."""
    replaced = Terms()
    # A new manifest has replaced nothing; or nobody has noted what.
    if row["group"] is not None:
        # What is at its default before and after is left out.
        replaced = Terms(
            misfire=row["misfire"] or "fire_once",
            overlap=row["overlap"] or "skip",
            group=row["group"],
        )
    return Redeclared(at=row["occurred_at"], replaced=replaced)
