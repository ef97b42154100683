"""An application: its jobs, its groups and when they run."""

from collections.abc import Callable
from typing import Any, Literal, TypeVar

import msgspec
from headway_contract.names import InvalidName, check_manifest_id, check_name
from headway_contract.work import RetryPolicy

from headway import marks
from headway.cadences import When
from headway.definitions import (
    Definitions,
    GroupDefinition,
    InvalidDefinitions,
    JobDefinition,
    ManifestDefinition,
)
from headway.jobs import Job, holds_nul, input_type_of

Function = TypeVar("Function", bound=Callable[..., Any])

INPUT_LIMIT = 256 * 1024


class App:
    """Collects what an application declares; `definitions` checks all of it at once."""

    def __init__(self, name: str) -> None:
        self.name = check_name("app", name)
        self.jobs: dict[str, Job] = {}
        self._groups: dict[str, GroupDefinition] = {}
        self._scheduled: list[tuple[str, Callable[..., Any] | str, When, Any]] = []
        self._problems: list[str] = []

    def job(
        self,
        name: str,
        *,
        group: str | None = None,
        description: str = "",
        timeout: float = 1200.0,
        cancel_grace: float = 30.0,
        priority: int = 0,
        on_lost_contact: Literal["stop", "continue"] = "stop",
    ) -> Callable[[Function], Function]:
        """Declare a function as a job. It takes a context and, if it likes, one typed input."""

        def declare(function: Function) -> Function:
            try:
                takes_input, input_type = input_type_of(function)
                job = Job(
                    name=check_name("job", name),
                    function=function,
                    group=check_name("group", group or name),
                    description=description or (function.__doc__ or "").strip(),
                    timeout_seconds=timeout,
                    cancel_grace_seconds=cancel_grace,
                    priority=priority,
                    on_lost_contact=on_lost_contact,
                    takes_input=takes_input,
                    input_type=input_type,
                )
            except (InvalidName, TypeError, NameError) as error:
                self._problems.append(str(error))
                return function
            if name in self.jobs:
                self._problems.append(f"job {name!r} is declared twice")
            self.jobs[name] = job
            return function

        return declare

    def group(
        self, name: str, *, max_active: int | None = None, priority: int | None = None
    ) -> None:
        """State limits of a group: how many runs at once, and its priority from 0 to 31."""
        self._groups[name] = GroupDefinition(name=name, max_active=max_active, priority=priority)

    def schedule(
        self,
        external_id: str,
        *,
        job: Callable[..., Any] | str,
        when: When,
        input: Any = None,  # noqa: A002
    ) -> None:
        """Schedule a declared job under an id of its own, with an input."""
        self._scheduled.append((external_id, job, when, input))

    def definitions(self) -> Definitions:
        """Everything declared, as plain data; raises with all problems at once."""
        problems = list(self._problems)
        manifests = [*self._decorated(), *self._built(problems)]
        _check_unique(manifests, problems)
        for manifest in manifests:
            problems += _problems_of_manifest(manifest, self.jobs[manifest.job])
        for group in self._groups.values():
            problems += _problems_of_group(group)
        jobs = [
            JobDefinition(
                name=job.name, description=job.description, input_schema=job.input_schema()
            )
            for job in self.jobs.values()
        ]
        for job in jobs:
            problems += _problems_of_storing(f"job {job.name!r}", job)
        if problems:
            raise InvalidDefinitions(problems)
        return Definitions(
            owner=self.name,
            groups=self._all_groups(manifests),
            jobs=tuple(jobs),
            manifests=tuple(manifests),
        )

    def _decorated(self) -> list[ManifestDefinition]:
        return [
            _manifest(f"{job.name}-{when.name}", job, when, None)
            for job in self.jobs.values()
            for when in marks.of(job.function).cadences
        ]

    def _built(self, problems: list[str]) -> list[ManifestDefinition]:
        manifests = []
        for external_id, target, when, given in self._scheduled:
            job = self._find(target)
            if job is None:
                called = target if isinstance(target, str) else target.__qualname__
                problems.append(
                    f"manifest {external_id!r} names the job {called!r}, which nobody declared: "
                    "put @app.job(...) over its function"
                )
                continue
            manifests.append(_manifest(external_id, job, when, given))
        return manifests

    def _find(self, target: Callable[..., Any] | str) -> Job | None:
        if isinstance(target, str):
            return self.jobs.get(target)
        return next((job for job in self.jobs.values() if job.function is target), None)

    def _all_groups(self, manifests: list[ManifestDefinition]) -> tuple[GroupDefinition, ...]:
        names = dict.fromkeys([*self._groups, *(manifest.group for manifest in manifests)])
        return tuple(self._groups.get(name, GroupDefinition(name=name)) for name in names)


def _manifest(external_id: str, job: Job, when: When, given: Any) -> ManifestDefinition:
    return ManifestDefinition(
        external_id=external_id,
        job=job.name,
        group=job.group,
        cadence=when.cadence,
        tz=when.tz,
        input=_as_json(given),
        priority=job.priority,
        retry=marks.of(job.function).retry or RetryPolicy(),
        timeout_seconds=job.timeout_seconds,
        cancel_grace_seconds=job.cancel_grace_seconds,
        on_lost_contact=job.on_lost_contact,
    )


def _as_json(given: Any) -> Any:
    """What the input will look like after its journey; unreadable things stay as they are."""
    try:
        return msgspec.to_builtins(given)
    except TypeError:
        return given


def _check_unique(manifests: list[ManifestDefinition], problems: list[str]) -> None:
    seen: set[str] = set()
    for manifest in manifests:
        if manifest.external_id in seen:
            problems.append(
                f"two manifests have the id {manifest.external_id!r}: give one of them another "
                "id, or a name= to its cadence"
            )
        seen.add(manifest.external_id)


def _problems_of_manifest(manifest: ManifestDefinition, job: Job) -> list[str]:
    called = f"manifest {manifest.external_id!r}"
    problems = []
    try:
        check_manifest_id(manifest.external_id)
    except InvalidName as error:
        problems.append(str(error))
    trouble = When(cadence=manifest.cadence, tz=manifest.tz, name="").problem()
    if trouble:
        problems.append(f"{called}: {trouble}")
    problems += _problems_of_input(called, manifest, job)
    if not problems:
        problems += _problems_of_storing(called, manifest)
    return problems


def _problems_of_input(called: str, manifest: ManifestDefinition, job: Job) -> list[str]:
    try:
        job.read_input(manifest.input)
        encoded = msgspec.json.encode(manifest.input)
    except (msgspec.ValidationError, TypeError, ValueError) as error:
        return [f"{called}: its input does not fit job {job.name!r}: {error}"]
    if len(encoded) > INPUT_LIMIT:
        return [f"{called}: its input is larger than {INPUT_LIMIT} bytes"]
    return []


def _problems_of_group(group: GroupDefinition) -> list[str]:
    try:
        check_name("group", group.name)
    except InvalidName as error:
        return [str(error)]
    return _problems_of_storing(f"group {group.name!r}", group)


def _problems_of_storing(called: str, definition: msgspec.Struct) -> list[str]:
    """What keeps a definition from coming back from the database as it went in."""
    try:
        encoded = msgspec.json.encode(definition)
        msgspec.json.decode(encoded, type=type(definition))
    except (msgspec.DecodeError, TypeError, ValueError) as error:
        return [f"{called}: {error}"]
    if holds_nul(encoded):
        return [f"{called}: it holds a NUL character, which cannot be stored"]
    return []
