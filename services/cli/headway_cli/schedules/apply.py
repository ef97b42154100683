"""`headway plan` and `headway apply`: apply definitions to a running scheduler."""

from collections.abc import Iterator
from typing import Annotated, Any

import click
from headway.define.definitions import Definitions
from headway_contract.definitions import ApplyAnswer, FireChange
from headway_contract.manifests import FireTime
from msgspec import Meta, Struct
from msgspec.structs import replace

from headway_cli.serve import settings
from headway_cli.serve.find_app import load_app
from headway_cli.serve.session import Session, command
from headway_cli.terminal import options
from headway_cli.terminal.output import confirm, counted, listed, progressing
from headway_cli.terminal.times import CLOCK_CHANGES, shown

# Fire times printed for one manifest.
_MOST_SHOWN = 20


class _Deployment(Struct, frozen=True, kw_only=True):
    """The generation of the deployment that declares; by default the application's own."""

    generation: Annotated[int, Meta(ge=0)] | None = None


_definition_options = options.together(
    click.argument("app", envvar="HEADWAY_APP"),
    options.choice(
        "--prune", options.PRUNE, "Handling of undeclared manifests; by default the scheduler's."
    ),
    options.flag("--take-over", "Take the application over from the code that declares it."),
)


@command()
@_definition_options
@options.number(
    "--days", click.IntRange(0, 3660), "How far ahead fire times are compared.", usual=7
)
def plan(session: Session, app: str, **terms: Any) -> None:
    """Show changes of manifests and fire times before 'apply'.

    APP is your file.py, module or module:name, or a YAML file.
    """
    definitions = _definitions(app)
    size = counted(len(definitions.manifests), "manifest")
    with progressing(f"planning {size}", quiet=session.as_json):
        answer = session.ask(lambda client: client.plan(definitions, **terms))
    title = f"plan for {answer.owner}: nothing has been changed"
    session.print(answer, lambda: [title, *_changes(answer), *fire_lines(answer, terms["days"])])
    _warn(session, answer)


@command()
@_definition_options
@options.yes_option
def apply(session: Session, app: str, yes: bool, **terms: Any) -> None:
    """Apply definitions to a running scheduler, all or none.

    APP is your file.py, module or module:name, or a YAML file. Asks for confirmation before it
    deletes manifests that the definitions no longer contain. An application that code declares at
    every start is refused, unless an admin takes it over.
    """
    definitions = _definitions(app)

    def describe() -> str | None:
        planned = session.ask(lambda client: client.plan(definitions, days=0, **terms))
        # Under every policy, manifests that left a batch are deleted.
        if not planned.pruned or planned.refused:
            return None
        number, names = counted(len(planned.pruned), "manifest"), listed(planned.pruned)
        return f"apply it and delete {number} with all runs and dead letters ({names})"

    confirm(describe, yes=yes)
    size = counted(len(definitions.manifests), "manifest")
    with progressing(f"applying {size}", quiet=session.as_json):
        answer = session.ask(lambda client: client.apply(definitions, **terms))
    stale = f"nothing of {answer.owner} was applied"
    title = stale if answer.stale else f"applied {answer.owner}"
    session.print(answer, lambda: [title, *_changes(answer)])
    _warn(session, answer)


def _definitions(app: str) -> Definitions:
    definitions = load_app(app).definitions(settings.read_defaults())
    # As at a start of the scheduler, so that the plan compares the same generation.
    generation = settings.read(_Deployment, {}).generation
    return definitions if generation is None else replace(definitions, generation=generation)


def _changes(answer: ApplyAnswer) -> Iterator[str]:
    if answer.stale:
        return
    yield from (f"  + {name}  new" for name in answer.created)
    yield from (f"  ~ {name}  changed" for name in answer.changed)
    yield from (f"  ~ {name}  moved" for name in answer.moved)
    yield from (f"  - {name}  deleted" for name in answer.pruned)
    yield from (f"  - {name}  disabled" for name in answer.disabled)
    yield f"  {counted(answer.unchanged, 'manifest')} unchanged"


def _warn(session: Session, answer: ApplyAnswer) -> None:
    refused = [f"apply would be refused: {answer.refused}"] if answer.refused else []
    for warning in () if session.as_json else (*refused, *answer.warnings):
        click.echo(f"headway: {warning}", err=True)


def fire_lines(answer: ApplyAnswer, days: int) -> Iterator[str]:
    """Return lines about the fire times that appear and vanish, manifest by manifest."""
    ahead, left = f"of the next {counted(days, 'day')}", answer.left_out
    if not answer.fires and left is None:
        yield f"no fire times {ahead} change"
        return
    yield f"fire times {ahead} that change:"
    for change in answer.fires:
        yield from _fire_change(change)
    if left is not None and left.changing:
        many = "manifest changes" if left.changing == 1 else "manifests change"
        yield (
            f"  … and {left.changing:,} more {many}, not listed here: "
            f"{left.appearing:,} times appear, {left.vanishing:,} vanish"
        )
    if left is not None and left.not_compared:
        many = "manifest was" if left.not_compared == 1 else "manifests were"
        yield f"  {left.not_compared:,} {many} not compared: too many times; use fewer --days"


def _fire_change(change: FireChange) -> Iterator[str]:
    counts = {"appear": change.appearing, "vanish": change.vanishing, "unchanged": change.unchanged}
    summary = ", ".join(f"{count:,} {verb}" for verb, count in counts.items() if count)
    least = "at least " if change.compared_until is not None and summary else ""
    yield f"  {change.manifest} ({change.zone}): {least}{summary or 'not all compared'}"
    signed = [(fire.fire_at, "+", _time(fire)) for fire in change.appear]
    signed += [(fire.fire_at, "-", _time(fire)) for fire in change.vanish]
    shown_first = sorted(signed)[:_MOST_SHOWN]
    yield from (f"    {sign} {line}" for _, sign, line in shown_first)
    left = change.vanishing + change.appearing - len(shown_first)
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
