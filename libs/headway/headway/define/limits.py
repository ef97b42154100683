"""Limits as users write them: rates, times to start in, and what shares a concurrency key.

@app.job("sync", max_active=5, rate="100/minute", concurrency_key="customer:{input.id}")
"""

from contextlib import suppress
from datetime import timedelta
from typing import Any

from headway_contract.fitting import show
from headway_contract.work import Rate
from headway_decisions.capacity import keys, rates
from headway_decisions.capacity.keys import InvalidKey

RateGiven = Rate | str | None
SecondsGiven = float | timedelta | None


def read_rate(given: object, problems: list[str]) -> Rate | None:
    """A rate that was given, as text or as a value."""
    match given:
        case None | Rate():
            return given
        case str():
            try:
                return rates.parse_rate(given)
            except ValueError as error:
                problems.append(str(error))
                return None
    problems.append(f"{given!r} is no rate: write it like '100/minute' or '5/10 seconds'")
    return None


def read_seconds(what: str, given: object, problems: list[str]) -> float | None:
    """A length of time that was given, in seconds or as a timedelta."""
    match given:
        case None:
            return None
        case timedelta():
            return given.total_seconds()
        case bool():
            pass
        case int() | float():
            with suppress(OverflowError):
                return float(given)
    problems.append(f"{what}={show(given)} is no length of time: write a number of seconds")
    return None


def problem_of_key(
    template: object, *, given: Any, manifest: str, group: str, job: str, must_fit: bool
) -> str | None:
    """Why a template makes no concurrency key, or none.

    A manifest that gets its input only when it is woken is asked about it then.
    """
    if template is None:
        return None
    if not isinstance(template, str):
        return f"concurrency_key={template!r} is no text such as 'customer:{{input.id}}'"
    try:
        keys.check_template(template)
        if must_fit:
            keys.render_key(template, input=given, manifest=manifest, group=group, job=job)
    except InvalidKey as error:
        return str(error)
    return None
