"""The settings that a test gives a world: those of its services, by name and with sound values."""

from typing import Any

import msgspec
from headway.worker import WorkerSettings
from headway_dispatcher.settings import DispatcherSettings
from headway_scheduler.settings import SchedulerSettings

# Where its servers answer is the world's own business.
_OWN = {"database_url", "nats_url"}


def check(given: dict[str, Any], *, slots: int) -> None:
    """Raise for a name that no service knows, and for values that none would take."""
    structs = (SchedulerSettings, DispatcherSettings)
    fields = {one.name: one for struct in structs for one in msgspec.structs.fields(struct)}
    unknown = set(given) - (set(fields) - _OWN)
    if unknown:
        raise TypeError(f"a world has no setting {', '.join(sorted(unknown))}")
    problems = [_problem(name, value, fields[name].type) for name, value in given.items()]
    types = {field.name: field.type for field in msgspec.structs.fields(WorkerSettings)}
    problems.append(_problem("slots", slots, types["worker_slots"]))
    wrong = [problem for problem in problems if problem]
    if wrong:
        raise ValueError("; ".join(wrong))


def _problem(name: str, value: object, kind: Any) -> str | None:
    try:
        msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        return f"{name}={value!r} is not valid: {error}"
    return None
