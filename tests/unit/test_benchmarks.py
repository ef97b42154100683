"""The pure parts of the benchmarks: ratios, the table of targets, plots, and the page."""

import json
from xml.etree import ElementTree as ET

import pytest
from benchmarks import page, targets
from benchmarks.peers import PEERS
from benchmarks.targets import HEADWAY, TARGETS, Target

FIGURES = {
    "drain": {HEADWAY: [500.0, None, 900.0], "pgqueuer": [1000.0, 2000.0, 1000.0]},
    "drain_two": {HEADWAY: [600.0, 800.0, 990.0]},
    "latency_p50": {HEADWAY: [4.0, 12.0, 6.0], "pgqueuer": [1.0]},
    "latency_p99": {HEADWAY: [31.0]},
}
BY_TITLE = {target.title: target for target in TARGETS}


@pytest.mark.parametrize(
    ("values", "divisors", "expected"),
    [
        ([1.0, 2.0, 30.0], [10.0, 10.0, 10.0], 0.2),
        ([1.0, None, 3.0], [10.0, 10.0, 10.0], 0.2),
        ([1.0, 2.0], [None, 4.0, 5.0], 0.5),
        ([], [1.0], None),
        ([1.0], [0.0], None),
    ],
)
def test_a_ratio_compares_the_same_repetition(values, divisors, expected):
    assert targets.ratio(values, divisors) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("value", "text"),
    [(None, "-"), (0.054, "0.05"), (0.5, "0.5"), (10, "10"), (16.44, "16.4"), (12345.6, "12,346")],
)
def test_numbers_have_the_digits_that_say_something(value, text):
    assert targets.shown(value) == text
    assert targets.shown(5.0, "ms") == "5 ms"


@pytest.mark.parametrize(
    ("at_most", "value", "verdict"),
    [
        (False, 0.49, "not met"),
        (False, 0.5, "met"),
        (False, 1.0, "goal met"),
        (True, 1.01, "not met"),
        (True, 1.0, "met"),
        (True, 0.5, "goal met"),
        (True, None, "not measured"),
    ],
)
def test_a_verdict_is_met_goal_met_or_not(at_most, value, verdict):
    must, goal = (1.0, 0.5) if at_most else (0.5, 1.0)
    assert Target("any", "any", must, goal, at_most=at_most).verdict(value) == verdict


def test_every_target_is_a_row_with_its_figure():
    rows = {row[0]: row[1:] for row in targets.target_rows(FIGURES)}
    # Medians of the ratios of one repetition, and of values.
    assert rows["drain ÷ pgqueuer's, one worker"] == ("0.7", "0.5", "1", "met")
    assert rows["drain with two workers ÷ with one"] == ("1.15", "1", "-", "met")
    assert rows["trigger → body, idle, p50"] == ("6 ms", "10 ms", "5 ms", "met")
    assert rows["trigger → body, idle, p99"] == ("31 ms", "30 ms", "15 ms", "not met")
    assert rows["drain ÷ oban-py's, one worker"][-1] == "not measured"
    assert set(BY_TITLE) - set(rows) == {"drain with 5M finished runs ÷ empty"}


def test_goals_are_harder_than_musts_and_peers_exist():
    for target in TARGETS:
        assert target.goal is None or target.meets(target.goal, target.must), target.title
        assert target.peer is None or target.peer in PEERS, target.title
    for peer in PEERS.values():
        assert all("==" in package for package in peer.packages)


def test_the_other_figures_have_a_column_for_each_system():
    assert targets.systems_of(FIGURES) == [HEADWAY, "pgqueuer"]
    assert targets.system_rows(FIGURES)[:2] == [
        ("drain, one worker, runs a second", "700", "1,000"),
        ("drain, two workers, runs a second", "800", "-"),
    ]


def test_a_table_is_aligned_and_names_failures():
    lines = targets.summary({"figures": FIGURES, "failures": ["chancy, drain by 1: exited"]})
    assert len({len(line) for line in lines[: len(BY_TITLE) + 1]}) == 1
    assert lines[-1] == "- failed: chancy, drain by 1: exited"


def test_a_quantile_is_one_of_the_values():
    assert targets.quantile(range(200), 0.99) == 198
    assert targets.quantile([3.0], 0.99) == 3.0


def test_a_plot_says_its_figures_as_text():
    drawn = page.plots(FIGURES)
    assert set(drawn) == {"drain.svg", "latency.svg"}
    root = ET.fromstring(drawn["drain.svg"])
    space = {"svg": "http://www.w3.org/2000/svg"}
    assert root.attrib["role"] == "img"
    assert root.findtext("svg:title", namespaces=space) == "Queued jobs drained a second"
    assert root.findtext("svg:desc", namespaces=space) == (
        "Headway, one worker: 700; Headway, two workers: 800; pgqueuer, one worker: 1,000"
    )
    widths = [int(bar.attrib["width"]) for bar in root.iterfind("svg:rect", space)]
    assert widths == [252, 288, 360]
    assert "a &lt; b &amp; c" in page.plot("a < b & c", [("x", 1.0)])


def test_a_part_of_the_page_is_replaced_and_must_exist():
    text = "one\n<!-- begin x -->\nold\n<!-- end x -->\ntwo\n"
    replaced = page.page(text, {"x": ["\\1 new"]})
    assert replaced == "one\n<!-- begin x -->\n\\1 new\n<!-- end x -->\ntwo\n"
    with pytest.raises(ValueError, match="0 parts named y"):
        page.page(text, {"y": []})


def test_the_page_shows_the_stored_figures():
    document = json.loads((page.FOLDER / "figures.json").read_text())
    for path, content in page.files(document, (page.DOCS / "performance.md").read_text()).items():
        assert path.read_text() == content, "run `./justw bench page`"
