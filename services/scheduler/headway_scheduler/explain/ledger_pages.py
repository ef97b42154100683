"""Checking the ledger of many manifests, a page at a time."""

import asyncio
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

import msgspec
from headway_contract.scheduling import LedgerAnswer, LedgerGap, LedgerQuestion
from headway_decisions.firing import due
from headway_decisions.timing.timing import Timing
from headway_postgres_kit import Connection

from headway_scheduler.explain.ledger_check import Checked, Decided, Facts, Gap, Version, check
from headway_scheduler.fire.manifest import Manifest, UnreadableManifest, read_manifests
from headway_scheduler.lookup import find_manifest, queries

# How many fire times are compared for one manifest, and for one page of them: an answer must
# come while somebody still waits for it.
MOST_OF_A_MANIFEST = 100_000
_MOST_OF_A_PAGE = 50_000
_MOST_GAPS = 1000

_INSTANT = timedelta(microseconds=1)


async def check_page(
    connection: Connection, question: LedgerQuestion, *, kept: timedelta, now: datetime
) -> LedgerAnswer:
    """Compare one page of manifests; decisions older than those kept are nobody's fault."""
    since = now - kept if question.since is None else max(question.since, now - kept)
    if question.manifest is not None:
        await find_manifest(connection, question.manifest)
    rows = await connection.fetch(
        queries["ledger_page"], question.manifest, question.after, question.limit + 1
    )
    counted, gaps, last, checked = 0, list[LedgerGap](), "", 0
    unfinished: dict[str, datetime] = {}
    for row in rows[: question.limit]:
        found = await _check_manifest(connection, row, since, now)
        counted += found.fire_times
        gaps += _told(row["external_id"], found)
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


async def _check_manifest(
    connection: Connection, row: Any, since: datetime, now: datetime
) -> Checked:
    [manifest] = await read_manifests(connection, [row["id"]], now=now)
    if isinstance(manifest, UnreadableManifest):
        return Checked(0, [Gap(since, now, f"cannot be checked: {manifest.trouble}")])
    versions = await connection.fetch(queries["timing_versions"], [row["id"]])
    decided = await connection.fetch(
        queries["scheduled_entries"], row["id"], since, MOST_OF_A_MANIFEST + 1
    )
    try:
        facts = _facts(manifest, versions, decided)
        # In a thread, because the tick shares this process.
        return await asyncio.to_thread(check, facts, since=since, now=now, most=MOST_OF_A_MANIFEST)
    except (msgspec.ValidationError, ValueError) as error:
        return Checked(0, [Gap(since, now, f"cannot be checked: {error}")])


def _facts(manifest: Manifest, versions: Sequence[Any], decided: Sequence[Any]) -> Facts:
    view = manifest.view
    return Facts(
        external_id=view.external_id,
        versions=[
            Version(one["since"], msgspec.convert(one["timing"], Timing)) for one in versions
        ],
        decided=[Decided(one["first_due_at"], one["last_due_at"]) for one in decided],
        next_due_at=view.next_due_at,
        # A spaced manifest with work under way has no due time to be late for.
        paused=due.wake_at(view) is None,
        jitter_seconds=view.jitter_seconds,
        threshold_seconds=view.misfire.threshold_seconds,
    )


def _told(external_id: str, checked: Checked) -> list[LedgerGap]:
    return [
        LedgerGap(
            manifest=external_id, first_due_at=gap.first, last_due_at=gap.last, trouble=gap.trouble
        )
        for gap in checked.gaps
    ]
