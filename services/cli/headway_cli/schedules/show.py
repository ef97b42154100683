"""Commands that show manifests, groups, jobs, previews and explanations."""

from typing import Any

import click
import msgspec
from headway import Client
from headway_contract import manifests as contract
from headway_contract.fields import Rate
from headway_contract.work import WorkTerms
from headway_contract.work_queue import ExplainWorkAnswer
from headway_decisions.capacity.rates import rate_in_words
from headway_errors import Invalid, NotFound, RequestFailed

from headway_cli.serve.names import manifest_argument
from headway_cli.serve.session import Session, command, read_manifest_time
from headway_cli.terminal import options
from headway_cli.terminal.output import counted, counts_text, fields, window_table
from headway_cli.terminal.times import CLOCK_CHANGES, shown

_TIME_HELP = "ISO 8601, '2027-03-28 03:15' or 03:15; without an offset in the manifest's zone."


@command()
def manifests(session: Session) -> None:
    """List manifests and their state."""
    session.print_items(
        session.ask(lambda client: client.manifests()),
        ("MANIFEST", "JOB", "GROUP", "NEXT FIRE", "STATUS", "LAST", "CADENCE"),
        lambda status: (
            *(status.external_id, status.job, status.group),
            *(shown(status.next_fire_at, status.zone), _state(status)),
            *(status.last_outcome, _cadence(status)),
        ),
        empty="no manifests are declared",
    )


@command()
@manifest_argument
def manifest(session: Session, manifest_id: str) -> None:
    """Show one manifest with its definition."""
    found = session.ask(lambda client: client.manifest(manifest_id))
    session.print(found, lambda: _manifest_lines(found))


@command()
@options.flag("--occupancy", "Runs in progress, waiting work and the reasons.")
def groups(session: Session, occupancy: bool) -> None:
    """List groups with their limits."""
    if occupancy:
        session.print_items(
            session.ask(lambda client: client.occupancy()),
            ("GROUP", "ACTIVE", "LIMIT", "RUNNING", "ORDERED", "WAITING", "WHY", "DEAD LETTERS"),
            lambda group: (
                *(group.group, group.active, str(_limit(group.max_active)), group.in_progress),
                *(group.pending, sum(group.waiting.values()), counts_text(group.waiting)),
                group.dead_letters,
            ),
            empty="no work has arrived yet",
        )
    else:
        session.print_items(
            session.ask(lambda client: client.groups()),
            ("GROUP", "MAX ACTIVE", "RATE", "PRIORITY", "ENABLED", "MANIFESTS", "OVERRIDES"),
            lambda group: (
                *(group.name, _limit(group.max_active), _rate(group.rate), group.priority),
                *(group.enabled, group.manifests, group.touched),
            ),
            empty="there are no groups",
        )


@command()
def jobs(session: Session) -> None:
    """List jobs with their limits and workers."""
    session.print_items(
        session.read_list("/jobs"),
        ("JOB", "MAX ACTIVE", "IN USE", "RATE", "ATTEMPTS", "WORKERS", "MANIFESTS", "OVERRIDES"),
        lambda job: (
            f"{job['name']} (retired)" if job["retired_at"] else job["name"],
            *(_limit(job["max_active"]), job["active"], _rate(job["rate"]), job["attempts"]),
            *(job["workers"] or "none alive", job["manifests"], job["touched"]),
        ),
        empty="no jobs are declared: start an app with 'headway scheduler --app APP'",
    )


@command()
@manifest_argument
@options.count_option("Fire times; excluded ones between them share a line.", most=1000, usual=20)
@click.option("--after", metavar="TIME", help=f"Start, instead of now. {_TIME_HELP}")
def preview(session: Session, manifest_id: str, most: int, after: str | None) -> None:
    """Show the next fire times of a manifest."""

    async def ask(client: Client) -> contract.PreviewAnswer:
        instant = await read_manifest_time(client, manifest_id, after, past=False)
        return await client.preview(manifest_id, most, after=instant)

    found = session.ask(ask)
    rows = [fire_row(fire, found.zone) for fire in found.fires]
    lines = [*window_table(("DUE", "FIRES", "NOTE"), rows), f"times are {found.zone}"]
    note = [f"note: {found.note}"] if found.note else []
    session.print(found, lambda: [*(lines if rows else ()), *note])


@command()
@click.argument("named", metavar="[work] ID", nargs=-1, required=True)
@click.option("--at", metavar="TIME", help=f"The time to explain. {_TIME_HELP}")
def explain(session: Session, named: tuple[str, ...], at: str | None) -> None:
    """Explain why a manifest ran or did not, or why work waits.

    ID is a manifest, or the id of work or of a run. Without --at it explains the current state of
    the manifest. A time of day means its latest occurrence. Of work it lists the gates that the
    work waits for and the holders of the slots. With 'work' in front, the id is never a manifest.
    """
    is_work = len(named) == 2 and named[0] == "work"
    if len(named) != 1 and not is_work:
        raise click.UsageError("name one manifest, or one piece of work by its id")
    if is_work and at is not None:
        raise click.UsageError("--at is for manifests: work is explained as it is now")

    async def ask(client: Client) -> contract.ExplainAnswer | ExplainWorkAnswer:
        if is_work:
            return await _explain_work(client, named[1])
        try:
            instant = await read_manifest_time(client, named[0], at, past=True)
            return await client.explain(named[0], at=instant)
        except NotFound as error:
            if at is not None:
                raise
            try:
                return await _explain_work(client, named[0])
            except RequestFailed as other:
                raise (other if isinstance(other, Invalid) else error) from None

    found = session.ask(ask)
    gates = found.gates if isinstance(found, ExplainWorkAnswer) else []
    rows = [
        (gate.gate, *(("open", None) if gate.open else ("closed", gate.opens_at)), gate.text)
        for gate in gates
    ]
    lines = window_table(("GATE", "NOW", "OPENS", "WHY"), rows) if rows else []
    session.print(found, lambda: [*found.text.splitlines(), *lines])


async def _explain_work(client: Client, named: str) -> ExplainWorkAnswer:
    """Explain work by its id, or by the id of one of its runs."""
    try:
        return await client.explain_work(named)
    except NotFound as error:
        try:
            found = await client.work(named)
        except NotFound:
            raise error from None
        return await client.explain_work(found.status.work)


def _limit(value: int | None) -> object:
    return "no limit" if value is None else value


def _rate(value: Any) -> str:
    return "no limit" if value is None else rate_in_words(msgspec.convert(value, Rate))


def _state(status: contract.ManifestStatus) -> str:
    if status.held_by == "blocked_by_dead_letter":
        return f"blocked by dead letter {status.blocked_by}"
    if status.held_by is not None:
        return status.held_by.replace("_", " ")
    if status.outstanding:
        return f"{status.outstanding} under way"
    return counted(status.owed, "pending trigger") if status.owed else "ready"


def _cadence(status: contract.ManifestStatus) -> str:
    if status.depends_on is None:
        return status.cadence
    return f"{'when activated by' if status.dormant else 'after'} {status.depends_on}"


def _manifest_lines(found: contract.ManifestAnswer) -> list[str]:
    status, definition = found.status, found.definition
    properties: dict[str, object] = {
        "manifest": status.external_id,
        "owner": status.owner,
        "job": status.job,
        "group": status.group,
        "cadence": _cadence(status),
        "status": _state(status),
        "next fire": shown(status.next_fire_at, status.zone),
        "last outcome": status.last_outcome,
        "last settled": shown(status.last_settled_at, status.zone),
        "successes": status.success_number,
    }
    names = ("input", "jitter_seconds", "misfire", "overlap", "batch")
    for name in (*names, *WorkTerms.__struct_fields__):
        label = name.replace("_seconds", " (seconds)").replace("_", " ")
        value = definition[name]
        if isinstance(value, dict):
            words = [f"{key.replace('_', ' ')} {item}" for key, item in value.items()]
            value = ", ".join(words) or "default"
        properties[label] = None if value is None else str(value)
    properties["retry"] = _retry(definition["retry"])
    for owner in found.owners:
        source = {
            "operator": f"set by an operator; reset it with '{owner.give_back}'",
            "code": f"set by code ({owner.application})",
            "api": "set at run time",
        }.get(owner.owner, "the default")
        properties[f"{owner.field} (owner)"] = f"{owner.value}: {source}"
    return fields(properties)


def _retry(policy: dict[str, Any]) -> str:
    if policy["attempts"] == 1:
        return "1 attempt"
    first, longest = policy["interval_seconds"], policy["max_interval_seconds"]
    text = (
        f"{policy['attempts']} attempts, {first:g} s apart at first"
        f", then x{policy['backoff']:g} up to {max(first, longest):g} s"
    )
    for name in ("retry_on", "abort_on"):
        if policy.get(name):
            text += f", {name.replace('_', ' ')} {', '.join(policy[name])}"
    return text


def fire_row(fire: contract.FireTime, zone: str) -> tuple[object, ...]:
    """Make a table row of a fire time, or of a series of excluded ones."""
    notes, series = [], ""
    if fire.until is not None:
        number = f"{fire.times:,}" if fire.times else "all"
        series = f"{number} times until {shown(fire.until, zone)}, "
    notes += [f"{series}excluded: {fire.excluded}"] if fire.excluded else []
    notes += [CLOCK_CHANGES.get(fire.dst, fire.dst)] if fire.dst else []
    fires = "not at all" if fire.excluded else shown(fire.fire_at, zone)
    return fire.local, fires, "; ".join(notes) or " "
