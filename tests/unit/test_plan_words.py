"""Fire times and their changes in the output of the command line."""

from datetime import UTC, datetime, timedelta

from headway_cli.schedules.apply import fire_lines
from headway_cli.schedules.show import fire_row
from headway_contract.definitions import ApplyAnswer, FireChange, FiresLeftOut
from headway_contract.manifests import FireTime
from msgspec import structs

NOW = datetime(2027, 3, 1, tzinfo=UTC)


def fire(hours: float, *, jitter: int = 0, dst: str | None = None) -> FireTime:
    at = NOW + timedelta(hours=hours)
    return FireTime(
        due_at=at, fire_at=at + timedelta(seconds=jitter), local=f"{at:%d %H:%M}", dst=dst
    )


def lines_of(*changes: FireChange, left_out: FiresLeftOut | None = None) -> list[str]:
    answer = ApplyAnswer(owner="app", fires=list(changes), left_out=left_out)
    first, *lines = fire_lines(answer, 7)
    assert first == "fire times of the next 7 days that change:"
    return lines


def test_nothing_changes():
    lines = list(fire_lines(ApplyAnswer(owner="app"), 7))
    assert lines == ["no fire times of the next 7 days change"]


def test_times_are_listed_in_order_with_their_oddities():
    change = FireChange(
        manifest="m",
        zone="UTC",
        appear=[fire(4, dst="gap"), fire(30, jitter=65)],
        vanish=[fire(2)],
        appearing=2,
        vanishing=1,
        unchanged=3,
    )
    assert lines_of(change) == [
        "  m (UTC): 2 appear, 1 vanish, 3 unchanged",
        "    - 01 02:00",
        "    + 01 04:00  the clock goes forward that day",
        "    + 02 06:00  65 s later by jitter",
    ]


def test_omitted_times_are_counted():
    change = FireChange(
        manifest="m",
        zone="UTC",
        vanish=[fire(number) for number in range(200)],
        vanishing=1440,
        unchanged=8640,
    )
    lines = lines_of(change)
    assert lines[0] == "  m (UTC): 1,440 vanish, 8,640 unchanged"
    assert len(lines) == 22
    assert lines[-1] == "    … and 1,420 more"


def test_times_that_were_not_compared_are_reported():
    change = FireChange(manifest="m", zone="Europe/Berlin", vanishing=9, compared_until=NOW)
    left_out = FiresLeftOut(changing=2001, appearing=4002, vanishing=1, not_compared=1)
    assert lines_of(change, left_out=left_out) == [
        "  m (Europe/Berlin): at least 9 vanish",
        "    … and 9 more",
        "    compared until 2027-03-01 01:00:00+01:00: there are more times than can be compared",
        "  … and 2,001 more manifests change, not listed here: 4,002 times appear, 1 vanish",
        "  1 manifest was not compared: too many times; use fewer --days",
    ]
    assert "not compared" in lines_of(left_out=FiresLeftOut(not_compared=5))[0]


def test_a_run_of_excluded_times_is_one_line_of_a_preview():
    fires = structs.replace(fire(2), excluded="on Sunday", until=NOW, times=20_159)
    until = "until 2027-03-01 01:00:00+01:00, excluded: on Sunday"
    assert fire_row(fires, "Europe/Berlin") == ("01 02:00", "not at all", f"20,159 times {until}")
    uncounted = structs.replace(fires, times=0)
    assert fire_row(uncounted, "Europe/Berlin")[2] == f"all times {until}"
    alone = structs.replace(fires, times=1, until=None)
    assert fire_row(alone, "Europe/Berlin")[2] == "excluded: on Sunday"
