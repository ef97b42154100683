"""What the ledger says, in sentences for somebody who is woken at night. Pure.

Every reason comes with what can be done about it.
"""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from headway_contract.scheduling import LedgerEntry
from headway_decisions import wording
from headway_decisions.declaring.lookup import by_whom
from headway_decisions.firing import identity, manifest_state
from headway_decisions.timing import timing
from headway_decisions.timing.cadence import Manual, Spaced
from headway_decisions.timing.timing import Timing
from msgspec import Struct

from headway_scheduler.explain.past_terms import Terms

# Under this nobody calls a decision late.
_PUNCTUAL_SECONDS = 2.0

_OUTCOMES = {
    "completed": "completed",
    "cancelled": "was cancelled",
    "dead_lettered": "failed for good and became a dead letter",
    "coalesced": "was folded into other work of it that was waiting already",
    "expired": "was not started in time and expired",
    "unknown": "was lost from all records before its outcome was heard: nobody knows how it ended",
}
_ASKED_BY = {
    "trigger": "a trigger",
    "activation": "an activation by its parent's run",
    "success": "its parent's success number",
    "successes": "its parent's successes number",
    "replay": "a retried dead letter",
}

_SHORTER = "Make the job shorter than its cadence."
_LET_WAIT = "Use overlap='queue_one' to let one wait, or make the job shorter than its cadence."


class Switch(Struct, frozen=True):
    """Who disabled something, and when."""

    source: str
    at: datetime


class Subject(Struct, frozen=True, kw_only=True):
    """The manifest that is spoken of, and since when work of it is under way."""

    external_id: str
    timing: Timing
    # The terms that are in force, and those that were when that was decided which is told.
    terms: Terms
    then: Terms = Terms()
    # Whether something fired that was decided with it.
    made_good: bool = True
    group_enabled: bool = True
    disabled_by: str | None = None
    blocked_by: Any = None
    working_since: datetime | None = None
    # Who had disabled it, or its group, when that was decided which is told, and who has now.
    switches: Mapping[str, Switch | None] = {}
    switches_now: Mapping[str, Switch | None] = {}
    # How it is paused, in words that follow the word.
    pause: str = ""
    # Whether each success of its parent is followed.
    follows: bool = False
    # What to do instead of enabling it, where that would let nothing fire.
    instead: str = ""

    def at(self, instant: datetime) -> str:
        """An instant on the manifest's clock."""
        return timing.local(self.timing, instant)


def decided(subject: Subject, entry: LedgerEntry, *, under_way: bool) -> str:
    """One decision: what was asked, what was decided and why, and how it ended."""
    if entry.decision == "queued":
        return f"{_what(subject, entry)} fired: {_work(subject, entry, under_way)}."
    if entry.decision == "owed":
        return f"{_what(subject, entry)} waits for room: {_owed(entry.reason)}."
    return f"{_what(subject, entry)} {_skipped(entry)}: {reason(subject, entry.reason or '')}"


def declared_too_late(subject: Subject, entry: LedgerEntry) -> str:
    """A one-shot whose time had long passed when it was declared."""
    return (
        f"{_what(subject, entry)} did not fire: it was past by more than the misfire threshold "
        "when it was declared. Declare it for another time, or trigger it."
    )


def outcome(code: str) -> str:
    """How work ended, in words that follow it."""
    return _OUTCOMES.get(code, f"ended as {code!r}")


def left_out(subject: Subject, at: datetime, exclusion: str) -> str:
    """A time that was skipped with others, and would not have fired by itself."""
    return f"{subject.at(at)} would not have fired anyway: its timing leaves it out ({exclusion})."


def reason(subject: Subject, code: str) -> str:
    """Why a time was skipped, as a sentence with the remedy."""
    kind, _, detail = code.partition(": ")
    return _timing_reason(subject, kind, detail) or _state_reason(subject, kind, detail)


def _timing_reason(subject: Subject, kind: str, detail: str) -> str | None:
    """Reasons that lie in when it fires, and in how long it takes."""
    then, now = subject.then, subject.terms
    match kind:
        case manifest_state.MISSED:
            return _missed(then, now, made_good=subject.made_good)
        case manifest_state.EXCLUDED:
            return f"its timing leaves that out ({detail}). Change the exclusion if it should run."
        case manifest_state.RETIMED:
            return (
                "its jitter still held it back when its timing was changed. "
                "The new timing holds from then on."
            )
        case manifest_state.STILL_OUTSTANDING:
            return _no_room(then, now)
        case manifest_state.ONE_ALREADY_WAITS:
            return _one_waits(then, now)
    return None


def _state_reason(subject: Subject, kind: str, detail: str) -> str:
    """Reasons that lie in the state of the manifest, of its group or of its input."""
    match kind:
        case "job_retired":
            return (
                "its job was retired: no application declared it any more. Declare the job "
                "again, or delete the manifest."
            )
        case "manifest_disabled":
            return _disabled(subject)
        case "group_disabled":
            return _group_disabled(subject)
        case manifest_state.PAUSED:
            return _paused_then(subject.then, subject.terms, detail, made_good=subject.made_good)
        case "blocked_by_dead_letter":
            remedy = "Retry or acknowledge that dead letter."
            remedy = "That was resolved since." if subject.blocked_by is None else remedy
            return (
                "a dead letter blocked it: earlier work of it had failed for good and waited for "
                f"a person. {remedy}"
            )
        case manifest_state.COLLAPSED:
            return (
                "a later success of its parent came before it could run, and one run stands "
                "for all of them."
            )
        case "cancelled":
            return "somebody cancelled all work of it. Trigger it if it should run after all."
        case "invalid_input":
            remedy = "Correct the input, or the schema of the job."
            return f"its input does not fit the job ({detail}). {remedy}"
        case "invalid_key":
            remedy = "Correct the input, or the key of the job."
            return f"its input makes no concurrency key ({detail}). {remedy}"
    return f"the reason on record is {': '.join(filter(None, (kind, detail)))!r}."


def paused(subject: Subject, why: str) -> str:
    """What holds a manifest now, as a sentence with the remedy."""
    match why:
        case "job_retired":
            return (
                "It is held: its job is retired, because no application declares it any more. "
                "Declare the job again, or delete the manifest."
            )
        case "group_disabled":
            by = _by(subject, "group", now=True)
            return (
                f"It is held: its group {subject.terms.group!r} is disabled{by}. "
                f"Enable it with 'headway group {subject.terms.group} --enable'."
            )
        case "manifest_disabled":
            return _disabled_now(subject)
        case manifest_state.PAUSED:
            return (
                f"It is paused{subject.pause}: nothing of it begins, and what comes due is decided "
                f"when that ends, by its misfire policy {subject.terms.misfire!r}. Resume it with "
                f"'headway resume {subject.external_id}'."
            )
        case "blocked_by_dead_letter":
            return (
                f"It is held: the dead letter {subject.blocked_by} blocks it. Retry or "
                "acknowledge that dead letter, and it goes on."
            )
        case manifest_state.STILL_OUTSTANDING | manifest_state.ONE_ALREADY_WAITS:
            since = ""
            if subject.working_since is not None:
                since = f" since {subject.at(subject.working_since)}"
            waits = (
                ", and one more waits already" if why == manifest_state.ONE_ALREADY_WAITS else ""
            )
            return f"Work of it is under way{since}{waits}{_meanwhile(subject)}."
    return f"It is held: {why}."


def owed_success(parent: str, number: int | None, why: str) -> str:
    """A run that a success of its parent asks for, and that a hold keeps waiting."""
    until = {
        "group_disabled": "its group is enabled",
        manifest_state.PAUSED: "it is resumed",
        "blocked_by_dead_letter": "that dead letter is resolved",
    }.get(why, "that work has ended")
    return f"Success number {number} of {parent!r} is owed: one run follows when {until}."


def _meanwhile(subject: Subject) -> str:
    """What becomes of a manifest while its work leaves no room."""
    if subject.follows:
        return "; a success of its parent meanwhile is followed when that has ended"
    if isinstance(subject.timing.cadence, Manual | Spaced):
        return ""
    policy = subject.terms.overlap
    return f"; its times are skipped until that has ended (overlap policy {policy!r})"


def _what(subject: Subject, entry: LedgerEntry) -> str:
    kind, name = identity.kind_of(entry.cause), entry.cause.partition(":")[2]
    if kind == "due":
        return subject.at(entry.first_due_at)
    if kind == "stretch":
        return (
            f"Everything from {subject.at(entry.first_due_at)} to {subject.at(entry.last_due_at)}"
        )
    by = f" by {entry.actor}" if entry.actor else ""
    if kind == "backfill":
        occurrence = identity.occurrence_of(entry.cause) or entry.first_due_at
        return f"{subject.at(occurrence)} (backfilled{by})"
    asked = _ASKED_BY.get(kind, entry.cause)
    counted = name.rpartition(":")[2].replace("/", " to ")
    number = f" {counted}" if kind in ("success", "successes") else ""
    return f"At {subject.at(entry.first_due_at)} {asked}{number}{by}"


def _work(subject: Subject, entry: LedgerEntry, under_way: bool) -> str:
    late = ""
    if entry.decided_at is not None:
        seconds = (entry.decided_at - entry.first_due_at).total_seconds()
        queued = subject.at(entry.decided_at)
        late = (
            f" at {queued}"
            if seconds < _PUNCTUAL_SECONDS
            else f" at {queued}, {_span(seconds)} later,"
        )
    work = f"work {entry.work} was queued{late}"
    if under_way:
        return f"{work} and is still under way"
    if entry.outcome is None:
        return f"{work}, and nothing is known yet of how it ended"
    return f"{work} and {outcome(entry.outcome)}"


def _span(seconds: float) -> str:
    return wording.duration(round(seconds))


def _skipped(entry: LedgerEntry) -> str:
    return "did not fire" if entry.first_due_at == entry.last_due_at else "was skipped"


def _owed(code: str | None) -> str:
    match code:
        case "group_disabled":
            return "it runs as soon as its group is enabled"
        case "coalesced":
            return "its work was folded into other work, so it runs again when that has ended"
        case manifest_state.STILL_OUTSTANDING:
            return "it runs as soon as the work that was under way then has ended"
    return "it runs as soon as the work under way has ended"


def _group_disabled(subject: Subject) -> str:
    then, now = subject.then.group, subject.terms.group
    if then is None:
        return "the group that it was in at that time was disabled."
    remedy = f"Enable it with 'headway group {then} --enable'."
    if then != now:
        remedy = f"It is in group {now!r} now."
    elif subject.group_enabled:
        remedy = "It is enabled again."
    return f"its group {then!r} was disabled{_by(subject, 'group')}. {remedy}"


def _disabled(subject: Subject) -> str:
    remedy = "It is enabled again." if subject.disabled_by is None else _enable(subject)
    return f"it was disabled{_by(subject, 'manifest')}. {remedy}"


def _disabled_now(subject: Subject) -> str:
    by = _by(subject, "manifest", now=True)
    match subject.disabled_by:
        case "once":
            return "It is a one-shot that has had its shot, and has disabled itself."
        case "pruned":
            return f"It is held: its application no longer declares it{by}. Declare it again."
        case "code":
            remedy = f"Change the code, or run 'headway enable {subject.external_id}'."
            remedy = _enable(subject) if subject.instead else remedy
            return f"It is held: its code declares it disabled{by}. {remedy}"
    return f"It is held: it is disabled{by}. {_enable(subject)}"


def _enable(subject: Subject) -> str:
    """The remedy against being disabled."""
    if subject.instead:
        return f"Its one time has passed: {subject.instead}."
    return f"Enable it with 'headway enable {subject.external_id}'."


def _by(subject: Subject, what: str, *, now: bool = False) -> str:
    switch = (subject.switches_now if now else subject.switches).get(what)
    if switch is None:
        return ""
    return f" ({by_whom(switch.source)} at {subject.at(switch.at)})"


def _missed(then: Terms, now: Terms, *, made_good: bool) -> str:
    """Due times that nobody was there to decide; `made_good` if a later one fired for them."""
    nobody = f"no scheduler decided it in time, and {_made_good(then.misfire, made_good)}."
    was_it_down = "" if then.misfire == "catch_up" else "Was the scheduler down then?"
    return _joined(nobody, was_it_down, _by_now("misfire", then.misfire, now.misfire))


def _paused_then(then: Terms, now: Terms, what_for: str, *, made_good: bool) -> str:
    """Due times that came in a pause; `made_good` if a later one fired for them."""
    why = f" ({what_for})" if what_for else ""
    said = f"it was paused then{why}, and {_made_good(then.misfire, made_good)}."
    return _joined(said, _by_now("misfire", then.misfire, now.misfire))


def _no_room(then: Terms, now: Terms) -> str:
    """Due times that came while work was under way."""
    policy = f"its overlap policy was {then.overlap!r}"
    if then.overlap is None:
        policy = "its overlap policy at that time left no room"
    remedy = _LET_WAIT if then.overlap == now.overlap else _SHORTER
    by_now = _by_now("overlap", then.overlap, now.overlap)
    return _joined(f"earlier work of it was still under way, and {policy}.", by_now or remedy)


def _one_waits(then: Terms, now: Terms) -> str:
    """Due times that came while one more was waiting for work under way."""
    policy = "" if then.overlap is None else f" (overlap policy {then.overlap!r})"
    by_now = _by_now("overlap", then.overlap, now.overlap)
    waited = f"work of it was under way and one more was waiting already{policy}."
    return _joined(waited, by_now or _SHORTER)


def _made_good(misfire: str | None, made_good: bool) -> str:
    if misfire in ("fire_once", "catch_up") and not made_good:
        # Its timing was changed before that, or what was to fire could not.
        return f"nothing made up for it (misfire policy {misfire!r})"
    match misfire:
        case None:
            return "its misfire policy at that time did not make up for it"
        case "skip":
            return "its misfire policy was 'skip'"
        case "catch_up":
            return "its misfire policy, 'catch_up', made up for the latest ones only"
    return "one later fire made up for all that was missed (misfire policy 'fire_once')"


def _by_now(kind: str, then: str | None, now: str | None) -> str:
    return "" if then in (None, now) else f"Its {kind} policy is {now!r} now."


def _joined(*said: str) -> str:
    return " ".join(filter(None, said))
