"""A job that fails until it is mended, and what people do about that."""

import asyncio
from uuid import UUID

from headway import App, Client

from support.work_events import WorkPublisher, queue


class Ops:
    """A job that fails until it is mended, work for it, and a client."""

    def __init__(self, world, client: Client) -> None:
        self.world = world
        self.client = client
        self.mended = asyncio.Event()
        self.hold = asyncio.Event()
        self.hold.set()
        self.inputs: list = []
        self.app = App("test")

        @self.app.job("job", group="ops")
        async def job(ctx, given: dict | None = None):
            self.inputs.append(given)
            await self.hold.wait()
            if not self.mended.is_set():
                raise ValueError(f"order {len(self.inputs)} of '{ctx.work}' has no address")
            return "done"

    async def queue(self, **fields) -> UUID:
        return await queue(self.world, **fields)

    async def tell(self, data) -> None:
        await WorkPublisher(self.world.broker).publish(data)

    async def letter(self, **fields) -> tuple[UUID, UUID]:
        """Work that has failed for good, and its letter."""
        work = await self.queue(**fields)
        letter = await self.world.until(
            "SELECT id FROM dispatcher.dead_letter WHERE work_id = $1 AND state = 'awaiting'", work
        )
        return work, letter

    async def row(self, work: UUID):
        rows = await self.world.rows("SELECT * FROM dispatcher.work_queue WHERE id = $1", work)
        return rows[0]

    async def until_outcome(self, work: UUID, outcome: str) -> None:
        await self.world.until(
            "SELECT outcome = $2 FROM dispatcher.work_queue WHERE id = $1", work, outcome
        )
