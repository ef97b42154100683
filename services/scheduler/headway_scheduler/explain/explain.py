"""Why did a manifest run, or not? What the answer rests on is gathered here."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

import msgspec
from headway_contract.scheduling import ExplainAnswer, LedgerEntry
from headway_decisions.timing.timing import Timing
from headway_postgres_kit import Connection

from headway_scheduler.declare import one_shots
from headway_scheduler.explain.explanation import Explanation
from headway_scheduler.explain.ledger_check import Version
from headway_scheduler.explain.messages import Subject, Switch
from headway_scheduler.explain.past_terms import Redeclared, TermsOverTime, redeclared, terms_of
from headway_scheduler.fire.manifest import Manifest, read_manifests
from headway_scheduler.lookup import queries
from headway_scheduler.store import works

# How many decisions on each side of an instant are looked at.
_FEW = 20

_MANIFEST_SWITCHES = [
    "headway.manifest.changed.v1",
    "headway.manifest.declared.v1",
    "headway.manifest.undeclared.v1",
]
_GROUP_SWITCHES = ["headway.group.changed.v1"]


async def explain(
    connection: Connection, row: Any, *, at: datetime | None, now: datetime, kept_days: float
) -> ExplainAnswer:
    """Explain an instant, or how things stand."""
    asked = await _gather(connection, row, at=at, now=now, kept_days=kept_days)
    text, entries = asked.standing() if at is None else asked.instant(at)
    return ExplainAnswer(manifest=row["external_id"], text=" ".join(text), entries=entries)


async def _gather(
    connection: Connection, row: Any, *, at: datetime | None, now: datetime, kept_days: float
) -> Explanation:
    instant = now if at is None else at
    before = await connection.fetch(queries["entries_before"], row["id"], instant, _FEW)
    over = await connection.fetch(queries["entry_over"], row["id"], instant)
    after = await connection.fetch(queries["entries_after"], row["id"], instant, _FEW)
    outstanding = await connection.fetch(works["outstanding_of"], [row["id"]])
    versions = await connection.fetch(queries["timing_versions"], [row["id"]])
    [manifest] = await read_manifests(connection, [row["id"]], now=now)
    told = next(iter(before), None) if at is None else _covering(over, at)
    until = min(now, instant) if told is None else told["last_due_at"]
    decided = [one["decided_at"] for one in (*before, *over, *after)]
    terms = TermsOverTime(
        now=terms_of(row),
        redeclared=await _redeclared(connection, row, decided),
        known_since=now - timedelta(days=kept_days),
    )
    then = terms.now if told is None else terms.at(told["decided_at"])
    subject = Subject(
        external_id=row["external_id"],
        timing=msgspec.convert(row["timing"], Timing),
        terms=terms.now,
        group_enabled=row["group_enabled"],
        disabled_by=row["disabled_by"],
        blocked_by=row["blocked_by"],
        pause=_pause_message(row),
        follows=row["parent"] is not None and not row["dormant"],
        instead=one_shots.remedy(row) if one_shots.is_spent(row, now) else "",
        working_since=outstanding[0]["queued_at"] if outstanding else None,
        switches=await _switches(connection, row, then.group, until),
        switches_now=await _switches(connection, row, row["group_name"], now),
    )
    return Explanation(
        row=row,
        subject=subject,
        terms=terms,
        view=manifest.view if isinstance(manifest, Manifest) else None,
        versions=[
            Version(one["since"], msgspec.convert(one["timing"], Timing)) for one in versions
        ],
        # The decision about the instant itself may have been made long before the last few.
        before=[_entry(one) for one in (*before, *(one for one in over if one not in before))],
        after=[_entry(one) for one in after],
        more_after=len(after) == _FEW,
        under_way=frozenset(one["id"] for one in outstanding),
        kept_days=kept_days,
        now=now,
    )


def _pause_message(row: Any) -> str:
    """Describe the pause of a manifest, as words after 'paused'; empty without one."""
    if row["paused_at"] is None or row["resumed_at"] is not None:
        return ""
    until = row["paused_until"]
    said = [f" since {row['paused_at']:%Y-%m-%d %H:%M:%S} UTC"]
    said += [f" until {until:%Y-%m-%d %H:%M:%S} UTC"] if until is not None else []
    said += [f" by {row['paused_by']}"] if row["paused_by"] else []
    said += [f" ({row['pause_reason']})"] if row["pause_reason"] else []
    return "".join(said)


def _covering(rows: Sequence[Any], at: datetime) -> Any:
    return next((one for one in rows if one["last_due_at"] >= at), None)


async def _redeclared(
    connection: Connection, row: Any, decided: Sequence[datetime]
) -> list[Redeclared]:
    """The declarations that came with or after the first of some decisions."""
    if not decided:
        return []
    rows = await connection.fetch(queries["redeclared"], row["external_id"], min(decided))
    return [redeclared(one) for one in rows]


async def _switches(
    connection: Connection, row: Any, group: str | None, until: datetime
) -> dict[str, Switch | None]:
    """Who had last disabled a manifest and the group that it was in by some time."""
    return {
        "manifest": await _switch(connection, row["external_id"], _MANIFEST_SWITCHES, until),
        "group": await _switch(connection, group, _GROUP_SWITCHES, until),
    }


async def _switch(
    connection: Connection, subject: str | None, kinds: list[str], until: datetime
) -> Switch | None:
    if subject is None:
        return None
    found = await connection.fetchrow(queries["switched_off"], subject, kinds, until)
    return None if found is None else Switch(found["source"], found["occurred_at"])


def _entry(row: Any) -> LedgerEntry:
    return LedgerEntry(
        cause=row["cause"],
        first_due_at=row["first_due_at"],
        last_due_at=row["last_due_at"],
        decision=row["decision"],
        reason=row["reason"],
        work=row["work_id"],
        outcome=row["outcome"],
        decided_at=row["decided_at"],
        actor=row["actor"],
    )
