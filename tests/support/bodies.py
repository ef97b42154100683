"""Bodies of numbered runs that wait or fail."""

import asyncio

from support.work_events import app_with
from support.world import until


class Bodies:
    """A job whose runs are numbered by their input; some of them wait or fail."""

    def __init__(self, *, hold: set[int] = frozenset(), fail: set[int] = frozenset()) -> None:
        self.begun: list[int] = []
        self.hold = set(hold)
        self.fail = set(fail)
        self.release = asyncio.Event()

    async def __call__(self, ctx, number: int):
        self.begun.append(number)
        if number in self.hold:
            await self.release.wait()
        if number in self.fail:
            raise ValueError(number)
        return number

    def app(self):
        async def job(ctx, number: int):
            return await self(ctx, number)

        return app_with(job)

    async def until_begun(self, *numbers: int) -> None:
        async def begun():
            return set(numbers) <= set(self.begun)

        await until(begun, within=15, what=f"runs {numbers} have begun")
