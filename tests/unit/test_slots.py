"""Free slots of workers."""

import pytest
from headway_decisions.capacity.slots import IdleSlots, Worker


def idle(*fleet: Worker, **leases: int) -> dict[str, int]:
    slots = IdleSlots(fleet, leases)
    return {"all": slots.in_all, "etl": slots.could_run("etl"), "mail": slots.could_run("mail")}


def worker(*jobs: str, slots: int = 1, **fields) -> Worker:
    return Worker(jobs=jobs, slots=slots, **fields)


@pytest.mark.parametrize(
    ("fleet", "leases", "expected"),
    [
        ([], {}, {"all": 0, "etl": 0, "mail": 0}),
        ([], {"etl": 3}, {"all": 0, "etl": 0, "mail": 0}),
        ([worker("etl"), worker("mail")], {}, {"all": 2, "etl": 1, "mail": 1}),
        (
            [worker("etl", held={"etl": 1}), worker("mail")],
            {"etl": 1},
            {"all": 1, "etl": 0, "mail": 1},
        ),
        (
            [worker("etl", held={"etl": 1}), worker("mail")],
            {"etl": 3},
            {"all": 1, "etl": 0, "mail": 1},
        ),
        ([worker("etl"), worker("mail")], {"etl": 1}, {"all": 1, "etl": 0, "mail": 1}),
        (
            [worker("etl", "mail"), worker("etl")],
            {"etl": 1},
            {"all": 1, "etl": 1, "mail": 1},
        ),
        (
            [worker("etl", slots=9, concurrency={"etl": 2}, held={"etl": 1})],
            {"etl": 1},
            {"all": 8, "etl": 1, "mail": 0},
        ),
        ([worker("etl", held={"etl": 3})], {"etl": 3}, {"all": 0, "etl": 0, "mail": 0}),
        (
            [
                worker("etl", "mail", held={"mail": 1}),
                worker("etl", "mail", slots=2, concurrency={"etl": 1}, held={"etl": 1}),
            ],
            {"etl": 1, "mail": 1},
            {"all": 1, "etl": 0, "mail": 1},
        ),
    ],
    ids=[
        "nobody",
        "orders for nobody",
        "all of them",
        "a claimed lease takes a slot",
        "a spare takes none",
        "an order on its way does",
        "who can do the least gets it",
        "fewer of a job than slots",
        "more than it has slots",
        "who is idle takes no more, who takes more is not idle",
    ],
)
def test_idle_slots(fleet, leases, expected):
    assert idle(*fleet, **leases) == expected


def test_every_slot_is_taken_once():
    slots = IdleSlots([worker("etl", "mail"), worker("mail", slots=2)], {})
    assert [slots.take("mail") for _ in range(2)] == [True, True]
    assert (slots.could_run("etl"), slots.take("etl"), slots.take("mail")) == (1, True, False)
