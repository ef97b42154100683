"""Declared jobs: their names, how they run, and how their input is read."""

import functools
import inspect
import re
import typing
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec
from headway_contract.fields import Count
from headway_contract.fitting import problem_of
from headway_contract.work import terms_of

from headway.define.defaults import Defaults
from headway.define.definitions import JobDefinition, JobTerms
from headway.define.options import Marks, marks_of, resolve_retry

# A NUL character in JSON, which PostgreSQL does not store. It follows an even number of
# backslashes: after an odd number it is an escaped backslash and the text `u0000`.
_NUL = re.compile(rb"(?<!\\)(?:\\\\)*\\u0000")

# The default of an input, if its parameter has none.
NO_DEFAULT = inspect.Parameter.empty


def holds_nul(encoded: bytes) -> bool:
    """Return whether encoded JSON contains a NUL character."""
    return _NUL.search(encoded) is not None


class DeclaredJob(JobDefinition, frozen=True, kw_only=True):
    """A declared job without its terms. Its body is in another program, unless it is a `Job`."""

    group: str
    # Terms of work by field; the app's defaults apply to the others.
    stated: Mapping[str, Any] = {}
    labels: Mapping[str, str] = {}
    where: str = ""

    def marks(self) -> Marks:
        """Return the cadences and the retry policy that decorate the job."""
        return Marks()

    def schema(self) -> dict[str, Any] | None:
        """Return the JSON Schema of the input, or `None` if any JSON is accepted."""
        return self.input_schema

    def definition(self, defaults: Defaults, schema: dict[str, Any] | None) -> JobDefinition:
        """Return the job as plain data."""
        fields = {name: getattr(self, name) for name in JobDefinition.__struct_fields__}
        fields |= {"input_schema": schema, "terms": self.resolve_terms(defaults)}
        return JobDefinition(**fields)

    def resolve_terms(self, defaults: Defaults) -> JobTerms:
        """Return the terms of its work, unless a manifest sets others."""
        retry = self.marks().retry
        stated = self.stated if retry is None else {**self.stated, "retry": retry}
        return JobTerms(
            **{**terms_of(defaults), **resolve_retry(stated, defaults.retry)},
            group=None if self.group == self.name else self.group,
            labels=dict(self.labels) if isinstance(self.labels, Mapping) else self.labels,
        )


_is_async = functools.lru_cache(inspect.iscoroutinefunction)


class Job(DeclaredJob, frozen=True, kw_only=True):
    """A function that workers run, and the type of its input if it takes one."""

    function: Callable[..., Any]
    input_type: Any = None
    # The default value of the body's parameter, or `NO_DEFAULT`.
    default_input: Any = NO_DEFAULT
    process: bool = False
    worker_concurrency: int | None = None
    capture_logging: bool = False
    # The body is in another program; the function only declares the type of the input.
    elsewhere: bool = False

    @property
    def is_async(self) -> bool:
        """Return whether the body is a coroutine function."""
        return _is_async(self.function)

    def marks(self) -> Marks:
        """Return the marks late: a decorator may be above that of the job."""
        return marks_of(self.function)

    def read_input(self, raw: Any) -> Any:
        """Convert JSON to the input type of the body, or raise `msgspec.ValidationError`."""
        if not self.takes_input:
            if raw is not None:
                raise msgspec.ValidationError(f"job {self.name!r} takes no input")
            return None
        if raw is None and self.default_input is not NO_DEFAULT:
            return self.default_input
        return msgspec.convert(raw, self.input_type)

    def schema(self) -> dict[str, Any] | None:
        """Return the JSON Schema of the input, or `None` if any JSON is accepted."""
        if not self.takes_input or self.input_type is Any:
            return None
        if self.default_input is NO_DEFAULT:
            return msgspec.json.schema(self.input_type)
        return msgspec.json.schema(self.input_type | None)

    def problem_of_input(self, raw: Any) -> str | None:
        """Return why the job does not accept an input, or `None`."""
        try:
            self.read_input(raw)
        except (TypeError, ValueError) as error:  # a validation error is one of them
            return str(error)
        except Exception as error:  # noqa: BLE001 - a type may have code of its own
            return f"{type(error).__name__}: {error}"
        return None


def problems_of_running(job: Job) -> list[str]:
    """Return why workers cannot run a job with its options."""
    problems = []
    if job.process and "<" in job.function.__qualname__:
        problems.append(
            f"job {job.name!r} has process=True, but another process cannot find its function "
            f"{job.function.__qualname__}: put it at the top level of a module"
        )
    wrong = problem_of(job.worker_concurrency, Count | None)
    if wrong is not None:
        problems.append(f"job {job.name!r}: worker_concurrency {wrong}")
    return problems


# Names of parameters that are no input.
_CONTEXTS = ("ctx", "context")
_OF_METHODS = ("self", "cls")


def input_of_body(function: Callable[..., Any]) -> dict[str, Any]:
    """Read the fields of a `Job` about its input from the signature of its body."""
    parameters = inspect.signature(function).parameters
    taken = [
        parameter
        for parameter in parameters.values()
        if parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD)
    ]
    required = [
        parameter
        for parameter in parameters.values()
        if parameter.kind is parameter.KEYWORD_ONLY and parameter.default is parameter.empty
    ]
    swapped = any(parameter.name in _CONTEXTS for parameter in taken[1:])
    if not 1 <= len(taken) <= 2 or required or swapped or taken[0].name in _OF_METHODS:
        raise TypeError(
            f"{_qualname(function)} must take a context and at most one input: "
            f"write {_right_signature(function, list(parameters))}"
        )
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise TypeError(f"{_qualname(function)} yields, so it would never run: return a value")
    if len(taken) == 1:
        return {"takes_input": False}
    parameter = taken[1]
    input_type = typing.get_type_hints(function).get(parameter.name, Any)
    return {"takes_input": True, "input_type": input_type, "default_input": parameter.default}


def _right_signature(function: Callable[..., Any], names: Sequence[str]) -> str:
    inputs = [name for name in names if name not in (*_CONTEXTS, *_OF_METHODS)]
    if len(inputs) == len(names):
        inputs = inputs[1:]  # the context has another name
    name = getattr(function, "__name__", "job").replace("<lambda>", "job")
    start = f"{'async ' if inspect.iscoroutinefunction(function) else ''}def {name}"
    only = inputs[0] if len(inputs) == 1 else "order"
    fields = f", with {' and '.join(inputs)} as fields of the order" if inputs[1:] else ""
    return f"{start}(ctx) or {start}(ctx, {only}){fields}"


def _qualname(function: Callable[..., Any]) -> str:
    return getattr(function, "__qualname__", repr(function))
