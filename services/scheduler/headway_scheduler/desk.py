"""Answers about manifests, for clients."""

import msgspec
from headway_contract import subjects
from headway_contract.control import ManifestsAnswer, ManifestsQuestion, ManifestStatus
from headway_jetstream_kit import Broker
from headway_jetstream_kit.controlling import serve, typed
from headway_postgres_kit import Database

from headway_scheduler.store import manifests


class ManifestDesk:
    """Answers questions about manifests."""

    def __init__(self, database: Database, broker: Broker) -> None:
        self._database = database
        self._broker = broker

    async def listen(self) -> None:
        """Share the questions with all other schedulers."""
        await serve(
            self._broker,
            service="headway-scheduler",
            queue=subjects.SCHEDULERS,
            endpoints={subjects.MANIFESTS_QUESTION: typed(ManifestsQuestion, self.answer)},
        )

    async def answer(self, question: ManifestsQuestion) -> ManifestsAnswer:
        """One page of manifests, in the order of their ids."""
        async with self._database.acquire() as connection:
            rows = await connection.fetch(manifests["page"], question.after, question.limit + 1)
        found = [msgspec.convert(dict(row), ManifestStatus) for row in rows[: question.limit]]
        return ManifestsAnswer(manifests=found, more=len(rows) > question.limit)
