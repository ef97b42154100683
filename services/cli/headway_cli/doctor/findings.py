"""What a check comes to."""

from typing import Literal

from msgspec import Struct

Verdict = Literal["ok", "warning", "trouble"]


class Finding(Struct, frozen=True, kw_only=True):
    """One check: how it stands, what was found, and what to do about it."""

    area: str
    check: str
    verdict: Verdict
    found: str
    remedy: str = ""


class Area:
    """Makes findings about one thing."""

    def __init__(self, name: str) -> None:
        self.name = name

    def ok(self, check: str, found: str) -> Finding:
        """All is well."""
        return Finding(area=self.name, check=check, verdict="ok", found=found)

    def warning(self, check: str, found: str, remedy: str) -> Finding:
        """It works, but somebody should know."""
        return Finding(area=self.name, check=check, verdict="warning", found=found, remedy=remedy)

    def trouble(self, check: str, found: str, remedy: str) -> Finding:
        """It does not work, or not for long."""
        return Finding(area=self.name, check=check, verdict="trouble", found=found, remedy=remedy)
