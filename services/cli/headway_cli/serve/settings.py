"""Settings at the entrance: read by the kit, and checked here for the shape that users see.

All problems are told together, one a line. Values of URLs are not repeated: they hold passwords.
"""

import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

import msgspec
from headway.define.defaults import Defaults, DefinitionSettings
from headway.define.policies import parse_misfire
from headway_contract import InvalidName, check_name
from headway_decisions.timing import timing_problems
from headway_service_kit import settings as kit
from headway_service_kit.settings import InvalidSettings

Settings = TypeVar("Settings", bound=msgspec.Struct)

_HOST = r"(\[[0-9A-Fa-f:.]+\]|[^\s:/?#@,\[\]]*)(:\d{1,5})?"
_DATABASE_URL = re.compile(rf"postgres(ql)?://([^/?#]*@)?{_HOST}(,{_HOST})*([/?].*)?")
_NATS_URL = re.compile(rf"((nats|tls|ws|wss)://)?([^/?#]*@)?(?=[^:/]){_HOST}/?")
_URL = re.compile(rf"https?://(?=[^:/]){_HOST}(/[^\s?#]*)?")
_HEALTH_ADDRESS = re.compile(r"[^\s]*:(\d{1,5})")


def read(
    struct: type[Settings], flags: Mapping[str, Any], environment: Mapping[str, str] = os.environ
) -> Settings:
    """Fill the struct from flags, then the environment, then defaults; or tell all problems."""
    check([struct], flags, environment)
    return kit.read(struct, environment, **flags)


def check(
    structs: Iterable[type[msgspec.Struct]],
    flags: Mapping[str, Any],
    environment: Mapping[str, str] = os.environ,
) -> None:
    """Raise with every problem that any of the structs would have, each once."""
    problems = [one for struct in structs for one in _problems(struct, flags, environment)]
    if problems:
        raise InvalidSettings("\n".join(dict.fromkeys(problems)))


def _problems(
    struct: type[msgspec.Struct], flags: Mapping[str, Any], environment: Mapping[str, str]
) -> Iterator[str]:
    try:
        kit.read(struct, environment, **flags)
    except InvalidSettings as error:
        yield from str(error).splitlines()
    for field in msgspec.structs.fields(struct):
        given = flags.get(field.name) or _given(environment, field.name)
        problem = _CHECKS[field.name](str(given)) if given and field.name in _CHECKS else None
        if problem:
            yield f"{kit.variable_of(field.name)}: {problem}"


def read_defaults(environment: Mapping[str, str] = os.environ) -> Defaults:
    """What definitions go by that state nothing else, from the environment of who declares."""
    return read(DefinitionSettings, {}, environment).defaults()


def _given(environment: Mapping[str, str], name: str) -> str | None:
    try:
        return kit.given(environment, name)
    except InvalidSettings:
        return None  # told when it was read


def _check_database_url(given: str) -> str | None:
    if _DATABASE_URL.fullmatch(given):
        return None
    return "this is no URL of PostgreSQL: write postgresql://user:password@host:5432/database"


def _check_nats_url(given: str) -> str | None:
    if all(_NATS_URL.fullmatch(one.strip()) for one in given.split(",")):
        return None
    return "this is no URL of NATS: write nats://host:4222, several with commas between them"


def _check_file(given: str) -> str | None:
    return None if Path(given).is_file() else f"there is no file {given!r}"


def _check_health_address(given: str) -> str | None:
    match = _HEALTH_ADDRESS.fullmatch(given)
    if match and int(match[1]) <= 65_535:
        return None
    return f"{given!r} is no address: write host:port, as in 127.0.0.1:8080"


def _check_url(given: str) -> str | None:
    if _URL.fullmatch(given):
        return None
    return f"{given!r} is no URL of a console: write https://headway.example.org"


def _check_worker_name(given: str) -> str | None:
    try:
        check_name("worker", given)
    except InvalidName as error:
        return str(error)
    return None


def _check_zone(given: str) -> str | None:
    return next(iter(timing_problems.about_zone(given)), None)


def _check_misfire(given: str) -> str | None:
    try:
        parse_misfire(given)
    except ValueError as error:
        return str(error)
    return None


_CHECKS: dict[str, Callable[[str], str | None]] = {
    "database_url": _check_database_url,
    "nats_url": _check_nats_url,
    "nats_creds": _check_file,
    "health_address": _check_health_address,
    "console_address": _check_health_address,
    "console_url": _check_url,
    "url": _check_url,
    "api_tokens_file": _check_file,
    "worker_name": _check_worker_name,
    "tz": _check_zone,
    "misfire_policy": _check_misfire,
}
