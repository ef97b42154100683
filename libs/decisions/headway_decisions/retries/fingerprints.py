"""Which failures are the same one.

Two failures of a job are the same if their kinds are, and their messages too once everything
is masked that differs from run to run: ids, numbers, addresses, paths, and what is quoted.
Stacks are left out, because every release moves their lines.
"""

import hashlib
import re

import msgspec
from headway_contract.lifecycle import Failure

# Beyond this a message repeats itself, or lists what it was given.
_READ = 2000
_LENGTH = 12

_MASKS = (
    (re.compile(r"\b[a-z][a-z0-9+.-]{1,20}://[^\s'\"<>]+", re.IGNORECASE), "<url>"),
    (re.compile(r"(?<!\w)'[^'\n]*'(?!\w)|\"[^\"\n]*\"|`[^`\n]*`"), "<text>"),
    (re.compile(r"\b[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}\b", re.IGNORECASE), "<id>"),
    (re.compile(r"(?<!\w)(?:[A-Za-z]:)?(?:[\\/][\w.@+-]+){2,}[\\/]?"), "<path>"),
    (re.compile(r"\b0x[0-9a-f]+\b", re.IGNORECASE), "<hex>"),
    # Letters and digits in one word: an id of somebody's making, or a digest.
    (re.compile(r"\b(?=\w*\d)(?=\w*[A-Za-z])\w{6,}\b"), "<id>"),
    (re.compile(r"\b[0-9a-f]{12,}\b", re.IGNORECASE), "<hex>"),
    (re.compile(r"[-+]?\d+(?:[.,:]\d+)*"), "<n>"),
    (re.compile(r"\s+"), " "),
)


def normalised(message: str) -> str:
    """A message with everything masked that differs between two of the same failures."""
    text = message[:_READ]
    for pattern, mask in _MASKS:
        text = pattern.sub(mask, text)
    return text.strip()


def fingerprint(job: str, failure: Failure) -> str:
    """Equal for failures of a job that are the same one."""
    parts = [job, failure.kind, normalised(failure.message)]
    return hashlib.sha256(msgspec.json.encode(parts)).hexdigest()[:_LENGTH]


def shown(print_: str, code_version: str) -> str:
    """A fingerprint as people see it: with the version of the code that failed, if known."""
    return f"{print_}@{code_version}" if code_version else print_


def read(given: str) -> tuple[str, str | None]:
    """A fingerprint as people give it; without a version any is meant."""
    print_, at, code_version = given.strip().partition("@")
    return print_, code_version if at else None
