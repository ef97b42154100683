"""The API against its OpenAPI document, checked by schemathesis."""

import asyncio
from collections.abc import Collection

import pytest
import schemathesis
from headway import App, every
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis.errors import Unsatisfiable
from schemathesis import GenerationMode
from schemathesis.core.failures import Failure, FailureGroup
from schemathesis.specs.openapi.checks import ignored_auth, positive_data_acceptance

from generators.openapi import document

pytestmark = pytest.mark.thorough

# A stream never ends; test_console_stream tests it.
STREAM = "/api/v1/events/stream"
# One operation of each kind, for every commit.
SAMPLE = ("list_runs", "explain", "trigger", "retry", "change_group", "delete_manifest")
EXCLUDED_CHECKS = [
    # test_console_access checks authentication on every route.
    ignored_auth,
    # Not every text that fits the schema is a valid cursor, file of definitions or time.
    positive_data_acceptance,
]
SETTINGS = settings(
    deadline=None,
    database=None,
    derandomize=True,
    phases=[Phase.generate],
    suppress_health_check=list(HealthCheck),
)


def an_app() -> App:
    app = App("shop")

    @app.job("sync", group="ops")
    async def sync(ctx, number: int): ...

    app.schedule("nightly", job="sync", when=every(hours=1), input=1)
    return app


def find_violations(url: str, token: str, *, only: Collection[str], examples: int) -> list[str]:
    """Send valid and invalid requests to every route; return the violations of the document."""
    described = {**document(), "security": []}
    schema = schemathesis.openapi.from_dict(described).exclude(path=STREAM)
    if only:
        schema = schema.include(operation_id=list(only))
    schema.config.update(base_url=url)
    headers = {"Authorization": f"Bearer {token}"}
    violations: list[str] = []
    for found in schema.get_all_operations():
        operation = found.ok()
        for mode in (GenerationMode.POSITIVE, GenerationMode.NEGATIVE):

            @settings(SETTINGS, max_examples=examples)
            @given(case=operation.as_strategy(generation_mode=mode))
            def ask(case) -> None:
                case.call_and_validate(headers=headers, excluded_checks=EXCLUDED_CHECKS, timeout=30)

            try:
                ask()
            except Unsatisfiable:
                assert mode is GenerationMode.NEGATIVE, (
                    operation.label
                )  # the operation has no parameters
            except (FailureGroup, Failure) as failure:
                violations.append(f"{operation.label} ({mode.value}): {describe(failure)}")
    return violations


def describe(failure: BaseException) -> str:
    """Return the findings of schemathesis and how to reproduce them."""
    inner = getattr(failure, "exceptions", [failure])
    return (
        "; ".join(f"{error.title}: {error.message[:300]}" for error in inner) + str(failure)[-600:]
    )


@pytest.mark.parametrize(
    ("only", "examples"),
    [
        pytest.param(SAMPLE, 3, id="some"),
        pytest.param((), 10, id="all", marks=[pytest.mark.long, pytest.mark.timeout(1200)]),
    ],
)
async def test_the_api_does_what_its_document_says(world, console, only, examples):
    await world.dispatcher()
    await world.scheduler(an_app(), tick="off")
    violations = await asyncio.to_thread(
        find_violations, console.url, console.tokens["admin"], only=only, examples=examples
    )
    assert violations == [], "\n\n".join(violations)
