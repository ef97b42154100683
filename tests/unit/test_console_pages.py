"""Data of pages: calendars, graphs, forms, charts."""

from datetime import UTC, date, datetime, timedelta
from uuid import UUID
from zoneinfo import ZoneInfo

import pytest
from headway.define.definitions import InvalidDefinitions
from headway_console.api.definitions import read_yaml
from headway_console.pages import filters, throughput
from headway_console.pages.manifests import durations, graph, heat, month
from headway_console.pages.overview import begins_now
from headway_console.pages.plan import fire_text, fires_summary
from headway_console.reading.manifests import Relative
from headway_console.reading.occurrences import BucketCount, DayCount, Past, RunFigure, Stretch
from headway_console.reading.system import Backlog, Throughput, state_of
from headway_contract.definitions import FireChange
from headway_contract.manifests import FireTime
from msgspec import structs

BERLIN = ZoneInfo("Europe/Berlin")
NOW = datetime(2027, 3, 10, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)
EMPTY = Past(days=[], stretches=[], in_full=True)


def fire(at: datetime, *, excluded: str | None = None) -> FireTime:
    return FireTime(due_at=at, fire_at=at, local=at.isoformat(sep=" "), excluded=excluded)


class TestMonth:
    def test_days_are_in_the_schedules_zone(self):
        late = datetime(2027, 3, 10, 23, 30, tzinfo=UTC)  # half past midnight in Berlin
        made = month.grid(date(2027, 3, 1), BERLIN, EMPTY, [fire(late)], today=date(2027, 3, 10))
        assert {day.day: day.coming for week in made.weeks for day in week if day.coming} == {
            date(2027, 3, 11): 1
        }

    def test_the_worst_of_a_day_colours_it(self):
        day = date(2027, 3, 9)
        counts = [
            DayCount(day=day, state="completed", reason="", fires=20),
            DayCount(day=day, state="skipped", reason="still_outstanding", fires=2),
            DayCount(day=day, state="dead_lettered", reason="", fires=1),
        ]
        past = Past(days=counts, stretches=[], in_full=True)
        made = month.grid(date(2027, 3, 1), BERLIN, past, [], today=date(2027, 3, 10))
        [cell] = [cell for week in made.weeks for cell in week if cell.marks]
        assert cell.tint == "bad"
        assert cell.label == (
            "09 March: 20 completed, 2 skipped (still outstanding), 1 dead lettered"
        )

    def test_a_stretch_marks_all_of_its_days(self):
        stretch = Stretch(
            first_due_at=datetime(2027, 3, 3, 1, 30, tzinfo=UTC),
            last_due_at=datetime(2027, 3, 5, 1, 30, tzinfo=UTC),
            state="skipped",
            reason="manifest_disabled",
        )
        past = Past(days=[], stretches=[stretch], in_full=True)
        made = month.grid(date(2027, 3, 1), BERLIN, past, [], today=date(2027, 3, 10))
        marked = [cell.day.day for week in made.weeks for cell in week if cell.tint == "warn"]
        assert marked == [3, 4, 5]

    def test_excluded_times_are_not_upcoming(self):
        at = datetime(2027, 3, 12, 9, tzinfo=UTC)
        coming = [fire(at, excluded="holiday")]
        made = month.grid(date(2027, 3, 1), BERLIN, EMPTY, coming, today=date(2027, 3, 10))
        assert not any(day.coming for week in made.weeks for day in week)
        [cell] = [day for week in made.weeks for day in week if day.marks]
        assert cell.label == "12 March: 1 excluded (holiday)"

    def test_the_calendar_marks_days_that_were_not_counted(self):
        first = datetime(2027, 3, 10, 12, tzinfo=UTC)
        coming = [fire(first + timedelta(minutes=2 * number)) for number in range(1000)]
        made = month.grid(date(2027, 3, 1), BERLIN, EMPTY, coming, today=date(2027, 3, 10))
        cells = {day.day: day for week in made.weeks for day in week}
        assert made.counted_until == coming[-1].due_at
        assert not cells[date(2027, 3, 10)].is_cut
        assert cells[date(2027, 3, 11)].label.endswith("or more to come")
        assert cells[date(2027, 3, 12)].label == "12 March: more than was counted"
        made = month.grid(date(2027, 3, 1), BERLIN, EMPTY, coming[:-1], today=date(2027, 3, 10))
        assert made.counted_until is None
        daily = [fire(first + timedelta(days=number)) for number in range(1000)]
        made = month.grid(date(2027, 3, 1), BERLIN, EMPTY, daily, today=date(2027, 3, 10))
        assert made.counted_until is None  # all fires of this month are counted
        assert not any(day.is_cut for week in made.weeks for day in week)

    def test_the_span_goes_from_a_monday_to_a_sunday_across_a_change_of_clocks(self):
        since, until = month.span(date(2027, 3, 1), BERLIN)
        assert since == datetime(2027, 2, 28, 23, tzinfo=UTC)
        assert until == datetime(2027, 4, 4, 22, tzinfo=UTC)

    @pytest.mark.parametrize("text", [None, "", "nonsense", "2027-13", "0001-01", "9999-12"])
    def test_an_address_that_names_no_month_means_this_one(self, text):
        assert month.first_of(text, today=date(2027, 3, 10)) == date(2027, 3, 1)

    def test_the_months_beside_it(self):
        made = month.grid(date(2027, 1, 1), BERLIN, EMPTY, [], today=date(2027, 3, 10))
        assert (made.before, made.after) == ("2026-12", "2027-02")


class TestGraph:
    def test_one_alone_is_not_drawn(self):
        assert graph.draw(family("a"), UUID(int=1)) is None

    def test_layers_go_to_the_right_and_nothing_overlaps(self):
        drawn = graph.draw(family("a", "b<a", "c<a", "d<b", "e<b"), UUID(int=1))
        assert drawn is not None
        at = {box.of.external_id: (box.x, box.y) for box in drawn.boxes}
        assert at["a"][0] < at["b"][0] == at["c"][0] < at["d"][0] == at["e"][0]
        assert len(set(at.values())) == 5
        ys = sorted(y for x, y in at.values() if x == at["d"][0])
        assert ys[1] - ys[0] >= drawn.box_height
        assert at["d"][1] < at["b"][1] < at["e"][1]
        assert len(drawn.lines) == 4

    def test_a_long_chain_is_no_trouble(self):
        links = ["n0", *(f"n{number}<n{number - 1}" for number in range(1, 500))]
        drawn = graph.draw(family(*links), UUID(int=1))
        assert drawn is not None
        assert len(drawn.boxes) == 500


def family(*links: str) -> list[Relative]:
    """Make manifests from `child<parent`, parents first."""
    nodes: dict[str, Relative] = {}
    for number, link in enumerate(links, start=1):
        name, _, parent = link.partition("<")
        above = nodes[parent] if parent else None
        nodes[name] = Relative(
            id=UUID(int=number), external_id=name, group="g", held_by=None, dormant=False,
            depends_on=above.id if above else None, last_outcome=None,
            depth=above.depth + 1 if above else 0,
        )  # fmt: skip
    return list(nodes.values())


class TestCharts:
    def test_bars_stay_inside_and_small_values_are_visible(self):
        stretches = [
            Throughput(at=NOW, completed=1000, failed=1, cancelled=0),
            Throughput(at=NOW + HOUR, completed=0, failed=0, cancelled=0),
        ]
        drawn = throughput.draw(stretches, width=HOUR, zone=BERLIN)
        assert [tint for tint, _, _ in drawn.bars[0].parts] == ["bad", "good"]
        for _, top, height in drawn.bars[0].parts:
            assert height >= 1
            assert top >= 0
            assert top + height <= drawn.base + 2
        assert drawn.bars[0].to == (
            "/runs?ended_since=2027-03-10T13%3A00&ended_before=2027-03-10T14%3A00"
            "&zone=Europe%2FBerlin"
        )
        assert (drawn.bars[1].parts, drawn.bars[1].to) == ([], "")

    @pytest.mark.parametrize(
        ("most", "counts"),
        [
            (0, "0 1 2 3 4"),
            (3, "0 1 2 3 4"),
            (5, "0 2 4 6 8"),
            (18, "0 5 10 15 20"),
            (1000, "0 500 1\u202f000 1\u202f500 2\u202f000"),
        ],
    )
    def test_counts_of_the_axis_are_round_and_include_the_highest_bar(self, most, counts):
        slot = Throughput(at=NOW, completed=most, failed=0, cancelled=0)
        drawn = throughput.draw([slot], width=HOUR, zone=BERLIN)
        assert [label for _, label in drawn.counts] == counts.split(" ")
        assert all(top >= 0 for _, top, _ in drawn.bars[0].parts)

    @pytest.mark.parametrize(
        ("since", "slots", "width", "labels"),
        [
            (NOW, 60, HOUR / 60, "13:00 13:10 13:20 13:30 13:40 13:50 14:00"),
            (NOW + HOUR / 4, 48, HOUR / 2, "16:00 20:00 00:00 04:00 08:00 12:00"),
            # The clocks change at 02:00 on 28 March.
            (NOW + 18 * 24 * HOUR - 16 * HOUR, 24, HOUR / 2, "00:00 04:00 08:00"),
        ],
    )
    def test_times_of_the_axis_are_round_in_the_zone(self, since, slots, width, labels):
        empty = [
            Throughput(at=since + index * width, completed=0, failed=0, cancelled=0)
            for index in range(slots)
        ]
        drawn = throughput.draw(empty, width=width, zone=BERLIN)
        assert " ".join(label for _, label in drawn.times) == labels
        assert sorted(drawn.times) == drawn.times


def figure(number: int, state: str, took: float | None) -> RunFigure:
    return RunFigure(
        run=UUID(int=number), state=state, attempt=1, started_at=NOW, took_seconds=took,
        created_at=NOW - timedelta(minutes=number),
    )  # fmt: skip


class TestDurations:
    def test_bars_are_over_time_and_runs_that_never_began_are_left_out(self):
        figures = [figure(0, "completed", 1.0), figure(1, "failed", 4.0)]
        never = figure(2, "cancelled", None)
        drawn = durations.draw([*figures, never], BERLIN)
        assert drawn is not None
        assert [bar.tint for bar in drawn.bars] == ["bad", "good"]
        assert drawn.bars[0].x < drawn.bars[1].x
        assert drawn.bars[0].height == drawn.height > drawn.bars[1].height
        assert (drawn.runs, drawn.completed, drawn.longest) == (2, 1, 4.0)
        assert durations.draw([never], BERLIN) is None

    def test_percentiles_are_durations_of_runs(self):
        values = [float(number) for number in range(1, 101)]
        for percent, value in ((50, 50.0), (95, 95.0), (100, 100.0), (0, 1.0)):
            assert durations.percentile(values, percent) == value
        assert durations.percentile([7.0], 95) == 7.0

    def test_many_runs_are_a_bounded_drawing_inside_its_frame(self):
        figures = [figure(number, "completed", 0.0 if number % 2 else 9e4) for number in range(300)]
        drawn = durations.draw(figures, BERLIN)
        assert drawn is not None
        assert (drawn.runs, len(drawn.bars)) == (300, 60)
        for bar in drawn.bars:
            assert bar.x >= 0
            assert bar.x + drawn.bar <= drawn.width
            assert bar.height >= 2
            assert bar.y + bar.height <= drawn.height + 0.1


class TestHeat:
    def rows(self, day: date, *, chosen: tuple[datetime, datetime] | None = None) -> list[heat.Row]:
        since = month.start_of_day(day, BERLIN)
        until = month.start_of_day(day + timedelta(days=1), BERLIN)
        counts = [
            BucketCount(at=since, state="completed", fires=59),
            BucketCount(at=since, state="failed", fires=1),
            BucketCount(at=since + heat.WIDTH, state="dead_lettered", fires=2),
        ]
        pause = Stretch(
            first_due_at=since + timedelta(hours=2), last_due_at=since + timedelta(minutes=129),
            state="skipped", reason="paused",
        )  # fmt: skip
        fires = [fire(since + timedelta(minutes=minute)) for minute in (181, 183, 186)]
        return heat.lay_out(
            *(since, until, BERLIN), counts=counts, stretches=[pause], fires=fires,
            now=since + timedelta(minutes=182), chosen=chosen,
        )  # fmt: skip

    def test_the_worst_of_five_minutes_colours_them(self):
        rows = self.rows(date(2027, 3, 10))
        assert [row.label for row in rows[:2]] == ["00:00", "01:00"]
        mixed, bad = rows[0].cells[:2]
        assert (mixed.tint, mixed.is_whole, mixed.worst, mixed.fires) == ("bad", False, 1, 60)
        assert mixed.label == "00:00 to 00:05: 59 completed, 1 failed"
        assert (bad.tint, bad.is_whole) == ("bad", True)
        assert [cell.tint for cell in rows[2].cells[:3]] == ["warn", "warn", ""]
        assert rows[2].cells[0].label == "02:00 to 02:05: skipped (paused)"
        assert rows[3].cells[0].label == "03:00 to 03:05: 1 not fired, 1 to come"
        assert rows[3].cells[1].label == "03:05 to 03:10: 1 to come"
        assert rows[4].cells[0].label == ""

    def test_a_day_has_as_many_hours_as_its_clock(self):
        hours = {day: len(self.rows(date(2027, *day))) for day in ((3, 10), (3, 28), (10, 31))}
        assert hours == {(3, 10): 24, (3, 28): 23, (10, 31): 25}
        labels = [row.label for row in self.rows(date(2027, 10, 31))]
        assert labels[1:4] == ["01:00", "02:00", "02:00"]

    def test_the_chosen_part_is_marked(self):
        begin = month.start_of_day(date(2027, 3, 10), BERLIN) + timedelta(minutes=65)
        rows = self.rows(date(2027, 3, 10), chosen=(begin, begin + heat.WIDTH))
        assert [row.label for row in rows if row.is_chosen] == ["01:00"]
        cells = [cell.minute for row in rows for cell in row.cells if cell.is_chosen]
        assert cells == [65]
        rows = self.rows(date(2027, 3, 10), chosen=(begin, begin + heat.HOUR))
        assert not any(cell.is_chosen for row in rows for cell in row.cells)


def test_a_pass_is_judged_by_the_oldest_that_waits():
    for seconds, state in ((None, "ok"), (3, "ok"), (30, "late"), (90, "stuck")):
        oldest = None if seconds is None else NOW - timedelta(seconds=seconds)
        backlog = Backlog(name="tick", waiting=1, oldest_at=oldest)
        assert state_of(backlog, now=NOW) == state


def test_a_plan_counts_all_fire_times():
    change = FireChange(manifest="m", zone="UTC", appearing=1, vanishing=1440, unchanged=5)
    assert fires_summary(change) == "1 appear, 1\u202f440 vanish, 5 unchanged"
    cut = structs.replace(change, compared_until=NOW)
    assert fires_summary(cut) == "at least 1 appear, 1\u202f440 vanish, 5 unchanged"


def test_a_plan_shows_the_delay_by_jitter():
    late = structs.replace(fire(NOW), fire_at=NOW + timedelta(seconds=65))
    assert fire_text(fire(NOW)) == "2027-03-10 12:00:00+00:00"
    assert fire_text(late) == "2027-03-10 12:00:00+00:00, 65 s later by jitter"


def test_definitions_are_never_read_from_a_path(tmp_path):
    file = tmp_path / "there.yaml"
    file.write_text("app: there\n")
    with pytest.raises(InvalidDefinitions):
        read_yaml(str(file))


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (None, "\u2013"),
        (0.0, "0 s"),
        (0.004, "4 ms"),
        (0.42, "0.4 s"),
        (12, "12 s"),
        (90, "1.5 min"),
        (7200, "2 h"),
    ],
)
def test_lengths_of_time(value, shown):
    assert filters.seconds(value) == shown


def test_a_system_that_has_just_begun_is_shown_by_the_hour():
    day = [Throughput(at=NOW, completed=0, failed=0, cancelled=0)] * 46
    busy = Throughput(at=NOW, completed=0, failed=1, cancelled=0)
    assert begins_now([*day, busy, busy])
    assert not begins_now([busy, *day, busy])
