"""Check that the ledger has every fire time exactly once. The comparison is pure.

The expected fire times follow from the timings that were in force: each counts from just after its
declaration up to the next one. Due times from the manifest's `next_due_at` on are not decided yet,
which is right while the manifest is paused, or only excluded times have passed.

Times that were decided together (a stretch) are stepped over, so a long pause of a dense cadence is
cheap to check.

It also compares the pauses that hold each manifest with those in force that cover it.
"""

import asyncio
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import msgspec
from headway_contract.manifests import LedgerAnswer, LedgerGap, LedgerQuestion
from headway_decisions.firing import due, jitter
from headway_decisions.firing.manifest_state import ManifestView
from headway_decisions.firing.pauses import open_windows
from headway_decisions.timing import timing
from headway_decisions.timing.cadence import Once, Spaced
from headway_decisions.timing.timing import Timing
from headway_postgres_kit import Connection, Database
from msgspec import Struct, structs

from headway_scheduler.fire.decide import UnreadableManifest, read_manifests
from headway_scheduler.fire.pauses import windows_of
from headway_scheduler.lookup import find_manifest, queries, reading
from headway_scheduler.store import pauses

UNDECIDED = "no decision is in the ledger"
TWICE = "decided more than once"
NOT_DUE = "decided although it was no due time"
OVERDUE = "still undecided: does a scheduler tick?"
MISAPPLIED = "the pauses that hold it are not those in force that cover it"

# Fire times that are compared for one manifest and for one page, so that the answer is in time.
MOST_OF_A_MANIFEST = 100_000
_MOST_OF_A_PAGE = 50_000
_MOST_GAPS = 1000

# How late a decision may be before it counts as missing.
GRACE = timedelta(seconds=10)

_INSTANT = timedelta(microseconds=1)


class Version(Struct, frozen=True):
    """A timing, and since when it is in force."""

    since: datetime
    timing: Timing


class Decided(Struct, frozen=True):
    """One row of the ledger that a clock made."""

    first: datetime
    last: datetime


class Gap(Struct, frozen=True):
    """Times that have one trouble in common."""

    first: datetime
    last: datetime
    trouble: str


class Checked(Struct, frozen=True):
    """The result of a comparison; `until` is set if it stopped before the end."""

    fire_times: int
    gaps: list[Gap]
    until: datetime | None = None


class _Segment(Struct, frozen=True):
    after: datetime
    until: datetime
    timing: Timing


def check(
    view: ManifestView,
    versions: Sequence[Version],
    decided: Sequence[Decided],
    *,
    paused: bool = False,
    since: datetime,
    now: datetime,
    most: int = 100_000,
) -> Checked:
    """Compare at most so many fire times after `since` with the ledger; `versions` are sorted."""
    segments = _segments(versions, now, timedelta(seconds=view.misfire.threshold_seconds))
    decided = sorted(decided, key=lambda row: (row.first, row.last))
    end = now if view.next_due_at is None else min(now, view.next_due_at - _INSTANT)
    counted, gaps, until = _missing(segments, decided, since, end, most)
    gaps += _overlapping([row for row in decided if not _was_given_up(segments, row)])
    gaps += _not_due(segments, [row for row in decided if row.first > since])
    if versions and not paused:
        gaps += _overdue(view, versions[-1].timing, now)
    return Checked(counted, sorted(gaps, key=lambda gap: gap.first), until)


def _segments(versions: Sequence[Version], now: datetime, threshold: timedelta) -> list[_Segment]:
    """Return the periods in which each timing was in force; a one-shot may be declared late."""
    ends = [version.since for version in versions[1:]] + [now]
    return [
        _Segment(
            version.since
            - (threshold if isinstance(version.timing.cadence, Once) else timedelta()),
            end,
            version.timing,
        )
        for version, end in zip(versions, ends, strict=True)
    ]


def _missing(
    segments: Sequence[_Segment],
    decided: Sequence[Decided],
    since: datetime,
    end: datetime,
    most: int,
) -> tuple[int, list[Gap], datetime | None]:
    """Find due times up to the end that no row covers; consecutive ones are one gap."""
    gaps: list[Gap] = []
    position, counted, open_gap = 0, 0, False
    for segment in segments:
        due = timing.next_due(segment.timing, max(segment.after, since))
        while due is not None and due <= min(segment.until, end):
            if counted == most:
                return counted, gaps, due
            counted += 1
            while position < len(decided) and decided[position].last < due:
                position += 1
            covering = decided[position] if position < len(decided) else None
            if covering is not None and covering.first <= due:
                open_gap, due = False, max(due, min(covering.last, segment.until))
            else:
                first = gaps.pop().first if open_gap else due
                gaps.append(Gap(first, due, UNDECIDED))
                open_gap = True
            due = timing.next_due(segment.timing, due)
    return counted, gaps, None


def _was_given_up(segments: Sequence[_Segment], row: Decided) -> bool:
    """Return whether a row is a one-shot that was declared long after its time."""
    return any(
        isinstance(segment.timing.cadence, Once)
        and row.first <= segment.after
        and _names(segment, row.first)
        for segment in segments
    )


def _overlapping(decided: Sequence[Decided]) -> Iterator[Gap]:
    latest: datetime | None = None
    for row in decided:
        if latest is not None and row.first <= latest:
            yield Gap(row.first, min(row.last, latest), TWICE)
        latest = row.last if latest is None else max(latest, row.last)


def _not_due(segments: Sequence[_Segment], decided: Sequence[Decided]) -> Iterator[Gap]:
    """Find rows whose first or last time was no due time of a timing in force."""
    if not segments:
        return
    for row in decided:
        for at in {row.first, row.last}:
            if at > segments[0].after and not any(_names(segment, at) for segment in segments):
                yield Gap(row.first, row.last, NOT_DUE)
                break


def _names(segment: _Segment, at: datetime) -> bool:
    named = timing.next_due(segment.timing, at - _INSTANT) == at
    if isinstance(segment.timing.cadence, Once):
        # Also if it was declared long after its time: then it is recorded as missed.
        return named
    if isinstance(segment.timing.cadence, Spaced):
        # Its due times follow from its runs, which the ledger does not have.
        return segment.after <= at <= segment.until
    return named and segment.after < at <= segment.until


def _overdue(view: ManifestView, kept: Timing, now: datetime) -> list[Gap]:
    """Find overdue times; excluded times wait for the next time that is allowed."""
    first = allowed = view.next_due_at
    if first is not None and not isinstance(kept.cadence, Spaced):
        allowed = timing.next_allowed(kept, first - _INSTANT)
    if first is None or allowed is None:
        return []
    if jitter.fire_at(kept, view.external_id, allowed, view.jitter_seconds) + GRACE > now:
        return []
    return [Gap(first, timing.latest_due(kept, first, now) or first, OVERDUE)]


async def read_versions(connection: Connection, manifest: UUID) -> list[Version]:
    """Read the timings of a manifest, oldest first."""
    return _versions(await connection.fetch(queries["timing_versions"], [manifest]))


def _versions(rows: Sequence[Any]) -> list[Version]:
    return [Version(row["since"], msgspec.convert(row["timing"], Timing)) for row in rows]


async def check_page(
    database: Database, question: LedgerQuestion, *, kept: timedelta
) -> LedgerAnswer:
    """Check one page of manifests, as far back as decisions are kept.

    Each manifest is read in a transaction of its own, and checked after it.
    """
    async with reading(database) as (connection, now):
        since = now - kept if question.since is None else max(question.since, now - kept)
        if question.manifest is not None:
            await find_manifest(connection, question.manifest)
        rows = await connection.fetch(
            queries["ledger_page"], question.manifest, question.after, question.limit + 1
        )
    counted, gaps, last, checked = 0, list[LedgerGap](), "", 0
    unfinished: dict[str, datetime] = {}
    for row in rows[: question.limit]:
        found = await _check_manifest(database, row["id"], since)
        counted += found.fire_times
        gaps += [
            LedgerGap(
                manifest=row["external_id"],
                first_due_at=gap.first,
                last_due_at=gap.last,
                trouble=gap.trouble,
            )
            for gap in found.gaps
        ]
        if found.until is not None:
            unfinished[row["external_id"]] = found.until - _INSTANT
        last, checked = row["external_id"], checked + 1
        if counted >= _MOST_OF_A_PAGE or len(gaps) >= _MOST_GAPS:
            break
    return LedgerAnswer(
        manifests=checked,
        fire_times=counted,
        gaps=gaps[:_MOST_GAPS],
        last=last,
        more=len(rows) > checked,
        unfinished=unfinished,
    )


async def _check_manifest(database: Database, manifest_id: UUID, since: datetime) -> Checked:
    async with reading(database) as (connection, now):
        found = await read_manifests(connection, [manifest_id], now=now)
        rows = await connection.fetch(
            queries["scheduled_entries"], manifest_id, since, MOST_OF_A_MANIFEST + 1
        )
        timings = await connection.fetch(queries["timing_versions"], [manifest_id])
        covered = await connection.fetch(pauses["coverage"], [manifest_id], now)
    if not found:
        return Checked(0, [])  # deleted since the page was read
    [manifest] = found
    if isinstance(manifest, UnreadableManifest):
        return Checked(0, [Gap(since, now, f"cannot be checked: {manifest.trouble}")])
    try:
        # In a thread, because the tick shares this process.
        checked = await asyncio.to_thread(
            check,
            manifest.view,
            _versions(timings),
            [Decided(row["first_due_at"], row["last_due_at"]) for row in rows],
            # A spaced manifest with work under way has no due time to be late for.
            paused=due.wake_at(manifest.view) is None,
            since=since,
            now=now,
            most=MOST_OF_A_MANIFEST,
        )
        return structs.replace(checked, gaps=[*checked.gaps, *_misapplied(covered, now)])
    except (msgspec.ValidationError, ValueError) as error:
        return Checked(0, [Gap(since, now, f"cannot be checked: {error}")])


def _misapplied(rows: Sequence[Any], now: datetime) -> Iterator[Gap]:
    """Find manifests that other pauses hold than cover them; those that are over end soon."""
    for row in rows:
        held = open_windows(windows_of(row))
        if {w.pause for w in held if w.until is None or w.until > now} != set(row["covering"]):
            yield Gap(now, now, MISAPPLIED)
