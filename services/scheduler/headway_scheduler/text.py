"""Format times and counts for messages."""

from datetime import datetime


def utc(at: datetime) -> str:
    """Format a time."""
    return f"{at:%Y-%m-%d %H:%M:%S} UTC"


def counted(number: int, noun: str) -> str:
    """Format a number of things, with the noun in its plural where it needs one."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
