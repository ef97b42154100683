"""Metrics: values, unavailable sources, naming rules and the generated page."""

import asyncio
import re
from pathlib import Path

import pytest
from headway_service_kit.metrics import Meter, Source, counter, gauge, histogram, scrape
from prometheus_client.parser import text_string_to_metric_families

from generators.metrics_page import every_measure, files

ROOT = Path(__file__).parents[2]
DONE = counter("headway_x_done_total", "Done.", "job")
ALONE = counter("headway_x_alone_total", "Alone.")
LATE = histogram("headway_x_late_seconds", "Late.", "group")
DEEP = gauge("headway_x_deep_rows", "Deep.", "group")
UP = gauge("headway_x_metrics_source_up", "Up.", "source")


def samples(text):
    """Parse a scrape into values by name and labels."""
    return {
        (sample.name, *sorted(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def meter():
    return Meter([DONE, ALONE, LATE, DEEP], answers=UP)


async def test_counters_count_and_start_at_zero_without_labels():
    made = meter()
    made.add(DONE, "a", amount=2)
    made.add(DONE, "a")
    made.add(DONE, 'quote"d\nname')
    found = samples(await scrape([made]))
    assert found["headway_x_done_total", ("job", "a")] == 3
    assert found["headway_x_done_total", ("job", 'quote"d\nname')] == 1
    assert found["headway_x_alone_total",] == 0


async def test_times_are_counted_by_their_length():
    made = meter()
    for seconds in (0.005, 0.2, 4000.0, -3.0):
        made.observe(LATE, seconds, "g")
    found = samples(await scrape([made]))
    by_limit = {
        dict(key[1:])["le"]: value
        for key, value in found.items()
        if key[0] == "headway_x_late_seconds_bucket"
    }
    assert (by_limit["0.005"], by_limit["0.1"], by_limit["0.25"], by_limit["300"]) == (2, 2, 3, 3)
    assert by_limit["+Inf"] == found["headway_x_late_seconds_count", ("group", "g")] == 4
    assert found["headway_x_late_seconds_sum", ("group", "g")] == pytest.approx(4000.205)


async def test_two_services_of_one_process_know_nothing_of_each_other():
    first, second = meter(), Meter([counter("headway_y_done_total", "Done.", "job")])
    first.add(DONE, "a")
    found = samples(await scrape([first, second]))
    assert found["headway_x_done_total", ("job", "a")] == 1
    assert not any(key[0].startswith("headway_y") for key in found)


class FakeSource:
    """A source that answers, fails or hangs."""

    def __init__(self):
        self.times = 0
        self.fails = False
        self.answers = asyncio.Event()
        self.answers.set()

    async def __call__(self):
        self.times += 1
        if self.fails:
            raise OSError("away")
        await self.answers.wait()
        return {DEEP: {("g",): float(self.times)}}


async def test_a_source_is_not_read_too_often():
    made, source = meter(), FakeSource()
    made.ask(Source(name="s", measures=(DEEP,), ask=source), at_most_every=600)
    for _ in range(3):
        found = samples(await scrape([made]))
    assert (source.times, found["headway_x_deep_rows", ("group", "g")]) == (1, 1)
    assert found["headway_x_metrics_source_up", ("source", "s")] == 1


async def test_an_unavailable_source_is_left_out_and_reported():
    made, source = meter(), FakeSource()
    made.ask(Source(name="s", measures=(DEEP,), ask=source), at_most_every=0)
    made.add(DONE, "a")
    await scrape([made])
    source.fails = True
    found = samples(await scrape([made]))
    assert ("headway_x_deep_rows", ("group", "g")) not in found
    assert found["headway_x_metrics_source_up", ("source", "s")] == 0
    assert found["headway_x_done_total", ("job", "a")] == 1
    source.fails = False
    assert samples(await scrape([made]))["headway_x_metrics_source_up", ("source", "s")] == 1


async def test_a_source_that_hangs_delays_no_scrape_and_is_not_read_again():
    made, source = meter(), FakeSource()
    made.ask(Source(name="s", measures=(DEEP,), ask=source), at_most_every=0, patience=0.01)
    source.answers.clear()
    for _ in range(3):
        found = samples(await scrape([made]))
        assert found["headway_x_metrics_source_up", ("source", "s")] == 0
    assert source.times == 1
    source.answers.set()
    # A late answer is discarded, and the source is read again.
    await asyncio.sleep(0)
    assert samples(await scrape([made]))["headway_x_deep_rows", ("group", "g")] == source.times == 2


MEASURES = [
    pytest.param(service, measure, id=measure.name)
    for service, measures in every_measure().items()
    for measure in measures
]
UNITS = re.compile(
    r"_(total|seconds|rows|runs|works|manifests|messages|bytes|connections|slots|in_use|workers"
    r"|awaiting|notifications|leader|connected|draining|up)$"
)


@pytest.mark.parametrize(("service", "measure"), MEASURES)
def test_every_metric_is_called_by_the_rules(service, measure):
    assert re.fullmatch(rf"headway_{service}_[a-z_]+", measure.name)
    assert UNITS.search(measure.name)
    assert measure.name.endswith("_total") == (measure.kind == "counter")
    assert measure.name.endswith("_seconds") or measure.kind != "histogram"
    assert measure.description.endswith(".")
    # Labels must be bounded: no manifest, work, run or worker.
    assert set(measure.labels) <= {
        *("group", "job", "outcome", "reason", "state", "pass", "what", "source"),
        *("consumer", "stream", "cause", "verdict"),
    }


def test_no_name_is_taken_twice():
    names = [param.values[1].name for param in MEASURES]
    assert len(names) == len(set(names))


def test_the_page_has_every_metric():
    [page] = files(ROOT).values()
    documented = set(re.findall(r"^\| `(headway_\w+)` \|", page, re.MULTILINE))
    assert documented == {param.values[1].name for param in MEASURES}
