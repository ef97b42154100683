"""Settings of commands, checked for their format. Messages omit URLs: they hold passwords."""

import os
import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import msgspec
from headway.define.defaults import Defaults, DefinitionSettings
from headway.define.options import parse_misfire
from headway_contract import check_name
from headway_decisions.timing import timing_problems
from headway_service_kit import settings as kit
from headway_service_kit.settings import Check, InvalidSettings

Settings = TypeVar("Settings", bound=msgspec.Struct)

# Streams of an `up` without settings of its own are smaller than those of a deployment.
LOCAL_STREAM_BYTES = 256 * 1024**2


def read(
    struct: type[Settings], flags: Mapping[str, Any], environment: Mapping[str, str] = os.environ
) -> Settings:
    """Fill the struct from flags, then the environment, then defaults; raises all problems."""
    return kit.read(struct, environment, CHECKS, **flags)


def check(
    structs: Iterable[type[msgspec.Struct]],
    flags: Mapping[str, Any],
    environment: Mapping[str, str] = os.environ,
) -> None:
    """Raise every problem that any of the structs has, each once."""
    problems: list[str] = []
    for struct in structs:
        try:
            read(struct, flags, environment)
        except InvalidSettings as error:
            problems += str(error).splitlines()
    if problems:
        raise InvalidSettings("\n".join(dict.fromkeys(problems)))


def read_defaults(environment: Mapping[str, str] = os.environ) -> Defaults:
    """Read the defaults of definitions from the environment of the process that declares them."""
    return read(DefinitionSettings, {}, environment).defaults()


def get(name: str, environment: Mapping[str, str] = os.environ) -> str | None:
    """Return a setting as text; `None` if it is not set or cannot be read."""
    try:
        return kit.lookup(environment, name)
    except InvalidSettings:
        return None


def _matches(pattern: str, problem: str) -> Check:
    """Make a check that a text has a form."""
    compiled = re.compile(pattern)
    return lambda text: None if compiled.fullmatch(text) else problem.format(text)


def _parsed_by(parse: Callable[[str], object]) -> Check:
    """Make a check that a function can parse a text."""

    def check_text(text: str) -> str | None:
        try:
            parse(text)
        except ValueError as error:
            return str(error)
        return None

    return check_text


def _check_file(text: str) -> str | None:
    return None if Path(text).is_file() else f"there is no file {text!r}"


def _check_address(text: str) -> str | None:
    port = text.rpartition(":")[2] if ":" in text and not re.search(r"\s", text) else ""
    if re.fullmatch(r"\d{1,5}", port) and int(port) <= 65_535:
        return None
    return f"invalid address {text!r}: write host:port, as in 127.0.0.1:8080"


_HOST = r"(\[[0-9A-Fa-f:.]+\]|[^\s:/?#@,\[\]]*)(:\d{1,5})?"
_check_nats_server = _matches(
    rf"\s*((nats|tls|ws|wss)://)?([^/?#]*@)?(?=[^:/]){_HOST}/?\s*",
    "not a NATS URL: write nats://host:4222, several separated by commas",
)
_check_url = _matches(
    rf"https?://(?=[^:/]){_HOST}(/[^\s?#]*)?",
    "invalid console URL {!r}: write https://headway.example.org",
)
CHECKS: dict[str, Check] = {
    "database_url": _matches(
        rf"postgres(ql)?://([^/?#]*@)?{_HOST}(,{_HOST})*([/?].*)?",
        "not a PostgreSQL URL: write postgresql://user:password@host:5432/database",
    ),
    "nats_url": lambda text: next(filter(None, map(_check_nats_server, text.split(","))), None),
    "nats_creds": _check_file,
    "health_address": _check_address,
    "console_address": _check_address,
    "console_url": _check_url,
    "url": _check_url,
    "api_tokens_file": _check_file,
    "worker_name": _parsed_by(lambda name: check_name("worker", name)),
    "tz": lambda text: next(iter(timing_problems.about_zone(text)), None),
    "misfire_policy": _parsed_by(parse_misfire),
}
