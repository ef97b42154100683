"""Terms of work as users state them: `timeout=60` states the field `timeout_seconds`."""

from collections.abc import Mapping
from typing import Any, Literal, TypedDict

from headway_contract.work import RetryPolicy, WorkTerms

from headway.define.limits import SecondsGiven, read_seconds
from headway.define.marks import Retry

# The field of the terms of work that each option states.
FIELDS = {field.removesuffix("_seconds"): field for field in WorkTerms.__struct_fields__}


class WorkOptions(TypedDict, total=False):
    """The options of jobs and of manifests; `None` states nothing."""

    priority: int | None
    timeout: float | None
    cancel_grace: float | None
    on_lost_contact: Literal["stop", "continue"] | None
    on_dead_letter: Literal["block", "go_on"] | None
    concurrency_key: str | None
    concurrency_limit: int | None
    start_within: SecondsGiven


def read_options(given: Mapping[str, Any], problems: list[str]) -> dict[str, Any]:
    """Return the terms of work that options state, by field; ignore all other options."""
    stated = {field: given[option] for option, field in FIELDS.items() if option in given}
    if "start_within_seconds" in stated:
        seconds = read_seconds("start_within", stated["start_within_seconds"], problems)
        stated["start_within_seconds"] = seconds
    if not isinstance(stated.get("retry"), Retry | RetryPolicy | None):
        retry = stated.pop("retry")
        problems.append(f"retry={retry!r} is no retry policy: write retry=retry(attempts=...)")
    return {field: value for field, value in stated.items() if value is not None}


def resolve_retry(stated: Mapping[str, Any], usual: RetryPolicy) -> dict[str, Any]:
    """Complete a retry policy that is stated in part; the rest of it is the usual one's."""
    retry = stated.get("retry")
    return {**stated, "retry": retry.over(usual)} if isinstance(retry, Retry) else {**stated}
