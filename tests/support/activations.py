"""A scheduler that takes activation requests and notes them."""

from uuid import UUID

from headway_contract import subjects
from headway_contract.manifests import ActivationAnswer, ActivationQuestion
from headway_contract.settled import WorkSettled
from headway_contract.work import RetryPolicy
from headway_errors import Invalid
from headway_jetstream_kit.endpoints import serve, typed

from support.work_events import WorkPublisher
from support.world import until

MANIFEST = UUID(int=0xA)


class Scheduler(WorkPublisher):
    """Queues work, and answers activation questions."""

    def __init__(self, world) -> None:
        super().__init__(world.broker)
        self.questions: list[ActivationQuestion] = []
        self.problems: list[str] = []

    async def listen(self) -> None:
        async def answer(question: ActivationQuestion) -> ActivationAnswer:
            self.questions.append(question)
            if question.activations[0].manifest == "bad-request":
                raise Invalid("no such thing")
            return ActivationAnswer(problems=self.problems)

        await serve(
            self.broker,
            service="headway-scheduler",
            queue=subjects.SCHEDULERS,
            endpoints={subjects.ACTIVATION_QUESTION: typed(ActivationQuestion, answer)},
        )

    async def queue(self, **fields) -> UUID:
        retry = RetryPolicy(attempts=2, interval_seconds=0.1)
        given = {"retry": retry, "manifest_id": MANIFEST, "manifest": "parent"}
        return await super().queue(**{**given, **fields})

    async def until_settled(self) -> WorkSettled:
        async def published():
            return await self.events(WorkSettled)

        [settled] = await until(published, within=30, what="the work is published as settled")
        return settled
