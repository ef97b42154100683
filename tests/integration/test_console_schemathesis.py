"""The API against its own document, by schemathesis: what it describes is what it does."""

import asyncio
from collections.abc import Collection

import pytest
import schemathesis
from headway import App, every
from headway_console.api.openapi import document
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis.errors import Unsatisfiable
from schemathesis import GenerationMode
from schemathesis.core.failures import Failure, FailureGroup
from schemathesis.specs.openapi.checks import ignored_auth, positive_data_acceptance

pytestmark = pytest.mark.thorough

# A stream never ends; it has tests of its own.
STREAM = "/api/v1/events/stream"
# One of each kind, for every commit.
SAMPLE = ("list_runs", "explain", "trigger", "retry", "change_group", "delete_manifest")
NOT_HELD_TO = [
    # Strangers are sent away from every route in test_console_access.
    ignored_auth,
    # A cursor, a file of definitions, a time: not every text that fits the type is one.
    positive_data_acceptance,
]
QUIETLY = settings(
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


def broken_promises(url: str, token: str, *, only: Collection[str], examples: int) -> list[str]:
    """Ask every route what fits and what does not; what it answers against its document."""
    described = {**document(), "security": []}
    schema = schemathesis.openapi.from_dict(described).exclude(path=STREAM)
    if only:
        schema = schema.include(operation_id=list(only))
    schema.config.update(base_url=url)
    headers = {"Authorization": f"Bearer {token}"}
    broken: list[str] = []
    for found in schema.get_all_operations():
        operation = found.ok()
        for mode in (GenerationMode.POSITIVE, GenerationMode.NEGATIVE):

            @settings(QUIETLY, max_examples=examples)
            @given(case=operation.as_strategy(generation_mode=mode))
            def ask(case) -> None:
                case.call_and_validate(headers=headers, excluded_checks=NOT_HELD_TO, timeout=30)

            try:
                ask()
            except Unsatisfiable:
                assert mode is GenerationMode.NEGATIVE, operation.label  # it takes nothing at all
            except (FailureGroup, Failure) as failure:
                broken.append(f"{operation.label} ({mode.value}): {told(failure)}")
    return broken


def told(failure: BaseException) -> str:
    """What schemathesis says is wrong, and how to ask it again."""
    inner = getattr(failure, "exceptions", [failure])
    return "; ".join(f"{one.title}: {one.message[:300]}" for one in inner) + str(failure)[-600:]


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
    broken = await asyncio.to_thread(
        broken_promises, console.url, console.tokens["admin"], only=only, examples=examples
    )
    assert broken == [], "\n\n".join(broken)
