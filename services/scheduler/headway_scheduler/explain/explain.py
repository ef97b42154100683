"""Explain why a manifest ran or did not, from the ledger, its timings and the audit."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import msgspec
from headway_contract.manifests import ExplainAnswer, LedgerEntry
from headway_decisions.declaring.lookup import by_whom
from headway_decisions.firing import due, identity, manifest_state
from headway_decisions.timing import timing
from headway_decisions.timing.cadence import Manual, Once, Spaced
from headway_decisions.timing.timing import Timing
from headway_decisions.wording import counted
from headway_postgres_kit import Connection
from msgspec import Struct

from headway_scheduler.declare import one_shots
from headway_scheduler.explain import messages
from headway_scheduler.explain.ledger_check import GRACE, Version, read_versions
from headway_scheduler.explain.messages import Subject
from headway_scheduler.fire.decide import Manifest, read_manifests
from headway_scheduler.fire.preview import fires_at_of, first_ahead, note_of
from headway_scheduler.lookup import queries
from headway_scheduler.store import works

# Decisions on each side of an instant that are read.
_FEW = 20
# Pending decisions and outstanding work that an explanation names.
_OWED_SHOWN = 3
_WORKS_SHOWN = 2
_INSTANT = timedelta(microseconds=1)

_MANIFEST_SWITCHES = [
    "headway.manifest.changed.v1",
    "headway.manifest.declared.v1",
    "headway.manifest.undeclared.v1",
]
_GROUP_SWITCHES = ["headway.group.changed.v1"]


async def explain(
    connection: Connection, row: Any, *, at: datetime | None, now: datetime, kept_days: float
) -> ExplainAnswer:
    """Explain an instant, or the current state."""
    explanation = await _gather(connection, row, at=at, now=now, kept_days=kept_days)
    text, entries = explanation.state() if at is None else explanation.instant(at)
    found = explanation.works(None if at is None else entries)
    return ExplainAnswer(
        manifest=row["external_id"], text=" ".join(text), entries=entries, works=found
    )


async def _gather(
    connection: Connection, row: Any, *, at: datetime | None, now: datetime, kept_days: float
) -> "_Explanation":
    instant = now if at is None else at
    before = await connection.fetch(queries["entries_before"], row["id"], instant, _FEW)
    # The decision about the instant itself may be older than the last few.
    covering = await connection.fetch(queries["entry_over"], row["id"], instant)
    before += [entry for entry in covering if entry not in before]
    after = await connection.fetch(queries["entries_after"], row["id"], instant, _FEW)
    owed = await connection.fetch(queries["entries_owed"], row["id"], _OWED_SHOWN)
    outstanding = await connection.fetch(works["outstanding_of"], [row["id"]])
    versions = await read_versions(connection, row["id"])
    [manifest] = await read_manifests(connection, [row["id"]], now=now)
    if at is None:
        explained = next(iter(before), None)
    else:
        explained = next((entry for entry in covering if entry["last_due_at"] >= at), None)
    group, until = row["group_name"], min(now, instant)
    if explained is not None:
        group, until = explained["policies"]["group"], explained["last_due_at"]
    kept = msgspec.convert(row["timing"], Timing)
    subject = Subject(
        row=row,
        policies=row["policies"],
        timing=kept,
        now=now,
        one_shot_remedy=one_shots.remedy(row) if one_shots.is_spent(row, now) else "",
        working_since=outstanding[0]["queued_at"] if outstanding else None,
        switches=await _switches(connection, row, kept, group, until),
        switches_now=await _switches(connection, row, kept, row["group_name"], now),
    )
    return _Explanation(
        row=row,
        subject=subject,
        view=manifest.view if isinstance(manifest, Manifest) else None,
        versions=versions,
        before=[_entry(entry) for entry in before],
        after=[_entry(entry) for entry in after],
        more_after=len(after) == _FEW,
        owed=[_entry(entry) for entry in owed],
        policies={entry["cause"]: entry["policies"] for entry in (*before, *after, *owed)},
        under_way=[work["id"] for work in outstanding],
        kept_days=kept_days,
        now=now,
    )


async def _switches(
    connection: Connection, row: Any, kept: Timing, group: str, until: datetime
) -> dict[str, str]:
    """Describe who last disabled a manifest and a group, up to some time."""
    names = {
        "manifest": (row["external_id"], _MANIFEST_SWITCHES),
        "group": (group, _GROUP_SWITCHES),
    }
    found = {}
    for name, (subject, kinds) in names.items():
        record = await connection.fetchrow(queries["switched_off"], subject, kinds, until)
        found[name] = ""
        if record is not None:
            when = timing.local(kept, record["occurred_at"])
            found[name] = f" ({by_whom(record['source'])} at {when})"
    return found


def _entry(row: Any) -> LedgerEntry:
    return LedgerEntry(**{field: row[field] for field in LedgerEntry.__struct_fields__})


_Answer = tuple[list[str], list[LedgerEntry]]


class _Explanation(Struct, frozen=True, kw_only=True):
    """Builds an explanation from gathered data.

    `before` has the latest entry first; with `more_after` there may be entries behind `after`.
    """

    row: Any
    subject: Subject
    view: manifest_state.ManifestView | None
    versions: Sequence[Version]
    before: Sequence[LedgerEntry]
    after: Sequence[LedgerEntry]
    more_after: bool
    owed: Sequence[LedgerEntry]
    policies: dict[str, dict[str, str]]
    under_way: Sequence[UUID]
    kept_days: float
    now: datetime

    def state(self) -> _Answer:
        """Explain the current state: definition, last decision, hold and next fire time."""
        row, subject = self.row, self.subject
        title = f"{row['external_id']} runs job {row['job']!r} in group {row['group_name']!r}"
        text = [f"{title}: {self._cadence()}."]
        entries = list(self.before[:1])
        text += [self._decided(entries[0])] if entries else self._nothing_decided()
        if row["trouble"]:
            text.append(f"The scheduler cannot judge it and tries again: {row['trouble']}.")
        why = self._hold()
        if why is not None:
            text.append(messages.hold(subject, why))
        text += [self._decided(entry) for entry in self.owed if entry not in entries]
        unnamed = row["owed"] - len(self.owed)
        if unnamed > 0:
            text.append(f"{counted(unnamed, 'more decision')} {'wait' + 's' * (unnamed == 1)}.")
        if self.view is not None and why is not None and due.owes_success(self.view):
            text.append(messages.owed_success(row["parent"], self.view.parent_success, why))
        text.append(self._next(why))
        return [sentence for sentence in text if sentence], entries

    def works(self, entries: Sequence[LedgerEntry] | None) -> list[UUID]:
        """Return the work of entries, or now of the manifest, whose state the dispatcher knows."""
        if entries is not None:
            return [entry.work for entry in entries if entry.work in self.under_way and entry.work]
        if self.row["blocked_by"] is None:
            return list(self.under_way[:_WORKS_SHOWN])
        dead = [entry.work for entry in self.before if entry.outcome == "dead_lettered"]
        return [work for work in dead[:1] if work is not None]

    def _nothing_decided(self) -> list[str]:
        row = self.row
        if row["declared_at"] >= self._oldest_kept():
            return ["Nothing was decided about it yet."]
        kept = f"they are kept for {self.kept_days:g} days"
        text = [f"No decision about it is on record any more: {kept}."]
        if row["last_outcome"] is not None and row["last_settled_at"] is not None:
            ended = messages.outcome(row["last_outcome"])
            text.append(f"Its last work {ended} at {self.subject.at(row['last_settled_at'])}.")
        return text

    def instant(self, at: datetime) -> _Answer:
        """Explain the decision about an instant or its nearest due time, and its backfills."""
        text, entries = self._on_schedule(at)
        known = [entry.cause for entry in entries]
        backfilled = [
            entry
            for entry in self.before
            if identity.kind_of(entry.cause) == "backfill"
            and identity.occurrence_of(entry.cause) == at
            and entry.cause not in known
        ]
        return [*text, *map(self._decided, backfilled)], [*entries, *backfilled]

    def _on_schedule(self, at: datetime) -> _Answer:
        version = self._in_force(at)
        covering = [
            entry
            for entry in (*self.before, *self.after)
            if entry.first_due_at <= at <= entry.last_due_at and _is_scheduled(entry)
        ]
        if version is None and not covering:
            return [self._before_declaration(at)], []
        kept = version.timing if version is not None else self.subject.timing
        has_times = not isinstance(kept.cadence, Spaced | Manual)
        named = timing.next_due(kept, at - _INSTANT) == at
        if covering:
            known = named or not has_times or self._came_too_late(covering[0])
            text = [] if known else [self._no_due_time(at, kept)]
            text.append(self._decided(covering[0]))
            return text + self._also_excluded(at, kept, covering[0]), covering
        if not has_times:
            return self._nearest_entries(at)
        if not named:
            return self._nearest_due(at, kept)
        return self._undecided(at, kept), []

    def _nearest_due(self, at: datetime, kept: Timing) -> _Answer:
        text = [self._no_due_time(at, kept)]
        near = self._neighbours(at, kept)
        later = timing.next_due(kept, at)
        near += [later] if later is not None and later not in near else []
        if not near:
            return text, []
        others, entries = self.instant(min(near, key=lambda due_at: abs(due_at - at)))
        return [*text, *others], entries

    def _nearest_entries(self, at: datetime) -> _Answer:
        """Explain the decisions around an instant, for a manifest without times of its own."""
        entries = [*self.before[:1], *self.after[:1]]
        note = note_of(self.row, self.subject.timing, None, has_times=False)
        text = [f"{self.subject.at(at)} is no due time of {self.row['external_id']}: {note}."]
        if not entries:
            return [*text, "Nothing was decided about it around then."], []
        return [*text, *map(self._decided, entries)], entries

    def _undecided(self, at: datetime, kept: Timing) -> list[str]:
        """Explain a due time without a decision: ahead, held, delayed by jitter, or a gap."""
        shown, row = self.subject.at(at), self.row
        next_due_at = row["next_due_at"]
        is_open = next_due_at is not None and at >= next_due_at
        fires_at = fires_at_of(row, kept, at)
        excluded = timing.excluded_by(kept, at)
        if excluded is not None and (at > self.now or is_open):
            return [f"{shown} is a due time, but will not fire: {messages.excluded(excluded)}"]
        why = self._hold()
        held = [] if why is None else [messages.hold(self.subject, why)]
        if at > self.now:
            fire = f"{'would' if held else 'will'} fire{self._with_jitter(at, fires_at)}"
            return [f"{shown} lies ahead and {fire}.", *held]
        if not is_open:
            return [self._gap(shown, at)]
        if held:
            later = "decided" if why == manifest_state.PAUSED else "recorded as skipped"
            later = f"it will be {later} when the pause ends"
            return [f"{shown} was a due time and has not fired; {later}.", *held]
        if fires_at > self.now:
            return [f"{shown} is due and fires{self._with_jitter(at, fires_at)}."]
        if row["trouble"]:
            return [f"{shown} is due, but the scheduler cannot judge it: {row['trouble']}."]
        if self.view is not None and self.now - fires_at <= GRACE:
            return [f"{shown} has just come due and is about to be decided."]
        remedy = "Is one running, and without HEADWAY_TICK=off?"
        return [f"{shown} is overdue and undecided: no scheduler ticks. {remedy}"]

    def _gap(self, shown: str, at: datetime) -> str:
        if at < self._oldest_kept():
            return (
                f"{shown} was a due time, but decisions are kept for {self.kept_days:g} days only."
            )
        return (
            f"{shown} was a due time, and no decision about it is in the ledger. That should not "
            "be: run 'headway verify' and report it."
        )

    def _before_declaration(self, at: datetime) -> str:
        shown = self.subject.at(at)
        if at < self._oldest_kept():
            return f"Nothing is known of {shown}: decisions are kept for {self.kept_days:g} days."
        first = self.versions[0].since if self.versions else self.row["declared_at"]
        return (
            f"At {shown} there was no manifest {self.row['external_id']!r} yet: it was declared at "
            f"{self.subject.at(first)}."
        )

    def _no_due_time(self, at: datetime, kept: Timing) -> str:
        near = " and ".join(map(self.subject.at, self._neighbours(at, kept)))
        return (
            f"{self.subject.at(at)} is no due time of {self.row['external_id']} "
            f"({timing.describe(kept)}).{f' The nearest are {near}.' if near else ''}"
        )

    def _neighbours(self, at: datetime, kept: Timing) -> list[datetime]:
        """Return the due times before and after an instant at which the timing was in force."""
        near = (timing.latest_due(kept, at - timedelta(days=366), at), timing.next_due(kept, at))
        return [
            due_at
            for due_at in near
            if due_at is not None
            and (version := self._in_force(due_at)) is not None
            and version.timing == kept
        ]

    def _in_force(self, at: datetime) -> Version | None:
        """Return the timing in force at an instant, or `None` before the first declaration."""
        found = None
        for version in self.versions:
            slack = timedelta()
            if isinstance(version.timing.cadence, Once):
                slack = timedelta(seconds=self.row["misfire"].get("threshold_seconds", 60.0))
            if version.since - slack < at:
                found = version
        return found

    def _hold(self) -> str | None:
        return manifest_state.hold_of(self.row) if self.view is None else due.pause(self.view)

    def _oldest_kept(self) -> datetime:
        return self.now - timedelta(days=self.kept_days)

    def _also_excluded(self, at: datetime, kept: Timing, entry: LedgerEntry) -> list[str]:
        """Mention an exclusion that covers a time which was skipped for another reason."""
        exclusion = timing.excluded_by(kept, at)
        is_reason = (entry.reason or "").startswith(manifest_state.EXCLUDED)
        if exclusion is None or entry.decision != "skipped" or is_reason:
            return []
        shown = self.subject.at(at)
        return [f"{shown} would not have fired anyway: its timing leaves it out ({exclusion})."]

    def _came_too_late(self, entry: LedgerEntry) -> bool:
        """Return whether a one-shot was declared long after its time."""
        return entry.reason == manifest_state.MISSED and any(
            version.since == entry.decided_at
            and isinstance(version.timing.cadence, Once)
            and timing.next_due(version.timing, entry.first_due_at - _INSTANT) == entry.first_due_at
            for version in self.versions
        )

    def _decided(self, entry: LedgerEntry) -> str:
        if self._came_too_late(entry):
            return messages.declared_too_late(self.subject, entry)
        # Whether a later time fired by the same decision, as far as the read entries show.
        made_up = self.more_after or any(
            other.decided_at == entry.decided_at and other.decision != "skipped"
            for other in (*self.before, *self.after)
            if other.first_due_at > entry.last_due_at and _is_scheduled(other)
        )
        then, under_way = self.policies[entry.cause], entry.work in self.under_way
        return messages.decided(self.subject, entry, then, made_up=made_up, under_way=under_way)

    def _cadence(self) -> str:
        if self.row["parent"] is None:
            return timing.describe(self.subject.timing)
        if self.row["dormant"]:
            return f"when a run of {self.row['parent']!r} asks for it"
        return f"after each success of {self.row['parent']!r}"

    def _next(self, why: str | None) -> str:
        if why == "blocked_by_dead_letter":
            return ""
        kept = self.subject.timing
        if self.row["wake_at"] is not None and isinstance(kept.cadence, Spaced):
            return f"It fires next at {self.subject.at(self.row['wake_at'])}."
        first = first_ahead(self.row, kept, self.now)
        if first is None:
            note = note_of(self.row, kept, None, has_times=False)
            return f"{note[:1].upper()}{note[1:]}." if note and why != "manifest_disabled" else ""
        allowed = timing.next_allowed(kept, first - _INSTANT)
        if allowed is None:
            return "Its exclusions cover all of its times to come."
        fires_at = fires_at_of(self.row, kept, allowed)
        would = "would fire" if why is not None else "fires"
        skipped = ""
        if allowed != first:
            by = timing.excluded_by(kept, first)
            skipped = f" ({self.subject.at(first)} is left out: {by})"
        late = self._with_jitter(allowed, fires_at)
        return f"It {would} next at {self.subject.at(allowed)}{late}{skipped}."

    def _with_jitter(self, at: datetime, fires_at: datetime) -> str:
        if fires_at == at:
            return ""
        later = (fires_at - at).total_seconds()
        return f" (its jitter lets it go at {self.subject.at(fires_at)}, {later:.0f} s later)"


def _is_scheduled(entry: LedgerEntry) -> bool:
    return entry.cause.startswith(("due:", "stretch:"))
