"""An application whose work is enqueued, and the scheduler's pass over it."""

from datetime import UTC, datetime
from uuid import UUID, uuid4

from headway import App, retry
from headway_contract.settled import DeadLetterRetried, WorkSettled
from headway_relay import Handover
from headway_scheduler.operate.enqueue import Enqueue


def app_with_jobs() -> App:
    app = App("shop")

    @app.job("mail", group="letters", priority=3, timeout=90, cancel_grace=5)
    @retry(attempts=5, interval=7)
    async def mail(ctx, order: int): ...

    @app.job("sweep")
    async def sweep(ctx): ...

    @app.job("free")
    async def free(ctx, given): ...

    return app


async def process(timeline) -> None:
    with timeline.real_time():
        await Enqueue(timeline.database, relay=Handover()).run_once()


async def count(timeline, table: str) -> int:
    return len(await timeline.rows(f"SELECT FROM scheduler.{table}"))


def outcome(work: UUID, **fields) -> WorkSettled:
    given = {"round": 1, "group": "letters", "outcome": "completed", "runs": 1, "attempts": 1}
    return WorkSettled(work=work, settled_at=datetime.now(UTC), **(given | fields))


def retried(work: UUID) -> DeadLetterRetried:
    return DeadLetterRetried(
        dead_letter=uuid4(), work=work, round=2, group="letters", resolved_at=datetime.now(UTC)
    )
