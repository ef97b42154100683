"""The sentences of an explanation: decisions, reasons and holds, each with its remedy. Pure."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from headway_contract.manifests import LedgerEntry
from headway_decisions import wording
from headway_decisions.firing import identity, manifest_state
from headway_decisions.firing.pauses import open_windows, pause_text
from headway_decisions.timing import timing
from headway_decisions.timing.cadence import Manual, Spaced
from headway_decisions.timing.timing import Timing
from headway_decisions.wording import utc
from msgspec import Struct

from headway_scheduler.fire.pauses import windows_of

# Up to this delay a fire is not called late.
_PUNCTUAL_SECONDS = 2.0

_OUTCOMES = {
    "completed": "completed",
    "cancelled": "was cancelled",
    "dead_lettered": "failed for good and became a dead letter",
    "coalesced": "was folded into other work of it that was waiting already",
    "expired": "was not started in time and expired",
    "unknown": "was lost from all records before its outcome arrived: its outcome is unknown",
}
_CAUSES = {
    "trigger": "a trigger",
    "activation": "an activation by its parent's run",
    "success": "its parent's success number",
    "successes": "its parent's successes number",
    "replay": "a retried dead letter",
}
_OWED = {
    "group_disabled": "it runs as soon as its group is enabled",
    "coalesced": "its work was folded into other work, so it runs again when that has ended",
    manifest_state.STILL_OUTSTANDING: "it runs as soon as the work that was under way then has "
    "ended",
}
_REASONS = {
    manifest_state.EXCLUDED: "its timing leaves that out ({detail}). Change the exclusion if it "
    "should run.",
    manifest_state.RETIMED: "its jitter still held it back when its timing was changed. The new "
    "timing holds from then on.",
    manifest_state.COLLAPSED: "a later success of its parent came before it could run, and one "
    "run stands for all of them.",
    "job_retired": "its job was retired: no application declared it any more. Declare the job "
    "again, or delete the manifest.",
    "cancelled": "all work of it was cancelled. Trigger it if it should run after all.",
    "invalid_input": "its input does not fit the job ({detail}). Correct the input, or the schema "
    "of the job.",
    "invalid_key": "its input makes no concurrency key ({detail}). Correct the input, or the key "
    "of the job.",
}

_OUTSTANDING = manifest_state.STILL_OUTSTANDING
_TRIGGER_AGAIN = "Trigger it again, or use overlap='queue_one' to let one wait."
_UNTIL_RESUMED = (
    "No work of it starts, and times that come due are decided when it resumes, by its misfire "
    "policy {misfire!r}."
)
_RESOLVE = "Retry or acknowledge that dead letter."
_SHORTER = "Make the job shorter than its cadence."
_LET_WAIT = "Use overlap='queue_one' to let one wait, or make the job shorter than its cadence."


class Subject(Struct, frozen=True, kw_only=True):
    """The manifest that is explained: its row, and who disabled it."""

    row: Any
    # The current policies and the group: `misfire`, `overlap`, `group`.
    policies: dict[str, str]
    timing: Timing
    now: datetime
    working_since: datetime | None = None
    # Author and time of disabling the manifest and its group: at the decision, and now.
    switches: Mapping[str, str] = {}
    switches_now: Mapping[str, str] = {}
    # The remedy for a one-shot that is over: enabling it would have no effect.
    one_shot_remedy: str = ""

    def at(self, instant: datetime) -> str:
        """Format an instant in the manifest's zone."""
        return timing.local(self.timing, instant)


def decided(
    subject: Subject, entry: LedgerEntry, then: dict[str, str], *, made_up: bool, under_way: bool
) -> str:
    """Describe a decision: its cause, the verdict with the reason, and the outcome.

    `then` are the policies at its time; with `made_up` a later fire made up for it.
    """
    cause = _cause(subject, entry)
    if entry.decision == "queued":
        return f"{cause} fired: {_work(subject, entry, under_way)}."
    if entry.not_before is not None and entry.decision == "owed" and entry.not_before > subject.now:
        return (
            f"{cause} was delayed until {subject.at(entry.not_before)}: it runs then, or as soon "
            "as work that is under way by then has ended."
        )
    if entry.decision == "owed":
        when = _OWED.get(entry.reason or "", "it runs as soon as the work under way has ended")
        return f"{cause} waits for room: {when}."
    verb = "did not fire" if entry.first_due_at == entry.last_due_at else "was skipped"
    if identity.kind_of(entry.cause) == "trigger" and entry.reason == _OUTSTANDING:
        policy = f"its overlap policy was {then['overlap']!r}"
        if entry.brought_forward is not None:
            return (
                f"{cause} made no work, and brought work {entry.brought_forward} forward: {policy}."
            )
        remedy = _changed(subject, "overlap", then["overlap"]) or _TRIGGER_AGAIN
        return (
            f"{cause} was refused: earlier work of it was still under way, and {policy}. {remedy}"
        )
    return f"{cause} {verb}: {_reason(subject, entry.reason or '', then, made_up)}"


def declared_too_late(subject: Subject, entry: LedgerEntry) -> str:
    """Describe a one-shot whose time had long passed when it was declared."""
    return (
        f"{_cause(subject, entry)} did not fire: it was past by more than the misfire threshold "
        "when it was declared. Declare it for another time, or trigger it."
    )


def outcome(code: str) -> str:
    """Describe how work ended, as words that follow it."""
    return _OUTCOMES.get(code, f"ended as {code!r}")


def excluded(exclusion: str) -> str:
    """Explain why a time that an exclusion covers does not fire."""
    return _REASONS[manifest_state.EXCLUDED].format(detail=exclusion)


def _reason(subject: Subject, code: str, then: dict[str, str], made_up: bool) -> str:
    """Explain why a time was skipped, with the remedy."""
    kind, _, detail = code.partition(": ")
    if kind in _REASONS:
        return _REASONS[kind].format(detail=detail)
    match kind:
        case manifest_state.MISSED:
            remedy = "" if then["misfire"] == "catch_up" else " Was the scheduler down then?"
            missed = f"no scheduler decided it in time, and {_made_up(then['misfire'], made_up)}."
            return f"{missed}{remedy} {_changed(subject, 'misfire', then['misfire'])}".rstrip()
        case manifest_state.PAUSED:
            why = f" ({detail})" if detail else ""
            paused = f"it was paused then{why}, and {_made_up(then['misfire'], made_up)}."
            return f"{paused} {_changed(subject, 'misfire', then['misfire'])}".rstrip()
        case manifest_state.STILL_OUTSTANDING:
            remedy = _changed(subject, "overlap", then["overlap"]) or _LET_WAIT
            policy = f"its overlap policy was {then['overlap']!r}"
            return f"earlier work of it was still under way, and {policy}. {remedy}"
        case manifest_state.ONE_ALREADY_WAITS:
            remedy = _changed(subject, "overlap", then["overlap"]) or _SHORTER
            waits = f"one more was waiting already (overlap policy {then['overlap']!r})"
            return f"work of it was under way and {waits}. {remedy}"
        case "group_disabled":
            return _group_disabled(subject, then["group"])
        case "manifest_disabled":
            by = subject.switches["manifest"]
            enabled = subject.row["disabled_by"] is None
            return f"it was disabled{by}. {'It is enabled again.' if enabled else _enable(subject)}"
        case "blocked_by_dead_letter":
            resolved = subject.row["blocked_by"] is None
            remedy = "That was resolved since." if resolved else _RESOLVE
            failed = "earlier work of it had failed for good and waited for a person"
            return f"a dead letter blocked it: {failed}. {remedy}"
    return f"the reason on record is {code!r}."


def hold(subject: Subject, why: str) -> str:
    """Explain what keeps a manifest from firing now, with the remedy."""
    row, group, misfire = subject.row, subject.policies["group"], subject.policies["misfire"]
    match why:
        case "job_retired":
            why = "its job is retired, because no application declares it any more"
            return f"It is held: {why}. Declare the job again, or delete the manifest."
        case "group_disabled":
            why = f"its group {group!r} is disabled{subject.switches_now['group']}"
            return f"It is held: {why}. Enable it with 'headway group {group} --enable'."
        case "manifest_disabled":
            return _disabled_now(subject)
        case manifest_state.PAUSED:
            return f"{_pauses(row)} {_UNTIL_RESUMED.format(misfire=misfire)}"
        case "blocked_by_dead_letter":
            why = f"the dead letter {row['blocked_by']} blocks it"
            return f"It is held: {why}. Retry or acknowledge that dead letter to resume it."
        case manifest_state.STILL_OUTSTANDING | manifest_state.ONE_ALREADY_WAITS:
            since = f" since {subject.at(subject.working_since)}" if subject.working_since else ""
            waits = why == manifest_state.ONE_ALREADY_WAITS
            more = ", and one more waits already" if waits else ""
            return f"Work of it is under way{since}{more}{_while_under_way(subject)}."
    return f"It is held: {why}."


def owed_success(parent: str, number: int | None, why: str) -> str:
    """Say that one run follows a success of the parent once the hold ends."""
    until = {
        "group_disabled": "its group is enabled",
        manifest_state.PAUSED: "it is resumed",
        "blocked_by_dead_letter": "that dead letter is resolved",
    }.get(why, "that work has ended")
    return f"Success number {number} of {parent!r} is pending: one run follows when {until}."


def _while_under_way(subject: Subject) -> str:
    if subject.row["parent"] is not None and not subject.row["dormant"]:
        return "; a success of its parent meanwhile is followed when that has ended"
    if isinstance(subject.timing.cadence, Manual | Spaced):
        return ""
    policy = subject.policies["overlap"]
    return f"; its times are skipped until that has ended (overlap policy {policy!r})"


def _cause(subject: Subject, entry: LedgerEntry) -> str:
    kind, name = identity.kind_of(entry.cause), entry.cause.partition(":")[2]
    first = subject.at(entry.first_due_at)
    if kind == "due":
        return first
    if kind == "stretch":
        return f"Everything from {first} to {subject.at(entry.last_due_at)}"
    by = f" by {entry.actor}" if entry.actor else ""
    if kind == "backfill":
        occurrence = identity.occurrence_of(entry.cause) or entry.first_due_at
        return f"{subject.at(occurrence)} (backfilled{by})"
    counted = name.rpartition(":")[2].replace("/", " to ")
    number = f" {counted}" if kind in ("success", "successes") else ""
    return f"At {first} {_CAUSES.get(kind, entry.cause)}{number}{by}"


def _work(subject: Subject, entry: LedgerEntry, under_way: bool) -> str:
    late = ""
    if entry.decided_at is not None:
        seconds = (entry.decided_at - entry.first_due_at).total_seconds()
        late = f" at {subject.at(entry.decided_at)}"
        if seconds >= _PUNCTUAL_SECONDS:
            late += f", {wording.duration(round(seconds))} later,"
    work = f"work {entry.work} was queued{late}"
    if under_way:
        return f"{work} and is still under way"
    if entry.outcome is None:
        return f"{work}, and its outcome has not arrived yet"
    return f"{work} and {outcome(entry.outcome)}"


def _group_disabled(subject: Subject, group: str) -> str:
    remedy = f"Enable it with 'headway group {group} --enable'."
    if group != subject.policies["group"]:
        remedy = f"It is in group {subject.policies['group']!r} now."
    elif subject.row["group_enabled"]:
        remedy = "It is enabled again."
    return f"its group {group!r} was disabled{subject.switches['group']}. {remedy}"


def _disabled_now(subject: Subject) -> str:
    by = subject.switches_now["manifest"]
    match subject.row["disabled_by"]:
        case "once":
            return "It is a one-shot whose time is over, and has disabled itself."
        case "pruned":
            return f"It is held: its application no longer declares it{by}. Declare it again."
        case "code":
            enable = f"Change the code, or run 'headway enable {subject.row['external_id']}'."
            remedy = _enable(subject) if subject.one_shot_remedy else enable
            return f"It is held: its code declares it disabled{by}. {remedy}"
    return f"It is held: it is disabled{by}. {_enable(subject)}"


def _enable(subject: Subject) -> str:
    if subject.one_shot_remedy:
        return f"Its one time has passed: {subject.one_shot_remedy}."
    return f"Enable it with 'headway enable {subject.row['external_id']}'."


def _pauses(row: Any) -> str:
    """Name each pause that holds a manifest, with the command that ends it."""
    held = open_windows(windows_of(row))
    each = "; ".join(
        f"pause {window.pause} ({pause_text(window)}), which 'headway resume {window.pause}' ends"
        for window in held
    )
    since = utc(min(window.since for window in held))
    if len(held) == 1:
        return f"It is paused since {since} by {each}."
    return f"It is paused since {since} by {len(held)} pauses, until the last of them ends: {each}."


def _made_up(misfire: str, made_up: bool) -> str:
    match misfire:
        case "skip":
            return "its misfire policy was 'skip'"
        case _ if not made_up:
            # Its timing was changed before that, or the later fire could not happen.
            return f"nothing made up for it (misfire policy {misfire!r})"
        case "catch_up":
            return "its misfire policy, 'catch_up', made up for the latest ones only"
    return f"one later fire made up for all that was missed (misfire policy {misfire!r})"


def _changed(subject: Subject, kind: str, then: str) -> str:
    now = subject.policies[kind]
    return "" if then == now else f"Its {kind} policy is {now!r} now."
