"""Print the fire times that a plan changes."""

from collections.abc import Iterator

from headway_contract.definitions import ApplyAnswer, FireChange, FiresLeftOut
from headway_contract.manifests import FireTime

from headway_cli.terminal.output import counted
from headway_cli.terminal.times import CLOCK_CHANGES, shown

# Fire times printed for one manifest.
_MOST_SHOWN = 20


def fire_lines(answer: ApplyAnswer, days: int) -> Iterator[str]:
    """Return lines about the fire times that appear and vanish, manifest by manifest."""
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
    counts = {
        "appear": change.appearing,
        "vanish": change.vanishing,
        "unchanged": change.unchanged,
    }
    summary = ", ".join(f"{count:,} {verb}" for verb, count in counts.items() if count)
    least = "at least " if change.compared_until is not None and summary else ""
    yield f"  {change.manifest} ({change.zone}): {least}{summary or 'not all compared'}"
    lines = [((fire.fire_at, "+"), _time(fire)) for fire in change.appear]
    lines += [((fire.fire_at, "-"), _time(fire)) for fire in change.vanish]
    yield from (f"    {sign} {line}" for (_, sign), line in sorted(lines)[:_MOST_SHOWN])
    left = change.vanishing + change.appearing - min(len(lines), _MOST_SHOWN)
    if left > 0:
        yield f"    … and {left:,} more"
    if change.compared_until is not None:
        until = shown(change.compared_until, change.zone)
        yield f"    compared until {until}: there are more times than can be compared"


def _time(fire: FireTime) -> str:
    delay = round((fire.fire_at - fire.due_at).total_seconds())
    notes = [f"{delay} s later by jitter"] if delay else []
    notes += [f"excluded: {fire.excluded}"] if fire.excluded else []
    notes += [CLOCK_CHANGES.get(fire.dst, fire.dst)] if fire.dst else []
    return f"{fire.local}  {'; '.join(notes)}".rstrip()


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
