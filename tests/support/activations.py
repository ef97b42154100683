"""A scheduler that takes activation requests and notes them."""

from uuid import UUID, uuid4

from headway_clock import utc_now
from headway_contract import decode, encode, event, subjects
from headway_contract.manifests import ActivationAnswer, ActivationQuestion
from headway_contract.settled import WorkSettled
from headway_contract.work import RetryPolicy
from headway_errors import Invalid
from headway_jetstream_kit import Stored
from headway_jetstream_kit.endpoints import serve, typed
from headway_jetstream_kit.provisioning import stream_info
from headway_jetstream_kit.publish import publish

from support.works import queued
from support.world import until

MANIFEST = UUID(int=0xA)


class Scheduler:
    """Queue work, answer activation questions, and read the dispatcher's events."""

    def __init__(self, world) -> None:
        self.world = world
        self.questions: list[ActivationQuestion] = []
        self.problems: list[str] = []

    async def listen(self) -> None:
        async def answer(question: ActivationQuestion) -> ActivationAnswer:
            self.questions.append(question)
            if question.activations[0].manifest == "bad-request":
                raise Invalid("no such thing")
            return ActivationAnswer(problems=self.problems)

        await serve(
            self.world.broker,
            service="headway-scheduler",
            queue=subjects.SCHEDULERS,
            endpoints={subjects.ACTIVATION_QUESTION: typed(ActivationQuestion, answer)},
        )

    async def queue(self, **fields) -> UUID:
        work = uuid4()
        given = {
            "job": "job",
            "cause": f"test:{work}",
            "queued_at": utc_now(),
            "retry": RetryPolicy(attempts=2, interval_seconds=0.1),
            "manifest_id": MANIFEST,
            "manifest": "parent",
        }
        data = queued(work=work, group="ops", **{**given, **fields})
        body = encode(event(data, id=uuid4(), source="test", subject="x", time=utc_now()))
        assert isinstance(await publish(self.world.broker, subjects.work("ops"), body), Stored)
        return work

    async def events(self, kind: type) -> list:
        """Return the data of all events of a type in the stream of settled work."""
        info = await stream_info(self.world.broker, subjects.SETTLED_STREAM)
        found = []
        for sequence in range(1, info["state"]["last_seq"] + 1):
            message = await self.world.broker.client.jetstream().get_msg(
                subjects.SETTLED_STREAM, sequence
            )
            found += [item.data for item in decode(message.data)]
        return [data for data in found if isinstance(data, kind)]

    async def until_settled(self) -> WorkSettled:
        async def published():
            return await self.events(WorkSettled)

        [settled] = await until(published, within=30, what="the work is published as settled")
        return settled
