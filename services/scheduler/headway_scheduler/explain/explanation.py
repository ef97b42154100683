"""An explanation, put together from what the ledger, the timings and the audit say. Pure."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from headway_contract.scheduling import LedgerEntry
from headway_decisions.firing import due, identity, jitter, manifest_state
from headway_decisions.timing import timing
from headway_decisions.timing.cadence import Manual, Once, Spaced
from headway_decisions.timing.timing import Timing
from msgspec import Struct, structs

from headway_scheduler.explain import messages
from headway_scheduler.explain.ledger_check import GRACE, Version
from headway_scheduler.explain.messages import Subject
from headway_scheduler.explain.past_terms import TermsOverTime
from headway_scheduler.fire.manifest import hold_of
from headway_scheduler.fire.preview import first_ahead, note_of

_INSTANT = timedelta(microseconds=1)


class Explanation(Struct, frozen=True, kw_only=True):
    """All that an explanation may have to name. `before` has the latest entry first; `more_after`
    says that there may be others after those in `after`.
    """

    row: Any
    subject: Subject
    terms: TermsOverTime
    view: manifest_state.ManifestView | None
    versions: Sequence[Version]
    before: Sequence[LedgerEntry]
    after: Sequence[LedgerEntry]
    more_after: bool
    under_way: frozenset[UUID]
    kept_days: float
    now: datetime

    def standing(self) -> tuple[list[str], list[LedgerEntry]]:
        """How the manifest stands: what it is, its last decision, what holds it, what is next."""
        row, subject = self.row, self.subject
        what = f"{row['external_id']} runs job {row['job']!r} in group {row['group_name']!r}"
        text = [f"{what}: {self._cadence()}."]
        entries = list(self.before[:1])
        text += [self._decided(entries[0])] if entries else self._nothing_decided()
        if row["trouble"]:
            text.append(f"The scheduler cannot judge it and tries again: {row['trouble']}.")
        why = self._pause()
        if why is not None:
            text.append(messages.paused(subject, why))
        if row["owed"]:
            text.append(f"{row['owed']} decision(s) wait for room.")
        if self.view is not None and why is not None and due.owes_success(self.view):
            text.append(messages.owed_success(row["parent"], self.view.parent_success, why))
        text.append(self._next(why))
        return [one for one in text if one], entries

    def _nothing_decided(self) -> list[str]:
        """That there is no decision: because there was none, or because it was forgotten."""
        row = self.row
        if row["declared_at"] >= self.now - timedelta(days=self.kept_days):
            return ["Nothing was decided about it yet."]
        kept = f"they are kept for {self.kept_days:g} days"
        text = [f"No decision about it is on record any more: {kept}."]
        if row["last_outcome"] is not None and row["last_settled_at"] is not None:
            ended = messages.outcome(row["last_outcome"])
            text.append(f"Its last work {ended} at {self.subject.at(row['last_settled_at'])}.")
        return text

    def instant(self, at: datetime) -> tuple[list[str], list[LedgerEntry]]:
        """What was decided about an instant, or the nearest due time, and whether by backfill."""
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

    def _on_schedule(self, at: datetime) -> tuple[list[str], list[LedgerEntry]]:
        version = self._in_force(at)
        covering = [
            one
            for one in (*self.before, *self.after)
            if one.first_due_at <= at <= one.last_due_at and _is_scheduled(one)
        ]
        if version is None and not covering:
            return [self._before_its_time(at)], []
        kept = version.timing if version is not None else self.subject.timing
        named = timing.next_due(kept, at - _INSTANT) == at
        if covering:
            known = named or not _ticks(kept) or self._came_too_late(covering[0])
            text = [] if known else [self._no_due_time(at, kept)]
            told = self._decided(covering[0])
            return [*text, told, *self._left_out(at, kept, covering[0])], covering
        if not _ticks(kept):
            return self._nearest_entries(at)
        if not named:
            return self._nearest_due(at, kept)
        return [*self._undecided(at, kept)], []

    def _nearest_due(self, at: datetime, kept: Timing) -> tuple[list[str], list[LedgerEntry]]:
        text = [self._no_due_time(at, kept)]
        earlier = timing.latest_due(kept, at - timedelta(days=366), at)
        later = timing.next_due(kept, at)
        if earlier is not None and not self._was_kept(kept, earlier):
            earlier = None
        near = [one for one in (earlier, later) if one is not None]
        if not near:
            return text, []
        nearest = min(near, key=lambda one: abs(one - at))
        others, entries = self.instant(nearest)
        return [*text, *others], entries

    def _nearest_entries(self, at: datetime) -> tuple[list[str], list[LedgerEntry]]:
        """A manifest without a clock: what was decided around then."""
        entries = [*self.before[:1], *self.after[:1]]
        note = note_of(self.row, self.subject.timing, None, has_times=False)
        text = [f"{self.subject.at(at)} is no due time of {self.row['external_id']}: {note}."]
        if not entries:
            return [*text, "Nothing was decided about it around then."], []
        return [*text, *(self._decided(one) for one in entries)], entries

    def _undecided(self, at: datetime, kept: Timing) -> list[str]:
        """A due time without a decision: it is ahead, held back, in a pause, or a gap."""
        shown, row, view = self.subject.at(at), self.row, self.view
        fires_at = jitter.fire_at(kept, row["external_id"], at, row["jitter_seconds"])
        excluded = timing.excluded_by(kept, at)
        if excluded is not None and (at > self.now or self._is_open(at)):
            why_not = messages.reason(self.subject, f"{manifest_state.EXCLUDED}: {excluded}")
            return [f"{shown} is a due time, but will not fire: {why_not}"]
        why = self._pause()
        held = [] if why is None else [messages.paused(self.subject, why)]
        if at > self.now:
            fire = f"{'would' if held else 'will'} fire{self._with_jitter(at, fires_at)}"
            return [f"{shown} lies ahead and {fire}.", *held]
        if not self._is_open(at):
            return [self._gap(shown, at)]
        if held:
            later = "be decided" if why == manifest_state.PAUSED else "be recorded as skipped"
            later = f"it will {later} when the pause ends"
            return [f"{shown} was a due time and has not fired; {later}.", *held]
        if fires_at > self.now:
            return [f"{shown} is due and fires{self._with_jitter(at, fires_at)}."]
        if row["trouble"]:
            return [f"{shown} is due, but the scheduler cannot judge it: {row['trouble']}."]
        if view is not None and self.now - fires_at <= GRACE:
            return [f"{shown} has just come due and is about to be decided."]
        remedy = "Is one running, and without HEADWAY_TICK=off?"
        return [f"{shown} is overdue and nobody has decided it: no scheduler ticks. {remedy}"]

    def _gap(self, shown: str, at: datetime) -> str:
        if at < self.now - timedelta(days=self.kept_days):
            return (
                f"{shown} was a due time, but decisions are kept for {self.kept_days:g} days only."
            )
        return (
            f"{shown} was a due time, and no decision about it is in the ledger. That should not "
            "be: run 'headway verify' and report it."
        )

    def _is_open(self, at: datetime) -> bool:
        """Whether a time belongs to those that are not decided yet."""
        next_due_at = self.row["next_due_at"]
        return next_due_at is not None and at >= next_due_at

    def _before_its_time(self, at: datetime) -> str:
        shown = self.subject.at(at)
        if at < self.now - timedelta(days=self.kept_days):
            return f"Nothing is known of {shown}: decisions are kept for {self.kept_days:g} days."
        first = self.versions[0].since if self.versions else self.row["declared_at"]
        return (
            f"At {shown} there was no manifest {self.row['external_id']!r} yet: it was declared at "
            f"{self.subject.at(first)}."
        )

    def _no_due_time(self, at: datetime, kept: Timing) -> str:
        earlier = timing.latest_due(kept, at - timedelta(days=366), at)
        later = timing.next_due(kept, at)
        near = [
            self.subject.at(one)
            for one in (earlier, later)
            if one is not None and self._was_kept(kept, one)
        ]
        nearest = f" The nearest are {' and '.join(near)}." if near else ""
        return (
            f"{self.subject.at(at)} is no due time of {self.row['external_id']} "
            f"({timing.describe(kept)}).{nearest}"
        )

    def _in_force(self, at: datetime) -> Version | None:
        """The timing that was in force at an instant, if there was any yet."""
        found = None
        for version in self.versions:
            slack = timedelta()
            if isinstance(version.timing.cadence, Once):
                slack = timedelta(seconds=self.row["misfire"].get("threshold_seconds", 60.0))
            if version.since - slack < at:
                found = version
        return found

    def _was_kept(self, kept: Timing, at: datetime) -> bool:
        version = self._in_force(at)
        return version is not None and version.timing == kept

    def _pause(self) -> str | None:
        return hold_of(self.row) if self.view is None else due.pause(self.view)

    def _left_out(self, at: datetime, kept: Timing, entry: LedgerEntry) -> list[str]:
        """That an exclusion covers a time which was skipped with others for another reason."""
        by = timing.excluded_by(kept, at)
        reason = entry.reason or ""
        if by is None or entry.decision != "skipped" or reason.startswith(manifest_state.EXCLUDED):
            return []
        return [messages.left_out(self.subject, at, by)]

    def _came_too_late(self, entry: LedgerEntry) -> bool:
        """Whether the declaration of a one-shot itself gave its time up."""
        return entry.reason == manifest_state.MISSED and any(
            version.since == entry.decided_at
            and isinstance(version.timing.cadence, Once)
            and timing.next_due(version.timing, entry.first_due_at - _INSTANT) == entry.first_due_at
            for version in self.versions
        )

    def _decided(self, entry: LedgerEntry) -> str:
        if self._came_too_late(entry):
            return messages.declared_too_late(self.subject, entry)
        subject = structs.replace(
            self.subject,
            then=self.terms.at(entry.decided_at),
            made_good=self._was_made_good(entry),
        )
        return messages.decided(subject, entry, under_way=entry.work in self.under_way)

    def _was_made_good(self, entry: LedgerEntry) -> bool:
        """Whether a later time fired by the same decision, as far as can be seen from here."""
        return self.more_after or any(
            one.decided_at == entry.decided_at and one.decision != "skipped"
            for one in (*self.before, *self.after)
            if one.first_due_at > entry.last_due_at and _is_scheduled(one)
        )

    def _cadence(self) -> str:
        if self.row["parent"] is None:
            return timing.describe(self.subject.timing)
        if self.row["dormant"]:
            return f"when a run of {self.row['parent']!r} asks for it"
        return f"after each success of {self.row['parent']!r}"

    def _next(self, why: str | None) -> str:
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
        fires_at = jitter.fire_at(
            kept, self.row["external_id"], allowed, self.row["jitter_seconds"]
        )
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


def _ticks(kept: Timing) -> bool:
    """Whether a timing has due times of its own."""
    return not isinstance(kept.cadence, Spaced | Manual)
