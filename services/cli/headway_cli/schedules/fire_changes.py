"""The fire times that a plan changes, in lines for a person."""

from collections.abc import Iterator
from datetime import datetime

from headway_contract.scheduling import ApplyAnswer, FireChange, FiresLeftOut, FireTime

from headway_cli.terminal.times import CLOCK_CHANGES, shown
from headway_cli.up.summary import counted

# How many fire times of one manifest a person wants to read.
_MOST_SHOWN = 20


def fire_lines(answer: ApplyAnswer, days: int) -> Iterator[str]:
    """What appears, vanishes and moves, manifest by manifest, and what is not told."""
    ahead = f"of the next {counted(days, 'day')}"
    if not answer.fires and answer.left_out is None:
        yield f"no fire times {ahead} change"
        return
    yield f"fire times {ahead} that change:"
    for change in answer.fires:
        yield from _change(change)
    if answer.left_out is not None:
        yield from _left_out(answer.left_out)


def _change(change: FireChange) -> Iterator[str]:
    # A scheduler of an older version lists and does not count.
    vanishing = max(change.vanishing, len(change.vanish))
    appearing = max(change.appearing, len(change.appear))
    counts = (
        ("moves", "move", change.moving),
        ("appears", "appear", appearing - change.moving),
        ("vanishes", "vanish", vanishing - change.moving),
        ("unchanged", "unchanged", change.unchanged),
    )
    told = [f"{count:,} {one if count == 1 else many}" for one, many, count in counts if count]
    least = "at least " if change.compared_until is not None and told else ""
    yield f"  {change.manifest} ({change.zone}): {least}{', '.join(told) or 'not all compared'}"
    lines = sorted(_lines(change))
    yield from (f"    {line}" for _, line in lines[:_MOST_SHOWN])
    left = vanishing + appearing - change.moving - min(len(lines), _MOST_SHOWN)
    if left > 0:
        listed = len(change.appear) + len(change.vanish)
        has = "all" if listed == vanishing + appearing else f"the first {listed}"
        yield f"    … and {left:,} more (--json has {has})"
    if change.compared_until is not None:
        until = shown(change.compared_until, change.zone)
        yield f"    compared only until {until}: there are too many times; ask for fewer --days"


def _lines(change: FireChange) -> Iterator[tuple[tuple[datetime, str], str]]:
    """A line for each that is listed, with what it is sorted by."""
    vanish = {one.due_at: one for one in change.vanish}
    appear = {one.due_at: one for one in change.appear}
    for move in change.moves:
        gone, come = vanish.pop(move.vanish), appear.pop(move.appear)
        yield (gone.fire_at, "~"), f"~ {_moved(gone, come, change.zone)}"
    yield from (((one.fire_at, "+"), f"+ {_time(one)}") for one in appear.values())
    yield from (((one.fire_at, "-"), f"- {_time(one)}") for one in vanish.values())


def _moved(gone: FireTime, come: FireTime, zone: str) -> str:
    if gone.due_at == come.due_at:
        return f"{shown(gone.fire_at, zone)} → {shown(come.fire_at, zone)}  by jitter"
    odd = gone.dst or come.dst
    clock = f"  {CLOCK_CHANGES.get(odd, odd)}" if odd else ""
    return f"{gone.local} → {come.local}{clock}"


def _time(one: FireTime) -> str:
    later = round((one.fire_at - one.due_at).total_seconds())
    notes = [f"{later} s later by jitter"] if later else []
    notes += [f"excluded: {one.excluded}"] if one.excluded else []
    notes += [CLOCK_CHANGES.get(one.dst, one.dst)] if one.dst else []
    return f"{one.local}  {'; '.join(notes)}".rstrip()


def _left_out(left: FiresLeftOut) -> Iterator[str]:
    if left.changing:
        many = "manifest changes" if left.changing == 1 else "manifests change"
        yield (
            f"  … and {left.changing:,} more {many}, not listed here: "
            f"{left.appearing:,} times appear, {left.vanishing:,} vanish"
        )
    if left.not_compared:
        many = "manifest was" if left.not_compared == 1 else "manifests were"
        yield f"  {left.not_compared:,} {many} not compared: too many times; ask for fewer --days"
