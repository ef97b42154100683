"""Definitions from requests are checked as strictly as those of an app."""

import pytest
from headway import App, daily, manual
from headway.define.definitions import (
    Batch,
    Definitions,
    GroupDefinition,
    JobDefinition,
    ManifestDefinition,
)
from headway.define.packing import UnreadableDefinitions, pack, problems_of, unpack
from headway_decisions.timing.cadence import Cron, Daily, Manual
from headway_decisions.timing.timing import Timing
from msgspec import structs

JOB = JobDefinition(
    name="job", input_schema={"type": "object", "properties": {"n": {"type": "integer"}}}
)
GOOD = ManifestDefinition(
    external_id="m", job="job", group="ops", timing=Timing(cadence=Daily("03:15")), input={"n": 1}
)


def definitions(*manifests: ManifestDefinition, **more) -> Definitions:
    return Definitions(**{"owner": "billing", "jobs": (JOB,), "manifests": manifests, **more})


def test_definitions_of_an_app_are_valid():
    app = App("billing")
    app.job("job", group="ops")(lambda ctx: None)
    app.schedule("parent", job="job", when=daily("03:15")).then("child", job="job", dormant=True)
    app.schedule_many("many", job="job", items=[(1, None)], when=manual())
    assert problems_of(app.definitions()) == []
    assert problems_of(definitions(GOOD)) == []
    assert problems_of(Definitions(owner="api")) == []


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"external_id": "two words"}, "manifest id 'two words' is not valid"),
        ({"job": "a.b"}, "job name 'a.b' is not valid"),
        ({"group": ""}, "group name '' is not valid"),
        ({"timing": Timing(cadence=Cron("99 * * * *"))}, "manifest 'm': cron expression"),
        ({"timing": Timing(cadence=Daily("03:15"), zone="Mars/Base")}, "'Mars/Base'"),
        ({"input": {"n": "one"}}, "manifest 'm': its input does not fit job 'job': at n: "),
        ({"input": {"x": "y" * 300_000}}, "larger than 262144 bytes"),
        ({"input": {"x": "\x00"}}, "holds a NUL character"),
        ({"depends_on": "other"}, "it has a cadence and a depends_on"),
        ({"depends_on": "m", "timing": Timing(cadence=Manual())}, "it depends on itself"),
        ({"dormant": True}, "it is dormant and has no parent"),
        ({"batch": "nowhere"}, "it names the batch 'nowhere'"),
    ],
)
def test_problems_of_a_manifest(change, words):
    found = problems_of(definitions(structs.replace(GOOD, **change)))
    assert len(found) == 1
    assert words in found[0]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"owner": "two words"}, "app name 'two words' is not valid"),
        ({"manifests": (GOOD, GOOD)}, "manifest 'm' is defined 2 times"),
        ({"jobs": (JOB, JOB)}, "job 'job' is defined 2 times"),
        ({"batches": (Batch(name="b"), Batch(name="b"))}, "batch 'b' is defined 2 times"),
        ({"groups": (GroupDefinition(name="two words"),)}, "group name 'two words'"),
        ({"jobs": (structs.replace(JOB, input_schema={"type": 5}),)}, "schema is not usable"),
        ({"jobs": (structs.replace(JOB, title="\x00"),), "manifests": ()}, "NUL character"),
    ],
)
def test_problems_around_manifests(change, words):
    assert [problem for problem in problems_of(definitions(**change)) if words in problem]


def test_all_problems_are_reported_together():
    bad = structs.replace(GOOD, external_id="two words", input={"n": "x"}, batch="b")
    assert len(problems_of(definitions(bad))) == 3


def test_definitions_travel_and_rubbish_is_refused(monkeypatch):
    sound = definitions(GOOD)
    assert unpack(pack(sound)) == sound
    for rubbish in (b"", b"nonsense", pack(sound)[:-5]):
        with pytest.raises(UnreadableDefinitions, match="not definitions"):
            unpack(rubbish)
    monkeypatch.setattr("headway.define.packing.MOST_BYTES", 20)
    with pytest.raises(UnreadableDefinitions, match="larger than 20 bytes"):
        unpack(pack(sound))
